"""What `gpuledger demo` does, in order: start, enrol, rent, watch, stop, prove."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import httpx
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.live import Live
from rich.table import Table

from adapters.demo.machines import Machines, machines
from ledger.domain.ids import rfc3339
from ledger.domain.money import format_dollars, parse_dollars
from ledger.errors import UnavailableError
from ledger.projections.rebuild import check
from ledger.services import invoicing
from ledger.services.ledger import Ledger

_START_SECONDS: Final = 60
_MACHINES: Final = (
    ("RTX 4090", 2, "0.40"),
    ("A100 80GB", 4, "1.60"),
    ("H100 SXM", 8, "2.40"),
)
_STORAGE: Final = "0.15"
_JOB: Final = "n=0; while :; do echo step $((n += 1)); sleep 1; done"
_LAST_SECONDS: Final = 6
"""What dave keeps, in seconds of his burn."""


@dataclass
class _Stage:
    """Everything the demo started and must end."""

    console: Console
    home: Path
    url: str
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)
    keys: dict[str, str] = field(default_factory=dict)
    accounts: dict[str, int] = field(default_factory=dict)
    hosts: Machines | None = None
    http: httpx.Client = field(default_factory=lambda: httpx.Client(timeout=10))

    def call(self, who: str, method: str, path: str, body: Any = None) -> Any:
        """One API request in somebody's name."""
        answer = self.http.request(
            method,
            self.url + path,
            json=body,
            headers={"Authorization": f"Bearer {self.keys[who]}"},
        )
        if answer.is_error:
            problem = answer.json()
            message = f"{method} {path}: {problem['detail']}"
            raise UnavailableError(problem["code"], message)
        return answer.json()

    def end(self) -> None:
        """Stop what was started, hosts first."""
        self.http.close()
        for process in reversed(self.processes):
            process.send_signal(signal.SIGTERM)
        for process in reversed(self.processes):
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(20)


def run(*, seconds: int = 30, keep_serving: bool = False) -> int:
    """Show the product at work for about *seconds*; returns the exit code."""
    console = Console(width=None if sys.stdout.isatty() else 100)
    os.environ.pop("GPULEDGER_DATABASE_URL", None)  # A demo never touches a database that serves.
    home = Path(tempfile.mkdtemp(prefix="gpuledger-demo-"))
    os.chmod(home, 0o755)  # noqa: S103 - a server started by root runs as a user of its own
    stage = _Stage(console, home, f"http://127.0.0.1:{_free_port()}")
    try:
        _start_server(stage)
        machines = _bring_hosts(stage)
        _bring_renters(stage)
        instances = _rent(stage, machines)
        _watch(stage, instances, max(seconds, 10))
        _finish(stage, instances)
        equal = _prove(stage)
        _next(stage, keep_serving=keep_serving)
        if keep_serving:
            with contextlib.suppress(KeyboardInterrupt):
                stage.processes[0].wait()
    finally:
        stage.end()
    return 0 if equal else 1


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _spawn(
    stage: _Stage, *arguments: str, environment: Mapping[str, str] | None = None
) -> subprocess.Popen[bytes]:
    process = subprocess.Popen(  # noqa: S603 - this program itself
        [sys.executable, "-m", *arguments],
        stdout=subprocess.PIPE,
        stderr=(stage.home / "demo.log").open("ab"),
        env=environment,
        start_new_session=True,
    )
    stage.processes.append(process)
    return process


# --- the cast ------------------------------------------------------------------------------------


def _start_server(stage: _Stage) -> None:
    stage.console.print("[bold]1.[/] a server on an embedded PostgreSQL …", highlight=False)
    port = stage.url.rpartition(":")[2]
    began = time.monotonic()
    server = _spawn(stage, "adapters.cli.main", "serve", "--home", str(stage.home), "--port", port)
    assert server.stdout is not None
    for line in server.stdout:
        text = line.decode()
        if "glk_" in text:
            stage.keys["admin"] = text.split()[-1]
        if "listens" in text:
            break
    while time.monotonic() - began < _START_SECONDS:
        with contextlib.suppress(httpx.HTTPError):
            if stage.http.get(f"{stage.url}/readyz").status_code == 200:  # noqa: PLR2004 - a status
                taken = time.monotonic() - began
                stage.console.print(f"   ready after {taken:.1f} s at {stage.url} (docs at /docs)")
                return
        time.sleep(0.1)
    message = f"the server did not come up; its log is {stage.home / 'demo.log'}"
    raise UnavailableError("server_not_ready", message)


def _person(stage: _Stage, name: str, role: str, credit: str | None = None) -> None:
    account = stage.call("admin", "POST", "/v1/accounts", {"name": name})["account_id"]
    stage.accounts[name] = account
    made = stage.call("admin", "POST", "/v1/keys", {"role": role, "account_id": account})
    stage.keys[name] = made["key"]
    if credit is not None:
        deposit = {"account_id": account, "amount": credit, "id": f"first-{name}"}
        stage.call("admin", "POST", "/v1/deposits", deposit)


def _bring_hosts(stage: _Stage) -> list[int]:
    stage.hosts = machines(stage.home / "driver")
    stage.console.print(
        f"[bold]2.[/] three hosts ({stage.hosts.said}), each signing every second with its own"
        " key …",
        highlight=False,
    )
    numbers = [_begin_host(stage, seed) for seed in range(len(_MACHINES))]
    for seed, machine in enumerate(numbers):
        model, gpus, price = _MACHINES[seed]
        host = f"host-{seed + 1}"
        _until(lambda one=machine, by=host: _enrolled(stage, by, one), "a host did not enrol")
        listing = {
            "gpu_hour": price, "storage_gb_month": _STORAGE, "up_gb": "0.003", "down_gb": "0.002",
        }  # fmt: skip
        stage.call(host, "PUT", f"/v1/machines/{machine}/listing", listing)
        stage.console.print(f"   machine {machine}: {gpus} × {model} at ${price} per GPU and hour")
    return numbers


def _begin_host(stage: _Stage, seed: int) -> int:
    """Register a machine and start its host beside; returns the machine."""
    model, gpus, _ = _MACHINES[seed]
    host = f"host-{seed + 1}"
    _person(stage, host, "host")
    spec = {
        "gpus": gpus, "gpu_name": model, "gpu_ram_gb": 24, "cpu_cores": 8 * gpus,
        "ram_gb": 64 * gpus, "disk_gb": 2_000 * gpus, "up_mbps": 10_000, "down_mbps": 10_000,
    }  # fmt: skip
    machine: int = stage.call(host, "POST", "/v1/machines", spec)["machine_id"]
    token = stage.call(host, "POST", f"/v1/machines/{machine}/enrolment-tokens")["token"]
    assert stage.hosts is not None
    folder = stage.home / host
    _spawn(
        stage,
        stage.hosts.module,
        *stage.hosts.arguments(stage.url, token, gpus, seed, folder),
        environment=stage.hosts.environment(model, gpus, folder),
    )
    return machine


def _enrolled(stage: _Stage, host: str, machine: int) -> bool:
    shown = stage.call(host, "GET", f"/v1/machines/{machine}")
    return shown["last_report_at"] is not None


def _until(happened: Any, otherwise: str) -> None:
    began = time.monotonic()
    while not happened():
        if time.monotonic() - began > _START_SECONDS:
            raise UnavailableError("demo_stuck", otherwise)
        time.sleep(0.1)


def _bring_renters(stage: _Stage) -> None:
    _person(stage, "alice", "renter", "50")
    _person(stage, "carol", "renter", "50")
    _person(stage, "dave", "renter", "50")


def _rent(stage: _Stage, machines: list[int]) -> dict[str, int]:
    stage.console.print("[bold]3.[/] three renters …", highlight=False)
    wishes = {"alice": (machines[0], 1), "carol": (machines[1], 2), "dave": (machines[2], 8)}
    instances = {}
    for name, (machine, gpus) in wishes.items():
        order = {
            "machine_id": machine, "gpus": gpus, "disk_gb": 100, "label": f"{name}-job",
            "launch": {"onstart": _JOB},
        }  # fmt: skip
        made = stage.call(name, "POST", "/v1/instances", order)
        instances[name] = made["instance_id"]
        stage.console.print(
            f"   {name} rents {gpus} GPU(s) of machine {machine}: {made['kind']},"
            f" ${made['gpu_rate']} an hour, disk ${made['storage_rate_per_hour']} an hour"
        )
    return instances


# --- the show ------------------------------------------------------------------------------------


def _watch(stage: _Stage, instances: dict[str, int], seconds: int) -> None:
    """A live table; on the way carol stops, and dave gives his credit away and runs dry."""
    began = time.monotonic()
    acts = [
        (seconds * 0.25, "dave sends his credit to alice and keeps a few seconds' worth", _give),
        (seconds * 0.5, "carol stops: her GPU meter ends, her disk goes on", _stop),
    ]
    told = "watch the cost of every second …"
    is_terminal = stage.console.is_terminal
    with (
        Live(console=stage.console, refresh_per_second=4, transient=False)
        if is_terminal
        else (contextlib.nullcontext()) as live
    ):
        while (elapsed := time.monotonic() - began) < seconds:
            if acts and elapsed >= acts[0][0]:
                _, told, act = acts.pop(0)
                act(stage, instances)
                if live is None:
                    stage.console.print(f"   {elapsed:4.0f} s: {told}", highlight=False)
            if live is not None:
                live.update(_picture(stage, instances, told, elapsed))
            time.sleep(0.5)
    if not is_terminal:
        stage.console.print(_picture(stage, instances, "at the end", seconds))


def _give(stage: _Stage, _instances: dict[str, int]) -> None:
    balance = stage.call("dave", "GET", "/v1/balance")
    burn = parse_dollars(balance["burn_per_hour"]) // 3_600
    spare = parse_dollars(balance["available"]) - _LAST_SECONDS * burn
    body = {"to_account_id": stage.accounts["alice"], "amount": format_dollars(spare), "id": "gift"}
    stage.call("dave", "POST", "/v1/transfers", body)


def _stop(stage: _Stage, instances: dict[str, int]) -> None:
    stage.call("carol", "POST", f"/v1/instances/{instances['carol']}/stop")


def _picture(stage: _Stage, instances: dict[str, int], told: str, elapsed: float) -> Table:
    table = Table(title=f"{elapsed:4.0f} s  {told}", title_justify="left", box=SIMPLE_HEAD)
    # Processes in networks of their own reach nobody, and carry nothing.
    traffic = ("GB",) if stage.hosts is not None and not stage.hosts.is_real else ()
    for column in ("renter", "state", "GPU s", *traffic, "cost", "$/s", "left", "runway"):
        left = column in {"renter", "state"}
        table.add_column(column, justify="left" if left else "right", no_wrap=True)
    for name, number in instances.items():
        one = stage.call(name, "GET", f"/v1/instances/{number}")
        balance = stage.call(name, "GET", "/v1/balance")
        cost = sum(
            parse_dollars(one[f"{meter}_charge"]) for meter in ("gpu", "storage", "up", "down")
        )
        burn = parse_dollars(balance["burn_per_hour"]) // 3_600
        runway = balance["runway_seconds"]
        moved = (one["up_bytes"] + one["down_bytes"]) // 10_000_000
        state = one["status"] + (f" ({one['reason'].replace('_', ' ')})" if one["reason"] else "")
        table.add_row(
            name,
            state,
            str(one["gpu_seconds"]),
            *([f"{moved // 100}.{moved % 100:02d}"] if traffic else []),
            _short(cost),
            _short(burn),
            _short(parse_signed(balance["available"])),
            "-" if runway is None else f"{runway:,} s",
        )
    return table


def _short(nanos: int) -> str:
    """Six decimals, cut off: enough to watch, and no more than fits."""
    sign = "-" if nanos < 0 else ""
    whole, rest = divmod(abs(nanos), 10**9)
    return f"{sign}{whole}.{rest // 1_000:06d}"


def parse_signed(text: str) -> int:
    """Nanos of a decimal that may be negative."""
    return -parse_dollars(text[1:]) if text.startswith("-") else parse_dollars(text)


# --- the proof -----------------------------------------------------------------------------------


def _finish(stage: _Stage, instances: dict[str, int]) -> None:
    stage.console.print("[bold]4.[/] everything is destroyed; every meter ends …", highlight=False)
    for name, number in instances.items():
        stage.call(name, "DELETE", f"/v1/instances/{number}")
    folders = [stage.home / f"host-{seed + 1}" / "instances" for seed in range(len(_MACHINES))]
    _until(lambda: not any(map(_is_used, folders)), "an instance outlives its destruction")
    time.sleep(2.5)  # the last seconds are on their way


def _is_used(folder: Path) -> bool:
    """Whether a host's folder of instances holds one; there is none where it is simulated."""
    return folder.exists() and any(folder.iterdir())


def _prove(stage: _Stage) -> bool:
    ledger = Ledger.open(stage.home)
    try:
        names = {number: name for name, number in stage.accounts.items()}
        with ledger.reading() as connection:
            now = ledger.clock()
            previews = [
                invoicing.preview(connection, number, now)
                for name, number in stage.accounts.items()
                if not name.startswith("host-")
            ]
        for preview in previews:
            stage.console.print(_invoice(preview, names[preview.account_id]))
        _books(stage)
        result = check(ledger.database)
    finally:
        ledger.close()
    verdict = "equal" if result.equal else "NOT EQUAL"
    stage.console.print(
        f"[bold]5.[/] rebuilt {len(result.tables)} tables from position 0 of the log"
        f" ({result.ticks} ticks) in {result.seconds:.1f} s: [bold]{verdict}[/]",
        highlight=False,
    )
    return result.equal


def _invoice(preview: invoicing.Preview, name: str) -> Table:
    table = Table(
        title=f"{name}: this month's invoice so far"
        f" ({rfc3339(preview.period_from)} to {rfc3339(preview.period_until)})",
        title_justify="left",
    )
    for column in ("item", "quantity", "rate", "amount"):
        table.add_column(column, justify="left" if column == "item" else "right")
    table.add_row("opening balance", "", "", format_dollars(preview.opening))
    table.add_row("deposits and transfers", "", "", format_dollars(preview.movements))
    units = {"gpu": "s", "storage": "s", "up": "bytes", "down": "bytes"}
    for line in preview.lines:
        table.add_row(
            f"instance {line.instance_id} {line.meter}",
            f"{line.quantity:,} {units[line.meter]}",
            format_dollars(line.rate),
            format_dollars(-line.amount),
        )
    table.add_row("[bold]closing balance", "", "", f"[bold]{format_dollars(preview.closing)}")
    return table


def _books(stage: _Stage) -> None:
    books = stage.call("admin", "GET", "/v1/trial-balance")
    table = Table(title="trial balance", title_justify="left")
    for column in ("account", "debit", "credit"):
        table.add_column(column, justify="left" if column == "account" else "right")
    for row in books["rows"]:
        table.add_row(row["ledger_account"], row["debit"], row["credit"])
    table.add_row("[bold]difference", "", f"[bold]{books['difference']}")
    stage.console.print(table)


def _next(stage: _Stage, *, keep_serving: bool) -> None:
    say = stage.console.print
    say("\nWhat to try next", style="bold")
    command = f"gpuledger {{}} --home {stage.home}"
    for what in ("explain 3", "timeline instance 2", "ticks 1 --limit 5", "events --limit 5"):
        say(f"  .venv/bin/{command.format(what)}", highlight=False)
    if keep_serving:
        say(f"  curl -H 'Authorization: Bearer {stage.keys['admin']}' {stage.url}/v1/instances")
        say(f"  open {stage.url}/docs; Ctrl-C ends the server", highlight=False)
    else:
        say("  .venv/bin/gpuledger demo --serve   keeps the server running", highlight=False)
