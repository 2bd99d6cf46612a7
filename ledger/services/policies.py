"""What the platform does by itself when a second comes: policies.

A policy reads, decides and issues ordinary commands; acting twice is harmless, because each looks
at what already happened. Everything is judged again under the log's lock before anything is
appended. `run_due` does what is due, in the order of one second (`scenarios.md`); `next_due` tells
a simulated clock where to stop next.
"""

from __future__ import annotations

from typing import Final

from ledger.domain.events import (
    AccountExhausted,
    AccountRestored,
    Fact,
    MachineCameOnline,
    MachineWentOffline,
    NoticeCode,
    NoticeIssued,
    PeriodClosed,
    StorageDebtCleared,
    StorageDebtNoticed,
    UsageGapRecorded,
)
from ledger.domain.ids import (
    account_stream,
    instance_stream,
    machine_stream,
    month_start,
    next_month_start,
)
from ledger.domain.instance import (
    LAUNCH_TIMEOUT_SECONDS,
    DestroyInstance,
    ExpireInstance,
    StopInstance,
    TimeOutLaunch,
)
from ledger.domain.money import NANOS_PER_DOLLAR, SECONDS_PER_DAY, SECONDS_PER_HOUR
from ledger.meters.intervals import Range, overlap, subtract
from ledger.projections.runner import position_of
from ledger.services import accounts, invoicing
from ledger.services.credit import Credit, lock_credit, read_credit
from ledger.services.ledger import Ledger, Unit, read_policy
from ledger.services.rentals import command_all, settle
from ledger.store.database import Connection

CANDIDATE_SECONDS: Final = 86_400
"""Accounts that could burn what they have within a day are watched to the second."""
DEBT_LIMIT_MIN: Final = NANOS_PER_DOLLAR
DEBT_LIMIT_MAX: Final = 50 * NANOS_PER_DOLLAR
DEBT_DAYS: Final = 30
DEBT_NOTICE_SECONDS: Final = (0, SECONDS_PER_DAY, 3 * SECONDS_PER_DAY)
ISSUE_AFTER_SECONDS: Final = 3_600


def run_due(ledger: Ledger) -> None:
    """Do everything that is due at the present second."""
    expire_contracts(ledger)
    time_out_launches(ledger)
    expire_holds(ledger)
    watch_machines(ledger)
    exhaust(ledger)
    collect_debt(ledger)
    close_periods(ledger)
    invoicing.issue_due(ledger)
    record_gaps(ledger)


# --- contracts, launches, holds ------------------------------------------------------------------


def expire_contracts(ledger: Ledger) -> None:
    """End every contract whose end date has come: stopped for good, storage goes on."""
    query = (
        "SELECT instance_id FROM instances WHERE destroyed_at IS NULL AND status <> 'expired'"
        " AND until <= %s ORDER BY instance_id"
    )
    if not _any(ledger, query):
        return
    with ledger.unit() as unit:
        due = [row[0] for row in unit.connection.execute(query, [unit.now])]
        command_all(unit, [(one, ExpireInstance()) for one in due])
        for instance_id in due:
            account_id = unit.instance(instance_id).account_id
            notify(unit, account_id, "expired", f"instance-{instance_id}")


def time_out_launches(ledger: Ledger) -> None:
    """Stop instances whose container nobody confirmed for half an hour."""
    query = (
        "SELECT instance_id FROM instances WHERE status = 'loading'"  # noqa: S608 - a constant
        f" AND greatest(assigned_at, gpu_until) + {LAUNCH_TIMEOUT_SECONDS} <= %s"
        " ORDER BY instance_id"
    )
    if not _any(ledger, query):
        return
    with ledger.unit() as unit:
        due = [row[0] for row in unit.connection.execute(query, [unit.now])]
        command_all(unit, [(one, TimeOutLaunch()) for one in due])


def expire_holds(ledger: Ledger) -> None:
    """Record the end of holds whose instant has come."""
    query = "SELECT 1 FROM holds WHERE status = 'pending' AND expires_at <= %s"
    if _any(ledger, query):
        with ledger.unit() as unit:
            accounts.expire_holds(unit)


def _any(ledger: Ledger, query: str) -> bool:
    with ledger.reading() as connection:
        row = connection.execute(f"{query} LIMIT 1", [ledger.clock()]).fetchone()
    return row is not None


# --- machines ------------------------------------------------------------------------------------

_CONTACT = (
    "SELECT m.machine_id, coalesce(max(h.recorded_at), m.enrolled_at) AS contact"
    " FROM machines m LEFT JOIN stream_heads h USING (machine_id)"
    " WHERE m.enrolled_at IS NOT NULL"
)


def watch_machines(ledger: Ledger) -> None:
    """Write down which machines fell silent, and which report again."""
    with ledger.reading() as connection:
        policy = read_policy(connection)
        if policy.offline_after_seconds is None:
            return
        changed = _machines_that_changed(connection, ledger.clock(), policy.offline_after_seconds)
    if not changed:
        return
    with ledger.unit() as unit:
        silence = unit.policy.offline_after_seconds
        assert silence is not None
        back = []
        for machine_id, host_id, contact, offline in _machines_that_changed(
            unit.connection, unit.now, silence
        ):
            fact: Fact
            if offline:
                fact = MachineWentOffline(
                    machine_id=machine_id, last_report_at=contact, offline_at=contact + silence
                )
            else:
                fact = MachineCameOnline(machine_id=machine_id, online_at=contact)
                back.append(machine_id)
            unit.append(machine_stream(machine_id), fact)
            notify(unit, host_id, "offline" if offline else "online", f"machine-{machine_id}")
        for machine_id in back:
            settle(unit, machine_id)


def _machines_that_changed(
    connection: Connection, now: int, silence: int
) -> list[tuple[int, int, int, bool]]:
    """Machines whose overlay is not what their last contact says: machine, host, contact, gone."""
    rows = connection.execute(
        f"SELECT machine_id, host_id, contact, offline_since FROM ({_CONTACT}"  # noqa: S608 - constant
        " GROUP BY m.machine_id) AS seen JOIN machines USING (machine_id)"
        " WHERE (offline_since IS NULL AND contact + %s < %s)"
        " OR (offline_since IS NOT NULL AND contact + %s >= %s) ORDER BY machine_id",
        [silence, now, silence, now],
    )
    return [(row[0], row[1], row[2], row[3] is None) for row in rows]


# --- credit --------------------------------------------------------------------------------------

_CANDIDATES = f"""
SELECT c.account_id FROM account_credit c LEFT JOIN account_usage u USING (account_id)
WHERE (c.gpu_rate > 0 OR c.storage_product > 0 OR c.exhausted_at IS NOT NULL)
  AND (c.exhausted_at IS NOT NULL OR c.posted - coalesce(u.charged, 0)
    - coalesce((SELECT sum(h.amount) FROM holds h
                WHERE h.account_id = c.account_id AND h.status = 'pending'), 0)
    <= c.gpu_rate * {CANDIDATE_SECONDS // SECONDS_PER_HOUR}
       + c.storage_product * {CANDIDATE_SECONDS} / (1000000000::numeric * 2592000) + 1)
ORDER BY c.account_id
"""  # noqa: S608 - constants of this module


def _candidates(connection: Connection) -> list[int]:
    return [row[0] for row in connection.execute(_CANDIDATES)]


def exhaust(ledger: Ledger) -> None:
    """Stop every instance of every account whose available credit is used up, in one transaction.

    The stamp is the present second. If credit ran dry before it (the evaluation was late), the
    seconds in between are recorded as `late_exhaustion`.
    """
    with ledger.reading() as connection:
        now = ledger.clock()
        due = _dry(connection, _candidates(connection), now)
    evaluated = _evaluated(ledger, now)
    if not due:
        return
    with ledger.unit() as unit:
        credits = lock_credit(unit.connection, due)
        for account_id in _dry(unit.connection, due, unit.now):
            credit = credits[account_id]
            available = credit.available(unit.now, unit.policy)
            if available > 0:
                unit.append(
                    account_stream(account_id),
                    AccountRestored(account_id=account_id, restored_at=unit.now),
                )
            else:
                _exhaust_account(unit, credit, available, min(evaluated, unit.now - 1))


def _dry(connection: Connection, account_ids: list[int], now: int) -> list[int]:
    """Accounts that must be exhausted now, or that recovered from it."""
    if not account_ids:
        return []
    policy = read_policy(connection)
    states = {
        account_id: (exhausted_at is not None, wants_run)
        for account_id, exhausted_at, wants_run in connection.execute(
            "SELECT c.account_id, c.exhausted_at, EXISTS (SELECT 1 FROM instances i"
            " WHERE i.account_id = c.account_id AND i.wants_run AND i.destroyed_at IS NULL)"
            " FROM account_credit c WHERE c.account_id = ANY(%s)",
            [account_ids],
        )
    }
    due = []
    for account_id, credit in read_credit(connection, account_ids).items():
        exhausted, wants_run = states[account_id]
        above = credit.available(now, policy) > 0
        if (above and exhausted) or (not above and (wants_run or not exhausted)):
            due.append(account_id)
    return due


def _evaluated(ledger: Ledger, now: int) -> int:
    """The last second at which exhaustion was judged before *now*; *now* is noted as judged."""
    with ledger.database.pool.connection() as connection:
        row = connection.execute(
            "SELECT position FROM projection_positions WHERE name = 'exhaustion'"
        ).fetchone()
        connection.execute(
            "INSERT INTO projection_positions VALUES ('exhaustion', 0, %s)"
            " ON CONFLICT (name) DO UPDATE SET position = EXCLUDED.position",
            [now],
        )
    return now - 1 if row is None else min(int(row[0]), now - 1)


def _exhaust_account(unit: Unit, credit: Credit, available: int, evaluated: int) -> None:
    account_id = credit.account_id
    rows = unit.connection.execute(
        "SELECT instance_id FROM instances WHERE account_id = %s AND wants_run"
        " AND destroyed_at IS NULL ORDER BY instance_id",
        [account_id],
    ).fetchall()
    unit.append(
        account_stream(account_id),
        AccountExhausted(
            account_id=account_id,
            dry_at=credit.dry_between(evaluated, unit.now, unit.policy),
            stopped_at=unit.now,
            available=available,
            debt_limit=_debt_limit(unit, credit),
        ),
    )
    command_all(unit, [(row[0], StopInstance("zero_balance")) for row in rows])
    notify(unit, account_id, "exhausted", f"account-{account_id}")


def _debt_limit(unit: Unit, credit: Credit) -> int:
    """A thirtieth of the charges of the last 30 days, between $1 and $50 (§13.4)."""
    since = (unit.now - DEBT_DAYS * SECONDS_PER_DAY) // SECONDS_PER_HOUR
    row = unit.connection.execute(
        "SELECT coalesce(sum(gpu_charge + storage_charge + up_charge + down_charge), 0)"
        " FROM usage_hours WHERE account_id = %s AND hour >= %s",
        [credit.account_id, since],
    ).fetchone()
    assert row is not None
    charges = int(row[0]) + credit.accrued(unit.now, unit.policy)
    return min(max(charges // DEBT_DAYS, DEBT_LIMIT_MIN), DEBT_LIMIT_MAX)


def collect_debt(ledger: Ledger) -> None:
    """Notice a debt that reached its limit three times, then destroy what causes it (§13.4)."""
    with ledger.reading() as connection:
        due = [one for one, _ in _debts(connection, ledger.clock())]
    if not due:
        return
    with ledger.unit() as unit:
        lock_credit(unit.connection, due)
        for account_id, number in _debts(unit.connection, unit.now):
            if number == 0:
                unit.append(
                    account_stream(account_id),
                    StorageDebtCleared(account_id=account_id, cleared_at=unit.now),
                )
                continue
            credit = read_credit(unit.connection, [account_id])[account_id]
            unit.append(
                account_stream(account_id),
                StorageDebtNoticed(
                    account_id=account_id,
                    number=number,
                    debt=-credit.available(unit.now, unit.policy),
                    noticed_at=unit.now,
                ),
            )
            notify(unit, account_id, "storage_debt", f"notice-{number}")
            if number == len(DEBT_NOTICE_SECONDS):
                rows = unit.connection.execute(
                    "SELECT instance_id FROM instances WHERE account_id = %s"
                    " AND destroyed_at IS NULL ORDER BY instance_id",
                    [account_id],
                ).fetchall()
                wish = DestroyInstance("storage_debt", "storage debt")
                command_all(unit, [(row[0], wish) for row in rows])


def _debts(connection: Connection, now: int) -> list[tuple[int, int]]:
    """Accounts with the number of the notice that is due; 0 when a sequence is over."""
    rows = connection.execute(
        "SELECT account_id, debt_limit, debt_notices, debt_since FROM account_credit"
        " WHERE exhausted_at IS NOT NULL AND (debt_notices > 0 OR storage_product > 0)"
        " ORDER BY account_id"
    ).fetchall()
    if not rows:
        return []
    policy = read_policy(connection)
    credits = read_credit(connection, [row[0] for row in rows])
    due = []
    for account_id, limit, notices, since in rows:
        reached = credits[account_id].available(now, policy) <= -int(limit)
        if not reached:
            if 0 < notices < len(DEBT_NOTICE_SECONDS):
                due.append((account_id, 0))
        elif notices == 0:
            due.append((account_id, 1))
        elif notices < len(DEBT_NOTICE_SECONDS) and now >= since + DEBT_NOTICE_SECONDS[notices]:
            due.append((account_id, notices + 1))
    return due


# --- periods and gaps ----------------------------------------------------------------------------

_OPEN_PERIODS = (
    "SELECT a.account_id, greatest(a.closed_until, min(i.created_at)), a.closed_until"
    " FROM accounts a JOIN instances i USING (account_id)"
    " WHERE a.closed_until <= %s GROUP BY a.account_id ORDER BY a.account_id"
)


def close_periods(ledger: Ledger) -> None:
    """Close usage periods (UTC months) an hour after they ended, for accounts that ever rented."""
    boundary = month_start(ledger.clock() - ISSUE_AFTER_SECONDS)
    with ledger.reading() as connection:
        row = connection.execute(f"{_OPEN_PERIODS} LIMIT 1", [boundary - 1]).fetchone()
    if row is None:
        return
    with ledger.unit() as unit:
        new: list[tuple[str, Fact]] = []
        for account_id, used_from, closed_until in unit.connection.execute(
            _OPEN_PERIODS, [boundary - 1]
        ).fetchall():
            start = max(closed_until, month_start(used_from))
            while next_month_start(start) <= boundary:
                end = next_month_start(start)
                fact = PeriodClosed(
                    account_id=account_id, period_from=start, period_until=end, closed_at=unit.now
                )
                new.append((account_stream(account_id), fact))
                start = end
        unit.append_all(new)


def record_gaps(ledger: Ledger) -> None:
    """Record seconds of GPU intervals that no timely tick can cover any more; once an hour."""
    with ledger.reading() as connection:
        policy = read_policy(connection)
        row = connection.execute(
            "SELECT position FROM projection_positions WHERE name = 'gaps'"
        ).fetchone()
    checked = 0 if row is None else int(row[0])
    until = (ledger.clock() - policy.late_usage_seconds) // SECONDS_PER_HOUR * SECONDS_PER_HOUR
    if until <= checked:
        return
    with ledger.unit() as unit:
        if not _folded_through(unit.connection, until + policy.late_usage_seconds):
            return  # A tick that came in time may wait to be folded; a later second will do.
        new: list[tuple[str, Fact]] = []
        for instance_id, machine_id, gap in _gaps(unit.connection, checked, until):
            fact = UsageGapRecorded(
                instance_id=instance_id,
                machine_id=machine_id,
                gap_from=gap.start,
                gap_until=gap.end,
                recorded_at=unit.now,
            )
            new.append((instance_stream(instance_id), fact))
        unit.append_all(new)
        unit.connection.execute(
            "INSERT INTO projection_positions VALUES ('gaps', 0, %s)"
            " ON CONFLICT (name) DO UPDATE SET position = EXCLUDED.position",
            [until],
        )


def _folded_through(connection: Connection, second: int) -> bool:
    """True when everything recorded up to *second* is folded."""
    row = connection.execute(
        "SELECT recorded_at FROM events WHERE position > %s ORDER BY position LIMIT 1",
        [position_of(connection)],
    ).fetchone()
    return row is None or row[0] > second


def _gaps(connection: Connection, start: int, until: int) -> list[tuple[int, int, Range]]:
    """Seconds of `[start, until)` that lie in a GPU interval and have no tick."""
    intervals = connection.execute(
        "SELECT g.instance_id, i.machine_id, g.start, g.until FROM gpu_intervals g"
        " JOIN metered_instances i USING (instance_id)"
        " WHERE g.start < %s AND (g.until IS NULL OR g.until > %s) ORDER BY g.instance_id, g.start",
        [until, start],
    ).fetchall()
    covered: dict[int, list[Range]] = {}
    for instance_id, low, high in connection.execute(
        "SELECT instance_id, start, until FROM coverage WHERE instance_id = ANY(%s)"
        " AND start < %s AND until > %s ORDER BY instance_id, start",
        [[row[0] for row in intervals], until, start],
    ):
        covered.setdefault(instance_id, []).append(Range(low, high))
    found = []
    for instance_id, machine_id, low, high in intervals:
        first, last = max(low, start), until if high is None else min(high, until)
        taken = overlap(covered.get(instance_id, []), first, last)
        found += [(instance_id, machine_id, gap) for gap in subtract(first, last, taken)]
    return found


def notify(unit: Unit, account_id: int, code: NoticeCode, about: str) -> None:
    """Record that somebody has to know something."""
    unit.append(
        account_stream(account_id),
        NoticeIssued(account_id=account_id, code=code, about=about, issued_at=unit.now),
    )


# --- for a simulated clock -----------------------------------------------------------------------


def next_due(connection: Connection, now: int) -> int | None:
    """The next second after *now* at which a policy has something to do, as far as is known now.

    Machines are taken to go on reporting; who knows that one does not adds its last contact.
    """
    due: list[int | None] = []
    row = connection.execute(
        "SELECT (SELECT min(expires_at) FROM holds WHERE status = 'pending'),"
        " (SELECT min(until) FROM instances WHERE destroyed_at IS NULL AND status <> 'expired'),"
        " (SELECT min(greatest(assigned_at, gpu_until)) FROM instances WHERE status = 'loading'),"
        " (SELECT min(a.closed_until) FROM accounts a WHERE EXISTS"
        "  (SELECT 1 FROM instances i WHERE i.account_id = a.account_id))"
    ).fetchone()
    assert row is not None
    due += [row[0], row[1], None if row[2] is None else row[2] + LAUNCH_TIMEOUT_SECONDS]
    if row[3] is not None:
        due.append(next_month_start(now - ISSUE_AFTER_SECONDS) + ISSUE_AFTER_SECONDS)
    due += _credit_due(connection, now)
    later = [second for second in due if second is not None and second > now]
    return min(later, default=None)


def _credit_due(connection: Connection, now: int) -> list[int | None]:
    policy = read_policy(connection)
    rows = connection.execute(
        "SELECT account_id, exhausted_at, debt_limit, debt_notices, debt_since FROM account_credit"
        " WHERE gpu_rate > 0 OR storage_product > 0 OR debt_notices > 0"
    ).fetchall()
    if not rows:
        return []
    due: list[int | None] = []
    for account_id, credit in read_credit(connection, [row[0] for row in rows]).items():
        _, exhausted_at, limit, notices, since = next(row for row in rows if row[0] == account_id)
        if exhausted_at is None or credit.available(now, policy) > 0:
            due.append(credit.dry_second(now, policy))
        elif notices == 0:
            due.append(credit.dry_second(now, policy, floor=-int(limit)))
        elif notices < len(DEBT_NOTICE_SECONDS):
            due.append(since + DEBT_NOTICE_SECONDS[notices])
    return due
