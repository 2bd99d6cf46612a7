"""Compensation: what a host pays its renters for outages and lost disks, if the rules say so.

Policy `none` pays nothing: offline time is simply not billed. Policy `sla-1` is in
`ledger.domain.downtime`. The rules are those in force when it happened, so that a policy adopted
later changes nothing about the past; each instance is judged once for each outage and lost disk.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from ledger.domain.downtime import Award, lost_disk_award, outage_award
from ledger.domain.events import Compensation, CompensationCredited, Fact, OutageSettled
from ledger.domain.ids import account_stream, machine_stream, month_start
from ledger.domain.money import SECONDS_PER_HOUR
from ledger.services.ledger import Unit
from ledger.store.database import Connection


class Rules(NamedTuple):
    """The rules in force at a second."""

    version: int
    compensation: Compensation


class Hit(NamedTuple):
    """An instance that lost something: whose it is, and what its GPUs cost."""

    instance_id: int
    account_id: int
    machine_id: int
    host_id: int
    seconds: int
    product: int
    """Nanos per hour times seconds of the outage; for a lost disk the rate itself."""


class LostDisk(NamedTuple):
    """A disk that a host lost, and was not judged for yet."""

    instance_id: int
    lost_at: int


def settle_outage(unit: Unit, outage_id: int) -> None:
    """Judge every instance that an outage hit, and write down that it is done.

    The renter's charges are read from the usage projection: call it when that has passed the end of
    the outage (`unsettled`). What was found out is in the facts, so replay asks nobody again.
    """
    row = unit.connection.execute(
        "SELECT machine_id, detected_at, ended_at FROM outages WHERE outage_id = %s", [outage_id]
    ).fetchone()
    assert row is not None
    machine_id, detected_at, ended_at = row
    rules = _rules_at(unit.connection, ended_at)
    new: list[tuple[str, Fact]] = []
    credited = 0
    if rules.compensation == "sla-1":
        secure = _is_secure(unit.connection, machine_id)
        got: dict[int, int] = {}
        for hit in _hit_by(unit.connection, machine_id, detected_at, ended_at):
            spent = charged_last_month(unit.connection, hit.account_id, machine_id, ended_at)
            # Several instances of one renter share what it was charged: one cap per outage.
            cap = spent - got.get(hit.account_id, 0)
            award = outage_award(hit.product, secure=secure, cap=cap)
            got[hit.account_id] = got.get(hit.account_id, 0) + award.amount
            credited += award.amount
            new.append(_credit(unit, hit, award, rules, spent, outage_id=outage_id))
    settled = OutageSettled(
        outage_id=outage_id,
        machine_id=machine_id,
        policy=rules.compensation,
        policy_version=rules.version,
        credited=credited,
        settled_at=unit.now,
    )
    unit.append_all([*new, (machine_stream(machine_id), settled)])


def settle_lost_disk(unit: Unit, lost: LostDisk) -> None:
    """Judge one instance whose disk the host lost."""
    rules = _rules_at(unit.connection, lost.lost_at)
    assert rules.compensation == "sla-1", rules
    row = unit.connection.execute(
        "SELECT i.instance_id, i.account_id, i.machine_id, i.host_id, 0, t.gpu_rate"
        " FROM instances i JOIN instance_terms t USING (instance_id)"
        " WHERE i.instance_id = %s AND t.since <= %s AND t.until > %s AND t.until > t.since",
        [lost.instance_id, lost.lost_at, lost.lost_at],
    ).fetchone()
    assert row is not None, lost
    hit = Hit(row[0], row[1], row[2], row[3], row[4], int(row[5]))
    spent = charged_last_month(unit.connection, hit.account_id, hit.machine_id, lost.lost_at)
    award = lost_disk_award(hit.product, cap=spent)
    unit.append_all([_credit(unit, hit, award, rules, spent, lost_at=lost.lost_at)])


def unsettled(connection: Connection, folded: int) -> list[int]:
    """Outages that are over, not judged yet, and folded past their end: *folded* is a position."""
    rows = connection.execute(
        "SELECT outage_id FROM outages WHERE settled_at IS NULL AND ended_position <= %s"
        " ORDER BY outage_id",
        [folded],
    )
    return [row[0] for row in rows]


def lost_disks(connection: Connection) -> list[LostDisk]:
    """Lost disks that the rules of their second pay for and nobody judged yet.

    The usage projection lists a lost disk when it has passed the fact, and with it all that was
    charged before.
    """
    return [LostDisk(*row) for row in connection.execute(LOST_DISKS)]


LOST_DISKS: Final = (
    "SELECT l.instance_id, l.start FROM lost_disks l JOIN instances i USING (instance_id)"
    " WHERE i.account_id <> i.host_id AND l.start >= (SELECT min(adopted_at) FROM policies"
    "  WHERE compensation <> 'none')"
    " AND (SELECT p.compensation FROM policies p WHERE p.adopted_at <= l.start"
    "  ORDER BY p.version DESC LIMIT 1) <> 'none'"
    " AND NOT EXISTS (SELECT 1 FROM compensations c"
    "  WHERE c.instance_id = l.instance_id AND c.lost_at = l.start)"
    " ORDER BY l.start, l.instance_id"
)


def charged_last_month(
    connection: Connection, account_id: int, machine_id: int, second: int
) -> int:
    """What a renter was charged on a machine in the UTC month before that of *second*, in nanos."""
    end = month_start(second)
    row = connection.execute(
        "SELECT coalesce(sum(h.gpu_charge + h.storage_charge + h.up_charge + h.down_charge"
        " + h.reserved_idle_charge), 0)"
        " FROM usage_hours h JOIN metered_instances i USING (instance_id)"
        " WHERE i.machine_id = %s AND i.account_id = %s AND h.hour >= %s AND h.hour < %s",
        [
            machine_id,
            account_id,
            month_start(end - 1) // SECONDS_PER_HOUR,
            end // SECONDS_PER_HOUR,
        ],
    ).fetchone()
    assert row is not None
    return int(row[0])


def _credit(
    unit: Unit,
    hit: Hit,
    award: Award,
    rules: Rules,
    spent: int,
    *,
    outage_id: int | None = None,
    lost_at: int | None = None,
) -> tuple[str, Fact]:
    fact = CompensationCredited(
        account_id=hit.account_id,
        instance_id=hit.instance_id,
        machine_id=hit.machine_id,
        host_id=hit.host_id,
        outage_id=outage_id,
        lost_at=lost_at,
        policy=rules.compensation,
        policy_version=rules.version,
        multiplier=award.multiplier,
        seconds=hit.seconds,
        claim=award.claim,
        spent=spent,
        cap_applied=award.cap_applied,
        amount=award.amount,
        credited_at=unit.now,
    )
    return account_stream(hit.account_id), fact


def _rules_at(connection: Connection, second: int) -> Rules:
    row = connection.execute(
        "SELECT version, compensation FROM policies WHERE adopted_at <= %s"
        " ORDER BY version DESC LIMIT 1",
        [second],
    ).fetchone()
    return Rules(0, "none") if row is None else Rules(*row)


def _is_secure(connection: Connection, machine_id: int) -> bool:
    row = connection.execute(
        "SELECT secure FROM machine_standing WHERE machine_id = %s", [machine_id]
    ).fetchone()
    return row is not None and bool(row[0])


_HIT = """
WITH held AS (
    SELECT DISTINCT a.instance_id, a.assignment_no,
           greatest(lower(a.during), %(start)s) AS start,
           least(coalesce(upper(a.during), %(end)s), %(end)s) AS until
    FROM instances i JOIN gpu_assignments a USING (instance_id)
    WHERE i.machine_id = %(machine)s AND i.account_id <> i.host_id AND i.created_at < %(end)s
      AND (i.destroyed_at IS NULL OR i.destroyed_at > %(start)s)
      AND a.during && int8range(%(start)s, %(end)s)
), priced AS (
    SELECT h.instance_id, t.gpu_rate,
           least(h.until, t.until) - greatest(h.start, t.since) AS seconds
    FROM held h JOIN instance_terms t ON t.instance_id = h.instance_id
        AND t.since < h.until AND t.until > h.start AND t.until > t.since
)
SELECT i.instance_id, i.account_id, i.machine_id, i.host_id, sum(p.seconds),
       sum(p.gpu_rate * p.seconds)
FROM priced p JOIN instances i USING (instance_id)
GROUP BY i.instance_id ORDER BY i.instance_id
"""


def _hit_by(connection: Connection, machine_id: int, start: int, end: int) -> list[Hit]:
    """Instances that held GPUs during an outage, with the seconds of it in which they did.

    Who held none, stopped or waiting, lost nothing; who destroyed it midway lost what was before.
    One's own machine costs nothing and pays nothing.
    """
    rows = connection.execute(_HIT, {"machine": machine_id, "start": start, "end": end})
    return [Hit(row[0], row[1], row[2], row[3], int(row[4]), int(row[5])) for row in rows]
