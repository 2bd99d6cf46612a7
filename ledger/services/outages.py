"""Outages: what probe locations saw last, and the quorum that decides (`marketplace.md` §16, §18).

A single look is no fact: a location's last word on a machine is kept in `probe_results` and
overwritten by the next. Facts are the decisions of the quorum. A word counts for three minutes; a
location that falls silent says nothing, and an outage that nobody confirms any more is over.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Final, Literal, NamedTuple

from ledger.domain.downtime import quorum
from ledger.domain.events import (
    Fact,
    OutageDetected,
    OutageEnded,
    ProbeLocationRegistered,
    ProbeLocationRemoved,
)
from ledger.domain.ids import machine_stream
from ledger.errors import NotFoundError, RejectedError
from ledger.services.ledger import Unit
from ledger.store.database import Connection

PROBE_EVERY_SECONDS: Final = 60
FRESH_SECONDS: Final = 3 * PROBE_EVERY_SECONDS
"""How long a word counts: two looks in a row may be lost."""
PLATFORM_STREAM: Final = "platform"
_LOCATION = re.compile(r"[a-z0-9][a-z0-9-]{0,31}")
_REGION = re.compile(r"[^\x00-\x1f\x7f]{1,64}")

ProbeResult = Literal["up", "down", "inconclusive"]


class Taken(NamedTuple):
    """What became of a location's report."""

    machines: int
    unknown: list[int]
    """Ids that belong to no machine: removed meanwhile, perhaps."""


class Verdict(NamedTuple):
    """What follows from the words on one machine: an outage begins, or ends at *ended_at*."""

    machine_id: int
    outage_id: int | None
    witnesses: list[str]
    ended_at: int | None


def register_location(unit: Unit, location: str, region: str) -> None:
    """Look at machines from one more place; the same again changes nothing.

    Each location is one voice: that they are independent of each other is the operator's care.

    Raises:
        RejectedError: `invalid_args` for a name that is not 1 to 32 of a-z, 0-9 and `-`.
    """
    if not _LOCATION.fullmatch(location):
        message = "a location is named by 1 to 32 of a-z, 0-9 and -, such as fra1"
        raise RejectedError("invalid_args", message)
    if not _REGION.fullmatch(region):
        raise RejectedError("invalid_args", "a region is 1 to 64 printable characters")
    row = unit.connection.execute(
        "SELECT region FROM probe_locations WHERE location = %s AND removed_at IS NULL", [location]
    ).fetchone()
    if row is None or row[0] != region:
        fact = ProbeLocationRegistered(location=location, region=region, registered_at=unit.now)
        unit.append(PLATFORM_STREAM, fact)


def remove_location(unit: Unit, location: str) -> None:
    """Forget a place and its words; removing it again changes nothing.

    Raises:
        NotFoundError: `no_such_location`.
    """
    row = unit.connection.execute(
        "SELECT removed_at FROM probe_locations WHERE location = %s", [location]
    ).fetchone()
    if row is None:
        raise NotFoundError("no_such_location", f"there is no probe location {location!r}")
    if row[0] is not None:
        return
    judge(unit)
    unit.append(PLATFORM_STREAM, ProbeLocationRemoved(location=location, removed_at=unit.now))
    unit.connection.execute("DELETE FROM probe_results WHERE location = %s", [location])
    judge(unit, has_news=True)


def report(unit: Unit, location: str, results: Mapping[int, ProbeResult]) -> Taken:
    """Take what a location saw just now, machine by machine, and decide what follows.

    Raises:
        NotFoundError: `no_such_location`.
    """
    row = unit.connection.execute(
        "SELECT 1 FROM probe_locations WHERE location = %s AND removed_at IS NULL", [location]
    ).fetchone()
    if row is None:
        raise NotFoundError("no_such_location", f"there is no probe location {location!r}")
    known = [
        row[0]
        for row in unit.connection.execute(
            "SELECT machine_id FROM machines WHERE machine_id = ANY(%s) ORDER BY machine_id",
            [list(results)],
        )
    ]
    # What had lapsed before this word ended at its own second, not now.
    judge(unit, known)
    with unit.connection.cursor() as cursor:
        cursor.executemany(
            "INSERT INTO probe_results VALUES (%s, %s, %s, %s) ON CONFLICT (machine_id, location)"
            " DO UPDATE SET result = EXCLUDED.result, received_at = EXCLUDED.received_at",
            [(machine_id, location, results[machine_id], unit.now) for machine_id in known],
        )
    judge(unit, known, has_news=True)
    return Taken(len(known), sorted(results.keys() - set(known)))


def judge(
    unit: Unit, machine_ids: Collection[int] | None = None, *, has_news: bool = False
) -> None:
    """Append what the quorum decides now: on these machines, or on all that are down.

    With *has_news* what ends ends now: before the news all was judged, and still stood.
    """
    new: list[tuple[str, Fact]] = []
    outage_id = unit.next_id("outage")
    for verdict in verdicts(unit.connection, unit.now, machine_ids):
        if verdict.outage_id is None:
            fact: Fact = OutageDetected(
                outage_id=outage_id,
                machine_id=verdict.machine_id,
                witnesses=verdict.witnesses,
                detected_at=unit.now,
            )
            outage_id += 1
        else:
            assert verdict.ended_at is not None
            fact = OutageEnded(
                outage_id=verdict.outage_id,
                machine_id=verdict.machine_id,
                ended_at=unit.now if has_news else verdict.ended_at,
            )
        new.append((machine_stream(verdict.machine_id), fact))
    unit.append_all(new)


def verdicts(
    connection: Connection, now: int, machine_ids: Collection[int] | None = None
) -> list[Verdict]:
    """What the quorum decides at second *now*: on these machines, or on all that are down."""
    down = _open_outages(connection, machine_ids)
    if not down and machine_ids is None:
        return []
    configured = connection.execute(
        "SELECT count(*) FROM probe_locations WHERE removed_at IS NULL"
    ).fetchone()
    assert configured is not None
    needed = quorum(configured[0])
    voices = _voices(connection, down.keys() if machine_ids is None else machine_ids)
    found = []
    for machine_id in sorted(down.keys() | voices.keys()):
        said = voices.get(machine_id, [])
        if machine_id in down:
            outage_id, detected_at, witnesses = down[machine_id]
            # A location that joins during an outage and has not looked yet does not end it.
            until = _upheld_until(said, None if needed is None else min(needed, witnesses))
            if until is None or until <= now:
                ended_at = now if until is None else max(until, detected_at)
                found.append(Verdict(machine_id, outage_id, [], ended_at))
            continue
        fresh = sorted(location for location, until in said if until > now)
        if needed is not None and len(fresh) >= needed:
            found.append(Verdict(machine_id, None, fresh, None))
    return found


def upheld_until(connection: Connection) -> list[int]:
    """When each present outage ends if no location says anything more."""
    down = _open_outages(connection, None)
    voices = _voices(connection, down.keys())
    lapses = [
        _upheld_until(voices.get(machine_id, []), witnesses)
        for machine_id, (_, _, witnesses) in down.items()
    ]
    return [lapse for lapse in lapses if lapse is not None]


def _upheld_until(said: list[tuple[str, int]], needed: int | None) -> int | None:
    """The second at which fewer than *needed* locations still say "down"; None: already now."""
    if needed is None or len(said) < needed:
        return None
    return sorted((until for _, until in said), reverse=True)[needed - 1]


def _open_outages(
    connection: Connection, machine_ids: Collection[int] | None
) -> dict[int, tuple[int, int, int]]:
    """Machine → its present outage, when that was detected, and by how many witnesses."""
    asked = None if machine_ids is None else list(machine_ids)
    return {
        row[0]: (row[1], row[2], row[3])
        for row in connection.execute(
            "SELECT machine_id, outage_id, detected_at, cardinality(witnesses) FROM outages"
            " WHERE ended_at IS NULL AND (%s::bigint[] IS NULL OR machine_id = ANY(%s))",
            [asked, asked],
        )
    }


def _voices(
    connection: Connection, machine_ids: Collection[int]
) -> dict[int, list[tuple[str, int]]]:
    """Machine → the locations whose last word is "down", each with the second it counts until."""
    voices: dict[int, list[tuple[str, int]]] = {}
    for machine_id, location, received_at in connection.execute(
        "SELECT r.machine_id, r.location, r.received_at FROM probe_results r"
        " JOIN probe_locations l ON l.location = r.location AND l.removed_at IS NULL"
        " WHERE r.machine_id = ANY(%s) AND r.result = 'down'",
        [list(machine_ids)],
    ):
        voices.setdefault(machine_id, []).append((location, received_at + FRESH_SECONDS))
    return voices
