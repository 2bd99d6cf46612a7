"""What Stripe knows of one platform, and what it does: money moves and every move is a line."""

from __future__ import annotations

import copy
import hashlib
import itertools
from collections.abc import Callable
from typing import Any, Final

from tests.support.stripe import objects
from tests.support.stripe.objects import Object

DISPUTE_FEE: Final = 1_500
_PREFIXES: Final = {
    "customer": "cus", "payment_method": "pm", "payment_intent": "pi", "charge": "ch",
    "checkout.session": "cs_test", "setup_intent": "seti", "refund": "re", "dispute": "du",
    "account": "acct", "transfer": "tr", "transfer_reversal": "trr", "payout": "po",
    "balance_transaction": "txn", "event": "evt",
}  # fmt: skip
_DECLINES: Final = {
    "0002": ("card_declined", "generic_decline"),
    "9995": ("card_declined", "insufficient_funds"),
    "0069": ("expired_card", None),
    "3155": ("authentication_required", "authentication_required"),
}


class StripeError(Exception):
    """An error as Stripe answers it."""

    def __init__(self, status: int, kind: str, code: str | None, message: str, **more: Any) -> None:
        super().__init__(message)
        self.status = status
        self.body = {
            "error": {"type": kind, "message": message, **({"code": code} if code else {}), **more}
        }


def invalid(code: str, message: str, status: int = 400) -> StripeError:
    """A request that cannot be carried out."""
    return StripeError(status, "invalid_request_error", code, message)


def missing(kind: str, name: str) -> StripeError:
    """There is no such object."""
    return invalid("resource_missing", f"No such {kind}: '{name}'", 404)


class StripeAccount:
    """One platform on Stripe, in memory; `clock` dates its objects."""

    def __init__(self, clock: Callable[[], int], seed: str = "stripe") -> None:
        """Begin empty."""
        self.clock = clock
        self.found: dict[str, dict[str, Object]] = {kind: {} for kind in _PREFIXES}
        self.owners: dict[str, str] = {}
        """Payouts and lines of connected accounts, by whose they are."""
        self.on_event: list[Callable[[Object], None]] = []
        self._seed = seed
        self._numbers = itertools.count(1)
        self._intents_of: dict[str, Object] = {}

    # --- what there is ---------------------------------------------------------------------------

    def get(self, kind: str, name: str, owner: str | None = None) -> Object:
        """An object as it is now."""
        one = self.found[kind].get(name)
        if one is None or self.owners.get(name) != owner:
            raise missing(kind, name)
        return one

    def all_of(self, kind: str, owner: str | None = None) -> list[Object]:
        """Objects of a kind, the newest first, as Stripe lists them."""
        return [one for one in reversed(self.found[kind].values()) if self._is_of(one, owner)]

    def _is_of(self, one: Object, owner: str | None) -> bool:
        return self.owners.get(one["id"]) == owner

    def balance(self, owner: str | None = None) -> int:
        """Cents of the platform, or of a connected account."""
        return sum(one["net"] for one in self.all_of("balance_transaction", owner))

    def name(self, kind: str) -> str:
        """A name that nothing has yet."""
        text = f"{self._seed}/{kind}/{next(self._numbers)}"
        return f"{_PREFIXES[kind]}_1{hashlib.sha256(text.encode()).hexdigest()[:23]}"

    def keep(self, one: Object, owner: str | None = None) -> Object:
        """Remember a new object."""
        self.found[one["object"]][one["id"]] = one
        if owner is not None:
            self.owners[one["id"]] = owner
        return one

    def tell(self, kind: str, about: Object, owner: str | None = None) -> None:
        """Something happened: an event, with the object as it is at this moment."""
        shown = copy.deepcopy(about)
        one = objects.event(self.name("event"), self.clock(), kind, shown, owner)
        self.keep(one)
        for told in self.on_event:
            told(one)

    def line(
        self, kind: str, amount: int, fee: int, source: str | None, owner: str | None = None
    ) -> str:
        """A line of the platform's account, or of a connected one; returns its name."""
        one = objects.balance_transaction(
            self.name("balance_transaction"), self.clock(), kind, amount, fee, source
        )
        return str(self.keep(one, owner)["id"])

    # --- payers ----------------------------------------------------------------------------------

    def create_customer(self, params: Object) -> Object:
        """A payer."""
        metadata = params.get("metadata", {})
        return self.keep(objects.customer(self.name("customer"), self.clock(), metadata))

    def attach(self, last4: str, owner: str | None) -> Object:
        """A card of a payer; its last four digits say how it behaves, as with test cards."""
        name = self.name("payment_method")
        return self.keep(objects.payment_method(name, self.clock(), owner, last4))

    def detach(self, name: str) -> Object:
        """A card is forgotten."""
        method = self.get("payment_method", name)
        if method["customer"] is None:
            raise invalid("payment_method_unexpected_state", "The payment method is not attached.")
        method["customer"] = None
        self.tell("payment_method.detached", method)
        return method

    # --- payments --------------------------------------------------------------------------------

    def create_intent(self, params: Object) -> Object:
        """A payment; confirmed at once where that was asked."""
        self._require_amount(params)
        if params.get("customer"):
            self.get("customer", params["customer"])
        intent = self.keep(
            objects.payment_intent(self.name("payment_intent"), self.clock(), params)
        )
        self.tell("payment_intent.created", intent)
        if params.get("confirm") == "true":
            self._confirm(intent, params.get("payment_method", ""))
        return intent

    def _confirm(self, intent: Object, method_name: str) -> None:
        method = self.get("payment_method", method_name)
        if method["customer"] is None or method["customer"] != intent["customer"]:
            raise invalid(
                "payment_method_unexpected_state",
                "The payment method does not belong to this customer.",
            )
        declined = _DECLINES.get(method["card"]["last4"])
        if declined is not None:
            self._decline(intent, method, *declined)
        if method["card"]["last4"] == "0077":
            intent["status"] = "processing"
            intent["payment_method"] = method["id"]
            self.tell("payment_intent.processing", intent)
            return
        self._succeed(intent, method)

    def _decline(self, intent: Object, method: Object, code: str, decline_code: str | None) -> None:
        error = objects.payment_error(code, decline_code, method)
        intent["last_payment_error"] = error
        failed = objects.charge(self.name("charge"), self.clock(), intent, None, error)
        self.keep(failed)
        intent["latest_charge"] = failed["id"]
        self.tell("charge.failed", failed)
        self.tell("payment_intent.payment_failed", intent)
        more = {"decline_code": decline_code} if decline_code else {}
        raise StripeError(
            402,
            "card_error",
            code,
            error["message"],
            charge=failed["id"],
            payment_intent=copy.deepcopy(intent),
            **more,
        )

    def _succeed(self, intent: Object, method: Object) -> None:
        intent["payment_method"] = method["id"]
        name = self.name("charge")
        fee = (intent["amount"] * 29 + 500) // 1_000 + 30
        line = self.line("charge", intent["amount"], fee, name)
        made = self.keep(objects.charge(name, self.clock(), intent, line, None))
        intent.update(
            status="succeeded",
            amount_received=intent["amount"],
            latest_charge=name,
            last_payment_error=None,
        )
        self.tell("charge.succeeded", made)
        self.tell("payment_intent.succeeded", intent)

    def settle_processing(self, intent_name: str) -> None:
        """A payment that took its time goes through."""
        intent = self.get("payment_intent", intent_name)
        self._succeed(intent, self.get("payment_method", intent["payment_method"]))

    def create_session(self, params: Object) -> Object:
        """A page."""
        made = self.keep(objects.session(self.name("checkout.session"), self.clock(), params))
        self._intents_of[made["id"]] = params.get("payment_intent_data", {}).get("metadata", {})
        return made

    def complete(self, session_name: str, last4: str = "4242") -> Object:
        """A person pays on a page, or saves a card there; returns the page."""
        session = self.get("checkout.session", session_name)
        if session["status"] != "open":
            raise invalid("checkout_session_closed", "This page is no longer open.")
        method = self.attach(last4, session["customer"])
        if session["mode"] == "setup":
            setup = self.keep(
                objects.setup_intent(
                    self.name("setup_intent"), self.clock(), session["customer"], {}
                )
            )
            setup.update(status="succeeded", payment_method=method["id"])
            session.update(setup_intent=setup["id"])
            self.tell("setup_intent.succeeded", setup)
        else:
            self._pay(session, method)
        session.update(status="complete", url=None)
        self.tell("checkout.session.completed", session)
        return session

    def _pay(self, session: Object, method: Object) -> None:
        if session["payment_intent"] is None:
            intent = objects.payment_intent(
                self.name("payment_intent"),
                self.clock(),
                {
                    "amount": session["amount_total"],
                    "currency": session["currency"],
                    "customer": session["customer"],
                    "metadata": self._intents_of[session["id"]],
                },
            )
            session["payment_intent"] = self.keep(intent)["id"]
            self.tell("payment_intent.created", intent)
        self._confirm(self.get("payment_intent", session["payment_intent"]), method["id"])
        session["payment_status"] = "paid"

    def expire(self, session_name: str) -> Object:
        """Nobody came in time."""
        session = self.get("checkout.session", session_name)
        if session["status"] != "open":
            raise invalid("checkout_session_closed", "This page is no longer open.")
        session.update(status="expired", url=None)
        self.tell("checkout.session.expired", session)
        return session

    # --- what goes back --------------------------------------------------------------------------

    def create_refund(self, params: Object) -> Object:
        """Money back, at most what is left of the charge."""
        found = self._charge_of(params["payment_intent"])
        params = {
            **params,
            "amount": int(params["amount"] if "amount" in params else found["amount"]),
        }
        if params["amount"] <= 0:
            raise invalid("parameter_invalid_integer", "Invalid positive integer")
        if found["disputed"]:
            raise invalid("charge_disputed", "The charge has been charged back.")
        left = found["amount"] - found["amount_refunded"]
        if left == 0:
            raise invalid("charge_already_refunded", "The charge has already been refunded.")
        if params["amount"] > left:
            raise invalid("amount_too_large", "The refund is greater than what is left.")
        name = self.name("refund")
        line = self.line("refund", -params["amount"], 0, name)
        made = self.keep(objects.refund(name, self.clock(), found, params, line))
        found["amount_refunded"] += params["amount"]
        found["refunded"] = found["amount_refunded"] == found["amount"]
        self.tell("refund.created", made)
        self.tell("charge.refunded", found)
        return made

    def _charge_of(self, intent_name: str) -> Object:
        intent = self.get("payment_intent", intent_name)
        if intent["status"] != "succeeded":
            raise invalid("payment_intent_unexpected_state", "There is no charge to refund.")
        return self.get("charge", intent["latest_charge"])

    def fail_refund(self, refund_name: str) -> None:
        """The payer's bank sends it back."""
        made = self.get("refund", refund_name)
        line = self.line("refund_failure", made["amount"], 0, refund_name)
        made.update(
            status="failed",
            failure_reason="expired_or_canceled_card",
            failure_balance_transaction=line,
        )
        found = self.get("charge", made["charge"])
        found["amount_refunded"] -= made["amount"]
        found["refunded"] = False
        self.tell("refund.failed", made)

    def open_dispute(self, intent_name: str, amount: int | None = None) -> Object:
        """A payer's bank takes money, maybe more than the charge was."""
        found = self._charge_of(intent_name)
        wanted = found["amount"] if amount is None else amount
        made = self.keep(objects.dispute(self.name("dispute"), self.clock(), found, wanted))
        found["disputed"] = True
        self.tell("charge.dispute.created", made)
        line = self.line("adjustment", -wanted, DISPUTE_FEE, made["id"])
        made["balance_transactions"].append(self.get("balance_transaction", line))
        self.tell("charge.dispute.funds_withdrawn", made)
        return made

    def close_dispute(self, dispute_name: str, status: str) -> Object:
        """The bank decides: `won` gives back what was taken."""
        made = self.get("dispute", dispute_name)
        made["status"] = status
        if status == "won":
            taken = -sum(one["amount"] for one in made["balance_transactions"])
            line = self.line("adjustment", taken, 0, dispute_name)
            made["balance_transactions"].append(self.get("balance_transaction", line))
            self.tell("charge.dispute.funds_reinstated", made)
        self.tell("charge.dispute.closed", made)
        return made

    # --- hosts -----------------------------------------------------------------------------------

    def create_account(self, params: Object) -> Object:
        """A connected account."""
        return self.keep(objects.connected_account(self.name("account"), self.clock(), params))

    def onboard(self, account_name: str, *, enabled: bool = True) -> None:
        """A host said who it is, or Stripe no longer believes it."""
        account = self.get("account", account_name)
        account["capabilities"]["transfers"] = "active" if enabled else "inactive"
        account.update(details_submitted=True, payouts_enabled=enabled)
        self.tell("account.updated", account, account_name)

    def create_transfer(self, params: Object) -> Object:
        """Money to a host's account, as far as the platform has it."""
        self._require_amount(params)
        account = self.get("account", params["destination"])
        if account["capabilities"]["transfers"] != "active":
            raise invalid(
                "insufficient_capabilities_for_transfer", "The account cannot receive transfers."
            )
        if params["amount"] > self.balance():
            raise invalid("balance_insufficient", "You have insufficient available funds.")
        name = self.name("transfer")
        line = self.line("transfer", -params["amount"], 0, name)
        made = self.keep(objects.transfer(name, self.clock(), params, line))
        self.line("payment", params["amount"], 0, None, account["id"])
        self.tell("transfer.created", made)
        return made

    def create_reversal(self, transfer_name: str, params: Object) -> Object:
        """Money back from a host's account, as far as it is there."""
        made = self.get("transfer", transfer_name)
        params = {
            **params,
            "amount": int(params["amount"] if "amount" in params else made["amount"]),
        }
        if params["amount"] > made["amount"] - made["amount_reversed"]:
            raise invalid("amount_too_large", "The reversal is greater than what is left.")
        if params["amount"] > self.balance(made["destination"]):
            raise invalid("balance_insufficient", "The account has insufficient funds.")
        name = self.name("transfer_reversal")
        line = self.line("transfer_refund", params["amount"], 0, name)
        back = self.keep(objects.reversal(name, self.clock(), made, params, line))
        self.line("payment_refund", -params["amount"], 0, None, made["destination"])
        made["amount_reversed"] += params["amount"]
        made["reversed"] = made["amount_reversed"] == made["amount"]
        made["reversals"]["data"].insert(0, back)
        self.tell("transfer.reversed", made)
        return back

    def create_payout(self, params: Object, owner: str | None) -> Object:
        """Money to a bank, as far as it is there."""
        self._require_amount(params)
        if params["amount"] > self.balance(owner):
            raise invalid("balance_insufficient", "You have insufficient funds.")
        name = self.name("payout")
        line = self.line("payout", -params["amount"], 0, name, owner)
        made = self.keep(objects.payout(name, self.clock(), params, line), owner)
        self.tell("payout.created", made, owner)
        return made

    def bank_says(self, payout_name: str, status: str) -> None:
        """A bank took a payout, or did not."""
        owner = self.owners.get(payout_name)
        made = self.get("payout", payout_name, owner)
        made["status"] = status
        if status == "failed":
            made["failure_code"] = "account_closed"
            made["failure_balance_transaction"] = self.line(
                "payout_failure", made["amount"], 0, payout_name, owner
            )
        self.tell(f"payout.{status}", made, owner)

    def take_fee(self, amount: int) -> None:
        """Stripe bills something of its own."""
        self.line("stripe_fee", -amount, 0, None)

    @staticmethod
    def _require_amount(params: Object) -> None:
        params["amount"] = int(params["amount"])
        if params["amount"] <= 0:
            raise invalid("parameter_invalid_integer", "Invalid positive integer")
        if params["currency"] != objects.USD:
            raise invalid("currency_not_supported", "This stand-in has dollars only.")
