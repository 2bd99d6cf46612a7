"""Leases: an instance that stops by itself, at a second or at an amount (`marketplace.md` §13.5).

Both end the GPU meter and keep the disk, whose meter goes on until the instance is destroyed. What
a reservation has prepaid does not count as spent: that was decided when it was bought.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from ledger.domain.events import LeaseSet
from ledger.domain.ids import account_stream, rfc3339
from ledger.domain.instance.contract import require_alive
from ledger.domain.money import MAX_POSTING_NANOS, format_dollars
from ledger.errors import DeclinedError, RejectedError
from ledger.services.credit import Credit
from ledger.services.ledger import Unit
from ledger.store.database import Connection


class Lease(NamedTuple):
    """When an instance stops by itself; none: not by this."""

    until: int | None = None
    spend_limit: int | None = None


def set_lease(unit: Unit, instance_id: int, lease: Lease) -> None:
    """Give an instance a lease, another one, or none.

    A spend limit counts from the instance's creation; one that is spent already stops it at once.

    Raises:
        NotFoundError: `no_such_instance`, also for one that was destroyed.
        RejectedError: `invalid_args` for an end that is not in the future, `invalid_amount`.
    """
    instance = unit.instance(instance_id)
    require_alive(instance)
    if lease.until is not None and lease.until <= unit.now:
        raise RejectedError("invalid_args", "a lease ends in the future")
    if lease.spend_limit is not None and not 0 < lease.spend_limit <= MAX_POSTING_NANOS:
        raise RejectedError("invalid_amount", "a spend limit is above 0 and at most 10^9 dollars")
    if lease == read_lease(unit.connection, instance_id):
        return
    unit.append(
        account_stream(instance.account_id),
        LeaseSet(
            account_id=instance.account_id,
            instance_id=instance_id,
            until=lease.until,
            spend_limit=lease.spend_limit,
            set_at=unit.now,
        ),
    )


def read_lease(connection: Connection, instance_id: int) -> Lease:
    """The lease in force; none at first."""
    row = connection.execute(
        "SELECT until, spend_limit FROM instance_leases WHERE instance_id = %s", [instance_id]
    ).fetchone()
    if row is None:
        return Lease()
    return Lease(row[0], None if row[1] is None else int(row[1]))


def require_lease(unit: Unit, credit: Credit, instance_id: int) -> None:
    """Refuse to start what its lease would stop in the same second.

    Raises:
        DeclinedError: `lease_ended`, or `spend_rate_limit` when the instance's limit is spent.
    """
    lease = read_lease(unit.connection, instance_id)
    if lease.until is not None and lease.until <= unit.now:
        message = f"the lease ended at {rfc3339(lease.until)}: set another one to start again"
        raise DeclinedError("lease_ended", message, until=rfc3339(lease.until))
    if lease.spend_limit is None:
        return
    left = allowances(unit.connection, credit, {instance_id: lease.spend_limit})[instance_id]
    if left.available(unit.now, unit.policy) <= 0:
        limit = format_dollars(lease.spend_limit)
        message = f"the instance has cost its limit of {limit}: set another one to start again"
        raise DeclinedError("spend_rate_limit", message, spend_limit=limit)


def allowances(connection: Connection, credit: Credit, limits: dict[int, int]) -> dict[int, Credit]:
    """What each instance of one account may still cost, as a credit that runs dry at its limit."""
    spent = _charged(connection, limits.keys())
    return {
        instance_id: Credit(
            credit.account_id,
            posted=limit - spent.get(instance_id, 0),
            accruals=[one for one in credit.accruals if one.instance_id == instance_id],
        )
        for instance_id, limit in limits.items()
    }


def _charged(connection: Connection, instance_ids: Collection[int]) -> dict[int, int]:
    """Nanos charged so far, without what a deposit paid."""
    return {
        instance_id: int(amount)
        for instance_id, amount in connection.execute(
            "SELECT instance_id, sum(storage_charge + up_charge + down_charge"
            " + CASE WHEN kind = 'reserved' THEN 0 ELSE gpu_charge END)"
            " FROM rate_segments WHERE instance_id = ANY(%s) GROUP BY instance_id",
            [list(instance_ids)],
        )
    }
