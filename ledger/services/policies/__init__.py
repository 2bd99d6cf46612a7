"""What the platform does by itself when a second comes: policies.

A policy reads, decides and issues ordinary commands; acting twice is harmless, because each looks
at what already happened. Everything is judged again under the log's lock before anything is
appended. `run_due` does what is due, in the order of one second (`scenarios.md`); `next_due` tells
a simulated clock where to stop next.
"""

from __future__ import annotations

from ledger.services import invoicing
from ledger.services.ledger import Ledger
from ledger.services.policies import contracts, debt, periods, terms
from ledger.services.policies.contracts import expire_contracts, expire_holds, time_out_launches
from ledger.services.policies.debt import collect_debt
from ledger.services.policies.exhaustion import exhaust
from ledger.services.policies.machines import watch_machines
from ledger.services.policies.periods import ISSUE_AFTER_SECONDS, close_periods, record_gaps
from ledger.services.policies.terms import apply_terms, end_reservations
from ledger.store.database import Connection

__all__ = ["ISSUE_AFTER_SECONDS", "close_periods", "exhaust", "next_due", "record_gaps", "run_due"]

_DUE = (terms.next_due, contracts.next_due, debt.next_due, periods.next_due)


def run_due(ledger: Ledger) -> None:
    """Do everything that is due at the present second."""
    apply_terms(ledger)
    expire_contracts(ledger)
    end_reservations(ledger)
    time_out_launches(ledger)
    expire_holds(ledger)
    watch_machines(ledger)
    exhaust(ledger)
    collect_debt(ledger)
    close_periods(ledger)
    invoicing.issue_due(ledger)
    record_gaps(ledger)


def next_due(connection: Connection, now: int) -> int | None:
    """The next second after *now* at which a policy has something to do, as far as is known now.

    Machines are taken to go on reporting; who knows that one does not adds its last contact.
    """
    found = [ask(connection, now) for ask in _DUE]
    later = [second for second in found if second is not None and second > now]
    return min(later, default=None)
