"""What the platform does by itself when a second comes: policies.

A policy reads, decides and issues ordinary commands; acting twice is harmless, because each looks
at what already happened. Everything is judged again under the log's lock before anything is
appended. `run_due` does what is due, in the order of one second (`scenarios.md`); `next_due` tells
a simulated clock where to stop next.
"""

from __future__ import annotations

from typing import Final

from ledger.services import invoicing
from ledger.services.billing import PLAN_DUE
from ledger.services.budgets import BUDGETS_DUE, watch_budgets
from ledger.services.certifications import TIERS_DUE
from ledger.services.disputes import DUE as DISPUTES_DUE
from ledger.services.grants import DUE as GRANTS_DUE
from ledger.services.ledger import Ledger
from ledger.services.payments import runner
from ledger.services.payments.gateway import PaymentGateway
from ledger.services.policies import (
    alerts,
    cleanup,
    contracts,
    debt,
    disputes,
    expiring,
    grants,
    idle,
    jobs,
    limits,
    machines,
    maintenance,
    outages,
    payouts,
    periods,
    self_billing,
    terms,
    top_ups,
    trust,
    volumes,
)
from ledger.services.policies.alerts import watch_balances
from ledger.services.policies.cleanup import clean_up
from ledger.services.policies.common import is_due
from ledger.services.policies.contracts import expire_contracts, expire_holds, time_out_launches
from ledger.services.policies.debt import collect_debt
from ledger.services.policies.disputes import (
    hold_witnessed,
    let_silence_decide,
    recover_receivables,
    state_usage,
)
from ledger.services.policies.exhaustion import EVERY_SECOND, exhaust
from ledger.services.policies.expiring import warn_of_ends
from ledger.services.policies.glance import (
    ISSUE_AFTER_SECONDS,
    Round,
    Turn,
    any_of,
    marked,
)
from ledger.services.policies.grants import close_grants
from ledger.services.policies.idle import watch_idle
from ledger.services.policies.jobs import run_jobs
from ledger.services.policies.limits import cap_days, end_leases
from ledger.services.policies.machines import watch_machines
from ledger.services.policies.maintenance import keep_windows
from ledger.services.policies.outages import compensate, end_outages
from ledger.services.policies.payouts import pay_hosts
from ledger.services.policies.periods import (
    close_periods,
    issue_invoices,
    plan_periods,
    record_gaps,
)
from ledger.services.policies.self_billing import bill_hosts
from ledger.services.policies.terms import apply_terms, end_reservations
from ledger.services.policies.top_ups import top_up
from ledger.services.policies.trust import judge_checks, keep_tiers, review_faults
from ledger.services.policies.volumes import end_volumes
from ledger.services.statements import STATEMENTS_DUE
from ledger.services.verification import FAULTS_DUE
from ledger.store.database import Connection

__all__ = [
    "ISSUE_AFTER_SECONDS",
    "close_periods",
    "exhaust",
    "headroom",
    "next_due",
    "pay",
    "record_gaps",
    "run_due",
    "top_up",
    "watch_balances",
]

_DUE = (
    terms.next_due,
    contracts.next_due,
    expiring.next_due,
    volumes.next_due,
    grants.next_due,
    debt.next_due,
    disputes.next_due,
    periods.next_due,
    payouts.next_due,
    self_billing.next_due,
    maintenance.next_due,
    outages.next_due,
    trust.next_due,
    jobs.next_due,
    *(one.next_due for one in (limits, idle, top_ups, alerts, cleanup)),
)


_ENDS: Final = Round(
    Turn(apply_terms, terms.TERMS_DUE),
    Turn(run_jobs, jobs.JOBS_DUE),
    Turn(expire_contracts, contracts.CONTRACTS_DUE),
    Turn(warn_of_ends, expiring.ENDS_NEAR),
    Turn(end_volumes, volumes.VOLUMES_DUE),
    Turn(end_leases, limits.LEASES_MAY_END),
    Turn(cap_days, limits.DAYS_MAY_BE_SPENT),
    Turn(watch_idle, idle.MAY_BE_IDLE),
    Turn(end_reservations, terms.RESERVATIONS_DUE),
    Turn(time_out_launches, contracts.LAUNCHES_DUE),
    Turn(expire_holds, contracts.HOLDS_DUE),
    Turn(watch_machines, machines.CHANGED),
    Turn(keep_windows, maintenance.WINDOWS_DUE),
    Turn(end_outages, outages.OUTAGES_MAY_END),
    Turn(judge_checks, trust.CHECKS_DUE),
    Turn(review_faults, FAULTS_DUE),
    Turn(keep_tiers, TIERS_DUE),
    Turn(exhaust, EVERY_SECOND),
    Turn(collect_debt, debt.DEBTS),
)
"""The first part of one second: terms, ends, limits, credit."""
_FOLLOWS: Final = Round(
    Turn(watch_balances, alerts.WATCHED),
    Turn(watch_budgets, BUDGETS_DUE),
    Turn(clean_up, cleanup.MAY_GO),
    Turn(compensate, outages.UNSETTLED),
    Turn(state_usage, STATEMENTS_DUE),
    Turn(let_silence_decide, DISPUTES_DUE),
    Turn(hold_witnessed, disputes.WITNESSED_DUE),
    Turn(recover_receivables, disputes.RECEIVABLES_DUE),
    Turn(close_grants, GRANTS_DUE),
    Turn(pay_hosts, payouts.PAYOUTS_DUE),
    Turn(close_periods, periods.PERIODS_DUE),
    Turn(plan_periods, PLAN_DUE),
    Turn(issue_invoices, invoicing.INVOICES_DUE),
    Turn(bill_hosts, self_billing.MONTHS_DUE),
    Turn(record_gaps, periods.GAPS_DUE),
)
"""The rest of it: what is told, what goes, what is written down."""
ROUNDS: Final = (_ENDS, _FOLLOWS)
_PAYMENTS_DUE: Final = any_of(
    runner.OPEN,
    *(
        f"SELECT 1 WHERE {marked(name)} + {seconds} <= %(now)s"
        for name, seconds in runner.LOOKS.items()
    ),
)


def run_due(ledger: Ledger, gateway: PaymentGateway | None = None) -> None:
    """Do everything that is due at the present second.

    With a *gateway* automatic top-ups and everything else that the processor is asked for, too.
    Where a processor takes its time that runs beside this (`pay`), so that nothing here waits.
    """
    _ENDS.take(ledger)
    if gateway is not None:
        pay(ledger, gateway)  # No transaction is open here, not even one that only reads.
    _FOLLOWS.take(ledger)


def pay(ledger: Ledger, gateway: PaymentGateway) -> None:
    """Charge what consents ask for, and ask the payment processor for all that is open."""
    if is_due(ledger, top_ups.TOP_UPS_DUE):
        top_up(ledger, gateway)
    if is_due(ledger, _PAYMENTS_DUE):
        runner.run(ledger, gateway)


def next_due(connection: Connection, now: int) -> int | None:
    """The next second after *now* at which a policy has something to do, as far as is known now.

    Machines are taken to go on reporting; who knows that one does not adds its last contact.
    """
    found = [ask(connection, now) for ask in _DUE]
    later = [second for second in found if second is not None and second > now]
    return min(later, default=None)


def headroom(connection: Connection, account_ids: list[int], now: int) -> dict[int, int]:
    """The nanos that may still be charged to accounts before any of their own limits is reached.

    Bytes are billed when they are reported: who simulates them looks here how near that is.
    """
    found: dict[int, int] = {}
    for ask in (limits.headroom, top_ups.headroom, alerts.headroom):
        for account_id, nanos in ask(connection, account_ids, now).items():
            found[account_id] = min(nanos, found.get(account_id, nanos))
    return found
