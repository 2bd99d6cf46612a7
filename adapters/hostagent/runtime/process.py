"""Instances as plain processes, for machines without a container engine.

An instance is a process group in its own process, network and mount namespaces where the kernel
allows it, under a user number of its own, with a folder as its disk. What of that could not be had
is said (`faults`, `isolation`). The image is not used: the command runs on the host's own files.

Everything is in one folder per instance, so a new agent finds what the one before started.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from ipaddress import IPv4Network
from pathlib import Path
from typing import Any, Final, Literal

from adapters.hostagent.runtime.bridge import ADDRESSES, Bridge
from adapters.hostagent.runtime.firewall import FirewallError
from adapters.hostagent.runtime.port import (
    LOG_BYTES,
    Connection,
    Found,
    LaunchError,
    LaunchSpec,
    Mount,
    Runtime,
    RuntimeEvent,
    RuntimeFault,
    last_lines,
)
from adapters.hostagent.runtime.process_files import (
    end_of,
    exit_of,
    held,
    is_alive,
    is_locked,
    read,
    reap_later,
    send,
    until_gone,
    write,
)
from ledger.domain.hardware import ConnectionPort

_SHIM: Final = Path(__file__).with_name("shim.py")
_START_SECONDS: Final = 10.0
_KILL_SECONDS: Final = 10.0
_POLL_SECONDS: Final = 0.01
_FIRST_UID: Final = 300_000
_UIDS: Final = 100_000
_PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_NAME: Final = re.compile(r"[0-9]{1,19}")
_ENV_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

Network = Literal["own", "bridge", "host"]
User = Literal["own", "agent"]


class ProcessRuntime(Runtime):
    """Runs each instance in `<root>/<instance>/`, with `disk/` in it as its working folder."""

    name = "process"

    def __init__(
        self,
        root: Path,
        *,
        network: Network = "own",
        user: User = "own",
        addresses: IPv4Network | None = None,
    ) -> None:
        """Keep instances under *root*.

        Args:
            root: A folder that instances may pass through: no parent may be closed to others.
            network: `own`: an instance has a network of its own and reaches nobody, so its bytes
                can be counted. `bridge`: one of its own that reaches the world through the host's
                address, and ports of the host that lead there. `host`: it shares the host's, and
                its bytes cannot be counted.
            user: `own`: each instance runs under a number of its own, where the agent is root.
                `agent`: all run as the agent's user, and could touch its files.
            addresses: What `bridge` gives addresses out of; null: the usual ones.
        """
        self.root = root
        self._ways = threading.Lock()
        """Of two that start at once, each must know what the other was given."""
        self._bridge = Bridge(addresses or ADDRESSES) if network == "bridge" else None
        self._network = network
        self._user = user

    # --- the port --------------------------------------------------------------------------------

    def list(self) -> list[Found]:
        """Every instance that has a folder here."""
        if self._bridge is not None:
            with self._ways, contextlib.suppress(FirewallError):
                # A start tells of it; meanwhile what runs goes on without the world.
                self._bridge.keep(self._metas(), is_due=False)
        found = [self._found(folder, meta) for folder, meta in self._instances()]
        return sorted(found, key=lambda one: one.instance)

    def inspect(self, container: str) -> Found | None:
        """One instance; null when it has no folder."""
        folder = self._folder(container)
        meta = None if folder is None else read(folder / "meta.json")
        return None if folder is None or meta is None else self._found(folder, meta)

    def start(self, spec: LaunchSpec) -> Found:
        """Let the instance run; its disk is made, or kept as it is."""
        folder = self.root / str(spec.instance)
        self._require_able(spec)
        argv = _command_of(spec)
        known = self.inspect(folder.name)
        if known is not None and known.is_alive:
            if known.assignment == spec.assignment:
                return known
            self.stop(folder.name, 0)
        self._await_end(folder)
        self.root.mkdir(parents=True, exist_ok=True)
        self.root.chmod(0o711)
        disk = folder / "disk"
        uid = _uid_of(spec.instance) if self._user == "own" else None
        folder.mkdir(mode=0o711, exist_ok=True)
        folder.chmod(0o711)
        disk.mkdir(mode=0o700, exist_ok=True)
        if uid is not None:
            with contextlib.suppress(OSError):
                os.chown(disk, uid, uid)
        for name in ("run.json", "exit.json"):
            (folder / name).unlink(missing_ok=True)
        meta = {
            "instance": spec.instance,
            "assignment": spec.assignment,
            "gpu_uuids": list(spec.gpu_uuids),
            "ports": [[one.container_port, one.protocol, one.container_port] for one in spec.ports],
        }
        link = None
        with self._ways:
            if self._bridge is not None:
                others = [one for one in self._metas() if one["instance"] != spec.instance]
                had = read(folder / "meta.json") or {}
                meta |= self._bridge.place(had, spec.ports, others)
                link = self._bridge.orders(meta, folder)
            write(folder / "meta.json", meta)
        self._open_ways()
        orders = {
            "folder": str(folder),
            "disk": str(disk),
            "argv": argv,
            "env": _environment(spec, disk),
            "uid": uid,
            "network": self._network,
            "link": link,
        }
        self._launch(folder, orders)
        return self._found(folder, meta)

    def stop(self, container: str, grace_s: float) -> None:
        """Ask its processes to end, and kill them after *grace_s*; the disk stays."""
        folder = self._folder(container)
        run = None if folder is None else read(folder / "run.json")
        if folder is None or run is None:
            return
        with held(run) as process:
            if process is not None:
                if grace_s > 0:
                    send(process, signal.SIGTERM)
                    until_gone(process, grace_s)
                send(process, signal.SIGKILL)
                until_gone(process, _KILL_SECONDS)
        # Without a process namespace the shim now kills what left the group; then it lets go.
        self._await_end(folder)

    def remove(self, container: str) -> None:
        """Kill its processes and delete its folder with the disk."""
        folder = self._folder(container)
        if folder is None or not folder.exists():
            return
        self.stop(container, 0)
        # A half deleted folder is no instance any more: `list` wants the file that goes first.
        (folder / "meta.json").unlink(missing_ok=True)
        with contextlib.suppress(LaunchError):
            self._open_ways()  # What is left of its ports goes with the next list.
        shutil.rmtree(folder, ignore_errors=True)

    def events(self, since: float) -> Sequence[RuntimeEvent]:
        """The last start and the last end of each instance, if they are not before *since*."""
        found = []
        # Asked every few seconds: a folder's name is its instance, and nothing is read.
        for folder in os.scandir(self.root) if self.root.exists() else ():
            if not _NAME.fullmatch(folder.name):
                continue
            for name, kind in (("run.json", "start"), ("exit.json", "exit")):
                with contextlib.suppress(OSError):
                    at = os.stat(f"{folder.path}/{name}").st_mtime
                    if at >= since:
                        found.append(RuntimeEvent(at, folder.name, int(folder.name), _kind(kind)))
        return sorted(found)

    def probe(self, container: str) -> bool:
        """True while it runs and the devices of the driver, where there are any, are visible."""
        found = self.inspect(container)
        if found is None or found.pid is None:
            return False
        if not Path("/dev/nvidiactl").exists():
            return True
        return Path(f"/proc/{found.pid}/root/dev/nvidiactl").exists()

    def set_keys(self, container: str, keys: Sequence[str]) -> bool:
        """There is no way in by ssh: a launch that wants one is refused."""
        del container, keys
        return False

    def logs(self, container: str, tail: int | None) -> bytes:
        """The last lines of its output."""
        folder = self._folder(container)
        text = b""
        if folder is not None:
            for name in ("output.log", "output.log.1"):
                if len(text) < LOG_BYTES:
                    text = end_of(folder / name, LOG_BYTES - len(text)) + text
        return last_lines(text, tail)

    def connection(self, container: str) -> Connection:
        """The ports of the host that lead to it, or are its own; alone in a network it has none.

        Whether the instance listens there is its own affair.
        """
        folder = self._folder(container)
        meta = None if folder is None else read(folder / "meta.json")
        ports = [] if meta is None else meta.get("ports", [])
        return Connection(
            ports=[
                ConnectionPort(container_port=number, host_port=host, protocol=protocol)
                for number, protocol, host in ports
            ]
        )

    def make_copy(self, mount: Mount) -> None:
        """There are no volumes here."""

    def remove_volume(self, volume: int) -> None:
        """There are none: a launch with a volume is refused."""

    def faults(self) -> Sequence[RuntimeFault]:
        """What this machine does not allow."""
        found = []
        if self._user == "agent" and os.geteuid() == 0:
            found.append(
                RuntimeFault("instances run as root", "run the agent with --instance-user own")
            )
        if os.geteuid() != 0:
            found.append(
                RuntimeFault(
                    "instances share the agent's user, processes and network",
                    "run the agent as root",
                )
            )
        elif self._network != "host" and not _can_unshare():
            found.append(
                RuntimeFault(
                    "the kernel gives no network namespace: bytes of instances are not counted",
                    "allow CLONE_NEWNET to the agent, or use Docker",
                )
            )
        if self._bridge is not None:
            found += self._bridge.faults()
        found.append(
            RuntimeFault(
                "the size of an instance's disk is not enforced",
                "use Docker on XFS with pquota",
            )
        )
        return found

    def isolation(self, instance: int) -> tuple[str, ...]:
        """What the running instance has of its own: pid, net, ipc, mount, user."""
        run = read(self.root / str(instance) / "run.json")
        return () if run is None else tuple(run["isolation"])

    def _require_able(self, spec: LaunchSpec) -> None:
        """Refuse what plain processes cannot be given, with the way out."""
        lacks = [
            ("way in by ssh (`runtype`)", spec.has_ssh),
            ("notebook server (`runtype`)", spec.jupyter is not None),
            ("user of one's choice (`user`)", spec.user is not None),
            ("host name (`hostname`)", spec.hostname is not None),
            ("volumes", bool(spec.mounts)),
            ("ports that are reached from outside", bool(spec.ports) and self._network == "own"),
            (
                "other number for a port outside than inside",
                self._network == "host"
                and any(one.host_port not in {None, one.container_port} for one in spec.ports),
            ),
        ]
        missing = [what for what, is_wished in lacks if is_wished]
        if missing:
            message = (
                f"this host runs plain processes and has no {', no '.join(missing)}:"
                " leave it out, or rent a machine that runs containers"
            )
            raise LaunchError("bad_configuration", message)

    def _open_ways(self) -> None:
        """Let instances reach the world and be reached, as far as they have a link.

        Raises:
            LaunchError: `runtime_failed`, the rules could not be put in place.
        """
        if self._bridge is None:
            return
        try:
            with self._ways:
                self._bridge.keep(self._metas())
        except FirewallError as error:
            message = f"instances of this host have no way out: {error}"
            raise LaunchError("runtime_failed", message) from error

    # --- the folder ------------------------------------------------------------------------------

    def _instances(self) -> Iterator[tuple[Path, dict[str, Any]]]:
        """Each instance's folder and what is noted of it; one that goes meanwhile is none."""
        if not self.root.exists():
            return
        for folder in self.root.iterdir():
            meta = read(folder / "meta.json") if _NAME.fullmatch(folder.name) else None
            if meta is not None:
                yield folder, meta

    def _metas(self) -> Sequence[dict[str, Any]]:
        """What is written of all instances."""
        return [meta for _, meta in self._instances()]

    def _folder(self, container: str) -> Path | None:
        return self.root / container if _NAME.fullmatch(container) else None

    def _found(self, folder: Path, meta: dict[str, Any]) -> Found:
        run, ended = read(folder / "run.json"), read(folder / "exit.json")
        lives = run is not None and ended is None and is_alive(run)
        if run is not None and not lives and ended is None:
            ended = exit_of(folder)
        state: Literal["created", "running", "exited"] = "created"
        if run is not None:
            state = "running" if lives else "exited"
        return Found(
            id=folder.name,
            instance=meta["instance"],
            assignment=meta["assignment"],
            state=state,
            gpu_uuids=tuple(meta["gpu_uuids"]),
            pid=run["pid"] if lives and run is not None else None,
            started_at=None if run is None else run["started_at"],
            exit_code=None if ended is None else ended["code"],
            disk=str(folder / "disk"),
        )

    def _launch(self, folder: Path, orders: dict[str, Any]) -> None:
        shim = subprocess.Popen(  # noqa: S603 - our own program; its orders come by a pipe
            [sys.executable, "-I", "-S", str(_SHIM)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            start_new_session=True,
            cwd="/",
            env={"PATH": _PATH},
        )
        assert shim.stdin is not None
        assert shim.stderr is not None
        with contextlib.suppress(BrokenPipeError), shim.stdin as orders_in:
            orders_in.write(json.dumps(orders).encode())
        deadline = time.monotonic() + _START_SECONDS
        while (run := read(folder / "run.json")) is None:
            if shim.poll() is not None or time.monotonic() > deadline:
                shim.kill()
                _, said = shim.communicate()
                why = said.decode(errors="replace").splitlines()[-1:]
                message = f"instance {folder.name} could not be started: {''.join(why)[:200]}"
                raise LaunchError("runtime_failed", message)
            time.sleep(_POLL_SECONDS)
        shim.stderr.close()
        reap_later(shim)
        if run["error"]:
            raise LaunchError("bad_command", run["error"])

    def _await_end(self, folder: Path) -> None:
        """Wait until no shim of this instance lives; also one that an agent before started."""
        deadline = time.monotonic() + _KILL_SECONDS
        while is_locked(folder / "lock"):
            run = read(folder / "run.json")
            if run is not None and not is_alive(run) and time.monotonic() > deadline:
                with contextlib.suppress(OSError):
                    os.kill(run["shim"], signal.SIGKILL)
            elif time.monotonic() > deadline + _KILL_SECONDS:
                message = f"the processes of instance {folder.name} do not end"
                raise LaunchError("runtime_failed", message)
            time.sleep(_POLL_SECONDS)


# --- what is started ------------------------------------------------------------------------------


def _command_of(spec: LaunchSpec) -> list[str]:
    if spec.entrypoint:
        return [spec.entrypoint, *spec.args]
    if spec.onstart:
        return ["/bin/sh", "-c", spec.onstart, "onstart", *spec.args]
    if spec.args:
        return list(spec.args)
    message = "the process runtime needs a command: give `onstart` or `args`"
    raise LaunchError("bad_command", message)


def _environment(spec: LaunchSpec, disk: Path) -> dict[str, str]:
    """A clean environment: nothing of the agent's own is in it."""
    for name, value in spec.env.items():
        if not _ENV_NAME.fullmatch(name) or "\0" in value:
            raise LaunchError("env_invalid", f"{name!r} is no name of an environment variable")
    uuids = ",".join(spec.gpu_uuids)
    return {
        "PATH": _PATH,
        "LANG": "C.UTF-8",
        "NVIDIA_VISIBLE_DEVICES": uuids,
        "CUDA_VISIBLE_DEVICES": uuids,
        **spec.env,
        "HOME": str(disk),
        "GPULEDGER_INSTANCE": str(spec.instance),
        "GPULEDGER_ASSIGNMENT": str(spec.assignment),
    }


def _uid_of(instance: int) -> int | None:
    """A user number that no account of the host has; none when the agent cannot change users."""
    return _FIRST_UID + instance % _UIDS if os.geteuid() == 0 else None


def _kind(text: str) -> Literal["start", "exit"]:
    return "start" if text == "start" else "exit"


def _can_unshare() -> bool:
    """Whether a child of this process may have a network of its own; tried in a child."""
    code = "import ctypes, sys; sys.exit(ctypes.CDLL(None).unshare(0x40000000) != 0)"
    command = [sys.executable, "-I", "-S", "-c", code]
    tried = subprocess.run(command, check=False, timeout=_START_SECONDS)  # noqa: S603 - ours
    return tried.returncode == 0
