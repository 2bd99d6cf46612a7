"""Trust in machines and their hosts: what was found of them, health checks, papers, verification.

Each finding carries its evidence level (`marketplace.md` §11.2). It never rises by age.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from ledger.domain.checks import CheckKind, JudgedKind
from ledger.domain.events.base import Fact
from ledger.domain.hardware import Inventory
from ledger.domain.reliability import Result
from ledger.domain.reliability import Severity as FailureSeverity
from ledger.domain.verification import CertificationKind
from ledger.domain.verification import Severity as DifferenceSeverity

EvidenceLevel = Literal[
    "self_reported", "agent_reported", "kernel_corroborated", "platform_challenged",
    "hardware_attested",
]  # fmt: skip
JudgedBy = Literal["platform", "admin"]


# --- what was found -------------------------------------------------------------------------------


class InventoryReported(Fact, tag="machine.inventory_reported.v1"):
    """What the machine is made of, where that is news; without counters that always move."""

    machine_id: int
    inventory: Inventory
    evidence: EvidenceLevel
    reported_at: int


class MachineProbed(Fact, tag="machine.probed.v1"):
    """What the platform's probes found from outside; null: not measured this time.

    `under_load`: the last inventory was taken while the GPUs worked.
    """

    machine_id: int
    up_mbps: int | None
    down_mbps: int | None
    open_ports: int | None
    country: str | None
    under_load: bool
    evidence: EvidenceLevel
    probed_at: int


class MachineLocated(Fact, tag="machine.located.v1"):
    """The host says in which country the machine stands: two letters, ISO 3166-1."""

    machine_id: int
    country: str
    evidence: EvidenceLevel
    located_at: int


class FoundDifference(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A field in which a machine is not what was stated of it."""

    field: str
    stated: str
    found: str
    severity: DifferenceSeverity


class MissedBar(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A minimum of this market that a machine does not meet; `found` null: not measured."""

    bar: str
    needed: str
    found: str | None


class MachineCompared(Fact, tag="machine.compared.v1"):
    """What is stated, what was found, and the minimum bars were laid side by side, with news.

    `missed_to_list` are bars that the machine is known to miss: it is not rented anew. What was not
    measured prevents verification only.
    """

    machine_id: int
    differences: list[FoundDifference]
    missed_to_list: list[MissedBar]
    missed_to_verify: list[MissedBar]
    compared_at: int


# --- checks ---------------------------------------------------------------------------------------


class CheckIssued(Fact, tag="check.issued.v1"):
    """The check of one slot: asked at the random second *at*, answered up to *deadline*."""

    machine_id: int
    slot: int
    kind: CheckKind
    at: int
    nonce: str
    deadline: int
    issued_at: int


class CheckJudged(Fact, tag="check.judged.v1"):
    """What a check, a start or an incident is worth.

    *at* is its own second, in its slot. Excluded: the slot lies in approved maintenance.
    """

    machine_id: int
    slot: int
    kind: JudgedKind
    at: int
    result: Result
    severity: FailureSeverity
    reason: str
    excluded: bool
    instance_id: int | None
    judged_at: int


class CheckReclassified(Fact, tag="check.reclassified.v1"):
    """Every check of a slot has this result from now on, for all time; it was judged otherwise."""

    machine_id: int
    slot: int
    result: Result
    severity: FailureSeverity
    reason: str
    dispute_id: int | None
    reclassified_at: int


class BenchmarkRecorded(Fact, tag="benchmark.recorded.v1"):
    """A run of the suite that the platform issued: whole MFLOP/s and MB/s of one GPU.

    `scaling_ppm`: speed of all GPUs together over their number times the speed of one, millionths.
    """

    machine_id: int
    slot: int
    suite: str
    measures: dict[str, int]
    scaling_ppm: int
    evidence: EvidenceLevel
    recorded_at: int


class GpuSuspected(Fact, tag="gpu.suspected.v1"):
    """Nobody may rent this GPU anew before a challenge passes; who holds it keeps it."""

    machine_id: int
    gpu_uuid: str
    reason: str
    suspected_at: int


class GpuCleared(Fact, tag="gpu.cleared.v1"):
    """A challenge of all GPUs passed, this one among them: it can be rented again."""

    machine_id: int
    gpu_uuid: str
    slot: int
    cleared_at: int


class GpuRestored(Fact, tag="gpu.restored.v1"):
    """An admin vouches for a GPU that was lost or suspect: it can be rented again, unproven."""

    machine_id: int
    gpu_uuid: str
    reason: str
    restored_at: int


# --- what follows ---------------------------------------------------------------------------------


class MachineVerified(Fact, tag="machine.verified.v1"):
    """The machine is what it says and has shown it; or an admin vouches for it."""

    machine_id: int
    by: JudgedBy
    reason: str
    verified_at: int


class MachineDeverified(Fact, tag="machine.deverified.v1"):
    """The machine is not what it says, or failed; reserved renters may leave without penalty."""

    machine_id: int
    by: JudgedBy
    reason: str
    deverified_at: int


class VerificationReset(Fact, tag="machine.verification_reset.v1"):
    """A deverified machine may earn its verification again."""

    machine_id: int
    by: JudgedBy
    reason: str
    reset_at: int


class CertificationRecorded(Fact, tag="certification.recorded.v1"):
    """A paper of a host, valid in `[valid_from, valid_to)`; null: for good.

    `number` names the certificate at its issuer; of a person's identity check it is the number of
    the check, never of a passport. `evidence_hash`: SHA-256 of the document, which lies elsewhere.
    """

    host_id: int
    certification_no: int
    kind: CertificationKind
    number: str
    issuer: str
    valid_from: int
    valid_to: int | None
    evidence_hash: str
    recorded_at: int


class CertificationWithdrawn(Fact, tag="certification.withdrawn.v1"):
    """A paper does not count any more, before its own end."""

    host_id: int
    certification_no: int
    reason: str
    withdrawn_at: int


class SecureTierChanged(Fact, tag="secure_tier.changed.v1"):
    """These machines of a host are in the secure tier now, or are not any more."""

    host_id: int
    machine_ids: list[int]
    secure: bool
    changed_at: int


CheckFact = (
    CheckIssued
    | CheckJudged
    | CheckReclassified
    | BenchmarkRecorded
    | GpuSuspected
    | GpuCleared
    | GpuRestored
)
FindingFact = InventoryReported | MachineProbed | MachineLocated | MachineCompared
StandingFact = (
    MachineVerified
    | MachineDeverified
    | VerificationReset
    | CertificationRecorded
    | CertificationWithdrawn
    | SecureTierChanged
)
TrustFact = CheckFact | FindingFact | StandingFact
