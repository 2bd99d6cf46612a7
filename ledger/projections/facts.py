"""The fold of every fact that is not usage: accounts, credit, machines, instances, documents.

It runs in the transaction of the command that appended the fact, so its tables are as new as the
log itself, and decisions may lean on them. `changes` is pure: a fact in, statements out; nothing it
says depends on the clock or on how facts were grouped. A rebuild runs the same function.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from ledger.domain import events as e
from ledger.projections.change import Change
from ledger.projections.facts_accounts import (
    account_changes,
    credit_changes,
    document_changes,
    exhaustion_changes,
)
from ledger.projections.facts_instances import instance_changes
from ledger.projections.facts_machines import machine_changes

if TYPE_CHECKING:
    from ledger.store.database import Connection


class Recorded(NamedTuple):
    """A fact with its place in the log."""

    fact: e.AnyFact
    position: int


def apply(connection: Connection, recorded: Iterable[Recorded]) -> None:
    """Fold facts into the tables, in order; equal neighbouring statements travel together."""
    waiting: list[Change] = []
    with connection.cursor() as cursor:
        for one in recorded:
            for change in changes(one.fact, one.position):
                if waiting and waiting[0].sql != change.sql:
                    _execute(cursor, waiting)
                    waiting = []
                waiting.append(change)
        if waiting:
            _execute(cursor, waiting)


def _execute(cursor: Any, batch: Sequence[Change]) -> None:
    if len(batch) == 1:
        cursor.execute(batch[0].sql, batch[0].values)
    else:
        cursor.executemany(batch[0].sql, [change.values for change in batch])


def changes(fact: e.AnyFact, position: int) -> Iterator[Change]:
    """What *fact* at *position* changes in the read models."""
    match fact:
        case e.PolicyAdopted():
            yield from _policy(fact)
        case e.AccountOpened() | e.SubjectErased() | e.ApiKeyCreated() | e.ApiKeyRevoked():
            yield from account_changes(fact)
        case (
            e.DepositSettled()
            | e.CreditRefunded()
            | e.CreditTransferred()
            | e.HoldPlaced()
            | e.HoldCaptured()
            | e.HoldReleased()
            | e.HoldExpired()
        ):
            yield from credit_changes(fact, position)
        case (
            e.AccountExhausted()
            | e.AccountRestored()
            | e.StorageDebtNoticed()
            | e.StorageDebtCleared()
        ):
            yield from exhaustion_changes(fact)
        case e.PeriodClosed() | e.InvoiceIssued() | e.NoticeIssued():
            yield from document_changes(fact, position)
        case (
            e.MachineRegistered()
            | e.EnrolmentOffered()
            | e.MachineEnrolled()
            | e.MachineKeyRevoked()
            | e.MachineListed()
            | e.MachineUnlisted()
            | e.MachineBooted()
            | e.AgentEpochOpened()
            | e.AgentEquivocated()
            | e.MachineWentOffline()
            | e.MachineCameOnline()
        ):
            yield from machine_changes(fact, position)
        case e.UsageRejected() | e.UsageForked():
            return  # Usage that bills nothing: the usage group lists it as an anomaly.
        case _:
            yield from instance_changes(fact, position)


def _policy(fact: e.PolicyAdopted) -> Iterator[Change]:
    yield Change(
        "INSERT INTO policies VALUES (%s, %s, %s, %s, %s, %s)",
        (
            fact.version,
            fact.fee_bp,
            fact.late_usage_seconds,
            fact.admission,
            fact.offline_after_seconds,
            fact.adopted_at,
        ),
    )
