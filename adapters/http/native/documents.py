"""Documents of every series, in the form that is asked for."""

from __future__ import annotations

from typing import Annotated, Any

import anyio.to_thread
import msgspec
from litestar import Request, Response, get
from litestar.datastructures import State
from litestar.params import FromPath, FromQuery, QueryParameter

from adapters.documents.forms import FORMS, form_of
from adapters.http.call import ANYONE, Caller, allowed
from adapters.http.native.accounts import AccountFilter, Cursor, Limit
from adapters.http.native.records import Invoice
from adapters.http.wire import Dollars, Instant, Page, decode_cursor, encode_cursor, render
from ledger.domain.money import format_dollars
from ledger.errors import NotFoundError
from ledger.services import invoicing
from ledger.services.ledger import encode
from ledger.services.questions import documents as ask
from ledger.services.questions import invoices as ask_usage
from ledger.store.database import Connection

_KINDS = "^(tax_invoice|usage_invoice|credit_note|self_billing)$"


class DocumentHead(msgspec.Struct, frozen=True, kw_only=True):
    """A document in a list. Only top-ups, and what is given back of them, bear tax."""

    number: str
    kind: str
    account_id: int
    net: Dollars
    tax: Dollars
    total: Dollars
    issued_at: Instant


class PreviewLine(msgspec.Struct, frozen=True, kw_only=True):
    """What the running period has consumed so far on one meter."""

    instance_id: int
    meter: str
    kind: str
    rate: Dollars
    quantity: int
    amount: Dollars
    late: bool
    used_from: Instant
    used_until: Instant


class Preview(msgspec.Struct, frozen=True, kw_only=True):
    """The usage invoice of the running period as far as it has come; nothing is issued."""

    account_id: int
    period_from: Instant
    period_until: Instant
    opening: Dollars
    movements: Dollars
    total: Dollars
    closing: Dollars
    lines: list[PreviewLine]


@get("/v1/documents", opt=allowed(*ANYONE), summary="List documents")
async def list_documents(
    call: Caller,
    account_id: AccountFilter = None,
    kind: Annotated[str | None, QueryParameter(pattern=_KINDS)] = None,
    limit: Limit = 100,
    cursor: Cursor = None,
) -> Page[DocumentHead]:
    """List documents of all series in the order of issue; `GET /v1/invoices/{number}` shows one."""
    account = call.view(account_id)
    after = decode_cursor(cursor, int, 0)
    found = await call.question(
        lambda connection: ask.documents(
            connection, account_id=account, kind=kind, after=after, limit=limit + 1
        )
    )
    more = len(found) > limit
    kept = found[:limit]
    return Page(
        items=[render(DocumentHead, one, total=_dollars(one)) for one in kept],
        next_cursor=encode_cursor(kept[-1].position) if more else None,
    )


@get("/v1/invoices/{number:str}", opt=allowed(*ANYONE), summary="Show a document")
async def show_document(
    call: Caller, request: Request[Any, Any, State], number: FromPath[str]
) -> Response[bytes]:
    """Show a document of any series: `INV-`, `USE-`, `CN-` or `SB-`.

    By its Accept header or by an ending (`.pdf`, `.html`, `.csv`, `.json`, `.xml`) as PDF, page,
    table, JSON or, for tax invoices and credit notes, EN 16931 e-invoice.
    """
    plain, _, ending = number.partition(".")
    form = ending or form_of(request.headers.get("accept", ""))
    if form not in FORMS:
        known = ", ".join(f".{one}" for one in FORMS)
        raise NotFoundError("no_such_invoice", f"a document ends in {known}, not in .{ending}")
    vault = call.ledger.vault

    def find(connection: Connection) -> bytes | ask.Document:
        owner = ask.owner(connection, plain)
        if not call.sees_all and owner != call.principal.account_id:
            raise NotFoundError("no_such_invoice", f"there is no document {plain!r}")
        if form == "json" and not ending and plain.startswith("USE-"):
            return encode(render(Invoice, ask_usage.invoice(connection, plain)))
        found = ask.document(connection, vault, plain)
        if call.principal.role == "auditor":
            # Auditors see references, not names.
            hidden = type(found.customer)(name=f"account {found.account_id}")
            return msgspec.structs.replace(found, customer=hidden)
        return found

    found = await call.question(find)
    if isinstance(found, bytes):
        return Response(found, media_type="application/json")
    made = await anyio.to_thread.run_sync(FORMS[form].make, found)
    headers = {
        "content-disposition": f'inline; filename="{plain}.{form}"',
        "vary": "accept",
        "x-content-type-options": "nosniff",
    }
    return Response(made, media_type=FORMS[form].media_type, headers=headers)


@get("/v1/invoice-preview", opt=allowed(*ANYONE), summary="Preview the running period")
async def preview(call: Caller, account_id: FromQuery[int | None] = None) -> Preview:
    """Show what the invoice of the running period would say if it were issued now."""
    account = call.view(account_id) or call.principal.account_id
    now = call.ledger.clock()
    found = await call.question(lambda connection: invoicing.preview(connection, account, now))
    return render(Preview, found)


def _dollars(one: ask.DocumentHead) -> str:
    return format_dollars(one.net + one.tax)


HANDLERS = [list_documents, show_document, preview]
