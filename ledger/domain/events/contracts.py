"""Contracts that change: reservations, and extensions with their price increases."""

from __future__ import annotations

from typing import Literal

from ledger.domain.events.base import Fact
from ledger.domain.events.instances import Coming, Terms


class ReservationBought(Fact, tag="reservation.bought.v1"):
    """Credit was locked to a contract and pays its GPU time until *term_until*, at a discount.

    `deposit` is everything locked now, `added` what came from credit this time (the rest was left
    of the reservation that this one replaces). `base_rate` is the rate on demand, nanos per hour.
    """

    instance_id: int
    account_id: int
    reservation_no: int
    base_rate: int
    deposit: int
    added: int
    term_from: int
    term_until: int
    coming: list[Coming]
    bought_at: int


class ReservationEnded(Fact, tag="reservation.ended.v1"):
    """The term is over: what the deposit did not consume is credit again, except *kept*.

    `remaining` is what was left, `received` the discount so far, `kept` the charge for cancelling
    early and `kept_fee` the platform's part of it.
    """

    instance_id: int
    account_id: int
    host_id: int
    reservation_no: int
    reason: Literal["term", "cancelled", "destroyed", "expired", "no_penalty"]
    remaining: int
    received: int
    kept: int
    kept_fee: int
    coming: list[Coming]
    ended_at: int


class PriceIncreaseProposed(Fact, tag="contract.price_increase_proposed.v1"):
    """The host offers a later end at higher rates; a new proposal replaces a pending one."""

    instance_id: int
    proposal_no: int
    terms: Terms
    until: int | None
    proposed_at: int


class PriceIncreaseAccepted(Fact, tag="contract.price_increase_accepted.v1"):
    """The renter agreed; the extension itself is a fact of its own."""

    instance_id: int
    proposal_no: int
    accepted_at: int


class PriceIncreaseRejected(Fact, tag="contract.price_increase_rejected.v1"):
    """The renter refused; this proposal is closed for good."""

    instance_id: int
    proposal_no: int
    rejected_at: int


class ContractExtended(Fact, tag="contract.extended.v1"):
    """The contract ends later (null: never); the rates in *coming* apply from its old end on."""

    instance_id: int
    until: int | None
    coming: list[Coming]
    extended_at: int


ContractFact = (
    ReservationBought
    | ReservationEnded
    | PriceIncreaseProposed
    | PriceIncreaseAccepted
    | PriceIncreaseRejected
    | ContractExtended
)
