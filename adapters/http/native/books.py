"""The books as of any instant: statements of accounts, the general ledger, balances."""

from __future__ import annotations

from typing import Annotated

import msgspec
from litestar import get
from litestar.params import FromPath, FromQuery, QueryParameter

from adapters.http.call import ANYONE, AUDITOR, Caller, allowed
from adapters.http.native.accounts import AccountFilter, Cursor, Limit
from adapters.http.native.statements import account_of
from adapters.http.wire import (
    Dollars,
    Instant,
    Page,
    decode_cursor,
    encode_cursor,
    instant,
    page,
    render_all,
)
from ledger.domain.money import format_dollars
from ledger.services.questions import books as ask

Start = Annotated[
    str | None, QueryParameter(name="from", description="First second; before it is `opening`.")
]
LedgerAccount = Annotated[
    str, QueryParameter(description="Such as `renter_credit`, `host_payable`, `reserved_deposit`.")
]


class BookLine(msgspec.Struct, frozen=True, kw_only=True):
    """A line of a ledger account, the account on the other side, and the balance after it."""

    posted_at: Instant
    kind: str
    reference: str
    ledger_account: str
    account_id: int | None
    other: str
    other_account: int | None
    amount: Dollars
    balance: Dollars
    position: int


class BookLines(msgspec.Struct, frozen=True, kw_only=True):
    """A page of lines. `opening` and `closing` are those of the whole window, on every page."""

    ledger_account: str
    account_id: int | None
    opening: Dollars
    closing: Dollars
    items: list[BookLine]
    next_cursor: str | None


class BookBalance(msgspec.Struct, frozen=True, kw_only=True):
    """Debits minus credits of a ledger account and person; `journal_account` as exports name it."""

    journal_account: str
    ledger_account: str
    account_id: int | None
    balance: Dollars


@get("/v1/account-statement", opt=allowed(*ANYONE), summary="The statement of an account")
async def show_account_statement(
    call: Caller,
    ledger_account: LedgerAccount = "renter_credit",
    account_id: AccountFilter = None,
    start: Start = None,
    as_of: FromQuery[str | None] = None,
    limit: Limit = 100,
    cursor: Cursor = None,
) -> BookLines:
    """Show what an account had, what moved it, and what it has; what it has is above zero."""
    account = account_of(call, account_id)
    first, last = instant(start, "from"), instant(as_of, "as_of")
    after = decode_cursor(cursor, str, "")
    found = await call.question(
        lambda connection: ask.account_statement(
            connection,
            account,
            ledger_account,
            start=first or 0,
            as_of=ask.FOREVER if last is None else last,
            after=after,
            limit=limit + 1,
        )
    )
    return _lines(found, limit)


@get(
    "/v1/general-ledger/{ledger_account:str}",
    opt=allowed(*AUDITOR),
    summary="The general ledger",
)
async def show_general_ledger(
    call: Caller,
    ledger_account: FromPath[str],
    start: Start = None,
    as_of: FromQuery[str | None] = None,
    limit: Limit = 100,
    cursor: Cursor = None,
) -> BookLines:
    """Show the lines of one ledger account with its running balance: debits minus credits."""
    first, last = instant(start, "from"), instant(as_of, "as_of")
    after = decode_cursor(cursor, str, "")
    found = await call.question(
        lambda connection: ask.general_ledger(
            connection,
            ledger_account,
            start=first or 0,
            as_of=ask.FOREVER if last is None else last,
            after=after,
            limit=limit + 1,
        )
    )
    return _lines(found, limit)


@get("/v1/book-balances", opt=allowed(*AUDITOR), summary="Balances of all ledger accounts")
async def list_book_balances(
    call: Caller,
    as_of: FromQuery[str | None] = None,
    limit: Limit = 100,
    cursor: Cursor = None,
) -> Page[BookBalance]:
    """List what every ledger account of every person stands at, now or as of an instant."""
    last = instant(as_of, "as_of")
    after = decode_cursor(cursor, str, "")
    found = await call.question(
        lambda connection: ask.balances_at(
            connection, ask.FOREVER if last is None else last, after=after, limit=limit + 1
        )
    )
    return page(
        BookBalance, found, limit, lambda one: f"{one.ledger_account}:{one.account_id or 0}"
    )


def _lines(found: ask.Statement, limit: int) -> BookLines:
    kept = found.lines[:limit]
    more = len(found.lines) > limit
    return BookLines(
        ledger_account=found.ledger_account,
        account_id=found.account_id,
        opening=format_dollars(found.opening),
        closing=format_dollars(found.closing),
        items=render_all(BookLine, kept),
        next_cursor=encode_cursor(kept[-1].key) if more else None,
    )


HANDLERS = [show_account_statement, show_general_ledger, list_book_balances]
