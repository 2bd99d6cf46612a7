"""Credit that an account sends to another one."""

from __future__ import annotations

from ledger.domain.events import CreditTransferred
from ledger.domain.ids import account_stream
from ledger.domain.money import NANOS_PER_CENT
from ledger.errors import RejectedError
from ledger.services.accounts import account_exists
from ledger.services.credit import lock_credit
from ledger.services.ledger import Unit
from ledger.services.movements import check_reference, require_own, was_made


def transfer(unit: Unit, sender: int, recipient: int, amount: int, transfer_id: str) -> None:
    """Move credit to another account; irreversible, and the same id again is the same transfer.

    Raises:
        RejectedError: `amount_too_small` below one cent, `invalid_recipient` to oneself or nobody.
        DeclinedError: `insufficient_balance`.
    """
    check_reference(transfer_id)
    if amount < NANOS_PER_CENT:
        raise RejectedError("amount_too_small", "the smallest transfer is 0.01")
    if sender == recipient or not account_exists(unit.connection, recipient):
        raise RejectedError("invalid_recipient", "the recipient must be another account")
    if was_made(unit, sender, "transfer", transfer_id, amount, recipient):
        return
    lock_credit(unit.connection, [sender, recipient])
    require_own(unit, sender, amount)
    unit.append(
        account_stream(sender),
        CreditTransferred(
            transfer_id=transfer_id,
            from_account_id=sender,
            to_account_id=recipient,
            amount=amount,
            transferred_at=unit.now,
        ),
    )
