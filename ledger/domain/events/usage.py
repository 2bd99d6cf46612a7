"""Reports that could not be billed, kept in their place in the stream."""

from __future__ import annotations

from ledger.domain.events.base import Fact


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


UsageFact = UsageRejected | UsageForked
