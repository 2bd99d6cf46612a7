"""Cleanup: stopped instances that go by themselves, where their owner asked for it (§13.5).

Nothing is destroyed without a policy that the owner set, nor within 24 h of its notice. What waits
for GPUs (`scheduling`, also because it was outbid) is not stopped, and what a reservation pays for
is not touched: destroying it would cost a penalty.
"""

from __future__ import annotations

import re
from typing import Final

import msgspec

from ledger.domain.events import CleanupPolicySet, CleanupScope
from ledger.domain.ids import account_stream
from ledger.domain.money import SECONDS_PER_DAY
from ledger.errors import RejectedError
from ledger.services.accounts import require_account
from ledger.services.ledger import Unit
from ledger.store.database import Connection

NOTICE_SECONDS: Final = SECONDS_PER_DAY
_DAYS_MAX: Final = 365
_LABEL: Final = re.compile(r"[A-Za-z0-9]{1,32}")
_WORD: Final = re.compile(r"[A-Za-z0-9]+")


class CleanupPolicy(msgspec.Struct, frozen=True):
    """Which instances go when they were stopped for more than `days`.

    `labelled`: those whose label has the word `label`, in any case; `all`: every one.
    """

    scope: CleanupScope = "off"
    days: int = 7
    label: str = "finished"

    def takes(self, label: str | None) -> bool:
        """True when an instance with this label goes."""
        if self.scope != "labelled":
            return self.scope == "all"
        words = _WORD.findall(label or "")
        return self.label.casefold() in {word.casefold() for word in words}


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """A stopped instance that a policy takes.

    `due_at` is the first second at which it was stopped for long enough; `destroy_at` is what was
    announced to its owner.
    """

    instance_id: int
    account_id: int
    label: str | None
    disk_bytes: int
    storage_rate: int
    stopped_at: int
    due_at: int
    destroy_at: int | None


def set_cleanup_policy(unit: Unit, account_id: int, policy: CleanupPolicy) -> None:
    """Opt in to cleanup, or out again.

    Raises:
        NotFoundError: `no_such_account`.
        RejectedError: `invalid_args` unless days are 1 to 365 and the label is one word.
    """
    require_account(unit.connection, account_id)
    check_policy(policy)
    if policy == read_cleanup_policy(unit.connection, account_id):
        return
    unit.append(
        account_stream(account_id),
        CleanupPolicySet(
            account_id=account_id,
            scope=policy.scope,
            days=policy.days,
            label=policy.label,
            set_at=unit.now,
        ),
    )


def check_policy(policy: CleanupPolicy) -> None:
    """Refuse a policy that cannot be meant.

    Raises:
        RejectedError: `invalid_args`.
    """
    if not 1 <= policy.days <= _DAYS_MAX:
        raise RejectedError("invalid_args", "days is 1 to 365")
    if not _LABEL.fullmatch(policy.label):
        raise RejectedError("invalid_args", "label is one word of 1 to 32 letters and digits")


def read_cleanup_policy(connection: Connection, account_id: int) -> CleanupPolicy:
    """What an account set; off at first."""
    row = connection.execute(
        "SELECT scope, days, label FROM cleanup_policies WHERE account_id = %s", [account_id]
    ).fetchone()
    return CleanupPolicy() if row is None else CleanupPolicy(*row)


def candidates(
    connection: Connection, policies: dict[int, CleanupPolicy], *, announced: bool = False
) -> list[Candidate]:
    """The stopped instances that these policies of accounts take, soonest first.

    A dry run: nothing is changed, and the policies need not be in force. With *announced* also
    those that were announced and that no policy takes any more (their `due_at` is never).
    """
    rows = connection.execute(
        "SELECT i.instance_id, i.account_id, i.label, i.disk_bytes, i.storage_rate, i.stopped_at,"
        " a.destroy_at, i.status = 'stopped' AND NOT EXISTS (SELECT 1 FROM reservations r"
        "  WHERE r.instance_id = i.instance_id AND r.ended_at IS NULL)"
        " FROM (SELECT instance_id FROM instances WHERE account_id = ANY(%s)"
        "       AND destroyed_at IS NULL AND status = 'stopped'"
        "       UNION SELECT instance_id FROM cleanup_announcements WHERE %s) AS asked"
        " JOIN instances i USING (instance_id)"
        " LEFT JOIN cleanup_announcements a USING (instance_id) ORDER BY i.instance_id",
        [list(policies), announced],
    )
    found = []
    off = CleanupPolicy()
    for instance_id, account_id, label, disk, rate, stopped_at, destroy_at, is_stopped in rows:
        policy = policies.get(account_id, off)
        taken = is_stopped and policy.takes(label)
        if not taken and not (announced and destroy_at is not None):
            continue
        found.append(
            Candidate(
                instance_id=instance_id,
                account_id=account_id,
                label=label,
                disk_bytes=disk,
                storage_rate=int(rate),
                stopped_at=stopped_at or 0,
                due_at=stopped_at + policy.days * SECONDS_PER_DAY + 1 if taken else NEVER,
                destroy_at=destroy_at,
            )
        )
    return sorted(found, key=lambda one: (one.due_at, one.instance_id))


NEVER: Final = 2**62
"""The `due_at` of what no policy takes."""
