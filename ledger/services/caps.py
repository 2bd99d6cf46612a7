"""Spend caps: how much an account may burn in an hour, and be charged in a UTC day (§13.1).

What a reservation has prepaid counts for neither: its deposit was spent when it was bought.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from ledger.domain.events import SpendCapsSet
from ledger.domain.ids import account_stream
from ledger.domain.money import (
    MAX_POSTING_NANOS,
    SECONDS_PER_DAY,
    SECONDS_PER_HOUR,
    format_dollars,
)
from ledger.errors import DeclinedError, RejectedError
from ledger.meters.pricing import STORAGE_DIVISOR
from ledger.projections.contracts import CONTRACTS
from ledger.services.accounts import require_account
from ledger.services.credit import Credit
from ledger.services.ledger import Policy, Unit
from ledger.store.database import Connection

_GPU_SCALE: Final = STORAGE_DIVISOR // SECONDS_PER_HOUR


class Caps(NamedTuple):
    """Nanos of burn an hour and of charges a UTC day; none: no cap.

    With `hard` everything stops when the day's cap is reached.
    """

    per_hour: int | None = None
    per_day: int | None = None
    hard: bool = False


class Plan(NamedTuple):
    """A change that would make an account burn more: what is added to what it wants to run now.

    `gpu_rate` is in nanos per hour, `storage_product` in nanos per GB-month times bytes;
    *replaces* names an instance whose present GPU rate no longer counts.
    """

    gpu_rate: int = 0
    storage_product: int = 0
    replaces: int | None = None


def day_start(second: int) -> int:
    """The first second of the UTC day that holds *second*."""
    return second // SECONDS_PER_DAY * SECONDS_PER_DAY


def set_caps(unit: Unit, account_id: int, caps: Caps) -> None:
    """Put caps in force; what runs goes on running, however much it burns.

    Raises:
        NotFoundError: `no_such_account`.
        RejectedError: `invalid_amount`; `invalid_args` for a hard cap without a cap on the day.
    """
    for amount in (caps.per_hour, caps.per_day):
        if amount is not None and not 0 <= amount <= MAX_POSTING_NANOS:
            raise RejectedError("invalid_amount", "a cap is between 0 and 10^9 dollars")
    if caps.hard and caps.per_day is None:
        raise RejectedError("invalid_args", "only a cap on the day can be hard: set per_day")
    require_account(unit.connection, account_id)
    if caps == read_caps(unit.connection, account_id):
        return
    unit.append(
        account_stream(account_id),
        SpendCapsSet(
            account_id=account_id,
            per_hour=caps.per_hour,
            per_day=caps.per_day,
            hard=caps.hard,
            set_at=unit.now,
        ),
    )


def read_caps(connection: Connection, account_id: int) -> Caps:
    """The caps in force; none at first."""
    row = connection.execute(
        "SELECT per_hour, per_day, hard FROM spend_caps WHERE account_id = %s", [account_id]
    ).fetchone()
    return Caps() if row is None else Caps(_whole(row[0]), _whole(row[1]), row[2])


def require_within_caps(unit: Unit, credit: Credit, plan: Plan) -> None:
    """Let an account burn more by *plan*, or say which cap forbids it.

    Everything that wants to run counts, also what still loads or waits for GPUs: a storm of
    launches is judged by what it will cost.

    Raises:
        DeclinedError: `spend_rate_limit`.
    """
    caps = read_caps(unit.connection, credit.account_id)
    if caps.per_hour is None and caps.per_day is None:
        return
    gpu_rate, storage_product = _wanted(unit, credit.account_id, plan)
    # Nanos an hour, times STORAGE_DIVISOR: nothing is rounded before it is compared.
    burn = (gpu_rate * _GPU_SCALE + storage_product) * SECONDS_PER_HOUR
    if caps.per_hour is not None and burn > caps.per_hour * STORAGE_DIVISOR:
        raise _beyond("hour", caps.per_hour, -(-burn // STORAGE_DIVISOR))
    if caps.per_day is not None:
        spent = day_spend(unit.connection, credit, unit.now, unit.policy)
        if spent * STORAGE_DIVISOR + burn > caps.per_day * STORAGE_DIVISOR:
            raise _beyond("day", caps.per_day, spent - (-burn // STORAGE_DIVISOR))


def day_spend(connection: Connection, credit: Credit, at: int, policy: Policy) -> int:
    """Nanos charged for seconds since 00:00 UTC of the day of *at*, those not yet folded too."""
    return _charged(connection, credit.account_id, day_start(at)) + _accrued(credit, at, policy)


def day_allowance(
    connection: Connection, credit: Credit, cap: int, at: int, policy: Policy
) -> Credit:
    """What the cap of the day of *at* leaves, as a credit that runs dry where it is reached."""
    before = _accrued_before(credit, at, policy)
    left = cap - _charged(connection, credit.account_id, day_start(at)) + before
    return Credit(credit.account_id, posted=left, accruals=credit.accruals)


def _accrued(credit: Credit, at: int, policy: Policy) -> int:
    return credit.accrued(at, policy) - _accrued_before(credit, at, policy)


def _accrued_before(credit: Credit, at: int, policy: Policy) -> int:
    """What of the accrued belongs to seconds before the day of *at*."""
    silence = policy.offline_after_seconds
    midnight = day_start(at)
    return sum(one.due(midnight, silence, present=at) for one in credit.accruals)


def _charged(connection: Connection, account_id: int, since: int) -> int:
    row = connection.execute(
        "SELECT coalesce(sum(h.storage_charge + h.up_charge + h.down_charge"  # noqa: S608 - a constant
        " + CASE WHEN s.kind = 'reserved' THEN 0 ELSE h.gpu_charge END), 0)"
        f" FROM {CONTRACTS} i JOIN usage_hours h ON h.instance_id = i.instance_id AND h.hour >= %s"
        " JOIN rate_segments s ON s.instance_id = h.instance_id AND s.terms_no = h.terms_no"
        " WHERE i.account_id = %s AND (i.destroyed_at IS NULL OR i.destroyed_at > %s)",
        [since // SECONDS_PER_HOUR, account_id, since],
    ).fetchone()
    assert row is not None
    return int(row[0])


def _wanted(unit: Unit, account_id: int, plan: Plan) -> tuple[int, int]:
    """GPU rate and storage product of an account in the next second, after *plan*.

    Bids that were changed in this second take effect in the next one.
    """
    row = unit.connection.execute(
        "SELECT coalesce((SELECT sum(t.gpu_rate) FROM instances i"
        " JOIN instance_terms t ON t.instance_id = i.instance_id AND t.since <= %s AND t.until > %s"
        " WHERE i.account_id = c.account_id AND i.wants_run AND i.destroyed_at IS NULL"
        " AND t.kind <> 'reserved' AND i.instance_id IS DISTINCT FROM %s), 0), c.storage_product"
        " FROM account_credit c WHERE c.account_id = %s",
        [unit.now + 1, unit.now + 1, plan.replaces, account_id],
    ).fetchone()
    assert row is not None
    return int(row[0]) + plan.gpu_rate, int(row[1]) + plan.storage_product


def _beyond(span: str, cap: int, after: int) -> DeclinedError:
    message = (
        f"the account's cap is {format_dollars(cap)} per {span};"
        f" with this it would be {format_dollars(after)}"
    )
    return DeclinedError(
        "spend_rate_limit",
        message,
        cap=format_dollars(cap),
        per=span,
        after=format_dollars(after),
    )


def _whole(value: object) -> int | None:
    return None if value is None else int(str(value))
