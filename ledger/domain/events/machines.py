"""Machines, their keys, boots and listings."""

from __future__ import annotations

import msgspec

from ledger.domain.events.base import Fact
from ledger.domain.hardware import Inventory


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
