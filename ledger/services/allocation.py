"""Who runs on a machine's GPUs: reads its state, asks the auction, and appends what follows.

`settle` comes after every change of a machine, in the same transaction (`marketplace.md` §8.1).
The decision itself is `ledger.domain.auction.allocate`.
"""

from __future__ import annotations

from collections.abc import Sequence

from ledger.domain.auction import Claim, Decision, Supply, allocate, min_bids
from ledger.domain.events import (
    AllocatedGpus,
    AllocationDecided,
    Fact,
    SmallestBid,
)
from ledger.domain.ids import instance_stream, machine_stream
from ledger.domain.instance import ApplyTerms, DisplaceInstance, GrantGpus, decide
from ledger.services.ledger import Unit
from ledger.services.machines import Machine, last_contact, require_machine
from ledger.services.notices import instance_notice
from ledger.services.slices import slice_sizes


def settle(unit: Unit, machine_id: int) -> list[int]:
    """Decide anew who gets a machine's GPUs; returns who got some.

    Terms that are due take effect first. A machine that nobody hears gets no decision: it could not
    carry one out, and the first one after it is heard again counts.
    """
    apply_due_terms(unit, machine_id)
    claims = claims_of(unit, machine_id)
    machine = require_machine(unit.connection, machine_id)
    supply = supply_of(unit, machine)
    if supply.floor is None and not any(not claim.slots for claim in claims):
        return []
    if not is_online(unit, machine):
        return []
    decision = allocate(supply, claims)
    asked = _ask_prices(unit, machine, supply, claims, decision)
    if decision.displaced or decision.grants:
        _carry_out(unit, machine, decision, asked)
    elif asked:
        unit.append(machine_stream(machine_id), _decided(unit, machine_id, [], [], asked))
    return [grant.instance_id for grant in decision.grants]


def apply_due_terms(unit: Unit, machine_id: int) -> None:
    """Let agreed terms take effect whose second has come, on the instances of one machine."""
    new: list[tuple[str, Fact]] = []
    for (instance_id,) in unit.connection.execute(
        "SELECT instance_id FROM instances WHERE machine_id = %s AND destroyed_at IS NULL"
        " AND terms_due_at <= %s ORDER BY instance_id",
        [machine_id, unit.now],
    ).fetchall():
        facts = decide(unit.instance(instance_id), ApplyTerms(), unit.now)
        new.extend((instance_stream(instance_id), fact) for fact in facts)
    unit.append_all(new)


def claims_of(unit: Unit, machine_id: int) -> list[Claim]:
    """Everybody who wants to run on a machine: those that do, and those that wait.

    Who came after rentals stopped for maintenance waits until it is over.
    """
    return [
        Claim(row[0], row[1], row[2] is not None, row[3], int(row[2] or 0), row[4], tuple(row[5]))
        for row in unit.connection.execute(
            "SELECT instance_id, gpus, bid, requested_position, bid_effective_at, slots"
            " FROM instances WHERE machine_id = %s AND destroyed_at IS NULL"
            " AND status IN ('scheduling', 'loading', 'running')"
            " AND NOT (assignment_no = 0 AND EXISTS (SELECT 1 FROM maintenance_windows w"
            "  WHERE w.machine_id = %s AND w.status IN ('scheduled', 'started')"
            "   AND w.rentals_stopped_at <= instances.created_at))"
            " ORDER BY requested_position",
            [machine_id, machine_id],
        )
    ]


def supply_of(unit: Unit, machine: Machine) -> Supply:
    """The healthy GPUs of a machine and its host's floor."""
    slots = unit.connection.execute(
        "SELECT slot FROM gpus g WHERE machine_id = %s AND healthy"
        # Who holds a suspect GPU keeps it; nobody else gets it.
        " AND (NOT EXISTS (SELECT 1 FROM gpu_suspects s WHERE s.gpu_uuid = g.gpu_uuid)"
        "  OR EXISTS (SELECT 1 FROM gpu_assignments a WHERE a.machine_id = g.machine_id"
        "   AND a.slot = g.slot AND upper_inf(a.during))) ORDER BY slot",
        [machine.machine_id],
    ).fetchall()
    return Supply(tuple(row[0] for row in slots), machine.floor, unit.policy.displacement_margin)


def is_online(unit: Unit, machine: Machine) -> bool:
    """True while the machine's last report is recent enough."""
    silence = unit.policy.offline_after_seconds
    if silence is None:
        return machine.enrolled_at is not None
    contact = last_contact(unit.connection, machine.machine_id)
    if contact is None:
        contact = machine.enrolled_at
    return contact is not None and unit.now <= contact + silence


# --- what follows from a decision -----------------------------------------------------------------


def _ask_prices(
    unit: Unit, machine: Machine, supply: Supply, claims: Sequence[Claim], decision: Decision
) -> list[SmallestBid]:
    """What a newcomer must bid per slice size after *decision*, where that is news."""
    row = unit.connection.execute(
        "SELECT min_gpus FROM listings WHERE machine_id = %s ORDER BY listing_id DESC LIMIT 1",
        [machine.machine_id],
    ).fetchone()
    if row is None:
        return []
    known: dict[int, int | None] = {
        gpus: None if amount is None else int(amount)
        for gpus, amount in unit.connection.execute(
            "SELECT gpus, amount FROM smallest_bids WHERE machine_id = %s", [machine.machine_id]
        )
    }
    if supply.floor is None and not known:
        return []
    granted = {grant.instance_id: grant.slots for grant in decision.grants}
    displaced = {one.instance_id for one in decision.displaced}
    after = [
        claim._replace(
            slots=()
            if claim.instance_id in displaced
            else granted.get(claim.instance_id, claim.slots)
        )
        for claim in claims
    ]
    prices = min_bids(supply, after, slice_sizes(machine.gpus, row[0]))
    return [
        SmallestBid(gpus=gpus, amount=amount)
        for gpus, amount in prices.items()
        if gpus not in known or known[gpus] != amount
    ]


def _carry_out(unit: Unit, machine: Machine, decision: Decision, asked: list[SmallestBid]) -> None:
    uuids: dict[int, str] = dict(
        unit.connection.execute(
            "SELECT slot, gpu_uuid FROM gpus WHERE machine_id = %s", [machine.machine_id]
        ).fetchall()
    )
    new: list[tuple[str, Fact]] = []
    notices: list[tuple[str, Fact]] = []
    granted: list[AllocatedGpus] = []
    is_auction = machine.floor is not None or bool(decision.displaced)
    for loser in decision.displaced:
        instance = unit.instance(loser.instance_id)
        facts = decide(instance, DisplaceInstance(loser.reason), unit.now)
        new.extend((instance_stream(loser.instance_id), fact) for fact in facts)
        notices.append(instance_notice(unit, instance, "outbid"))
    for grant in decision.grants:
        instance = unit.instance(grant.instance_id)
        got = tuple(uuids[slot] for slot in grant.slots)
        facts = decide(instance, GrantGpus(grant.slots, got), unit.now)
        new.extend((instance_stream(grant.instance_id), fact) for fact in facts)
        granted.append(
            AllocatedGpus(
                instance_id=grant.instance_id, slots=list(grant.slots), gpu_uuids=list(got)
            )
        )
        if instance.assignment_no or instance.created_at < unit.now:
            notices.append(instance_notice(unit, instance, "resumed"))
    if is_auction:
        losers = [one.instance_id for one in decision.displaced]
        decided = _decided(unit, machine.machine_id, losers, granted, asked)
        new.insert(0, (machine_stream(machine.machine_id), decided))
    unit.append_all([*new, *notices])


def _decided(
    unit: Unit,
    machine_id: int,
    displaced: list[int],
    granted: list[AllocatedGpus],
    asked: list[SmallestBid],
) -> AllocationDecided:
    return AllocationDecided(
        machine_id=machine_id,
        displaced=displaced,
        granted=granted,
        min_bids=asked,
        policy_version=unit.policy.version,
        decided_at=unit.now,
    )
