"""The timer behind health checks: one slot per machine every 300 s; only the leader calls it.

It is no policy of `run_due`: a simulated clock jumps, and a machine that nobody asked has not
failed. `keep_slots` also notices when it was not called for a while: then the platform stood still,
and nothing is concluded from checks that were open meanwhile.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import Final

from ledger.domain.benchmark import SUITE
from ledger.domain.checks import CheckKind
from ledger.domain.reliability import WINDOW_SECONDS, slot_of, slot_start
from ledger.projections.contracts import CONTRACTS
from ledger.services.checks import excuse, issued
from ledger.services.ledger import Ledger, Unit
from ledger.store.database import Connection

STALL_SECONDS: Final = 30
"""Longer than this between two calls, and the platform stood still in between."""
_BATCH: Final = 500
_KEEPER: Final = "checks"

CHALLENGE_EVERY: Final = 24
"""One in so many slots of an idle machine, on average; a GPU that must prove itself: each."""
BENCHMARK_EVERY: Final = 288
"""The same for a run of the suite; sooner for a machine that has none yet."""
FIRST_BENCHMARK_EVERY: Final = 12


def keep_slots(ledger: Ledger) -> None:
    """Issue the checks of a slot that has begun; called about once a second."""
    now = ledger.clock()
    last = _last_call(ledger)
    if last is not None and now - last > STALL_SECONDS:
        with ledger.unit() as unit:
            excuse(unit, last, unit.now)
    if last is None or slot_of(last) != slot_of(now):
        _issue_slot(ledger, slot_of(now))
    _called(ledger, now)


def _issue_slot(ledger: Ledger, slot: int) -> None:
    """Issue the checks of *slot* to every machine that has none yet; safe to repeat."""
    with ledger.reading() as connection:
        waiting = _without_check(connection, slot, slot_start(slot))
    for first in range(0, len(waiting), _BATCH):
        with ledger.unit() as unit:
            if slot_of(unit.now) != slot:
                return  # It took too long; what is left has no check in this slot.
            issue_to(unit, waiting[first : first + _BATCH])


def issue_to(unit: Unit, machine_ids: Sequence[int]) -> None:
    """Issue the check of the present slot to each machine, at a random second of what is left."""
    left = slot_start(slot_of(unit.now) + 1) - unit.now
    kinds = _kinds(unit.connection, machine_ids)
    unit.append_all(
        [
            issued(machine_id, kinds[machine_id], unit.now + secrets.randbelow(left), unit.now)
            for machine_id in machine_ids
        ]
    )


def _without_check(connection: Connection, slot: int, start: int) -> list[int]:
    """Machines that were ever heard, are not long gone, and have no check of this slot."""
    rows = connection.execute(
        "SELECT m.machine_id FROM machines m WHERE m.enrolled_at IS NOT NULL"  # noqa: S608 - a constant
        " AND EXISTS (SELECT 1 FROM stream_heads h WHERE h.machine_id = m.machine_id)"
        " AND (m.offline_since IS NULL OR m.offline_since > %s OR EXISTS (SELECT 1"
        f"      FROM {CONTRACTS} i WHERE i.machine_id = m.machine_id AND i.destroyed_at IS NULL))"
        " AND NOT EXISTS (SELECT 1 FROM checks c WHERE c.machine_id = m.machine_id AND c.slot = %s"
        "      AND c.deadline IS NOT NULL)"
        " ORDER BY m.machine_id",
        [start - WINDOW_SECONDS, slot],
    )
    return [row[0] for row in rows]


def _kinds(connection: Connection, machine_ids: Sequence[int]) -> dict[int, CheckKind]:
    """What to ask of each machine: whoever has a renter is only pinged."""
    kinds: dict[int, CheckKind] = {}
    for machine_id, is_idle, has_bad, has_score in connection.execute(
        "SELECT m.machine_id,"
        " NOT EXISTS (SELECT 1 FROM gpu_assignments a WHERE a.machine_id = m.machine_id"
        "  AND upper_inf(a.during)),"
        " EXISTS (SELECT 1 FROM gpus g LEFT JOIN gpu_suspects s USING (gpu_uuid)"
        "  WHERE g.machine_id = m.machine_id AND (NOT g.healthy OR s.gpu_uuid IS NOT NULL)),"
        " EXISTS (SELECT 1 FROM benchmark_runs b WHERE b.machine_id = m.machine_id"
        "  AND b.suite = %s)"
        " FROM machines m WHERE m.machine_id = ANY(%s)",
        [SUITE, list(machine_ids)],
    ):
        kinds[machine_id] = _kind(is_idle=is_idle, has_bad=has_bad, has_score=has_score)
    return kinds


def _kind(*, is_idle: bool, has_bad: bool, has_score: bool) -> CheckKind:
    if not is_idle:
        return "ping"
    if has_bad:
        return "challenge"
    if secrets.randbelow(BENCHMARK_EVERY if has_score else FIRST_BENCHMARK_EVERY) == 0:
        return "benchmark"
    return "challenge" if secrets.randbelow(CHALLENGE_EVERY) == 0 else "ping"


def _last_call(ledger: Ledger) -> int | None:
    with ledger.reading() as connection:
        row = connection.execute(
            "SELECT position FROM projection_positions WHERE name = %s", [_KEEPER]
        ).fetchone()
    return None if row is None else int(row[0])


def _called(ledger: Ledger, now: int) -> None:
    with ledger.database.pool.connection() as connection:
        connection.execute(
            "INSERT INTO projection_positions VALUES (%s, 0, %s)"
            " ON CONFLICT (name) DO UPDATE SET position = EXCLUDED.position",
            [_KEEPER, now],
        )
