"""Public ssh keys of an account, and the instances that they open."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import msgspec
from litestar import Response, delete, get, post, put
from litestar.params import FromPath, JSONBody

from adapters.http.call import ANYONE, RENTER, Caller, allowed
from adapters.http.native.own import require_own, visible
from adapters.http.wire import Body, Id, Instant
from ledger.domain.ids import rfc3339
from ledger.errors import RejectedError
from ledger.services import ssh_keys as use_cases
from ledger.services.ledger import Unit

_EXAMPLE = (
    "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f me@home"
)


class NewSshKey(Body):
    """A public key as it stands in its file; a private one is refused."""

    EXAMPLE: ClassVar[dict[str, Any]] = {"ssh_key": _EXAMPLE}

    ssh_key: str


class NewAttachment(Body):
    """A key of the account by its id, or a whole key, which the account then keeps too."""

    EXAMPLE: ClassVar[dict[str, Any]] = {"ssh_key": _EXAMPLE}

    ssh_key: str | None = None
    ssh_key_id: Id | None = None


class SshKey(msgspec.Struct, frozen=True, kw_only=True):
    """A public key; the texts are null for all but its owner and the host that lets it in."""

    ssh_key_id: int
    public_key: str | None
    fingerprint: str | None
    added_at: Instant


class SshKeys(msgspec.Struct, frozen=True, kw_only=True):
    """Every key there is."""

    items: list[SshKey]


class SshKeyId(msgspec.Struct, frozen=True, kw_only=True):
    """The key that was kept, changed, removed, attached or detached."""

    ssh_key_id: int


def _shown(kept: Sequence[use_cases.KeptSshKey], *, contents: bool = True) -> SshKeys:
    return SshKeys(
        items=[
            SshKey(
                ssh_key_id=one.ssh_key_id,
                public_key=one.key.line if one.key is not None and contents else None,
                fingerprint=one.key.fingerprint if one.key is not None and contents else None,
                added_at=rfc3339(one.added_at),
            )
            for one in kept
        ]
    )


@get("/v1/ssh-keys", opt=allowed(*RENTER), summary="List ssh keys")
async def list_ssh_keys(call: Caller) -> SshKeys:
    """List one's own public keys."""
    vault, account = call.ledger.vault, call.principal.account_id
    found = await call.question(lambda connection: use_cases.keys_of(connection, vault, account))
    return _shown(found)


@post("/v1/ssh-keys", opt=allowed(*RENTER), summary="Add an ssh key")
async def add_ssh_key(call: Caller, data: JSONBody[NewSshKey]) -> Response[SshKeyId]:
    """Keep a public key; every later instance lets it in. The same key again is the same id."""

    def do(unit: Unit) -> SshKeyId:
        account = call.principal.account_id
        return SshKeyId(ssh_key_id=use_cases.add_key(unit, account, data.ssh_key))

    return await call.command(do, 201)


@put("/v1/ssh-keys/{ssh_key_id:int}", opt=allowed(*RENTER), summary="Change an ssh key")
async def change_ssh_key(
    call: Caller, ssh_key_id: FromPath[int], data: JSONBody[NewSshKey]
) -> Response[SshKeyId]:
    """Put another key in its place, on every instance that it is attached to."""

    def do(unit: Unit) -> SshKeyId:
        use_cases.change_key(unit, call.principal.account_id, ssh_key_id, data.ssh_key)
        return SshKeyId(ssh_key_id=ssh_key_id)

    return await call.command(do)


@delete(
    "/v1/ssh-keys/{ssh_key_id:int}",
    opt=allowed(*RENTER),
    status_code=200,
    summary="Remove an ssh key",
)
async def remove_ssh_key(call: Caller, ssh_key_id: FromPath[int]) -> Response[SshKeyId]:
    """Destroy a key; it opens nothing any more."""

    def do(unit: Unit) -> SshKeyId:
        use_cases.remove_key(unit, call.principal.account_id, ssh_key_id)
        return SshKeyId(ssh_key_id=ssh_key_id)

    return await call.command(do)


@get(
    "/v1/instances/{instance_id:int}/ssh-keys",
    opt=allowed(*ANYONE),
    summary="List an instance's ssh keys",
)
async def list_instance_ssh_keys(call: Caller, instance_id: FromPath[int]) -> SshKeys:
    """List the keys that open an instance; auditors and admins see ids alone."""
    found = await visible(call, instance_id)
    vault, me = call.ledger.vault, call.principal.account_id
    keys = await call.question(
        lambda connection: use_cases.keys_into(connection, vault, instance_id)
    )
    is_host = call.principal.role == "host" and found.host_id == me
    return _shown(keys, contents=is_host or found.account_id == me)


@post(
    "/v1/instances/{instance_id:int}/ssh-keys",
    opt=allowed(*RENTER),
    status_code=200,
    summary="Attach an ssh key",
)
async def attach_ssh_key(
    call: Caller, instance_id: FromPath[int], data: JSONBody[NewAttachment]
) -> Response[SshKeyId]:
    """Let a key of the instance's account in; again changes nothing."""
    if (data.ssh_key is None) == (data.ssh_key_id is None):
        message = "name one key: by its id (`ssh_key_id`), or as a whole (`ssh_key`)"
        raise RejectedError("invalid_args", message, status=400)

    def do(unit: Unit) -> SshKeyId:
        require_own(call, unit, instance_id)
        ssh_key_id = data.ssh_key_id
        if ssh_key_id is None:
            account = unit.instance(instance_id).account_id
            ssh_key_id = use_cases.add_key(unit, account, data.ssh_key or "")
        use_cases.attach(unit, instance_id, ssh_key_id)
        return SshKeyId(ssh_key_id=ssh_key_id)

    return await call.command(do)


@delete(
    "/v1/instances/{instance_id:int}/ssh-keys/{ssh_key_id:int}",
    opt=allowed(*RENTER),
    status_code=200,
    summary="Detach an ssh key",
)
async def detach_ssh_key(
    call: Caller, instance_id: FromPath[int], ssh_key_id: FromPath[int]
) -> Response[SshKeyId]:
    """Let a key in no longer; the account keeps it."""

    def do(unit: Unit) -> SshKeyId:
        require_own(call, unit, instance_id)
        use_cases.detach(unit, instance_id, ssh_key_id)
        return SshKeyId(ssh_key_id=ssh_key_id)

    return await call.command(do)


HANDLERS = [
    list_ssh_keys,
    add_ssh_key,
    change_ssh_key,
    remove_ssh_key,
    list_instance_ssh_keys,
    attach_ssh_key,
    detach_ssh_key,
]
