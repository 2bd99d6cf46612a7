"""Usage statements, and the proof of each of their lines."""

from __future__ import annotations

import msgspec
from litestar import get
from litestar.params import FromPath

from adapters.http.call import ANYONE, Call, Caller, allowed
from adapters.http.native.accounts import AccountFilter, Cursor, Limit
from adapters.http.wire import (
    Dollars,
    Instant,
    Page,
    decode_cursor,
    instant,
    page,
    render,
    render_all,
)
from ledger.services.questions import statements as ask


class Statement(msgspec.Struct, frozen=True, kw_only=True):
    """What an account consumed on a UTC day. The root proves every line."""

    account_id: int
    day: Instant
    lines: int
    total: Dollars
    merkle_root: str
    issued_at: Instant


class StatementLine(msgspec.Struct, frozen=True, kw_only=True):
    """One charge on one day; a late line adds to the day it names."""

    charge: str
    instance_id: int
    meter: str
    kind: str
    segment_from: Instant
    rate: Dollars
    quantity: int
    amount: Dollars
    fee: Dollars
    late: bool
    used_day: Instant
    used_from: Instant
    used_until: Instant


class FullStatement(msgspec.Struct, frozen=True, kw_only=True):
    """A statement with its lines, in the order of the tree's leaves."""

    statement: Statement
    lines: list[StatementLine]


class Proof(msgspec.Struct, frozen=True, kw_only=True):
    """What proves a line: its bytes as they are hashed, and the neighbours on the way to the root.

    leaf = SHA-256(0x00 ‖ bytes), node = SHA-256(0x01 ‖ left ‖ right); an odd node moves up.
    """

    account_id: int
    day: Instant
    line: int
    lines: int
    bytes: str
    path: list[str]
    merkle_root: str


@get("/v1/statements", opt=allowed(*ANYONE), summary="List usage statements")
async def list_statements(
    call: Caller, account_id: AccountFilter = None, limit: Limit = 100, cursor: Cursor = None
) -> Page[Statement]:
    """List daily statements in the order of issue."""
    account = call.view(account_id)
    after = decode_cursor(cursor, int, 0)
    found = await call.question(
        lambda connection: ask.statements(
            connection, account_id=account, after=after, limit=limit + 1
        )
    )
    return page(Statement, found, limit, lambda one: one.position)


@get("/v1/statements/{day:str}", opt=allowed(*ANYONE), summary="Show a usage statement")
async def show_statement(
    call: Caller, day: FromPath[str], account_id: AccountFilter = None
) -> FullStatement:
    """Show the statement of a UTC day, such as 2026-03-02, with its lines."""
    account, first = account_of(call, account_id), _day(day)
    head, lines = await call.question(lambda connection: ask.statement(connection, account, first))
    return FullStatement(statement=render(Statement, head), lines=render_all(StatementLine, lines))


@get(
    "/v1/statements/{day:str}/lines/{line:int}/proof",
    opt=allowed(*ANYONE),
    summary="Prove a line",
)
async def prove_line(
    call: Caller, day: FromPath[str], line: FromPath[int], account_id: AccountFilter = None
) -> Proof:
    """Give the hashes that prove line number `line` (from 0) under the statement's root."""
    account, first = account_of(call, account_id), _day(day)
    found = await call.question(lambda connection: ask.proof(connection, account, first, line))
    return render(Proof, found)


def account_of(call: Call, account_id: int | None) -> int:
    """The account that is asked about, or one's own."""
    return call.view(account_id) or call.principal.account_id


def _day(text: str) -> int:
    second = instant(f"{text}T00:00:00Z", "day")
    assert second is not None
    return second


HANDLERS = [list_statements, show_statement, prove_line]
