"""One fact of every kind that concerns webhooks."""

from __future__ import annotations

from typing import Final

from ledger.domain import events as e
from tests.golden.examples.core import T

WEBHOOKS: Final[tuple[e.AnyFact, ...]] = (
    e.WebhookRegistered(
        account_id=7,
        webhook_id=3,
        url="s-7/webhook-3-url",
        url_hash="hmac:00ff",
        codes=None,
        registered_at=T,
    ),
    e.WebhookChanged(
        account_id=7,
        webhook_id=3,
        url="s-7/webhook-3-url",
        url_hash="hmac:11ee",
        codes=["outbid", "resumed"],
        changed_at=T,
    ),
    e.WebhookSecretRotated(account_id=7, webhook_id=3, overlap_until=T + 86_400, rotated_at=T),
    e.WebhookRemoved(account_id=7, webhook_id=3, removed_at=T),
    e.WebhookTested(account_id=7, webhook_id=3, tested_at=T),
    e.WebhookDeadLettered(
        account_id=7,
        webhook_id=3,
        event=1234,
        attempts=12,
        reason="http_500",
        dead_at=T + 271_210,
    ),
    e.WebhookReplayed(account_id=7, webhook_id=3, events=[1234, 1250], replayed_at=T + 300_000),
)
"""One fact of every kind that the webhooks add."""
