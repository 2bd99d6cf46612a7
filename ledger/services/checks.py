"""Health checks: issued, handed out, answered, judged (`marketplace.md` §10).

One slot per machine every 300 s, at a random second that is recorded with the slot and told to the
machine only when it has come. What a judged check does to the rating is a fold's; what follows for
the verification is reviewed here, once for all checks of a command. Issuing is the timer's
(`ledger.services.check_timer`), so that a simulation has no checks but its own.
"""

from __future__ import annotations

import secrets
from collections.abc import Collection, Sequence
from typing import Any, Final, NamedTuple

from ledger.domain.challenge import is_proven
from ledger.domain.checks import (
    ANSWER_SECONDS,
    CheckKind,
    Hardware,
    JudgedKind,
    Verdict,
    judge_answer,
    judge_silence,
    scaling_of,
)
from ledger.domain.events import (
    CheckIssued,
    CheckJudged,
    CheckReclassified,
    Fact,
)
from ledger.domain.ids import machine_stream
from ledger.domain.reliability import excluded_slots, slot_of
from ledger.domain.usage import CheckAnswer
from ledger.services.ledger import Ledger, Unit
from ledger.services.proofs import challenge_passed, record_benchmark
from ledger.services.verification import review
from ledger.store.database import Connection

_NONCE_BYTES: Final = 16
_BATCH: Final = 500
WITNESS_HOSTS: Final = 3
"""When machines of this many hosts fall silent in one moment, it is the platform."""
_HEARD_SECONDS: Final = 600
PLATFORM_FAULT: Final = Verdict("inconclusive", 1, "platform_fault")


class Judgement(NamedTuple):
    """What a check is worth, before it is a fact."""

    machine_id: int
    kind: JudgedKind
    at: int
    verdict: Verdict
    instance_id: int | None = None


# --- issuing and handing out ----------------------------------------------------------------------


def issued(machine_id: int, kind: CheckKind, at: int, now: int) -> tuple[str, Fact]:
    """The check of the slot that holds *at*, and its stream."""
    fact = CheckIssued(
        machine_id=machine_id,
        slot=slot_of(at),
        kind=kind,
        at=at,
        nonce=secrets.token_hex(_NONCE_BYTES),
        deadline=at + ANSWER_SECONDS[kind],
        issued_at=now,
    )
    return machine_stream(machine_id), fact


class HandedOut:
    """The checks that acknowledgements carry; nothing is looked up while none is open."""

    def __init__(self) -> None:
        """Begin without knowing."""
        self._looked_at = -1
        self._any_open = False

    def of(
        self, connection: Connection, machine_ids: Collection[int], now: int
    ) -> dict[int, list[dict[str, Any]]]:
        """Machine → its checks whose second has come and whose answer would still count."""
        if self._looked_at != now:
            row = connection.execute(
                "SELECT EXISTS (SELECT 1 FROM checks JOIN machines USING (machine_id)"
                " WHERE judged_at IS NULL)"
            ).fetchone()
            self._looked_at, self._any_open = now, row is not None and row[0]
        found: dict[int, list[dict[str, Any]]] = {}
        if not self._any_open:
            return found
        for machine_id, slot, at, kind, nonce, deadline in connection.execute(
            "SELECT machine_id, slot, at, kind, nonce, deadline FROM checks"
            " WHERE judged_at IS NULL AND machine_id = ANY(%s) AND at <= %s AND deadline > %s"
            " ORDER BY slot",
            [list(machine_ids), now, now],
        ):
            one = {"slot": slot, "at": at, "kind": kind, "nonce": nonce, "deadline": deadline}
            found.setdefault(machine_id, []).append(one)
        return found


# --- judging --------------------------------------------------------------------------------------


def take_answers(unit: Unit, machine_id: int, answers: Sequence[CheckAnswer]) -> None:
    """Judge a machine's answers; one to a check that is not open changes nothing."""
    row = unit.connection.execute(
        "SELECT gpus, gpu_ram_gb FROM machines WHERE machine_id = %s", [machine_id]
    ).fetchone()
    assert row is not None, machine_id
    hardware = Hardware(*row)
    first = {answer.slot: answer for answer in reversed(answers)}
    judged: list[Judgement] = []
    passed: list[tuple[CheckKind, CheckAnswer]] = []
    for slot, kind, nonce, at, deadline in unit.connection.execute(
        "SELECT slot, kind, nonce, at, deadline FROM checks WHERE machine_id = %s"
        " AND slot = ANY(%s) AND judged_at IS NULL AND at <= %s ORDER BY slot",
        [machine_id, list(first), unit.now],
    ).fetchall():
        answer = first[slot]
        if unit.now > deadline:
            verdict = judge_silence(rented=was_rented(unit.connection, machine_id, at))
        else:
            verdict = judge_answer(kind, nonce, answer.result, answer.measures, hardware)
        judged.append(Judgement(machine_id, kind, at, verdict))
        if verdict.result == "passed":
            passed.append((kind, answer))
    conclude(unit, judged)
    for kind, answer in passed:
        if kind == "benchmark":
            scaling = scaling_of(answer.measures)
            record_benchmark(unit, machine_id, answer.slot, answer.measures, scaling)
        elif kind == "challenge":
            challenge_passed(unit, machine_id, answer.slot)


def prove_early(ledger: Ledger, machine_id: int, answers: Sequence[CheckAnswer]) -> None:
    """Find out what proofs are worth that `take_answers` will ask for, before the log is locked.

    Only of checks that are open: nobody else makes the server compute.
    """
    by_slot = {
        one.slot: one for one in answers if one.result == "passed" and "rows" in one.measures
    }
    if not by_slot:
        return
    with ledger.reading() as connection:
        open_challenges = connection.execute(
            "SELECT slot, nonce, gpus FROM checks JOIN machines USING (machine_id)"
            " WHERE machine_id = %s AND slot = ANY(%s) AND kind = 'challenge'"
            " AND judged_at IS NULL AND at <= %s AND deadline >= %s",
            [machine_id, list(by_slot), ledger.clock(), ledger.clock()],
        ).fetchall()
    for slot, nonce, gpus in open_challenges:
        is_proven(nonce, gpus, by_slot[slot].measures)


def judge_overdue(unit: Unit) -> bool:
    """Judge checks that nobody answered in time; True when there may be more.

    A machine that was removed meanwhile is judged no more.
    A machine that was not heard failed. When nobody at all was heard since the check, though
    several hosts had been shortly before, the fault is on this side and nothing is concluded.
    """
    rows = unit.connection.execute(
        "SELECT machine_id, kind, at FROM checks JOIN machines USING (machine_id)"
        " WHERE judged_at IS NULL AND deadline < %s ORDER BY deadline, machine_id LIMIT %s",
        [unit.now, _BATCH],
    ).fetchall()
    judged = []
    for machine_id, kind, at in rows:
        if _nobody_was_heard(unit.connection, at):
            verdict = PLATFORM_FAULT
        else:
            verdict = judge_silence(rented=was_rented(unit.connection, machine_id, at))
        judged.append(Judgement(machine_id, kind, at, verdict))
    conclude(unit, judged)
    return len(rows) == _BATCH


def excuse(unit: Unit, since: int, until: int) -> None:
    """Conclude nothing from checks that were open in `[since, until)`: the platform stood still."""
    rows = unit.connection.execute(
        "SELECT machine_id, kind, at FROM checks JOIN machines USING (machine_id)"
        " WHERE judged_at IS NULL AND at < %s AND deadline >= %s ORDER BY machine_id",
        [until, since],
    ).fetchall()
    conclude(unit, [Judgement(row[0], row[1], row[2], PLATFORM_FAULT) for row in rows])


def conclude(unit: Unit, judgements: Sequence[Judgement], *, promptly: bool = False) -> None:
    """Append what these checks are worth, and review the machines' verification.

    *promptly*: each was judged in its own second, though it is recorded now, as a simulation does.
    """
    if not judgements:
        return
    machine_ids = list(dict.fromkeys(one.machine_id for one in judgements))
    latest = max(one.at for one in judgements)
    excluded = {
        machine_id: excluded_slots(windows, latest)
        for machine_id, windows in approved_windows(unit.connection, machine_ids).items()
    }
    unit.append_all(
        [
            (
                machine_stream(one.machine_id),
                CheckJudged(
                    machine_id=one.machine_id,
                    slot=slot_of(one.at),
                    kind=one.kind,
                    at=one.at,
                    result=one.verdict.result,
                    severity=one.verdict.severity,
                    reason=one.verdict.reason,
                    excluded=slot_of(one.at) in excluded.get(one.machine_id, ()),
                    instance_id=one.instance_id,
                    judged_at=one.at if promptly else unit.now,
                ),
            )
            for one in judgements
        ]
    )
    review(unit, machine_ids)


def turn_to_failed(
    unit: Unit,
    machine_id: int,
    start: int,
    until: int,
    reason: str,
    dispute_id: int | None = None,
) -> int:
    """Turn every judged slot with a check in `[start, until)` to failed; returns how many.

    An upheld dispute does this (`marketplace.md` §10): nothing is edited, the first result stays on
    record.
    """
    slots = unit.connection.execute(
        "SELECT slot FROM checks WHERE machine_id = %s AND slot BETWEEN %s AND %s AND at >= %s"
        " AND at < %s AND judged_at IS NOT NULL GROUP BY slot"
        " HAVING bool_or(result <> 'failed') ORDER BY slot",
        [machine_id, slot_of(start), slot_of(until), start, until],
    ).fetchall()
    unit.append_all(
        [
            (
                machine_stream(machine_id),
                CheckReclassified(
                    machine_id=machine_id,
                    slot=slot,
                    result="failed",
                    severity=1,
                    reason=reason,
                    dispute_id=dispute_id,
                    reclassified_at=unit.now,
                ),
            )
            for (slot,) in slots
        ]
    )
    review(unit, [machine_id])
    return len(slots)


# --- what a judgement depends on ------------------------------------------------------------------


def approved_windows(
    connection: Connection, machine_ids: Collection[int]
) -> dict[int, list[tuple[int, int]]]:
    """Machine → its approved maintenance windows `[start, until)`, those that happened or may."""
    windows: dict[int, list[tuple[int, int]]] = {}
    for machine_id, start, until in connection.execute(
        "SELECT machine_id, start, until FROM maintenance_windows WHERE machine_id = ANY(%s)"
        " AND approved AND status <> 'cancelled'",
        [list(machine_ids)],
    ):
        windows.setdefault(machine_id, []).append((start, until))
    return windows


def was_rented(connection: Connection, machine_id: int, at: int) -> bool:
    """Whether somebody else than its host held GPUs of the machine at second *at*."""
    row = connection.execute(
        "SELECT EXISTS (SELECT 1 FROM gpu_assignments a JOIN instances i USING (instance_id)"
        " WHERE a.machine_id = %s AND a.during @> %s::bigint AND i.account_id <> i.host_id)",
        [machine_id, at],
    ).fetchone()
    return row is not None and bool(row[0])


def _nobody_was_heard(connection: Connection, at: int) -> bool:
    row = connection.execute(
        "SELECT max(h.recorded_at) < %s AND count(DISTINCT m.host_id)"
        " FILTER (WHERE h.recorded_at >= %s) >= %s"
        " FROM stream_heads h JOIN machines m USING (machine_id)",
        [at, at - _HEARD_SECONDS, WITNESS_HOSTS],
    ).fetchone()
    return row is not None and bool(row[0])
