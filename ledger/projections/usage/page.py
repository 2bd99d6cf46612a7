"""What one page of the log changes in the usage group."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ledger.projections.usage.anomalies import AnomalyPage

if TYPE_CHECKING:
    from ledger.projections.usage.state import Covered, MachineMeter, Meter, Segment


class Hour:
    """Increments of one page to one row of `usage_hours`."""

    __slots__ = (
        "booked", "charged", "down_charge", "down_fee", "down_quantity", "first_second",
        "gpu_charge", "gpu_fee", "gpu_quantity", "hour", "idle_charge", "idle_fee",
        "idle_quantity", "kept", "meter", "position", "segment",
        "storage_charge", "storage_fee", "storage_quantity", "until", "up_charge", "up_fee",
        "up_quantity",
    )  # fmt: skip

    def __init__(
        self, meter: Meter, segment: Segment, hour: int, booked: int, start: int, position: int
    ) -> None:
        """Begin with nothing posted."""
        self.meter = meter
        self.segment = segment
        self.hour = hour
        self.booked = booked
        self.first_second = start
        self.until = start
        self.position = position
        self.charged = self.kept = 0
        self.gpu_quantity = self.gpu_charge = self.gpu_fee = 0
        self.storage_quantity = self.storage_charge = self.storage_fee = 0
        self.up_quantity = self.up_charge = self.up_fee = 0
        self.down_quantity = self.down_charge = self.down_fee = 0
        self.idle_quantity = self.idle_charge = self.idle_fee = 0


class Page:
    """Everything that one page changes."""

    def __init__(self) -> None:
        """Begin with nothing changed."""
        self.reports = 0
        self.ticks = 0
        self.late_usage_seconds: int | None = None
        self.accounts: dict[int, tuple[int, int | None]] = {}
        self.machines: dict[int, MachineMeter] = {}
        self.meters: dict[int, Meter] = {}
        self.hours: dict[tuple[int, int, int, int], Hour] = {}
        self.current: dict[tuple[int, int, int], Hour] = {}
        """The row that postings of an hour go to now; dropped when a period closes."""
        self.anomalies = AnomalyPage()
        self.cuts: set[tuple[int, int]] = set()
        """(account, second): where promotional credit of an account begins or ends."""
        self.planned: dict[int, list[int]] = {}
        """Boundaries of periods that became known, per account."""
        self.unplanned: dict[int, int] = {}
        """Accounts whose boundaries later than a second are replaced."""
        self.promotions: dict[tuple[int, int], int] = {}
        """Charged to accounts with promotional credit, by (account, stretch)."""
        self.trims: list[tuple[Covered, int]] = []
        self.evictions: list[Meter] = []
        self.strangers: set[tuple[int, int]] = set()
        """(machine, instance) of ticks about an instance that never lived on that machine."""
