"""What an account has, what it burns, how long that lasts, and whether the books balance."""

from __future__ import annotations

import msgspec

from ledger.errors import NotFoundError
from ledger.services.credit import read_credit
from ledger.services.ledger import read_policy
from ledger.services.questions.transfers import RETURNED_DEPOSITS
from ledger.store.database import Connection


class Balance(msgspec.Struct, frozen=True, kw_only=True):
    """Credit at one second.

    available = posted - charged - held - accrued - locked - lapsed.
    """

    account_id: int
    at: int
    posted: int
    charged: int
    held: int
    accrued: int
    locked: int
    """What the deposits of running reservations still hold."""
    promotional: int
    """What of it is promotional credit: spent first, never refunded or transferred."""
    lapsed: int
    """Left of promotional credit that ended and is not given back yet."""
    available: int
    burn_per_hour: int
    runway_seconds: int | None
    """None while nothing burns."""
    exhausted_at: int | None
    debt_limit: int | None
    host_payable: int
    """Earned as a host, after the platform's fee, not yet paid out."""


class Hold(msgspec.Struct, frozen=True, kw_only=True):
    """Credit set aside."""

    hold_id: str
    amount: int
    status: str
    captured: int
    placed_at: int
    expires_at: int
    closed_at: int | None


class TrialBalanceRow(msgspec.Struct, frozen=True, kw_only=True):
    """One ledger account: what was debited, what was credited."""

    ledger_account: str
    debit: int
    credit: int


def balance(connection: Connection, account_id: int, now: int) -> Balance:
    """The balance of an account at second *now*, to the nano.

    Raises:
        NotFoundError: `no_such_account`.
    """
    credit = read_credit(connection, [account_id]).get(account_id)
    if credit is None:
        raise NotFoundError("no_such_account", f"there is no account {account_id}")
    policy = read_policy(connection)
    row = connection.execute(
        "SELECT c.exhausted_at, c.debt_limit, c.payable + coalesce(u.earned - u.fees, 0)"
        " FROM account_credit c LEFT JOIN account_usage u USING (account_id)"
        " WHERE c.account_id = %s",
        [account_id],
    ).fetchone()
    assert row is not None
    burn, scale = credit.burn_per_hour(now)
    dry = credit.dry_second(now, policy) if burn else None
    return Balance(
        account_id=account_id,
        at=now,
        posted=credit.posted,
        charged=credit.charged,
        held=credit.held(now),
        accrued=credit.accrued(now, policy),
        locked=credit.locked,
        promotional=credit.promotional(now, policy),
        lapsed=credit.lapsed(now, policy),
        available=credit.available(now, policy),
        burn_per_hour=burn // scale,
        runway_seconds=None if dry is None else dry - now,
        exhausted_at=row[0],
        debt_limit=int(row[1]) if row[0] is not None else None,
        host_payable=int(row[2]),
    )


def host_receivable(connection: Connection, account_id: int) -> int:
    """What a host owes, in nanos: shares that were taken back after they were paid out."""
    row = connection.execute(
        "SELECT amount FROM host_receivables WHERE host_id = %s", [account_id]
    ).fetchone()
    return 0 if row is None else int(row[0])


def holds(
    connection: Connection, account_id: int, *, after: str = "", limit: int = 100
) -> list[Hold]:
    """The holds of an account by id."""
    rows = connection.execute(
        "SELECT hold_id, amount, status, captured, placed_at, expires_at, closed_at FROM holds"
        " WHERE account_id = %s AND hold_id > %s ORDER BY hold_id LIMIT %s",
        [account_id, after, limit],
    )
    return [
        Hold(
            hold_id=row[0],
            amount=int(row[1]),
            status=row[2],
            captured=int(row[3]),
            placed_at=row[4],
            expires_at=row[5],
            closed_at=row[6],
        )
        for row in rows
    ]


def trial_balance(connection: Connection) -> list[TrialBalanceRow]:
    """Debits and credits per ledger account; both columns add up to the same.

    A usage charge debits the renter's credit, or the deposit of a reservation, and credits the
    host's payable and the platform's fee. What a term leaves goes back to credit.
    """
    rows = connection.execute(_TRIAL_BALANCE)
    return [
        TrialBalanceRow(ledger_account=name, debit=int(debit), credit=int(credit))
        for name, debit, credit in rows
    ]


_TRIAL_BALANCE = f"""
WITH usage AS (
    SELECT coalesce(sum(gpu_charge + storage_charge + up_charge + down_charge
                        + reserved_idle_charge), 0) AS charge,
           coalesce(sum(gpu_fee + storage_fee + up_fee + down_fee + reserved_idle_fee), 0) AS fee
    FROM usage_hours
), reserved AS (
    SELECT coalesce(sum(gpu_charge + reserved_idle_charge), 0) AS charge
    FROM rate_segments WHERE kind = 'reserved'
), returned AS (SELECT coalesce(sum(amount), 0) AS amount FROM ({RETURNED_DEPOSITS}) AS ended)
SELECT name, sum(debit), sum(credit) FROM (
    SELECT debit AS name, amount AS debit, 0 AS credit FROM movements
    UNION ALL SELECT credit, 0, amount FROM movements
    UNION ALL SELECT 'renter_credit', usage.charge - reserved.charge, 0 FROM usage, reserved
    UNION ALL SELECT 'reserved_deposit', charge, 0 FROM reserved
    UNION ALL SELECT 'reserved_deposit', amount, 0 FROM returned
    UNION ALL SELECT 'renter_credit', 0, amount FROM returned
    UNION ALL SELECT 'host_payable', 0, charge - fee FROM usage
    UNION ALL SELECT 'platform_fee', 0, fee FROM usage) AS posted
GROUP BY name HAVING sum(debit) <> 0 OR sum(credit) <> 0
   OR name IN ('renter_credit', 'host_payable', 'platform_fee') ORDER BY name
"""  # noqa: S608 - a constant of `transfers`
