"""Calls to Stripe: their keys, their errors, and the search for what an earlier try left behind.

Stripe remembers an idempotency key for a day. An order that is older than `REMEMBERED_SECONDS` is
looked for among Stripe's own objects first, by our id in their metadata, so the key of an order
means the same for ever.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, Protocol, TypeVar

import stripe
import structlog

from ledger.errors import LedgerError, UnavailableError
from ledger.services.ledger import Clock
from ledger.services.payments.gateway import Declined, Pending

ID: Final = "gpuledger_id"
LEDGER: Final = "gpuledger_ledger"
ACCOUNT: Final = "gpuledger_account"
REMEMBERED_SECONDS: Final = 3_600
"""Far less than what Stripe promises, and far more than a retry takes."""
TIMEOUT_SECONDS: Final = 20
PAGE: Final = 100
"""Objects of one page of a list."""
_SKEW_SECONDS: Final = 600
"""How far the two clocks may be apart when an earlier try is looked for."""
_LOCKED: Final = "idempotency_key_in_use"
_SHORT_OF_MONEY: Final = frozenset({"balance_insufficient", "insufficient_funds"})
_GONE: Final = frozenset({"resource_missing", "account_invalid"})
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


class Ordered(Protocol):
    """What orders have in common."""

    @property
    def key(self) -> str:
        """Our id of it."""

    @property
    def ordered_at(self) -> int:
        """When it was ordered."""


class Orders:
    """How the orders of one ledger are told from others, and each from its own repetition."""

    def __init__(self, ledger: str, clock: Clock) -> None:
        """*ledger* is the name that tells it from others on the same Stripe account."""
        self._ledger = ledger
        self._clock = clock

    def metadata(self, key: str, account_id: int | None = None) -> dict[str, str]:
        """What an object that an order makes carries."""
        metadata = {ID: key, LEDGER: self._ledger}
        return metadata if account_id is None else {**metadata, ACCOUNT: str(account_id)}

    def once(self, key: str, **more: str) -> Any:
        """The options of a request that is carried out once."""
        return {**more, "idempotency_key": f"{self._ledger}/{key}"}

    def since(self, ordered_at: int, **more: str) -> Any:
        """The parameters of a list that holds whatever an order of that second made."""
        return {**more, "created": {"gte": max(ordered_at - _SKEW_SECONDS, 0)}, "limit": PAGE}

    def earlier(self, ordered_at: int, ask: Callable[[], Any], key: str) -> Any | None:
        """What an earlier try of an old order made; a young one is safe by its key."""
        if self._clock() < ordered_at + REMEMBERED_SECONDS:
            return None
        return mine(listed(ask), self._ledger, key)

    def made(
        self,
        order: Ordered,
        ask: Callable[[], Any],
        create: Callable[[], Any],
        retrieve: Callable[[str], Any] | None = None,
    ) -> Any:
        """The object of an order: made by an earlier try, or now.

        Where Stripe only repeats the answer of an earlier try, the object may have changed since
        and is looked at again by *retrieve*; without it, it never changes.

        Raises:
            Refused: Stripe does not make it.
        """
        found = self.earlier(order.ordered_at, ask, order.key)
        if found is not None:
            return found
        new = calling(create)
        if retrieve is not None and was_replayed(new):
            return required(lambda: retrieve(new.id))
        return new


def listed(ask: Callable[[], Any]) -> Iterator[Any]:
    """Every object of a list, page after page."""
    try:
        following = iter(calling(ask).auto_paging_iter())
        while (one := calling(lambda: next(following, None))) is not None:
            yield one
    except Refused as refused:
        raise _broken(refused) from None


def required(ask: Callable[[], Any]) -> Any:
    """An answer without which there is nothing to go on with."""
    try:
        return calling(ask)
    except Refused as refused:
        raise _broken(refused) from None


def retrieved(ask: Callable[[], Any]) -> Any | None:
    """An object as it is now; none where it is gone."""
    try:
        return calling(ask)
    except Refused as refused:
        if refused.reason in _GONE:
            return None
        raise _broken(refused) from None


def later(refused: Refused) -> Declined | Pending:
    """A refusal; the platform's account may only be short of money until tomorrow."""
    return Pending() if refused.reason in _SHORT_OF_MONEY else refused.outcome


def _broken(refused: Refused) -> UnavailableError:
    message = f"the payment processor refused a request that it should take: {refused.reason}"
    return UnavailableError("gateway_unavailable", message)
