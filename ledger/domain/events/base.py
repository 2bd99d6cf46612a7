"""What every fact is, and the words that several kinds of facts use."""

from __future__ import annotations

from typing import Literal, dataclass_transform

import msgspec

RentalKind = Literal["on_demand", "reserved", "interruptible"]
ContractKind = Literal[RentalKind, "volume"]
"""How an instance is rented; or a volume, which is a disk without an instance."""
StopReason = Literal[
    "renter", "admin", "container_exit", "launch_failed", "host_fault", "lost_by_host",
    "zero_balance", "spend_cap", "idle_policy", "lease",
]  # fmt: skip
WaitReason = Literal["new", "no_capacity", "outbid", "on_demand_arrival"]
Role = Literal["renter", "host", "auditor", "admin"]
NoticeCode = Literal[
    "low_balance_24h", "low_balance_4h", "low_balance_1h", "top_up_soon", "top_up_failed",
    "top_up_off", "exhausted", "storage_debt", "spend_cap", "outbid", "resumed", "created",
    "started", "stopped", "destroyed", "offline", "online", "error", "disk_high", "disk_critical",
    "idle", "maintenance", "expiring", "expired", "extended", "price_increase", "lost_disk",
    "deverified", "verified", "secure_lapsed", "cleanup_soon", "disputed", "dispute_resolved",
    "budget_80", "budget_100", "receipt", "invoice", "credit_note", "self_billing",
    "payment_failed", "chargeback", "payout_paid", "payout_failed",
]  # fmt: skip


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(msgspec.field,))
class Retired(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="type"
):
    """A shape that is no longer written; what the log holds of it is read through `upcast`."""


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(msgspec.field,))
class Fact(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="type"):
    """Something that happened."""
