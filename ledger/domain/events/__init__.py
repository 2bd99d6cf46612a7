"""The catalogue: every fact the log can hold, under the wire name it keeps for ever.

A fact is an immutable struct with a tag such as ``instance.started.v1``, never a class path.
Unknown fields are refused, so replay drops no data in silence. A changed shape gets a new version
here; the old class is `Retired`, says in `upcast` what it means today, and keeps a test on its old
bytes.

Amounts are nanos, rates nanos per unit (`marketplace.md` §1), instants whole UTC seconds named
`…_at` or `…_from`. Names, addresses, secrets and launch texts are never in a fact, only a reference
into the vault and a keyed hash.
"""

from __future__ import annotations

from typing import Final

from ledger.domain.events.accounts import (
    AccountFact,
    AccountOpened,
    ApiKeyCreated,
    ApiKeyRevoked,
    SubjectErased,
)
from ledger.domain.events.adjustments import (
    AccountAdjusted,
    AdjustedAgainst,
    AdjustedBook,
    AdjustmentFact,
    DebtBook,
    DebtWrittenOff,
)
from ledger.domain.events.base import (
    ContractKind,
    Fact,
    NoticeCode,
    RentalKind,
    Retired,
    Role,
    StopReason,
    WaitReason,
)
from ledger.domain.events.budgets import (
    BudgetFact,
    BudgetPercent,
    BudgetReached,
    BudgetRemoved,
    BudgetSet,
)
from ledger.domain.events.contracts import (
    ContractExtended,
    ContractFact,
    PriceIncreaseAccepted,
    PriceIncreaseProposed,
    PriceIncreaseRejected,
    ReservationBought,
    ReservationEnded,
)
from ledger.domain.events.credit import (
    AccountExhausted,
    AccountRestored,
    CreditFact,
    CreditRefunded,
    CreditTransferred,
    DepositSettled,
    ExhaustionFact,
    HoldCaptured,
    HoldExpired,
    HoldPlaced,
    HoldReleased,
    StorageDebtCleared,
    StorageDebtNoticed,
)
from ledger.domain.events.disputes import (
    ApprovalGiven,
    ChargePosted,
    ChargeReversed,
    CorrectionFact,
    CreditNoteIssued,
    CreditNoteLine,
    DisputeAnswered,
    DisputeClaim,
    DisputedSeconds,
    DisputeFact,
    DisputeOpened,
    DisputeOutcome,
    DisputeQuestioned,
    DisputeReason,
    DisputeResolved,
    EarningsFact,
    EarningsHeld,
    EarningsReleased,
    FilingRestricted,
    MeterName,
    ReceivableRecovered,
    StatementLine,
    TestimonyFact,
    UsageStatementIssued,
    WitnessRecorded,
    WitnessVerdict,
)
from ledger.domain.events.documents import (
    DocumentFact,
    InvoiceIssued,
    InvoiceLine,
    NoticeIssued,
    PeriodClosed,
)
from ledger.domain.events.instances import (
    BidChanged,
    Coming,
    GpusAssigned,
    InstanceBootChanged,
    InstanceCreated,
    InstanceCreatedV1,
    InstanceDestroyed,
    InstanceDiskLost,
    InstanceDisplaced,
    InstanceExpired,
    InstanceLabelled,
    InstanceRan,
    InstanceRebooted,
    InstanceRunning,
    InstanceStartRequested,
    InstanceStopped,
    LifeFact,
    ObservationIgnored,
    Terms,
    TermsTookEffect,
    UsageGapRecorded,
)
from ledger.domain.events.machines import (
    AgentEpochOpened,
    AgentEquivocated,
    EnrolmentOffered,
    MachineBooted,
    MachineCameOnline,
    MachineEnrolled,
    MachineFact,
    MachineKeyRevoked,
    MachineListed,
    MachineRegistered,
    MachineSpec,
    MachineUnlisted,
    MachineWentOffline,
)
from ledger.domain.events.mail import (
    MailDeadLettered,
    MailFact,
    MailRequeued,
    MailSettingsSet,
    MailStopped,
)
from ledger.domain.events.offers import (
    AllocatedGpus,
    AllocationDecided,
    GpuHealthChanged,
    OfferFact,
    OfferOpened,
    SmallestBid,
)
from ledger.domain.events.operations import (
    CompensationCredited,
    MachineRemoved,
    MaintenanceAnnounced,
    MaintenanceCancelled,
    MaintenanceCategory,
    MaintenanceEnded,
    MaintenanceFact,
    MaintenanceRentalsStopped,
    MaintenanceScheduled,
    MaintenanceStarted,
    OperationFact,
    OutageDetected,
    OutageEnded,
    OutageSettled,
    ProbeLocationRegistered,
    ProbeLocationRemoved,
)
from ledger.domain.events.platform import (
    Compensation,
    PolicyAdopted,
    PolicyAdoptedV1,
)
from ledger.domain.events.reconciliation import (
    FindingCorrected,
    FindingExplained,
    FindingOpened,
    FindingReopened,
    FindingState,
    FindingUnit,
    JobName,
    ReconciliationCompleted,
    ReconciliationFact,
)
from ledger.domain.events.safety import (
    BalanceAlert,
    BalanceAlertCleared,
    BalanceAlertRaised,
    CleanupAnnounced,
    CleanupDestroyed,
    CleanupPolicySet,
    CleanupScope,
    CleanupWithdrawn,
    DayCapReached,
    IdleNoticed,
    IdlePolicySet,
    LeaseEnd,
    LeaseEnded,
    LeaseSet,
    SafetyFact,
    SpendCapsSet,
    TopUpConsented,
    TopUpFailed,
    TopUpRequested,
    TopUpRevoked,
    TopUpSettled,
    TopUpSwitchedOff,
)
from ledger.domain.events.trust import (
    BenchmarkRecorded,
    CertificationRecorded,
    CertificationWithdrawn,
    CheckFact,
    CheckIssued,
    CheckJudged,
    CheckReclassified,
    EvidenceLevel,
    FindingFact,
    FoundDifference,
    GpuCleared,
    GpuSuspected,
    InventoryReported,
    JudgedBy,
    MachineCompared,
    MachineDeverified,
    MachineLocated,
    MachineProbed,
    MachineVerified,
    MissedBar,
    SecureTierChanged,
    StandingFact,
    TrustFact,
    VerificationReset,
)
from ledger.domain.events.usage import (
    UsageFact,
    UsageForked,
    UsageRejected,
)
from ledger.domain.events.volumes import (
    VolumeAttached,
    VolumeCreated,
    VolumeDestroyed,
    VolumeExpired,
    VolumeFact,
    VolumeLifeFact,
    VolumeOfferClosed,
    VolumeOffered,
)
from ledger.domain.events.webhooks import (
    WebhookChanged,
    WebhookDeadLettered,
    WebhookFact,
    WebhookRegistered,
    WebhookRemoved,
    WebhookReplayed,
    WebhookSecretRotated,
    WebhookTested,
)

__all__ = [
    "USAGE_REPORTED",
    "AccountAdjusted",
    "AccountExhausted",
    "AccountFact",
    "AccountOpened",
    "AccountRestored",
    "AdjustedAgainst",
    "AdjustedBook",
    "AdjustmentFact",
    "AgentEpochOpened",
    "AgentEquivocated",
    "AllocatedGpus",
    "AllocationDecided",
    "AnyFact",
    "ApiKeyCreated",
    "ApiKeyRevoked",
    "ApprovalGiven",
    "BalanceAlert",
    "BalanceAlertCleared",
    "BalanceAlertRaised",
    "BenchmarkRecorded",
    "BidChanged",
    "BudgetFact",
    "BudgetPercent",
    "BudgetReached",
    "BudgetRemoved",
    "BudgetSet",
    "CertificationRecorded",
    "CertificationWithdrawn",
    "ChargePosted",
    "ChargeReversed",
    "CheckFact",
    "CheckIssued",
    "CheckJudged",
    "CheckReclassified",
    "CleanupAnnounced",
    "CleanupDestroyed",
    "CleanupPolicySet",
    "CleanupScope",
    "CleanupWithdrawn",
    "Coming",
    "Compensation",
    "CompensationCredited",
    "ContractExtended",
    "ContractFact",
    "ContractKind",
    "CorrectionFact",
    "CreditFact",
    "CreditNoteIssued",
    "CreditNoteLine",
    "CreditRefunded",
    "CreditTransferred",
    "DayCapReached",
    "DebtBook",
    "DebtWrittenOff",
    "DepositSettled",
    "DisputeAnswered",
    "DisputeClaim",
    "DisputeFact",
    "DisputeOpened",
    "DisputeOutcome",
    "DisputeQuestioned",
    "DisputeReason",
    "DisputeResolved",
    "DisputedSeconds",
    "DocumentFact",
    "EarningsFact",
    "EarningsHeld",
    "EarningsReleased",
    "EnrolmentOffered",
    "EvidenceLevel",
    "ExhaustionFact",
    "Fact",
    "FilingRestricted",
    "FindingCorrected",
    "FindingExplained",
    "FindingFact",
    "FindingOpened",
    "FindingReopened",
    "FindingState",
    "FindingUnit",
    "FoundDifference",
    "GpuCleared",
    "GpuHealthChanged",
    "GpuSuspected",
    "GpusAssigned",
    "HoldCaptured",
    "HoldExpired",
    "HoldPlaced",
    "HoldReleased",
    "IdleNoticed",
    "IdlePolicySet",
    "InstanceBootChanged",
    "InstanceCreated",
    "InstanceCreatedV1",
    "InstanceDestroyed",
    "InstanceDiskLost",
    "InstanceDisplaced",
    "InstanceExpired",
    "InstanceFact",
    "InstanceLabelled",
    "InstanceRan",
    "InstanceRebooted",
    "InstanceRunning",
    "InstanceStartRequested",
    "InstanceStopped",
    "InventoryReported",
    "InvoiceIssued",
    "InvoiceLine",
    "JobName",
    "JudgedBy",
    "LeaseEnd",
    "LeaseEnded",
    "LeaseSet",
    "LifeFact",
    "MachineBooted",
    "MachineCameOnline",
    "MachineCompared",
    "MachineDeverified",
    "MachineEnrolled",
    "MachineFact",
    "MachineKeyRevoked",
    "MachineListed",
    "MachineLocated",
    "MachineProbed",
    "MachineRegistered",
    "MachineRemoved",
    "MachineSpec",
    "MachineUnlisted",
    "MachineVerified",
    "MachineWentOffline",
    "MailDeadLettered",
    "MailFact",
    "MailRequeued",
    "MailSettingsSet",
    "MailStopped",
    "MaintenanceAnnounced",
    "MaintenanceCancelled",
    "MaintenanceCategory",
    "MaintenanceEnded",
    "MaintenanceFact",
    "MaintenanceRentalsStopped",
    "MaintenanceScheduled",
    "MaintenanceStarted",
    "MeterName",
    "MissedBar",
    "NoticeCode",
    "NoticeIssued",
    "ObservationIgnored",
    "OfferFact",
    "OfferOpened",
    "OperationFact",
    "OutageDetected",
    "OutageEnded",
    "OutageSettled",
    "PeriodClosed",
    "PolicyAdopted",
    "PolicyAdoptedV1",
    "PriceIncreaseAccepted",
    "PriceIncreaseProposed",
    "PriceIncreaseRejected",
    "ProbeLocationRegistered",
    "ProbeLocationRemoved",
    "ReceivableRecovered",
    "ReconciliationCompleted",
    "ReconciliationFact",
    "RentalKind",
    "ReservationBought",
    "ReservationEnded",
    "Retired",
    "RetiredFact",
    "Role",
    "SafetyFact",
    "SecureTierChanged",
    "SmallestBid",
    "SpendCapsSet",
    "StandingFact",
    "StatementLine",
    "StopReason",
    "StorageDebtCleared",
    "StorageDebtNoticed",
    "SubjectErased",
    "Terms",
    "TermsTookEffect",
    "TestimonyFact",
    "TopUpConsented",
    "TopUpFailed",
    "TopUpRequested",
    "TopUpRevoked",
    "TopUpSettled",
    "TopUpSwitchedOff",
    "TrustFact",
    "UsageFact",
    "UsageForked",
    "UsageGapRecorded",
    "UsageRejected",
    "UsageStatementIssued",
    "VerificationReset",
    "VolumeAttached",
    "VolumeCreated",
    "VolumeDestroyed",
    "VolumeExpired",
    "VolumeFact",
    "VolumeLifeFact",
    "VolumeOfferClosed",
    "VolumeOffered",
    "WaitReason",
    "WebhookChanged",
    "WebhookDeadLettered",
    "WebhookFact",
    "WebhookRegistered",
    "WebhookRemoved",
    "WebhookReplayed",
    "WebhookSecretRotated",
    "WebhookTested",
    "WitnessRecorded",
    "WitnessVerdict",
    "second_of",
    "topic_of",
]

USAGE_REPORTED: Final = "usage.reported.v1"
"""Topic of a report.

Its state is the signed msgpack body itself, the one state that is not JSON.
"""

InstanceFact = LifeFact | ContractFact
"""Everything in the stream of an instance."""
AnyFact = (
    PolicyAdopted
    | AccountFact
    | CreditFact
    | ExhaustionFact
    | DocumentFact
    | DisputeFact
    | EarningsFact
    | TestimonyFact
    | CorrectionFact
    | MachineFact
    | OfferFact
    | LifeFact
    | ContractFact
    | OperationFact
    | SafetyFact
    | TrustFact
    | UsageFact
    | VolumeFact
    | WebhookFact
    | ReconciliationFact
    | AdjustmentFact
    | MailFact
    | BudgetFact
)
RetiredFact = PolicyAdoptedV1 | InstanceCreatedV1
"""Shapes that only the past wrote."""


def topic_of(fact: Fact | Retired) -> str:
    """The wire name of a fact."""
    return str(type(fact).__struct_config__.tag)


def second_of(fact: Fact) -> int:
    """When the fact happened.

    The instant that its last field names, by convention of this catalogue.
    """
    return int(getattr(fact, fact.__struct_fields__[-1]))
