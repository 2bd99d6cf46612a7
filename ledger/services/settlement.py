"""What the end of a dispute moves: the hold goes back, and what was upheld is reversed (§15)."""

from __future__ import annotations

from typing import NamedTuple

from ledger.domain.dispute import (
    FAULTS_OF_THE_MACHINE,
    PLATFORM,
    REJECTED_WINDOW_SECONDS,
    Authority,
    Dispute,
    is_restricted,
    meters_of,
)
from ledger.domain.events import DisputeResolved, EarningsReleased, FilingRestricted
from ledger.domain.ids import account_stream
from ledger.domain.money import split
from ledger.services.checks import turn_to_failed
from ledger.services.claims import disputed
from ledger.services.corrections import Order, load_charge, reverse
from ledger.services.credit_notes import note_reversals
from ledger.services.ledger import Unit
from ledger.services.notices import notify
from ledger.store.database import Connection


class Part(NamedTuple):
    """What can go back of one charge, and the quantity that it is for."""

    charge: str
    amount: int
    quantity: int


def reversible(connection: Connection, dispute: Dispute) -> list[Part]:
    """What can go back under a dispute, charge by charge.

    A renter's claims were fixed at filing. What witnesses hold is counted again: ticks of the same
    minutes may have arrived since.
    """
    claims = dispute.claims
    if dispute.by == "platform":
        claims = disputed(
            connection,
            dispute.instance_id,
            dispute.seconds,
            meters_of(dispute.reason),
            dispute_id=dispute.dispute_id,
        ).claims
    parts = []
    for claim in claims:
        remaining = load_charge(connection, claim.charge).charged.remaining
        amount = min(claim.amount, remaining)
        if amount > 0:
            parts.append(Part(claim.charge, amount, claim.quantity))
    return parts


def settle(unit: Unit, dispute: Dispute, resolved: DisputeResolved, position: int) -> None:
    """Carry out *resolved*, which stands at *position*: all of it, in the same transaction."""
    by = Authority(resolved.actor, resolved.policy_version, position)
    _release(unit, dispute, by)
    if resolved.amount:
        _give_back(unit, dispute, resolved, by)
        _fail_checks(unit, dispute)
    about = f"dispute-{dispute.dispute_id}"
    notify(unit, dispute.account_id, "dispute_resolved", about)
    notify(unit, dispute.host_id, "dispute_resolved", about)
    if dispute.by == "renter" and resolved.outcome in {"rejected", "expired"}:
        _restrict(unit, dispute.account_id, by)


def rejected_lately(connection: Connection, account_id: int, now: int) -> int:
    """Disputes of an account that were rejected, or expired, within the last 30 days."""
    row = connection.execute(
        "SELECT count(*) FROM disputes WHERE account_id = %s AND filed_by = 'renter'"
        " AND status IN ('rejected', 'expired') AND resolved_at > %s",
        [account_id, now - REJECTED_WINDOW_SECONDS],
    ).fetchone()
    assert row is not None
    return int(row[0])


def _release(unit: Unit, dispute: Dispute, by: Authority) -> None:
    """Give the whole hold back to where it came from; reversals then take what is theirs."""
    row = unit.connection.execute(
        "SELECT held_payable, held_receivable FROM disputes WHERE dispute_id = %s",
        [dispute.dispute_id],
    ).fetchone()
    assert row is not None
    if not (row[0] or row[1]):
        return
    unit.append(
        account_stream(dispute.host_id),
        EarningsReleased(
            dispute_id=dispute.dispute_id,
            host_id=dispute.host_id,
            to_payable=int(row[0]),
            to_receivable=int(row[1]),
            cause=by.cause,
            policy_version=by.policy_version,
            actor=by.actor,
            effective_at=dispute.effective_at,
            released_at=unit.now,
        ),
    )


def _give_back(unit: Unit, dispute: Dispute, resolved: DisputeResolved, by: Authority) -> None:
    """Reverse the decided amount over the charges, and credit what was invoiced of them."""
    parts = reversible(unit.connection, dispute)
    order = Order(
        reason=dispute.reason,
        by=by,
        effective_at=dispute.effective_at,
        dispute_id=dispute.dispute_id,
    )
    done = []
    amounts = split(resolved.amount, [part.amount for part in parts])
    for part, amount in zip(parts, amounts, strict=True):
        if amount:
            whole = amount == part.amount
            charge = load_charge(unit.connection, part.charge)
            done.append(
                reverse(unit, charge, amount, order, quantity=part.quantity if whole else 0)
            )
    note_reversals(unit, done, order)


def _fail_checks(unit: Unit, dispute: Dispute) -> None:
    """A fault of the machine that was upheld fails its checks of that time (§10)."""
    if dispute.reason in FAULTS_OF_THE_MACHINE:
        for part in dispute.seconds:
            turn_to_failed(
                unit,
                dispute.machine_id,
                part.start,
                part.until,
                dispute.reason,
                dispute.dispute_id,
            )


def _restrict(unit: Unit, account_id: int, by: Authority) -> None:
    """Write down the moment from which filing needs an admin; the count alone decides later."""
    rejected = rejected_lately(unit.connection, account_id, unit.now)
    if is_restricted(rejected) and not is_restricted(rejected - 1):
        unit.append(
            account_stream(account_id),
            FilingRestricted(
                account_id=account_id,
                rejected=rejected,
                cause=by.cause,
                policy_version=by.policy_version,
                actor=PLATFORM,
                effective_at=unit.now,
                restricted_at=unit.now,
            ),
        )
