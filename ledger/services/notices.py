"""Notices: facts that tell an account something it has to know."""

from __future__ import annotations

from ledger.domain.events import Fact, NoticeCode, NoticeIssued
from ledger.domain.ids import account_stream
from ledger.domain.instance import Instance
from ledger.services.ledger import Unit


def notice(unit: Unit, account_id: int, code: NoticeCode, about: str) -> tuple[str, Fact]:
    """The fact and its stream; *about* names an object, such as ``instance-7``."""
    fact = NoticeIssued(account_id=account_id, code=code, about=about, issued_at=unit.now)
    return account_stream(account_id), fact


def instance_notice(unit: Unit, instance: Instance, code: NoticeCode) -> tuple[str, Fact]:
    """A notice to the renter of an instance, about it."""
    return notice(unit, instance.account_id, code, f"instance-{instance.instance_id}")


def notify(unit: Unit, account_id: int, code: NoticeCode, about: str) -> None:
    """Record that somebody has to know something."""
    unit.append_all([notice(unit, account_id, code, about)])
