"""Environment secrets of an account: shown to itself, put into its launches, nowhere else."""

from __future__ import annotations

from typing import Any, ClassVar

import msgspec
from litestar import Response, delete, get, put
from litestar.params import FromPath, JSONBody

from adapters.http.call import RENTER, Caller, allowed
from adapters.http.wire import Body, Instant, render_all
from ledger.domain.launch import EnvName, EnvValue
from ledger.services import secrets as use_cases
from ledger.services.ledger import Unit


class NewSecret(Body):
    """A name of an environment variable and its value, kept encrypted."""

    EXAMPLE: ClassVar[dict[str, Any]] = {"name": "DATASET_TOKEN", "value": "s3cr3t"}

    name: EnvName
    value: EnvValue


class SecretName(msgspec.Struct, frozen=True, kw_only=True):
    """The secret that was set or removed."""

    name: str


class Secret(msgspec.Struct, frozen=True, kw_only=True):
    """A secret; both texts are null once the account's personal data were erased."""

    secret_id: int
    name: str | None
    value: str | None
    set_at: Instant


class Secrets(msgspec.Struct, frozen=True, kw_only=True):
    """Every secret of one's own."""

    items: list[Secret]


@get("/v1/secrets", opt=allowed(*RENTER), summary="List secrets")
async def list_secrets(call: Caller) -> Secrets:
    """List one's own secrets with their values; nobody sees those of another account."""
    vault, account = call.ledger.vault, call.principal.account_id
    found = await call.question(lambda connection: use_cases.secrets_of(connection, vault, account))
    return Secrets(items=render_all(Secret, found))


@put("/v1/secrets", opt=allowed(*RENTER), summary="Set a secret")
async def set_secret(call: Caller, data: JSONBody[NewSecret]) -> Response[SecretName]:
    """Keep a value for the environment of every later launch; one's own values there win."""

    def do(unit: Unit) -> SecretName:
        use_cases.set_secret(unit, call.principal.account_id, data.name, data.value)
        return SecretName(name=data.name)

    return await call.command(do)


@delete("/v1/secrets/{name:str}", opt=allowed(*RENTER), status_code=200, summary="Remove a secret")
async def remove_secret(call: Caller, name: FromPath[str]) -> Response[SecretName]:
    """Destroy a secret; launches that were made with it keep its value."""

    def do(unit: Unit) -> SecretName:
        use_cases.remove_secret(unit, call.principal.account_id, name)
        return SecretName(name=name)

    return await call.command(do)


HANDLERS = [list_secrets, set_secret, remove_secret]
