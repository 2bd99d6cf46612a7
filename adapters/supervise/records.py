"""As much of the server's answers as the supervisor reads; amounts are decimal texts."""

from __future__ import annotations

import msgspec

from ledger.domain.ids import parse_rfc3339
from ledger.domain.money import parse_dollars


class Instance(msgspec.Struct, frozen=True, kw_only=True):
    """An instance of the job."""

    instance_id: int
    machine_id: int
    kind: str
    status: str
    reason: str
    bid: str | None
    dph_total: str
    storage_rate_per_hour: str
    created_at: str
    waiting_since: str | None
    offline_since: str | None
    destroyed_at: str | None
    gpu_charge: str
    storage_charge: str
    up_charge: str
    down_charge: str

    @property
    def is_alive(self) -> bool:
        """True until it is destroyed: its disk is billed."""
        return self.destroyed_at is None

    @property
    def has_gpus(self) -> bool:
        """True while it runs or loads; its machine may be silent all the same."""
        return self.status in {"running", "loading"}

    @property
    def idle_since(self) -> int | None:
        """Since when it does nothing: it waits for GPUs, or its machine is silent."""
        since = self.offline_since if self.has_gpus else self.waiting_since
        return None if since is None else parse_rfc3339(since)

    @property
    def cost(self) -> int:
        """Nanos that it cost so far, as metered."""
        charges = (self.gpu_charge, self.storage_charge, self.up_charge, self.down_charge)
        return sum(parse_dollars(one) for one in charges)

    @property
    def shown(self) -> str:
        """Its state in words."""
        state = f"{self.status} ({self.reason})" if self.reason else self.status
        return f"{state}, but its machine is offline" if self.offline_since else state


class Offer(msgspec.Struct, frozen=True, kw_only=True):
    """An offer that the search found."""

    offer_id: int
    machine_id: int
    num_gpus: int
    gpu_name: str
    min_bid: str | None
    storage_total: str
    dph_total: str | None


class Charge(msgspec.Struct, frozen=True, kw_only=True):
    """One item of one rate segment of an instance."""

    item: str
    amount: str
    used_until: str
