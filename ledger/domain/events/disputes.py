"""Statements, disputes and corrections (`marketplace.md` §15), and what witnesses said (§18).

Nothing is edited: every fact here stands beside what it corrects. Each names its cause (the log
position of the event that caused it; none when a person simply asked), the version of the rules,
who acted (`account-7`, or `platform`), when it applies (`effective_at`) and, last, when it was
done; the log adds when that was recorded. Words of people lie in the vault: a fact holds the
reference and the keyed hash.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from ledger.domain.events.base import ContractKind, Fact

MeterName = Literal["gpu", "storage", "up", "down", "reserved_idle"]
DisputeReason = Literal[
    "not_running", "gpu_missing", "wrong_gpu", "degraded", "no_network", "overbilled_bytes",
    "billed_after_stop", "storage_after_destroy", "price_mismatch", "duplicate", "host_offline",
]  # fmt: skip
DisputeOutcome = Literal["upheld", "partial", "rejected", "withdrawn", "expired"]
WitnessVerdict = Literal["hold", "no_network", "anomaly"]


class StatementLine(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What one instance consumed on one meter in one rate segment, on one UTC day.

    Its JSON, fields in this order, is a leaf of the statement's tree. `charge` names the charge it
    is part of (`instance-7.gpu.2`: instance, meter, terms). A late line adds what was accepted
    after the statement of its day (`used_day`, first second of the day).
    """

    charge: str
    instance_id: int
    meter: MeterName
    kind: ContractKind
    segment_from: int
    rate: int
    quantity: int
    amount: int
    fee: int
    late: bool
    used_day: int
    used_from: int
    used_until: int


class UsageStatementIssued(Fact, tag="usage_statement.issued.v1"):
    """What an account consumed on a UTC day, under a hash that proves every line.

    `cause` is the place in the log up to which usage was counted.
    """

    account_id: int
    period_from: int
    period_until: int
    lines: list[StatementLine]
    total: int
    merkle_root: str
    cause: int
    policy_version: int
    actor: str
    effective_at: int
    issued_at: int


class DisputedSeconds(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Seconds `[start, until)`."""

    start: int
    until: int


class DisputeClaim(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The part of one charge that is disputed: its seconds, its quantity, and what that cost.

    `charged` and `charged_fee` are the whole charge and fee at filing, `fee` the platform's part of
    `amount`. Seconds that another dispute claims are left out.
    """

    charge: str
    meter: MeterName
    seconds: list[DisputedSeconds]
    quantity: int
    amount: int
    fee: int
    charged: int
    charged_fee: int


class DisputeOpened(Fact, tag="dispute.opened.v1"):
    """A renter, or the platform on the word of witnesses, says that seconds were billed wrongly.

    The evidence is fixed here: `as_of` is the end of the log at filing. Silence of the host until
    `answer_due_at` upholds.
    """

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
    evidence: list[str]
    statement: str | None
    statement_hash: str | None
    as_of: int
    answer_due_at: int
    cause: int | None
    policy_version: int
    actor: str
    effective_at: int
    opened_at: int


class DisputeAnswered(Fact, tag="dispute.answered.v1"):
    """The host explained itself, or the renter answered what it was asked."""

    dispute_id: int
    by: Literal["host", "renter"]
    evidence: list[str]
    statement: str | None
    statement_hash: str | None
    cause: int | None
    policy_version: int
    actor: str
    effective_at: int
    answered_at: int


class DisputeQuestioned(Fact, tag="dispute.questioned.v1"):
    """The renter was asked something; without an answer by `answer_due_at` the dispute expires."""

    dispute_id: int
    statement: str | None
    statement_hash: str | None
    answer_due_at: int
    cause: int | None
    policy_version: int
    actor: str
    effective_at: int
    questioned_at: int


class DisputeResolved(Fact, tag="dispute.resolved.v1"):
    """The end of a dispute; `amount` goes back to the renter. `expired` counts as rejected."""

    dispute_id: int
    outcome: DisputeOutcome
    amount: int
    rule_id: str
    decided_by: str
    cause: int | None
    policy_version: int
    actor: str
    effective_at: int
    resolved_at: int


class EarningsHeld(Fact, tag="earnings.held.v1"):
    """The host's share of what is disputed is set aside.

    It comes from what the host is owed, and as far as that was paid out, from what it now owes.
    """

    dispute_id: int
    host_id: int
    from_payable: int
    from_receivable: int
    cause: int | None
    policy_version: int
    actor: str
    effective_at: int
    held_at: int


class EarningsReleased(Fact, tag="earnings.released.v1"):
    """A dispute is over: what was set aside goes back to where it came from.

    What the renter is given back is taken by the reversals that follow.
    """

    dispute_id: int
    host_id: int
    to_payable: int
    to_receivable: int
    cause: int | None
    policy_version: int
    actor: str
    effective_at: int
    released_at: int


class ReceivableRecovered(Fact, tag="receivable.recovered.v1"):
    """A line in the next payout: what a host owes is taken from what it is owed."""

    host_id: int
    amount: int
    cause: int | None
    policy_version: int
    actor: str
    effective_at: int
    recovered_at: int


class ChargeReversed(Fact, tag="charge.reversed.v1"):
    """Part of a charge goes back to the renter: `fee` from the platform, the rest from the host.

    `reverses` is a charge (`instance-7.gpu.2`) or an earlier replacement (`correction-3`);
    `charged` and `charged_fee` are that charge as it stood, `quantity` the seconds or bytes that it
    is for (0: an amount only). `depth` counts corrections of corrections. It posts in the open
    period and names the old one.
    """

    correction_id: int
    reverses: str
    account_id: int
    host_id: int
    instance_id: int
    meter: MeterName
    quantity: int
    amount: int
    fee: int
    from_payable: int
    from_receivable: int
    charged: int
    charged_fee: int
    depth: int
    dispute_id: int | None
    reason: str
    period_from: int
    approved_by: str | None
    cause: int | None
    policy_version: int
    actor: str
    effective_at: int
    reversed_at: int


class ChargePosted(Fact, tag="charge.posted.v1"):
    """A replacement: what the renter should have been charged. It can be corrected in its turn."""

    correction_id: int
    corrects: str
    account_id: int
    host_id: int
    instance_id: int
    meter: MeterName
    amount: int
    fee: int
    depth: int
    reason: str
    period_from: int
    approved_by: str | None
    cause: int | None
    policy_version: int
    actor: str
    effective_at: int
    posted_at: int


class CreditNoteLine(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a credit note gives back on one line of the document it refers to."""

    document_line: int
    correction_id: int
    amount: int


class CreditNoteIssued(Fact, tag="credit_note.issued.v1"):
    """A document that corrects one usage invoice, which stays as it was.

    The money moved with the reversals that its lines name. A note over the whole remainder that
    says so (`voids`) ends the invoice.
    """

    account_id: int
    number: str
    document: str
    total: int
    lines: list[CreditNoteLine]
    reason: str
    voids: bool
    approved_by: str | None
    cause: int | None
    policy_version: int
    actor: str
    effective_at: int
    issued_at: int


class WitnessRecorded(Fact, tag="witness.recorded.v1"):
    """Seconds `[start, until)` in which the witnesses of an instance contradict each other.

    `renter` is its heartbeat, `probe` what `probes_up` and `probes_down` places agreed on. Usual
    minutes are not recorded.
    """

    instance_id: int
    machine_id: int
    account_id: int
    start: int
    until: int
    renter: Literal["alive", "silent", "not_installed"]
    probe: Literal["up", "down", "inconclusive"]
    probes_up: int
    probes_down: int
    verdict: WitnessVerdict
    cause: int | None
    policy_version: int
    actor: str
    effective_at: int
    recorded_at: int


class FilingRestricted(Fact, tag="filing.restricted.v1"):
    """An account had too many disputes rejected in 30 days; more need an admin's approval."""

    account_id: int
    rejected: int
    cause: int | None
    policy_version: int
    actor: str
    effective_at: int
    restricted_at: int


class ApprovalGiven(Fact, tag="approval.given.v1"):
    """A second person agrees to what *subject* names; the next command on that subject uses it."""

    subject: str
    cause: int | None
    policy_version: int
    actor: str
    effective_at: int
    given_at: int


DisputeFact = DisputeOpened | DisputeAnswered | DisputeQuestioned | DisputeResolved
"""The life of one dispute: the stream `dispute-<id>` holds these."""
EarningsFact = EarningsHeld | EarningsReleased | ReceivableRecovered
"""What a dispute does to a host's money."""
TestimonyFact = WitnessRecorded | FilingRestricted | ApprovalGiven
"""What probes, heartbeats and second people say."""
CorrectionFact = UsageStatementIssued | ChargeReversed | ChargePosted | CreditNoteIssued
"""What was charged, as it was stated and as it was corrected."""
