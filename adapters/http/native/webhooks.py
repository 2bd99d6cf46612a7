"""Webhooks: where notices are sent, what waits, what was given up, and sending it again."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

import msgspec
from litestar import Response, delete, get, post, put
from litestar.params import FromPath, JSONBody, QueryParameter

from adapters.http.call import ANYONE, PAYER, Call, Caller, allowed
from adapters.http.native.accounts import AccountFilter, Cursor, Limit
from adapters.http.wire import Body, Id, Instant, Page, decode_cursor, instant, page, render
from ledger.domain.events import NoticeCode
from ledger.errors import RejectedError
from ledger.services import webhooks as use_cases
from ledger.services.ledger import Unit
from ledger.services.questions import webhooks as ask
from ledger.store.database import Connection
from ledger.store.vault import Vault

_EXAMPLE_URL = "https://hooks.example/gpuledger"
StateFilter = Annotated[
    ask.DeliveryState,
    QueryParameter(
        name="state",
        description="`pending`: waits, or waits to be tried again; `dead`: given up after about"
        " three days; `delivered`: arrived, in the last 30 days.",
    ),
]


class Webhook(msgspec.Struct, frozen=True, kw_only=True):
    """A webhook. `codes` is null for all notices; `url` is null for auditors.

    Up to `overlap_until` deliveries are signed with the secret before the last one too.
    """

    webhook_id: int
    account_id: int
    url: str | None
    codes: list[str] | None
    overlap_until: Instant | None
    registered_at: Instant
    pending: int
    dead: int


class NewWebhook(Body):
    """An `https` address, and which notices it wants (all by default)."""

    EXAMPLE: ClassVar[dict[str, Any]] = {"url": _EXAMPLE_URL, "codes": ["outbid", "resumed"]}

    url: str
    codes: list[NoticeCode] | None = None
    account_id: Id | None = None


class WebhookChange(Body):
    """What the webhook is from now on: both fields are set, also to their defaults."""

    EXAMPLE: ClassVar[dict[str, Any]] = {"url": _EXAMPLE_URL, "codes": None}

    url: str
    codes: list[NoticeCode] | None = None
    account_id: Id | None = None


class Replay(Body):
    """One event by its id; or what was given up in `[since, until)`.

    With `everything`, all events of that time that the webhook is for, also those that arrived.
    """

    EXAMPLE: ClassVar[dict[str, Any]] = {"since": "2026-03-01T00:00:00Z"}

    event_id: str | None = None
    since: str | None = None
    until: str | None = None
    everything: bool = False
    account_id: Id | None = None


class WebhookSecret(msgspec.Struct, frozen=True, kw_only=True):
    """A new webhook and the secret that signs what it gets, shown this once."""

    webhook_id: int
    secret: str


class RotatedSecret(msgspec.Struct, frozen=True, kw_only=True):
    """The new secret, shown this once; up to `overlap_until` the old one signs too."""

    webhook_id: int
    secret: str
    overlap_until: Instant


class Removed(msgspec.Struct, frozen=True, kw_only=True):
    """Nothing is sent there any more."""

    webhook_id: int


class Sent(msgspec.Struct, frozen=True, kw_only=True):
    """The event that is on its way."""

    event_id: str


class Replayed(msgspec.Struct, frozen=True, kw_only=True):
    """How many events are on their way again."""

    events: int


class Delivery(msgspec.Struct, frozen=True, kw_only=True):
    """An event on its way to a webhook, with the last answer: a status, or why there was none.

    `excerpt` is at most the first 1,024 bytes of what the receiver said; null for auditors.
    """

    event_id: str
    type: str
    about: str
    state: str
    attempts: int
    attempted_at: Instant | None
    due_at: Instant | None
    ended_at: Instant | None
    status: int | None
    reason: str | None
    excerpt: str | None


@post("/v1/webhooks", opt=allowed(*PAYER), summary="Register a webhook")
async def register(call: Caller, data: JSONBody[NewWebhook]) -> Response[WebhookSecret]:
    """Send an account's notices to an address from here on; the secret is in this answer alone."""
    account = call.account(data.account_id)

    def do(unit: Unit) -> WebhookSecret:
        made = use_cases.register(
            unit, account, data.url, data.codes, reach=use_cases.configured_reach()
        )
        return WebhookSecret(webhook_id=made.webhook_id, secret=made.secret)

    return await call.command(do, 201, secret=True)


@get("/v1/webhooks", opt=allowed(*ANYONE), summary="List webhooks")
async def list_webhooks(
    call: Caller, account_id: AccountFilter = None, limit: Limit = 100, cursor: Cursor = None
) -> Page[Webhook]:
    """List webhooks by id, with what waits and what was given up; auditors see no addresses."""
    account = call.view(account_id)
    after = decode_cursor(cursor, int, 0)
    vault = _vault(call)
    found = await call.question(
        lambda connection: ask.webhooks(
            connection, vault, account_id=account, after=after, limit=limit + 1
        )
    )
    return page(Webhook, found, limit, lambda one: one.webhook_id)


@get("/v1/webhooks/{webhook_id:int}", opt=allowed(*ANYONE), summary="Show a webhook")
async def show_webhook(call: Caller, webhook_id: FromPath[int]) -> Webhook:
    """Show one webhook."""
    vault, account = _vault(call), call.view(None)
    found = await call.question(
        lambda connection: ask.webhook(connection, vault, webhook_id, account)
    )
    return render(Webhook, found)


@put("/v1/webhooks/{webhook_id:int}", opt=allowed(*PAYER), summary="Change a webhook")
async def change(
    call: Caller, webhook_id: FromPath[int], data: JSONBody[WebhookChange]
) -> Response[Webhook]:
    """Set a webhook's address and codes; what waits goes to the new address."""
    account = call.account(data.account_id)

    def do(unit: Unit) -> Webhook:
        reach = use_cases.configured_reach()
        use_cases.change(unit, account, webhook_id, data.url, data.codes, reach=reach)
        return render(Webhook, ask.webhook(unit.connection, unit.vault, webhook_id, account))

    return await call.command(do)


@post(
    "/v1/webhooks/{webhook_id:int}/rotate",
    opt=allowed(*PAYER),
    status_code=200,
    summary="Rotate a webhook's secret",
)
async def rotate(
    call: Caller, webhook_id: FromPath[int], account_id: AccountFilter = None
) -> Response[RotatedSecret]:
    """Sign with a new secret, and for 24 hours with the old one as well."""
    account = call.account(account_id)

    def do(unit: Unit) -> RotatedSecret:
        made = use_cases.rotate(unit, account, webhook_id)
        return render(RotatedSecret, made, webhook_id=webhook_id)

    return await call.command(do, secret=True)


@post(
    "/v1/webhooks/{webhook_id:int}/test",
    opt=allowed(*PAYER),
    status_code=200,
    summary="Send a test event",
)
async def send_test(
    call: Caller, webhook_id: FromPath[int], account_id: AccountFilter = None
) -> Response[Sent]:
    """Send an event of type `test`, which means nothing."""
    account = call.account(account_id)

    def do(unit: Unit) -> Sent:
        return Sent(event_id=use_cases.send_test(unit, account, webhook_id))

    return await call.command(do)


@delete(
    "/v1/webhooks/{webhook_id:int}",
    opt=allowed(*PAYER),
    status_code=200,
    summary="Remove a webhook",
)
async def remove(
    call: Caller, webhook_id: FromPath[int], account_id: AccountFilter = None
) -> Response[Removed]:
    """Send nothing there any more; what waited is dropped. Again changes nothing."""
    account = call.account(account_id)

    def do(unit: Unit) -> Removed:
        use_cases.remove(unit, account, webhook_id)
        return Removed(webhook_id=webhook_id)

    return await call.command(do)


@get(
    "/v1/webhooks/{webhook_id:int}/deliveries",
    opt=allowed(*ANYONE),
    summary="List a webhook's deliveries",
)
async def list_deliveries(
    call: Caller,
    webhook_id: FromPath[int],
    wanted: StateFilter = "pending",
    limit: Limit = 100,
    cursor: Cursor = None,
) -> Page[Delivery]:
    """List what waits, what was given up, or what arrived, by event."""
    account = call.view(None)
    after = decode_cursor(cursor, int, 0)

    def run(connection: Connection) -> list[ask.Delivery]:
        ask.webhook(connection, None, webhook_id, account)
        found = ask.deliveries(connection, webhook_id, wanted, after=after, limit=limit + 1)
        if _vault(call) is None:
            found = [msgspec.structs.replace(one, excerpt=None) for one in found]
        return found

    return page(Delivery, await call.question(run), limit, lambda one: one.position)


@post(
    "/v1/webhooks/{webhook_id:int}/replay",
    opt=allowed(*PAYER),
    status_code=200,
    summary="Send events again",
)
async def replay(
    call: Caller, webhook_id: FromPath[int], data: JSONBody[Replay]
) -> Response[Replayed]:
    """Send an event, or what was given up in some time, again; each keeps its id."""
    account = call.account(data.account_id)
    since, until = instant(data.since, "since"), instant(data.until, "until")
    if (data.event_id is None) == (since is None) or (since is None and until is not None):
        message = "name either an event_id, or since, with until if you like"
        raise RejectedError("invalid_args", message, status=400)

    def do(unit: Unit) -> Replayed:
        if data.event_id is not None:
            return Replayed(events=use_cases.replay(unit, account, webhook_id, data.event_id))
        assert since is not None
        found = use_cases.replay_since(
            unit, account, webhook_id, since, until, everything=data.everything
        )
        return Replayed(events=found)

    return await call.command(do)


def _vault(call: Call) -> Vault | None:
    """Where addresses are read, for those who may see them (`marketplace.md` §20)."""
    return None if call.principal.role == "auditor" else call.ledger.vault


HANDLERS = [
    register,
    list_webhooks,
    show_webhook,
    change,
    rotate,
    send_test,
    remove,
    list_deliveries,
    replay,
]
