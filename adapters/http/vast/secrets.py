"""Variables of an account: put into the environment of its later launches, shown to itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from litestar import Response

from adapters.http.vast.call import RENTER, Call, Caller, endpoint
from adapters.http.vast.permissions import in_body
from adapters.http.vast.wire import Json, answer, text
from ledger.errors import RejectedError
from ledger.services import secrets as use_cases
from ledger.services.ledger import Unit


@endpoint("GET", "/v0/secrets", roles=RENTER, needs="api.user.list_secrets")
async def listed(call: Caller) -> Response[Any]:
    """One's own variables with their values."""
    vault, account = call.ledger.vault, call.account_id
    found = await call.question(lambda connection: use_cases.secrets_of(connection, vault, account))
    shown = {one.name: one.value for one in found if one.name is not None}
    return answer({"success": True, "secrets": shown})


@endpoint(
    "POST", "/v0/secrets", roles=RENTER, needs="api.user.set_secret", naming=in_body("key", "name")
)
async def create(call: Caller) -> Response[Any]:
    """Keep a value under a name, instead of the one that it had."""
    return await _set(call)


@endpoint(
    "PUT", "/v0/secrets", roles=RENTER, needs="api.user.set_secret", naming=in_body("key", "name")
)
async def update(call: Caller) -> Response[Any]:
    """Keep another value under a name; launches that were made keep the old one."""
    return await _set(call)


async def _set(call: Call) -> Response[Any]:
    name, value = _name(call.body), text(call.body.get("value"), "value")
    if value is None:
        raise RejectedError("invalid_args", "name a `value`")

    def do(unit: Unit) -> Json:
        use_cases.set_secret(unit, call.account_id, name, value)
        return {"success": True, "key": name, "msg": "later launches have it; own values win"}

    return await call.command(do)


@endpoint(
    "DELETE",
    "/v0/secrets",
    roles=RENTER,
    needs="api.user.remove_secret",
    naming=in_body("key", "name"),
)
async def remove(call: Caller) -> Response[Any]:
    """Destroy a variable; launches that were made with it keep its value."""
    name = _name(call.body)

    def do(unit: Unit) -> Json:
        use_cases.remove_secret(unit, call.account_id, name)
        return {"success": True, "key": name, "msg": f"{name} is removed"}

    return await call.command(do)


def _name(body: Json) -> str:
    name = text(body.get("key"), "key")
    if not name:
        raise RejectedError("invalid_args", "name a `key`")
    return name


ENDPOINTS: Sequence[Any] = [listed, create, update, remove]
