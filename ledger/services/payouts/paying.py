"""A payout on its way: transfer, bank, or back again; each step is a fact before it is asked for.

The processor is asked under a key that names the payout and the step, so a step that was done and
not noted is done once.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from ledger.domain.events import (
    Fact,
    PayoutFailed,
    PayoutPaid,
    PayoutReturning,
    PayoutSent,
    PayoutTransferred,
)
from ledger.domain.ids import account_stream
from ledger.domain.money import NANOS_PER_CENT
from ledger.services.ledger import Unit
from ledger.services.payments.gateway import (
    BankOrder,
    BankPayoutSeen,
    Declined,
    Outcome,
    Pending,
    ReversalOrder,
    Settled,
    Subject,
    TransferOrder,
)
from ledger.store.database import Connection

PAYOUT_PREFIX: Final = "payout-"


class Step(NamedTuple):
    """What a payout needs next."""

    payout_id: int
    host_id: int
    order: TransferOrder | BankOrder | ReversalOrder


class _Row(NamedTuple):
    payout_id: int
    host_id: int
    amount: int
    status: str
    bank_payout: str | None
    reason: str | None


def open_steps(connection: Connection) -> list[Step]:
    """Every payout that waits for the processor, oldest first."""
    rows = connection.execute(
        "SELECT p.payout_id, p.host_id, p.status, p.amount, p.transfer, p.begun_at,"
        " a.payout_account FROM payouts p JOIN payout_accounts a ON a.account_id = p.host_id"
        " WHERE p.status IN ('begun', 'transferred', 'returning') ORDER BY p.payout_id"
    )
    steps = []
    for payout_id, host_id, status, amount, transfer, begun_at, payout_account in rows:
        key, cents = f"{PAYOUT_PREFIX}{payout_id}", int(amount) // NANOS_PER_CENT
        order: TransferOrder | BankOrder | ReversalOrder
        match status:
            case "begun":
                order = TransferOrder(key, payout_account, cents, begun_at)
            case "transferred":
                order = BankOrder(key, payout_account, cents, begun_at)
            case _:
                order = ReversalOrder(key, transfer, cents, begun_at)
        steps.append(Step(payout_id, host_id, order))
    return steps


def sent_payouts(connection: Connection) -> list[Subject]:
    """Payouts that are on their way to a bank."""
    rows = connection.execute(
        "SELECT p.bank_payout, a.payout_account FROM payouts p JOIN payout_accounts a"
        " ON a.account_id = p.host_id WHERE p.status = 'sent' ORDER BY p.payout_id"
    )
    return [Subject("bank_payout", row[0], row[1]) for row in rows]


def finish_step(unit: Unit, step: Step, outcome: Outcome) -> None:
    """Book what became of one step; booking it again changes nothing."""
    row = _row(unit, step.payout_id)
    match step.order, outcome:
        case TransferOrder(), Settled() if row.status == "begun":
            _append(unit, row, PayoutTransferred(
                payout_id=row.payout_id,
                host_id=row.host_id,
                transfer=outcome.payment,
                transferred_at=unit.now,
            ))  # fmt: skip
        case TransferOrder(), Declined() if row.status == "begun":
            _fail(unit, row, outcome.reason, None)
        case BankOrder(), Settled() | Pending() if row.status == "transferred" and outcome.payment:
            _sent(unit, row, outcome.payment)
            if isinstance(outcome, Settled):
                _paid(unit, row)
        case BankOrder(), Declined() if row.status == "transferred":
            _return(unit, row, outcome.reason)
        case ReversalOrder(), Settled() if row.status == "returning":
            _fail(unit, row, row.reason or "returned", outcome.payment)
        case _:
            return


def book_bank_payout(unit: Unit, seen: BankPayoutSeen) -> bool:
    """Book what a host's bank did with a payout; False where it is none of ours."""
    found = unit.connection.execute(
        "SELECT payout_id FROM payouts WHERE bank_payout = %s OR %s || payout_id = %s",
        [seen.bank_payout, PAYOUT_PREFIX, seen.reference],
    ).fetchone()
    if found is None:
        return False
    row = _row(unit, found[0])
    if row.status == "transferred":
        _sent(unit, row, seen.bank_payout)
        row = _row(unit, found[0])
    if row.bank_payout != seen.bank_payout:
        return True
    if seen.status == "settled" and row.status == "sent":
        _paid(unit, row)
    elif seen.status == "failed" and row.status in {"sent", "paid"}:
        # A bank may refuse days after it was taken for paid.
        _return(unit, row, seen.reason or "bank_refused")
    return True


def _row(unit: Unit, payout_id: int) -> _Row:
    row = unit.connection.execute(
        "SELECT payout_id, host_id, amount, status, bank_payout, reason FROM payouts"
        " WHERE payout_id = %s",
        [payout_id],
    ).fetchone()
    assert row is not None, payout_id
    return _Row(row[0], row[1], int(row[2]), *row[3:])


def _append(unit: Unit, row: _Row, fact: Fact) -> None:
    unit.append(account_stream(row.host_id), fact)


def _sent(unit: Unit, row: _Row, bank_payout: str) -> None:
    fact = PayoutSent(
        payout_id=row.payout_id, host_id=row.host_id, bank_payout=bank_payout, sent_at=unit.now
    )
    _append(unit, row, fact)


def _paid(unit: Unit, row: _Row) -> None:
    _append(unit, row, PayoutPaid(payout_id=row.payout_id, host_id=row.host_id, paid_at=unit.now))


def _return(unit: Unit, row: _Row, reason: str) -> None:
    fact = PayoutReturning(
        payout_id=row.payout_id, host_id=row.host_id, reason=reason, returning_at=unit.now
    )
    _append(unit, row, fact)


def _fail(unit: Unit, row: _Row, reason: str, reversal: str | None) -> None:
    fact = PayoutFailed(
        payout_id=row.payout_id,
        host_id=row.host_id,
        amount=row.amount,
        reason=reason,
        reversal=reversal,
        failed_at=unit.now,
    )
    _append(unit, row, fact)
