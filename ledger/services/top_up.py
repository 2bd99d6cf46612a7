"""Automatic top-ups: a recorded consent, and charges that only it allows (`marketplace.md` §13.2).

A charge is a request in the log first, then a call to the payment processor outside of any
transaction, then a result in the log. Whoever dies in between leaves an open request; the next run
asks the processor again under the same key, which charges a card once at most.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from ledger.domain.events import (
    Fact,
    TopUpConsented,
    TopUpFailed,
    TopUpRequested,
    TopUpRevoked,
    TopUpSettled,
    TopUpSwitchedOff,
)
from ledger.domain.ids import account_stream
from ledger.domain.money import MAX_POSTING_NANOS, NANOS_PER_CENT, format_dollars
from ledger.domain.payment import top_up_id
from ledger.errors import NotFoundError, RejectedError
from ledger.services import deposits, tax_invoices
from ledger.services.caps import day_start, read_caps
from ledger.services.ledger import Unit
from ledger.services.notices import notice
from ledger.services.payments.gateway import Declined, Order, Outcome, Settled
from ledger.store.database import Connection

SOURCE: Final = "auto_top_up"
FAILURES_MAX: Final = 3
RETRY_SECONDS: Final = 3_600
_REFERENCE: Final = re.compile(r"[A-Za-z0-9_.:-]{1,128}")
_CARD_NUMBER: Final = re.compile(r"\d{12,19}")


class Consent(NamedTuple):
    """What a renter agreed to: nanos, whole cents. `reference` names it at the processor."""

    reference: str
    below: int
    amount: int
    max_per_day: int


class Standing(NamedTuple):
    """The last consent of an account, and what became of it: `on`, `revoked`, `off` (failures)."""

    account_id: int
    consent_no: int
    consent: Consent
    status: str
    failures: int
    failed_at: int | None
    armed_position: int
    consented_at: int


def consent(unit: Unit, account_id: int, given: Consent) -> int:
    """Record a renter's consent; it replaces the one before and switches top-ups on again.

    Raises:
        NotFoundError: `no_such_account`; `no_such_card` for the card of somebody else, or one that
            was removed.
        RejectedError: `invalid_amount` unless all three are whole cents above 0 and a day has room
            for one amount; `invalid_args` for a reference that is none, or looks like a card.
    """
    row = unit.connection.execute(
        "SELECT coalesce(t.consent_no, 0) FROM accounts a LEFT JOIN top_up_consents t"
        " USING (account_id) WHERE a.account_id = %s",
        [account_id],
    ).fetchone()
    if row is None:
        raise NotFoundError("no_such_account", f"there is no account {account_id}")
    for nanos in (given.below, given.amount, given.max_per_day):
        if nanos % NANOS_PER_CENT or not 0 < nanos <= MAX_POSTING_NANOS:
            message = "below, amount and max_per_day are whole cents above 0"
            raise RejectedError("invalid_amount", message)
    charge = tax_invoices.tax_on(unit.connection, account_id, given.amount)[0].gross
    if charge > given.max_per_day:
        message = f"max_per_day has no room for one amount: {format_dollars(charge)} with its tax"
        raise RejectedError("invalid_amount", message)
    if not _REFERENCE.fullmatch(given.reference):
        message = "reference names the agreement at the payment processor: 1 to 128 letters, digits"
        raise RejectedError("invalid_args", message)
    if _CARD_NUMBER.search(re.sub(r"[_.:-]", "", given.reference)):
        message = "reference looks like the number of a card: send the processor's name for it"
        raise RejectedError("invalid_args", message)
    _require_own_card(unit.connection, account_id, given.reference)
    number = int(row[0]) + 1
    unit.append(
        account_stream(account_id),
        TopUpConsented(
            account_id=account_id,
            consent_no=number,
            reference=given.reference,
            below=given.below,
            amount=given.amount,
            max_per_day=given.max_per_day,
            consented_at=unit.now,
        ),
    )
    return number


def _require_own_card(connection: Connection, account_id: int, reference: str) -> None:
    row = connection.execute(
        "SELECT account_id, status FROM cards WHERE card = %s", [reference]
    ).fetchone()
    if row is not None and tuple(row) != (account_id, "saved"):
        raise NotFoundError("no_such_card", f"there is no card {reference!r}")


def revoke(unit: Unit, account_id: int) -> None:
    """Withdraw the consent; revoking again, or without one, changes nothing."""
    standing = read_standing(unit.connection, account_id)
    if standing is None or standing.status == "revoked":
        return
    unit.append(
        account_stream(account_id),
        TopUpRevoked(account_id=account_id, consent_no=standing.consent_no, revoked_at=unit.now),
    )


def read_standing(connection: Connection, account_id: int) -> Standing | None:
    """The last consent of an account; none if it never gave one."""
    found = read_standings(connection, "account_id = %s", [account_id])
    return found[0] if found else None


def read_standings(connection: Connection, where: str, values: list[object]) -> list[Standing]:
    """Consents by account; *where* is a condition of this package's own."""
    rows = connection.execute(
        "SELECT account_id, consent_no, reference, below, amount, max_per_day, status, failures,"  # noqa: S608 - constants
        f" failed_at, armed_position, consented_at FROM top_up_consents WHERE {where}"
        " ORDER BY account_id",
        values,
    )
    return [
        Standing(row[0], row[1], Consent(row[2], int(row[3]), int(row[4]), int(row[5])), *row[6:])
        for row in rows
    ]


def amount_needed(given: Consent, available: int) -> int:
    """The smallest whole multiple of `amount` with which *available* is at least `below`; or 0."""
    short = given.below - available
    return max(0, -(-short // given.amount)) * given.amount


def room_today(connection: Connection, standing: Standing, now: int) -> int:
    """Nanos that may still be charged on the UTC day of *now*, by the consent and by the caps.

    Every charge of the day counts that went through or still may.
    """
    row = connection.execute(
        "SELECT coalesce(sum(amount + tax), 0) FROM top_ups"
        " WHERE account_id = %s AND requested_at >= %s AND status <> 'failed'",
        [standing.account_id, day_start(now)],
    ).fetchone()
    assert row is not None
    caps = [standing.consent.max_per_day]
    per_day = read_caps(connection, standing.account_id).per_day
    if per_day is not None:
        caps.append(per_day)
    return min(caps) - int(row[0])


def request(unit: Unit, standing: Standing, amount: int) -> None:
    """Write down that a charge is about to be made, in answer to what armed it."""
    unit.append(
        account_stream(standing.account_id),
        TopUpRequested(
            account_id=standing.account_id,
            consent_no=standing.consent_no,
            trigger=standing.armed_position,
            amount=amount,
            tax=tax_invoices.tax_on(unit.connection, standing.account_id, amount)[0].tax,
            requested_at=unit.now,
        ),
    )


class Open(NamedTuple):
    """A request whose end is not known."""

    order: Order
    trigger: int
    consent_no: int
    requested_at: int
    is_allowed: bool
    """False once the consent that allowed it no longer stands."""


def open_requests(connection: Connection) -> list[Open]:
    """Every request whose end is not known, oldest first."""
    rows = connection.execute(
        "SELECT t.account_id, t.trigger, t.consent_no, t.amount + t.tax, t.requested_at,"
        " c.reference, c.consent_no = t.consent_no AND c.status = 'on', coalesce(p.customer, '')"
        " FROM top_ups t JOIN top_up_consents c USING (account_id)"
        " LEFT JOIN payers p USING (account_id)"
        " WHERE t.status = 'requested' ORDER BY t.requested_at, t.account_id"
    )
    return [
        Open(
            Order(
                top_up_id(row[0], row[1]),
                row[0],
                row[5],
                int(row[3]) // NANOS_PER_CENT,
                customer=row[7],
                ordered_at=row[4],
            ),
            trigger=row[1],
            consent_no=row[2],
            requested_at=row[4],
            is_allowed=row[6],
        )
        for row in rows
    ]


def finish(
    unit: Unit, account_id: int, trigger: int, outcome: Outcome, cents: int | None = None
) -> None:
    """Book what became of a charge; booking it again changes nothing.

    What the processor says is booked whatever we thought before: a charge taken for failed that
    did go through becomes credit, and *cents* is what came in, by default what was asked for.
    """
    row = unit.connection.execute(
        "SELECT consent_no, amount + tax, status FROM top_ups"
        " WHERE account_id = %s AND trigger = %s",
        [account_id, trigger],
    ).fetchone()
    assert row is not None, (account_id, trigger)
    consent_no, gross, status = row[0], int(row[1]), row[2]
    if cents is not None:
        gross = cents * NANOS_PER_CENT
    match outcome:
        case Settled() if status != "settled":
            came = tax_invoices.split_gross(unit.connection, account_id, gross)
            deposit_id = top_up_id(account_id, trigger)
            deposits.deposit(unit, account_id, came.net, deposit_id, source=SOURCE, tax=came.tax)
            settled = TopUpSettled(
                account_id=account_id,
                consent_no=consent_no,
                trigger=trigger,
                amount=came.net,
                tax=came.tax,
                payment=outcome.payment,
                settled_at=unit.now,
            )
            unit.append(account_stream(account_id), settled)
        case Declined() if status == "requested":
            _fail(unit, account_id, trigger, consent_no, outcome.reason)
        case _:
            return


def _fail(unit: Unit, account_id: int, trigger: int, consent_no: int, reason: str) -> None:
    stream, about = account_stream(account_id), f"account-{account_id}"
    failed = TopUpFailed(
        account_id=account_id,
        consent_no=consent_no,
        trigger=trigger,
        reason=reason,
        failed_at=unit.now,
    )
    unit.append(stream, failed)
    standing = read_standing(unit.connection, account_id)
    if standing is None or standing.consent_no != consent_no or standing.status != "on":
        return  # Who withdrew the consent need not hear that it led to nothing.
    unit.append_all([notice(unit, account_id, "top_up_failed", about)])
    if standing.failures < FAILURES_MAX:
        return
    off: Fact = TopUpSwitchedOff(
        account_id=account_id,
        consent_no=standing.consent_no,
        failures=standing.failures,
        switched_off_at=unit.now,
    )
    unit.append_all([(stream, off), notice(unit, account_id, "top_up_off", about)])
