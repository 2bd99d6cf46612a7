"""What runs beside the API: the usage projection, and the policies on a timer.

Of several processes one is the leader of each, by an advisory lock that its connection holds; when
it dies, the lock is free and another takes over. Every job is idempotent, so two leaders for a
moment do no harm.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import UTC
from typing import Final

import structlog
from apscheduler.executors.pool import ThreadPoolExecutor
from apscheduler.schedulers.background import BackgroundScheduler

from ledger.errors import LedgerError
from ledger.projections.runner import UsageRunner, wait_for_events
from ledger.services import policies, reconciliation
from ledger.services.check_timer import keep_slots
from ledger.services.leadership import Leadership
from ledger.services.ledger import Ledger
from ledger.services.payments.gateway import PaymentGateway
from ledger.services.reconciliation import ProcessorComparison
from ledger.store.database import translating
from ledger.store.log import ensure_partitions

PROJECTIONS_LOCK: Final = 7_415_003
JOBS_LOCK: Final = 7_415_004
WEBHOOKS_LOCK: Final = 7_415_006
PAYMENTS_LOCK: Final = 7_415_007
RECONCILIATION_LOCK: Final = 7_415_008
MAIL_LOCK: Final = 7_415_009
_POLL_SECONDS: Final = 0.5
_RETRY_SECONDS: Final = 1.0
_PAYMENTS_SECONDS: Final = 1.0
_PARTITION_SECONDS: Final = 60
_RECONCILIATION_SECONDS: Final = 600
_DATABASE_SECONDS: Final = 0.5
_DATABASE_RETRY_SECONDS: Final = 5.0

log = structlog.get_logger("gpuledger")


def run_projections(ledger: Ledger, stop: threading.Event) -> None:
    """Keep the usage group's tables up with the log until *stop* is set."""
    leadership = Leadership(ledger, PROJECTIONS_LOCK)
    while not stop.is_set():
        try:
            if leadership.held():
                _follow(ledger, leadership, stop)
            else:
                stop.wait(_RETRY_SECONDS)
        except LedgerError as error:
            log.warning("projection paused", code=error.code, reason=error.message)
            stop.wait(_RETRY_SECONDS)
    leadership.release()


def _follow(ledger: Ledger, leadership: Leadership, stop: threading.Event) -> None:
    runner = UsageRunner()
    with (
        translating(),
        ledger.database.connect() as folding,
        ledger.database.connect(autocommit=True) as listening,
    ):
        while not stop.is_set():
            if not runner.step(folding):
                folding.commit()
                wait_for_events(listening, _POLL_SECONDS)
                if not leadership.held():
                    return


def start_jobs(ledger: Ledger, processor: ProcessorComparison | None = None) -> BackgroundScheduler:
    """Start the timer: policies every second, partitions every minute, reconciliation every ten.

    Each only as the leader. Reconciliation may take long, so it has a thread and a lock of its own.
    """
    leadership = Leadership(ledger, JOBS_LOCK)
    reconciling = Leadership(ledger, RECONCILIATION_LOCK)

    def as_leader(job: Callable[[], None], leading: Leadership = leadership) -> Callable[[], None]:
        def run() -> None:
            try:
                if leading.held():
                    job()
            except LedgerError as error:
                log.warning("job postponed", code=error.code, reason=error.message)

        return run

    def each_second() -> None:
        # First: it sees whether the timer stood still, before checks are judged.
        keep_slots(ledger)
        policies.run_due(ledger)

    def partitions() -> None:
        with ledger.database.pool.connection() as connection:
            made = ensure_partitions(connection)
        if made:
            log.info("partitions made ahead", count=made)

    def reconcile() -> None:
        for outcome in reconciliation.run_due(ledger, processor):
            told = log.info if outcome.is_clean else log.warning
            told(
                "reconciled",
                job=outcome.job,
                found=outcome.found,
                opened=outcome.opened,
                open=outcome.open,
                note=outcome.note,
            )

    scheduler = BackgroundScheduler(
        timezone=UTC,
        executors={"default": ThreadPoolExecutor(1), "slow": ThreadPoolExecutor(1)},
        job_defaults={"coalesce": True, "max_instances": 1, "misfire_grace_time": None},
    )
    scheduler.add_job(as_leader(each_second), "interval", seconds=1)
    scheduler.add_job(as_leader(partitions), "interval", seconds=_PARTITION_SECONDS)
    scheduler.add_job(
        as_leader(reconcile, reconciling),
        "interval",
        seconds=_RECONCILIATION_SECONDS,
        executor="slow",
    )
    scheduler.start()
    return scheduler


def run_payments(ledger: Ledger, gateway: PaymentGateway, stop: threading.Event) -> None:
    """Ask the payment processor for whatever is open, as the leader, until *stop* is set.

    It runs beside the policies: a processor that takes its time holds up nothing but this.
    """
    leadership = Leadership(ledger, PAYMENTS_LOCK)
    while not stop.wait(_PAYMENTS_SECONDS):
        try:
            if leadership.held():
                policies.pay(ledger, gateway)
        except LedgerError as error:
            log.warning("payments paused", code=error.code, reason=error.message)
        except Exception as error:
            # A defect of ours must not end the job for good: it is told, again and again.
            log.exception("payments failed", exc_info=error)
    leadership.release()


def keep_database(ledger: Ledger, stop: threading.Event) -> None:
    """Start the embedded database again whenever it died, until *stop* is set."""
    embedded = ledger.database.embedded
    if embedded is None:
        return
    pause = _DATABASE_SECONDS
    while not stop.wait(pause):
        pause = _DATABASE_SECONDS
        if embedded.is_running:
            continue
        try:
            embedded.start()
        except LedgerError as error:
            log.warning("database does not start", code=error.code, reason=error.message)
            pause = _DATABASE_RETRY_SECONDS
        else:
            log.warning("database started again")
