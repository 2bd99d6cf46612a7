"""Contracts that change: the terms in force and to come, reservations, price increases."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ledger.domain import events as e
from ledger.projections.facts.accounts import (
    HOST_PAYABLE,
    PLATFORM_FEE,
    RENTER_CREDIT,
    RESERVED_DEPOSIT,
    moved,
    paid_to_host,
    posted,
)
from ledger.projections.facts.change import FAR_FUTURE, Change


def contract_changes(fact: e.ContractFact, position: int) -> Iterator[Change]:
    """What a contract's new terms, reservations and proposals change."""
    instance_id = fact.instance_id
    match fact:
        case e.ReservationBought():
            yield from _bought(fact, position)
        case e.ReservationEnded():
            yield from _ended(fact, position)
        case e.PriceIncreaseProposed():
            yield Change(
                "UPDATE price_increases SET status = 'replaced', answered_at = %s"
                " WHERE instance_id = %s AND status = 'pending'",
                (fact.proposed_at, instance_id),
            )
            terms = fact.terms
            yield Change(
                "INSERT INTO price_increases (instance_id, proposal_no, account_id, gpu_rate,"
                " storage_rate, up_rate, down_rate, until, status, proposed_at)"
                " SELECT %s, %s, account_id, %s, %s, %s, %s, %s, 'pending', %s FROM instances"
                " WHERE instance_id = %s",
                (
                    instance_id,
                    fact.proposal_no,
                    terms.gpu_rate,
                    terms.storage_rate,
                    terms.up_rate,
                    terms.down_rate,
                    fact.until,
                    fact.proposed_at,
                    instance_id,
                ),
            )
        case e.PriceIncreaseAccepted():
            yield _answered(instance_id, fact.proposal_no, "accepted", fact.accepted_at)
        case e.PriceIncreaseRejected():
            yield _answered(instance_id, fact.proposal_no, "rejected", fact.rejected_at)
        case e.ContractExtended():
            yield Change(
                "UPDATE price_increases SET status = 'replaced', answered_at = %s"
                " WHERE instance_id = %s AND status = 'pending'",
                (fact.extended_at, instance_id),
            )
            yield Change(
                "UPDATE instances SET until = %s, changed_position = %s WHERE instance_id = %s",
                (fact.until, position, instance_id),
            )
            yield from agreed(instance_id, fact.coming)
            yield due(instance_id, fact.extended_at)


def agreed(instance_id: int, coming: Sequence[e.Coming]) -> Iterator[Change]:
    """The terms that apply from the first of *coming* on; what was agreed for then is replaced."""
    if not coming:
        return
    first = coming[0].effective_at
    yield Change(
        "UPDATE instance_terms SET until = greatest(since, %s)"
        " WHERE instance_id = %s AND until > %s",
        (first, instance_id, first),
    )
    ends = [*(one.effective_at for one in coming[1:]), FAR_FUTURE]
    for one, until in zip(coming, ends, strict=True):
        terms = one.terms
        yield Change(
            "INSERT INTO instance_terms VALUES (%s, (SELECT coalesce(max(terms_no), 0) + 1"
            " FROM instance_terms WHERE instance_id = %s), %s, %s, %s, %s, %s, %s, %s, %s)",
            (
                instance_id,
                instance_id,
                one.effective_at,
                until,
                terms.kind,
                terms.fee_bp,
                terms.gpu_rate,
                terms.storage_rate,
                terms.up_rate,
                terms.down_rate,
            ),
        )


def due(instance_id: int, after: int) -> Change:
    """When the next agreed terms take effect."""
    return Change(
        "UPDATE instances SET terms_due_at = (SELECT min(since) FROM instance_terms t"
        " WHERE t.instance_id = %s AND t.since > %s AND t.until > t.since) WHERE instance_id = %s",
        (instance_id, after, instance_id),
    )


def in_force(
    instance_id: int, terms: e.Terms, bid: int | None, effective_at: int
) -> Iterator[Change]:
    """What the instance costs now, and so what its account burns."""
    yield Change(
        "UPDATE account_credit SET gpu_rate = account_credit.gpu_rate"
        " + CASE WHEN i.status IN ('loading', 'running') THEN"
        " %s - CASE WHEN i.kind = 'reserved' THEN 0 ELSE i.gpu_rate END ELSE 0 END,"
        " storage_product = storage_product + (%s - i.storage_rate) * i.disk_bytes"
        " FROM instances i WHERE i.instance_id = %s AND account_credit.account_id = i.account_id"
        " AND i.destroyed_at IS NULL",
        (
            0 if terms.kind == "reserved" else terms.gpu_rate,
            terms.storage_rate,
            instance_id,
        ),
    )
    yield Change(
        "UPDATE instances SET kind = %s, gpu_rate = %s, storage_rate = %s, up_rate = %s,"
        " down_rate = %s, fee_bp = %s,"
        " bid_effective_at = CASE WHEN bid IS DISTINCT FROM %s THEN %s ELSE bid_effective_at END,"
        " bid = %s WHERE instance_id = %s",
        (
            terms.kind,
            terms.gpu_rate,
            terms.storage_rate,
            terms.up_rate,
            terms.down_rate,
            terms.fee_bp,
            bid,
            effective_at,
            bid,
            instance_id,
        ),
    )


def _bought(fact: e.ReservationBought, position: int) -> Iterator[Change]:
    instance_id = fact.instance_id
    yield from agreed(instance_id, fact.coming)
    yield from in_force(instance_id, fact.coming[0].terms, None, fact.bought_at)
    yield due(instance_id, fact.bought_at)
    yield Change(
        "UPDATE reservations SET ended_at = %s, reason = 'replaced'"
        " WHERE instance_id = %s AND ended_at IS NULL",
        (fact.bought_at, instance_id),
    )
    yield Change(
        "INSERT INTO reservations (instance_id, reservation_no, account_id, terms_no, base_rate,"
        " rate, deposit, added, term_from, term_until)"
        " VALUES (%s, %s, %s, (SELECT max(terms_no) FROM instance_terms WHERE instance_id = %s"
        " AND kind = 'reserved'), %s, %s, %s, %s, %s, %s)",
        (
            instance_id,
            fact.reservation_no,
            fact.account_id,
            instance_id,
            fact.base_rate,
            fact.coming[0].terms.gpu_rate,
            fact.deposit,
            fact.added,
            fact.term_from,
            fact.term_until,
        ),
    )
    yield moved(
        position,
        "reservation",
        f"instance-{instance_id}",
        (RENTER_CREDIT, fact.account_id),
        (RESERVED_DEPOSIT, fact.account_id),
        fact.added,
        fact.bought_at,
    )


def _ended(fact: e.ReservationEnded, position: int) -> Iterator[Change]:
    instance_id = fact.instance_id
    if fact.coming:
        yield from agreed(instance_id, fact.coming)
        yield from in_force(instance_id, fact.coming[0].terms, None, fact.ended_at)
        yield due(instance_id, fact.ended_at)
    yield Change(
        "UPDATE reservations SET ended_at = %s, reason = %s, kept = %s, position = %s"
        " WHERE instance_id = %s AND reservation_no = %s",
        (fact.ended_at, fact.reason, fact.kept, position, instance_id, fact.reservation_no),
    )
    if not fact.kept:
        return
    share = fact.kept - fact.kept_fee
    reference = f"instance-{instance_id}"
    payer = (RESERVED_DEPOSIT, fact.account_id)
    yield posted(fact.account_id, -fact.kept)
    yield paid_to_host(fact.host_id, share)
    yield moved(
        position,
        "early_cancellation",
        reference,
        payer,
        (HOST_PAYABLE, fact.host_id),
        share,
        fact.ended_at,
    )
    yield moved(
        position,
        "early_cancellation",
        reference,
        payer,
        (PLATFORM_FEE, None),
        fact.kept_fee,
        fact.ended_at,
        leg=2,
    )


def _answered(instance_id: int, number: int, status: str, at: int) -> Change:
    return Change(
        "UPDATE price_increases SET status = %s, answered_at = %s"
        " WHERE instance_id = %s AND proposal_no = %s",
        (status, at, instance_id, number),
    )
