"""Promotional credit: given, taken back, ended (`marketplace.md` §13.7)."""

from __future__ import annotations

from typing import Literal

from ledger.domain.events.base import Fact

GrantEnd = Literal["expired", "revoked"]


class PromotionGranted(Fact, tag="promotion.granted.v1"):
    """Credit that is spent first, before *expires_at*, and never refunded or transferred."""

    account_id: int
    grant_id: str
    amount: int
    reason: str
    expires_at: int
    granted_at: int


class PromotionRevoked(Fact, tag="promotion.revoked.v1"):
    """A grant pays for nothing from *revoked_at* on."""

    account_id: int
    grant_id: str
    reason: str
    revoked_at: int


class PromotionClosed(Fact, tag="promotion.closed.v1"):
    """No usage can draw on the grant any more: what is *unspent* of it went back.

    It paid for seconds before *valid_until*; late usage of those seconds was waited for.
    """

    account_id: int
    grant_id: str
    unspent: int
    cause: GrantEnd
    valid_until: int
    closed_at: int


GrantFact = PromotionGranted | PromotionRevoked | PromotionClosed
