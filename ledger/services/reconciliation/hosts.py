"""What hosts show against what we bill: instances, and reports that never came."""

from __future__ import annotations

from typing import Final

import msgspec

from ledger.domain.hardware import Inventory
from ledger.meters.intervals import Range, overlap, subtract
from ledger.projections.contracts import CONTRACTS
from ledger.services.ledger import Ledger
from ledger.services.reconciliation.difference import Compared, Difference
from ledger.store.database import Connection

TOLERATED_SECONDS: Final = 60
"""How long a day's difference may be before it is a finding: a start and a stop take time."""
_KINDS: Final = {
    "unknown_instance": "the host shows an instance that it does not have",
    "after_destroy": "the host still shows an instance that was destroyed",
    "after_stop": "the host still runs an instance that was stopped",
    "before_start": "the host runs an instance that was not started",
}
_SHOWN: Final = """
SELECT machine_id, instance_id, code, sum(least(until, %(until)s) - greatest(start, %(start)s))
FROM anomalies WHERE code = ANY(%(codes)s) AND start < %(until)s AND until > %(start)s
GROUP BY 1, 2, 3 ORDER BY 1, 2, 3
"""
_BILLABLE: Final = """
SELECT m.machine_id, g.instance_id, greatest(g.start, %(start)s),
       least(coalesce(g.until, %(until)s), %(until)s)
FROM gpu_intervals g JOIN metered_instances m USING (instance_id)
WHERE g.start < %(until)s AND (g.until IS NULL OR g.until > %(start)s) ORDER BY 1, 2, 3
"""
_COVERED: Final = """
SELECT {key}, start, until FROM {table} WHERE start < %(until)s AND until > %(start)s
ORDER BY 1, 2
"""
_LIVES: Final = f"""
SELECT machine_id, greatest(min(created_at), %(start)s),
       least(max(coalesce(destroyed_at, %(until)s)), %(until)s)
FROM {CONTRACTS} c WHERE created_at < %(until)s
  AND (destroyed_at IS NULL OR destroyed_at > %(start)s) GROUP BY machine_id ORDER BY machine_id
"""  # noqa: S608 - constants


def compare_instances(ledger: Ledger, start: int, until: int) -> Compared:
    """Instances that hosts showed in `[start, until)` and we do not bill, and the other way round.

    Only what is folded counts; what is reported late is compared when the job runs again.
    """
    window = {"start": start, "until": until}
    with ledger.reading() as connection:
        found = [
            Difference(
                code,
                f"machine-{machine}/instance-{instance}",
                0,
                int(seconds),
                "seconds",
                _KINDS[code],
            )
            for machine, instance, code, seconds in connection.execute(
                _SHOWN, {**window, "codes": list(_KINDS)}
            )
            if code == "unknown_instance" or seconds > TOLERATED_SECONDS
        ]
        found += _not_shown(connection, window)
        found += _inventories(connection)
    return Compared(found)


def _not_shown(connection: Connection, window: dict[str, int]) -> list[Difference]:
    """Instances that ran by our books while their machine reported, and not of them."""
    attested = _ranges(connection, "machine_id", "machine_coverage", window)
    ticked = _ranges(connection, "instance_id", "coverage", window)
    seconds: dict[tuple[int, int], tuple[int, int]] = {}
    for machine, instance, first, last in connection.execute(_BILLABLE, window):
        reported = overlap(attested.get(machine, []), first, last)
        silent = sum(
            gap.end - gap.start
            for part in reported
            for gap in subtract(part.start, part.end, overlap(ticked.get(instance, []), *part))
        )
        before = seconds.get((machine, instance), (0, 0))
        seconds[machine, instance] = (
            before[0] + sum(part.end - part.start for part in reported),
            before[1] + silent,
        )
    detail = "seconds that should have ticks, seconds that have them"
    return [
        Difference(
            "not_shown", f"machine-{machine}/instance-{instance}",
            all_of_them, all_of_them - silent, "seconds", detail,
        )
        for (machine, instance), (all_of_them, silent) in seconds.items()
        if silent > TOLERATED_SECONDS
    ]  # fmt: skip


def _inventories(connection: Connection) -> list[Difference]:
    """Machines whose agent reports other GPUs than those that are registered."""
    found = []
    known: dict[int, set[str]] = {}
    for machine, gpu in connection.execute("SELECT machine_id, gpu_uuid FROM gpus"):
        known.setdefault(machine, set()).add(gpu)
    rows = connection.execute(
        "SELECT machine_id, inventory FROM machine_trust WHERE inventory IS NOT NULL"
        " ORDER BY machine_id"
    )
    for machine, text in rows:
        reported = {gpu.uuid for gpu in msgspec.json.decode(text, type=Inventory).gpus}
        ours = known.get(machine, set())
        if reported and reported != ours:
            detail = (
                f"{len(ours - reported)} registered GPUs missing, {len(reported - ours)} unknown"
            )
            found.append(
                Difference(
                    "inventory", f"machine-{machine}", len(ours), len(reported), "rows", detail
                )
            )
    return found


def compare_reports(ledger: Ledger, start: int, until: int) -> Compared:
    """Seconds of `[start, until)` that machines with contracts did not attest.

    A machine that is down, or silent, attests nothing: nothing was billed, and it is a finding all
    the same, for its host and its renters may ask.
    """
    window = {"start": start, "until": min(until, ledger.clock())}
    found = []
    with ledger.reading() as connection:
        attested = _ranges(connection, "machine_id", "machine_coverage", window)
        for machine, first, last in connection.execute(_LIVES, window):
            taken = overlap(attested.get(machine, []), first, last)
            missing = sum(gap.end - gap.start for gap in subtract(first, last, taken))
            if missing > TOLERATED_SECONDS:
                detail = "seconds with contracts, seconds that were attested"
                found.append(
                    Difference(
                        "reports_missing", f"machine-{machine}", last - first,
                        last - first - missing, "seconds", detail,
                    )
                )  # fmt: skip
    return Compared(found)


def _ranges(
    connection: Connection, key: str, table: str, window: dict[str, int]
) -> dict[int, list[Range]]:
    found: dict[int, list[Range]] = {}
    for number, start, until in connection.execute(_COVERED.format(key=key, table=table), window):
        found.setdefault(number, []).append(Range(start, until))
    return found
