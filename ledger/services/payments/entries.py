"""The processor's own account of what it holds for the platform, booked line by line.

Each line empties what waited for it: a payment or what went back of it in `payment_clearing`, a
payout in `payout_clearing`. A line that belongs to nothing of ours is booked too, against
`processor_suspense`, so that `processor_balance` is what the processor says, to the cent.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from ledger.domain.events import EntryClearing, ProcessorEntryBooked
from ledger.domain.money import NANOS_PER_CENT, SECONDS_PER_DAY
from ledger.services.ledger import Ledger
from ledger.services.payments import inbox
from ledger.services.payments.gateway import Entry, PaymentGateway
from ledger.store.database import Connection, translating

OVERLAP_SECONDS: Final = 3 * SECONDS_PER_DAY
"""How far back lines are read again: some are dated before they can be seen."""
_MARK: Final = "processor_entries"
_STREAM: Final = "processor"


class Match(NamedTuple):
    """What a line belongs to."""

    clearing: EntryClearing
    reference: str | None = None
    account_id: int | None = None


_SUSPENSE: Final = Match("processor_suspense")
_MATCHES: Final = {
    "payment": "SELECT payment_id, account_id FROM payments"
    " WHERE payment = %(object)s AND status = 'settled'",
    "refund": "SELECT refund_id, account_id FROM refunds WHERE refund = %(object)s"
    " OR refund_id = %(reference)s AND (refund IS NULL OR refund = %(object)s)",
    "chargeback": "SELECT chargeback_id, account_id FROM chargebacks"
    " WHERE chargeback_id = %(object)s",
    "transfer": "SELECT 'payout-' || payout_id, host_id FROM payouts WHERE transfer = %(object)s"
    " OR 'payout-' || payout_id = %(reference)s AND transfer IS NULL AND begun_at IS NOT NULL",
}
_CLEARING: Final[dict[str, EntryClearing]] = {
    "payment": "payment_clearing",
    "refund": "payment_clearing",
    "chargeback": "payment_clearing",
    "transfer": "payout_clearing",
    "bank": "bank",
    "fee": "processor_fees",
}


def book_new(ledger: Ledger, gateway: PaymentGateway, since: int | None = None) -> int:
    """Book every line that is not booked yet, from *since* on; returns how many.

    By default it goes on where the last run ended, and some days before that.

    Raises:
        UnavailableError: The processor does not answer; what came before that is booked.
    """
    began = ledger.clock()
    if since is None:
        with translating(), ledger.database.pool.connection() as connection:
            since = max(_mark(connection) - OVERLAP_SECONDS, 0)
    found = sorted(gateway.entries(since), key=lambda one: (one.created_at, one.entry))
    new = _unknown(ledger, found)
    for entry in new:
        _book(ledger, gateway, entry)
    with translating(), ledger.database.pool.connection() as connection:
        connection.execute(
            "INSERT INTO projection_positions VALUES (%s, 0, %s) ON CONFLICT (name) DO UPDATE"
            " SET position = greatest(projection_positions.position, EXCLUDED.position)",
            [_MARK, began],
        )
    return len(new)


def _unknown(ledger: Ledger, found: list[Entry]) -> list[Entry]:
    with ledger.reading() as connection:
        known = {
            row[0]
            for row in connection.execute(
                "SELECT entry FROM processor_entries WHERE entry = ANY(%s)",
                [[one.entry for one in found]],
            )
        }
    return [one for one in found if one.entry not in known]


def _book(ledger: Ledger, gateway: PaymentGateway, entry: Entry) -> None:
    with ledger.reading() as connection:
        match = _match(connection, entry)
    if match is _SUSPENSE and entry.subject is not None:
        # Its message may be late or lost: the line itself says what there is to look at.
        inbox.sync(ledger, gateway, entry.subject)
    with ledger.unit() as unit:
        known = unit.connection.execute(
            "SELECT 1 FROM processor_entries WHERE entry = %s", [entry.entry]
        ).fetchone()
        if known is not None:
            return
        match = _match(unit.connection, entry)
        unit.append(
            _STREAM,
            ProcessorEntryBooked(
                entry=entry.entry,
                kind=entry.kind,
                source=entry.source,
                amount=entry.cents * NANOS_PER_CENT,
                fee=entry.fee_cents * NANOS_PER_CENT,
                clearing=match.clearing,
                reference=match.reference,
                account_id=match.account_id,
                created_at=entry.created_at,
                booked_at=unit.now,
            ),
        )


def _match(connection: Connection, entry: Entry) -> Match:
    if entry.subject is None:
        return _SUSPENSE
    kind = entry.subject.kind
    if kind in {"bank", "fee"}:
        return Match(_CLEARING[kind])
    if kind not in _MATCHES:
        return _SUSPENSE
    row = connection.execute(
        _MATCHES[kind], {"object": entry.subject.object, "reference": entry.reference}
    ).fetchone()
    return _SUSPENSE if row is None else Match(_CLEARING[kind], row[0], row[1])


def _mark(connection: Connection) -> int:
    row = connection.execute(
        "SELECT position FROM projection_positions WHERE name = %s", [_MARK]
    ).fetchone()
    return 0 if row is None else int(row[0])
