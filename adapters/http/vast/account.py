"""The caller's account and its API keys."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from litestar import Response
from litestar.params import FromPath

from adapters.http.vast.call import ANYONE, RENTER, Call, Caller, endpoint
from adapters.http.vast.errors import unsupported
from adapters.http.vast.wire import Json, answer, mapping, money, names, text
from ledger.domain.events import Grant, Role
from ledger.domain.permissions import parse_permissions, show_permissions
from ledger.errors import NotFoundError
from ledger.services import api_keys as use_cases
from ledger.services import ssh_keys
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
_PROFILE: Final = (
    "an account here has no billing address, card, password or threshold: credit is bought, and"
    " automatic charges are agreed to, at the native API"
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


@endpoint("GET", "/v0/users/current", roles=ANYONE, needs=("api.user.me", "api.user.show_balance"))
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


@endpoint("GET", "/v0/subaccounts", roles=ANYONE, needs="api.user.me")
async def subaccounts(call: Caller) -> Response[Any]:
    """An account has none here."""
    del call
    return answer({"users": []})


@endpoint("PUT", "/v0/users", roles=RENTER, needs="api.user.add_ssh_key")
async def set_user(call: Caller) -> Response[Any]:
    """Keep an ssh key; everything else that these clients can set has no meaning here."""
    wanted = sorted(name for name, value in call.body.items() if value not in {None, ""})
    line = text(call.body.get("ssh_key"), "ssh_key")
    if wanted != ["ssh_key"] or line is None:
        shown = ", ".join(f"`{one[:40]}`" for one in wanted if one != "ssh_key") or "nothing"
        msg = f"{shown} to set: only `ssh_key` is, and {_PROFILE}"
        raise unsupported(msg)

    def do(unit: Unit) -> Json:
        made = ssh_keys.add_key(unit, call.account_id, line)
        return {"success": True, "msg": f"ssh key {made} opens every later instance"}

    return await call.command(do)


# --- API keys -------------------------------------------------------------------------------------


@endpoint("GET", "/v0/auth/apikeys", roles=ANYONE, needs="api.user.list_keys")
async def api_keys(call: Caller) -> Response[Any]:
    """One's keys that are good, without their secrets; those of instances too."""
    found = await call.question(lambda connection: _good_keys(connection, call))
    return answer({"apikeys": [_key(one) for one in found]})


def _good_keys(connection: Connection, call: Call) -> list[ApiKey]:
    found = ask.api_keys(connection, call.account_id, vault=call.ledger.vault)
    return [one for one in found if one.revoked_at is None]


def _key(view: ApiKey) -> Json:
    scopes = SCOPES[_role(view.role)]
    if view.permissions is not None:
        scopes = scopes & view.permissions["api"].keys()
    return {
        "id": int(view.key_id, 16),
        "user_id": view.account_id,
        "key_id": view.key_id,
        "name": view.name or view.key_id,
        "rights": sorted(scopes),
        "permissions": view.permissions,
        "instance_id": view.instance_id,
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


@endpoint("GET", "/v0/auth/apikeys/{key:str}", roles=ANYONE, needs="api.user.list_keys")
async def api_key(call: Caller, key: FromPath[str]) -> Response[Any]:
    """One of one's keys."""
    found = await call.question(lambda connection: _good_keys(connection, call))
    for one in found:
        if key in {str(int(one.key_id, 16)), one.key_id}:
            return answer(_key(one))
    raise NotFoundError("no_such_key", f"there is no key {key[:40]!r}")


@endpoint("POST", "/v0/auth/apikeys", roles=ANYONE, needs="api.user.make_key")
async def create_api_key(call: Caller) -> Response[Any]:
    """Make a key of the caller's role that may do what is asked, and no more than the caller's.

    Endpoints in permissions are those of the native API; one that there is not opens nothing.
    """
    assert call.principal is not None
    grants = _grants(call.body.get("permissions"))
    name = text(call.body.get("name"), "name") or None
    expires_at = call.principal.expires_at
    use_cases.require_not_more(call.principal, grants=grants, expires_at=expires_at)
    unknown = sorted(
        {one.endpoint for one in grants or () if one.endpoint and not call.knows(one.endpoint)}
    )

    def do(unit: Unit) -> Json:
        made = use_cases.create_key(
            unit, call.account_id, call.role, expires_at=expires_at, grants=grants, name=name
        )
        shown = show_permissions(grants) if grants is not None else _everything(call.role)
        return {
            "success": True,
            "id": int(made.split("_")[1], 16),
            "key": made,
            "permissions": shown,
            "unknown_endpoints": unknown,
        }

    return await call.command(do)


def _grants(asked: Any) -> list[Grant] | None:
    """The permissions of a new key; none: all that its role may.

    Raises:
        RejectedError: `invalid_permissions`; nothing that is not understood makes a broader key.
    """
    if asked is None:
        return None
    given = mapping(asked, "permissions")
    return parse_permissions(given if "api" in given else {"api": given})


def _everything(role: Role) -> Json:
    return {"api": {one: {} for one in sorted(SCOPES[role])}}


@endpoint("DELETE", "/v0/auth/apikeys/{key:str}", roles=ANYONE, needs="api.user.revoke_key")
async def delete_api_key(call: Caller, key: FromPath[str]) -> Response[Any]:
    """End a key; ending it again changes nothing."""

    def do(unit: Unit) -> Json:
        for one in ask.api_keys(unit.connection, call.account_id):
            if key in {str(int(one.key_id, 16)), one.key_id}:
                use_cases.revoke_key(unit, call.account_id, one.key_id)
                return {"success": True, "id": int(one.key_id, 16), "msg": "the key is revoked"}
        raise NotFoundError("no_such_key", f"there is no key {key[:40]!r}")

    return await call.command(do)


@endpoint("PUT", "/v0/commands/reset_apikey", roles=ANYONE, needs="api.user.reset_key")
async def reset_api_key(call: Caller) -> Response[Any]:
    """Give the caller's key another secret; the old text is dead at once."""
    assert call.principal is not None
    key_id = call.principal.key_id

    def do(unit: Unit) -> Json:
        return {
            "success": True,
            "new_api_key": use_cases.reset_key(unit, call.account_id, key_id),
        }

    return await call.command(do)


ENDPOINTS: Sequence[Any] = [
    current,
    subaccounts,
    set_user,
    api_keys,
    api_key,
    create_api_key,
    delete_api_key,
    reset_api_key,
]
