"""The fold of every fact that is not usage: accounts, credit, machines, instances, documents.

It runs in the transaction of the command that appended the fact, so its tables are as new as the
log itself, and decisions may lean on them. `changes` is pure: a fact in, statements out; nothing it
says depends on the clock or on how facts were grouped. A rebuild runs the same function.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple, get_args

from ledger.domain import events as e
from ledger.projections.facts.accounts import (
    account_changes,
    credit_changes,
    exhaustion_changes,
)
from ledger.projections.facts.adjustments import adjustment_changes
from ledger.projections.facts.billing import billing_changes
from ledger.projections.facts.budgets import budget_changes
from ledger.projections.facts.change import Change
from ledger.projections.facts.contracts import contract_changes
from ledger.projections.facts.corrections import correction_changes
from ledger.projections.facts.disputes import (
    dispute_changes,
    earnings_changes,
    testimony_changes,
)
from ledger.projections.facts.documents import document_changes
from ledger.projections.facts.grants import grant_changes
from ledger.projections.facts.instances import instance_changes
from ledger.projections.facts.launches import (
    access_changes,
    configuration_changes,
    job_changes,
    launch_changes,
)
from ledger.projections.facts.machines import machine_changes
from ledger.projections.facts.mail import mail_changes
from ledger.projections.facts.market import REFRESH, REFRESH_OF_CONTRACT, offer_changes, refresh
from ledger.projections.facts.operations import operation_changes
from ledger.projections.facts.payments import (
    entry_changes,
    payment_changes,
    payout_changes,
    return_changes,
)
from ledger.projections.facts.rating import RERATE, rerate
from ledger.projections.facts.reconciliation import reconciliation_changes
from ledger.projections.facts.safety import safety_changes
from ledger.projections.facts.trust import (
    check_changes,
    finding_changes,
    standing_changes,
)
from ledger.projections.facts.volumes import volume_changes
from ledger.projections.facts.webhooks import webhook_changes

if TYPE_CHECKING:
    from ledger.store.database import Connection


class Recorded(NamedTuple):
    """A fact with its place in the log."""

    fact: e.AnyFact
    position: int


def apply(connection: Connection, recorded: Iterable[Recorded]) -> None:
    """Fold facts into the tables, in order; equal neighbouring statements travel together."""
    waiting: list[Change] = []
    stale: list[Change] = []
    with connection.cursor() as cursor:
        for one in recorded:
            for change in changes(one.fact, one.position):
                if change.sql in {REFRESH, REFRESH_OF_CONTRACT, RERATE}:
                    stale.append(change)
                    continue
                if waiting and waiting[0].sql != change.sql:
                    _execute(cursor, waiting)
                    waiting = []
                waiting.append(change)
        if waiting:
            _execute(cursor, waiting)
    # Ratings and what the search shows follow from the other tables: once for all of these facts.
    rated = {one.values[0]: one.values[1] for one in stale if one.sql == RERATE}
    if rated:
        rerate(connection, rated)
    if stale:
        refresh(
            connection,
            {one.values[0] for one in stale if one.sql == REFRESH},
            {one.values[0] for one in stale if one.sql == REFRESH_OF_CONTRACT},
        )


def _execute(cursor: Any, batch: Sequence[Change]) -> None:
    if len(batch) == 1:
        cursor.execute(batch[0].sql, batch[0].values)
    else:
        cursor.executemany(batch[0].sql, [change.values for change in batch])


def changes(fact: e.AnyFact, position: int) -> Iterator[Change]:
    """What *fact* at *position* changes in the read models."""
    return _FOLDS[type(fact)](fact, position)


def _nothing(fact: e.UsageFact, position: int) -> Iterator[Change]:
    """Usage that bills nothing: the usage group lists it as an anomaly."""
    del fact, position
    return iter(())


def _policy(fact: e.PolicyAdopted, position: int) -> Iterator[Change]:
    del position
    yield Change(
        "INSERT INTO policies VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s)",
        (
            fact.version,
            fact.fee_bp,
            fact.late_usage_seconds,
            fact.admission,
            fact.offline_after_seconds,
            fact.admit_waiting_bids,
            fact.displacement_margin,
            fact.compensation,
            fact.secure_requires_iso,
            fact.adopted_at,
        ),
    )


_Fold = Callable[[Any, int], Iterator[Change]]
GROUPS: Final[tuple[tuple[Any, _Fold], ...]] = (
    (e.PolicyAdopted, _policy),
    (e.AccountFact, account_changes),
    (e.CreditFact, credit_changes),
    (e.GrantFact, grant_changes),
    (e.ExhaustionFact, exhaustion_changes),
    (e.DocumentFact, document_changes),
    (e.BillingFact, billing_changes),
    (e.DisputeFact, dispute_changes),
    (e.EarningsFact, earnings_changes),
    (e.TestimonyFact, testimony_changes),
    (e.CorrectionFact, correction_changes),
    (e.MachineFact, machine_changes),
    (e.OfferFact, offer_changes),
    (e.LifeFact, instance_changes),
    (e.ContractFact, contract_changes),
    (e.LaunchFact, launch_changes),
    (e.ConfigurationFact, configuration_changes),
    (e.AccessFact, access_changes),
    (e.JobFact, job_changes),
    (e.OperationFact, operation_changes),
    (e.SafetyFact, safety_changes),
    (e.CheckFact, check_changes),
    (e.FindingFact, finding_changes),
    (e.StandingFact, standing_changes),
    (e.UsageFact, _nothing),
    (e.VolumeFact, volume_changes),
    (e.WebhookFact, webhook_changes),
    (e.PaymentFact, payment_changes),
    (e.ReturnFact, return_changes),
    (e.PayoutFact, payout_changes),
    (e.ProcessorEntryBooked, entry_changes),
    (e.ReconciliationFact, reconciliation_changes),
    (e.AdjustmentFact, adjustment_changes),
    (e.MailFact, mail_changes),
    (e.BudgetFact, budget_changes),
)
"""Who folds what: each group of the catalogue with its function."""
_FOLDS: Final[dict[type[e.Fact], _Fold]] = {
    kind: fold for union, fold in GROUPS for kind in (get_args(union) or (union,))
}
assert _FOLDS.keys() == set(get_args(e.AnyFact)), "a fact without a fold"
