"""Going through a trace in time order: rentals, destroys, and every report in between."""

from __future__ import annotations

from collections import defaultdict
from typing import Final, NamedTuple
from zlib import crc32

from rich.progress import Progress
from typing_extensions import override

from adapters.hostagent.simulated import SimulatedHost
from adapters.simulation.trace.reading import GPU_HOUR, Node, Pod
from adapters.simulation.world import World
from ledger.domain.events import MachineSpec
from ledger.domain.ids import month_start
from ledger.domain.money import parse_dollars
from ledger.services import deposits, invoicing, listings, policies, rentals

ORIGIN: Final = 1_767_225_600
"""Second 0 of a trace: 2026-01-01T00:00:00Z."""
STORAGE_GB_MONTH: Final = "0.15"
CREDIT: Final = 10_000_000 * 10**9
DISK_GB: Final = 100
FLUSH_SECONDS: Final = 21_600
"""All machines hand over their spools at least this often: late usage is never near."""
FLOOR_PERCENT: Final = 40
"""A host's floor, in percent of its rate per GPU; bids are this up to 40 points more."""
BID_SPREAD_PERCENT: Final = 40


class Rental(NamedTuple):
    """What became of a pod."""

    pod: Pod
    node: int | None
    """Index of the node, or none where it fits nowhere."""
    instance: int | None


class Replay:
    """Goes through the trace's events in time order."""

    def __init__(
        self, world: World, nodes: list[Node], pods: list[Pod], start: int, progress: Progress
    ) -> None:
        """Put the trace on *world*, whose clock stands at its first second."""
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
                gone = [self._rentals[index] for index in endings]
                self._destroy(sorted(gone, key=lambda rental: rental.pod.name))
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
                deposits.deposit(unit, account, CREDIT, "credit")
            for node in self._nodes:
                machine = world.add_machine(unit, world.names[f"host-{node.model}"], _spec(node))
                listings.list_machine(
                    unit,
                    machine,
                    listings.Prices(
                        parse_dollars(GPU_HOUR[node.model]),
                        parse_dollars(STORAGE_GB_MONTH),
                        min_bid_per_gpu=self._floor(node),
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
        """Rent for every pod, in order, one decision after each; returns the new rentals."""
        world, now = self._world, self._world.now
        placed = []
        with world.ledger.unit() as unit:
            for pod in pods:
                node = self._place(pod)
                instance = None
                if node is not None:
                    instance = rentals.rent(
                        unit,
                        world.names[f"renter-{pod.qos}"],
                        self._machines[node],
                        gpus=pod.gpus,
                        disk_gb=DISK_GB,
                        bid=self._bid(pod, self._nodes[node]),
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

    # --- what the auction changes ----------------------------------------------------------------

    def _floor(self, node: Node) -> int | None:
        """The host's lowest bid per GPU; none: it takes no bids."""
        del node
        return None

    def _bid(self, pod: Pod, node: Node) -> int | None:
        """What the pod bids for its slice; none: it rents on demand."""
        del pod, node
        return None

    def _place(self, pod: Pod) -> int | None:
        """The first node in file order with enough free GPUs."""
        for index, free in enumerate(self._free):
            if free >= pod.gpus:
                self._free[index] -= pod.gpus
                return index
        return None

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


class AuctionReplay(Replay):
    """The same, where best-effort pods bid and every decision is the auction's.

    A pod goes to the node that its name picks among those large enough, and waits there if it must.
    """

    @override
    def _floor(self, node: Node) -> int:
        return parse_dollars(GPU_HOUR[node.model]) * FLOOR_PERCENT // 100

    @override
    def _bid(self, pod: Pod, node: Node) -> int | None:
        if pod.qos != "BE":
            return None
        percent = FLOOR_PERCENT + crc32(pod.name.encode()) % (BID_SPREAD_PERCENT + 1)
        return parse_dollars(GPU_HOUR[node.model]) * pod.gpus * percent // 100

    @override
    def _place(self, pod: Pod) -> int | None:
        fitting = [index for index, node in enumerate(self._nodes) if node.gpus >= pod.gpus]
        if not fitting:
            return None
        return fitting[crc32(pod.name.encode()) % len(fitting)]
