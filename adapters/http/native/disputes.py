"""Disputes: opened by renters, answered by hosts, resolved by the platform."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

import msgspec
from litestar import Response, get, post
from litestar.params import FromPath, FromQuery, JSONBody
from msgspec import Meta

from adapters.http.call import ADMIN, ANYONE, PAYER, RENTER, Call, Caller, allowed
from adapters.http.native.accounts import AccountFilter, Cursor, Limit
from adapters.http.wire import (
    Body,
    Dollars,
    Id,
    Instant,
    Page,
    decode_cursor,
    instant,
    page,
    render,
    render_all,
)
from ledger.domain.events import DisputeReason
from ledger.domain.money import parse_amount
from ledger.errors import ForbiddenError, NotFoundError, RejectedError
from ledger.services import disputes as use_cases
from ledger.services import filing
from ledger.services.disputes import Words, account_actor
from ledger.services.ledger import Unit
from ledger.services.questions import disputes as ask
from ledger.store.database import Connection

Evidence = Annotated[
    list[str], Meta(description="SHA-256 of what you can show, 64 hex digits each.")
]
Statement = Annotated[str, Meta(description="Kept encrypted and erasable, never in the log.")]


class NewDispute(Body):
    """Seconds `[start, until)` of one instance, or volume, and what was wrong with their bill."""

    EXAMPLE: ClassVar[dict[str, Any]] = {
        "instance_id": 7,
        "start": "2026-03-02T10:00:00Z",
        "until": "2026-03-02T10:10:00Z",
        "reason": "not_running",
    }

    instance_id: Id
    start: str
    until: str
    reason: DisputeReason
    evidence: Evidence | None = None
    statement: Statement | None = None


class NewAnswer(Body):
    """The host's explanation, or the renter's answer to a question."""

    EXAMPLE: ClassVar[dict[str, Any]] = {"statement": "The power of the rack failed at 10:02."}

    statement: Statement | None = None
    evidence: Evidence | None = None
    on_behalf_of: Literal["host", "renter"] | None = None
    """For admins, who answer for one of the parties."""


class NewQuestion(Body):
    """What the renter has to answer within seven days."""

    EXAMPLE: ClassVar[dict[str, Any]] = {"statement": "Which error did the container show?"}

    statement: Statement


class Resolution(Body):
    """`upheld` gives back the claim, `partial` the amount, `rejected` nothing."""

    EXAMPLE: ClassVar[dict[str, Any]] = {"outcome": "partial", "amount": "0.02"}

    outcome: Literal["upheld", "partial", "rejected"]
    amount: Dollars | None = None
    rule_id: Annotated[str, Meta(pattern="^[a-z0-9_.-]{1,64}$")] = "admin"


class Claim(msgspec.Struct, frozen=True, kw_only=True):
    """The disputed part of one charge; `quantity` is seconds or bytes."""

    charge: str
    meter: str
    quantity: int
    amount: Dollars
    fee: Dollars
    charged: Dollars


class Said(msgspec.Struct, frozen=True, kw_only=True):
    """What somebody brought forward. Auditors see that something was said, not what."""

    by: str
    actor: str
    evidence: list[str]
    text: str | None
    said_at: Instant


class ListedDispute(msgspec.Struct, frozen=True, kw_only=True):
    """A dispute. `status` is open, answered, questioned, or how it ended.

    `held` of the host's share is set aside; `amount` went back to the renter. `as_of` is the place
    in the log at which the evidence was fixed.
    """

    dispute_id: int
    account_id: int
    host_id: int
    instance_id: int
    machine_id: int
    by: str
    reason: str
    status: str
    seconds_from: Instant
    seconds_until: Instant
    claimed: Dollars
    held: Dollars
    amount: Dollars
    as_of: int
    host_due_at: Instant | None
    question_due_at: Instant | None
    rule_id: str | None
    decided_by: str | None
    opened_at: Instant
    answered_at: Instant | None
    resolved_at: Instant | None


class Dispute(ListedDispute, frozen=True, kw_only=True):
    """A dispute with its claims and what was said in it."""

    claims: list[Claim]
    said: list[Said]


@post("/v1/disputes", opt=allowed(*RENTER), summary="Dispute charges")
async def open_dispute(call: Caller, data: JSONBody[NewDispute]) -> Response[Dispute]:
    """Dispute what some seconds cost, within 7 days of their statement.

    The host's share is set aside; the host has 72 hours to answer, and its silence upholds.
    """
    start, until = instant(data.start, "start"), instant(data.until, "until")
    assert start is not None
    assert until is not None

    def do(unit: Unit) -> Dispute:
        if not call.is_admin:
            filing.require_own(unit, data.instance_id, call.principal.account_id)
        dispute_id = filing.open_dispute(
            unit,
            data.instance_id,
            start,
            until,
            data.reason,
            actor=call.principal.account_id,
            by_admin=call.is_admin,
            words=Words(tuple(data.evidence or ()), data.statement),
        )
        return _shown(call, unit.connection, dispute_id)

    return await call.command(do, 201)


@get("/v1/disputes", opt=allowed(*ANYONE), summary="List disputes")
async def list_disputes(
    call: Caller,
    account_id: AccountFilter = None,
    instance_id: FromQuery[int | None] = None,
    status: FromQuery[str | None] = None,
    limit: Limit = 100,
    cursor: Cursor = None,
) -> Page[ListedDispute]:
    """List one's disputes by id, without claims; a host's key lists those about its machines."""
    account, host = call.sides(account_id)
    after = decode_cursor(cursor, int, 0)
    found = await call.question(
        lambda connection: ask.disputes(
            connection,
            account_id=account,
            host_id=host,
            instance_id=instance_id,
            status=status,
            after=after,
            limit=limit + 1,
        )
    )
    return page(ListedDispute, found, limit, lambda one: one.dispute_id)


@get("/v1/disputes/{dispute_id:int}", opt=allowed(*ANYONE), summary="Show a dispute")
async def show_dispute(call: Caller, dispute_id: FromPath[int]) -> Dispute:
    """Show a dispute with its claims and what was said in it."""
    return await call.question(lambda connection: _shown(call, connection, dispute_id))


@post(
    "/v1/disputes/{dispute_id:int}/answer",
    opt=allowed(*PAYER),
    status_code=200,
    summary="Answer in a dispute",
)
async def answer(
    call: Caller, dispute_id: FromPath[int], data: JSONBody[NewAnswer]
) -> Response[Dispute]:
    """Explain what happened (host, within 72 hours), or answer what was asked (renter, 7 days)."""
    who = data.on_behalf_of
    if not call.is_admin:
        own: Literal["host", "renter"] = "host" if call.principal.role == "host" else "renter"
        if who not in {None, own}:
            raise ForbiddenError("not_authorized", "only an admin answers for somebody else")
        who = own
    if who is None:
        message = "an admin answers on_behalf_of `host` or `renter`"
        raise RejectedError("invalid_args", message)
    party = who

    def do(unit: Unit) -> Dispute:
        _party(call, unit.connection, dispute_id)
        words = Words(tuple(data.evidence or ()), data.statement)
        use_cases.answer(unit, dispute_id, party, call.principal.account_id, words)
        return _shown(call, unit.connection, dispute_id)

    return await call.command(do)


@post(
    "/v1/disputes/{dispute_id:int}/question",
    opt=allowed(*ADMIN),
    status_code=200,
    summary="Ask the renter",
)
async def question(
    call: Caller, dispute_id: FromPath[int], data: JSONBody[NewQuestion]
) -> Response[Dispute]:
    """Ask the renter something; unanswered for 7 days, the dispute expires."""

    def do(unit: Unit) -> Dispute:
        use_cases.question(unit, dispute_id, call.principal.account_id, data.statement)
        return _shown(call, unit.connection, dispute_id)

    return await call.command(do)


@post(
    "/v1/disputes/{dispute_id:int}/withdraw",
    opt=allowed(*RENTER),
    status_code=200,
    summary="Withdraw a dispute",
)
async def withdraw(call: Caller, dispute_id: FromPath[int]) -> Response[Dispute]:
    """Let one's own dispute be; again changes nothing."""

    def do(unit: Unit) -> Dispute:
        _party(call, unit.connection, dispute_id)
        use_cases.withdraw(unit, dispute_id, call.principal.account_id)
        return _shown(call, unit.connection, dispute_id)

    return await call.command(do)


@post(
    "/v1/disputes/{dispute_id:int}/resolve",
    opt=allowed(*ADMIN),
    status_code=200,
    summary="Resolve a dispute",
)
async def resolve(
    call: Caller, dispute_id: FromPath[int], data: JSONBody[Resolution]
) -> Response[Dispute]:
    """Decide; what is upheld goes back at once, from host and platform in their shares."""
    amount = None if data.amount is None else parse_amount(data.amount)

    def do(unit: Unit) -> Dispute:
        use_cases.resolve(
            unit,
            dispute_id,
            data.outcome,
            actor=account_actor(call.principal.account_id),
            amount=amount,
            rule_id=data.rule_id,
        )
        return _shown(call, unit.connection, dispute_id)

    return await call.command(do)


def _party(call: Call, connection: Connection, dispute_id: int) -> ask.DisputeView:
    """The dispute, if it is the caller's to see: its renter's, its host's, or everybody's."""
    found = ask.dispute(connection, dispute_id)
    own = found.host_id if call.principal.role == "host" else found.account_id
    if not call.sees_all and own != call.principal.account_id:
        raise NotFoundError("no_such_dispute", f"there is no dispute {dispute_id}")
    return found


def _shown(call: Call, connection: Connection, dispute_id: int) -> Dispute:
    found = _party(call, connection, dispute_id)
    readable = call.principal.role != "auditor"
    said = ask.words(connection, call.ledger.vault, dispute_id, readable=readable)
    return render(Dispute, found, said=render_all(Said, said))


HANDLERS = [
    open_dispute,
    list_disputes,
    show_dispute,
    answer,
    question,
    withdraw,
    resolve,
]
