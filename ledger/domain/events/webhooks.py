"""Webhooks: where an account's notices are sent, and which of them could not be.

An attempt to deliver is operational and no fact; that a delivery was given up, and that it was
asked for again, must never be lost.
"""

from __future__ import annotations

from ledger.domain.events.base import Fact, NoticeCode


class WebhookRegistered(Fact, tag="webhook.registered.v1"):
    """Notices of these codes (null: all) go to an address from here on.

    The address itself lies in the vault under *url*; *url_hash* finds it without telling it. The
    secret that signs deliveries is nowhere in the log.
    """

    account_id: int
    webhook_id: int
    url: str
    url_hash: str
    codes: list[NoticeCode] | None
    registered_at: int


class WebhookChanged(Fact, tag="webhook.changed.v1"):
    """The webhook has another address, other codes, or both."""

    account_id: int
    webhook_id: int
    url: str
    url_hash: str
    codes: list[NoticeCode] | None
    changed_at: int


class WebhookSecretRotated(Fact, tag="webhook.secret_rotated.v1"):
    """Deliveries are signed with a new secret, and up to *overlap_until* with the old one too."""

    account_id: int
    webhook_id: int
    overlap_until: int
    rotated_at: int


class WebhookRemoved(Fact, tag="webhook.removed.v1"):
    """Nothing is sent there any more, what was waiting included."""

    account_id: int
    webhook_id: int
    removed_at: int


class WebhookTested(Fact, tag="webhook.tested.v1"):
    """The owner asked for a delivery that means nothing; this fact is its event."""

    account_id: int
    webhook_id: int
    tested_at: int


class WebhookDeadLettered(Fact, tag="webhook.dead_lettered.v1"):
    """A delivery was given up after its last attempt; *event* is the position of its notice."""

    account_id: int
    webhook_id: int
    event: int
    attempts: int
    reason: str
    dead_at: int


class WebhookReplayed(Fact, tag="webhook.replayed.v1"):
    """Events, by the positions of their notices, are to be delivered again."""

    account_id: int
    webhook_id: int
    events: list[int]
    replayed_at: int


WebhookFact = (
    WebhookRegistered
    | WebhookChanged
    | WebhookSecretRotated
    | WebhookRemoved
    | WebhookTested
    | WebhookDeadLettered
    | WebhookReplayed
)
