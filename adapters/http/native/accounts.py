"""Accounts, API keys, and the balance."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

import msgspec
from litestar import Response, delete, get, post, put
from litestar.params import FromPath, FromQuery, JSONBody, QueryParameter

from adapters.http.call import ADMIN, ANYONE, AUDITOR, Call, Caller, allowed
from adapters.http.wire import (
    MAX_PAGE,
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
from ledger.domain.money import format_dollars
from ledger.domain.permissions import parse_permissions, show_permissions
from ledger.errors import ForbiddenError
from ledger.services import accounts, api_keys, erasure
from ledger.services.ledger import Unit
from ledger.services.questions import accounts as ask
from ledger.services.questions import balances, books
from ledger.store.database import Connection

Limit = Annotated[int, QueryParameter(ge=1, le=MAX_PAGE, description="Rows on a page.")]
Cursor = Annotated[str | None, QueryParameter(description="`next_cursor` of the page before.")]
AccountFilter = Annotated[
    int | None, QueryParameter(description="Another account; for auditors and admins.")
]


class Account(msgspec.Struct, frozen=True, kw_only=True):
    """An account; `name` is null for auditors, and once its personal data were erased."""

    account_id: int
    name: str | None
    opened_at: Instant
    erased_at: Instant | None


class Me(msgspec.Struct, frozen=True, kw_only=True):
    """Whose key this is."""

    account_id: int
    name: str | None
    role: str
    key_id: str
    permissions: dict[str, Any] | None
    """What the key may do; null: all that its role may."""
    instance_id: int | None
    """Set for the key that an instance itself has."""


class NewAccount(Body):
    """A name that no other account has; it is kept encrypted, outside the log."""

    EXAMPLE: ClassVar[dict[str, Any]] = {"name": "alice"}

    name: str
    currency: str = "USD"


class NewKey(Body):
    """Only admins make keys for another account or with another role than their own."""

    EXAMPLE: ClassVar[dict[str, Any]] = {
        "role": "renter",
        "account_id": 2,
        "expires_at": "2027-01-01T00:00:00Z",
        "name": "laptop",
        "permissions": {"api": {"instance_read": {}, "billing_read": {}}},
    }

    role: Literal["renter", "host", "auditor", "admin"]
    account_id: Id | None = None
    expires_at: str | None = None
    name: str | None = None
    """What people call it."""
    permissions: dict[str, Any] | None = None
    """`{"api": {scope: {endpoint: {"constraints": {field: {"eq": 1}}}}}}`; an empty scope is all of
    it. Without permissions the key may do all that its role may."""


class Key(msgspec.Struct, frozen=True, kw_only=True):
    """An API key without its secret; `name` is null for auditors.

    `permissions` is null for a key that may do all that its role may. `instance_id` is set for the
    key that an instance itself has.
    """

    key_id: str
    account_id: int
    role: str
    created_at: Instant
    expires_at: Instant | None
    revoked_at: Instant | None
    last_used_at: Instant | None
    name: str | None
    permissions: dict[str, Any] | None
    instance_id: int | None


class Revoked(msgspec.Struct, frozen=True, kw_only=True):
    """This key is at its end."""

    key_id: str


class Named(msgspec.Struct, frozen=True, kw_only=True):
    """This key has another name."""

    key_id: str


class KeySecret(msgspec.Struct, frozen=True, kw_only=True):
    """The key itself, shown this once."""

    key: str
    account_id: int
    role: str


class KeyName(Body):
    """What people call it; null: nothing."""

    EXAMPLE: ClassVar[dict[str, Any]] = {"name": "laptop"}

    name: str | None
    account_id: Id | None = None


class Balance(msgspec.Struct, frozen=True, kw_only=True):
    """Credit to the nano: available = posted - charged - held - accrued - locked - lapsed.

    Of it `promotional` can only be spent; `lapsed` is left of grants that ended.
    """

    account_id: int
    at: Instant
    posted: Dollars
    charged: Dollars
    held: Dollars
    accrued: Dollars
    locked: Dollars
    promotional: Dollars
    lapsed: Dollars
    available: Dollars
    burn_per_hour: Dollars
    runway_seconds: int | None
    exhausted_at: Instant | None
    debt_limit: Dollars | None
    host_payable: Dollars


class TrialBalanceRow(msgspec.Struct, frozen=True, kw_only=True):
    """One ledger account."""

    ledger_account: str
    debit: Dollars
    credit: Dollars


class TrialBalance(msgspec.Struct, frozen=True, kw_only=True):
    """Every ledger account; debits minus credits is always 0."""

    rows: list[TrialBalanceRow]
    difference: Dollars


@get("/v1/me", opt=allowed(*ANYONE), summary="Whose key this is")
async def me(call: Caller) -> Me:
    """Show the account and role of the key in use."""
    principal = call.principal
    found = await call.question(
        lambda connection: ask.account(connection, call.ledger.vault, principal.account_id)
    )
    return Me(
        account_id=principal.account_id,
        name=found.name,
        role=principal.role,
        key_id=principal.key_id,
        permissions=None if principal.grants is None else show_permissions(principal.grants),
        instance_id=principal.instance_id,
    )


@post("/v1/accounts", opt=allowed(*ADMIN), summary="Open an account")
async def open_account(call: Caller, data: JSONBody[NewAccount]) -> Response[Account]:
    """Open an account under a new name (`name_taken` otherwise)."""

    def do(unit: Unit) -> Account:
        account_id = accounts.open_account(unit, data.name, currency=data.currency)
        return render(Account, ask.account(unit.connection, unit.vault, account_id))

    return await call.command(do, 201)


@get("/v1/accounts", opt=allowed(*AUDITOR), summary="List accounts")
async def list_accounts(call: Caller, limit: Limit = 100, cursor: Cursor = None) -> Page[Account]:
    """List all accounts by id; auditors see references, not names."""
    after = decode_cursor(cursor, int, 0)
    vault = call.ledger.vault
    found = await call.question(
        lambda connection: ask.accounts(connection, vault, after=after, limit=limit + 1)
    )
    return page(Account, [_seen(call, one) for one in found], limit, lambda one: one.account_id)


@get("/v1/accounts/{account_id:int}", opt=allowed(*AUDITOR), summary="Show an account")
async def show_account(call: Caller, account_id: FromPath[int]) -> Account:
    """Show one account; auditors see references, not names."""
    vault = call.ledger.vault
    found = await call.question(lambda connection: ask.account(connection, vault, account_id))
    return render(Account, _seen(call, found))


def _seen(call: Call, account: ask.Account) -> ask.Account:
    """The account as this caller may see it: a name is personal (`marketplace.md` §20)."""
    return account if call.is_admin else msgspec.structs.replace(account, name=None)


@delete(
    "/v1/accounts/{account_id:int}/personal-data",
    opt=allowed(*ADMIN),
    status_code=200,
    summary="Erase personal data",
)
async def erase(call: Caller, account_id: FromPath[int]) -> Response[Account]:
    """Destroy the key of an account's personal data; its books stay as they are."""

    def do(unit: Unit) -> Account:
        erasure.erase_subject(unit, account_id)
        return render(Account, ask.account(unit.connection, unit.vault, account_id))

    return await call.command(do)


@post("/v1/keys", opt=allowed(*ANYONE), summary="Make an API key")
async def make_key(call: Caller, data: JSONBody[NewKey]) -> Response[KeySecret]:
    """Make a key; its secret is in this answer and nowhere else.

    A key makes keys that may no more, and live no longer, than itself.
    """
    account_id = call.account(data.account_id)
    if not call.is_admin and data.role != call.principal.role:
        message = f"a key of role {call.principal.role} makes keys of its own role"
        raise ForbiddenError("not_authorized", message)
    expires_at = instant(data.expires_at, "expires_at")
    grants = None if data.permissions is None else parse_permissions(data.permissions)
    api_keys.require_not_more(call.principal, grants=grants, expires_at=expires_at)

    def do(unit: Unit) -> KeySecret:
        key = api_keys.create_key(
            unit, account_id, data.role, expires_at=expires_at, grants=grants, name=data.name
        )
        return KeySecret(key=key, account_id=account_id, role=data.role)

    return await call.command(do, 201, secret=True)


@get("/v1/keys", opt=allowed(*ANYONE), summary="List API keys")
async def list_keys(
    call: Caller, account_id: AccountFilter = None, limit: Limit = 100, cursor: Cursor = None
) -> Page[Key]:
    """List the keys of an account, without secrets, oldest first."""
    account = call.view(account_id) or call.principal.account_id
    after = decode_cursor(cursor, tuple[int, str], (-1, ""))
    is_mine = account == call.principal.account_id
    vault = call.ledger.vault if call.is_admin or is_mine else None
    found = await call.question(
        lambda connection: ask.api_keys(
            connection, account, vault=vault, after=after, limit=limit + 1
        )
    )
    return page(Key, found, limit, lambda one: (one.created_at, one.key_id))


@delete("/v1/keys/{key_id:str}", opt=allowed(*ANYONE), status_code=200, summary="Revoke a key")
async def revoke_key(
    call: Caller, key_id: FromPath[str], account_id: AccountFilter = None
) -> Response[Revoked]:
    """End a key at once; again changes nothing."""
    account = call.account(account_id)

    def do(unit: Unit) -> Revoked:
        api_keys.revoke_key(unit, account, key_id)
        return Revoked(key_id=key_id)

    return await call.command(do)


@put("/v1/keys/{key_id:str}", opt=allowed(*ANYONE), summary="Rename an API key")
async def rename_key(
    call: Caller, key_id: FromPath[str], data: JSONBody[KeyName]
) -> Response[Named]:
    """Call a key by another name; what it may do never changes."""
    account = call.account(data.account_id)

    def do(unit: Unit) -> Named:
        _require_not_more(call, unit, account, key_id)
        api_keys.rename_key(unit, account, key_id, data.name)
        return Named(key_id=key_id)

    return await call.command(do)


@post(
    "/v1/keys/{key_id:str}/reset",
    opt=allowed(*ANYONE),
    status_code=200,
    summary="Reset an API key",
)
async def reset_key(
    call: Caller, key_id: FromPath[str], account_id: AccountFilter = None
) -> Response[KeySecret]:
    """Give a key another secret, shown this once; the old one is dead at once."""
    account = call.account(account_id)

    def do(unit: Unit) -> KeySecret:
        known = _require_not_more(call, unit, account, key_id)
        key = api_keys.reset_key(unit, account, key_id)
        return KeySecret(key=key, account_id=account, role=known.role)

    return await call.command(do, secret=True)


def _require_not_more(call: Call, unit: Unit, account_id: int, key_id: str) -> api_keys.KnownKey:
    """The key that is to be changed, if it may no more than the caller's."""
    known = api_keys.require_key(unit.connection, account_id, key_id)
    if not call.is_admin and known.role != call.principal.role:
        message = f"a key of role {call.principal.role} changes keys of its own role"
        raise ForbiddenError("not_authorized", message)
    api_keys.require_not_more(call.principal, grants=known.grants, expires_at=known.expires_at)
    return known


@get("/v1/balance", opt=allowed(*ANYONE), summary="Balance, burn and runway")
async def show_balance(call: Caller, account_id: AccountFilter = None) -> Balance:
    """Show what is there, what burns, and how long that lasts, as of this second."""
    account = call.view(account_id) or call.principal.account_id
    now = call.ledger.clock()
    found = await call.question(lambda connection: balances.balance(connection, account, now))
    return render(Balance, found)


@get("/v1/trial-balance", opt=allowed(*AUDITOR), summary="The trial balance")
async def show_trial_balance(call: Caller, as_of: FromQuery[str | None] = None) -> TrialBalance:
    """Show debits and credits of every ledger account, now or as of an instant."""
    second = instant(as_of, "as_of")

    def run(connection: Connection) -> list[balances.TrialBalanceRow]:
        if second is None:
            return balances.trial_balance(connection)
        return books.trial_balance_at(connection, second)

    rows = await call.question(run)
    difference = format_dollars(sum(row.debit - row.credit for row in rows))
    return TrialBalance(rows=render_all(TrialBalanceRow, rows), difference=difference)


HANDLERS = [
    me,
    open_account,
    list_accounts,
    show_account,
    erase,
    make_key,
    list_keys,
    revoke_key,
    rename_key,
    reset_key,
    show_balance,
    show_trial_balance,
]
