"""Billing a real cluster's trace: every pod a rental, every second of it a signed tick.

Nodes become machines, pods on-demand rentals. Placement is the trace's own (first node in file
order with enough free GPUs); everything else is the real services under a simulated clock.
"""

from __future__ import annotations

import csv
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

from adapters.hostagent.simulated import SimulatedHost
from adapters.simulation.world import World
from ledger.domain.events import MachineSpec
from ledger.domain.ids import month_start
from ledger.domain.money import format_dollars, parse_dollars
from ledger.domain.usage import MAX_WINDOW_SECONDS
from ledger.errors import RejectedError
from ledger.services import accounts, invoicing, listings, policies, rentals
from ledger.services.ledger import Policy

ORIGIN: Final = 1_767_225_600
"""Second 0 of a trace: 2026-01-01T00:00:00Z."""
GPU_HOUR: Final = {
    "P100": "0.20",
    "T4": "0.15",
    "V100M16": "0.30",
    "V100M32": "0.45",
    "A10": "0.35",
    "G2": "0.50",
    "G3": "0.80",
}
STORAGE_GB_MONTH: Final = "0.15"
CREDIT: Final = 10_000_000 * 10**9
DISK_GB: Final = 100
FLUSH_SECONDS: Final = 21_600
"""All machines hand over their spools at least this often: late usage is never near."""
_POLICY = Policy(
    version=1,
    fee_bp=1_500,
    late_usage_seconds=259_200,
    admission=True,
    offline_after_seconds=None,
)


class Node(NamedTuple):
    """A machine of the trace."""

    name: str
    gpus: int
    model: str


class Pod(NamedTuple):
    """A task of the trace, clipped to the window; seconds from the start of the trace."""

    name: str
    gpus: int
    qos: str
    original: int
    start: int
    end: int


class Rental(NamedTuple):
    """What became of a pod."""

    pod: Pod
    node: int | None
    """Index of the node, or none where it fits nowhere."""
    instance: int | None


def read_nodes(path: Path) -> list[Node]:
    """The machines, in file order.

    Raises:
        RejectedError: `invalid_trace`.
    """
    with _rows(path, {"sn", "gpu", "model"}) as rows:
        nodes = [Node(row["sn"], int(row["gpu"]), row["model"]) for row in rows]
    unknown = {node.model for node in nodes} - GPU_HOUR.keys()
    if unknown:
        message = f"{path}: there is no price for the GPU models {', '.join(sorted(unknown))}"
        raise RejectedError("invalid_trace", message)
    return nodes


def read_pods(path: Path, start: int = 0, seconds: int | None = None) -> list[Pod]:
    """The tasks that use GPUs in the window, by (original scheduled second, name).

    Raises:
        RejectedError: `invalid_trace`.
    """
    end = None if seconds is None else start + seconds
    pods = []
    needed = {"name", "num_gpu", "qos", "scheduled_time", "deletion_time"}
    with _rows(path, needed) as rows:
        for row in rows:
            if not row["scheduled_time"] or not row["deletion_time"] or int(row["num_gpu"]) < 1:
                continue
            scheduled = int(row["scheduled_time"].partition(".")[0])
            deleted = int(row["deletion_time"].partition(".")[0])
            first = max(scheduled, start)
            last = deleted if end is None else min(deleted, end)
            if last > first:
                gpus = int(row["num_gpu"])
                pods.append(Pod(row["name"], gpus, row["qos"], scheduled, first, last))
    return sorted(pods, key=lambda pod: (pod.original, pod.name))


@contextmanager
def _rows(path: Path, needed: set[str]) -> Iterator[csv.DictReader[str]]:
    try:
        with path.open(newline="", encoding="utf-8") as file:
            rows = csv.DictReader(file)
            missing = needed - set(rows.fieldnames or ())
            if missing:
                message = f"{path} lacks the columns {', '.join(sorted(missing))}"
                raise RejectedError("invalid_trace", message)
            yield rows
    except (OSError, UnicodeDecodeError, ValueError, csv.Error) as error:
        message = f"{path} cannot be read as a trace: {error}"
        raise RejectedError("invalid_trace", message) from error


def run(
    nodes_path: Path,
    pods_path: Path,
    *,
    start: int = 0,
    seconds: int | None = None,
    as_json: bool = False,
    keep: Path | None = None,
) -> int:
    """Bill a trace and print what came of it; returns the exit code."""
    nodes = read_nodes(nodes_path)
    pods = read_pods(pods_path, start, seconds)
    began = time.monotonic()
    world = World(ORIGIN + start, _POLICY, home=keep, report_seconds=MAX_WINDOW_SECONDS)
    with world:
        world.keeps_delivered = False
        with _progress(quiet=as_json) as progress:
            replay = _Replay(world, nodes, pods, start, progress)
            rentals_ = replay.run()
        billed = time.monotonic() - began
        result = _result(world, nodes, rentals_)
        if as_json:
            sys.stdout.write(msgspec.json.encode(result).decode() + "\n")
        else:
            _print(world, nodes, rentals_, result, billed)
            if keep is not None:
                sys.stdout.write(f"kept in {keep}: try gpuledger rebuild --check --home {keep}\n")
    return 0


@contextmanager
def _progress(*, quiet: bool) -> Iterator[Progress]:
    console = Console(stderr=True, quiet=quiet and not sys.stderr.isatty())
    with Progress(
        TextColumn("[progress.description]{task.description}"),
        BarColumn(),
        TextColumn("{task.percentage:>5.1f} %  {task.fields[ticks]} ticks"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        console=console,
    ) as progress:
        yield progress


class _Replay:
    """Goes through the trace's events in time order."""

    def __init__(
        self, world: World, nodes: list[Node], pods: list[Pod], start: int, progress: Progress
    ) -> None:
        self._world = world
        self._nodes = nodes
        self._pods = pods
        self._progress = progress
        self._start = start
        self._machines: list[int] = []
        self._free = [node.gpus for node in nodes]
        self._active: set[int] = set()
        """Machines with an instance."""
        self._rentals: list[Rental] = []

    def run(self) -> list[Rental]:
        """Rent and destroy everything; every second of it is billed when this returns."""
        self._set_up()
        due: dict[int, tuple[list[int], list[Pod]]] = defaultdict(lambda: ([], []))
        for pod in self._pods:
            due[pod.start][1].append(pod)
        seconds = sorted({pod.start for pod in self._pods} | {pod.end for pod in self._pods})
        total = sum(pod.end - pod.start for pod in self._pods)
        task = self._progress.add_task("billing the trace", total=total, ticks="0")
        for second in seconds:
            self._go(ORIGIN + second)
            endings, arrivals = due.pop(second, ([], []))
            if endings:
                self._destroy([self._rentals[index] for index in sorted(endings)])
            if arrivals:
                for index in self._rent(arrivals):
                    due[self._rentals[index].pod.end][0].append(index)
            done = self._world.runner.ticks
            self._progress.update(task, completed=done, ticks=f"{done:,}")
        self._flush()
        self._world.project()
        done = self._world.runner.ticks
        self._progress.update(task, completed=done, ticks=f"{done:,}")
        return self._rentals

    def _set_up(self) -> None:
        world = self._world
        with world.ledger.unit() as unit:
            for model in dict.fromkeys(node.model for node in self._nodes):
                world.account(unit, f"host-{model}")
            for qos in sorted({pod.qos for pod in self._pods}):
                account = world.account(unit, f"renter-{qos}")
                accounts.deposit(unit, account, CREDIT, "credit")
            for node in self._nodes:
                machine = world.add_machine(unit, world.names[f"host-{node.model}"], _spec(node))
                listings.list_machine(
                    unit,
                    machine,
                    listings.Prices(
                        parse_dollars(GPU_HOUR[node.model]), parse_dollars(STORAGE_GB_MONTH)
                    ),
                )
                self._machines.append(machine)

    # --- time ------------------------------------------------------------------------------------

    def _go(self, second: int) -> None:
        """Move the clock on, handing over reports and closing months on the way."""
        clock = self._world.clock
        while clock.now < second:
            stop = min(second, (clock.now // FLUSH_SECONDS + 1) * FLUSH_SECONDS)
            issue = month_start(clock.now) + policies.ISSUE_AFTER_SECONDS
            following = month_start(stop) + policies.ISSUE_AFTER_SECONDS
            is_month_end = False
            for boundary in (issue, following):
                if clock.now < boundary <= stop:
                    stop, is_month_end = boundary, True
                    break
            clock.move_to(stop)
            if is_month_end:
                self._flush()
                self._world.project()
                policies.close_periods(self._world.ledger)
                self._world.project()
                invoicing.issue_due(self._world.ledger)
            elif stop % FLUSH_SECONDS == 0:
                self._flush()
                self._world.project()

    def _flush(self, only: set[int] | None = None) -> None:
        now = self._world.now
        active = self._active if only is None else self._active & only
        self._world.deliver(
            (now, report)
            for machine in sorted(active)
            for report in self._world.hosts[machine].seal(now)
        )

    # --- rentals ---------------------------------------------------------------------------------

    def _rent(self, pods: list[Pod]) -> list[int]:
        world, now = self._world, self._world.now
        placed = []
        with world.ledger.unit() as unit:
            for pod in pods:
                node = next(
                    (index for index, free in enumerate(self._free) if free >= pod.gpus), None
                )
                instance = None
                if node is not None:
                    self._free[node] -= pod.gpus
                    instance = rentals.rent(
                        unit,
                        world.names[f"renter-{pod.qos}"],
                        self._machines[node],
                        gpus=pod.gpus,
                        disk_gb=DISK_GB,
                        label=pod.name,
                        wait=True,
                    )
                    placed.append(len(self._rentals))
                self._rentals.append(Rental(pod, node, instance))
        touched = {self._machine(self._rentals[index]) for index in placed}
        for machine in touched - self._active:
            _skip_idle(world.hosts[machine], now)
        self._active |= touched
        self._obey(touched)
        return placed

    def _destroy(self, endings: list[Rental]) -> None:
        touched = {self._machine(rental) for rental in endings}
        self._flush(touched)
        with self._world.ledger.unit() as unit:
            for rental in endings:
                assert rental.node is not None
                assert rental.instance is not None
                rentals.destroy(unit, rental.instance)
                self._free[rental.node] += rental.pod.gpus
        self._obey(touched)
        hosts = self._world.hosts
        self._active -= {machine for machine in touched if not hosts[machine].containers}

    def _obey(self, touched: set[int]) -> None:
        """Let machines carry out what changed, and confirm it within the same second."""
        now = self._world.now
        for machine in sorted(touched):
            self._world.hosts[machine].obey(self._world.usage.desired(machine), now)
        self._flush(touched)

    def _machine(self, rental: Rental) -> int:
        assert rental.node is not None
        return self._machines[rental.node]


def _skip_idle(host: SimulatedHost, now: int) -> None:
    """A node sends nothing while it has no instance: those seconds are never attested."""
    host.advance(now)
    host.sealed_until = max(host.sealed_until, now)


def _spec(node: Node) -> MachineSpec:
    return MachineSpec(
        gpus=node.gpus,
        gpu_name=node.model,
        gpu_ram_gb=24,
        cpu_cores=8 * node.gpus,
        ram_gb=64 * node.gpus,
        disk_gb=2_000 * node.gpus,
        up_mbps=10_000,
        down_mbps=10_000,
    )


# --- what came of it -----------------------------------------------------------------------------


def _result(world: World, nodes: list[Node], rentals_: list[Rental]) -> dict[str, Any]:
    charged = {
        row[0]: (int(row[1]), int(row[2]), int(row[3]))
        for row in world.connection.execute(
            "SELECT instance_id, sum(gpu_quantity), sum(gpu_charge), sum(storage_charge)"
            " FROM rate_segments GROUP BY instance_id"
        )
    }
    renters: dict[str, int] = defaultdict(int)
    hosts: dict[str, int] = defaultdict(int)
    fees = 0
    for name, number in world.names.items():
        row = world.connection.execute(
            "SELECT charged, earned - fees, fees FROM account_usage WHERE account_id = %s",
            [number],
        ).fetchone()
        if row is not None and name.startswith("renter-"):
            renters[name] = int(row[0])
        elif row is not None:
            hosts[name] = int(row[1])
            fees += int(row[2])
    sizes = world.connection.execute(_SIZES).fetchone()
    world.connection.commit()
    pods = []
    for rental in rentals_:
        seconds, gpu, storage = charged.get(rental.instance or 0, (0, 0, 0))
        pods.append(
            {
                "name": rental.pod.name,
                "node": None if rental.node is None else nodes[rental.node].name,
                "gpus": rental.pod.gpus,
                "gpu_seconds": seconds,
                "gpu": format_dollars(gpu),
                "storage": format_dollars(storage),
            }
        )
    assert sizes is not None
    ticks = world.runner.ticks
    totals = {
        "pods": len(pods),
        "placed": sum(1 for pod in pods if pod["node"] is not None),
        "gpu_seconds": sum(int(str(pod["gpu_seconds"])) for pod in pods),
        "ticks": ticks,
        "gpu": format_dollars(sum(charged[one][1] for one in charged)),
        "storage": format_dollars(sum(charged[one][2] for one in charged)),
        "fees": format_dollars(fees),
        "renters": {name: format_dollars(amount) for name, amount in sorted(renters.items())},
        "hosts": {name: format_dollars(amount) for name, amount in sorted(hosts.items())},
        "bytes": int(sizes[0]),
    }
    return {"pods": pods, "totals": totals}


_SIZES: Final = (
    "SELECT sum(pg_total_relation_size(c.oid)) FROM pg_class c JOIN pg_namespace n"
    " ON n.oid = c.relnamespace WHERE n.nspname = 'ledger' AND c.relkind = 'r'"
)


def _print(
    world: World,
    nodes: list[Node],
    rentals_: list[Rental],
    result: dict[str, Any],
    seconds: float,
) -> None:
    console = Console()
    totals = result["totals"]
    people = Table(title="who paid, and who earned")
    for column in ("account", "charged", "earned"):
        people.add_column(column, justify="left" if column == "account" else "right")
    for name, amount in totals["renters"].items():
        people.add_row(name, amount, "")
    for name, amount in totals["hosts"].items():
        people.add_row(name, "", amount)
    people.add_row("platform", "", totals["fees"])
    console.print(people)
    models: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0])
    for rental, pod in zip(rentals_, result["pods"], strict=True):
        if rental.node is not None:
            row = models[nodes[rental.node].model]
            row[0] += 1
            row[1] += pod["gpu_seconds"]
            row[2] += parse_dollars(pod["gpu"]) + parse_dollars(pod["storage"])
    table = Table(title="by GPU model")
    for column in ("model", "pods", "instance seconds", "charged"):
        table.add_column(column, justify="left" if column == "model" else "right")
    for model, (pods, used, amount) in sorted(models.items()):
        table.add_row(model, f"{pods:,}", f"{used:,}", format_dollars(amount))
    console.print(table)
    ticks = totals["ticks"]
    per_tick = totals["bytes"] / max(ticks, 1)
    console.print(
        f"{totals['placed']:,} of {totals['pods']:,} pods placed; {ticks:,} ticks stored in"
        f" {seconds:,.1f} s: {ticks / seconds:,.0f} ticks/s, {per_tick:.2f} bytes per tick",
        highlight=False,
        soft_wrap=True,
    )
    del world
