"""What limits an account: its caps and what they leave today, alerts, consents, charges, leases."""

from __future__ import annotations

import msgspec

from ledger.errors import NotFoundError
from ledger.services.caps import day_spend, day_start, read_caps
from ledger.services.cleanup import CleanupPolicy, candidates
from ledger.services.credit import read_credit
from ledger.services.ledger import read_policy
from ledger.services.policies.alerts import REARM_SECONDS
from ledger.services.top_up import read_standing
from ledger.store.database import Connection


class CapsView(msgspec.Struct, frozen=True, kw_only=True):
    """Caps in force, and what was charged since `day_from`, 00:00 UTC of today."""

    account_id: int
    per_hour: int | None
    per_day: int | None
    hard: bool
    day_from: int
    spent_today: int


class Alert(msgspec.Struct, frozen=True, kw_only=True):
    """The last notice of one kind. It may come again from `armed_at` on; none while it is open."""

    alert: str
    raised_at: int
    cleared_at: int | None
    armed_at: int | None


class ConsentView(msgspec.Struct, frozen=True, kw_only=True):
    """The last consent, and whether it stands: `on`, `revoked`, or `off` after failures."""

    account_id: int
    consent_no: int
    reference: str
    below: int
    amount: int
    max_per_day: int
    status: str
    failures: int
    failed_at: int | None
    consented_at: int


class TopUp(msgspec.Struct, frozen=True, kw_only=True):
    """One automatic charge; `trigger` is the position of the fact that it answered."""

    account_id: int
    consent_no: int
    trigger: int
    deposit_id: str
    amount: int
    status: str
    reason: str | None
    payment: str | None
    requested_at: int
    closed_at: int | None


class LeaseView(msgspec.Struct, frozen=True, kw_only=True):
    """When an instance stops by itself; `ended_at`: it did, or would have."""

    instance_id: int
    until: int | None
    spend_limit: int | None
    ended_at: int | None


class DryRun(msgspec.Struct, frozen=True, kw_only=True):
    """A stopped instance that a cleanup policy takes, and what its disk costs meanwhile."""

    instance_id: int
    label: str | None
    stopped_at: int
    storage_rate_per_hour: int
    due_at: int
    destroy_at: int | None


def caps_of(connection: Connection, account_id: int, now: int) -> CapsView:
    """The caps of an account and its charges of today.

    Raises:
        NotFoundError: `no_such_account`.
    """
    credit = read_credit(connection, [account_id]).get(account_id)
    if credit is None:
        raise NotFoundError("no_such_account", f"there is no account {account_id}")
    caps = read_caps(connection, account_id)
    return CapsView(
        account_id=account_id,
        per_hour=caps.per_hour,
        per_day=caps.per_day,
        hard=caps.hard,
        day_from=day_start(now),
        spent_today=day_spend(connection, credit, now, read_policy(connection)),
    )


def alerts_of(connection: Connection, account_id: int) -> list[Alert]:
    """The alerts that an account was ever given, by name."""
    rows = connection.execute(
        "SELECT alert, raised_at, cleared_at FROM balance_alerts WHERE account_id = %s"
        " ORDER BY alert",
        [account_id],
    )
    return [
        Alert(
            alert=alert,
            raised_at=raised_at,
            cleared_at=cleared_at,
            armed_at=None if cleared_at is None else max(cleared_at, raised_at + REARM_SECONDS),
        )
        for alert, raised_at, cleared_at in rows
    ]


def consent_of(connection: Connection, account_id: int) -> ConsentView:
    """The last consent of an account.

    Raises:
        NotFoundError: `no_such_consent` when it never gave one.
    """
    standing = read_standing(connection, account_id)
    if standing is None:
        message = "this account never agreed to automatic top-ups: no card is charged"
        raise NotFoundError("no_such_consent", message)
    given = standing.consent
    return ConsentView(
        account_id=account_id,
        consent_no=standing.consent_no,
        reference=given.reference,
        below=given.below,
        amount=given.amount,
        max_per_day=given.max_per_day,
        status=standing.status,
        failures=standing.failures,
        failed_at=standing.failed_at,
        consented_at=standing.consented_at,
    )


def top_ups_of(
    connection: Connection, account_id: int | None, *, after: tuple[int, int], limit: int
) -> list[TopUp]:
    """Automatic charges, of one account or of all, in the order of what triggered them."""
    rows = connection.execute(
        "SELECT account_id, consent_no, trigger, amount, status, reason, payment, requested_at,"
        " closed_at FROM top_ups WHERE (%s::int8 IS NULL OR account_id = %s)"
        " AND (trigger, account_id) > (%s, %s) ORDER BY trigger, account_id LIMIT %s",
        [account_id, account_id, *after, limit],
    )
    return [
        TopUp(
            account_id=row[0],
            consent_no=row[1],
            trigger=row[2],
            deposit_id=f"top-up-{row[0]}-{row[2]}",
            amount=int(row[3]),
            status=row[4],
            reason=row[5],
            payment=row[6],
            requested_at=row[7],
            closed_at=row[8],
        )
        for row in rows
    ]


def lease_of(connection: Connection, instance_id: int) -> LeaseView:
    """The lease of an instance; without one, one that never ends."""
    row = connection.execute(
        "SELECT until, spend_limit, ended_at FROM instance_leases WHERE instance_id = %s",
        [instance_id],
    ).fetchone()
    until, limit, ended_at = row if row is not None else (None, None, None)
    return LeaseView(
        instance_id=instance_id,
        until=until,
        spend_limit=None if limit is None else int(limit),
        ended_at=ended_at,
    )


def dry_run(connection: Connection, account_id: int, policy: CleanupPolicy) -> list[DryRun]:
    """What a cleanup policy would take, soonest first; nothing is changed."""
    return [
        DryRun(
            instance_id=one.instance_id,
            label=one.label,
            stopped_at=one.stopped_at,
            storage_rate_per_hour=one.storage_rate * one.disk_bytes // (10**9 * 720),
            due_at=one.due_at,
            destroy_at=one.destroy_at,
        )
        for one in candidates(connection, {account_id: policy})
    ]
