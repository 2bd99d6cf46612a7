"""What a key may do, and how it is called."""

from __future__ import annotations

from typing import Literal

import msgspec

from ledger.domain.events.base import Fact

Scope = Literal[
    "instance_read", "instance_write", "user_read", "user_write", "billing_read", "billing_write",
    "machine_read", "machine_write", "misc", "team_read", "team_write",
]  # fmt: skip
Comparison = Literal["eq", "lte", "gte"]


class Constraint(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A field of the request and what it must be: a number, or (`eq` alone) a text."""

    field: str
    comparison: Comparison
    value: int | str


class Grant(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One thing a key may do: a scope, or one endpoint of it, within all of its constraints."""

    scope: Scope
    endpoint: str | None
    constraints: list[Constraint]


class ApiKeyRestricted(Fact, tag="api_key.restricted.v1"):
    """A key that may do only this; *instance_id* is set for the key that an instance itself has."""

    account_id: int
    key_id: str
    grants: list[Grant]
    instance_id: int | None
    restricted_at: int


class ApiKeyNamed(Fact, tag="api_key.named.v1"):
    """A name for people; it lies in the vault (null: none any more)."""

    account_id: int
    key_id: str
    reference: str | None
    named_at: int


class ApiKeyReset(Fact, tag="api_key.reset.v1"):
    """The key has another secret from here on; the old one is dead."""

    account_id: int
    key_id: str
    reset_at: int


AccessFact = ApiKeyRestricted | ApiKeyNamed | ApiKeyReset
