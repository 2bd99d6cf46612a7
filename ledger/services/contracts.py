"""Contracts that change: reservations bought and ended, extensions and their price increases."""

from __future__ import annotations

from typing import Final, Literal, NamedTuple

from ledger.domain import reserved
from ledger.domain.events import Fact, NoticeCode, PriceIncreaseProposed
from ledger.domain.ids import instance_stream
from ledger.domain.instance import (
    AnswerIncrease,
    BuyReservation,
    EndReservation,
    Instance,
    OfferExtension,
    decide,
    require_reservable,
)
from ledger.domain.money import SECONDS_PER_DAY
from ledger.errors import RejectedError
from ledger.services.ledger import Unit
from ledger.services.machines import require_machine
from ledger.services.movements import require_available
from ledger.services.notices import instance_notice
from ledger.services.offers import free_of_charge, require_listing

SECONDS_PER_MONTH: Final = 30 * SECONDS_PER_DAY


class Bought(NamedTuple):
    """A reservation: what it costs and gives. Nanos; a replayed one was bought before."""

    deposit: int
    rate: int
    term_until: int
    discount_fell: bool
    """Adding credit made the remaining term shorter than before, and its discount smaller."""


def reserve(
    unit: Unit, instance_id: int, *, amount: int | None = None, seconds: int | None = None
) -> Bought:
    """Prepay an instance's GPU time, by *amount* in nanos or by term (`marketplace.md` §9).

    A running reservation is topped up: what it has left and *amount* buy a new term from now on.

    Raises:
        NotFoundError: `no_such_instance`.
        RejectedError: `not_on_demand`, `contract_expired`, `beyond_end_date`, `invalid_args`.
        DeclinedError: `insufficient_credit`.
    """
    instance = unit.instance(instance_id)
    require_reservable(instance)
    if (amount is None) == (seconds is None):
        raise RejectedError("invalid_args", "prepay either an amount or a term")
    if (amount or seconds or 0) < 1:
        raise RejectedError("invalid_args", "an amount or a term is above zero")
    if instance.base_rate < 1:
        raise RejectedError("invalid_args", "this instance costs nothing: there is nothing to pay")
    most = _largest_discount(unit, instance)
    base, left = instance.base_rate, 0
    before = None
    if instance.reservation is not None:
        left, _ = standing(unit, instance)
        before = instance.terms.gpu_rate
    if seconds is not None:
        total = reserved.deposit_for_term(base, seconds, most)
        added, term = max(total - left, 0), seconds
        if total < left:
            message = "the running term is longer: add an amount instead"
            raise RejectedError("invalid_args", message)
    else:
        assert amount is not None
        added, total = amount, left + amount
        term = reserved.term_for_amount(base, total, most)
    if term < 1:
        raise RejectedError("amount_too_small", "this amount pays less than a second")
    rate = reserved.reserved_rate(base, term, most)
    wish = BuyReservation(rate=rate, deposit=left + added, added=added, term_until=unit.now + term)
    facts = decide(instance, wish, unit.now)
    require_available(unit, instance.account_id, added)
    unit.append(instance_stream(instance_id), *facts)
    return Bought(left + added, rate, unit.now + term, before is not None and rate > before)


def unreserve(unit: Unit, instance_id: int) -> int:
    """End a reservation before its term; returns the refund in nanos.

    Raises:
        NotFoundError: `no_such_instance`.
        RejectedError: `not_reserved`.
    """
    instance = unit.instance(instance_id)
    if instance.reservation is None:
        raise RejectedError("not_reserved", f"instance {instance_id} is not prepaid")
    return end_reservation(unit, instance, "cancelled")


def end_reservation(
    unit: Unit,
    instance: Instance,
    reason: Literal["term", "cancelled", "destroyed", "expired", "no_penalty"],
) -> int:
    """End the running reservation of an instance; returns what goes back to credit, in nanos.

    Cancelling early keeps what the discount was worth and 5 % of it. A reservation whose machine
    was deverified, whose disk was lost by the host, or that came to its end is paid back whole.
    """
    remaining, received = standing(unit, instance)
    kept = 0
    if reason in {"cancelled", "destroyed"} and not _host_failed(unit, instance):
        kept = reserved.early_cancellation_charge(remaining, received)
    elif reason in {"cancelled", "destroyed"}:
        reason = "no_penalty"
    wish = EndReservation(reason=reason, remaining=remaining, received=received, kept=kept)
    unit.append(instance_stream(instance.instance_id), *decide(instance, wish, unit.now))
    return remaining - kept


def standing(unit: Unit, instance: Instance) -> tuple[int, int]:
    """What a running reservation has left, and the discount it gave so far, in nanos.

    Seconds that are authorised and not folded yet count as consumed.
    """
    assert instance.reservation is not None
    reservation = instance.reservation
    received = 0
    consumed = 0
    for number, rate, base, ran, idle in unit.connection.execute(
        _CHAIN, [instance.instance_id, instance.instance_id]
    ).fetchall():
        if number == reservation.number:
            pending_ran, pending_idle = _pending(unit, instance)
            ran, idle = int(ran) + pending_ran, int(idle) + pending_idle  # noqa: PLW2901 - added up
            consumed = reserved.consumed(int(rate), ran) + reserved.consumed(int(rate), idle)
        received += reserved.discount_received(int(base), int(rate), int(ran) + int(idle))
    return max(reservation.deposit - consumed, 0), received


_CHAIN: Final = """
SELECT r.reservation_no, r.rate, r.base_rate, coalesce(s.gpu_quantity, 0),
       coalesce(s.reserved_idle_quantity, 0)
FROM reservations r LEFT JOIN rate_segments s USING (instance_id, terms_no)
WHERE r.instance_id = %s AND r.reservation_no > coalesce((
    SELECT max(e.reservation_no) FROM reservations e
    WHERE e.instance_id = %s AND e.ended_at IS NOT NULL AND e.reason <> 'replaced'), 0)
ORDER BY r.reservation_no
"""
"""The running reservation and those that it replaced: topping up forgets no discount."""


def _pending(unit: Unit, instance: Instance) -> tuple[int, int]:
    """Seconds of the term that will be consumed and are not folded yet: running, and idle."""
    assert instance.reservation is not None
    row = unit.connection.execute(
        "SELECT coalesce((SELECT until FROM coverage WHERE instance_id = %s"
        " ORDER BY start DESC LIMIT 1), 0), coalesce((SELECT until FROM machine_coverage"
        " WHERE machine_id = %s ORDER BY start DESC LIMIT 1), 0)",
        [instance.instance_id, instance.machine_id],
    ).fetchone()
    assert row is not None
    start = max(instance.reservation.term_from, instance.created_at)
    end = min(unit.now, instance.reservation.term_until)
    if instance.holds_gpus:
        gpu_from = instance.gpu_from
        return (0 if gpu_from is None else max(end - max(start, row[0], gpu_from), 0)), 0
    since = instance.assignment_ended_at or start
    return 0, max(end - max(start, row[1], since), 0)


def _host_failed(unit: Unit, instance: Instance) -> bool:
    """True when the host broke the contract: the renter loses nothing by leaving."""
    if instance.disk_lost_at is not None:
        return True
    row = unit.connection.execute(
        "SELECT verification = 'deverified' FROM machine_standing WHERE machine_id = %s",
        [instance.machine_id],
    ).fetchone()
    return row is not None and bool(row[0])


def _largest_discount(unit: Unit, instance: Instance) -> int:
    """The host's largest discount, in basis points, of the listing that the contract came from."""
    row = unit.connection.execute(
        "SELECT l.reserved_discount_max_bp FROM instances i JOIN listings l USING (listing_id)"
        " WHERE i.instance_id = %s",
        [instance.instance_id],
    ).fetchone()
    assert row is not None
    return int(row[0])


# --- extension ------------------------------------------------------------------------------------


def extend_contracts(unit: Unit, machine_id: int) -> None:
    """Offer the present listing's end and rates to every contract that ends before it."""
    machine = require_machine(unit.connection, machine_id)
    listing = require_listing(unit, machine)
    new: list[tuple[str, Fact]] = []
    notices: list[tuple[str, Fact]] = []
    for (instance_id,) in unit.connection.execute(
        "SELECT instance_id FROM instances WHERE machine_id = %s AND destroyed_at IS NULL"
        " AND status <> 'expired' AND until IS NOT NULL"
        " AND (%s::bigint IS NULL OR until < %s) ORDER BY instance_id",
        [machine_id, listing.until, listing.until],
    ).fetchall():
        instance = unit.instance(instance_id)
        terms = listing.rates(instance.gpus)
        if instance.account_id == instance.host_id:
            terms = free_of_charge(terms)
        facts = decide(instance, OfferExtension(terms, listing.until), unit.now)
        new.extend((instance_stream(instance_id), fact) for fact in facts)
        for fact in facts:
            is_proposal = isinstance(fact, PriceIncreaseProposed)
            code: NoticeCode = "price_increase" if is_proposal else "extended"
            notices.append(instance_notice(unit, instance, code))
    unit.append_all([*new, *notices])


def answer_price_increase(unit: Unit, instance_id: int, *, accept: bool) -> None:
    """Accept or reject the price increase that waits for an answer.

    Raises:
        NotFoundError: `no_such_instance`, or `no_pending_price_increase` when there is none, it was
            replaced or answered, or the contract's end has passed.
    """
    instance = unit.instance(instance_id)
    facts = decide(instance, AnswerIncrease(accept), unit.now)
    new: list[tuple[str, Fact]] = [(instance_stream(instance_id), fact) for fact in facts]
    if accept:
        new.append(instance_notice(unit, instance, "extended"))
    unit.append_all(new)
