"""Stripe's objects, as the port tells them: only what decides, and nothing personal."""

from __future__ import annotations

from typing import Any, Final, Literal

from adapters.payments.calls import ACCOUNT, LEDGER, reference_of
from ledger.services.payments.gateway import (
    BankPayoutSeen,
    CardSeen,
    ChargebackSeen,
    CheckoutSeen,
    Entry,
    Outcome,
    PaymentSeen,
    PayoutAccountSeen,
    RefundSeen,
    Standing,
    Subject,
    SubjectKind,
    outcome_of,
)

CURRENCY: Final = "usd"
_FINAL_REFUNDS: Final[dict[str, Standing]] = {
    "succeeded": "settled",
    "failed": "failed",
    "canceled": "failed",
}
_PAYOUTS: Final[dict[str, Standing]] = {
    "paid": "settled",
    "failed": "failed",
    "canceled": "failed",
}
_DISPUTES: Final[dict[str, Literal["won", "lost", "withdrawn"]]] = {
    "won": "won",
    "lost": "lost",
    "warning_closed": "withdrawn",
    "prevented": "withdrawn",
}


def payment(intent: Any, ledger: str) -> PaymentSeen:
    """A payment intent.

    One that is paid on a page can be tried again there, so only its page's end is its end.
    """
    reason = None
    status: Standing = "pending"
    if intent.status == "succeeded":
        status = "settled"
    elif intent.status == "canceled":
        status, reason = "failed", intent.cancellation_reason or "canceled"
    elif intent.status == "requires_payment_method" and not _is_paged(intent):
        error = intent.last_payment_error
        status = "failed"
        reason = None if error is None else (error["decline_code"] or error["code"])
    cents = intent.amount_received if status == "settled" else intent.amount
    return PaymentSeen(reference_of(intent, ledger), intent.id, status, cents, reason)


def _is_paged(intent: Any) -> bool:
    return "gpuledger_page" in (intent.metadata or {})


def charged(intent: Any, ledger: str) -> Outcome:
    """What became of a charge."""
    seen = payment(intent, ledger)
    return outcome_of(seen.status, intent.id, seen.reason or "declined")


def checkout(session: Any, ledger: str) -> CheckoutSeen:
    """A checkout session, its intents expanded."""
    intent = session.payment_intent
    setup = session.setup_intent
    card = None
    if setup is not None and setup.status == "succeeded":
        card = _id(setup.payment_method)
    return CheckoutSeen(
        reference=reference_of(session, ledger),
        session=session.id,
        is_open=session.status == "open",
        payment=None if intent is None else payment(intent, ledger),
        card=card,
    )


def card(method: Any) -> CardSeen:
    """A payment method."""
    return CardSeen(method.id, is_attached=method.customer is not None)


def refund(found: Any, ledger: str) -> RefundSeen | None:
    """A refund, its payment intent expanded; none for one of something else."""
    intent = found.payment_intent
    if intent is None:
        return None
    return RefundSeen(
        reference=reference_of(found, ledger),
        refund=found.id,
        payment=intent.id,
        payment_reference=reference_of(intent, ledger),
        status=_FINAL_REFUNDS.get(found.status, "pending"),
        cents=found.amount,
        reason=getattr(found, "failure_reason", None),
    )


def refunded(found: Any) -> Outcome:
    """What became of a refund."""
    reason = getattr(found, "failure_reason", None) or "refund_failed"
    return outcome_of(_FINAL_REFUNDS.get(found.status, "pending"), found.id, reason)


def chargeback(dispute: Any, ledger: str) -> ChargebackSeen | None:
    """A dispute, its payment intent expanded. What moved is in our currency, whatever it is in."""
    intent = dispute.payment_intent
    if intent is None:
        return None
    withdrawn = -sum(one.amount for one in dispute.balance_transactions)
    claimed = dispute.amount if dispute.currency == CURRENCY else withdrawn
    return ChargebackSeen(
        chargeback=dispute.id,
        payment=intent.id,
        payment_reference=reference_of(intent, ledger),
        claimed_cents=claimed,
        withdrawn_cents=withdrawn,
        reason=dispute.reason,
        outcome=_DISPUTES.get(dispute.status, "open"),
    )


def payout_account(account: Any, ledger: str) -> PayoutAccountSeen:
    """A connected account."""
    metadata = account.metadata or {}
    ours = LEDGER in metadata and metadata[LEDGER] == ledger and ACCOUNT in metadata
    return PayoutAccountSeen(
        account_id=int(metadata[ACCOUNT]) if ours else None,
        payout_account=account.id,
        is_enabled=bool(account.payouts_enabled) and _may_receive(account),
    )


def _may_receive(account: Any) -> bool:
    capabilities = account.capabilities
    return capabilities is not None and getattr(capabilities, "transfers", None) == "active"


def bank_payout(payout: Any, ledger: str) -> BankPayoutSeen:
    """A payout of a connected account."""
    return BankPayoutSeen(
        reference=reference_of(payout, ledger),
        bank_payout=payout.id,
        status=_PAYOUTS.get(payout.status, "pending"),
        reason=payout.failure_code,
    )


def sent(payout: Any) -> Outcome:
    """What became of money that was sent to a bank."""
    status = _PAYOUTS.get(payout.status, "pending")
    return outcome_of(status, payout.id, payout.failure_code or "bank_refused")


def entry(line: Any, ledger: str) -> Entry:
    """A balance transaction, its source expanded."""
    source = line.source
    subject, reference = None, None
    if source is None or isinstance(source, str):
        subject = Subject("fee", "") if line.type.endswith("_fee") else None
    else:
        subject, reference = _subject(source), reference_of(source, ledger)
    return Entry(
        entry=line.id,
        kind=line.type,
        source=_id(source) or "",
        cents=line.amount,
        fee_cents=line.fee,
        created_at=line.created,
        subject=subject,
        reference=reference,
    )


def _subject(source: Any) -> Subject | None:
    match source.object:
        case "charge":
            intent = _id(source.payment_intent)
            return None if intent is None else Subject("payment", intent)
        case "refund":
            return Subject("refund", source.id)
        case "dispute":
            return Subject("chargeback", source.id)
        case "transfer":
            return Subject("transfer", source.id)
        case "transfer_reversal":
            return Subject("transfer", _id(source.transfer) or "")
        case "payout":
            return Subject("bank", source.id)
        case _:
            return None


def _id(found: Any) -> str | None:
    """The name of an object, expanded or not."""
    if found is None or isinstance(found, str):
        return found
    return str(found.id)


_EVENTS: Final[tuple[tuple[str, SubjectKind], ...]] = (
    ("checkout.session.", "checkout"),
    ("payment_intent.", "payment"),
    ("refund.", "refund"),
    ("charge.refund.", "refund"),
    ("charge.dispute.", "chargeback"),
    ("payment_method.", "card"),
)


def subject_of(kind: str, found: dict[str, Any], owner: str) -> Subject | None:
    """What an event is about; none where we do not care."""
    name = str(found.get("id", ""))
    if not name:
        return None
    if owner:
        if kind.startswith("payout."):
            return Subject("bank_payout", name, owner)
        return Subject("payout_account", owner) if kind.startswith("account.") else None
    if kind == "account.updated":
        return Subject("payout_account", name)
    for prefix, about in _EVENTS:
        if kind.startswith(prefix):
            return Subject(about, name)
    return None
