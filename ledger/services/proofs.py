"""What a passed challenge or benchmark proves: GPUs that can be rented again, and a score."""

from __future__ import annotations

from collections.abc import Mapping

from ledger.domain.benchmark import REFERENCE, SUITE, has_drifted, score_per_gpu
from ledger.domain.events import BenchmarkRecorded, Fact, GpuCleared, GpuHealthChanged
from ledger.domain.ids import machine_stream
from ledger.services.allocation import settle
from ledger.services.ledger import Unit
from ledger.services.verification import deverify_for


def challenge_passed(unit: Unit, machine_id: int, slot: int) -> None:
    """All GPUs of a machine computed at once: those that were suspect or lost are there again."""
    rows = unit.connection.execute(
        "SELECT g.gpu_uuid, g.healthy, s.gpu_uuid IS NOT NULL FROM gpus g"
        " LEFT JOIN gpu_suspects s USING (gpu_uuid) WHERE g.machine_id = %s ORDER BY g.slot",
        [machine_id],
    ).fetchall()
    new: list[Fact] = []
    for gpu_uuid, is_healthy, is_suspect in rows:
        if is_suspect:
            new.append(
                GpuCleared(machine_id=machine_id, gpu_uuid=gpu_uuid, slot=slot, cleared_at=unit.now)
            )
        if not is_healthy:
            new.append(
                GpuHealthChanged(
                    machine_id=machine_id,
                    gpu_uuid=gpu_uuid,
                    healthy=True,
                    reason="challenge passed",
                    changed_at=unit.now,
                )
            )
    if new:
        unit.append(machine_stream(machine_id), *new)
        settle(unit, machine_id)


def record_benchmark(
    unit: Unit,
    machine_id: int,
    slot: int,
    measures: Mapping[str, int | str | None],
    scaling_ppm: int,
) -> None:
    """Record a whole run of the suite; one that is far off the usual ends the verification."""
    row = unit.connection.execute(
        "SELECT score FROM machine_standing WHERE machine_id = %s", [machine_id]
    ).fetchone()
    usual = None if row is None else row[0]
    taken = {name: value for name in REFERENCE if isinstance(value := measures[name], int)}
    unit.append(
        machine_stream(machine_id),
        BenchmarkRecorded(
            machine_id=machine_id,
            slot=slot,
            suite=SUITE,
            measures=taken,
            scaling_ppm=scaling_ppm,
            # The platform chose the second and bounded the time; the numbers are the agent's.
            evidence="agent_reported",
            recorded_at=unit.now,
        ),
    )
    score = score_per_gpu(taken, scaling_ppm)
    if has_drifted(score, usual):
        reason = f"benchmark drift: {score:.2f} per GPU, usually {usual:.2f}"
        deverify_for(unit, machine_id, reason)
