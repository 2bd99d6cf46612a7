"""Public ssh keys of an account, and the instances that they open."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from litestar import Response
from litestar.params import FromPath

from adapters.http.vast.call import ANYONE, RENTER, Caller, endpoint
from adapters.http.vast.wire import Json, answer, text
from ledger.errors import NotFoundError, RejectedError
from ledger.services import rentals
from ledger.services import ssh_keys as use_cases
from ledger.services.ledger import Unit
from ledger.services.questions import instances as ask
from ledger.services.ssh_keys import KeptSshKey
from ledger.store.database import Connection


def _row(one: KeptSshKey, account_id: int) -> Json:
    line = None if one.key is None else one.key.line
    return {
        "id": one.ssh_key_id,
        "user_id": account_id,
        "key": line,
        "public_key": line,
        "fingerprint": None if one.key is None else one.key.fingerprint,
        "created_at": one.added_at,
        "deleted_at": None,
    }


def _line(body: Json) -> str:
    line = text(body.get("ssh_key"), "ssh_key")
    if not line:
        raise RejectedError("invalid_args", "name an `ssh_key`: the line of a .pub file")
    return line


@endpoint("GET", "/v0/ssh", roles=RENTER, needs="api.user.list_ssh_keys")
async def listed(call: Caller) -> Response[Any]:
    """One's own public keys."""
    vault, account = call.ledger.vault, call.account_id
    found = await call.question(lambda connection: use_cases.keys_of(connection, vault, account))
    return answer([_row(one, account) for one in found])


@endpoint("POST", "/v0/ssh", roles=RENTER, needs="api.user.add_ssh_key")
async def create(call: Caller) -> Response[Any]:
    """Keep a public key; every later instance lets it in. The same key again is the same id."""
    line = _line(call.body)

    def do(unit: Unit) -> Json:
        made = use_cases.add_key(unit, call.account_id, line)
        return {"success": True, **_kept(unit, call.account_id, made)}

    return await call.command(do)


@endpoint("PUT", "/v0/ssh/{ssh_key_id:int}", roles=RENTER, needs="api.user.change_ssh_key")
async def update(call: Caller, ssh_key_id: FromPath[int]) -> Response[Any]:
    """Put another key in its place, on every instance that it opens."""
    line = _line(call.body)

    def do(unit: Unit) -> Json:
        use_cases.change_key(unit, call.account_id, ssh_key_id, line)
        return {"success": True, **_kept(unit, call.account_id, ssh_key_id)}

    return await call.command(do)


def _kept(unit: Unit, account_id: int, ssh_key_id: int) -> Json:
    found = use_cases.keys_of(unit.connection, unit.vault, account_id)
    (one,) = [key for key in found if key.ssh_key_id == ssh_key_id]
    return {"id": ssh_key_id, "key": _row(one, account_id)}


@endpoint("DELETE", "/v0/ssh/{ssh_key_id:int}", roles=RENTER, needs="api.user.remove_ssh_key")
async def remove(call: Caller, ssh_key_id: FromPath[int]) -> Response[Any]:
    """Destroy a key; it opens nothing any more."""

    def do(unit: Unit) -> Json:
        use_cases.remove_key(unit, call.account_id, ssh_key_id)
        return {"success": True, "id": ssh_key_id, "msg": f"ssh key {ssh_key_id} is removed"}

    return await call.command(do)


@endpoint(
    "GET",
    "/v0/instances/{instance_id:int}/ssh",
    roles=ANYONE,
    needs="api.user.list_instance_ssh_keys",
)
async def of_instance(call: Caller, instance_id: FromPath[int]) -> Response[Any]:
    """The keys that open an instance of one's own."""
    vault = call.ledger.vault

    def find(connection: Connection) -> list[Json]:
        view = ask.instance(connection, instance_id)
        if view.account_id != call.account_id or call.role == "host":
            raise NotFoundError("no_such_instance", f"there is no instance {instance_id}")
        found = use_cases.keys_into(connection, vault, instance_id)
        return [_row(one, call.account_id) for one in found]

    return answer({"success": True, "ssh_keys": await call.question(find)})


@endpoint(
    "POST",
    "/v0/instances/{instance_id:int}/ssh",
    roles=RENTER,
    needs="api.user.attach_ssh_key",
)
async def attach(call: Caller, instance_id: FromPath[int]) -> Response[Any]:
    """Let a key in, which the account then keeps too; again changes nothing."""
    line = _line(call.body)

    def do(unit: Unit) -> Json:
        rentals.owned(unit, instance_id, call.account_id)
        made = use_cases.add_key(unit, call.account_id, line)
        use_cases.attach(unit, instance_id, made)
        message = f"ssh key {made} opens instance {instance_id}"
        return {"success": True, "id": made, "msg": message}

    return await call.command(do)


@endpoint(
    "DELETE",
    "/v0/instances/{instance_id:int}/ssh/{ssh_key_id:int}",
    roles=RENTER,
    needs="api.user.detach_ssh_key",
)
async def detach(
    call: Caller, instance_id: FromPath[int], ssh_key_id: FromPath[int]
) -> Response[Any]:
    """Let a key in no longer; the account keeps it."""

    def do(unit: Unit) -> Json:
        rentals.owned(unit, instance_id, call.account_id)
        use_cases.detach(unit, instance_id, ssh_key_id)
        message = f"ssh key {ssh_key_id} opens instance {instance_id} no longer"
        return {"success": True, "msg": message}

    return await call.command(do)


ENDPOINTS: Sequence[Any] = [listed, create, update, remove, of_instance, attach, detach]
