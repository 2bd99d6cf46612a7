"""Statements at 01:00 UTC, deadlines of disputes, holds of witnesses, and what hosts owe.

All of it belongs to the period jobs of a second (`scenarios.md`), before invoices and payouts.
"""

from __future__ import annotations

from typing import Final

from ledger.domain.dispute import PLATFORM
from ledger.domain.events import ReceivableRecovered
from ledger.domain.ids import account_stream
from ledger.domain.money import SECONDS_PER_DAY, SECONDS_PER_HOUR
from ledger.services import disputes, statements, witnesses
from ledger.services.corrections import host_payable
from ledger.services.heartbeats import forget
from ledger.services.ledger import Ledger, read_policy
from ledger.services.policies.glance import marked
from ledger.store.database import Connection

_WEEK_SECONDS: Final = 7 * SECONDS_PER_DAY
_FRIDAY: Final = SECONDS_PER_DAY
"""1970-01-01 was a Thursday: Fridays begin a day after whole weeks."""

_OWING = "SELECT host_id, amount FROM host_receivables WHERE amount > 0 ORDER BY host_id"
_WITNESSED = (
    "SELECT 1 FROM witnesses WHERE verdict = 'hold' AND dispute_id IS NULL AND until > %(first)s"
    " UNION ALL SELECT 1 FROM outages WHERE coalesce(ended_at, %(now)s) > %(first)s LIMIT 1"
)
_NEXT = f"""
SELECT (SELECT min(host_due_at) FROM disputes WHERE host_due_at > %(now)s),
       (SELECT min(question_due_at) FROM disputes WHERE question_due_at > %(now)s),
       EXISTS ({_WITNESSED}), EXISTS ({_OWING})
"""  # noqa: S608 - constants

_HOUR = f"%(now)s / {SECONDS_PER_HOUR}"
_LAST_WEEK = f"(%(now)s - {_FRIDAY}) / {_WEEK_SECONDS}"
WITNESSED_DUE: Final = f"SELECT 1 WHERE {marked('witnesses')} < {_HOUR}"
RECEIVABLES_DUE: Final = f"SELECT 1 WHERE {marked('receivables')} < {_LAST_WEEK}"


def state_usage(ledger: Ledger) -> None:
    """Issue the usage statements of days that are over."""
    statements.issue_due(ledger)


def let_silence_decide(ledger: Ledger) -> None:
    """Resolve the disputes in which somebody was silent for too long."""
    with ledger.reading() as connection:
        row = connection.execute(f"{disputes.DUE} LIMIT 1", {"now": ledger.clock()}).fetchone()
    if row is not None:
        with ledger.unit() as unit:
            disputes.let_pass(unit)


def hold_witnessed(ledger: Ledger) -> None:
    """Once an hour, hold what was billed for minutes in which an instance was down and silent."""
    now = ledger.clock()
    with ledger.reading() as connection:
        if _mark(connection, "witnesses") >= now // SECONDS_PER_HOUR:
            return
        row = connection.execute(_WITNESSED, _window(connection, now)).fetchone()
    if row is not None:
        with ledger.unit() as unit:
            witnesses.record_outages(unit)
            witnesses.hold(unit)
            forget(unit)
    with ledger.database.pool.connection() as connection:
        _set_mark(connection, "witnesses", now // SECONDS_PER_HOUR)


def recover_receivables(ledger: Ledger) -> None:
    """On Friday 00:00 UTC, before payouts: take what hosts owe from what they are owed."""
    week = _week(ledger.clock())
    with ledger.reading() as connection:
        last = _mark(connection, "receivables")
    if last >= week:
        return
    with ledger.unit() as unit:
        for host_id, amount in unit.connection.execute(_OWING).fetchall():
            part = min(int(amount), host_payable(unit.connection, host_id))
            if part > 0 and last:
                unit.append(
                    account_stream(host_id),
                    ReceivableRecovered(
                        host_id=host_id,
                        amount=part,
                        cause=None,
                        policy_version=unit.policy.version,
                        actor=PLATFORM,
                        effective_at=unit.now,
                        recovered_at=unit.now,
                    ),
                )
        _set_mark(unit.connection, "receivables", week)


def next_due(connection: Connection, now: int) -> int | None:
    """The next statement, deadline, hour of a hold, or Friday with something to recover."""
    row = connection.execute(_NEXT, _window(connection, now)).fetchone()
    assert row is not None
    due = [statements.next_due(connection, now), row[0], row[1]]
    if row[2]:
        due.append((now // SECONDS_PER_HOUR + 1) * SECONDS_PER_HOUR)
    if row[3]:
        due.append((_week(now) + 1) * _WEEK_SECONDS + _FRIDAY)
    return min((second for second in due if second is not None and second > now), default=None)


def _window(connection: Connection, now: int) -> dict[str, int]:
    late = read_policy(connection).late_usage_seconds
    return {"now": now, "first": now - late - SECONDS_PER_HOUR}


def _week(now: int) -> int:
    """Number of the week that began on the last Friday 00:00 UTC."""
    return (now - _FRIDAY) // _WEEK_SECONDS


def _mark(connection: Connection, name: str) -> int:
    """Up to when a job was done: saves looking again, and decides nothing."""
    row = connection.execute(
        "SELECT position FROM projection_positions WHERE name = %s", [name]
    ).fetchone()
    return 0 if row is None else int(row[0])


def _set_mark(connection: Connection, name: str, position: int) -> None:
    connection.execute(
        "INSERT INTO projection_positions VALUES (%s, 0, %s)"
        " ON CONFLICT (name) DO UPDATE SET position = EXCLUDED.position",
        [name, position],
    )
