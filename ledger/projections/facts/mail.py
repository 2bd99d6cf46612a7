"""Mail settings and dead letters: what those facts change."""

from __future__ import annotations

from collections.abc import Iterator

from ledger.domain import events as e
from ledger.projections.facts.change import Change


def mail_changes(fact: e.MailFact, position: int) -> Iterator[Change]:
    """Who gets notices by mail, and which messages were given up."""
    match fact:
        case e.MailSettingsSet():
            yield Change(
                "INSERT INTO mail_settings VALUES (%s, %s, %s, %s, %s, %s)"
                " ON CONFLICT (account_id) DO UPDATE SET address = EXCLUDED.address,"
                " address_hash = EXCLUDED.address_hash, codes = EXCLUDED.codes,"
                " set_at = EXCLUDED.set_at",
                (
                    fact.account_id,
                    fact.address,
                    fact.address_hash,
                    fact.codes,
                    fact.set_at,
                    position,
                ),
            )
        case e.MailStopped():
            yield Change("DELETE FROM mail_settings WHERE account_id = %s", (fact.account_id,))
        case e.MailDeadLettered():
            yield Change(
                "INSERT INTO mail_dead_letters VALUES (%s, %s, %s, %s, %s, NULL)"
                " ON CONFLICT (account_id, event) DO UPDATE SET attempts = EXCLUDED.attempts,"
                " reason = EXCLUDED.reason, dead_at = EXCLUDED.dead_at, requeued_at = NULL",
                (fact.account_id, fact.event, fact.attempts, fact.reason, fact.dead_at),
            )
        case e.MailRequeued():
            yield Change(
                "UPDATE mail_dead_letters SET requeued_at = %s"
                " WHERE account_id = %s AND event = ANY(%s)",
                (fact.requeued_at, fact.account_id, fact.events),
            )
