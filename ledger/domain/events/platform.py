"""The platform's rules."""

from __future__ import annotations

from typing import Literal

from ledger.domain.events.base import Fact, Retired

Compensation = Literal["none", "sla-1"]


class PolicyAdopted(Fact, tag="policy.adopted.v2"):
    """The platform's rules from here on.

    What applies a rule is judged by the last one adopted before it. `displacement_margin` is in
    nanos per hour (`marketplace.md` §8.1, rule 4).
    """

    version: int
    fee_bp: int
    late_usage_seconds: int
    admission: bool
    offline_after_seconds: int | None
    admit_waiting_bids: bool
    displacement_margin: int
    compensation: Compensation
    secure_requires_iso: bool
    adopted_at: int


class PolicyAdoptedV1(Retired, tag="policy.adopted.v1"):
    """The rules before there were bids, compensation and tiers."""

    version: int
    fee_bp: int
    late_usage_seconds: int
    admission: bool
    offline_after_seconds: int | None
    adopted_at: int

    def upcast(self) -> PolicyAdopted:
        """The same rules, with the defaults of what they did not name."""
        return PolicyAdopted(
            version=self.version,
            fee_bp=self.fee_bp,
            late_usage_seconds=self.late_usage_seconds,
            admission=self.admission,
            offline_after_seconds=self.offline_after_seconds,
            admit_waiting_bids=False,
            displacement_margin=0,
            compensation="none",
            secure_requires_iso=False,
            adopted_at=self.adopted_at,
        )
