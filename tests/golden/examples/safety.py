"""One fact of every kind of a renter's safety: caps, alerts, top-ups, leases, idleness, cleanup."""

from __future__ import annotations

from typing import Final

from ledger.domain import events as e
from tests.golden.examples.core import T

SAFETY: Final[tuple[e.AnyFact, ...]] = (
    e.SpendCapsSet(
        account_id=7, per_hour=2_000_000_000, per_day=20_000_000_000, hard=True, set_at=T
    ),
    e.DayCapReached(
        account_id=7,
        day_from=T,
        cap=20_000_000_000,
        spent=20_000_000_111,
        stopped=3,
        reached_at=T + 36_000,
    ),
    e.BalanceAlertRaised(
        account_id=7,
        alert="low_balance_24h",
        available=9_599_888_889,
        limit=9_600_000_000,
        raised_at=T + 1,
    ),
    e.BalanceAlertCleared(account_id=7, alert="low_balance_24h", cleared_at=T + 60),
    e.TopUpConsented(
        account_id=7,
        consent_no=1,
        reference="mandate_1Pq8",
        below=5_000_000_000,
        amount=20_000_000_000,
        max_per_day=100_000_000_000,
        consented_at=T,
    ),
    e.TopUpRevoked(account_id=7, consent_no=1, revoked_at=T),
    e.TopUpSwitchedOff(account_id=7, consent_no=1, failures=3, switched_off_at=T + 7_200),
    e.TopUpRequested(
        account_id=7,
        consent_no=1,
        trigger=1_234,
        amount=20_000_000_000,
        tax=3_800_000_000,
        requested_at=T,
    ),
    e.TopUpFailed(account_id=7, consent_no=1, trigger=1_234, reason="card_declined", failed_at=T),
    e.TopUpSettled(
        account_id=7,
        consent_no=1,
        trigger=1_234,
        amount=20_000_000_000,
        tax=3_800_000_000,
        payment="pay_3Nx7",
        settled_at=T,
    ),
    e.LeaseSet(
        account_id=7, instance_id=1001, until=T + 86_400, spend_limit=5_000_000_000, set_at=T
    ),
    e.LeaseEnded(account_id=7, instance_id=1001, reason="lease", ended_at=T + 86_400),
    e.IdlePolicySet(account_id=7, notice_seconds=3_600, stop_seconds=7_200, set_at=T),
    e.IdleNoticed(account_id=7, instance_id=1001, number=1, idle_from=T, noticed_at=T + 3_600),
    e.CleanupPolicySet(account_id=7, scope="labelled", days=7, label="finished", set_at=T),
    e.CleanupAnnounced(
        account_id=7, instance_id=1001, destroy_at=T + 604_801, announced_at=T + 518_401
    ),
    e.CleanupWithdrawn(account_id=7, instance_id=1001, withdrawn_at=T + 518_500),
    e.CleanupDestroyed(account_id=7, instance_id=1001, destroyed_at=T + 604_801),
)
"""One fact of every kind that a renter's safety adds."""
