"""GPU seconds sold twice: no GPU is held, or billed, for two in one second.

The database refuses two assignments of one GPU by itself; this looks again, at assignments and at
what was billed.
"""

from __future__ import annotations

from typing import Final

from ledger.services.ledger import Ledger
from ledger.services.reconciliation.difference import Compared, Difference

_HELD_TWICE: Final = """
SELECT lower(a.gpu), a.instance_id, b.instance_id,
       least(coalesce(upper(a.during), %(until)s), coalesce(upper(b.during), %(until)s), %(until)s)
       - greatest(lower(a.during), lower(b.during), %(start)s)
FROM gpu_assignments a JOIN gpu_assignments b ON a.gpu && b.gpu AND a.during && b.during
    AND (a.instance_id, a.assignment_no, a.slot) < (b.instance_id, b.assignment_no, b.slot)
WHERE a.during && int8range(%(start)s, %(until)s) AND b.during && int8range(%(start)s, %(until)s)
ORDER BY 1, 2, 3
"""
# A billed second is one that has a tick and lies in a GPU interval, and the interval in an
# assignment; so two intervals of one GPU that overlap would be billed twice.
_BILLED_TWICE: Final = """
WITH billed AS (
    SELECT g.instance_id, lower(a.gpu) AS gpu, greatest(g.start, %(start)s) AS start,
           least(coalesce(g.until, %(until)s), %(until)s) AS until
    FROM gpu_intervals g
    JOIN gpu_assignments a USING (instance_id, assignment_no)
    WHERE g.start < %(until)s AND (g.until IS NULL OR g.until > %(start)s)
)
SELECT a.gpu, a.instance_id, b.instance_id, least(a.until, b.until) - greatest(a.start, b.start)
FROM billed a JOIN billed b USING (gpu)
WHERE a.instance_id < b.instance_id AND a.start < b.until AND b.start < a.until
ORDER BY 1, 2, 3, greatest(a.start, b.start)
"""


def compare_exclusivity(ledger: Ledger, start: int, until: int) -> Compared:
    """Seconds of `[start, until)` in which a GPU was two instances' at once."""
    seconds: dict[tuple[str, str], int] = {}
    with ledger.reading() as connection:
        for kind, query in (("held_twice", _HELD_TWICE), ("billed_twice", _BILLED_TWICE)):
            for gpu, one, other, count in connection.execute(
                query, {"start": start, "until": until}
            ):
                key = kind, f"gpu-{gpu}/instance-{one}/instance-{other}"
                seconds[key] = seconds.get(key, 0) + count
    return Compared(
        [
            Difference(kind, about, 0, count, "seconds", "seconds in which both had it")
            for (kind, about), count in seconds.items()
        ]
    )
