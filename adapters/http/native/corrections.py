"""Corrections, credit notes, and what two people agree on."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

import msgspec
from litestar import Response, get, post
from litestar.params import FromPath, FromQuery, JSONBody, QueryParameter

from adapters.http.call import ADMIN, ANYONE, Call, Caller, allowed
from adapters.http.native.accounts import AccountFilter, Cursor, Limit
from adapters.http.native.statements import account_of
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
from ledger.domain.dispute import Authority
from ledger.domain.money import parse_amount
from ledger.errors import NotFoundError, RejectedError
from ledger.services import approvals, corrections, credit_notes
from ledger.services.disputes import account_actor
from ledger.services.ledger import Unit
from ledger.services.questions import corrections as ask
from ledger.services.questions import credit_notes as ask_notes
from ledger.store.database import Connection


class NewCorrection(Body):
    """Give back a charge (`amount`; by default all that is left) or replace it (`replace_with`).

    `effective_at`: since when it applies; by default since the charge began.
    """

    EXAMPLE: ClassVar[dict[str, Any]] = {
        "charge": "instance-7.gpu.1",
        "amount": "0.05",
        "reason": "price_mismatch",
    }

    charge: str
    reason: str
    amount: Dollars | None = None
    replace_with: Dollars | None = None
    effective_at: str | None = None


class NewCreditNote(Body):
    """Give back part of a usage invoice; `void` ends it, with an approval of `void <number>`."""

    EXAMPLE: ClassVar[dict[str, Any]] = {
        "account_id": 2,
        "document": "USE-00000001",
        "amount": "1.25",
        "reason": "goodwill",
    }

    account_id: Id
    document: str
    amount: Dollars
    reason: str
    void: bool = False


class NewApproval(Body):
    """What you agree to: `void <invoice>`, `correct <charge>`, `file account-<id>`.

    Also `adjust account-<id>.<dollars>` and `write-off account-<id>`.
    """

    EXAMPLE: ClassVar[dict[str, Any]] = {"subject": "void USE-00000001"}

    subject: str


class Correction(msgspec.Struct, frozen=True, kw_only=True):
    """A reversal of `charge`, or a replacement (`kind` charge) that corrects it.

    `corrected_at`: when it was made; `effective_at`: since when it applies; `cause`: the place in
    the log of what caused it.
    """

    correction_id: int
    kind: str
    charge: str
    account_id: int
    host_id: int
    instance_id: int
    meter: str
    quantity: int
    amount: Dollars
    fee: Dollars
    depth: int
    dispute_id: int | None
    reason: str
    period_from: Instant
    actor: str
    approved_by: str | None
    cause: int | None
    policy_version: int
    effective_at: Instant
    corrected_at: Instant


class CreditNoteLine(msgspec.Struct, frozen=True, kw_only=True):
    """What the note gives back on a line of its document, and the reversal that moved it."""

    line: int
    document_line: int
    correction_id: int
    amount: Dollars


class ListedCreditNote(msgspec.Struct, frozen=True, kw_only=True):
    """A credit note over one document, which stays as it was."""

    number: str
    account_id: int
    document: str
    total: Dollars
    reason: str
    voids: bool
    actor: str
    approved_by: str | None
    effective_at: Instant
    issued_at: Instant


class CreditNote(ListedCreditNote, frozen=True, kw_only=True):
    """A credit note with its lines."""

    lines: list[CreditNoteLine]


class SeenCharge(msgspec.Struct, frozen=True, kw_only=True):
    """A charge in a window: amount = charged - reversed + posted."""

    charge: str
    instance_id: int
    meter: str
    segment_from: Instant
    quantity: int
    charged: Dollars
    reversed: Dollars
    posted: Dollars
    amount: Dollars
    documents: list[str]


class SeenCharges(msgspec.Struct, frozen=True, kw_only=True):
    """All charges of a window."""

    items: list[SeenCharge]


class Approval(msgspec.Struct, frozen=True, kw_only=True):
    """Somebody else may now do what the subject names, for a day, once."""

    subject: str
    actor: str


# --- corrections ---------------------------------------------------------------------------------


@get("/v1/corrections", opt=allowed(*ANYONE), summary="List corrections")
async def list_corrections(
    call: Caller,
    account_id: AccountFilter = None,
    instance_id: FromQuery[int | None] = None,
    charge: FromQuery[str | None] = None,
    limit: Limit = 100,
    cursor: Cursor = None,
) -> Page[Correction]:
    """List reversals and replacements; a host's key lists those on its machines."""
    account, host = call.sides(account_id)
    after = decode_cursor(cursor, int, 0)
    found = await call.question(
        lambda connection: ask.corrections(
            connection,
            account_id=account,
            host_id=host,
            instance_id=instance_id,
            charge=charge,
            after=after,
            limit=limit + 1,
        )
    )
    return page(Correction, found, limit, lambda one: one.correction_id)


@post("/v1/corrections", opt=allowed(*ADMIN), summary="Correct a charge")
async def correct(call: Caller, data: JSONBody[NewCorrection]) -> Response[Correction]:
    """Give back a charge, or part of it, or put another in its place; invoices get credit notes.

    Beyond depth 3 (corrections of corrections) it needs an approval of `correct <charge>`.
    """
    amount = None if data.amount is None else parse_amount(data.amount)
    instead = None if data.replace_with is None else parse_amount(data.replace_with)
    if amount is not None and instead is not None:
        message = "give `amount` to reverse or `replace_with` to replace, not both"
        raise RejectedError("invalid_args", message, status=400)
    since = instant(data.effective_at, "effective_at")

    def do(unit: Unit) -> Correction:
        corrections.check_reason(data.reason)
        charge = corrections.load_charge(unit.connection, data.charge)
        order = corrections.Order(
            reason=data.reason,
            by=_by(call, unit),
            effective_at=charge.segment_from if since is None else since,
        )
        if instead is not None:
            done, correction_id = corrections.replace(unit, charge, instead, order)
        else:
            left = charge.charged.remaining
            done = corrections.reverse(unit, charge, left if amount is None else amount, order)
            correction_id = done.correction_id
        if done is not None:
            credit_notes.note_reversals(unit, [done], order)
        (found,) = ask.corrections(unit.connection, after=correction_id - 1, limit=1)
        return render(Correction, found)

    return await call.command(do, 201)


@get("/v1/corrected-charges", opt=allowed(*ANYONE), summary="Charges as invoiced or as known")
async def corrected_charges(
    call: Caller,
    start: Annotated[str | None, QueryParameter(name="from")] = None,
    until: FromQuery[str | None] = None,
    view: Annotated[str, QueryParameter(name="as", pattern="^(known|invoiced)$")] = "known",
    known_at: FromQuery[str | None] = None,
    account_id: AccountFilter = None,
    instance_id: FromQuery[int | None] = None,
) -> SeenCharges:
    """Show the charges of a window as documents said them, or as they are (or were) known.

    With `known_at`, as they were known at that second: the same question gives the same answer,
    whatever was corrected since.
    """
    account = account_of(call, account_id)
    first, end = instant(start, "from"), instant(until, "until")
    second = instant(known_at, "known_at")
    now = call.ledger.clock()
    asked = ask.as_known if view == "known" else ask.as_invoiced
    found = await call.question(
        lambda connection: asked(
            connection,
            start=first or 0,
            until=now if end is None else end,
            account_id=account,
            instance_id=instance_id,
            known_at=second,
        )
    )
    return SeenCharges(items=render_all(SeenCharge, found))


# --- credit notes and approvals ------------------------------------------------------------------


@get("/v1/credit-notes", opt=allowed(*ANYONE), summary="List credit notes")
async def list_credit_notes(
    call: Caller, account_id: AccountFilter = None, limit: Limit = 100, cursor: Cursor = None
) -> Page[ListedCreditNote]:
    """List credit notes in the order of issue, without their lines."""
    account = call.view(account_id)
    after = decode_cursor(cursor, int, 0)
    found = await call.question(
        lambda connection: ask_notes.credit_notes(
            connection, account_id=account, after=after, limit=limit + 1
        )
    )
    return page(ListedCreditNote, found, limit, lambda one: one.position)


@get("/v1/credit-notes/{number:str}", opt=allowed(*ANYONE), summary="Show a credit note")
async def show_credit_note(call: Caller, number: FromPath[str]) -> CreditNote:
    """Show a credit note with its lines."""
    found = await call.question(lambda connection: ask_notes.credit_note(connection, number))
    if not call.sees_all and found.account_id != call.principal.account_id:
        raise NotFoundError("no_such_credit_note", f"there is no credit note {number!r}")
    return render(CreditNote, found)


@post("/v1/credit-notes", opt=allowed(*ADMIN), summary="Issue a credit note")
async def issue_credit_note(call: Caller, data: JSONBody[NewCreditNote]) -> Response[CreditNote]:
    """Give back part of an invoice: over the lines of usage, or to who paid for credit."""
    amount = parse_amount(data.amount)

    def do(unit: Unit) -> CreditNote:
        number = credit_notes.credit_note(
            unit,
            data.account_id,
            data.document,
            amount,
            data.reason,
            _by(call, unit),
            voids=data.void,
        )
        return _note(unit.connection, number)

    return await call.command(do, 201)


@post("/v1/approvals", opt=allowed(*ADMIN), summary="Agree as the second person")
async def approve(call: Caller, data: JSONBody[NewApproval]) -> Response[Approval]:
    """Agree that another admin (or, to file, the account) does what the subject names."""
    actor = account_actor(call.principal.account_id)

    def do(unit: Unit) -> Approval:
        approvals.approve(unit, data.subject, actor)
        return Approval(subject=data.subject, actor=actor)

    return await call.command(do, 201)


def _by(call: Call, unit: Unit) -> Authority:
    return Authority(account_actor(call.principal.account_id), unit.policy.version)


def _note(connection: Connection, number: str) -> CreditNote:
    return render(CreditNote, ask_notes.credit_note(connection, number))


HANDLERS = [
    list_corrections,
    correct,
    corrected_charges,
    list_credit_notes,
    show_credit_note,
    issue_credit_note,
    approve,
]
