"""One fact of every kind of reconciliation, movements by hand, mail and budgets."""

from __future__ import annotations

from typing import Final

from ledger.domain import events as e
from tests.golden.examples.core import T

BOOKS: Final[tuple[e.AnyFact, ...]] = (
    e.ReconciliationCompleted(
        job="reports",
        period_from=T - 86_400,
        period_until=T,
        found=2,
        opened=1,
        note="",
        completed_at=T,
    ),
    e.FindingOpened(
        finding_id=3,
        job="reports",
        kind="reports_missing",
        about="machine-4",
        period_from=T - 86_400,
        expected=86_400,
        actual=82_800,
        unit="seconds",
        detail="seconds with contracts, seconds that were attested",
        opened_at=T,
    ),
    e.FindingReopened(finding_id=3, expected=86_400, actual=0, reopened_at=T),
    e.FindingExplained(
        finding_id=3, reason="announced power cut", actor="account-9", explained_at=T
    ),
    e.FindingCorrected(
        finding_id=3,
        reason="booked twice",
        correction="adjustment-17",
        actor="account-9",
        corrected_at=T,
    ),
    e.AccountAdjusted(
        adjustment_id="ticket-1881",
        account_id=7,
        book="credit",
        against="compensation",
        amount=-12_500_000_000,
        reason="goodwill withdrawn",
        period_from=T - 86_400,
        approved_by="account-10",
        cause=None,
        policy_version=1,
        actor="account-9",
        effective_at=T - 3_600,
        adjusted_at=T,
    ),
    e.DebtWrittenOff(
        write_off_id="ticket-1882",
        account_id=7,
        book="receivable",
        amount=1,
        reason="insolvent",
        period_from=T - 86_400,
        approved_by=None,
        cause=None,
        policy_version=1,
        actor="account-9",
        effective_at=T,
        written_off_at=T,
    ),
    e.MailSettingsSet(
        account_id=7,
        address="s-7/mail-address",
        address_hash="hmac:00ff",
        codes=["outbid", "exhausted"],
        set_at=T,
    ),
    e.MailStopped(account_id=7, stopped_at=T),
    e.MailDeadLettered(account_id=7, event=1234, attempts=12, reason="smtp_550", dead_at=T),
    e.MailRequeued(account_id=7, events=[1234], requeued_at=T),
    e.BudgetSet(account_id=7, label="train", amount=250_000_000_000, set_at=T),
    e.BudgetRemoved(account_id=7, label="train", removed_at=T),
    e.BudgetReached(
        account_id=7,
        label="train",
        month_from=T - 86_400,
        percent=80,
        amount=250_000_000_000,
        spent=200_000_000_000,
        reached_at=T,
    ),
)
