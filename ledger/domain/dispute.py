"""A dispute: who may say what until when, and what silence decides (`marketplace.md` §15).

`evolve` folds facts and never judges; `decide` turns a wish into facts. What goes back of a charge,
and from whom, is the arithmetic of `ledger.domain.reversal`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, Literal, NamedTuple, assert_never, dataclass_transform

import msgspec

from ledger.domain.events import (
    DisputeAnswered,
    DisputeClaim,
    DisputedSeconds,
    DisputeFact,
    DisputeOpened,
    DisputeOutcome,
    DisputeQuestioned,
    DisputeReason,
    DisputeResolved,
)
from ledger.domain.money import SECONDS_PER_DAY, SECONDS_PER_HOUR, format_dollars
from ledger.errors import CorruptHistoryError, RejectedError

FILING_SECONDS: Final = 7 * SECONDS_PER_DAY
"""How long after its statement a charge can be disputed."""
HOST_ANSWER_SECONDS: Final = 72 * SECONDS_PER_HOUR
RENTER_ANSWER_SECONDS: Final = 7 * SECONDS_PER_DAY
REJECTED_MAX: Final = 5
REJECTED_WINDOW_SECONDS: Final = 30 * SECONDS_PER_DAY

PLATFORM: Final = "platform"
_METERS_OF: Final[dict[DisputeReason, tuple[str, ...]]] = {
    "not_running": ("gpu",),
    "gpu_missing": ("gpu",),
    "wrong_gpu": ("gpu",),
    "degraded": ("gpu",),
    "no_network": ("gpu",),
    "billed_after_stop": ("gpu",),
    "overbilled_bytes": ("up", "down"),
    "storage_after_destroy": ("storage",),
    "host_offline": ("gpu", "storage", "up", "down"),
    "price_mismatch": ("gpu", "storage", "up", "down", "reserved_idle"),
    "duplicate": ("gpu", "storage", "up", "down"),
}


FAULTS_OF_THE_MACHINE: Final[frozenset[DisputeReason]] = frozenset({
    "not_running", "gpu_missing", "wrong_gpu", "degraded", "no_network", "host_offline",
})  # fmt: skip
"""Upheld, these fail the machine's checks of that time; the others are faults of the bill."""


def meters_of(reason: DisputeReason) -> tuple[str, ...]:
    """The meters that a reason calls into question."""
    return _METERS_OF[reason]


def is_restricted(rejected: int) -> bool:
    """True when so many disputes rejected within 30 days make filing need an admin."""
    return rejected > REJECTED_MAX


# --- state ---------------------------------------------------------------------------------------


class Dispute(msgspec.Struct, frozen=True, kw_only=True):
    """A dispute as its facts say."""

    dispute_id: int
    account_id: int
    host_id: int
    instance_id: int
    machine_id: int
    by: Literal["renter", "platform"]
    reason: DisputeReason
    seconds: list[DisputedSeconds]
    claims: list[DisputeClaim]
    claimed: int
    effective_at: int
    host_due_at: int | None
    question_due_at: int | None = None
    outcome: DisputeOutcome | None = None
    amount: int = 0


def evolve(dispute: Dispute | None, fact: DisputeFact) -> Dispute:
    """Fold one fact into the state; history is never refused."""
    if isinstance(fact, DisputeOpened):
        return Dispute(
            dispute_id=fact.dispute_id,
            account_id=fact.account_id,
            host_id=fact.host_id,
            instance_id=fact.instance_id,
            machine_id=fact.machine_id,
            by=fact.by,
            reason=fact.reason,
            seconds=fact.seconds,
            claims=fact.claims,
            claimed=fact.claimed,
            effective_at=fact.effective_at,
            host_due_at=fact.answer_due_at,
        )
    if dispute is None:
        message = f"dispute {fact.dispute_id} begins with {type(fact).__name__}"
        raise CorruptHistoryError("corrupt_history", message)
    match fact:
        case DisputeAnswered(by="host"):
            return msgspec.structs.replace(dispute, host_due_at=None)
        case DisputeAnswered():
            return msgspec.structs.replace(dispute, question_due_at=None)
        case DisputeQuestioned():
            return msgspec.structs.replace(dispute, question_due_at=fact.answer_due_at)
        case DisputeResolved():
            return msgspec.structs.replace(
                dispute,
                outcome=fact.outcome,
                amount=fact.amount,
                host_due_at=None,
                question_due_at=None,
            )
        case _:
            assert_never(fact)


def fold(history: Iterable[DisputeFact]) -> Dispute:
    """The state after *history*, which begins with the opening."""
    dispute = None
    for fact in history:
        dispute = evolve(dispute, fact)
    assert dispute is not None, "an empty history"
    return dispute


# --- wishes --------------------------------------------------------------------------------------


@dataclass_transform(frozen_default=True, field_specifiers=(msgspec.field,))
class _Command(msgspec.Struct, frozen=True):
    """A wish concerning one dispute."""


class Answer(_Command):
    """The host explains itself, or the renter answers a question."""

    by: Literal["host", "renter"]
    evidence: tuple[str, ...] = ()
    statement: str | None = None
    statement_hash: str | None = None


class Question(_Command):
    """The renter is asked something."""

    statement: str | None = None
    statement_hash: str | None = None


Decided = Literal["upheld", "partial", "rejected", "expired"]


class Resolve(_Command):
    """Somebody decides; `amount` goes back where the outcome gives anything back.

    `reversible`: what of the claims can still go back.
    """

    outcome: Decided
    amount: int | None
    rule_id: str
    reversible: int


class Withdraw(_Command):
    """The renter lets it be."""


class LetPass(_Command):
    """Time went by: somebody's silence may decide."""

    reversible: int


DisputeCommand = Answer | Question | Resolve | Withdraw | LetPass


class Authority(NamedTuple):
    """In whose name, under which version of the rules, and because of which event."""

    actor: str
    policy_version: int
    cause: int | None = None


def decide(
    dispute: Dispute, command: DisputeCommand, by: Authority, now: int
) -> Sequence[DisputeAnswered | DisputeQuestioned | DisputeResolved]:
    """Turn a wish into facts at second *now*; empty when it was already so.

    Raises:
        RejectedError: `dispute_closed` after the end or too late, `no_open_question`,
            `invalid_amount`, `over_reversal`.
    """
    match command:
        case LetPass():
            return _silence(dispute, command.reversible, by, now)
        case Withdraw():
            if dispute.outcome == "withdrawn":
                return []
            _require_open(dispute)
            return [_resolved(dispute, "withdrawn", 0, "withdrawn", by, now)]
        case Resolve():
            if dispute.outcome == command.outcome and command.amount in {None, dispute.amount}:
                return []
            _require_open(dispute)
            amount = _amount(command)
            return [_resolved(dispute, command.outcome, amount, command.rule_id, by, now)]
        case Question():
            _require_open(dispute)
            return [
                DisputeQuestioned(
                    dispute_id=dispute.dispute_id,
                    statement=command.statement,
                    statement_hash=command.statement_hash,
                    answer_due_at=now + RENTER_ANSWER_SECONDS,
                    cause=by.cause,
                    policy_version=by.policy_version,
                    actor=by.actor,
                    effective_at=dispute.effective_at,
                    questioned_at=now,
                )
            ]
        case Answer():
            return _answer(dispute, command, by, now)
        case _:
            assert_never(command)


def _answer(dispute: Dispute, command: Answer, by: Authority, now: int) -> list[DisputeAnswered]:
    _require_open(dispute)
    due = dispute.host_due_at if command.by == "host" else dispute.question_due_at
    if due is None:
        if command.by == "host":
            return []  # It answered before; the first explanation stands.
        raise RejectedError("no_open_question", "nothing was asked in this dispute")
    if now >= due:
        raise RejectedError("dispute_closed", "the time to answer is over")
    return [
        DisputeAnswered(
            dispute_id=dispute.dispute_id,
            by=command.by,
            evidence=list(command.evidence),
            statement=command.statement,
            statement_hash=command.statement_hash,
            cause=by.cause,
            policy_version=by.policy_version,
            actor=by.actor,
            effective_at=dispute.effective_at,
            answered_at=now,
        )
    ]


def _silence(dispute: Dispute, reversible: int, by: Authority, now: int) -> list[DisputeResolved]:
    """What the first deadline that passed decides."""
    if dispute.outcome is not None:
        return []
    deadlines = [(dispute.host_due_at, "host"), (dispute.question_due_at, "renter")]
    passed = sorted((due, who) for due, who in deadlines if due is not None and due <= now)
    if not passed:
        return []
    if passed[0][1] == "renter":
        return [_resolved(dispute, "expired", 0, "question_unanswered", by, now)]
    rule = "witness_down" if dispute.by == "platform" else "host_silence"
    return [_resolved(dispute, "upheld", reversible, rule, by, now)]


def _amount(command: Resolve) -> int:
    """What goes back under this outcome."""
    if command.outcome in {"rejected", "expired"}:
        if command.amount:
            raise RejectedError("invalid_amount", "this outcome gives nothing back")
        return 0
    if command.amount is None:
        if command.outcome == "partial":
            raise RejectedError("invalid_amount", "a partial outcome names its amount")
        return command.reversible
    if command.amount < 1:
        raise RejectedError("invalid_amount", "what goes back is at least one nano")
    if command.amount > command.reversible:
        left = format_dollars(command.reversible)
        message = f"at most {left} of what is disputed can go back"
        raise RejectedError("over_reversal", message, left=left)
    return command.amount


def _resolved(
    dispute: Dispute, outcome: DisputeOutcome, amount: int, rule_id: str, by: Authority, now: int
) -> DisputeResolved:
    return DisputeResolved(
        dispute_id=dispute.dispute_id,
        outcome=outcome,
        amount=amount,
        rule_id=rule_id,
        decided_by=by.actor,
        cause=by.cause,
        policy_version=by.policy_version,
        actor=by.actor,
        effective_at=dispute.effective_at,
        resolved_at=now,
    )


def _require_open(dispute: Dispute) -> None:
    if dispute.outcome is not None:
        message = f"dispute {dispute.dispute_id} is {dispute.outcome}, and that is final"
        raise RejectedError("dispute_closed", message)
