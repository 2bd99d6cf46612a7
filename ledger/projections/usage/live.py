"""The machines and contracts that reports are about now, in memory.

They are loaded set by set when a page is about them, and let go when no timely tick can touch them
any more, so that memory follows the present.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Final

from ledger.projections.usage.loading import load_instances, load_machines, reload_trimmed
from ledger.projections.usage.page import Page
from ledger.projections.usage.pieces import HOUR

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ledger.projections.usage.state import Covered, MachineMeter, Meter
    from ledger.store.database import Connection
    from ledger.store.log import Stored

_DEFAULT_LATE_SECONDS: Final = 259_200
_LIVE_RANGES: Final = 64
"""Coverage ranges of one instance kept in memory before old ones are left to the table."""


class Live:
    """What is metered now, and what of the platform and its accounts the meters go by."""

    def __init__(self) -> None:
        """Begin with nothing in memory."""
        self.machines: dict[int, MachineMeter] = {}
        self.meters: dict[int, Meter] = {}
        self.closed: dict[int, int] = {}
        """Up to which second the periods of an account are closed."""
        self.dry: dict[int, int] = {}
        """When credit of an account ran out last."""
        self.late = _DEFAULT_LATE_SECONDS
        """How many seconds after its own a tick still counts."""
        self.page = Page()

    def load_platform(self, connection: Connection) -> None:
        """Take in what is known of the platform and of every account."""
        row = connection.execute("SELECT late_usage_seconds FROM metered_platform").fetchone()
        if row is not None:
            self.late = row[0]
        for account_id, closed_until, dry_at in connection.execute(
            "SELECT account_id, closed_until, dry_at FROM metered_accounts"
        ):
            self.closed[account_id] = closed_until
            if dry_at is not None:
                self.dry[account_id] = dry_at

    def prepare(self, connection: Connection, page: Page, stored: Sequence[Stored]) -> None:
        """Load the machines and instances of a page of the log that are not in memory."""
        self.page = page
        self._connection = connection
        machines: set[int] = set()
        instances: set[int] = set()
        for one in stored:
            kind, _, rest = one.stream_id.partition("-")
            if kind == "usage":
                machines.add(int(rest.partition("-")[0]))
            elif kind in {"instance", "volume"}:
                instances.add(int(rest))
        instances.difference_update(self.meters)
        if instances:
            rows = connection.execute(
                "SELECT DISTINCT machine_id FROM metered_instances WHERE instance_id = ANY(%s)",
                [list(instances)],
            )
            machines.update(row[0] for row in rows)
        machines.difference_update(self.machines)
        if machines and stored:
            self._load(machines, stored[0].recorded_at)
        missing = [number for number in instances if number not in self.meters]
        for meter in load_instances(connection, missing).values() if missing else ():
            self.adopt(meter)

    def machine(self, machine_id: int, recorded_at: int) -> MachineMeter:
        """A machine that a fact is about; it goes with the page."""
        if machine_id not in self.machines:
            self._load({machine_id}, recorded_at)
        machine = self.page.machines[machine_id] = self.machines[machine_id]
        return machine

    def find(self, machine: MachineMeter, instance_id: int) -> Meter | None:
        """An instance that left memory long ago; none if it never lived on this machine."""
        meter = self.meters.get(instance_id)
        place = (machine.machine_id, instance_id)
        if meter is None and place not in self.page.strangers:
            meter = load_instances(self._connection, [instance_id]).get(instance_id)
        if meter is None or meter.is_volume or meter.machine_id != machine.machine_id:
            # Asked once a page: a host that names what is not its own must not slow the others.
            self.page.strangers.add(place)
            return None
        self.adopt(meter)
        return meter

    def adopt(self, meter: Meter) -> None:
        """Meter a contract, also by way of its machine where that is in memory."""
        self.meters[meter.instance_id] = meter
        machine = self.machines.get(meter.machine_id)
        if machine is not None:
            machine.adopt(meter)

    def reload(self, covered: Covered, table: str, key: str, value: int) -> None:
        """Take the ranges that were trimmed from memory back from their table."""
        reload_trimmed(self._connection, covered, table, key, value)

    def trim(self, now: int) -> None:
        """Let go of what no timely tick can touch any more, so that memory follows the present."""
        horizon = now - self.late - HOUR
        for machine in self.page.machines.values():
            if len(machine.covered.ranges) > _LIVE_RANGES:
                self.page.trims.append((machine.covered, horizon))
            contracts = chain(machine.instances.values(), machine.volumes.values())
            self.page.evictions.extend(one for one in contracts if one.destroyed < horizon)
        for meter in self.page.meters.values():
            if len(meter.covered.ranges) > _LIVE_RANGES:
                self.page.trims.append((meter.covered, horizon))

    def committed(self) -> None:
        """The page is durable: forget what has left the present."""
        for covered, horizon in self.page.trims:
            covered.trim(horizon)
        for meter in self.page.evictions:
            self.meters.pop(meter.instance_id, None)
            self.machines[meter.machine_id].drop(meter)

    def _load(self, machine_ids: set[int], recorded_at: int) -> None:
        keep_after = recorded_at - self.late - HOUR
        for machine in load_machines(self._connection, machine_ids, keep_after).values():
            self.machines[machine.machine_id] = machine
            self.meters.update(machine.instances)
            self.meters.update(machine.volumes)
