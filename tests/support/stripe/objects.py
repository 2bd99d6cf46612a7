"""The shapes of Stripe's objects, with every field that its description requires."""

from __future__ import annotations

from typing import Any, Final

API_VERSION: Final = "2026-10-28.endive"
USD: Final = "usd"
_DAY: Final = 86_400

Object = dict[str, Any]


def customer(name: str, now: int, metadata: Object) -> Object:
    """Who pays."""
    return {
        "id": name,
        "object": "customer",
        "address": None,
        "balance": 0,
        "created": now,
        "currency": None,
        "default_source": None,
        "delinquent": False,
        "description": None,
        "email": None,
        "livemode": False,
        "metadata": metadata,
        "name": None,
        "phone": None,
        "shipping": None,
    }


def payment_method(name: str, now: int, owner: str | None, last4: str) -> Object:
    """A card."""
    return {
        "id": name,
        "object": "payment_method",
        "billing_details": billing_details(),
        "card": {
            "brand": "visa",
            "checks": None,
            "country": "US",
            "exp_month": 12,
            "exp_year": 2040,
            "fingerprint": f"fp_{last4}",
            "funding": "credit",
            "generated_from": None,
            "last4": last4,
            "networks": None,
            "three_d_secure_usage": {"supported": True},
            "wallet": None,
        },
        "created": now,
        "customer": owner,
        "livemode": False,
        "metadata": {},
        "type": "card",
    }


def billing_details() -> Object:
    """Nothing is known of the payer."""
    return {"address": None, "email": None, "name": None, "phone": None, "tax_id": None}


def payment_intent(name: str, now: int, params: Object) -> Object:
    """A payment before anybody tried."""
    return {
        "id": name,
        "object": "payment_intent",
        "amount": params["amount"],
        "amount_capturable": 0,
        "amount_received": 0,
        "canceled_at": None,
        "cancellation_reason": None,
        "capture_method": "automatic_async",
        "client_secret": f"{name}_secret_{name[-8:]}",
        "confirmation_method": "automatic",
        "created": now,
        "currency": params["currency"],
        "customer": params.get("customer"),
        "description": None,
        "last_payment_error": None,
        "latest_charge": None,
        "livemode": False,
        "metadata": params.get("metadata", {}),
        "next_action": None,
        "on_behalf_of": None,
        "payment_method": None,
        "payment_method_options": {},
        "payment_method_types": ["card"],
        "receipt_email": None,
        "setup_future_usage": None,
        "status": "requires_payment_method",
        "transfer_data": None,
        "transfer_group": None,
    }


def payment_error(code: str, decline_code: str | None, method: Object) -> Object:
    """Why a card was not charged."""
    return {
        "type": "card_error",
        "code": code,
        "decline_code": decline_code,
        "message": "Your card was declined.",
        "payment_method": method,
    }


def charge(name: str, now: int, intent: Object, line: str | None, error: Object | None) -> Object:
    """One try of a payment, with what became of it."""
    amount, worked = intent["amount"], error is None
    return {
        "id": name,
        "object": "charge",
        "amount": amount,
        "amount_captured": amount if worked else 0,
        "amount_refunded": 0,
        "balance_transaction": line,
        "billing_details": billing_details(),
        "captured": worked,
        "created": now,
        "currency": intent["currency"],
        "customer": intent["customer"],
        "description": None,
        "disputed": False,
        "failure_code": None if error is None else error["code"],
        "failure_message": None if error is None else error["message"],
        "livemode": False,
        "metadata": dict(intent["metadata"]),
        "outcome": None,
        "paid": worked,
        "payment_intent": intent["id"],
        "payment_method": intent["payment_method"],
        "payment_method_details": None,
        "refunded": False,
        "status": "succeeded" if worked else "failed",
    }


def session(name: str, now: int, params: Object) -> Object:
    """A page that waits for a person."""
    mode = params["mode"]
    items = params.get("line_items", [])
    total = sum(int(one["price_data"]["unit_amount"]) * int(one["quantity"]) for one in items)
    return {
        "id": name,
        "object": "checkout.session",
        "amount_subtotal": total if items else None,
        "amount_total": total if items else None,
        "automatic_tax": {
            "enabled": False,
            "liability": None,
            "provider": None,
            "status": None,
        },
        "cancel_url": params.get("cancel_url"),
        "client_reference_id": params.get("client_reference_id"),
        "created": now,
        "currency": USD,
        "custom_fields": [],
        "custom_text": {
            "after_submit": None,
            "shipping_address": None,
            "submit": None,
            "terms_of_service_acceptance": None,
        },
        "customer": params.get("customer"),
        "expires_at": now + _DAY,
        "livemode": False,
        "metadata": params.get("metadata", {}),
        "mode": mode,
        "payment_intent": None,
        "payment_method_types": ["card"],
        "payment_status": "unpaid" if mode == "payment" else "no_payment_required",
        "setup_intent": None,
        "shipping_options": [],
        "status": "open",
        "success_url": params.get("success_url"),
        "url": f"https://checkout.stripe.invalid/c/{name}",
    }


def setup_intent(name: str, now: int, owner: str | None, metadata: Object) -> Object:
    """A card that is about to be saved."""
    return {
        "id": name,
        "object": "setup_intent",
        "application": None,
        "cancellation_reason": None,
        "client_secret": f"{name}_secret_{name[-8:]}",
        "created": now,
        "customer": owner,
        "description": None,
        "last_setup_error": None,
        "latest_attempt": None,
        "livemode": False,
        "mandate": None,
        "metadata": metadata,
        "next_action": None,
        "on_behalf_of": None,
        "payment_method": None,
        "payment_method_options": {},
        "payment_method_types": ["card"],
        "single_use_mandate": None,
        "status": "requires_payment_method",
        "usage": "off_session",
    }


def refund(name: str, now: int, found: Object, params: Object, line: str) -> Object:
    """Money that goes back to a payer."""
    return {
        "id": name,
        "object": "refund",
        "amount": params["amount"],
        "balance_transaction": line,
        "charge": found["id"],
        "created": now,
        "currency": found["currency"],
        "metadata": params.get("metadata", {}),
        "payment_intent": found["payment_intent"],
        "reason": params.get("reason"),
        "receipt_number": None,
        "source_transfer_reversal": None,
        "status": "succeeded",
        "transfer_reversal": None,
    }


def dispute(name: str, now: int, found: Object, amount: int) -> Object:
    """A payer's bank wants its money back."""
    return {
        "id": name,
        "object": "dispute",
        "amount": amount,
        "balance_transactions": [],
        "charge": found["id"],
        "created": now,
        "currency": found["currency"],
        "enhanced_eligibility_types": [],
        "evidence": {**dict.fromkeys(_EVIDENCE), "enhanced_evidence": {}},
        "evidence_details": {
            "due_by": now + 7 * _DAY,
            "enhanced_eligibility": {},
            "has_evidence": False,
            "past_due": False,
            "submission_count": 0,
        },
        "is_charge_refundable": False,
        "livemode": False,
        "metadata": {},
        "payment_intent": found["payment_intent"],
        "reason": "fraudulent",
        "status": "needs_response",
    }


_EVIDENCE: Final = (
    "access_activity_log", "billing_address", "customer_name", "product_description",
    "service_date", "uncategorized_text",
)  # fmt: skip


def connected_account(name: str, now: int, params: Object) -> Object:
    """A host, before Stripe knows who it is."""
    return {
        "id": name,
        "object": "account",
        "business_type": None,
        "capabilities": {"transfers": "inactive"},
        "charges_enabled": False,
        "country": params.get("country"),
        "created": now,
        "default_currency": USD,
        "details_submitted": False,
        "email": None,
        "metadata": params.get("metadata", {}),
        "payouts_enabled": False,
        "type": "none",
    }


def account_link(now: int, account: str) -> Object:
    """A page on which a host says who it is."""
    return {
        "object": "account_link",
        "created": now,
        "expires_at": now + 300,
        "url": f"https://connect.stripe.invalid/setup/{account}",
    }


def transfer(name: str, now: int, params: Object, line: str) -> Object:
    """Money from the platform to a host's account."""
    return {
        "id": name,
        "object": "transfer",
        "amount": params["amount"],
        "amount_reversed": 0,
        "balance_transaction": line,
        "created": now,
        "currency": params["currency"],
        "description": None,
        "destination": params["destination"],
        "livemode": False,
        "metadata": params.get("metadata", {}),
        "reversals": {
            "object": "list",
            "data": [],
            "has_more": False,
            "url": f"/v1/transfers/{name}/reversals",
        },
        "reversed": False,
        "source_transaction": None,
        "transfer_group": params.get("transfer_group"),
    }


def reversal(name: str, now: int, found: Object, params: Object, line: str) -> Object:
    """Money that comes back from a host's account."""
    return {
        "id": name,
        "object": "transfer_reversal",
        "amount": params["amount"],
        "balance_transaction": line,
        "created": now,
        "currency": found["currency"],
        "destination_payment_refund": None,
        "metadata": params.get("metadata", {}),
        "source_refund": None,
        "transfer": found["id"],
    }


def payout(name: str, now: int, params: Object, line: str | None) -> Object:
    """Money on its way to a bank."""
    return {
        "id": name,
        "object": "payout",
        "amount": params["amount"],
        "application_fee": None,
        "application_fee_amount": None,
        "arrival_date": now + 2 * _DAY,
        "automatic": False,
        "balance_transaction": line,
        "created": now,
        "currency": params["currency"],
        "description": None,
        "destination": None,
        "failure_balance_transaction": None,
        "failure_code": None,
        "failure_message": None,
        "livemode": False,
        "metadata": params.get("metadata", {}),
        "method": "standard",
        "original_payout": None,
        "payout_method": None,
        "reconciliation_status": "not_applicable",
        "reversed_by": None,
        "source_type": "card",
        "statement_descriptor": None,
        "status": "pending",
        "trace_id": None,
        "type": "bank_account",
    }


def balance_transaction(
    name: str, now: int, kind: str, amount: int, fee: int, source: str | None
) -> Object:
    """A line of an account."""
    details = [
        {
            "amount": fee,
            "application": None,
            "currency": USD,
            "description": "Stripe processing fees",
            "type": "stripe_fee",
        }
    ]
    return {
        "id": name,
        "object": "balance_transaction",
        "amount": amount,
        "available_on": now,
        "balance_type": "payments",
        "created": now,
        "currency": USD,
        "description": None,
        "exchange_rate": None,
        "fee": fee,
        "fee_details": details if fee else [],
        "net": amount - fee,
        "reporting_category": _CATEGORIES.get(kind, kind),
        "source": source,
        "status": "available",
        "type": kind,
    }


_CATEGORIES: Final = {
    "adjustment": "dispute",
    "transfer_refund": "transfer_reversal",
    "stripe_fee": "fee",
}


def balance(available: int) -> Object:
    """What there is."""
    parts = {"amount": available, "currency": USD, "source_types": {"card": available}}
    nothing = {"amount": 0, "currency": USD, "source_types": {"card": 0}}
    return {"object": "balance", "available": [parts], "livemode": False, "pending": [nothing]}


def event(name: str, now: int, kind: str, found: Object, owner: str | None) -> Object:
    """Something happened to an object; it is shown as it was then."""
    shown = {
        "id": name,
        "object": "event",
        "api_version": API_VERSION,
        "created": now,
        "data": {"object": found},
        "livemode": False,
        "pending_webhooks": 1,
        "request": {"id": None, "idempotency_key": None},
        "type": kind,
    }
    return shown if owner is None else {**shown, "account": owner}
