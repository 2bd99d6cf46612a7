"""Who called what in an account's name, when, and from where."""

from __future__ import annotations

from typing import Any

import anyio.to_thread
import msgspec
from litestar import Request, get
from litestar.datastructures import State

from adapters.http.access import AccessWriter
from adapters.http.call import ANYONE, PAYER, Caller, allowed
from adapters.http.native.accounts import AccountFilter, Cursor, Limit
from adapters.http.wire import Instant, Page, decode_cursor, page
from ledger.services import access_log as ask


class AuditEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One call: commands of all, and readings of auditors and admins; kept for 90 days.

    Of the path numbers are shown, texts are not. `address` is null for auditors, and once the
    account's personal data were erased.
    """

    entry_id: int
    at: Instant
    account_id: int
    key_id: str
    role: str
    endpoint: str
    method: str
    path: str
    status: int
    address: str | None


class Address(msgspec.Struct, frozen=True, kw_only=True):
    """An address from which an account was used, in the last 90 days."""

    address_id: int
    account_id: int
    address: str | None
    first_seen: Instant
    last_seen: Instant


@get("/v1/audit-log", opt=allowed(*ANYONE), summary="Who called what")
async def list_calls(
    request: Request[Any, Any, State],
    call: Caller,
    account_id: AccountFilter = None,
    limit: Limit = 100,
    cursor: Cursor = None,
) -> Page[AuditEntry]:
    """List calls in one's own name, or in anybody's for auditors and admins; the newest first."""
    await _written(request)
    before = decode_cursor(cursor, int | None, None)  # type: ignore[arg-type]  # msgspec takes unions
    account = call.view(account_id)
    is_mine = account == call.principal.account_id
    vault = call.ledger.vault if call.is_admin or is_mine else None
    found = await call.question(
        lambda connection: ask.audit_log(connection, vault, account, before=before, limit=limit + 1)
    )
    return page(AuditEntry, found, limit, lambda one: one.entry_id)


@get("/v1/addresses", opt=allowed(*PAYER), summary="From where an account was used")
async def list_addresses(
    request: Request[Any, Any, State],
    call: Caller,
    account_id: AccountFilter = None,
    limit: Limit = 100,
    cursor: Cursor = None,
) -> Page[Address]:
    """List the addresses from which one's account was used; those of all for admins."""
    await _written(request)
    after, vault = decode_cursor(cursor, int, 0), call.ledger.vault
    account = call.view(account_id)
    found = await call.question(
        lambda connection: ask.addresses(connection, vault, account, after=after, limit=limit + 1)
    )
    return page(Address, found, limit, lambda one: one.address_id)


async def _written(request: Request[Any, Any, State]) -> None:
    """Let this process's own entries be there, so that one sees what one just did."""
    writer: AccessWriter = request.app.state.access
    await anyio.to_thread.run_sync(writer.flush)


HANDLERS = [list_calls, list_addresses]
