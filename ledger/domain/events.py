"""The catalogue: every fact the log can hold, under the wire name it keeps for ever.

A fact is an immutable struct with a tag such as ``instance.started.v1``, never a class path.
Unknown fields are refused, so replay drops no data in silence. A changed shape gets a new version
here; the old class stays in `Fact` with one case in `upcast` and a test on its old bytes.

Amounts are nanos, rates nanos per unit (`marketplace.md` §1), instants whole UTC seconds named
`…_at` or `…_from`. Names, addresses, secrets and launch texts are never in a fact, only a reference
into the vault and a keyed hash.
"""

from __future__ import annotations

from typing import Final, Literal, dataclass_transform

import msgspec

from ledger.domain.hardware import Inventory

RentalKind = Literal["on_demand", "reserved", "interruptible"]
StopReason = Literal[
    "renter", "admin", "container_exit", "launch_failed", "host_fault", "lost_by_host",
    "zero_balance", "spend_cap", "idle_policy", "lease",
]  # fmt: skip
WaitReason = Literal["new", "no_capacity", "outbid", "on_demand_arrival"]
Role = Literal["renter", "host", "auditor", "admin"]
NoticeCode = Literal[
    "low_balance_24h", "low_balance_4h", "low_balance_1h", "exhausted", "storage_debt", "outbid",
    "resumed", "offline", "online", "expired", "lost_disk",
]  # fmt: skip


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(msgspec.field,))
class Fact(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="type"):
    """Something that happened."""


# --- the platform ---------------------------------------------------------------------------------


class PolicyAdopted(Fact, tag="policy.adopted.v1"):
    """The platform's rules from here on.

    What applies a rule is judged by the last one adopted before it.
    """

    version: int
    fee_bp: int
    late_usage_seconds: int
    admission: bool
    offline_after_seconds: int | None
    adopted_at: int


# --- accounts and credit --------------------------------------------------------------------------


class AccountOpened(Fact, tag="account.opened.v1"):
    """An account exists.

    Its name lies in the vault under *subject*; *name_hash* finds it without telling it.
    """

    account_id: int
    subject: str
    name_hash: str
    currency: str
    opened_at: int


class SubjectErased(Fact, tag="subject.erased.v1"):
    """The key of a person's data was destroyed; the books are unaffected."""

    account_id: int
    subject: str
    erased_at: int


class ApiKeyCreated(Fact, tag="api_key.created.v1"):
    """A key may act for an account; its secret is nowhere in the log."""

    key_id: str
    account_id: int
    role: Role
    expires_at: int | None
    created_at: int


class ApiKeyRevoked(Fact, tag="api_key.revoked.v1"):
    """A key is dead from here on."""

    key_id: str
    account_id: int
    revoked_at: int


class DepositSettled(Fact, tag="deposit.settled.v1"):
    """Money arrived and became spendable credit."""

    account_id: int
    deposit_id: str
    amount: int
    source: str
    settled_at: int


class CreditRefunded(Fact, tag="credit.refunded.v1"):
    """Unspent credit of one deposit went back to its payer."""

    account_id: int
    refund_id: str
    deposit_id: str
    amount: int
    refunded_at: int


class CreditTransferred(Fact, tag="credit.transferred.v1"):
    """Credit moved between two accounts; irreversible."""

    transfer_id: str
    from_account_id: int
    to_account_id: int
    amount: int
    transferred_at: int


class HoldPlaced(Fact, tag="hold.placed.v1"):
    """Credit is set aside until *expires_at*."""

    account_id: int
    hold_id: str
    amount: int
    expires_at: int
    placed_at: int


class HoldCaptured(Fact, tag="hold.captured.v1"):
    """A hold was spent; what it did not need is free again."""

    account_id: int
    hold_id: str
    amount: int
    captured_at: int


class HoldReleased(Fact, tag="hold.released.v1"):
    """A hold was given back unspent."""

    account_id: int
    hold_id: str
    released_at: int


class HoldExpired(Fact, tag="hold.expired.v1"):
    """A forgotten hold ended by itself at its instant."""

    account_id: int
    hold_id: str
    expired_at: int


class AccountExhausted(Fact, tag="account.exhausted.v1"):
    """Credit ran dry at *dry_at*; every instance of the account was stopped at *stopped_at*.

    *debt_limit* is how far storage may go on below zero (`marketplace.md` §13.4), fixed here.
    """

    account_id: int
    available: int
    debt_limit: int
    dry_at: int
    stopped_at: int


class AccountRestored(Fact, tag="account.restored.v1"):
    """Credit is above zero again; nothing starts by itself."""

    account_id: int
    restored_at: int


class StorageDebtNoticed(Fact, tag="storage_debt.noticed.v1"):
    """Notice number 1, 2 or 3 that the debt reached its limit.

    Right after the third the instances go.
    """

    account_id: int
    number: int
    debt: int
    noticed_at: int


class StorageDebtCleared(Fact, tag="storage_debt.cleared.v1"):
    """The debt fell below its limit; a later breach starts a new sequence."""

    account_id: int
    cleared_at: int


class PeriodClosed(Fact, tag="period.closed.v1"):
    """Usage accepted after this fact goes on a later invoice of the account."""

    account_id: int
    period_from: int
    period_until: int
    closed_at: int


class InvoiceLine(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What one instance consumed on one meter in one rate segment.

    `quantity` is seconds (gpu, storage) or bytes; `rate` is nanos per hour, per GB-month or per GB.
    A late line names the seconds `[used_from, used_until)` and the period in which they lie.
    """

    instance_id: int
    meter: Literal["gpu", "storage", "up", "down"]
    segment_from: int
    kind: RentalKind
    rate: int
    quantity: int
    amount: int
    late: bool
    period_from: int
    used_from: int
    used_until: int


class InvoiceIssued(Fact, tag="invoice.issued.v1"):
    """A usage invoice: never changed afterwards. `opening + deposits + other - total = closing`."""

    account_id: int
    number: str
    period_from: int
    period_until: int
    opening: int
    movements: int
    total: int
    closing: int
    paid: int
    lines: list[InvoiceLine]
    issued_at: int


class NoticeIssued(Fact, tag="notice.issued.v1"):
    """Somebody has to know something."""

    account_id: int
    code: NoticeCode
    about: str
    issued_at: int


# --- machines -------------------------------------------------------------------------------------


class MachineSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A machine as registered.

    Sizes in GB, links in Mbit/s; cores, RAM and disk of the whole machine.
    """

    gpus: int
    gpu_name: str
    gpu_ram_gb: int
    cpu_cores: int
    ram_gb: int
    disk_gb: int
    up_mbps: int
    down_mbps: int


class MachineRegistered(Fact, tag="machine.registered.v1"):
    """A host announced a machine; it cannot attest before it is enrolled."""

    machine_id: int
    host_id: int
    spec: MachineSpec
    registered_at: int


class EnrolmentOffered(Fact, tag="machine.enrolment_offered.v1"):
    """A one-time token was made; only its hash is kept, outside the log."""

    machine_id: int
    expires_at: int
    offered_at: int


class MachineEnrolled(Fact, tag="machine.enrolled.v1"):
    """The machine holds the private half of an Ed25519 key. `gpu_uuids` are in slot order."""

    machine_id: int
    key_id: str
    public_key: str
    gpu_uuids: list[str]
    inventory: Inventory | None
    enrolled_at: int


class MachineKeyRevoked(Fact, tag="machine.key_revoked.v1"):
    """Reports under this key that arrive later are refused."""

    machine_id: int
    key_id: str
    reason: str
    revoked_at: int


class MachineListed(Fact, tag="machine.listed.v1"):
    """The machine is offered at these prices.

    An earlier listing is replaced, contracts keep theirs.
    """

    machine_id: int
    listing_id: int
    gpu_rate_per_gpu: int
    storage_rate: int
    up_rate: int
    down_rate: int
    min_bid_per_gpu: int | None
    min_gpus: int
    until: int | None
    reserved_discount_max_bp: int
    listed_at: int


class MachineUnlisted(Fact, tag="machine.unlisted.v1"):
    """No new rentals; contracts go on."""

    machine_id: int
    unlisted_at: int


class MachineBooted(Fact, tag="machine.booted.v1"):
    """The machine reports under a new boot id."""

    machine_id: int
    boot_id: str
    booted_at: int


class AgentEpochOpened(Fact, tag="agent.epoch_opened.v1"):
    """The machine began a new numbering of reports; the old one stays open for late rows."""

    machine_id: int
    epoch: str
    opened_at: int


class AgentEquivocated(Fact, tag="agent.equivocated.v1"):
    """A second body under a report key: the first stands, both are kept."""

    machine_id: int
    epoch: str
    seq: int
    first_hash: str
    second_hash: str
    second_body: bytes
    second_signature: bytes
    equivocated_at: int


class MachineWentOffline(Fact, tag="machine.went_offline.v1"):
    """No report for longer than the policy allows.

    *offline_at* is the last report plus that time.
    """

    machine_id: int
    last_report_at: int
    offline_at: int


class MachineCameOnline(Fact, tag="machine.came_online.v1"):
    """Reports arrive again."""

    machine_id: int
    online_at: int


# --- instances ------------------------------------------------------------------------------------


class Terms(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a second costs: rates for the whole slice, frozen when the contract was made.

    gpu: nanos per hour; storage: nanos per GB-month; up, down: nanos per GB; fee in basis points.
    """

    kind: RentalKind
    gpu_rate: int
    storage_rate: int
    up_rate: int
    down_rate: int
    fee_bp: int


class InstanceCreated(Fact, tag="instance.created.v1"):
    """A contract exists, and its storage meter runs from *created_at*."""

    instance_id: int
    account_id: int
    machine_id: int
    host_id: int
    listing_id: int
    gpus: int
    disk_bytes: int
    terms: Terms
    until: int | None
    label: str | None
    launch: str | None
    launch_hash: str | None
    policy_version: int
    reason: WaitReason
    created_at: int


class InstanceStartRequested(Fact, tag="instance.start_requested.v1"):
    """The instance wants to run again and waits for its GPUs."""

    instance_id: int
    requested_at: int


class GpusAssigned(Fact, tag="gpus.assigned.v1"):
    """The server granted GPUs.

    Nothing is billed for them before the host confirms the container.
    """

    instance_id: int
    assignment_no: int
    slots: list[int]
    gpu_uuids: list[str]
    assigned_at: int


class InstanceRunning(Fact, tag="instance.running.v1"):
    """The host confirmed the container of this assignment; the GPU meter runs from *gpu_from*."""

    instance_id: int
    assignment_no: int
    gpu_from: int
    observed_at: int
    confirmed_at: int


class InstanceRan(Fact, tag="instance.ran.v1"):
    """A confirmation that came after its assignment had ended.

    The interval opened and closed at once.
    """

    instance_id: int
    assignment_no: int
    gpu_from: int
    gpu_until: int
    confirmed_at: int


class InstanceBootChanged(Fact, tag="instance.boot_changed.v1"):
    """The machine booted anew: the GPU interval closed at *gpu_until*, the assignment is kept."""

    instance_id: int
    boot_id: str
    gpu_until: int | None
    changed_at: int


class InstanceRebooted(Fact, tag="instance.rebooted.v1"):
    """The renter asked for a restart in place; GPUs and priority are kept."""

    instance_id: int
    rebooted_at: int


class InstanceStopped(Fact, tag="instance.stopped.v1"):
    """The GPU meter ended at *stopped_at* and the GPUs are free.

    The disk is kept and its meter goes on.
    """

    instance_id: int
    reason: StopReason
    exit_code: int | None
    stopped_at: int
    decided_at: int


class InstanceDisplaced(Fact, tag="instance.displaced.v1"):
    """A higher claim took the GPUs; the instance resumes by itself."""

    instance_id: int
    reason: WaitReason
    displaced_at: int


class InstanceExpired(Fact, tag="instance.expired.v1"):
    """The contract reached its end; it cannot start again, and its storage meter goes on."""

    instance_id: int
    expired_at: int


class InstanceDiskLost(Fact, tag="instance.disk_lost.v1"):
    """The host lost the disk: no storage is billed until the next GPUs are granted."""

    instance_id: int
    lost_at: int


class InstanceDestroyed(Fact, tag="instance.destroyed.v1"):
    """Every meter ended; final."""

    instance_id: int
    by: Literal["renter", "admin", "host", "storage_debt"]
    reason: str | None
    destroyed_at: int


class InstanceLabelled(Fact, tag="instance.labelled.v1"):
    """The renter gave the instance another label."""

    instance_id: int
    label: str | None
    labelled_at: int


class ObservationIgnored(Fact, tag="observation.ignored.v1"):
    """A host reported something that cannot happen.

    It changed nothing and is kept as an anomaly.
    """

    instance_id: int
    machine_id: int
    assignment_no: int
    state: str
    why: str
    observed_at: int
    ignored_at: int


class UsageGapRecorded(Fact, tag="usage.gap_recorded.v1"):
    """Seconds of a GPU interval that no timely tick can cover any more; forfeited."""

    instance_id: int
    machine_id: int
    gap_from: int
    gap_until: int
    recorded_at: int


# --- usage that could not be billed, kept in its place in the stream ------------------------------


class UsageRejected(Fact, tag="usage_rejected.v1"):
    """A correctly signed report with a fault: its bytes and why they bill nothing."""

    machine_id: int
    epoch: str
    seq: int
    code: str
    reason: str
    body: bytes
    rejected_at: int


class UsageForked(Fact, tag="usage_forked.v1"):
    """A correctly signed report whose `prev` is not the hash of its predecessor.

    It is flagged, not billed.
    """

    machine_id: int
    epoch: str
    seq: int
    expected_prev: str
    body: bytes
    forked_at: int


USAGE_REPORTED: Final = "usage.reported.v1"
"""Topic of a report.

Its state is the signed msgpack body itself, the one state that is not JSON.
"""

CreditFact = (
    DepositSettled
    | CreditRefunded
    | CreditTransferred
    | HoldPlaced
    | HoldCaptured
    | HoldReleased
    | HoldExpired
)
AccountFact = (
    AccountOpened
    | SubjectErased
    | ApiKeyCreated
    | ApiKeyRevoked
    | CreditFact
    | AccountExhausted
    | AccountRestored
    | StorageDebtNoticed
    | StorageDebtCleared
    | PeriodClosed
    | InvoiceIssued
    | NoticeIssued
)
MachineFact = (
    MachineRegistered
    | EnrolmentOffered
    | MachineEnrolled
    | MachineKeyRevoked
    | MachineListed
    | MachineUnlisted
    | MachineBooted
    | AgentEpochOpened
    | AgentEquivocated
    | MachineWentOffline
    | MachineCameOnline
)
InstanceFact = (
    InstanceCreated
    | InstanceStartRequested
    | GpusAssigned
    | InstanceRunning
    | InstanceRan
    | InstanceBootChanged
    | InstanceRebooted
    | InstanceStopped
    | InstanceDisplaced
    | InstanceExpired
    | InstanceDiskLost
    | InstanceDestroyed
    | InstanceLabelled
    | ObservationIgnored
    | UsageGapRecorded
)
UsageFact = UsageRejected | UsageForked
AnyFact = PolicyAdopted | AccountFact | MachineFact | InstanceFact | UsageFact


def topic_of(fact: Fact) -> str:
    """The wire name of a fact."""
    return str(type(fact).__struct_config__.tag)


def second_of(fact: Fact) -> int:
    """When the fact happened.

    The instant that its last field names, by convention of this catalogue.
    """
    return int(getattr(fact, fact.__struct_fields__[-1]))
