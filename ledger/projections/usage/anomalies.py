"""Seconds that were not billed, and why: ranges per code, of which neighbours merge."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ledger.projections.usage.state import FAR_FUTURE

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ledger.store.database import Connection


class AnomalyPage:
    """Anomaly ranges that a page touches; neighbours of one code merge, here as in the table."""

    def __init__(self, connection: Connection | None = None) -> None:
        """Read what is stored through *connection*, when it is needed."""
        self._connection = connection
        self._keys: dict[tuple[int, int, str], _Anomalies] = {}

    def add(
        self,
        machine_id: int,
        instance_id: int,
        code: str,
        start: int,
        end: int,
        amount: int,
        position: int,
    ) -> None:
        """Note that seconds `[start, end)` were not billed, for this reason."""
        key = (machine_id, instance_id, code)
        ranges = self._keys.get(key)
        if ranges is None:
            ranges = self._keys[key] = _Anomalies()
        self._load(key, ranges, start, end)
        ranges.add(start, end, amount, position)

    def take(
        self, machine_id: int, instance_id: int, code: str, start: int, end: int
    ) -> list[tuple[int, int, int]]:
        """Remove the parts of `[start, end)` that were noted; returns (start, end, position)."""
        key = (machine_id, instance_id, code)
        ranges = self._keys.setdefault(key, _Anomalies())
        self._load(key, ranges, start, end)
        return ranges.take(start, end)

    def _load(self, key: tuple[int, int, str], ranges: _Anomalies, start: int, end: int) -> None:
        if ranges.loaded_from <= start and ranges.loaded_until >= end:
            return
        low, high = min(start, ranges.loaded_from), max(end, ranges.loaded_until)
        assert self._connection is not None
        for row in self._connection.execute(
            "SELECT start, until, amount, position FROM anomalies WHERE machine_id = %s"
            " AND instance_id = %s AND code = %s AND until >= %s AND start <= %s",
            [*key, low, high],
        ):
            if row[0] not in ranges.seen:
                ranges.seen.add(row[0])
                ranges.rows.append([row[0], row[1], int(row[2]), row[3]])
        ranges.loaded_from, ranges.loaded_until = low, high

    def written(self) -> Iterable[tuple[tuple[int, int, str], _Anomalies]]:
        """Every key that was touched."""
        return self._keys.items()


class _Anomalies:
    """Ranges of one (machine, instance, code), with what the table holds of them."""

    __slots__ = ("loaded_from", "loaded_until", "rows", "seen")

    def __init__(self) -> None:
        self.loaded_from = FAR_FUTURE
        self.loaded_until = -1
        self.rows: list[list[int]] = []
        self.seen: set[int] = set()

    def add(self, start: int, end: int, amount: int, position: int) -> None:
        touching = [row for row in self.rows if row[0] <= end and row[1] >= start]
        self.rows = [row for row in self.rows if not (row[0] <= end and row[1] >= start)]
        for row in touching:
            start, end = min(start, row[0]), max(end, row[1])
            amount += row[2]
            position = min(position, row[3])
        self.rows.append([start, end, amount, position])

    def take(self, start: int, end: int) -> list[tuple[int, int, int]]:
        taken = []
        kept = []
        for low, high, amount, position in self.rows:
            a, b = max(low, start), min(high, end)
            if a >= b:
                kept.append([low, high, amount, position])
                continue
            taken.append((a, b, position))
            if low < a:
                kept.append([low, a, amount, position])
            if b < high:
                kept.append([b, high, amount, position])
        self.rows = kept
        return sorted(taken)
