"""What somebody is told of a fact: notices, and facts that are news by themselves."""

from __future__ import annotations

from ledger.domain.events import NoticeCode
from ledger.projections.facts.change import Change


def told(position: int, account_id: int, code: NoticeCode, about: str, at: int) -> Change:
    """The fact at *position* is news for an account; *about* names what it is about."""
    return Change(
        "INSERT INTO notices VALUES (%s, %s, %s, %s, %s)", (position, account_id, code, about, at)
    )
