"""Notices: facts that tell an account something it has to know."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ledger.domain.events import (
    Fact,
    InstanceDestroyed,
    InstanceDiskLost,
    InstanceRan,
    InstanceRunning,
    InstanceStopped,
    NoticeCode,
    NoticeIssued,
    StopReason,
)
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


_FAULTS: Final[frozenset[StopReason]] = frozenset({"launch_failed", "host_fault"})


def life_notices(unit: Unit, instance: Instance, facts: Sequence[Fact]) -> list[tuple[str, Fact]]:
    """What the renter of *instance* has to know of *facts* about it; at most one notice each.

    Args:
        unit: The transaction that appends the facts; the notices go with them, after them.
        instance: Its state before the facts.
        facts: What was decided of it, in order.
    """
    codes = [_code_of(instance, fact) for fact in facts]
    return [instance_notice(unit, instance, code) for code in codes if code is not None]


def _code_of(instance: Instance, fact: Fact) -> NoticeCode | None:
    match fact:
        case InstanceRunning() | InstanceRan() if instance.first_run_at is None:
            return "started"  # Once; whatever runs later has `resumed`.
        case InstanceStopped() if fact.reason == "lost_by_host":
            return None  # The lost disk that caused it says more.
        case InstanceStopped():
            return "error" if fact.reason in _FAULTS else "stopped"
        case InstanceDiskLost():
            return "lost_disk"
        case InstanceDestroyed():
            return "destroyed"
        case _:
            return None


def notify(unit: Unit, account_id: int, code: NoticeCode, about: str) -> None:
    """Record that somebody has to know something."""
    unit.append_all([notice(unit, account_id, code, about)])
