"""Mail: where an account gets its notices, and which of them; addresses lie in the vault."""

from __future__ import annotations

from ledger.domain.events.base import Fact, NoticeCode


class MailSettingsSet(Fact, tag="mail.settings_set.v1"):
    """An account's notices go by mail to the address that *address* refers to in the vault.

    *codes*: which notices; null: all, also those that later versions add; an empty list: none.
    """

    account_id: int
    address: str
    address_hash: str
    codes: list[NoticeCode] | None
    set_at: int


class MailStopped(Fact, tag="mail.stopped.v1"):
    """Nothing is sent any more, and the address is gone."""

    account_id: int
    stopped_at: int


class MailDeadLettered(Fact, tag="mail.dead_lettered.v1"):
    """The notice at position *event* was given up after so many attempts."""

    account_id: int
    event: int
    attempts: int
    reason: str
    dead_at: int


class MailRequeued(Fact, tag="mail.requeued.v1"):
    """Somebody asked for these notices again."""

    account_id: int
    events: list[int]
    requeued_at: int


MailFact = MailSettingsSet | MailStopped | MailDeadLettered | MailRequeued
