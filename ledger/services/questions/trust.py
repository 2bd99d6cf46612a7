"""How far a machine and its host can be trusted: ratings now and at any past second, and why."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from ledger.domain.checks import MILD
from ledger.domain.events import FoundDifference, MissedBar
from ledger.domain.reliability import (
    HALF_LIFE,
    IGNORED_AFTER,
    WINDOW_SECONDS,
    Check,
    expected,
    lower_bound,
    reliability,
    slot_of,
    worst,
)
from ledger.errors import NotFoundError
from ledger.services.comparisons import decoded, last_comparison
from ledger.store.database import Connection


class RatingView(msgspec.Struct, frozen=True, kw_only=True):
    """The rating of a machine at a second, over the 30 days before it.

    `reliability` is null below 12 conclusive checks; `lower_bound` ranks and gates.
    """

    machine_id: int
    at: int
    passed: int
    n: int
    reliability: float | None
    expected_reliability: float
    lower_bound: float


class _Totals(NamedTuple):
    """Running totals over a machine's counted checks, weighed at the second `at`."""

    at: int = 0
    n: int = 0
    passes: int = 0
    pass_weight: float = 0.0
    severity_weight: float = 0.0

    def weighed_at(self, second: int) -> _Totals:
        """The same, as it weighs at a later second."""
        factor = float(2.0 ** (-(second - self.at) / HALF_LIFE))
        return self._replace(
            at=second,
            pass_weight=self.pass_weight * factor,
            severity_weight=self.severity_weight * factor,
        )

    def plus(self, check: Check | None) -> _Totals:
        """With one check more, not earlier than the others."""
        if check is None:
            return self
        passed = check.result == "passed"
        moved = self.weighed_at(check.at)
        return _Totals(
            check.at,
            self.n + 1,
            self.passes + passed,
            moved.pass_weight + passed,
            moved.severity_weight + (MILD if passed else check.severity),
        )


def rating(connection: Connection, machine_id: int, second: int) -> RatingView:
    """The rating of a machine at *second*, with everything that is known of its checks today.

    Exactly what `ledger.domain.reliability.rating` makes of all checks, from a few index lookups:
    of a past second too, whatever happened after it.

    Raises:
        NotFoundError: `no_such_machine`.
    """
    _require(connection, machine_id)
    counted = _before(connection, machine_id, second)
    since = _ended_before(connection, machine_id, second - WINDOW_SECONDS)
    n, passed = counted.n - since.n, counted.passes - since.passes
    # A check made in this very second has its full weight in the expectation, and no place yet in
    # the window, which ends before it.
    weighed = _before(connection, machine_id, second + 1).weighed_at(second)
    ignored = _ended_before(connection, machine_id, second - IGNORED_AFTER).weighed_at(second)
    return RatingView(
        machine_id=machine_id,
        at=second,
        passed=passed,
        n=n,
        reliability=reliability(passed, n),
        expected_reliability=expected(
            weighed.pass_weight - ignored.pass_weight,
            weighed.severity_weight - ignored.severity_weight,
        ),
        lower_bound=lower_bound(passed, n),
    )


_TOTALS = "SELECT at, n, passes, pass_weight, severity_weight FROM rated_slots"


def _ended_before(connection: Connection, machine_id: int, second: int) -> _Totals:
    """Totals of the counted checks before *second*, whose slots have all ended."""
    row = connection.execute(
        f"{_TOTALS} WHERE machine_id = %s AND slot <= %s AND at < %s ORDER BY slot DESC LIMIT 1",
        [machine_id, slot_of(second), second],
    ).fetchone()
    return _Totals() if row is None else _Totals(*row)


def _before(connection: Connection, machine_id: int, second: int) -> _Totals:
    """Totals as they were just before *second*: of its own slot only what came before it counts."""
    row = connection.execute(
        f"{_TOTALS} WHERE machine_id = %s AND slot < %s ORDER BY slot DESC LIMIT 1",
        [machine_id, slot_of(second)],
    ).fetchone()
    whole = _Totals() if row is None else _Totals(*row)
    rows = connection.execute(
        "SELECT slot, at, result, severity FROM checks WHERE machine_id = %s AND slot = %s"
        " AND at < %s AND judged_at IS NOT NULL AND NOT excluded",
        [machine_id, slot_of(second), second],
    )
    return whole.plus(worst(Check(*one) for one in rows))


def expectations(
    connection: Connection, machine_ids: Sequence[int], second: int
) -> dict[int, float]:
    """The `expected_reliability` of many machines at *second*, as `rating` gives it for one."""
    ids = list(machine_ids)
    slot = slot_of(second + 1)
    before = _latest(connection, ids, "slot < %s", slot)
    ignored_at = second - IGNORED_AFTER
    ignored = _latest(connection, ids, "slot <= %s AND at < %s", slot_of(ignored_at), ignored_at)
    in_slot: dict[int, list[Check]] = {}
    for machine_id, *one in connection.execute(
        "SELECT machine_id, slot, at, result, severity FROM checks WHERE machine_id = ANY(%s)"
        " AND slot = %s AND at < %s AND judged_at IS NOT NULL AND NOT excluded",
        [ids, slot, second + 1],
    ):
        in_slot.setdefault(machine_id, []).append(Check(*one))
    found = {}
    for machine_id in ids:
        whole = before.get(machine_id, _Totals())
        now = whole.plus(worst(in_slot.get(machine_id, ()))).weighed_at(second)
        old = ignored.get(machine_id, _Totals()).weighed_at(second)
        found[machine_id] = expected(
            now.pass_weight - old.pass_weight, now.severity_weight - old.severity_weight
        )
    return found


def _latest(
    connection: Connection, machine_ids: list[int], condition: str, *values: int
) -> dict[int, _Totals]:
    rows = connection.execute(
        "SELECT m.id, r.* FROM unnest(%s::bigint[]) AS m (id) CROSS JOIN LATERAL ("  # noqa: S608 - conditions of this module
        f"{_TOTALS} WHERE machine_id = m.id AND {condition} ORDER BY slot DESC LIMIT 1) AS r",
        [machine_ids, *values],
    )
    return {row[0]: _Totals(*row[1:]) for row in rows}


# --- lists ----------------------------------------------------------------------------------------


class CheckView(msgspec.Struct, frozen=True, kw_only=True):
    """A check, a start or an incident; the result is null while it is open.

    `judged_as` is the first result of one that was reclassified. `position` orders the list.
    """

    slot: int
    kind: str
    at: int
    deadline: int | None
    result: str | None
    severity: int
    reason: str | None
    excluded: bool
    instance_id: int | None
    judged_at: int | None
    judged_as: str | None
    reclassified_at: int | None
    position: int


class VerificationView(msgspec.Struct, frozen=True, kw_only=True):
    """What is thought of a machine, who judged it last, and what it lacks."""

    machine_id: int
    host_id: int
    verification: str
    judged_by: str
    vouched: bool
    secure: bool
    country: str | None
    below_bars: bool
    score: float | None
    differences: list[FoundDifference]
    missed_to_list: list[MissedBar]
    missed_to_verify: list[MissedBar]
    compared_at: int | None


class VerificationChange(msgspec.Struct, frozen=True, kw_only=True):
    """A step of a machine's verification."""

    position: int
    verification: str
    judged_by: str
    reason: str
    changed_at: int


class BenchmarkView(msgspec.Struct, frozen=True, kw_only=True):
    """A run of the suite; `score` is that of one GPU."""

    position: int
    slot: int
    suite: str
    measures: dict[str, int]
    scaling_ppm: int
    score: float
    evidence: str
    recorded_at: int


class GpuView(msgspec.Struct, frozen=True, kw_only=True):
    """A GPU. `lost`: nobody has it; `suspect`: who holds it keeps it, and nobody else gets it.

    Both end with a challenge that the machine passes. `reason` and `since` are null for a good one.
    """

    slot: int
    gpu_uuid: str
    state: str
    reason: str | None
    since: int | None
    instance_id: int | None
    """Who holds it."""


class CertificationView(msgspec.Struct, frozen=True, kw_only=True):
    """A paper of a host; `counts`: it is valid at the second that was asked for."""

    certification_no: int
    kind: str
    number: str
    issuer: str
    valid_from: int
    valid_to: int | None
    evidence_hash: str
    recorded_at: int
    withdrawn_at: int | None
    counts: bool


def checks(
    connection: Connection,
    machine_id: int,
    *,
    since: int = 0,
    after: tuple[int, int] = (-1, -1),
    limit: int = 100,
) -> list[CheckView]:
    """Checks of a machine by slot, from the slot on that holds *since*.

    A nonce is not shown: whoever knows it could answer in the machine's place.
    """
    rows = connection.execute(
        "SELECT slot, kind, at, deadline, result, severity, reason, excluded, instance_id,"
        " judged_at, judged_as, reclassified_at, position FROM checks"
        " WHERE machine_id = %s AND slot >= %s AND (slot, position) > (%s, %s)"
        " ORDER BY slot, position LIMIT %s",
        [machine_id, slot_of(since), *after, limit],
    )
    return [_view(CheckView, row) for row in rows]


def gpus(connection: Connection, machine_id: int) -> list[GpuView]:
    """The GPUs of a machine by slot: which can be rented, who has them, and why not."""
    rows = connection.execute(
        "SELECT g.slot, g.gpu_uuid, CASE WHEN NOT g.healthy THEN 'lost'"
        "   WHEN s.gpu_uuid IS NOT NULL THEN 'suspect' ELSE 'good' END,"
        " CASE WHEN NOT g.healthy THEN g.health_reason ELSE s.reason END,"
        " CASE WHEN NOT g.healthy THEN g.health_changed_at ELSE s.since END, a.instance_id"
        " FROM gpus g LEFT JOIN gpu_suspects s USING (gpu_uuid)"
        " LEFT JOIN gpu_assignments a ON a.machine_id = g.machine_id AND a.slot = g.slot"
        "   AND upper_inf(a.during)"
        " WHERE g.machine_id = %s ORDER BY g.slot",
        [machine_id],
    )
    return [_view(GpuView, row) for row in rows]


def verification(connection: Connection, machine_id: int) -> VerificationView:
    """How a machine stands now.

    Raises:
        NotFoundError: `no_such_machine`.
    """
    row = connection.execute(
        "SELECT s.machine_id, m.host_id, s.verification, coalesce(t.judged_by, 'platform'),"
        " coalesce(t.vouched, false), s.secure, s.country, s.below_bars, s.score, t.compared_at"
        " FROM machine_standing s JOIN machines m USING (machine_id)"
        " LEFT JOIN machine_trust t USING (machine_id) WHERE s.machine_id = %s",
        [machine_id],
    ).fetchone()
    if row is None:
        raise _unknown(machine_id)
    found = last_comparison(connection, machine_id)
    return VerificationView(
        machine_id=row[0],
        host_id=row[1],
        verification=row[2],
        judged_by=row[3],
        vouched=row[4],
        secure=row[5],
        country=row[6],
        below_bars=row[7],
        score=row[8],
        differences=found.differences if found else [],
        missed_to_list=found.missed_to_list if found else [],
        missed_to_verify=found.missed_to_verify if found else [],
        compared_at=row[9],
    )


def verification_history(
    connection: Connection, machine_id: int, *, after: int = 0, limit: int = 100
) -> list[VerificationChange]:
    """Every step of a machine's verification, in order."""
    rows = connection.execute(
        "SELECT position, verification, judged_by, reason, changed_at FROM verification_history"
        " WHERE machine_id = %s AND position > %s ORDER BY position LIMIT %s",
        [machine_id, after, limit],
    )
    return [_view(VerificationChange, row) for row in rows]


def benchmarks(
    connection: Connection, machine_id: int, *, after: int = 0, limit: int = 100
) -> list[BenchmarkView]:
    """Runs of the suite that the platform issued, in order."""
    rows = connection.execute(
        "SELECT position, slot, suite, measures, scaling_ppm, score, evidence, recorded_at"
        " FROM benchmark_runs WHERE machine_id = %s AND position > %s ORDER BY position LIMIT %s",
        [machine_id, after, limit],
    )
    return [
        _view(BenchmarkView, (*row[:3], decoded(row[3], dict[str, int]), *row[4:])) for row in rows
    ]


def certifications(
    connection: Connection, host_id: int, now: int, *, after: int = 0, limit: int = 100
) -> list[CertificationView]:
    """A host's papers, in the order in which they were recorded.

    Raises:
        NotFoundError: `no_such_host` for an account without machines or papers.
    """
    known = connection.execute(
        "SELECT 1 FROM machines WHERE host_id = %s"
        " UNION ALL SELECT 1 FROM certifications WHERE host_id = %s LIMIT 1",
        [host_id, host_id],
    ).fetchone()
    if known is None:
        raise NotFoundError("no_such_host", f"there is no host {host_id}")
    rows = connection.execute(
        "SELECT certification_no, kind, number, issuer, valid_from, valid_to, evidence_hash,"
        " recorded_at, withdrawn_at, withdrawn_at IS NULL AND valid_from <= %s"
        "  AND (valid_to IS NULL OR valid_to > %s)"
        " FROM certifications WHERE host_id = %s AND certification_no > %s"
        " ORDER BY certification_no LIMIT %s",
        [now, now, host_id, after, limit],
    )
    return [_view(CertificationView, row) for row in rows]


def _view(kind: type[Any], row: tuple[Any, ...]) -> Any:
    return kind(**dict(zip(kind.__struct_fields__, row, strict=True)))


def _require(connection: Connection, machine_id: int) -> None:
    row = connection.execute(
        "SELECT 1 FROM machines WHERE machine_id = %s", [machine_id]
    ).fetchone()
    if row is None:
        raise _unknown(machine_id)


def _unknown(machine_id: int) -> NotFoundError:
    return NotFoundError("no_such_machine", f"there is no machine {machine_id}")
