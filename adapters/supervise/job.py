"""What is to be kept alive: what to search for, what to pay, what to start, when to move on."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping
from typing import Any, Final, Literal

import msgspec

from adapters.supervise.records import Offer
from ledger.domain.money import format_dollars, parse_dollars
from ledger.errors import RejectedError

BASIS_POINTS: Final = 10_000
_MINUTE: Final = 60

Filters = Mapping[str, Mapping[str, Any]]


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """One job; its label is its name: everything rented under it is taken for this job's.

    Args:
        label: Finds the job's instances again, also after this program died.
        filters: Field → operator → value, as `POST /v1/offers/search` takes them.
        order: Which offer comes first; the server's default when empty.
        kind: Bid, or rent on demand.
        disk_gb: Size of the disk.
        max_price: Nanos per hour in total, the disk included: never more.
        bid: Nanos per hour to bid; without it, the smallest that runs and `margin_bp` above.
        margin_bp: How far above the smallest bid, in basis points.
        budget: Nanos after which the job ends, for everything ever rented under its label.
        stuck_seconds: How long it may wait for GPUs before another offer is rented.
        keep_disk: Stop an instance that was left instead of destroying it.
        verified_only: Only verified machines.
        launch: Image, environment and commands.
    """

    label: str
    filters: Filters = {}
    order: tuple[tuple[str, Literal["asc", "desc"]], ...] = ()
    kind: Literal["interruptible", "on_demand"] = "interruptible"
    disk_gb: int = 10
    max_price: int
    bid: int | None = None
    margin_bp: int = 1_000
    budget: int | None = None
    stuck_seconds: float = 600.0
    keep_disk: bool = False
    verified_only: bool = True
    launch: Mapping[str, Any] = {}

    def search(self, avoid: Collection[int], limit: int) -> dict[str, Any]:
        """The search for the next best offer, on none of the machines *avoid*."""
        filters = {name: dict(conditions) for name, conditions in self.filters.items()}
        ceiling = filters.setdefault("dph_total", {})
        given = ceiling.get("lte")
        lowest = self.max_price if given is None else min(_nanos(given), self.max_price)
        ceiling["lte"] = format_dollars(lowest)
        disk = filters.setdefault("disk_space", {})
        disk["gte"] = max(self.disk_gb, _number("disk_space", disk.get("gte", 0)))
        if avoid:
            machines = filters.setdefault("machine_id", {})
            machines["notin"] = [*machines.get("notin", []), *sorted(avoid)]
        body: dict[str, Any] = {
            "kind": self.kind,
            "disk_gb": self.disk_gb,
            "filters": filters,
            "limit": limit,
            "verified_only": self.verified_only,
        }
        if self.order:
            body["order"] = [list(one) for one in self.order]
        return body

    def bid_for(self, offer: Offer) -> int | None:
        """What to bid for an offer, in nanos; None when what it takes is above the ceiling."""
        if offer.min_bid is None:
            return None
        smallest, storage = _nanos(offer.min_bid), _nanos(offer.storage_total)
        most = self.max_price - storage
        if self.bid is not None:
            return self.bid if smallest <= self.bid <= most else None
        if smallest > most:
            return None
        return min(smallest + smallest * self.margin_bp // BASIS_POINTS, most)

    def order_of(self, offer: Offer) -> dict[str, Any] | None:
        """The create request for an offer; None when it costs too much."""
        body: dict[str, Any] = {
            "offer_id": offer.offer_id,
            "disk_gb": self.disk_gb,
            "label": self.label,
        }
        if self.launch:
            body["launch"] = dict(self.launch)
        if self.kind == "interruptible":
            bid = self.bid_for(offer)
            if bid is None:
                return None
            body["bid"] = format_dollars(bid)
        elif offer.dph_total is None or _nanos(offer.dph_total) > self.max_price:
            return None
        return body

    def create_key(self, last_instance: int, second: float, attempt: int) -> str:
        """The Idempotency-Key of a create: the same for everybody who takes the same next step.

        The step is named by the newest instance under the label. A program that was killed while it
        waited for an answer, and is started again within the minute, uses the same keys: it cannot
        rent beside a request that the server is still about to carry out. A minute later that
        request is done, and what it made is seen; a refusal that the key remembers is forgotten.
        """
        name = hashlib.sha256(self.label.encode()).hexdigest()[:32]
        return f"supervise-{name}-after-{last_instance}-{int(second) // _MINUTE}-{attempt}"


def _nanos(dollars: object) -> int:
    return parse_dollars(str(dollars), code="invalid_args")


def _number(name: str, given: object) -> float:
    try:
        return float(str(given))
    except ValueError:
        raise RejectedError("invalid_args", f"`{name}`: {given!r} is no number") from None
