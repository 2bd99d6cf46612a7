"""What auditors and accountants read: invoices, anomalies, and the log itself."""

from __future__ import annotations

from typing import Any

import msgspec
from litestar import get
from litestar.params import FromPath, FromQuery

from adapters.http.call import ANYONE, AUDITOR, Caller, allowed
from adapters.http.native.accounts import AccountFilter, Cursor, Limit
from adapters.http.wire import Dollars, Instant, Page, decode_cursor, page
from ledger.services.questions import events as log
from ledger.services.questions import invoices as ask
from ledger.services.questions import usage


class InvoiceLine(msgspec.Struct, frozen=True, kw_only=True):
    """A line: seconds or bytes at a rate; exact, and in whole cents that add up."""

    line: int
    instance_id: int
    meter: str
    kind: str
    rate: Dollars
    quantity: int
    amount: Dollars
    cents: int
    late: bool
    segment_from: Instant
    period_from: Instant
    used_from: Instant
    used_until: Instant


class Invoice(msgspec.Struct, frozen=True, kw_only=True):
    """A usage invoice. opening + movements - total = closing.

    `status` is paid, issued (an amount is due) or void; `promotional` is what grants paid of it.
    """

    number: str
    account_id: int
    period_from: Instant
    period_until: Instant
    opening: Dollars
    movements: Dollars
    total: Dollars
    total_cents: int
    closing: Dollars
    paid: Dollars
    due: Dollars
    promotional: Dollars
    status: str
    issued_at: Instant
    lines: list[InvoiceLine]


class Anomaly(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds `[start, until)` that were attested, stored and not billed, with the reason."""

    machine_id: int
    instance_id: int | None
    code: str
    severity: str
    start: Instant
    until: Instant
    amount: int
    position: int


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """An event of the log; `count` is how many positions it takes (a report: one per tick)."""

    position: int
    count: int
    stream: str
    version: int
    topic: str
    recorded_at: Instant
    state: dict[str, Any]
    sha256: str
    signature: str | None


@get("/v1/invoices", opt=allowed(*ANYONE), summary="List invoices")
async def list_invoices(
    call: Caller, account_id: AccountFilter = None, limit: Limit = 100, cursor: Cursor = None
) -> Page[Invoice]:
    """List invoices in the order of issue, without their lines."""
    account = call.view(account_id)
    after = decode_cursor(cursor, int, 0)
    found = await call.question(
        lambda connection: ask.invoices(
            connection, account_id=account, after=after, limit=limit + 1
        )
    )
    return page(Invoice, found, limit, lambda one: one.position)


@get("/v1/anomalies", opt=allowed(*ANYONE), summary="List anomalies")
async def list_anomalies(
    call: Caller,
    account_id: AccountFilter = None,
    machine_id: FromQuery[int | None] = None,
    instance_id: FromQuery[int | None] = None,
    limit: Limit = 100,
    cursor: Cursor = None,
) -> Page[Anomaly]:
    """List what was not billed: of one's instances, or, with a host's key, of one's machines."""
    account, host = call.sides(account_id)
    after = decode_cursor(cursor, tuple[int, int, str, int], (0, -1, "", 0))
    found = await call.question(
        lambda connection: usage.anomalies(
            connection,
            machine_id=machine_id,
            host_id=host,
            instance_id=instance_id,
            account_id=account,
            after=after,
            limit=limit + 1,
        )
    )
    return page(
        Anomaly,
        found,
        limit,
        lambda one: (one.machine_id, one.instance_id or 0, one.code, one.start),
    )


@get("/v1/events", opt=allowed(*AUDITOR), summary="Read the log")
async def list_events(call: Caller, limit: Limit = 100, cursor: Cursor = None) -> Page[Event]:
    """Read the log page by page, in its one order."""
    after = decode_cursor(cursor, int, 0)
    found = await call.question(
        lambda connection: log.events(connection, after=after, limit=limit + 1)
    )
    return page(Event, found, limit, lambda one: one.position)


@get("/v1/events/{stream:str}", opt=allowed(*AUDITOR), summary="Read one stream")
async def list_stream(
    call: Caller, stream: FromPath[str], limit: Limit = 100, cursor: Cursor = None
) -> Page[Event]:
    """Read one stream of the log, such as `instance-7` or `usage-3-<epoch>`."""
    after = decode_cursor(cursor, int, 0)
    found = await call.question(
        lambda connection: log.stream_events(connection, stream, after=after, limit=limit + 1)
    )
    return page(Event, found, limit, lambda one: one.version)


HANDLERS = [list_invoices, list_anomalies, list_events, list_stream]
