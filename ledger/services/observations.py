"""Facts that follow from what a report observed, decided and appended before the report itself.

So no tick ever precedes the interval it falls into (`design.md` §3, "Observations first").
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ledger.domain.events import AgentEpochOpened, Fact, MachineBooted
from ledger.domain.ids import instance_stream, machine_stream
from ledger.domain.instance import ChangeBoot, Observe, decide
from ledger.errors import NotFoundError
from ledger.services import reported
from ledger.services.allocation import settle
from ledger.services.incidents import Seen
from ledger.services.machines import require_machine
from ledger.services.notices import life_notices

if TYPE_CHECKING:
    from ledger.domain.usage import UsageReport
    from ledger.services.ledger import Unit
    from ledger.store.log import Head


def absorb(unit: Unit, report: UsageReport, head: Head, received_at: int) -> None:
    """Append what *report* caused; *received_at* is the second of its delivery."""
    machine = require_machine(unit.connection, report.machine)
    stream = machine_stream(report.machine)
    attested_until = _attested_until(unit, report.machine)
    if head.version == 0:
        unit.append(
            stream,
            AgentEpochOpened(machine_id=report.machine, epoch=report.epoch, opened_at=received_at),
        )
    if report.boot_id not in (head.boot_id, machine.boot_id):
        unit.append(
            stream,
            MachineBooted(machine_id=report.machine, boot_id=report.boot_id, booted_at=received_at),
        )
        if machine.boot_id is not None:
            _change_boot(unit, report, attested_until, received_at)
    caused: list[Seen] = []
    for seen in report.observed:
        try:
            instance = unit.instance(seen.instance)
        except NotFoundError:
            continue  # Its ticks are anomalies (`unknown_instance`); it has no stream.
        if instance.machine_id != report.machine:
            continue
        wish = Observe(
            assignment=seen.assignment,
            state=seen.state,
            at=seen.at,
            billed_until=attested_until,
            exit_code=seen.exit_code,
        )
        new = decide(instance, wish, received_at)
        if new:
            own = instance_stream(seen.instance)
            told = life_notices(unit, instance, new)
            unit.append_all([*((own, fact) for fact in new), *told])
            caused += [Seen(instance, fact, seen.reason) for fact in new]
    if caused:
        settle(unit, report.machine)
    reported.take(unit, report, caused, attested_until)


def _attested_until(unit: Unit, machine_id: int) -> int:
    """The first second of this machine that no stored report attests yet."""
    row = unit.connection.execute(
        "SELECT max(until) FROM stream_heads WHERE machine_id = %s", [machine_id]
    ).fetchone()
    return 0 if row is None or row[0] is None else int(row[0])


def _change_boot(unit: Unit, report: UsageReport, attested_until: int, now: int) -> None:
    rows = unit.connection.execute(
        "SELECT instance_id FROM instances WHERE machine_id = %s"
        " AND status IN ('loading', 'running') ORDER BY instance_id",
        [report.machine],
    ).fetchall()
    new: list[tuple[str, Fact]] = []
    for (instance_id,) in rows:
        wish = ChangeBoot(boot_id=report.boot_id, billed_until=attested_until)
        new.extend(
            (instance_stream(instance_id), fact)
            for fact in decide(unit.instance(instance_id), wish, now)
        )
    unit.append_all(new)
