"""The fold of every fact that is not usage: accounts, credit, machines, instances, documents.

It runs in the transaction of the command that appended the fact, so its tables are as new as the
log itself, and decisions may lean on them. `changes` is pure: a fact in, statements out; nothing it
says depends on the clock or on how facts were grouped. A rebuild runs the same function.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ledger.domain import events as e

if TYPE_CHECKING:
    from ledger.store.database import Connection


class Change(NamedTuple):
    """One statement of a read model."""

    sql: str
    values: tuple[Any, ...]


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
            yield from _account(fact)
        case (
            e.DepositSettled()
            | e.CreditRefunded()
            | e.CreditTransferred()
            | e.HoldPlaced()
            | e.HoldCaptured()
            | e.HoldReleased()
            | e.HoldExpired()
        ):
            yield from _credit(fact, position)
        case (
            e.AccountExhausted()
            | e.AccountRestored()
            | e.StorageDebtNoticed()
            | e.StorageDebtCleared()
        ):
            yield from _exhaustion(fact)
        case e.PeriodClosed() | e.InvoiceIssued() | e.NoticeIssued():
            yield from _documents(fact, position)
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
            yield from _machine(fact, position)
        case e.UsageRejected() | e.UsageForked():
            return  # Usage that bills nothing: the usage group lists it as an anomaly.
        case _:
            yield from _instance(fact, position)


def _counted(kind: str, number: int) -> Change:
    return Change(
        "INSERT INTO id_counters (kind, last) VALUES (%s, %s)"
        " ON CONFLICT (kind) DO UPDATE SET last = EXCLUDED.last",
        (kind, number),
    )


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


# --- accounts and money --------------------------------------------------------------------------


def _account(
    fact: e.AccountOpened | e.SubjectErased | e.ApiKeyCreated | e.ApiKeyRevoked,
) -> Iterator[Change]:
    match fact:
        case e.AccountOpened():
            yield Change(
                "INSERT INTO accounts (account_id, subject, name_hash, opened_at, closed_until)"
                " VALUES (%s, %s, %s, %s, %s)",
                (fact.account_id, fact.subject, fact.name_hash, fact.opened_at, fact.opened_at),
            )
            yield Change("INSERT INTO account_credit (account_id) VALUES (%s)", (fact.account_id,))
            yield _counted("account", fact.account_id)
        case e.SubjectErased():
            yield Change(
                "UPDATE accounts SET erased_at = %s WHERE account_id = %s",
                (fact.erased_at, fact.account_id),
            )
        case e.ApiKeyCreated():
            yield Change(
                "INSERT INTO api_keys (key_id, account_id, role, expires_at, created_at)"
                " VALUES (%s, %s, %s, %s, %s)",
                (fact.key_id, fact.account_id, fact.role, fact.expires_at, fact.created_at),
            )
        case e.ApiKeyRevoked():
            yield Change(
                "UPDATE api_keys SET revoked_at = %s WHERE key_id = %s",
                (fact.revoked_at, fact.key_id),
            )


RENTER_CREDIT: Final = "renter_credit"
HOST_PAYABLE: Final = "host_payable"
PLATFORM_FEE: Final = "platform_fee"
PLATFORM_REVENUE: Final = "platform_revenue"
PAYMENT_CLEARING: Final = "payment_clearing"


def _post(account_id: int, amount: int) -> Change:
    return Change(
        "UPDATE account_credit SET posted = posted + %s WHERE account_id = %s", (amount, account_id)
    )


def _move(
    position: int,
    kind: str,
    reference: str,
    debit: tuple[str, int | None],
    credit: tuple[str, int | None],
    amount: int,
    at: int,
) -> Change:
    return Change(
        "INSERT INTO movements VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s)",
        (position, kind, reference, *debit, *credit, amount, at),
    )


def _close_hold(account_id: int, hold_id: str, status: str, captured: int, at: int) -> Change:
    return Change(
        "UPDATE holds SET status = %s, captured = %s, closed_at = %s"
        " WHERE account_id = %s AND hold_id = %s",
        (status, captured, at, account_id, hold_id),
    )


def _credit(fact: e.CreditFact, position: int) -> Iterator[Change]:
    match fact:
        case e.DepositSettled():
            yield Change(
                "INSERT INTO deposits (account_id, deposit_id, amount, source, settled_at)"
                " VALUES (%s, %s, %s, %s, %s)",
                (fact.account_id, fact.deposit_id, fact.amount, fact.source, fact.settled_at),
            )
            yield _post(fact.account_id, fact.amount)
            yield _move(
                position,
                "deposit",
                fact.deposit_id,
                (PAYMENT_CLEARING, None),
                (RENTER_CREDIT, fact.account_id),
                fact.amount,
                fact.settled_at,
            )
        case e.CreditRefunded():
            yield Change(
                "UPDATE deposits SET refunded = refunded + %s"
                " WHERE account_id = %s AND deposit_id = %s",
                (fact.amount, fact.account_id, fact.deposit_id),
            )
            yield _post(fact.account_id, -fact.amount)
            yield _move(
                position,
                "refund",
                fact.refund_id,
                (RENTER_CREDIT, fact.account_id),
                (PAYMENT_CLEARING, None),
                fact.amount,
                fact.refunded_at,
            )
        case e.CreditTransferred():
            yield _post(fact.from_account_id, -fact.amount)
            yield _post(fact.to_account_id, fact.amount)
            yield _move(
                position,
                "transfer",
                fact.transfer_id,
                (RENTER_CREDIT, fact.from_account_id),
                (RENTER_CREDIT, fact.to_account_id),
                fact.amount,
                fact.transferred_at,
            )
        case e.HoldPlaced():
            yield Change(
                "INSERT INTO holds (account_id, hold_id, amount, status, expires_at, placed_at)"
                " VALUES (%s, %s, %s, 'pending', %s, %s)",
                (fact.account_id, fact.hold_id, fact.amount, fact.expires_at, fact.placed_at),
            )
        case e.HoldCaptured():
            yield _close_hold(
                fact.account_id, fact.hold_id, "captured", fact.amount, fact.captured_at
            )
            yield _post(fact.account_id, -fact.amount)
            yield _move(
                position,
                "capture",
                fact.hold_id,
                (RENTER_CREDIT, fact.account_id),
                (PLATFORM_REVENUE, None),
                fact.amount,
                fact.captured_at,
            )
        case e.HoldReleased():
            yield _close_hold(fact.account_id, fact.hold_id, "released", 0, fact.released_at)
        case e.HoldExpired():
            yield _close_hold(fact.account_id, fact.hold_id, "expired", 0, fact.expired_at)


def _exhaustion(
    fact: e.AccountExhausted | e.AccountRestored | e.StorageDebtNoticed | e.StorageDebtCleared,
) -> Iterator[Change]:
    match fact:
        case e.AccountExhausted():
            yield Change(
                "UPDATE account_credit SET dry_at = %s, exhausted_at = %s, debt_limit = %s,"
                " debt_notices = 0, debt_since = NULL WHERE account_id = %s",
                (fact.dry_at, fact.stopped_at, fact.debt_limit, fact.account_id),
            )
        case e.AccountRestored():
            yield Change(
                "UPDATE account_credit SET exhausted_at = NULL, dry_at = NULL, debt_limit = 0,"
                " debt_notices = 0, debt_since = NULL WHERE account_id = %s",
                (fact.account_id,),
            )
        case e.StorageDebtNoticed():
            yield Change(
                "UPDATE account_credit SET debt_notices = %s,"
                " debt_since = coalesce(debt_since, %s) WHERE account_id = %s",
                (fact.number, fact.noticed_at, fact.account_id),
            )
        case e.StorageDebtCleared():
            yield Change(
                "UPDATE account_credit SET debt_notices = 0, debt_since = NULL"
                " WHERE account_id = %s",
                (fact.account_id,),
            )


def _documents(
    fact: e.PeriodClosed | e.InvoiceIssued | e.NoticeIssued, position: int
) -> Iterator[Change]:
    match fact:
        case e.PeriodClosed():
            yield Change(
                "UPDATE accounts SET closed_until = %s WHERE account_id = %s",
                (fact.period_until, fact.account_id),
            )
            yield Change(
                "INSERT INTO closed_periods (account_id, period_from, period_until, position)"
                " VALUES (%s, %s, %s, %s)",
                (fact.account_id, fact.period_from, fact.period_until, position),
            )
        case e.InvoiceIssued():
            yield Change(
                "INSERT INTO invoices VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s)",
                (
                    fact.number,
                    fact.account_id,
                    fact.period_from,
                    fact.period_until,
                    fact.opening,
                    fact.movements,
                    fact.total,
                    fact.closing,
                    fact.paid,
                    fact.issued_at,
                    position,
                ),
            )
            yield Change(
                "UPDATE closed_periods SET number = %s WHERE account_id = %s AND period_from = %s",
                (fact.number, fact.account_id, fact.period_from),
            )
            yield _counted("invoice", int(fact.number.rpartition("-")[2]))
            for number, line in enumerate(fact.lines, 1):
                yield Change(
                    "INSERT INTO invoice_lines VALUES"
                    " (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s)",
                    (
                        fact.number,
                        number,
                        line.instance_id,
                        line.meter,
                        line.segment_from,
                        line.kind,
                        line.rate,
                        line.quantity,
                        line.amount,
                        line.late,
                        line.period_from,
                        line.used_from,
                        line.used_until,
                    ),
                )
        case e.NoticeIssued():
            yield Change(
                "INSERT INTO notices VALUES (%s, %s, %s, %s, %s)",
                (position, fact.account_id, fact.code, fact.about, fact.issued_at),
            )


# --- machines ------------------------------------------------------------------------------------


def _machine(fact: e.MachineFact, position: int) -> Iterator[Change]:
    match fact:
        case e.MachineRegistered():
            spec = fact.spec
            yield Change(
                "INSERT INTO machines (machine_id, host_id, gpus, gpu_name, gpu_ram_gb, cpu_cores,"
                " ram_gb, disk_gb, up_mbps, down_mbps, registered_at, desired_version)"
                " VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s)",
                (
                    fact.machine_id,
                    fact.host_id,
                    spec.gpus,
                    spec.gpu_name,
                    spec.gpu_ram_gb,
                    spec.cpu_cores,
                    spec.ram_gb,
                    spec.disk_gb,
                    spec.up_mbps,
                    spec.down_mbps,
                    fact.registered_at,
                    position,
                ),
            )
            yield _counted("machine", fact.machine_id)
        case e.MachineEnrolled():
            yield Change(
                "INSERT INTO machine_keys (machine_id, key_id, public_key, enrolled_at)"
                " VALUES (%s, %s, %s, %s)",
                (
                    fact.machine_id,
                    fact.key_id,
                    bytes.fromhex(fact.public_key),
                    fact.enrolled_at,
                ),
            )
            yield Change(
                "UPDATE machines SET enrolled_at = coalesce(enrolled_at, %s) WHERE machine_id = %s",
                (fact.enrolled_at, fact.machine_id),
            )
            for slot, gpu_uuid in enumerate(fact.gpu_uuids):
                yield Change(
                    "INSERT INTO gpus (gpu_no, gpu_uuid, machine_id, slot)"
                    " VALUES ((SELECT coalesce(max(gpu_no), 0) + 1 FROM gpus), %s, %s, %s)"
                    " ON CONFLICT (gpu_uuid) DO NOTHING",
                    (gpu_uuid, fact.machine_id, slot),
                )
        case e.MachineKeyRevoked():
            yield Change(
                "UPDATE machine_keys SET revoked_at = %s WHERE machine_id = %s AND key_id = %s",
                (fact.revoked_at, fact.machine_id, fact.key_id),
            )
        case e.MachineListed():
            yield _unlist(fact.machine_id, fact.listed_at)
            yield Change(
                "INSERT INTO listings VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, NULL)",
                (
                    fact.listing_id,
                    fact.machine_id,
                    fact.gpu_rate_per_gpu,
                    fact.storage_rate,
                    fact.up_rate,
                    fact.down_rate,
                    fact.min_bid_per_gpu,
                    fact.min_gpus,
                    fact.until,
                    fact.reserved_discount_max_bp,
                    fact.listed_at,
                ),
            )
            yield Change(
                "UPDATE machines SET listing_id = %s WHERE machine_id = %s",
                (fact.listing_id, fact.machine_id),
            )
            yield _counted("listing", fact.listing_id)
        case e.MachineUnlisted():
            yield _unlist(fact.machine_id, fact.unlisted_at)
            yield Change(
                "UPDATE machines SET listing_id = NULL WHERE machine_id = %s", (fact.machine_id,)
            )
        case e.MachineBooted():
            yield Change(
                "UPDATE machines SET boot_id = %s WHERE machine_id = %s",
                (fact.boot_id, fact.machine_id),
            )
        case e.AgentEpochOpened():
            yield Change(
                "INSERT INTO machine_epochs VALUES (%s, %s, %s, %s)",
                (fact.machine_id, fact.epoch, fact.opened_at, position),
            )
        case e.MachineWentOffline():
            yield Change(
                "UPDATE machines SET offline_since = %s WHERE machine_id = %s",
                (fact.offline_at, fact.machine_id),
            )
        case e.MachineCameOnline():
            yield Change(
                "UPDATE machines SET offline_since = NULL WHERE machine_id = %s", (fact.machine_id,)
            )
        case e.EnrolmentOffered() | e.AgentEquivocated():
            return


def _unlist(machine_id: int, at: int) -> Change:
    return Change(
        "UPDATE listings SET unlisted_at = %s WHERE machine_id = %s AND unlisted_at IS NULL",
        (at, machine_id),
    )


# --- instances -----------------------------------------------------------------------------------


def _instance(fact: e.InstanceFact, position: int) -> Iterator[Change]:
    instance_id = fact.instance_id
    match fact:
        case e.InstanceCreated():
            terms = fact.terms
            yield Change(
                "INSERT INTO instances (instance_id, account_id, machine_id, host_id, listing_id,"
                " kind, gpus, disk_bytes, gpu_rate, storage_rate, up_rate, down_rate, fee_bp,"
                " until, label, launch, status, reason, wants_run, requested_position,"
                " assignment_no, slots, gpu_uuids, created_at, changed_position)"
                " VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s,"
                " 'scheduling', %s, true, %s, 0, '{}', '{}', %s, %s)",
                (
                    instance_id,
                    fact.account_id,
                    fact.machine_id,
                    fact.host_id,
                    fact.listing_id,
                    terms.kind,
                    fact.gpus,
                    fact.disk_bytes,
                    terms.gpu_rate,
                    terms.storage_rate,
                    terms.up_rate,
                    terms.down_rate,
                    terms.fee_bp,
                    fact.until,
                    fact.label,
                    fact.launch,
                    fact.reason,
                    position,
                    fact.created_at,
                    position,
                ),
            )
            yield Change(
                "UPDATE account_credit SET storage_product = storage_product + %s"
                " WHERE account_id = %s",
                (terms.storage_rate * fact.disk_bytes, fact.account_id),
            )
            yield _counted("instance", instance_id)
            yield _desired(instance_id, position)
        case e.InstanceStartRequested():
            yield Change(
                "UPDATE instances SET status = 'scheduling', reason = 'no_capacity',"
                " wants_run = true, stopped_at = NULL, requested_position = %s,"
                " changed_position = %s WHERE instance_id = %s",
                (position, position, instance_id),
            )
            yield _desired(instance_id, position)
        case e.GpusAssigned():
            yield from _assigned(fact, position)
        case e.InstanceRunning():
            yield Change(
                "UPDATE instances SET status = 'running', reason = '', gpu_from = %s,"
                " gpu_until = NULL, first_run_at = coalesce(first_run_at, %s),"
                " changed_position = %s"
                " WHERE instance_id = %s",
                (fact.gpu_from, fact.gpu_from, position, instance_id),
            )
        case e.InstanceRan():
            yield Change(
                "UPDATE instances SET gpu_from = %s, gpu_until = %s,"
                " first_run_at = coalesce(first_run_at, %s), changed_position = %s"
                " WHERE instance_id = %s",
                (fact.gpu_from, fact.gpu_until, fact.gpu_from, position, instance_id),
            )
        case e.InstanceBootChanged():
            yield Change(
                "UPDATE instances SET status = 'loading', reason = '',"
                " gpu_until = coalesce(%s, gpu_until), changed_position = %s"
                " WHERE instance_id = %s",
                (fact.gpu_until, position, instance_id),
            )
        case e.InstanceStopped():
            yield from _released(
                instance_id, fact.stopped_at, "stopped", fact.reason, position, wants_run=False
            )
        case e.InstanceDisplaced():
            yield from _released(
                instance_id, fact.displaced_at, "scheduling", fact.reason, position, wants_run=True
            )
        case e.InstanceExpired():
            yield from _released(
                instance_id, fact.expired_at, "expired", "", position, wants_run=False
            )
        case e.InstanceDestroyed():
            yield from _released(
                instance_id, fact.destroyed_at, "destroyed", "", position, wants_run=False
            )
            yield Change(
                "UPDATE account_credit SET storage_product = storage_product"
                " - (SELECT storage_rate * disk_bytes FROM instances WHERE instance_id = %s)"
                " WHERE account_id = (SELECT account_id FROM instances WHERE instance_id = %s)",
                (instance_id, instance_id),
            )
            yield Change(
                "UPDATE instances SET destroyed_at = %s WHERE instance_id = %s",
                (fact.destroyed_at, instance_id),
            )
        case e.InstanceDiskLost():
            yield Change(
                "UPDATE instances SET disk_lost_at = %s, changed_position = %s"
                " WHERE instance_id = %s",
                (fact.lost_at, position, instance_id),
            )
        case e.InstanceLabelled():
            yield Change(
                "UPDATE instances SET label = %s, changed_position = %s WHERE instance_id = %s",
                (fact.label, position, instance_id),
            )
        case e.InstanceRebooted():
            yield _desired(instance_id, position)
        case e.ObservationIgnored() | e.UsageGapRecorded():
            return


def _desired(instance_id: int, position: int) -> Change:
    return Change(
        "UPDATE machines SET desired_version = %s"
        " WHERE machine_id = (SELECT machine_id FROM instances WHERE instance_id = %s)",
        (position, instance_id),
    )


def _assigned(fact: e.GpusAssigned, position: int) -> Iterator[Change]:
    yield Change(
        "UPDATE instances SET status = 'loading', reason = '', assignment_no = %s,"
        " assigned_at = %s, slots = %s, gpu_uuids = %s, disk_lost_at = NULL,"
        " changed_position = %s WHERE instance_id = %s",
        (
            fact.assignment_no,
            fact.assigned_at,
            fact.slots,
            fact.gpu_uuids,
            position,
            fact.instance_id,
        ),
    )
    yield Change(
        "INSERT INTO gpu_assignments (instance_id, assignment_no, slot, machine_id, gpu, during)"
        " SELECT %s, %s, gpus.slot, gpus.machine_id, int8range(gpu_no, gpu_no, '[]'),"
        " int8range(%s, NULL) FROM gpus WHERE gpu_uuid = ANY(%s) ORDER BY gpus.slot",
        (fact.instance_id, fact.assignment_no, fact.assigned_at, fact.gpu_uuids),
    )
    yield Change(
        "UPDATE account_credit SET gpu_rate = account_credit.gpu_rate + instances.gpu_rate"
        " FROM instances WHERE instances.instance_id = %s"
        " AND account_credit.account_id = instances.account_id",
        (fact.instance_id,),
    )
    yield _desired(fact.instance_id, position)


def _released(
    instance_id: int, at: int, status: str, reason: str, position: int, *, wants_run: bool
) -> Iterator[Change]:
    yield Change(
        "UPDATE account_credit SET gpu_rate = account_credit.gpu_rate - instances.gpu_rate"
        " FROM instances WHERE instances.instance_id = %s"
        " AND instances.status IN ('loading', 'running')"
        " AND account_credit.account_id = instances.account_id",
        (instance_id,),
    )
    yield Change(
        "UPDATE gpu_assignments SET during = int8range(lower(during), %s)"
        " WHERE instance_id = %s AND upper_inf(during)",
        (at, instance_id),
    )
    yield Change(
        "UPDATE instances SET status = %s, reason = %s, wants_run = %s,"
        " requested_position = CASE WHEN %s THEN %s ELSE requested_position END,"
        " gpu_until = CASE WHEN status = 'running' THEN %s ELSE gpu_until END,"
        " slots = CASE WHEN status IN ('loading', 'running') THEN '{}' ELSE slots END,"
        " gpu_uuids = CASE WHEN status IN ('loading', 'running') THEN '{}' ELSE gpu_uuids END,"
        " stopped_at = CASE WHEN %s THEN stopped_at ELSE coalesce(stopped_at, %s) END,"
        " changed_position = %s WHERE instance_id = %s",
        (
            status,
            reason,
            wants_run,
            wants_run,
            position,
            at,
            wants_run,
            at,
            position,
            instance_id,
        ),
    )
    yield _desired(instance_id, position)
