"""Credit that is used up: everything of the account stops in that second."""

from __future__ import annotations

from typing import Final

from ledger.domain.events import AccountExhausted, AccountRestored
from ledger.domain.ids import account_stream
from ledger.domain.instance import StopInstance
from ledger.domain.money import NANOS_PER_DOLLAR, SECONDS_PER_DAY, SECONDS_PER_HOUR
from ledger.services.credit import GRANTED, LOCKED, Credit, lock_credit, read_credit
from ledger.services.ledger import Ledger, Unit, read_policy
from ledger.services.notices import notify
from ledger.services.rentals import command_all
from ledger.store.database import Connection

CANDIDATE_SECONDS: Final = 86_400
"""Accounts that could burn what they have within a day are watched to the second."""
DEBT_LIMIT_MIN: Final = NANOS_PER_DOLLAR
DEBT_LIMIT_MAX: Final = 50 * NANOS_PER_DOLLAR
DEBT_DAYS: Final = 30
EVERY_SECOND: Final = "SELECT 1"
"""Each second is noted as judged, also where nobody is near the end of credit."""

_CANDIDATES = f"""
SELECT c.account_id FROM account_credit c LEFT JOIN account_usage u USING (account_id)
WHERE (c.gpu_rate > 0 OR c.storage_product > 0 OR c.exhausted_at IS NOT NULL)
  AND (c.exhausted_at IS NOT NULL OR c.posted - coalesce(u.charged, 0)
    - coalesce((SELECT sum(l.amount) FROM ({LOCKED}) AS l WHERE l.account_id = c.account_id), 0)
    - coalesce((SELECT sum(g.amount) FROM ({GRANTED}) AS g WHERE g.account_id = c.account_id), 0)
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
            "INSERT INTO projection_positions VALUES ('exhaustion', 0, %s)"
            " ON CONFLICT (name) DO UPDATE SET position = EXCLUDED.position RETURNING"
            " (SELECT position FROM projection_positions WHERE name = 'exhaustion')",
            [now],
        ).fetchone()
    assert row is not None
    return now - 1 if row[0] is None else min(int(row[0]), now - 1)


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
