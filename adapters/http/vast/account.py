"""The caller's account and its API keys."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from litestar import Response
from litestar.params import FromPath

from adapters.http.vast.call import ANYONE, Caller, endpoint
from adapters.http.vast.errors import unsupported
from adapters.http.vast.wire import Json, answer, mapping, money, names
from ledger.domain.events import Role
from ledger.errors import NotFoundError
from ledger.services import accounts as use_cases
from ledger.services.ledger import Unit
from ledger.services.questions import accounts as ask
from ledger.services.questions import balances
from ledger.services.questions.accounts import ApiKey
from ledger.store.database import Connection

_HOSTS: Final = frozenset({"host", "admin"})
_EMPTY: Final = (
    "billaddress_city",
    "billaddress_country",
    "billaddress_line1",
    "billaddress_line2",
    "billaddress_zip",
    "email",
    "fullname",
    "last4",
    "paypal_email",
    "ssh_key",
)
SCOPES: Final[dict[Role, frozenset[str]]] = {
    "renter": names(
        "instance_read instance_write user_read user_write billing_read billing_write misc",
    ),
    "host": names(
        "machine_read machine_write user_read user_write billing_read billing_write misc",
    ),
    "auditor": names(
        "instance_read machine_read billing_read user_read misc",
    ),
    "admin": names(
        "instance_read instance_write user_read user_write billing_read billing_write",
        "machine_read machine_write misc team_read team_write",
    ),
}
"""What a key of each role may do, in the words of these clients."""


@endpoint("GET", "/v0/users/current", roles=ANYONE)
async def current(call: Caller) -> Response[Any]:
    """Who one is, what one can spend, and what one is owed."""

    def find(connection: Connection) -> Json:
        account = ask.account(connection, call.ledger.vault, call.account_id)
        balance = balances.balance(connection, call.account_id, call.now)
        owed = balance.host_payable - balances.host_receivable(connection, call.account_id)
        return {
            **dict.fromkeys(_EMPTY, ""),
            "id": call.account_id,
            "user": account.name or "",
            "username": account.name or "",
            "credit": money(balance.available),
            "balance": money(owed),
            "balance_threshold": 0,
            "balance_threshold_enabled": False,
            "billed_expected": money(balance.charged + balance.accrued),
            "billed_verified": money(balance.charged),
            "billing_creditonly": True,
            "can_pay": True,
            "email_verified": False,
            "got_signup_credit": False,
            "has_billing": balance.posted > 0,
            "has_payout": False,
            "paid_expected": money(balance.posted),
            "paid_verified": money(balance.posted),
            "password_resettable": False,
            "host_agreement_accepted": call.role in _HOSTS,
            "held": money(balance.held),
            "reserved": money(balance.locked),
            "burn_per_hour": money(balance.burn_per_hour),
            "rights": sorted(SCOPES[call.role]),
        }

    return answer(await call.question(find))


@endpoint("GET", "/v0/subaccounts", roles=ANYONE)
async def subaccounts(call: Caller) -> Response[Any]:
    """An account has none here."""
    del call
    return answer({"users": []})


# --- API keys -------------------------------------------------------------------------------------


@endpoint("GET", "/v0/auth/apikeys", roles=ANYONE)
async def api_keys(call: Caller) -> Response[Any]:
    """One's keys that are good, without their secrets."""
    found = await call.question(lambda connection: _good_keys(connection, call.account_id))
    return answer({"apikeys": [_key(one) for one in found]})


def _good_keys(connection: Connection, account_id: int) -> list[ApiKey]:
    return [one for one in ask.api_keys(connection, account_id) if one.revoked_at is None]


def _key(view: ApiKey) -> Json:
    return {
        "id": int(view.key_id, 16),
        "user_id": view.account_id,
        "key_id": view.key_id,
        "name": view.key_id,
        "rights": sorted(SCOPES[_role(view.role)]),
        "role": view.role,
        "team_id": None,
        "team_name": None,
        "created_at": view.created_at,
        "expires_at": view.expires_at,
        "last_used_at": view.last_used_at,
    }


def _role(name: str) -> Role:
    roles: dict[str, Role] = {one: one for one in SCOPES}
    return roles[name]


@endpoint("GET", "/v0/auth/apikeys/{key:str}", roles=ANYONE)
async def api_key(call: Caller, key: FromPath[str]) -> Response[Any]:
    """One of one's keys."""
    found = await call.question(lambda connection: _good_keys(connection, call.account_id))
    for one in found:
        if key in {str(int(one.key_id, 16)), one.key_id}:
            return answer(_key(one))
    raise NotFoundError("no_such_key", f"there is no key {key[:40]!r}")


@endpoint("POST", "/v0/auth/apikeys", roles=ANYONE)
async def create_api_key(call: Caller) -> Response[Any]:
    """Make a key that may do what the caller's may.

    A key for less than that is refused rather than made for more than was asked.
    """
    asked = mapping(call.body.get("permissions"), "permissions")
    scopes = mapping(asked.get("api", asked), "permissions")
    granted = SCOPES[call.role]
    missing = sorted(granted - scopes.keys())
    if scopes and (missing or any(scopes.values())):
        message = (
            "a key here may do all that its role may, and cannot be limited further yet: name all"
            f" of {', '.join(sorted(granted))} without constraints"
        )
        raise unsupported(message)

    def do(unit: Unit) -> Json:
        made = use_cases.create_key(unit, call.account_id, call.role)
        return {
            "success": True,
            "id": int(made.split("_")[1], 16),
            "key": made,
            "permissions": {"api": {one: {} for one in sorted(granted)}},
        }

    return await call.command(do)


@endpoint("DELETE", "/v0/auth/apikeys/{key:str}", roles=ANYONE)
async def delete_api_key(call: Caller, key: FromPath[str]) -> Response[Any]:
    """End a key; ending it again changes nothing."""

    def do(unit: Unit) -> Json:
        for one in ask.api_keys(unit.connection, call.account_id):
            if key in {str(int(one.key_id, 16)), one.key_id}:
                use_cases.revoke_key(unit, call.account_id, one.key_id)
                return {"success": True, "id": int(one.key_id, 16), "msg": "the key is revoked"}
        raise NotFoundError("no_such_key", f"there is no key {key[:40]!r}")

    return await call.command(do)


@endpoint("PUT", "/v0/commands/reset_apikey", roles=ANYONE)
async def reset_api_key(call: Caller) -> Response[Any]:
    """Make another key in the place of the caller's, which ends."""
    assert call.principal is not None
    old = call.principal.key_id

    def do(unit: Unit) -> Json:
        made = use_cases.create_key(unit, call.account_id, call.role)
        use_cases.revoke_key(unit, call.account_id, old)
        return {"success": True, "new_api_key": made}

    return await call.command(do)


ENDPOINTS: Sequence[Any] = [
    current,
    subaccounts,
    api_keys,
    api_key,
    create_api_key,
    delete_api_key,
    reset_api_key,
]
