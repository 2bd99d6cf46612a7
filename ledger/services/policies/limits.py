"""Limits that renters set: the end of a lease, what an instance may cost, what a day may cost."""

from __future__ import annotations

from typing import Final, NamedTuple

from ledger.domain.events import DayCapReached, LeaseEnd, LeaseEnded, StopReason
from ledger.domain.ids import account_stream
from ledger.domain.instance import StopInstance
from ledger.domain.money import SECONDS_PER_DAY
from ledger.services.caps import day_allowance, day_start
from ledger.services.credit import Credit, lock_credit, read_credit
from ledger.services.leases import allowances
from ledger.services.ledger import Ledger, Policy, Unit, read_policy
from ledger.services.notices import notify
from ledger.services.rentals import command_all
from ledger.store.database import Connection

LEASES_MAY_END: Final = """
SELECT 1 FROM instance_leases l JOIN instances i USING (instance_id) WHERE l.ended_at IS NULL
AND (l.until <= %(now)s OR (l.spend_limit IS NOT NULL AND i.wants_run)
     OR (i.destroyed_at IS NOT NULL AND (l.until IS NOT NULL OR l.spend_limit IS NOT NULL)))
"""
DAYS_MAY_BE_SPENT: Final = (
    "SELECT 1 FROM spend_caps s JOIN account_credit c USING (account_id)"
    " WHERE s.per_day IS NOT NULL AND (c.gpu_rate > 0 OR c.storage_product > 0)"
)


class _Lease(NamedTuple):
    instance_id: int
    account_id: int
    until: int | None
    spend_limit: int | None
    wants_run: bool
    destroyed: bool


class _Capped(NamedTuple):
    account_id: int
    cap: int
    hard: bool
    reached_day: int | None
    reached_cap: int | None
    running: int


def end_leases(ledger: Ledger) -> None:
    """Stop every instance whose lease ended or whose limit is spent, in this second."""
    with ledger.reading() as connection:
        due = _ended(connection, ledger.clock())
    if not due:
        return
    with ledger.unit() as unit:
        lock_credit(unit.connection, {one.account_id for one, _ in due})
        ended = _ended(unit.connection, unit.now)
        unit.append_all(
            [
                (
                    account_stream(lease.account_id),
                    LeaseEnded(
                        account_id=lease.account_id,
                        instance_id=lease.instance_id,
                        reason=reason,
                        ended_at=unit.now,
                    ),
                )
                for lease, reason in ended
            ]
        )
        command_all(
            unit,
            [
                (lease.instance_id, StopInstance(_stop_reason(reason)))
                for lease, reason in ended
                if lease.wants_run
            ],
        )
        for lease, reason in ended:
            if reason == "spend_cap" and lease.wants_run:
                about = f"instance-{lease.instance_id}"
                notify(unit, lease.account_id, "spend_cap", about)


def _stop_reason(reason: LeaseEnd) -> StopReason:
    return "lease" if reason == "lease" else "spend_cap"


def _open_leases(connection: Connection) -> list[_Lease]:
    rows = connection.execute(
        "SELECT l.instance_id, l.account_id, l.until, l.spend_limit, i.wants_run,"
        " i.destroyed_at IS NOT NULL FROM instance_leases l JOIN instances i USING (instance_id)"
        " WHERE l.ended_at IS NULL AND (l.until IS NOT NULL OR l.spend_limit IS NOT NULL)"
        " ORDER BY l.instance_id"
    )
    return [
        _Lease(row[0], row[1], row[2], None if row[3] is None else int(row[3]), row[4], row[5])
        for row in rows
    ]


def _ended(connection: Connection, now: int) -> list[tuple[_Lease, LeaseEnd]]:
    """Leases that bind no more at second *now*, and why."""
    leases = _open_leases(connection)
    ended: list[tuple[_Lease, LeaseEnd]] = []
    left = _left(connection, leases)
    policy = read_policy(connection) if left else None
    for lease in leases:
        if lease.destroyed:
            ended.append((lease, "destroyed"))
        elif lease.until is not None and lease.until <= now:
            ended.append((lease, "lease"))
        elif lease.instance_id in left:
            assert policy is not None
            if left[lease.instance_id].available(now, policy) <= 0:
                ended.append((lease, "spend_cap"))
    return ended


def _left(connection: Connection, leases: list[_Lease]) -> dict[int, Credit]:
    """What the instances that want to run and have a limit may still cost."""
    limits: dict[int, dict[int, int]] = {}
    for lease in leases:
        if lease.spend_limit is not None and lease.wants_run:
            limits.setdefault(lease.account_id, {})[lease.instance_id] = lease.spend_limit
    if not limits:
        return {}
    credits = read_credit(connection, limits)
    left: dict[int, Credit] = {}
    for account_id, of_account in limits.items():
        left.update(allowances(connection, credits[account_id], of_account))
    return left


def cap_days(ledger: Ledger) -> None:
    """Tell accounts that the cap of this UTC day is reached; a hard one stops everything (§13.1).

    Each cap is told once a day. A hard one also stops what runs again on the same day, which only
    a resume can do: a start would be refused.
    """
    with ledger.reading() as connection:
        due = [one.account_id for one, _ in _reached(connection, ledger.clock())]
    if not due:
        return
    with ledger.unit() as unit:
        lock_credit(unit.connection, due)
        for capped, left in _reached(unit.connection, unit.now):
            _reach(unit, capped, capped.cap - left)


def _reach(unit: Unit, capped: _Capped, spent: int) -> None:
    account_id = capped.account_id
    stopping = []
    if capped.hard:
        stopping = unit.connection.execute(
            "SELECT instance_id FROM instances WHERE account_id = %s AND wants_run"
            " AND destroyed_at IS NULL ORDER BY instance_id",
            [account_id],
        ).fetchall()
    unit.append(
        account_stream(account_id),
        DayCapReached(
            account_id=account_id,
            day_from=day_start(unit.now),
            cap=capped.cap,
            spent=spent,
            stopped=len(stopping),
            reached_at=unit.now,
        ),
    )
    command_all(unit, [(row[0], StopInstance("spend_cap")) for row in stopping])
    notify(unit, account_id, "spend_cap", f"account-{account_id}")


def _capped(connection: Connection) -> list[_Capped]:
    """Accounts with a cap on the day that burn anything."""
    rows = connection.execute(
        "SELECT s.account_id, s.per_day, s.hard, s.reached_day, s.reached_cap,"
        " (SELECT count(*) FROM instances i WHERE i.account_id = s.account_id AND i.wants_run"
        "  AND i.destroyed_at IS NULL)"
        " FROM spend_caps s JOIN account_credit c USING (account_id)"
        " WHERE s.per_day IS NOT NULL AND (c.gpu_rate > 0 OR c.storage_product > 0)"
        " ORDER BY s.account_id"
    )
    return [
        _Capped(
            row[0], int(row[1]), row[2], row[3], None if row[4] is None else int(row[4]), row[5]
        )
        for row in rows
    ]


def _waits(capped: _Capped, now: int) -> bool:
    """True while there is something to do when the cap of today is reached."""
    is_told = capped.reached_day == day_start(now) and capped.reached_cap == capped.cap
    return not is_told or (capped.hard and capped.running > 0)


def _days_left(connection: Connection, now: int, policy: Policy) -> list[tuple[_Capped, Credit]]:
    waiting = [one for one in _capped(connection) if _waits(one, now)]
    if not waiting:
        return []
    credits = read_credit(connection, [one.account_id for one in waiting])
    return [
        (one, day_allowance(connection, credits[one.account_id], one.cap, now, policy))
        for one in waiting
    ]


def _reached(connection: Connection, now: int) -> list[tuple[_Capped, int]]:
    """Caps of this day that are reached, with what is left (≤ 0) of each."""
    policy = read_policy(connection)
    found = []
    for capped, allowance in _days_left(connection, now, policy):
        left = allowance.available(now, policy)
        if left <= 0:
            found.append((capped, left))
    return found


def next_due(connection: Connection, now: int) -> int | None:
    """The next end of a lease, and the next second at which a limit or a day's cap is spent."""
    policy = read_policy(connection)
    leases = _open_leases(connection)
    due: list[int | None] = [one.until for one in leases]
    due += [one.dry_second(now, policy) for one in _left(connection, leases).values()]
    midnight = day_start(now) + SECONDS_PER_DAY
    capped = _capped(connection)
    if capped:
        due.append(midnight)
    for _, allowance in _days_left(connection, now, policy):
        due.append(allowance.dry_second(now, policy, horizon_seconds=midnight - 1 - now))
    return min((second for second in due if second is not None and second > now), default=None)


def headroom(connection: Connection, account_ids: list[int], now: int) -> dict[int, int]:
    """The nanos that may still be charged to accounts before one of these limits is reached."""
    policy = read_policy(connection)
    wanted = set(account_ids)
    found: dict[int, int] = {}
    leases = [one for one in _open_leases(connection) if one.account_id in wanted]
    left = list(_left(connection, leases).values())
    left += [one for _, one in _days_left(connection, now, policy) if one.account_id in wanted]
    for one in left:
        amount = one.available(now, policy)
        if amount > 0:
            found[one.account_id] = min(amount, found.get(one.account_id, amount))
    return found
