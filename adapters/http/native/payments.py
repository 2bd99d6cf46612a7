"""Payments by card: pages, saved cards with consent, refunds, and the processor's messages."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, ClassVar, Final, TypeVar

import anyio.to_thread
import msgspec
from litestar import Request, Response, delete, get, post
from litestar.datastructures import State
from litestar.openapi.spec import OpenAPIMediaType, OpenAPIType, Operation, RequestBody, Schema
from litestar.params import FromPath, FromQuery, JSONBody
from msgspec import Meta

from adapters.http.call import ADMIN, ANYONE, RENTER, Call, Caller, allowed
from adapters.http.native.accounts import AccountFilter, Cursor, Limit
from adapters.http.wire import (
    Body,
    Dollars,
    Instant,
    Page,
    decode_cursor,
    page,
    render,
    render_all,
)
from ledger.domain.money import parse_amount
from ledger.errors import DeclinedError, RejectedError, UnavailableError
from ledger.services.ledger import Ledger, Unit
from ledger.services.payments import inbox, orders, returns, runner
from ledger.services.payments.gateway import Opened, PaymentGateway
from ledger.services.questions import payments as ask
from ledger.store.database import translating

T = TypeVar("T")
MESSAGE_BYTES_MAX: Final = 1_048_576
_ERRORS: Final = 400


class NewPayment(Body):
    """Credit to buy, whole cents; with `card`, a saved card is charged now."""

    EXAMPLE: ClassVar[dict[str, Any]] = {"amount": "50"}

    amount: Dollars
    card: str | None = None


class NewPaymentRefund(Body):
    """Gross, whole cents: tax goes back with it in its share."""

    EXAMPLE: ClassVar[dict[str, Any]] = {"amount": "12.50", "id": "refund-3"}

    amount: Dollars
    id: Annotated[str, Meta(description="An id of your own; the same id again is one refund.")]


class NewCard(Body):
    """Consent to save a card: `terms` names the version of the text that was agreed to."""

    EXAMPLE: ClassVar[dict[str, Any]] = {"consent": True, "terms": "card-terms-2026-03"}

    consent: bool
    terms: str


class Payment(msgspec.Struct, frozen=True, kw_only=True):
    """A payment: `ordered`, `open` (a page waits for the payer), `settled` or `failed`.

    `payment_id` is the id of its deposit. `refunded` is gross, and counts chargebacks.
    """

    payment_id: str
    account_id: int
    method: str
    card: str | None
    credit: Dollars
    tax: Dollars
    total: Dollars
    refunded: Dollars
    status: str
    reason: str | None
    ordered_at: Instant
    closed_at: Instant | None


class PaymentOrder(msgspec.Struct, frozen=True, kw_only=True):
    """A payment, and the page on which it is paid; `url` is null where there is none (any more)."""

    payment: Payment
    url: str | None


class Refund(msgspec.Struct, frozen=True, kw_only=True):
    """Money back: `begun`, `settled` or `failed`; `origin` says who asked for it."""

    refund_id: str
    payment_id: str
    origin: str
    amount: Dollars
    credit: Dollars
    tax: Dollars
    status: str
    reason: str | None
    begun_at: Instant
    closed_at: Instant | None


class Chargeback(msgspec.Struct, frozen=True, kw_only=True):
    """Money that a payer's bank took: `open`, `won`, `lost` or `withdrawn`."""

    chargeback_id: str
    payment_id: str
    claimed: Dollars
    withdrawn: Dollars
    reason: str
    status: str
    opened_at: Instant
    closed_at: Instant | None


class PaymentHistory(msgspec.Struct, frozen=True, kw_only=True):
    """A payment with all that went back of it."""

    payment: Payment
    refunds: list[Refund]
    chargebacks: list[Chargeback]


class Card(msgspec.Struct, frozen=True, kw_only=True):
    """A saved card: `saved`, `removed` or `detached`; nothing of its number is known here."""

    card: str
    account_id: int
    status: str
    terms: str
    saved_at: Instant
    removed_at: Instant | None


class CardSetup(msgspec.Struct, frozen=True, kw_only=True):
    """A consent, and the page on which the card is saved."""

    setup_id: str
    account_id: int
    terms: str
    status: str
    begun_at: Instant
    url: str | None


class _Named(msgspec.Struct, frozen=True, kw_only=True):
    """What a command made, before the processor was asked."""

    id: str


class Received(msgspec.Struct, frozen=True, kw_only=True):
    """A message was taken; `queued` is false where it is known, or about nothing of ours."""

    queued: bool


def gateway_of(request: Request[Any, Any, State]) -> PaymentGateway:
    """The payment processor of this server.

    Raises:
        DeclinedError: `payments_not_configured`.
    """
    gateway: PaymentGateway | None = request.app.state.gateway
    if gateway is None:
        message = "this server has no payment processor: book deposits, or see docs/operating.md"
        raise DeclinedError("payments_not_configured", message)
    return gateway


async def asked(do: Callable[[], T]) -> T | None:
    """Ask the processor outside of any transaction; none when it does not answer.

    What was ordered is in the log already and goes on by itself, so silence is no error.
    """

    def run() -> T | None:
        try:
            return do()
        except UnavailableError:
            return None

    return await anyio.to_thread.run_sync(run)


def _is_refused(made: Response[Any]) -> bool:
    return made.status_code is not None and made.status_code >= _ERRORS


def _finished(made: Response[Any], body: msgspec.Struct) -> Response[Any]:
    """The answer to a command whose processor was asked, replayed or not."""
    made.content = msgspec.json.encode(body)
    return made


@post("/v1/payments", opt=allowed(*RENTER), summary="Buy credit")
async def order_payment(
    call: Caller, request: Request[Any, Any, State], data: JSONBody[NewPayment]
) -> Response[PaymentOrder]:
    """Buy credit for one's own account, on a page of the processor or with a saved card.

    A card is charged under an `Idempotency-Key` only, so that a repeat is the same payment. If the
    processor does not answer, the payment stays `ordered` and goes on by itself.
    """
    gateway = gateway_of(request)
    account = call.principal.account_id
    amount = parse_amount(data.amount)
    if data.card is not None and "idempotency-key" not in request.headers:
        message = "send an Idempotency-Key: without one a repeat would charge the card again"
        raise RejectedError("invalid_args", message, status=400)

    def do(unit: Unit) -> _Named:
        return _Named(id=orders.order_payment(unit, account, amount, card=data.card))

    made = await call.command(do, 201)
    if _is_refused(made):
        return made
    payment_id = msgspec.json.decode(made.content, type=_Named).id
    opened = await asked(lambda: _advance(call.ledger, gateway, payment_id))
    return _finished(made, await _order(call, payment_id, opened))


def _advance(ledger: Ledger, gateway: PaymentGateway, payment_id: str) -> Opened | None:
    with ledger.reading() as connection:
        found = runner.find_open(connection, payment_id)
    return None if found is None else runner.advance_payment(ledger, gateway, found)


async def _order(call: Call, payment_id: str, opened: Opened | None) -> PaymentOrder:
    found = await call.question(lambda connection: ask.payment(connection, payment_id))
    url = None if opened is None else opened.url
    return PaymentOrder(payment=render(Payment, found.payment), url=url)


@get("/v1/payments", opt=allowed(*ANYONE), summary="List payments")
async def list_payments(
    call: Caller,
    account_id: AccountFilter = None,
    status: FromQuery[str | None] = None,
    limit: Limit = 100,
    cursor: Cursor = None,
) -> Page[Payment]:
    """List payments in the order in which they were ordered, automatic ones too."""
    account = call.view(account_id)
    after = decode_cursor(cursor, int, 0)
    found = await call.question(
        lambda connection: ask.payments(
            connection, account_id=account, status=status, after=after, limit=limit + 1
        )
    )
    return page(Payment, found, limit, lambda one: one.position)


@get("/v1/payments/{payment_id:str}", opt=allowed(*ANYONE), summary="Show a payment")
async def show_payment(call: Caller, payment_id: FromPath[str]) -> PaymentHistory:
    """Show a payment with its refunds and chargebacks."""
    account = None if call.sees_all else call.principal.account_id
    found = await call.question(lambda connection: ask.payment(connection, payment_id, account))
    return PaymentHistory(
        payment=render(Payment, found.payment),
        refunds=render_all(Refund, found.refunds),
        chargebacks=render_all(Chargeback, found.chargebacks),
    )


@post(
    "/v1/payments/{payment_id:str}/page",
    opt=allowed(*RENTER),
    status_code=200,
    summary="Find the page of a payment again",
)
async def show_page(
    call: Caller, request: Request[Any, Any, State], payment_id: FromPath[str]
) -> PaymentOrder:
    """Give the address of the page of a payment that is not paid yet; it is the same page."""
    account = None if call.is_admin else call.principal.account_id
    await call.question(lambda connection: ask.payment(connection, payment_id, account))
    gateway = gateway_of(request)
    opened = await asked(lambda: _advance(call.ledger, gateway, payment_id))
    return await _order(call, payment_id, opened)


@post("/v1/payments/{payment_id:str}/refund", opt=allowed(*ADMIN), summary="Refund a payment")
async def refund_payment(
    call: Caller,
    request: Request[Any, Any, State],
    payment_id: FromPath[str],
    data: JSONBody[NewPaymentRefund],
) -> Response[PaymentHistory]:
    """Send unspent credit of a payment back to its payer; at most what it has left.

    The credit is gone at once, and comes back if the processor refuses.
    """
    gateway = gateway_of(request)
    amount = parse_amount(data.amount)

    def do(unit: Unit) -> _Named:
        account = ask.payment(unit.connection, payment_id).payment.account_id
        returns.refund(unit, account, payment_id, amount, data.id)
        return _Named(id=data.id)

    made = await call.command(do, 201)
    if _is_refused(made):
        return made
    await asked(lambda: _refund(call.ledger, gateway, data.id))
    return _finished(made, await show_payment.fn(call, payment_id))


def _refund(ledger: Ledger, gateway: PaymentGateway, refund_id: str) -> None:
    with ledger.reading() as connection:
        found = [one for one in returns.open_refunds(connection) if one.key == refund_id]
    for order in found:
        runner.advance_refund(ledger, gateway, order)


@post("/v1/cards", opt=allowed(*RENTER), summary="Save a card")
async def save_card(
    call: Caller, request: Request[Any, Any, State], data: JSONBody[NewCard]
) -> Response[CardSetup]:
    """Agree that a card is kept and may be charged without the payer, and get the page for it.

    Nothing is charged by this. Automatic charges need a consent of their own: `PUT
    /v1/auto-top-up`, with the card as `reference`.
    """
    gateway = gateway_of(request)
    account = call.principal.account_id
    if not data.consent:
        message = "a card is kept only with the consent of its owner: send `consent: true`"
        raise RejectedError("invalid_args", message)

    def do(unit: Unit) -> _Named:
        return _Named(id=orders.begin_card_setup(unit, account, data.terms))

    made = await call.command(do, 201)
    if _is_refused(made):
        return made
    setup_id = msgspec.json.decode(made.content, type=_Named).id
    opened = await asked(lambda: _advance_setup(call.ledger, gateway, setup_id))
    found = await call.question(lambda connection: ask.setup(connection, setup_id))
    url = None if opened is None else opened.url
    return _finished(made, render(CardSetup, found, url=url))


def _advance_setup(ledger: Ledger, gateway: PaymentGateway, setup_id: str) -> Opened | None:
    with ledger.reading() as connection:
        found = runner.find_setup(connection, setup_id)
    return None if found is None else runner.advance_setup(ledger, gateway, found)


@get("/v1/cards", opt=allowed(*ANYONE), summary="List cards")
async def list_cards(call: Caller, account_id: AccountFilter = None) -> Page[Card]:
    """List the cards of an account, removed ones too."""
    account = call.view(account_id) or call.principal.account_id
    found = await call.question(lambda connection: ask.cards(connection, account))
    return Page(items=render_all(Card, found), next_cursor=None)


@delete("/v1/cards/{card:str}", opt=allowed(*RENTER), status_code=200, summary="Remove a card")
async def remove_card(call: Caller, card: FromPath[str]) -> Response[Page[Card]]:
    """Let no charge begin on a card any more, automatic ones included; again changes nothing."""
    account = call.principal.account_id

    def do(unit: Unit) -> Page[Card]:
        orders.remove_card(unit, account, card)
        return Page(items=render_all(Card, ask.cards(unit.connection, account)), next_cursor=None)

    return await call.command(do)


def _describe(operation: Operation) -> None:
    schema = Schema(type=OpenAPIType.OBJECT, description="An event, as the processor sends it.")
    example = {"id": "evt_1", "type": "payment_intent.succeeded", "data": {"object": {}}}
    content = {"application/json": OpenAPIMediaType(schema=schema, example=example)}
    operation.request_body = RequestBody(content=content, required=True)


@post(
    "/v1/payment-events",
    dependencies={},
    status_code=200,
    request_max_body_size=MESSAGE_BYTES_MAX,
    summary="Take a message of the payment processor",
    security=[{}],
    opt={"errors": (400, 401, 409, 413, 503), "describe": _describe},
)
async def take_event(request: Request[Any, Any, State]) -> Received:
    """Take a signed message; the signature is the credential. It needs no `Idempotency-Key`.

    One that is too old, or from the future, is refused. One that is known, or about nothing of
    ours, is acknowledged and changes nothing.
    """
    gateway = gateway_of(request)
    ledger: Ledger = request.app.state.ledger
    body = await request.body()
    now = ledger.clock()
    event = gateway.read_event(body, request.headers.get("stripe-signature", ""), now)

    def keep() -> bool:
        with translating(), ledger.database.pool.connection() as connection:
            return inbox.receive(connection, event, now)

    return Received(queued=await anyio.to_thread.run_sync(keep))


HANDLERS = [
    order_payment,
    list_payments,
    show_payment,
    show_page,
    refund_payment,
    save_card,
    list_cards,
    remove_card,
    take_event,
]
