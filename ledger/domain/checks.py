"""Health checks: what is asked of a machine, how long it may take, and what its answer is worth.

The platform judges; what the agent says about itself is one input (`marketplace.md` §10,
`host-agent.md` §11.2). A ping proves that the agent and the driver answer. A challenge fills the
memory of all GPUs and computes on all of them at once, and what it computed is proven
(`ledger.domain.challenge`). A benchmark is one run of the suite
(`ledger.domain.benchmark`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal, NamedTuple

from ledger.domain.benchmark import SCALING, SUITE, WHOLE_PPM, ratio_of
from ledger.domain.challenge import is_proven
from ledger.domain.money import BYTES_PER_GB
from ledger.domain.reliability import Result, Severity

CheckKind = Literal["ping", "challenge", "benchmark"]
JudgedKind = Literal["ping", "challenge", "benchmark", "start", "incident"]
"""`start`: an instance's launch. `incident`: a fault that fails the slot in which it was seen."""

ANSWER_SECONDS: Final[Mapping[CheckKind, int]] = {"ping": 180, "challenge": 300, "benchmark": 900}
"""From a check's own second to the last one in which an answer counts.

A report may be a minute apart from the next: one brings the question, the next one the answer, and
a minute is to spare.
"""

CHALLENGE_MEMORY_PERCENT: Final = 90
"""Share of its stated memory that a challenge must fill on each GPU."""

NONCE: Final = "nonce"
"""The measure that repeats the check's nonce."""

Measures = Mapping[str, int | str | None]

UNREACHABLE_WHILE_RENTED: Final[Severity] = 3
START_FAILED: Final[Severity] = 2
MILD: Final[Severity] = 1

RENTERS_FAULT: Final = frozenset(
    {
        "image_not_found", "image_denied", "image_invalid", "bad_command", "bad_configuration",
        "env_invalid",
    }
)  # fmt: skip
"""Reasons of a failed launch that lie in what the renter asked for. They are the host's word, so
they take the failure away and never make it a pass."""


class Verdict(NamedTuple):
    """What a check or a start is worth; the severity says nothing unless it failed."""

    result: Result
    severity: Severity
    reason: str


class Hardware(NamedTuple):
    """As much of the registration as an answer must live up to."""

    gpus: int
    gpu_ram_gb: int


PASSED: Final = Verdict("passed", MILD, "answered")


def judge_answer(
    kind: CheckKind, nonce: str, result: str, measures: Measures, hardware: Hardware
) -> Verdict:
    """What an answer in time is worth.

    Args:
        kind: What was asked.
        nonce: What the answer must repeat: it was unknown before the check's second.
        result: The agent's own word: passed, failed or inconclusive.
        measures: What it measured.
        hardware: The registered machine.
    """
    if measures.get(NONCE) != nonce:
        return _failed("wrong_nonce")
    if result not in {"passed", "failed", "inconclusive"}:
        return _failed("bad_answer")
    if result == "failed":
        return _failed("reported_failure")
    if kind == "ping":
        return _ping(result, measures, hardware)
    if result == "inconclusive":
        # No framework is installed, say; the platform learns nothing, and nothing is gained by it.
        return Verdict("inconclusive", MILD, "not_able")
    if kind == "challenge":
        return _challenge(nonce, measures, hardware)
    if measures.get("suite") != SUITE:
        return Verdict("inconclusive", MILD, "other_suite")
    return PASSED if ratio_of(measures) is not None else _failed("bad_answer")


def judge_silence(*, rented: bool) -> Verdict:
    """No answer in time: worst while somebody rents the machine."""
    return Verdict("failed", UNREACHABLE_WHILE_RENTED if rented else MILD, "no_answer")


def judge_launch(*, confirmed: bool, reason: str | None) -> Verdict:
    """A launch that was confirmed, or that failed for *reason* (null: nobody confirmed it)."""
    if confirmed:
        return Verdict("passed", MILD, "started")
    if reason in RENTERS_FAULT:
        return Verdict("inconclusive", MILD, reason)
    return Verdict("failed", START_FAILED, reason or "launch_failed")


def _ping(result: str, measures: Measures, hardware: Hardware) -> Verdict:
    if result == "inconclusive":
        return _failed("driver_does_not_answer")
    gpus = measures.get("gpus")
    if gpus is not None and gpus != hardware.gpus:
        return _failed("gpu_missing")
    return PASSED


def _challenge(nonce: str, measures: Measures, hardware: Hardware) -> Verdict:
    """On all GPUs at once: eight that are one cannot each fill their memory."""
    if measures.get("gpus") != hardware.gpus:
        return _failed("gpu_missing")
    filled, elapsed = measures.get("filled_mib"), measures.get("elapsed_ms")
    if not isinstance(filled, int) or not isinstance(elapsed, int) or elapsed < 0:
        return _failed("bad_answer")
    stated = hardware.gpu_ram_gb * BYTES_PER_GB
    if 100 * filled * 2**20 < CHALLENGE_MEMORY_PERCENT * stated:
        return _failed("memory_missing")
    if not is_proven(nonce, hardware.gpus, measures):
        return _failed("not_computed")
    return PASSED


def _failed(reason: str) -> Verdict:
    return Verdict("failed", MILD, reason)


def scaling_of(measures: Measures) -> int:
    """Measured scaling efficiency of a benchmark, in millionths; a million where none was."""
    found = measures.get(SCALING)
    return found if isinstance(found, int) and 0 < found <= WHOLE_PPM else WHOLE_PPM
