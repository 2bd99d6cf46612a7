"""Messages from the processor: kept by their id, then answered by looking at what they are about.

A message says only that something happened to an object. What happened is asked of the processor
when the message is worked off, so a repeated, late, early or forged-in-order message does no harm,
and one that was lost is made good by `resync`. The queue is operational: no decision reads it, and
a rebuild does not touch it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from ledger.errors import LedgerError, UnavailableError
from ledger.services.ledger import Ledger
from ledger.services.payments import booking
from ledger.services.payments.gateway import (
    ChargebackSeen,
    Event,
    PaymentGateway,
    RefundSeen,
    Seen,
    Subject,
)
from ledger.store.database import Connection, translating

KEEP_SECONDS: Final = 60 * 86_400
_PAUSE_SECONDS_MAX: Final = 3_600
_BATCH: Final = 200


class Worked(NamedTuple):
    """What a run over the queue did: objects booked, objects that failed and are tried again."""

    booked: int
    failed: int


def receive(connection: Connection, event: Event, now: int, *, again: bool = False) -> bool:
    """Keep a message; False where it is known already, or says nothing that we care about.

    With *again* a known one is worked off once more. The caller commits.
    """
    if event.subject is None:
        return False
    kept = connection.execute(
        "INSERT INTO payment_events AS known (event_id, type, kind, object, owner, created_at,"
        " received_at, due_at) VALUES (%s, %s, %s, %s, %s, %s, %s, %s)"
        " ON CONFLICT (event_id) DO UPDATE SET done_at = NULL, due_at = EXCLUDED.due_at"
        " WHERE %s AND known.done_at IS NOT NULL",
        [event.event_id, event.type, *event.subject, event.created_at, now, now, again],
    )
    return kept.rowcount == 1


def resync(ledger: Ledger, gateway: PaymentGateway, since: int) -> int:
    """Queue every message from second *since* on again; returns how many there are to work off.

    Raises:
        UnavailableError: The processor does not answer; what came before that is queued.
    """
    count = 0
    for event in gateway.events(since):
        with translating(), ledger.database.pool.connection() as connection:
            count += receive(connection, event, ledger.clock(), again=True)
    return count


def work_off(ledger: Ledger, gateway: PaymentGateway) -> Worked:
    """Book what the waiting messages are about; one that fails holds up no other.

    Raises:
        UnavailableError: The processor does not answer: everything is left for the next run.
    """
    booked = failed = 0
    for subject, messages in _waiting(ledger):
        try:
            sync(ledger, gateway, subject)
        except UnavailableError:
            raise
        except LedgerError as error:
            failed += 1
            _postpone(ledger, messages, error.code)
        else:
            booked += 1
            _done(ledger, messages)
    return Worked(booked, failed)


def sync(ledger: Ledger, gateway: PaymentGateway, subject: Subject) -> bool:
    """Look at one object and book it; False where it belongs to nothing of ours."""
    seen = gateway.look(subject)
    if seen is None:
        return False
    # What goes back of a payment may be heard of before the payment itself.
    first = _payment_of(ledger, gateway, seen)
    with ledger.unit() as unit:
        for one in first:
            booking.book(unit, one)
        return booking.book(unit, seen)


def _payment_of(ledger: Ledger, gateway: PaymentGateway, seen: Seen) -> Iterable[Seen]:
    if not isinstance(seen, RefundSeen | ChargebackSeen):
        return ()
    with ledger.reading() as connection:
        row = connection.execute(
            "SELECT 1 FROM payments WHERE payment = %s AND status = 'settled'", [seen.payment]
        ).fetchone()
    payment = None if row is not None else gateway.look(Subject("payment", seen.payment))
    return () if payment is None else (payment,)


def _waiting(ledger: Ledger) -> list[tuple[Subject, list[str]]]:
    """Objects to look at, each with the messages that it answers: none that comes later."""
    with translating(), ledger.database.pool.connection() as connection:
        rows = connection.execute(
            "SELECT kind, object, owner, array_agg(event_id) FROM payment_events"
            " WHERE done_at IS NULL AND due_at <= %s"
            " GROUP BY kind, object, owner ORDER BY min(received_at), object LIMIT %s",
            [ledger.clock(), _BATCH],
        ).fetchall()
    return [(Subject(*row[:3]), row[3]) for row in rows]


def _done(ledger: Ledger, messages: list[str]) -> None:
    with translating(), ledger.database.pool.connection() as connection:
        connection.execute(
            "UPDATE payment_events SET done_at = %s, problem = NULL WHERE event_id = ANY(%s)",
            [ledger.clock(), messages],
        )


def _postpone(ledger: Ledger, messages: list[str], problem: str) -> None:
    with translating(), ledger.database.pool.connection() as connection:
        connection.execute(
            "UPDATE payment_events SET attempts = attempts + 1, problem = %s,"
            " due_at = %s + least(power(2, least(attempts, 12))::bigint, %s)"
            " WHERE event_id = ANY(%s)",
            [problem, ledger.clock(), _PAUSE_SECONDS_MAX, messages],
        )


def tidy(connection: Connection, now: int) -> None:
    """Forget messages that were worked off long ago; the caller commits."""
    connection.execute("DELETE FROM payment_events WHERE done_at < %s", [now - KEEP_SECONDS])
