"""Mail: where an account's notices go, which of them, and what became of them."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

import msgspec
from litestar import Response, delete, get, post, put
from litestar.params import FromPath, JSONBody, QueryParameter

from adapters.http.call import ANYONE, PAYER, Caller, allowed
from adapters.http.native.accounts import AccountFilter, Cursor, Limit
from adapters.http.native.statements import account_of
from adapters.http.wire import Body, Id, Instant, Page, decode_cursor, page, render
from ledger.domain.events import NoticeCode
from ledger.errors import NotFoundError
from ledger.services import mail as use_cases
from ledger.services.ledger import Unit
from ledger.services.questions import mail as ask

StateFilter = Annotated[
    ask.MessageState,
    QueryParameter(
        name="state",
        description="`pending`: waits, or waits to be tried again; `sent`: a mail server took it,"
        " in the last 30 days; `dead`: given up.",
    ),
]


class MailChoice(Body):
    """The address, and which notices go there: all by default, none with an empty list."""

    EXAMPLE: ClassVar[dict[str, Any]] = {
        "address": "alice@example.com",
        "codes": ["exhausted", "outbid"],
    }

    address: str
    codes: list[NoticeCode] | None = None
    account_id: Id | None = None


class MailSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Where notices go by mail; `address` is null for auditors, `codes` null for all."""

    account_id: int
    address: str | None
    codes: list[str] | None
    set_at: Instant


class Stopped(msgspec.Struct, frozen=True, kw_only=True):
    """No mail goes to this account any more."""

    account_id: int


class MailMessage(msgspec.Struct, frozen=True, kw_only=True):
    """A notice by mail; `reason` is a code such as `smtp_550`, never what a server said."""

    event_id: str
    account_id: int
    code: str
    about: str
    state: str
    attempts: int
    attempted_at: Instant | None
    due_at: Instant | None
    ended_at: Instant | None
    reason: str | None


class Requeued(msgspec.Struct, frozen=True, kw_only=True):
    """The event is on its way again."""

    event_id: str


@put("/v1/mail", opt=allowed(*PAYER), summary="Choose mail")
async def choose(call: Caller, data: JSONBody[MailChoice]) -> Response[MailSettings]:
    """Send an account's notices to an address from here on; an empty list of codes sends none."""
    account = call.account(data.account_id)

    def do(unit: Unit) -> MailSettings:
        use_cases.set_settings(unit, account, data.address, data.codes)
        found = use_cases.read_settings(unit.connection, unit.vault, account)
        return render(MailSettings, found)

    return await call.command(do, secret=True)


@get("/v1/mail", opt=allowed(*ANYONE), summary="Show the choice of mail")
async def show(call: Caller, account_id: AccountFilter = None) -> MailSettings:
    """Show where an account's notices go by mail; auditors do not see the address."""
    account = account_of(call, account_id)
    vault = None if call.principal.role == "auditor" else call.ledger.vault
    found = await call.question(
        lambda connection: use_cases.read_settings(connection, vault, account)
    )
    if found is None:
        raise NotFoundError("no_mail", "this account gets no mail: PUT /v1/mail sets an address")
    return render(MailSettings, found)


@delete("/v1/mail", opt=allowed(*PAYER), status_code=200, summary="Stop mail")
async def stop(call: Caller, account_id: AccountFilter = None) -> Response[Stopped]:
    """Send nothing any more and forget the address; again changes nothing."""
    account = call.account(account_id)

    def do(unit: Unit) -> Stopped:
        use_cases.stop(unit, account)
        return Stopped(account_id=account)

    return await call.command(do)


@get("/v1/mail/messages", opt=allowed(*ANYONE), summary="List messages")
async def list_messages(
    call: Caller,
    wanted: StateFilter = "pending",
    account_id: AccountFilter = None,
    limit: Limit = 100,
    cursor: Cursor = None,
) -> Page[MailMessage]:
    """List what waits, what was sent, or what was given up, by event."""
    account = call.view(account_id)
    after = decode_cursor(cursor, int, 0)
    found = await call.question(
        lambda connection: ask.messages(
            connection, wanted, account_id=account, after=after, limit=limit + 1
        )
    )
    return page(MailMessage, found, limit, lambda one: one.position)


@post(
    "/v1/mail/messages/{event:str}/resend",
    opt=allowed(*PAYER),
    status_code=200,
    summary="Send a message again",
)
async def resend(
    call: Caller, event: FromPath[str], account_id: AccountFilter = None
) -> Response[Requeued]:
    """Send a notice by mail again, whatever became of it before."""
    account = call.account(account_id)

    def do(unit: Unit) -> Requeued:
        use_cases.requeue(unit, account, event)
        return Requeued(event_id=event)

    return await call.command(do)


HANDLERS = [choose, show, stop, list_messages, resend]
