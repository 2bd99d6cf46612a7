"""What stands in an agent's way on this machine, each with what to do about it."""

from __future__ import annotations

import ctypes
import os
import shutil
import sqlite3
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Final, Literal, NamedTuple

import httpx

from adapters.hostagent import kernel_gpus
from adapters.hostagent.acting.calls import SignedCalls
from adapters.hostagent.acting.link import Link
from adapters.hostagent.acting.ways_in import public_address
from adapters.hostagent.home import AgentHome, Enrolled
from adapters.hostagent.identity import HostIdentity
from adapters.hostagent.runtime.port import Runtime
from adapters.hostagent.suite.child import ChildSuite
from ledger.domain.machine_call import SKEW_SECONDS
from ledger.errors import LedgerError

_FREE_BYTES: Final = 2 * 2**30
_OFFSET_SECONDS: Final = 5.0
_TIMEOUT_SECONDS: Final = 10.0
_SUITE_SECONDS: Final = 60.0
"""A framework may take long to be read from a cold disk."""
_UNSYNCED: Final = 5
_UNAUTHORIZED: Final = 401

Level = Literal["ok", "warning", "error"]


class Finding(NamedTuple):
    """One thing that was looked at."""

    check: str
    level: Level
    found: str
    way_out: str = ""


def examine(
    home: AgentHome, make_runtime: Callable[[], Runtime], suite_python: str = sys.executable
) -> list[Finding]:
    """Look at everything; nothing is changed, and no finding keeps others from being found."""
    found = [*_permissions(), *_driver(), *_suite(suite_python), *_runtime(make_runtime)]
    return [*found, *_disk(home), *_clock(), *_enrolment(home)]


def _permissions() -> Iterator[Finding]:
    if os.geteuid() == 0:
        yield Finding("permissions", "ok", "the agent runs as root")
    else:
        yield Finding(
            "permissions",
            "warning",
            f"the agent runs as user {os.geteuid()}",
            "run it as root: it must see the processes of all containers",
        )
    # In a container of its own, process 1 is whatever the container began with.
    if Path("/proc/2/comm").exists() or not Path("/.dockerenv").exists():
        yield Finding("process namespace", "ok", "the agent sees the host's processes")
    else:
        yield Finding(
            "process namespace",
            "error",
            "the agent is in a container with processes of its own",
            "start the container with --pid=host",
        )


def _driver() -> Iterator[Finding]:
    version, gpus = kernel_gpus.driver_version(), kernel_gpus.gpus()
    if version is None:
        yield Finding(
            "driver", "error", "no NVIDIA driver is loaded", "install the driver and reboot"
        )
        return
    yield Finding("driver", "ok", f"NVIDIA {version}, {len(gpus)} GPUs")
    if shutil.which("nvidia-smi") is None:
        yield Finding(
            "persistence mode",
            "warning",
            "nvidia-smi is not installed, so the mode is not known",
            "install the driver's utilities",
        )
        return
    try:
        answer = subprocess.run(
            ["nvidia-smi", "--query-gpu=persistence_mode", "--format=csv,noheader"],  # noqa: S607
            check=False,
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_SECONDS,
        )
    except (OSError, subprocess.TimeoutExpired):
        yield Finding(
            "persistence mode",
            "error",
            f"nvidia-smi did not answer in {_TIMEOUT_SECONDS:.0f} s",
            "look for XIDs with `dmesg | grep -i xid`; a hung driver needs a reboot",
        )
        return
    modes = answer.stdout.split()
    if modes and all(mode == "Enabled" for mode in modes):
        yield Finding("persistence mode", "ok", "on")
    else:
        yield Finding(
            "persistence mode",
            "warning",
            f"not on for all GPUs: {' '.join(modes) or answer.stderr.strip()[:80]}",
            "run nvidia-persistenced, or `nvidia-smi -pm 1`",
        )


def _suite(python: str) -> Iterator[Finding]:
    """Whether the platform's checks can be computed; asked where there is a GPU to compute on."""
    gpus = kernel_gpus.gpus()
    if not gpus:
        return
    found = ChildSuite([one.uuid for one in gpus], python).run("framework", "", _SUITE_SECONDS)
    if found.result == "passed":
        yield Finding("suite", "ok", f"PyTorch computes on {found.measures['gpus']} GPUs")
        return
    yield Finding(
        "suite",
        "warning",
        f"challenges and benchmarks cannot be computed: {found.measures['reason']}",
        "install PyTorch for CUDA in any Python and name it with --suite-python; without it the"
        " machine has no score, and a GPU that failed stays out",
    )


def _runtime(make_runtime: Callable[[], Runtime]) -> Iterator[Finding]:
    try:
        runtime = make_runtime()
    except ImportError as error:
        yield Finding("runtime", "error", str(error), "pip install 'gpuledger[agent]'")
        return
    faults = runtime.faults()
    if not faults:
        yield Finding(f"runtime {runtime.name}", "ok", "keeps its whole contract")
    for one in faults:
        is_away = "does not answer" in one.what
        yield Finding(
            f"runtime {runtime.name}", "error" if is_away else "warning", one.what, one.way_out
        )


def _disk(home: AgentHome) -> Iterator[Finding]:
    folder = home.folder
    while not folder.exists():
        folder = folder.parent
    free = shutil.disk_usage(folder).free
    text = f"{free / 2**30:.1f} GiB free in {folder}"
    if free < _FREE_BYTES:
        yield Finding("disk", "error", text, "free 2 GiB: the spool may take 512 MiB")
    else:
        yield Finding("disk", "ok", text)
    if not os.access(folder, os.W_OK):
        yield Finding("disk", "error", f"{folder} cannot be written", "choose another --state")


def _clock() -> Iterator[Finding]:
    """Ask the kernel whether anything keeps its clock; `adjtimex` without a change."""
    buffer = ctypes.create_string_buffer(512)
    state = ctypes.CDLL(None).adjtimex(buffer)
    if state == _UNSYNCED or state < 0:
        yield Finding(
            "clock",
            "warning",
            "the kernel's clock is not synchronised",
            "run chrony or systemd-timesyncd; until then the server's time is used",
        )
    else:
        yield Finding("clock", "ok", "synchronised")


def _enrolment(home: AgentHome) -> Iterator[Finding]:
    try:
        enrolled = home.enrolled()
        identity = HostIdentity.load(home.key_file)
    except (LedgerError, OSError) as error:
        text = error.message if isinstance(error, LedgerError) else str(error)
        yield Finding("enrolment", "error", text, "run `gpuledger agent enrol`")
        return
    mode = stat.S_IMODE(home.key_file.stat().st_mode)
    yield Finding("enrolment", "ok", f"machine {enrolled.machine}, key {enrolled.key_id}")
    yield Finding("key", "ok", f"mode {mode:04o}")
    yield from _spool(home)
    yield from _address(enrolled)
    yield from _network(enrolled, identity)


def _address(enrolled: Enrolled) -> Iterator[Finding]:
    found = public_address(enrolled.server)
    if found is not None:
        yield Finding("address", "ok", f"renters are told {found}")
    else:
        yield Finding(
            "address",
            "warning",
            "this machine's own address is not one that the world can reach",
            "run the agent with --public-ip, or renters are told ports without an address",
        )


def _spool(home: AgentHome) -> Iterator[Finding]:
    if not home.spool_file.exists():
        yield Finding("spool", "ok", "not made yet")
        return
    try:
        database = sqlite3.connect(f"file:{home.spool_file}?mode=ro", uri=True)
        waiting = database.execute("SELECT count(*) FROM reports").fetchone()[0]
        dead = database.execute("SELECT count(*) FROM dead_letters").fetchone()[0]
        database.close()
    except sqlite3.Error as error:
        yield Finding("spool", "error", str(error), "mend the disk; keep the file for the books")
        return
    level: Level = "warning" if dead else "ok"
    way_out = "`gpuledger agent status` shows why they were refused" if dead else ""
    yield Finding("spool", level, f"{waiting} reports wait, {dead} dead letters", way_out)


def _network(enrolled: Enrolled, identity: HostIdentity) -> Iterator[Finding]:
    try:
        with httpx.Client(timeout=_TIMEOUT_SECONDS) as http:
            began = time.time()
            health = http.get(enrolled.server + "/healthz")
            middle = (began + time.time()) / 2
            health.raise_for_status()
            yield Finding("server", "ok", f"{enrolled.server} answers")
            yield from _offset(health, middle)
            calls = SignedCalls(
                enrolled.server,
                enrolled.machine,
                identity,
                second=lambda: int(time.time()),
                http=http,
            )
            Link(calls, lambda *_: None).ask()
    except httpx.HTTPStatusError as error:
        refused = error.response.status_code == _UNAUTHORIZED
        yield Finding(
            "server",
            "error",
            f"{error.request.url.path} answered {error.response.status_code}",
            "enrol anew: the key was revoked, or the clock is off" if refused else "ask its owner",
        )
    except httpx.HTTPError as error:
        yield Finding(
            "server",
            "error",
            f"{enrolled.server} does not answer: {error}",
            "check the address, the firewall and the name server",
        )
    else:
        yield Finding("key at the server", "ok", "the server knows this machine's key")


def _offset(health: httpx.Response, at: float) -> Iterator[Finding]:
    text = health.headers.get("date")
    if text is None:
        return
    # The header has whole seconds: half of one is the middle of what it may mean.
    offset = parsedate_to_datetime(text).timestamp() + 0.5 - at
    shown = f"{offset:+.1f} s against the server"
    if abs(offset) > SKEW_SECONDS:
        yield Finding("clock offset", "error", shown, "set the clock: signed requests are refused")
    elif abs(offset) > _OFFSET_SECONDS:
        yield Finding("clock offset", "warning", shown, "run chrony or systemd-timesyncd")
    else:
        yield Finding("clock offset", "ok", shown)
