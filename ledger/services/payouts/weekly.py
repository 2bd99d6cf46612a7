"""The payouts of a Friday (`marketplace.md` §14): due ones begin, new ones are set for the next.

A payout is whole cents of what a host is owed, at least the minimum, and one at a time is pending
for a host. When it is due it is paid at what the host is owed then, at most what was set; the
amount leaves `host_payable` in the same transaction, so nothing can be paid twice out of it. What
is below the minimum, the rest of a cent and a negative balance stay where they are.
"""

from __future__ import annotations

from typing import Final

from ledger.domain.events import PayoutBegun, PayoutCancelled, PayoutRunHeld, PayoutScheduled
from ledger.domain.ids import account_stream
from ledger.domain.money import NANOS_PER_DOLLAR
from ledger.domain.payment import SECONDS_PER_WEEK, friday_of, whole_cents
from ledger.services.corrections import host_payable
from ledger.services.ledger import Unit
from ledger.store.database import Connection

MINIMUM_PAYOUT: Final = 20 * NANOS_PER_DOLLAR
UNDER_WAY: Final = ("begun", "transferred", "returning")
"""States in which the processor may still be asked for something: one of these at a time."""


def begin_due(unit: Unit) -> int:
    """Begin every payout that is due, the oldest of a host first; returns how many ended pending.

    A host that is still being paid waits for the end of that.
    """
    rows = unit.connection.execute(
        "SELECT DISTINCT ON (host_id) payout_id, host_id, amount FROM payouts p"
        " WHERE status = 'pending' AND due_at <= %s AND NOT EXISTS ("
        "  SELECT 1 FROM payouts o WHERE o.host_id = p.host_id AND o.status = ANY(%s))"
        " ORDER BY host_id, due_at, payout_id",
        [unit.now, list(UNDER_WAY)],
    ).fetchall()
    for payout_id, host_id, asked in rows:
        amount = min(int(asked), whole_cents(host_payable(unit.connection, host_id)))
        if amount <= 0:
            cancelled = PayoutCancelled(
                payout_id=payout_id,
                host_id=host_id,
                reason="nothing_payable",
                cancelled_at=unit.now,
            )
            unit.append(account_stream(host_id), cancelled)
            continue
        begun = PayoutBegun(payout_id=payout_id, host_id=host_id, amount=amount, begun_at=unit.now)
        unit.append(account_stream(host_id), begun)
    return len(rows)


def schedule(unit: Unit) -> int:
    """Set a payout for every host that is owed enough and can be paid; returns how many."""
    friday = friday_of(unit.now)
    hosts = unit.connection.execute(
        "SELECT a.account_id FROM payout_accounts a WHERE a.is_enabled AND a.enabled_at <= %s"
        " AND NOT EXISTS (SELECT 1 FROM payouts p WHERE p.host_id = a.account_id"
        "  AND p.status = 'pending') ORDER BY a.account_id",
        [friday],
    ).fetchall()
    count = 0
    for (host_id,) in hosts:
        payable = host_payable(unit.connection, host_id)
        if payable < MINIMUM_PAYOUT:
            continue
        count += 1
        unit.append(
            account_stream(host_id),
            PayoutScheduled(
                payout_id=unit.next_id("payout"),
                host_id=host_id,
                amount=whole_cents(payable),
                due_at=friday + SECONDS_PER_WEEK,
                scheduled_at=unit.now,
            ),
        )
    return count


def hold_run(unit: Unit) -> None:
    """Do what this Friday asks for, once."""
    begin_due(unit)
    friday = friday_of(unit.now)
    if is_run_due(unit.connection, unit.now):
        schedule(unit)
        unit.append("platform", PayoutRunHeld(friday=friday, held_at=unit.now))


def is_run_due(connection: Connection, now: int) -> bool:
    """True when the run of the last Friday was not held and somebody could be paid by then."""
    found = connection.execute(f"{RUN_DUE} LIMIT 1", {"friday": friday_of(now)}).fetchone()
    return found is not None


RUN_DUE: Final = (
    "SELECT 1 FROM payout_accounts WHERE is_enabled AND enabled_at <= %(friday)s"
    " AND NOT EXISTS (SELECT 1 FROM payout_runs WHERE friday >= %(friday)s)"
)
