"""Credit that goes to another account."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import Any

from litestar import Response

from adapters.http.vast.call import Caller, endpoint
from adapters.http.vast.errors import translated
from adapters.http.vast.wire import Json, answer
from adapters.http.vast.wire import text as read_text
from ledger.domain.money import format_dollars, parse_amount
from ledger.errors import LedgerError, NotFoundError, RejectedError
from ledger.services import repeats
from ledger.services.ledger import Unit
from ledger.services.questions import accounts


@endpoint(
    "PUT",
    "/v0/commands/transfer_credit",
    roles=("renter", "host", "admin"),
    needs="api.billing.transfer",
)
async def transfer(call: Caller) -> Response[Any]:
    """Move credit to another account; a refusal is a 200, or the client hides its text."""
    recipient = read_text(call.body.get("recipient"), "recipient") or ""

    def do(unit: Unit) -> Json:
        amount = parse_amount(_amount(call.body.get("amount")))
        try:
            to = accounts.find_account(unit.connection, unit.vault, recipient)
        except NotFoundError:
            message = f"there is no account {recipient!r}"
            raise RejectedError("invalid_recipient", message) from None
        made = repeats.transfer_once(unit, call.account_id, to, amount)
        return {
            "success": True,
            "replayed": made.replayed,
            "id": made.transfer_id,
            "msg": f"${format_dollars(amount)} went to {recipient}; this cannot be undone.",
        }

    try:
        return await call.command(do)
    except LedgerError as error:
        status, code, msg, _ = translated(error)
        if status >= 500:  # noqa: PLR2004 - a failure, no refusal: the client tries it again
            raise
        return answer({"success": False, "error": code, "msg": msg})


def _amount(value: Any) -> str | int | Decimal:
    if isinstance(value, bool) or not isinstance(value, str | int | Decimal):
        raise RejectedError("invalid_args", "`amount` must be a number of dollars")
    return value


ENDPOINTS: Sequence[Any] = [transfer]
