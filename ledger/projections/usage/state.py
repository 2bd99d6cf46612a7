"""What the metering fold keeps in memory about the machines and instances that report.

Everything here can be loaded again from the usage group's tables (`loading`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ledger.meters.intervals import Range, add

if TYPE_CHECKING:
    from ledger.domain.hardware import Inventory

FAR_FUTURE = 2**62


class Segment:
    """One set of terms of an instance and what has accumulated under it, per meter.

    It applies to seconds `[since, until)`. `q`, `c`, `f`: cumulative quantity, charge and fee of
    gpu, storage, up, down, and of the idle seconds of a reservation.
    """

    __slots__ = (
        "c_down", "c_gpu", "c_idle", "c_storage", "c_up", "dirty", "down_rate", "f_down", "f_gpu",
        "f_idle", "f_storage", "f_up", "fee_bp", "gpu_rate", "kind", "number", "q_down", "q_gpu",
        "q_idle", "q_storage", "q_up", "since", "storage_product", "storage_rate", "until",
        "up_rate",
    )  # fmt: skip

    def __init__(self, number: int, since: int, kind: str, fee_bp: int) -> None:
        """Begin with nothing accumulated."""
        self.number = number
        self.since = since
        self.until = FAR_FUTURE
        self.kind = kind
        self.fee_bp = fee_bp
        self.gpu_rate = self.storage_rate = self.up_rate = self.down_rate = 0
        self.storage_product = 0
        self.q_gpu = self.c_gpu = self.f_gpu = 0
        self.q_storage = self.c_storage = self.f_storage = 0
        self.q_up = self.c_up = self.f_up = 0
        self.q_down = self.c_down = self.f_down = 0
        self.q_idle = self.c_idle = self.f_idle = 0
        self.dirty = True

    def price(self, rates: Sequence[int], disk_bytes: int) -> Segment:
        """Set the rates: gpu, storage, up, down."""
        self.gpu_rate, self.storage_rate, self.up_rate, self.down_rate = rates
        self.storage_product = self.storage_rate * disk_bytes
        return self


class Covered:
    """Merged second ranges with the log position at which each began to be covered."""

    __slots__ = ("gone", "positions", "ranges", "touched", "trimmed", "until")

    def __init__(self) -> None:
        """Begin with nothing covered."""
        self.ranges: list[Range] = []
        self.positions: dict[int, int] = {}
        self.until = 0
        """The first second after everything covered so far."""
        self.trimmed = 0
        """Ranges that end at or before this second are no longer in memory."""
        self.touched: set[int] = set()
        self.gone: set[int] = set()

    def restore(self, start: int, until: int, position: int) -> None:
        """Take a stored range, in ascending order."""
        self.ranges.append(Range(start, until))
        self.positions[start] = position
        self.until = max(self.until, until)

    def append(self, start: int, until: int, position: int) -> None:
        """Cover `[start, until)`, which begins at or after everything covered so far."""
        ranges = self.ranges
        if ranges and ranges[-1][1] == start:
            first = ranges[-1][0]
            ranges[-1] = Range(first, until)
            self.touched.add(first)
        else:
            ranges.append(Range(start, until))
            self.positions[start] = position
            self.touched.add(start)
        self.until = until

    def add(self, start: int, until: int, position: int) -> None:
        """Cover `[start, until)`, wherever it lies."""
        merged, swallowed = add(self.ranges, start, until)
        first = min([position, *(self.positions.pop(old.start) for old in swallowed)])
        self.gone.update(old.start for old in swallowed)
        self.gone.discard(merged.start)
        self.positions[merged.start] = first
        self.touched.add(merged.start)
        self.until = max(self.until, until)

    def trim(self, before: int) -> None:
        """Forget, in memory, ranges that ended before second *before*."""
        keep = 0
        while keep < len(self.ranges) - 1 and self.ranges[keep].end < before:
            self.trimmed = self.ranges[keep].end
            self.positions.pop(self.ranges[keep].start, None)
            keep += 1
        del self.ranges[:keep]


class Meter:
    """One instance, or one volume, as the meters see it."""

    __slots__ = (
        "account_id",
        "assigned_at",
        "covered",
        "created",
        "destroyed",
        "dirty",
        "dirty_holds",
        "dirty_idle",
        "dirty_intervals",
        "dirty_lost",
        "disk_bytes",
        "holds",
        "host_id",
        "idle_from",
        "idle_until",
        "instance_id",
        "intervals",
        "lost",
        "machine_id",
        "released_at",
        "segment",
        "segments",
    )  # fmt: skip

    def __init__(
        self,
        instance_id: int,
        account_id: int,
        host_id: int,
        machine_id: int,
        disk_bytes: int,
        created: int,
    ) -> None:
        """A new life; `segments` must get at least one set of terms."""
        self.instance_id = instance_id
        self.account_id = account_id
        self.host_id = host_id
        self.machine_id = machine_id
        self.disk_bytes = disk_bytes
        self.created = created
        self.assigned_at: int | None = None
        self.released_at: int | None = None
        """When the last assignment ended; none while it is open."""
        self.destroyed = FAR_FUTURE
        self.segments: list[Segment] = []
        """All of them, by number; `segment` is the one that the next ticks are priced under."""
        self.segment: Segment
        self.covered = Covered()
        self.intervals: list[list[int]] = []
        """GPU intervals: start, end (`FAR_FUTURE` while open), assignment, position."""
        self.lost: list[list[int]] = []
        """Lost-disk intervals: start, end."""
        self.holds: list[list[int]] | None = None
        """When it held GPUs: start, end; only since it was first reserved."""
        self.idle_from = 0
        self.idle_until = 0
        """The unbroken idle run up to its last tick; both 0 while that one shows work."""
        self.dirty = True
        self.dirty_intervals: set[int] = set()
        self.dirty_lost: set[int] = set()
        self.dirty_holds: set[int] = set()
        self.dirty_idle = False

    @property
    def is_volume(self) -> bool:
        """True for a disk without an instance: no tick can be about it."""
        return self.segments[0].kind == "volume"

    def add_segment(self, segment: Segment) -> None:
        """Agree on terms from a second on; what was agreed for then and later is replaced."""
        for one in self.segments:
            one.until = max(one.since, min(one.until, segment.since))
        self.segments.append(segment)
        if len(self.segments) == 1:
            self.segment = segment

    def segment_at(self, second: int) -> Segment:
        """The terms under which *second* is priced."""
        for segment in reversed(self.segments):
            if segment.since <= second < segment.until:
                return segment
        return self.segments[0]

    def assign(self, at: int) -> None:
        """GPUs were granted."""
        self.assigned_at = at
        self.released_at = None
        self.dirty = True
        if self.holds is not None:
            self.holds.append([at, FAR_FUTURE])
            self.dirty_holds.add(at)

    def release(self, at: int) -> None:
        """The GPUs, if it held any, went back."""
        if self.assigned_at is None or self.released_at is not None:
            return
        self.released_at = at
        self.dirty = True
        if self.holds:
            self.holds[-1][1] = max(at, self.holds[-1][0])
            self.dirty_holds.add(self.holds[-1][0])

    def idle(self, start: int, end: int, tail: int) -> None:
        """Ticks of `[start, end)` of which the last *tail* show nothing at work."""
        if tail < end - start or start != self.idle_until:
            self.idle_from = end - tail
        self.idle_until = end
        self.dirty_idle = True

    def busy(self, at: int | None = None) -> None:
        """Something is at work, in second *at* or at the end of what was seen."""
        if at is not None and at < self.idle_from:
            return
        if at is None or at + 1 >= self.idle_until:
            self.idle_from = self.idle_until = 0
        else:
            self.idle_from = at + 1
        self.dirty_idle = True

    def watch_holds(self) -> None:
        """From the first reservation on, seconds without GPUs matter."""
        if self.holds is None:
            self.holds = []
            if self.assigned_at is not None and self.released_at is None:
                self.holds.append([self.assigned_at, FAR_FUTURE])
                self.dirty_holds.add(self.assigned_at)


class Gpu:
    """One GPU: what it may draw, if known, and which instance holds it."""

    __slots__ = ("instance_id", "max_power_mw")

    def __init__(self, max_power_mw: int | None, instance_id: int | None) -> None:
        """Take what is known."""
        self.max_power_mw = max_power_mw
        self.instance_id = instance_id


class MachineMeter:
    """One machine as the meters see it; links in bytes per second."""

    __slots__ = (
        "covered", "dirty", "dirty_gpus", "down_link", "gpus", "instances", "machine_id",
        "up_link", "volumes",
    )  # fmt: skip

    def __init__(self, machine_id: int, up_link: int, down_link: int) -> None:
        """A machine without instances."""
        self.machine_id = machine_id
        self.up_link = up_link
        self.down_link = down_link
        self.covered = Covered()
        self.instances: dict[int, Meter] = {}
        self.volumes: dict[int, Meter] = {}
        """Kept apart: a tick that names one is a tick of an unknown instance."""
        self.gpus: dict[str, Gpu] = {}
        """By UUID."""
        self.dirty = True
        self.dirty_gpus: set[str] = set()

    def adopt(self, meter: Meter) -> None:
        """Meter an instance or volume of this machine."""
        (self.volumes if meter.is_volume else self.instances)[meter.instance_id] = meter

    def drop(self, meter: Meter) -> None:
        """Forget one that no timely tick can touch any more."""
        (self.volumes if meter.is_volume else self.instances).pop(meter.instance_id, None)

    def describe(self, gpu_uuid: str, max_power_mw: int | None) -> None:
        """A GPU of this machine, as its last inventory has it."""
        known = self.gpus.get(gpu_uuid)
        if known is None:
            self.gpus[gpu_uuid] = Gpu(max_power_mw, None)
        elif max_power_mw in {None, known.max_power_mw}:
            return
        else:
            known.max_power_mw = max_power_mw
        self.dirty_gpus.add(gpu_uuid)

    def take_inventory(self, inventory: Inventory | None) -> None:
        """What an inventory says of those GPUs that it is known to have."""
        for gpu in inventory.gpus if inventory is not None else ():
            if gpu.uuid in self.gpus:
                self.describe(gpu.uuid, gpu.max_power_mw)

    def hand_over(self, gpu_uuids: Sequence[str], instance_id: int) -> None:
        """These GPUs are the instance's, and no others."""
        for gpu_uuid, gpu in self.gpus.items():
            holder = instance_id if gpu_uuid in gpu_uuids else None
            if gpu.instance_id != holder and instance_id in {holder, gpu.instance_id}:
                gpu.instance_id = holder
                self.dirty_gpus.add(gpu_uuid)
