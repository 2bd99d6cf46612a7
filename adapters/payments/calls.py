"""One call to Stripe: its key, its errors, and the search for what an earlier try left behind.

Stripe remembers an idempotency key for a day. An order that is older than `REMEMBERED_SECONDS` is
looked for among Stripe's own objects first, by our id in their metadata, so the key of an order
means the same for ever.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final, TypeVar

import stripe
import structlog

from ledger.errors import LedgerError, UnavailableError
from ledger.services.payments.gateway import Declined

ID: Final = "gpuledger_id"
LEDGER: Final = "gpuledger_ledger"
ACCOUNT: Final = "gpuledger_account"
REMEMBERED_SECONDS: Final = 3_600
"""Far less than what Stripe promises, and far more than a retry takes."""
TIMEOUT_SECONDS: Final = 20
_LOCKED: Final = "idempotency_key_in_use"
log = structlog.get_logger("gpuledger.payments")
T = TypeVar("T")


class Refused(Exception):  # noqa: N818 - what Stripe refused, told to the caller inside this package
    """Stripe carried the request out and says no, for a reason that will not change."""

    def __init__(self, reason: str, payment_intent: str | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.payment_intent = payment_intent

    @property
    def outcome(self) -> Declined:
        """The refusal as the port tells it."""
        return Declined(self.reason)


def calling(do: Callable[[], T]) -> T:
    """Carry out one request.

    Raises:
        UnavailableError: Stripe was not reached, is busy, or does not take our key.
        Refused: It says no.
    """
    try:
        return do()
    except stripe.CardError as error:
        intent = getattr(getattr(error, "error", None), "payment_intent", None)
        reason = getattr(error.error, "decline_code", None) or error.code or "card_error"
        raise Refused(reason, None if intent is None else intent["id"]) from None
    except stripe.IdempotencyError as error:
        raise _unavailable(error, "the same key was used for another request") from None
    except stripe.InvalidRequestError as error:
        if error.code == _LOCKED or error.http_status == 409:  # noqa: PLR2004 - a status
            raise _unavailable(error, "an earlier try is still being carried out") from None
        raise Refused(error.code or "invalid_request") from None
    except (stripe.AuthenticationError, stripe.PermissionError) as error:
        raise _unavailable(error, "the payment processor does not take our key") from None
    except stripe.StripeError as error:
        raise _unavailable(error, "the payment processor did not answer") from None


def _unavailable(error: stripe.StripeError, what: str) -> LedgerError:
    # What Stripe says may repeat what was sent: only codes go to the log.
    log.warning(
        "payment processor",
        problem=what,
        status=error.http_status,
        code=error.code,
        request=error.request_id,
    )
    return UnavailableError("gateway_unavailable", what)


def mine(found: Iterable[Any], ledger: str, key: str) -> Any | None:
    """The object among *found* that carries our id *key*; none if there is none."""
    return next((one for one in found if reference_of(one, ledger) == key), None)


def reference_of(found: Any, ledger: str) -> str | None:
    """Our id of an object; none where another ledger, or nobody, put one there."""
    metadata = getattr(found, "metadata", None)
    if metadata is None or LEDGER not in metadata or ID not in metadata:
        return None
    return str(metadata[ID]) if metadata[LEDGER] == ledger else None


def was_replayed(found: Any) -> bool:
    """True when Stripe gave the answer of an earlier try: the object may have changed since."""
    response = getattr(found, "last_response", None)
    headers = {} if response is None else response.headers
    return any(name.lower() == "idempotent-replayed" for name in headers)
