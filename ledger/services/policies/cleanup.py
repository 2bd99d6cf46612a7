"""Stopped instances whose owner wants them gone: announced a day before, then destroyed (§13.5)."""

from __future__ import annotations

from typing import Final

from ledger.domain.events import CleanupAnnounced, CleanupDestroyed, CleanupWithdrawn, Fact
from ledger.domain.ids import account_stream
from ledger.domain.instance import DestroyInstance
from ledger.services.cleanup import NOTICE_SECONDS, Candidate, CleanupPolicy, candidates
from ledger.services.ledger import Ledger
from ledger.services.notices import notice
from ledger.services.policies.glance import any_of
from ledger.services.rentals import command_all
from ledger.store.database import Connection

MAY_GO: Final = any_of(
    "SELECT 1 FROM cleanup_policies WHERE scope <> 'off'", "SELECT 1 FROM cleanup_announcements"
)


def clean_up(ledger: Ledger) -> None:
    """Announce what will go, destroy what was announced, and take back what may stay."""
    with ledger.reading() as connection:
        now = ledger.clock()
        if not any(_due_at(one) <= now for one in _candidates(connection)):
            return
    with ledger.unit() as unit:
        new: list[tuple[str, Fact]] = []
        doomed = []
        for one in _candidates(unit.connection):
            if _due_at(one) > unit.now:
                continue
            stream = account_stream(one.account_id)
            if _may_stay(one):
                withdrawn = CleanupWithdrawn(
                    account_id=one.account_id,
                    instance_id=one.instance_id,
                    withdrawn_at=unit.now,
                )
                new.append((stream, withdrawn))
            elif one.destroy_at is None:
                announced = CleanupAnnounced(
                    account_id=one.account_id,
                    instance_id=one.instance_id,
                    destroy_at=max(one.due_at, unit.now + NOTICE_SECONDS),
                    announced_at=unit.now,
                )
                about = f"instance-{one.instance_id}"
                new += [(stream, announced), notice(unit, one.account_id, "cleanup_soon", about)]
            else:
                destroyed = CleanupDestroyed(
                    account_id=one.account_id,
                    instance_id=one.instance_id,
                    destroyed_at=unit.now,
                )
                new.append((stream, destroyed))
                doomed.append(one.instance_id)
        unit.append_all(new)
        wish = DestroyInstance("cleanup", "stopped for longer than its owner's cleanup policy")
        command_all(unit, [(instance_id, wish) for instance_id in doomed])


def _candidates(connection: Connection) -> list[Candidate]:
    policies = {
        row[0]: CleanupPolicy(*row[1:])
        for row in connection.execute(
            "SELECT account_id, scope, days, label FROM cleanup_policies WHERE scope <> 'off'"
        )
    }
    if not policies:
        row = connection.execute("SELECT 1 FROM cleanup_announcements LIMIT 1").fetchone()
        if row is None:
            return []
    return candidates(connection, policies, announced=True)


def _due_at(one: Candidate) -> int:
    """The second at which something is to be done about it: at once, where it may stay."""
    if one.destroy_at is None:
        return one.due_at - NOTICE_SECONDS
    return 0 if _may_stay(one) else one.destroy_at


def _may_stay(one: Candidate) -> bool:
    """True when what was announced no longer holds: no policy takes it, or takes it later.

    It was started and stopped again in between, for instance, or the owner gave it more days.
    """
    return one.destroy_at is not None and one.due_at > one.destroy_at


def next_due(connection: Connection, now: int) -> int | None:
    """The next announcement or destruction, if nothing changes."""
    due = [_due_at(one) for one in _candidates(connection)]
    return min((second for second in due if second > now), default=None)
