"""The ceiling that a machine's physical link puts on billed bytes (`marketplace.md` §5.4)."""

from __future__ import annotations

from collections.abc import Sequence


def within_ceiling(peaks: Sequence[int], link: int) -> bool:
    """True when no second of the report can exceed *link* bytes per second.

    Judged by each column's peak.
    """
    return sum(peaks) <= link


def capped(per_instance: Sequence[int], link: int) -> list[int]:
    """Bytes that count for each instance in one second of one machine, one direction.

    Args:
        per_instance: Attested bytes of each instance in this second.
        link: The machine's physical link in bytes per second.

    Returns:
        At most *link* each; when the sum still exceeds the link, ``floor(bytes · link / sum)``
        each.
    """
    single = [min(count, link) for count in per_instance]
    total = sum(single)
    if total <= link:
        return single
    return [count * link // total for count in single]
