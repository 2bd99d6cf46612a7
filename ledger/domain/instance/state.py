"""The state of one instance, and how facts change it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, Literal, assert_never

import msgspec

from ledger.domain.events import (
    BidChanged,
    Coming,
    ConnectionPublished,
    ContractExtended,
    ContractFact,
    GpusAssigned,
    InstanceBootChanged,
    InstanceCreated,
    InstanceDestroyed,
    InstanceDiskLost,
    InstanceDisplaced,
    InstanceExpired,
    InstanceFact,
    InstanceLabelled,
    InstanceLaunchChanged,
    InstanceLaunchResolved,
    InstanceRan,
    InstanceRebooted,
    InstanceRunning,
    InstanceStartRequested,
    InstanceStopped,
    ObservationIgnored,
    PriceIncreaseAccepted,
    PriceIncreaseProposed,
    PriceIncreaseRejected,
    ReservationBought,
    ReservationEnded,
    Terms,
    TermsTookEffect,
    UsageGapRecorded,
)
from ledger.errors import CorruptHistoryError

Status = Literal["scheduling", "loading", "running", "stopped", "expired", "destroyed"]
HOLDS_GPUS: Final = frozenset({"loading", "running"})
LAUNCH_TIMEOUT_SECONDS: Final = 1_800


class Reservation(msgspec.Struct, frozen=True, kw_only=True):
    """A running term, `[term_from, term_until)`, and the nanos locked for it."""

    number: int
    deposit: int
    term_from: int
    term_until: int


class Proposal(msgspec.Struct, frozen=True, kw_only=True):
    """A price increase that waits for its answer."""

    number: int
    terms: Terms
    until: int | None


class Instance(msgspec.Struct, frozen=True, kw_only=True):
    """What the facts so far say about one instance.

    `assignment_no` is that of the last assignment, open or ended (0: none yet);
    `assignment_ended_at` is null while it is open. `gpu_from` is null unless the GPU interval is
    open; `ran_assignment` is the last one that ran.
    """

    instance_id: int
    account_id: int
    machine_id: int
    host_id: int
    gpus: int
    disk_bytes: int
    terms: Terms
    until: int | None
    created_at: int
    status: Status = "scheduling"
    reason: str = "new"
    wants_run: bool = True
    label: str | None = None
    launch: str | None = None
    launch_hash: str | None = None
    launches: int = 0
    """How often the launch configuration was changed."""
    assignment_no: int = 0
    assigned_at: int | None = None
    assignment_ended_at: int | None = None
    slots: tuple[int, ...] = ()
    gpu_uuids: tuple[str, ...] = ()
    gpu_from: int | None = None
    gpu_until: int | None = None
    ran_assignment: int = 0
    first_run_at: int | None = None
    disk_lost_at: int | None = None
    ended_at: int | None = None
    bid: int | None = None
    bid_effective_at: int = 0
    coming: tuple[Coming, ...] = ()
    """Terms that were agreed and do not apply yet, by second."""
    base_rate: int = 0
    """Rate on demand, nanos per hour: what a reservation is a discount on."""
    reservation: Reservation | None = None
    reservations: int = 0
    proposal: Proposal | None = None
    proposals: int = 0

    @property
    def next_bid(self) -> int | None:
        """The last bid recorded; it governs from the second in which its terms take effect."""
        return self.coming[-1].bid if self.coming else self.bid

    @property
    def holds_gpus(self) -> bool:
        """True while an assignment is open."""
        return self.status in HOLDS_GPUS


def evolve(instance: Instance | None, fact: InstanceFact) -> Instance:
    """Fold one fact into the state. Total and pure: history is never refused."""
    if isinstance(fact, InstanceCreated):
        return Instance(
            instance_id=fact.instance_id,
            account_id=fact.account_id,
            machine_id=fact.machine_id,
            host_id=fact.host_id,
            gpus=fact.gpus,
            disk_bytes=fact.disk_bytes,
            terms=fact.terms,
            until=fact.until,
            created_at=fact.created_at,
            label=fact.label,
            launch=fact.launch,
            launch_hash=fact.launch_hash,
            reason=fact.reason,
            bid=fact.bid,
            bid_effective_at=fact.created_at,
            base_rate=fact.terms.gpu_rate,
        )
    if instance is None:
        message = f"the first fact of instance {fact.instance_id} is {type(fact).__name__}"
        raise CorruptHistoryError("corrupt_history", message)
    change = msgspec.structs.replace
    match fact:
        case InstanceStartRequested():
            return change(instance, status="scheduling", reason="no_capacity", wants_run=True)
        case GpusAssigned():
            return change(
                instance,
                status="loading",
                reason="",
                assignment_no=fact.assignment_no,
                assigned_at=fact.assigned_at,
                assignment_ended_at=None,
                slots=tuple(fact.slots),
                gpu_uuids=tuple(fact.gpu_uuids),
                gpu_from=None,
                disk_lost_at=None,
            )
        case InstanceRunning():
            return change(
                instance,
                status="running",
                reason="",
                gpu_from=fact.gpu_from,
                ran_assignment=fact.assignment_no,
                first_run_at=instance.first_run_at or fact.gpu_from,
            )
        case InstanceRan():
            return change(
                instance,
                gpu_until=fact.gpu_until,
                ran_assignment=fact.assignment_no,
                first_run_at=instance.first_run_at or fact.gpu_from,
            )
        case InstanceBootChanged():
            closed = instance.gpu_until if fact.gpu_until is None else fact.gpu_until
            return change(instance, status="loading", reason="", gpu_from=None, gpu_until=closed)
        case InstanceStopped():
            return _released(instance, fact.stopped_at, "stopped", fact.reason, wants_run=False)
        case InstanceDisplaced():
            return _released(instance, fact.displaced_at, "scheduling", fact.reason, wants_run=True)
        case InstanceExpired():
            return _released(instance, fact.expired_at, "expired", "", wants_run=False)
        case InstanceDestroyed():
            gone = _released(instance, fact.destroyed_at, "destroyed", "", wants_run=False)
            return change(gone, ended_at=fact.destroyed_at)
        case InstanceDiskLost():
            return change(instance, disk_lost_at=fact.lost_at)
        case InstanceLabelled():
            return change(instance, label=fact.label)
        case BidChanged():
            return change(instance, coming=_restated(instance, fact.coming))
        case TermsTookEffect():
            return _in_force(instance, fact)
        case InstanceLaunchChanged():
            return change(
                instance,
                launch=fact.launch,
                launch_hash=fact.launch_hash,
                launches=instance.launches + 1,
            )
        case (
            InstanceRebooted()
            | ObservationIgnored()
            | UsageGapRecorded()
            | InstanceLaunchResolved()
            | ConnectionPublished()
        ):
            return instance
        case _:
            return _evolve_contract(instance, fact)


def _restated(instance: Instance, coming: Sequence[Coming]) -> tuple[Coming, ...]:
    """Agreed terms up to the first of *coming*, and those from there on."""
    if not coming:
        return instance.coming
    first = coming[0].effective_at
    return (*(one for one in instance.coming if one.effective_at < first), *coming)


def _in_force(instance: Instance, fact: TermsTookEffect) -> Instance:
    """The state under terms that were agreed before."""
    is_new_bid = fact.bid != instance.bid
    return msgspec.structs.replace(
        instance,
        terms=fact.terms,
        coming=tuple(one for one in instance.coming if one.effective_at > fact.effective_at),
        bid=fact.bid,
        bid_effective_at=fact.effective_at if is_new_bid else instance.bid_effective_at,
        base_rate=instance.base_rate if fact.terms.kind == "reserved" else fact.terms.gpu_rate,
    )


def _evolve_contract(instance: Instance, fact: ContractFact) -> Instance:
    """Fold a change of the contract."""
    change = msgspec.structs.replace
    match fact:
        case ReservationBought():
            now, *later = fact.coming
            return change(
                instance,
                terms=now.terms,
                coming=tuple(later),
                base_rate=fact.base_rate,
                reservations=fact.reservation_no,
                reservation=Reservation(
                    number=fact.reservation_no,
                    deposit=fact.deposit,
                    term_from=fact.term_from,
                    term_until=fact.term_until,
                ),
            )
        case ReservationEnded():
            ended = change(instance, reservation=None)
            if fact.coming:
                now, *later = fact.coming
                ended = change(ended, terms=now.terms, coming=tuple(later))
            return ended
        case PriceIncreaseProposed():
            proposal = Proposal(number=fact.proposal_no, terms=fact.terms, until=fact.until)
            return change(instance, proposal=proposal, proposals=fact.proposal_no)
        case PriceIncreaseAccepted() | PriceIncreaseRejected():
            return change(instance, proposal=None)
        case ContractExtended():
            coming = _restated(instance, fact.coming)
            return change(instance, until=fact.until, coming=coming, proposal=None)
        case _:
            assert_never(fact)


def _released(
    instance: Instance, at: int, status: Status, reason: str, *, wants_run: bool
) -> Instance:
    """The state after its GPUs, if any, went back at second *at*."""
    held = instance.holds_gpus
    ran = instance.gpu_from is not None
    return msgspec.structs.replace(
        instance,
        status=status,
        reason=reason,
        wants_run=wants_run,
        assignment_ended_at=at if held else instance.assignment_ended_at,
        slots=() if held else instance.slots,
        gpu_uuids=() if held else instance.gpu_uuids,
        gpu_from=None,
        gpu_until=at if ran else instance.gpu_until,
    )


def fold(facts: Iterable[InstanceFact]) -> Instance:
    """The state after *facts*, which begin with the creation."""
    instance: Instance | None = None
    for fact in facts:
        instance = evolve(instance, fact)
    assert instance is not None, "an instance without facts"
    return instance
