"""Webhooks and dead letters: what those facts change."""

from __future__ import annotations

from collections.abc import Iterator

from ledger.domain import events as e
from ledger.projections.facts.change import Change, counted


def webhook_changes(fact: e.WebhookFact, position: int) -> Iterator[Change]:
    """Where notices go, and which deliveries were given up."""
    match fact:
        case e.WebhookRegistered():
            yield Change(
                "INSERT INTO webhooks"
                " (webhook_id, account_id, url, url_hash, codes, registered_at, position)"
                " VALUES (%s, %s, %s, %s, %s, %s, %s)",
                (
                    fact.webhook_id,
                    fact.account_id,
                    fact.url,
                    fact.url_hash,
                    fact.codes,
                    fact.registered_at,
                    position,
                ),
            )
            yield counted("webhook", fact.webhook_id)
        case e.WebhookChanged():
            yield Change(
                "UPDATE webhooks SET url = %s, url_hash = %s, codes = %s WHERE webhook_id = %s",
                (fact.url, fact.url_hash, fact.codes, fact.webhook_id),
            )
        case e.WebhookSecretRotated():
            yield Change(
                "UPDATE webhooks SET overlap_until = %s WHERE webhook_id = %s",
                (fact.overlap_until, fact.webhook_id),
            )
        case e.WebhookRemoved():
            yield Change(
                "UPDATE webhooks SET removed_at = %s WHERE webhook_id = %s",
                (fact.removed_at, fact.webhook_id),
            )
        case e.WebhookTested():
            return  # It is an event to be sent, and changes nothing.
        case e.WebhookDeadLettered():
            yield Change(
                "INSERT INTO webhook_dead_letters VALUES (%s, %s, %s, %s, %s, %s, NULL)"
                " ON CONFLICT (webhook_id, event) DO UPDATE SET attempts = EXCLUDED.attempts,"
                " reason = EXCLUDED.reason, dead_at = EXCLUDED.dead_at, replayed_at = NULL",
                (
                    fact.webhook_id,
                    fact.event,
                    fact.account_id,
                    fact.attempts,
                    fact.reason,
                    fact.dead_at,
                ),
            )
        case e.WebhookReplayed():
            yield Change(
                "UPDATE webhook_dead_letters SET replayed_at = %s"
                " WHERE webhook_id = %s AND event = ANY(%s)",
                (fact.replayed_at, fact.webhook_id, fact.events),
            )
