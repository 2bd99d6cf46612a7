"""What people order: a payment, a card that is saved, a card that is forgotten.

Each is a fact before anything is asked of the processor; the runner, or the request that ordered
it, asks afterwards (`runner`).
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from ledger.domain.events import CardRemoved, CardSetupBegun, PaymentOrdered, TopUpRevoked
from ledger.domain.ids import account_stream
from ledger.domain.money import NANOS_PER_CENT, format_dollars
from ledger.domain.payment import PAYMENT_PREFIX, require_cents
from ledger.errors import NotFoundError, RejectedError
from ledger.services import tax_invoices, top_up
from ledger.services.accounts import require_account
from ledger.services.ledger import Unit

SMALLEST_PAYMENT: Final = 50 * NANOS_PER_CENT
"""Below this the processor takes no card."""
SETUP_PREFIX: Final = "setup-"
_TERMS: Final = re.compile(r"[A-Za-z0-9._-]{1,64}")


class Card(NamedTuple):
    """A saved card."""

    card: str
    account_id: int
    status: str


def order_payment(unit: Unit, account_id: int, credit: int, *, card: str | None = None) -> str:
    """A renter wants to buy credit, on a page of the processor or with a saved card.

    Args:
        unit: The command's transaction.
        account_id: Who buys.
        credit: Nanos of credit, whole cents; the payer pays the account's tax on top.
        card: A card that this account saved; none for a page.

    Returns:
        The payment's id, which is the id of its deposit as well.

    Raises:
        RejectedError: `invalid_amount` unless it is whole cents, `amount_too_small`.
        NotFoundError: `no_such_account`, `no_such_card`.
    """
    require_account(unit.connection, account_id)
    require_cents(credit)
    if credit < SMALLEST_PAYMENT:
        shown = format_dollars(SMALLEST_PAYMENT)
        raise RejectedError("amount_too_small", f"the smallest payment is {shown}", minimum=shown)
    if card is not None:
        require_card(unit, account_id, card)
    split, _ = tax_invoices.tax_on(unit.connection, account_id, credit)
    payment_id = f"{PAYMENT_PREFIX}{unit.next_id('payment')}"
    unit.append(
        account_stream(account_id),
        PaymentOrdered(
            account_id=account_id,
            payment_id=payment_id,
            method="checkout" if card is None else "card",
            card=card,
            credit=split.net,
            tax=split.tax,
            ordered_at=unit.now,
        ),
    )
    return payment_id


def begin_card_setup(unit: Unit, account_id: int, terms: str) -> str:
    """A renter agrees to *terms* and wants to save a card; returns the setup's id.

    Raises:
        RejectedError: `invalid_args` for terms that are no name of a version.
        NotFoundError: `no_such_account`.
    """
    require_account(unit.connection, account_id)
    if not _TERMS.fullmatch(terms):
        message = "terms names the version of the text that was agreed to: 1 to 64 letters, digits"
        raise RejectedError("invalid_args", message)
    setup_id = f"{SETUP_PREFIX}{unit.next_id('card_setup')}"
    unit.append(
        account_stream(account_id),
        CardSetupBegun(account_id=account_id, setup_id=setup_id, terms=terms, begun_at=unit.now),
    )
    return setup_id


def remove_card(unit: Unit, account_id: int, card: str) -> None:
    """No charge begins on a card any more, automatic ones included; again changes nothing.

    Raises:
        NotFoundError: `no_such_card`.
    """
    found = _card(unit, account_id, card)
    if found.status != "saved":
        return
    stream = account_stream(account_id)
    unit.append(stream, CardRemoved(account_id=account_id, card=card, removed_at=unit.now))
    standing = top_up.read_standing(unit.connection, account_id)
    if standing is None or standing.status == "revoked" or standing.consent.reference != card:
        return
    unit.append(
        stream,
        TopUpRevoked(account_id=account_id, consent_no=standing.consent_no, revoked_at=unit.now),
    )


def require_card(unit: Unit, account_id: int, card: str) -> None:
    """Refuse a card that this account did not save, or removed.

    Raises:
        NotFoundError: `no_such_card`.
    """
    if _card(unit, account_id, card).status != "saved":
        raise NotFoundError("no_such_card", f"card {card!r} was removed; save one again")


def _card(unit: Unit, account_id: int, card: str) -> Card:
    row = unit.connection.execute(
        "SELECT card, account_id, status FROM cards WHERE card = %s AND account_id = %s",
        [card, account_id],
    ).fetchone()
    if row is None:
        raise NotFoundError("no_such_card", f"there is no card {card!r}")
    return Card(*row)
