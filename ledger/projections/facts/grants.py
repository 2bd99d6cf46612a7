"""Promotional grants: what those facts change."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ledger.domain import events as e
from ledger.projections.facts.accounts import RENTER_CREDIT, credited, moved, posted
from ledger.projections.facts.change import Change

PROMO_EXPENSE: Final = "promo_expense"


def grant_changes(fact: e.GrantFact, position: int) -> Iterator[Change]:
    """Credit that the platform gives, and takes back unspent."""
    match fact:
        case e.PromotionGranted():
            yield Change(
                "INSERT INTO grants (account_id, grant_id, amount, reason, granted_at, expires_at,"
                " position) VALUES (%s, %s, %s, %s, %s, %s, %s)",
                (
                    fact.account_id,
                    fact.grant_id,
                    fact.amount,
                    fact.reason,
                    fact.granted_at,
                    fact.expires_at,
                    position,
                ),
            )
            yield from credited(fact.account_id, fact.amount)
            yield moved(
                position,
                "grant",
                fact.grant_id,
                (PROMO_EXPENSE, None),
                (RENTER_CREDIT, fact.account_id),
                fact.amount,
                fact.granted_at,
            )
        case e.PromotionRevoked():
            yield Change(
                "UPDATE grants SET revoked_at = %s, revoked_position = %s"
                " WHERE account_id = %s AND grant_id = %s",
                (fact.revoked_at, position, fact.account_id, fact.grant_id),
            )
        case e.PromotionClosed():
            yield Change(
                "UPDATE grants SET unspent = %s, closed_at = %s, closed_position = %s"
                " WHERE account_id = %s AND grant_id = %s",
                (fact.unspent, fact.closed_at, position, fact.account_id, fact.grant_id),
            )
            if fact.unspent:
                yield posted(fact.account_id, -fact.unspent)
                yield moved(
                    position,
                    "grant_end",
                    fact.grant_id,
                    (RENTER_CREDIT, fact.account_id),
                    (PROMO_EXPENSE, None),
                    fact.unspent,
                    fact.closed_at,
                )
