"""Wishes about the contract itself: bids, reservations, extensions."""

from __future__ import annotations

from typing import assert_never

import msgspec

from ledger.domain.events import (
    BidChanged,
    Coming,
    ContractExtended,
    Fact,
    PriceIncreaseAccepted,
    PriceIncreaseProposed,
    PriceIncreaseRejected,
    ReservationBought,
    ReservationEnded,
    Terms,
)
from ledger.domain.instance.commands import (
    AnswerIncrease,
    BuyReservation,
    ChangeBid,
    EndReservation,
    OfferExtension,
)
from ledger.domain.instance.state import Instance
from ledger.errors import NotFoundError, RejectedError

ContractCommand = ChangeBid | BuyReservation | EndReservation | OfferExtension | AnswerIncrease


def require_alive(instance: Instance) -> None:
    """Refuse the wish of a person about an instance that is gone.

    Raises:
        NotFoundError: `no_such_instance`.
    """
    if instance.status == "destroyed":
        message = f"instance {instance.instance_id} was destroyed"
        raise NotFoundError("no_such_instance", message)


def decide_contract(instance: Instance, command: ContractCommand, now: int) -> list[Fact]:
    """Turn a wish about the contract into facts at second *now*.

    Raises:
        NotFoundError: `no_such_instance` when it was destroyed.
        RejectedError: `contract_expired`, `not_interruptible`, `not_on_demand`, `beyond_end_date`
            or `no_pending_price_increase`.
    """
    match command:
        case ChangeBid():
            return _change_bid(instance, command.bid, now)
        case BuyReservation():
            return [_bought(instance, command, now)]
        case EndReservation():
            return [_ended(instance, command, now)]
        case OfferExtension():
            return _offer_extension(instance, command, now)
        case AnswerIncrease():
            return _answer(instance, accept=command.accept, now=now)
        case _:
            assert_never(command)


def require_bidding(instance: Instance) -> None:
    """Refuse a bid for an instance that cannot bid.

    Raises:
        NotFoundError: `no_such_instance`.
        RejectedError: `contract_expired` or `not_interruptible`.
    """
    require_alive(instance)
    if instance.status == "expired":
        raise RejectedError("contract_expired", "the contract has ended and cannot bid again")
    if instance.bid is None:
        raise RejectedError("not_interruptible", "only an interruptible instance has a bid")


def _change_bid(instance: Instance, bid: int, now: int) -> list[Fact]:
    """A new bid takes effect in the next whole second; the same amount again changes nothing."""
    require_bidding(instance)
    if bid == instance.next_bid:
        return []
    is_free = instance.account_id == instance.host_id  # one's own machine: nothing is charged
    effective_at = now + 1

    def bidding(at: int, terms: Terms) -> Coming:
        if not is_free:
            terms = msgspec.structs.replace(terms, gpu_rate=bid)
        return Coming(effective_at=at, terms=terms, bid=bid)

    before = [one.terms for one in instance.coming if one.effective_at <= effective_at]
    coming = [bidding(effective_at, before[-1] if before else instance.terms)]
    coming += [
        bidding(one.effective_at, one.terms)
        for one in instance.coming
        if one.effective_at > effective_at
    ]
    return [
        BidChanged(
            instance_id=instance.instance_id,
            bid=bid,
            effective_at=effective_at,
            coming=coming,
            changed_at=now,
        )
    ]


# --- reservations ---------------------------------------------------------------------------------


def require_reservable(instance: Instance) -> None:
    """Refuse a reservation of an instance that cannot have one.

    Raises:
        NotFoundError: `no_such_instance`.
        RejectedError: `contract_expired` or `not_on_demand`.
    """
    require_alive(instance)
    if instance.status == "expired":
        raise RejectedError("contract_expired", "the contract has ended and cannot be prepaid")
    if instance.bid is not None:
        raise RejectedError("not_on_demand", "an interruptible instance cannot be prepaid")


def _bought(instance: Instance, wish: BuyReservation, now: int) -> ReservationBought:
    require_reservable(instance)
    if instance.until is not None and wish.term_until > instance.until:
        message = "the term would end after the contract does"
        raise RejectedError("beyond_end_date", message)
    on_demand = _on_demand(instance)
    reserved = msgspec.structs.replace(on_demand, kind="reserved", gpu_rate=wish.rate)
    until = wish.term_until
    later = _after(instance, until)
    if not later or later[0].effective_at > until:
        later = [Coming(effective_at=until, terms=on_demand, bid=None), *later]
    coming = [Coming(effective_at=now, terms=reserved, bid=None), *later]
    return ReservationBought(
        instance_id=instance.instance_id,
        account_id=instance.account_id,
        reservation_no=instance.reservations + 1,
        base_rate=instance.base_rate,
        deposit=wish.deposit,
        added=wish.added,
        term_from=now,
        term_until=wish.term_until,
        coming=coming,
        bought_at=now,
    )


def _ended(instance: Instance, wish: EndReservation, now: int) -> ReservationEnded:
    assert instance.reservation is not None, instance.instance_id
    until = instance.reservation.term_until
    # At its end the terms change by themselves, as agreed when it was bought.
    coming = []
    if now < until:
        on_demand = Coming(effective_at=now, terms=_on_demand(instance), bid=None)
        coming = [on_demand, *_after(instance, until)]
    return ReservationEnded(
        instance_id=instance.instance_id,
        account_id=instance.account_id,
        host_id=instance.host_id,
        reservation_no=instance.reservation.number,
        reason=wish.reason,
        remaining=wish.remaining,
        received=wish.received,
        kept=wish.kept,
        kept_fee=instance.terms.fee_bp * wish.kept // 10_000,
        coming=coming,
        ended_at=now,
    )


def _on_demand(instance: Instance) -> Terms:
    """The present terms without a reservation."""
    return msgspec.structs.replace(instance.terms, kind="on_demand", gpu_rate=instance.base_rate)


def _after(instance: Instance, until: int) -> list[Coming]:
    """Agreed terms that a reservation up to *until* leaves as they are: those of an extension."""
    on_demand = _on_demand(instance)
    return [one for one in instance.coming if one.effective_at >= until and one.terms != on_demand]


# --- extension ------------------------------------------------------------------------------------


def _offer_extension(instance: Instance, wish: OfferExtension, now: int) -> list[Fact]:
    """A later end at rates that are all equal or lower applies by itself; a higher one is proposed.

    The rates on offer apply from the old end on. An interruptible instance keeps its bid.
    """
    if instance.status in {"expired", "destroyed"} or instance.until is None:
        return []
    if wish.until is not None and wish.until <= instance.until:
        return []
    last = instance.coming[-1].terms if instance.coming else instance.terms
    rate = wish.terms.gpu_rate if instance.bid is None else last.gpu_rate
    offered = msgspec.structs.replace(wish.terms, kind=last.kind, gpu_rate=rate, fee_bp=last.fee_bp)
    is_dearer = (
        offered.gpu_rate > last.gpu_rate
        or offered.storage_rate > last.storage_rate
        or offered.up_rate > last.up_rate
        or offered.down_rate > last.down_rate
    )
    if not is_dearer:
        return [_extended(instance, offered, wish.until, now)]
    pending = instance.proposal
    if pending is not None and pending.terms == offered and pending.until == wish.until:
        return []
    return [
        PriceIncreaseProposed(
            instance_id=instance.instance_id,
            proposal_no=instance.proposals + 1,
            terms=offered,
            until=wish.until,
            proposed_at=now,
        )
    ]


def _extended(instance: Instance, terms: Terms, until: int | None, now: int) -> ContractExtended:
    assert instance.until is not None, instance.instance_id
    return ContractExtended(
        instance_id=instance.instance_id,
        until=until,
        coming=[Coming(effective_at=instance.until, terms=terms, bid=instance.next_bid)],
        extended_at=now,
    )


def _answer(instance: Instance, *, accept: bool, now: int) -> list[Fact]:
    require_alive(instance)
    proposal = instance.proposal
    is_past = instance.until is not None and instance.until <= now
    if proposal is None or is_past or instance.status == "expired":
        message = f"no price increase of instance {instance.instance_id} waits for an answer"
        raise NotFoundError("no_pending_price_increase", message)
    if not accept:
        return [
            PriceIncreaseRejected(
                instance_id=instance.instance_id, proposal_no=proposal.number, rejected_at=now
            )
        ]
    return [
        PriceIncreaseAccepted(
            instance_id=instance.instance_id, proposal_no=proposal.number, accepted_at=now
        ),
        _extended(instance, proposal.terms, proposal.until, now),
    ]
