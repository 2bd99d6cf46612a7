"""Accounts and their keys."""

from __future__ import annotations

from ledger.domain.events.base import Fact, Role


class AccountOpened(Fact, tag="account.opened.v1"):
    """An account exists.

    Its name lies in the vault under *subject*; *name_hash* finds it without telling it.
    """

    account_id: int
    subject: str
    name_hash: str
    currency: str
    opened_at: int


class SubjectErased(Fact, tag="subject.erased.v1"):
    """The key of a person's data was destroyed; the books are unaffected."""

    account_id: int
    subject: str
    erased_at: int


class ApiKeyCreated(Fact, tag="api_key.created.v1"):
    """A key may act for an account; its secret is nowhere in the log."""

    key_id: str
    account_id: int
    role: Role
    expires_at: int | None
    created_at: int


class ApiKeyRevoked(Fact, tag="api_key.revoked.v1"):
    """A key is dead from here on."""

    key_id: str
    account_id: int
    revoked_at: int


AccountFact = AccountOpened | SubjectErased | ApiKeyCreated | ApiKeyRevoked
