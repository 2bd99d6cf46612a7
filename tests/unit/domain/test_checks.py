"""What an answer, a silence and a launch are worth; XIDs; the benchmark suite."""

from __future__ import annotations

from typing import Any, get_args

import pytest

from ledger.domain.benchmark import (
    DRIFT_PERCENT,
    REFERENCE,
    SCALING,
    SUITE,
    has_drifted,
    ratio_of,
    score_per_gpu,
)
from ledger.domain.checks import (
    ANSWER_SECONDS,
    PASSED,
    RENTERS_FAULT,
    CheckKind,
    Hardware,
    Verdict,
    judge_answer,
    judge_launch,
    judge_silence,
    scaling_of,
)
from ledger.domain.events import EvidenceLevel
from ledger.domain.reliability import SLOT_SECONDS
from ledger.domain.verification import Evidence
from ledger.domain.xid import XidClass, xid_class
from tests.support.suite import proven

NONCE = "9f2c" * 8
HARDWARE = Hardware(gpus=2, gpu_ram_gb=24)
FULL: dict[str, Any] = proven(NONCE, gpus=2)
RUN: dict[str, Any] = {"suite": SUITE, **REFERENCE}


def judge(kind: CheckKind, result: str = "passed", **measures: Any) -> Verdict:
    """The verdict on an answer with the right nonce."""
    return judge_answer(kind, NONCE, result, {"nonce": NONCE, **measures}, HARDWARE)


@pytest.mark.parametrize("kind", get_args(CheckKind))
def test_an_answer_without_the_nonce_fails(kind: CheckKind) -> None:
    """Whatever else it says: it was not made after the check's second."""
    for nonce in ({}, {"nonce": None}, {"nonce": "0" * 32}, {"nonce": 7}):
        found = judge_answer(kind, NONCE, "passed", {**FULL, **RUN, **nonce}, HARDWARE)
        assert found == Verdict("failed", 1, "wrong_nonce")


@pytest.mark.parametrize(
    ("found", "result", "reason"),
    [
        pytest.param(judge("ping"), "passed", "answered", id="ping"),
        pytest.param(judge("ping", gpus=2), "passed", "answered", id="ping-with-gpus"),
        pytest.param(judge("ping", gpus=1), "failed", "gpu_missing", id="ping-a-gpu-less"),
        pytest.param(judge("ping", "failed"), "failed", "reported_failure", id="ping-failed"),
        pytest.param(
            judge("ping", "inconclusive"), "failed", "driver_does_not_answer", id="ping-no-driver"
        ),
        pytest.param(judge("ping", "ok"), "failed", "bad_answer", id="ping-another-word"),
        pytest.param(judge("challenge", **FULL), "passed", "answered", id="challenge"),
        pytest.param(
            judge("challenge", "inconclusive"), "inconclusive", "not_able", id="challenge-not-able"
        ),
        pytest.param(
            judge("challenge", **{**FULL, "gpus": 1}), "failed", "gpu_missing", id="challenge-few"
        ),
        pytest.param(
            judge("challenge", **{**FULL, "filled_mib": None}),
            "failed",
            "bad_answer",
            id="challenge-without-a-number",
        ),
        pytest.param(
            judge("challenge", **{**FULL, "elapsed_ms": -1}),
            "failed",
            "bad_answer",
            id="challenge-before-it-began",
        ),
        pytest.param(
            judge("challenge", **{**FULL, "root.1": "00" * 32}),
            "failed",
            "not_computed",
            id="challenge-without-the-work",
        ),
        # 90 % of 24 GB are 20,599.4 MiB.
        pytest.param(
            judge("challenge", **{**FULL, "filled_mib": 20_600}),
            "passed",
            "answered",
            id="challenge-just-enough-memory",
        ),
        pytest.param(
            judge("challenge", **{**FULL, "filled_mib": 20_599}),
            "failed",
            "memory_missing",
            id="challenge-a-smaller-card",
        ),
        pytest.param(judge("benchmark", **RUN), "passed", "answered", id="benchmark"),
        pytest.param(
            judge("benchmark", **{**RUN, "suite": "older"}),
            "inconclusive",
            "other_suite",
            id="benchmark-of-another-suite",
        ),
        pytest.param(
            judge("benchmark", "inconclusive"), "inconclusive", "not_able", id="no-framework"
        ),
        pytest.param(
            judge("benchmark", **{**RUN, "fp16_8192_mflops": 0}),
            "failed",
            "bad_answer",
            id="benchmark-with-a-zero",
        ),
        pytest.param(
            judge("benchmark", **{**RUN, "copy_64_mib_mb_s": "fast"}),
            "failed",
            "bad_answer",
            id="benchmark-with-a-text",
        ),
        pytest.param(
            judge("benchmark", **{**RUN, "copy_64_mib_mb_s": 365_000_001}),
            "failed",
            "bad_answer",
            id="benchmark-of-no-card",
        ),
    ],
)
def test_the_platform_judges_the_answer(found: Verdict, result: str, reason: str) -> None:
    """Each kind of check has its own proof, and each failure its own reason."""
    assert (found.result, found.reason) == (result, reason)


def test_silence_is_worst_while_somebody_rents_the_machine() -> None:
    """Severity 3 if unreachable while rented, 1 otherwise (§10)."""
    assert judge_silence(rented=True) == Verdict("failed", 3, "no_answer")
    assert judge_silence(rented=False) == Verdict("failed", 1, "no_answer")


def test_a_launch_fails_by_the_hosts_fault_unless_the_renter_is_to_blame() -> None:
    """Severity 2; what lies in the renter's request is inconclusive, never a pass."""
    assert judge_launch(confirmed=True, reason=None).result == "passed"
    assert judge_launch(confirmed=False, reason=None) == Verdict("failed", 2, "launch_failed")
    assert judge_launch(confirmed=False, reason="no_disk") == Verdict("failed", 2, "no_disk")
    for reason in RENTERS_FAULT:
        assert judge_launch(confirmed=False, reason=reason).result == "inconclusive"


def test_there_is_time_for_two_reports() -> None:
    """One brings the question and the next one the answer, each up to a minute after the last."""
    assert min(ANSWER_SECONDS.values()) > 120
    assert ANSWER_SECONDS["ping"] < SLOT_SECONDS
    assert PASSED.result == "passed"


# --- XIDs -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("codes", "found"),
    [
        ((13, 31, 43, 45, 68, 109), "application"),
        ((63, 92, 94), "degraded"),
        ((48, 62, 64, 74, 79, 95, 119, 120), "fatal"),
        ((0, 1, 999, None), "suspect"),
    ],
)
def test_every_xid_has_its_class(codes: tuple[int | None, ...], found: XidClass) -> None:
    """The table of `host-agent.md` §6; an unknown code makes the GPU suspect."""
    assert {xid_class(code) for code in codes} == {found}


def test_facts_name_the_levels_of_evidence_that_there_are() -> None:
    """What a fact may say is what the domain can compare."""
    assert list(get_args(EvidenceLevel)) == [level.value for level in Evidence]


# --- the suite ------------------------------------------------------------------------------------


def test_the_reference_scores_ten_per_gpu() -> None:
    """A GTX 1080 Ti ≈ 10; with an efficiency of 0.9 it counts 9 a GPU."""
    assert score_per_gpu(REFERENCE, 1_000_000) == pytest.approx(10)
    assert score_per_gpu(REFERENCE, 900_000) == pytest.approx(9)


@pytest.mark.parametrize(
    ("fp32", "fp16", "copy", "score"),
    [
        pytest.param(1.19, 4.2, 1.30, 14, id="2080-ti"),
        pytest.param(1.37, 9.0, 2.13, 21, id="v100"),
    ],
)
def test_cards_of_published_figures_score_what_the_rule_book_says(
    fp32: float, fp16: float, copy: float, score: int
) -> None:
    """2080 Ti ≈ 14 and V100 ≈ 21 (§12), within ten percent, by their ratios to a 1080 Ti."""
    factors = {"fp32": fp32, "fp16": fp16, "copy": copy}
    run = {name: int(value * factors[name[:4]]) for name, value in REFERENCE.items()}
    assert score_per_gpu(run, 1_000_000) == pytest.approx(score, rel=0.10)


def test_an_incomplete_run_has_no_ratio() -> None:
    """A suite is whole or it is none; further measures do not matter."""
    assert ratio_of({**REFERENCE, "nonce": NONCE, SCALING: 5}) == pytest.approx(1)
    for name in REFERENCE:
        rest: dict[str, int | str | None] = {**REFERENCE}
        del rest[name]
        assert ratio_of(rest) is None


@pytest.mark.parametrize(
    ("score", "usual", "drifted"),
    [(115.0, 100.0, False), (115.1, 100.0, True), (85.0, 100.0, False), (84.9, 100.0, True)],
)
def test_a_drift_is_more_than_fifteen_percent_either_way(
    score: float, usual: float, drifted: bool
) -> None:
    """Exactly 15 % is none, and without an earlier run there is nothing to drift from."""
    assert DRIFT_PERCENT == 15
    assert has_drifted(score, usual) is drifted
    assert not has_drifted(score, None)


@pytest.mark.parametrize(
    ("said", "ppm"),
    [(900_000, 900_000), (1_000_000, 1_000_000), (0, 1_000_000), (1_000_001, 1_000_000)],
)
def test_an_efficiency_that_cannot_be_is_none(said: int, ppm: int) -> None:
    """Nothing scales better than perfectly, and a single GPU has nothing to measure."""
    assert scaling_of({SCALING: said}) == ppm
    assert scaling_of({}) == 1_000_000
