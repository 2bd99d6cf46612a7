"""What a report says about the health of GPUs, and what follows (`host-agent.md` §6).

A fatal fault takes the GPU off the market and stops who holds it, by the host's fault. A degraded
or suspect GPU is kept by who holds it and rented to nobody else. Either way a challenge on all GPUs
of the machine brings it back, or an admin who vouches for it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final, Literal, NamedTuple

from ledger.domain.events import Fact, GpuHealthChanged, GpuRestored, GpuSuspected
from ledger.domain.ids import machine_stream
from ledger.domain.instance import Observe
from ledger.domain.usage import HealthEvent
from ledger.domain.xid import xid_class
from ledger.errors import NotFoundError
from ledger.services.allocation import settle
from ledger.services.incidents import fail_slot
from ledger.services.ledger import Unit
from ledger.services.machines import require_machine
from ledger.services.rentals import command_all
from ledger.services.verification import check_reason

Effect = Literal["fatal", "degraded", "suspect"]
_EFFECTS: Final[dict[str, Effect]] = {
    "gpu_lost": "fatal",
    "gpu_missing": "fatal",
    "ecc_uncorrected": "degraded",
}
"""Kinds of events that say by themselves what follows; an XID is judged by its code."""


class _Gpu(NamedTuple):
    gpu_uuid: str
    healthy: bool
    suspect: bool


def take_health(
    unit: Unit, machine_id: int, events: Iterable[HealthEvent], attested_until: int
) -> None:
    """Append what a machine's health events cause; a repeated one causes nothing more.

    *attested_until*: the first second that no stored report attests; no meter ends before it.
    """
    found = [(event, effect) for event in events if (effect := effect_of(event)) is not None]
    if not found:
        return
    for event, effect in found:
        gpus = {one.gpu_uuid: one for one in _gpus(unit, machine_id)}
        # An event that cannot name its GPU is about all of them.
        hit = list(gpus) if event.gpu_uuid is None else [event.gpu_uuid]
        concerned = [gpus[uuid] for uuid in hit if uuid in gpus]
        reason = f"xid {event.code}" if event.kind == "xid" else event.kind
        if effect == "fatal":
            lost = [one for one in concerned if one.healthy]
            changed = _lose(unit, machine_id, lost, reason)
            _stop_holders(unit, machine_id, lost, event.at, attested_until)
        else:
            unsuspected = [one for one in concerned if one.healthy and not one.suspect]
            changed = _suspect(unit, machine_id, unsuspected, reason)
        if changed and effect != "suspect":
            fail_slot(unit, machine_id, reason.replace(" ", "_"), instance_id=event.instance)


def effect_of(event: HealthEvent) -> Effect | None:
    """What an event means for its GPU; none for what concerns no GPU or was a renter's doing."""
    if event.kind != "xid":
        return _EFFECTS.get(event.kind)
    found = xid_class(event.code)
    return None if found == "application" else found


def _gpus(unit: Unit, machine_id: int) -> list[_Gpu]:
    rows = unit.connection.execute(
        "SELECT g.gpu_uuid, g.healthy, s.gpu_uuid IS NOT NULL FROM gpus g"
        " LEFT JOIN gpu_suspects s USING (gpu_uuid) WHERE g.machine_id = %s ORDER BY g.slot",
        [machine_id],
    )
    return [_Gpu(*row) for row in rows]


def restore_by_hand(unit: Unit, machine_id: int, gpu_uuid: str, reason: str) -> None:
    """An admin vouches for a GPU that was lost or suspect; for a good one, nothing changes.

    Raises:
        NotFoundError: `no_such_machine`, `no_such_gpu`.
        RejectedError: `invalid_args` without a reason.
    """
    check_reason(reason)
    require_machine(unit.connection, machine_id)
    found = [one for one in _gpus(unit, machine_id) if one.gpu_uuid == gpu_uuid]
    if not found:
        raise NotFoundError("no_such_gpu", f"machine {machine_id} has no GPU {gpu_uuid}")
    if found[0].healthy and not found[0].suspect:
        return
    restored = GpuRestored(
        machine_id=machine_id, gpu_uuid=gpu_uuid, reason=reason, restored_at=unit.now
    )
    unit.append(machine_stream(machine_id), restored)
    settle(unit, machine_id)


def _lose(unit: Unit, machine_id: int, gpus: Collection[_Gpu], reason: str) -> bool:
    if not gpus:
        return False
    facts: list[Fact] = [
        GpuHealthChanged(
            machine_id=machine_id,
            gpu_uuid=one.gpu_uuid,
            healthy=False,
            reason=reason,
            changed_at=unit.now,
        )
        for one in gpus
    ]
    unit.append(machine_stream(machine_id), *facts)
    return True


def _stop_holders(
    unit: Unit, machine_id: int, gpus: Collection[_Gpu], at: int, attested_until: int
) -> None:
    """End the meters of who holds a lost GPU, at the second it was lost, and decide anew."""
    holders = unit.connection.execute(
        "SELECT DISTINCT a.instance_id FROM gpu_assignments a JOIN gpus g"
        " ON g.machine_id = a.machine_id AND g.slot = a.slot"
        " WHERE a.machine_id = %s AND upper_inf(a.during) AND g.gpu_uuid = ANY(%s)"
        " ORDER BY a.instance_id",
        [machine_id, [one.gpu_uuid for one in gpus]],
    ).fetchall()
    wishes = []
    for (instance_id,) in holders:
        instance = unit.instance(instance_id)
        wishes.append(
            (
                instance_id,
                Observe(
                    assignment=instance.assignment_no,
                    state="gpu_lost",
                    at=at,
                    billed_until=attested_until,
                ),
            )
        )
    command_all(unit, wishes)
    if gpus and not wishes:
        settle(unit, machine_id)


def _suspect(unit: Unit, machine_id: int, gpus: Collection[_Gpu], reason: str) -> bool:
    if not gpus:
        return False
    facts: list[Fact] = [
        GpuSuspected(
            machine_id=machine_id, gpu_uuid=one.gpu_uuid, reason=reason, suspected_at=unit.now
        )
        for one in gpus
    ]
    unit.append(machine_stream(machine_id), *facts)
    settle(unit, machine_id)
    return True
