"""Automatic top-ups: a renter's consent, and every charge that was made under it."""

from __future__ import annotations

from typing import Any, ClassVar

import msgspec
from litestar import Response, delete, get, put
from litestar.params import JSONBody

from adapters.http.call import ANYONE, RENTER, Caller, allowed
from adapters.http.native.accounts import AccountFilter, Cursor, Limit
from adapters.http.wire import (
    Body,
    Dollars,
    Instant,
    Page,
    decode_cursor,
    page,
    render,
)
from ledger.domain.money import parse_amount
from ledger.services import top_up
from ledger.services.ledger import Unit
from ledger.services.questions import safety as ask


class NewConsent(Body):
    """Agree to be charged; all three amounts are whole cents.

    `reference` names the agreement at the payment processor; never send a card's number.
    """

    EXAMPLE: ClassVar[dict[str, Any]] = {
        "below": "5",
        "amount": "20",
        "max_per_day": "100",
        "reference": "mandate_1Pq8",
    }

    below: Dollars
    amount: Dollars
    max_per_day: Dollars
    reference: str


class Consent(msgspec.Struct, frozen=True, kw_only=True):
    """The last consent: `on`, `revoked`, or `off` since charges failed three times in a row."""

    account_id: int
    consent_no: int
    reference: str
    below: Dollars
    amount: Dollars
    max_per_day: Dollars
    status: str
    failures: int
    failed_at: Instant | None
    consented_at: Instant


class TopUp(msgspec.Struct, frozen=True, kw_only=True):
    """One automatic charge: `requested`, `settled` or `failed`.

    `trigger` is the position in the log of the fact that it answered, `deposit_id` its deposit.
    """

    account_id: int
    consent_no: int
    trigger: int
    deposit_id: str
    amount: Dollars
    status: str
    reason: str | None
    payment: str | None
    requested_at: Instant
    closed_at: Instant | None


@get("/v1/auto-top-up", opt=allowed(*ANYONE), summary="Consent to automatic top-ups")
async def show_consent(call: Caller, account_id: AccountFilter = None) -> Consent:
    """Show the last consent; `no_such_consent` where none was ever given."""
    account = call.view(account_id) or call.principal.account_id
    found = await call.question(lambda connection: ask.consent_of(connection, account))
    return render(Consent, found)


@put("/v1/auto-top-up", opt=allowed(*RENTER), summary="Consent to automatic top-ups")
async def consent(call: Caller, data: JSONBody[NewConsent]) -> Response[Consent]:
    """Agree, for one's own account, that a card is charged when credit falls below `below`.

    It replaces the consent before, and switches top-ups on again after failures.
    """
    account = call.principal.account_id
    given = top_up.Consent(
        reference=data.reference,
        below=parse_amount(data.below),
        amount=parse_amount(data.amount),
        max_per_day=parse_amount(data.max_per_day),
    )

    def do(unit: Unit) -> Consent:
        top_up.consent(unit, account, given)
        return render(Consent, ask.consent_of(unit.connection, account))

    return await call.command(do)


@delete(
    "/v1/auto-top-up",
    opt=allowed(*RENTER),
    status_code=200,
    summary="Withdraw the consent",
)
async def revoke(call: Caller, account_id: AccountFilter = None) -> Response[Consent]:
    """End automatic top-ups at once; again changes nothing."""
    account = call.account(account_id)

    def do(unit: Unit) -> Consent:
        top_up.revoke(unit, account)
        return render(Consent, ask.consent_of(unit.connection, account))

    return await call.command(do)


@get("/v1/top-ups", opt=allowed(*ANYONE), summary="List automatic charges")
async def list_top_ups(
    call: Caller, account_id: AccountFilter = None, limit: Limit = 100, cursor: Cursor = None
) -> Page[TopUp]:
    """List every automatic charge, with the fact that triggered it and the consent behind it."""
    account = call.view(account_id)
    after = decode_cursor(cursor, tuple[int, int], (0, 0))
    found = await call.question(
        lambda connection: ask.top_ups_of(connection, account, after=after, limit=limit + 1)
    )
    return page(TopUp, found, limit, lambda one: (one.trigger, one.account_id))


HANDLERS = [show_consent, consent, revoke, list_top_ups]
