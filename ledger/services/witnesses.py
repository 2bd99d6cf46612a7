"""Witnesses of what hosts attest: heartbeats of renters, probes of the platform (§18).

Only what contradicts becomes a fact: minutes that the probes call down, and life where the host
attests none. What was billed for minutes that are down and silent is held, once an hour, as a
dispute of the platform; the host has 72 hours to explain itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ledger.domain.dispute import PLATFORM
from ledger.domain.events import DisputedSeconds, WitnessRecorded, WitnessVerdict
from ledger.domain.usage import GPU_BILLABLE
from ledger.domain.witness import (
    MINUTE_SECONDS,
    ProbeWord,
    RenterWord,
    judge_minute,
    judge_second,
    probe_word,
)
from ledger.errors import NotFoundError, RejectedError
from ledger.meters.intervals import Range
from ledger.services.claims import quantities_of
from ledger.services.filing import open_for_witnesses
from ledger.services.heartbeats import GRACE_SECONDS, horizon, renter_word
from ledger.services.ledger import Unit
from ledger.services.questions.usage import ticks
from ledger.store.database import Connection

# --- minutes -------------------------------------------------------------------------------------


def record_minute(
    unit: Unit, instance_id: int, start: int, *, up: int, down: int, configured: int
) -> WitnessVerdict | None:
    """Judge one minute that is over by its three witnesses, and record it if they contradict.

    Args:
        unit: The command's transaction.
        instance_id: Which instance.
        start: First second of the minute.
        up: Probe locations that reached it in this minute.
        down: Probe locations that did not.
        configured: Probe locations there are.

    Returns:
        What the minute is: None where nothing is unusual. Again changes nothing.

    Raises:
        NotFoundError: `no_such_instance`.
        RejectedError: `invalid_args` for what is no minute, or is not over.
    """
    until = start + MINUTE_SECONDS
    if start % MINUTE_SECONDS or until > unit.now or min(up, down) < 0 or up + down > configured:
        message = "a minute starts at a multiple of 60 s, is over, and each location looks once"
        raise RejectedError("invalid_args", message)
    if not _lived(unit.connection, instance_id, start, until):
        return None
    row = unit.connection.execute(
        "SELECT verdict FROM witnesses WHERE instance_id = %s AND start <= %s AND until > %s",
        [instance_id, start, start],
    ).fetchone()
    if row is not None:
        known: WitnessVerdict = row[0]
        return known
    renter = renter_word(unit.connection, instance_id, start, until)
    probe = probe_word(up, down, configured)
    verdict = _verdict(unit.connection, instance_id, start, renter, probe)
    if verdict is not None:
        _record(unit, instance_id, Range(start, until), renter, probe, up, down, verdict)
    return verdict


def _verdict(
    connection: Connection, instance_id: int, start: int, renter: RenterWord, probe: ProbeWord
) -> WitnessVerdict | None:
    """What has to be remembered of a minute.

    What the probes call down is remembered whatever the host says: its ticks may come later.
    """
    if probe == "down":
        return "no_network" if judge_second(True, renter, probe).no_network else "hold"
    seen = ticks(connection, instance_id, start=start, until=start + MINUTE_SECONDS)
    ran = [(one.second, one.second + 1) for one in seen if one.first and one.state in GPU_BILLABLE]
    spans = judge_minute(start, ran, renter, probe)
    return "anomaly" if spans.anomaly and not spans.bill else None


def _record(
    unit: Unit,
    instance_id: int,
    span: Range,
    renter: RenterWord,
    probe: ProbeWord,
    up: int,
    down: int,
    verdict: WitnessVerdict,
    cause: int | None = None,
) -> None:
    row = unit.connection.execute(
        "SELECT machine_id, account_id FROM instances WHERE instance_id = %s", [instance_id]
    ).fetchone()
    assert row is not None
    unit.append(
        f"witness-{instance_id}",
        WitnessRecorded(
            instance_id=instance_id,
            machine_id=row[0],
            account_id=row[1],
            start=span.start,
            until=span.end,
            renter=renter,
            probe=probe,
            probes_up=up,
            probes_down=down,
            verdict=verdict,
            cause=cause,
            policy_version=unit.policy.version,
            actor=PLATFORM,
            effective_at=span.start,
            recorded_at=unit.now,
        ),
    )


def _lived(connection: Connection, instance_id: int, start: int, until: int) -> bool:
    row = connection.execute(
        "SELECT created_at < %s AND coalesce(destroyed_at > %s, true) FROM instances"
        " WHERE instance_id = %s",
        [until, start, instance_id],
    ).fetchone()
    if row is None:
        raise NotFoundError("no_such_instance", f"there is no instance {instance_id}")
    return bool(row[0])


# --- once an hour --------------------------------------------------------------------------------


def record_outages(unit: Unit) -> None:
    """Record the minutes of outages for which hosts attest that instances ran all the same."""
    first = horizon(unit)
    for outage_id, machine_id, detected_at, ended_at, places in unit.connection.execute(
        "SELECT outage_id, machine_id, detected_at, ended_at, cardinality(witnesses) FROM outages"
        " WHERE coalesce(ended_at, %s) > %s ORDER BY outage_id",
        [unit.now, first],
    ).fetchall():
        del outage_id
        end = unit.now - GRACE_SECONDS if ended_at is None else ended_at
        down = Range(
            -(-max(detected_at, first) // MINUTE_SECONDS) * MINUTE_SECONDS,
            end // MINUTE_SECONDS * MINUTE_SECONDS,
        )
        if down.start >= down.end:
            continue
        for (instance_id,) in unit.connection.execute(
            "SELECT instance_id FROM instances WHERE machine_id = %s AND created_at < %s"
            " AND coalesce(destroyed_at > %s, true) ORDER BY instance_id",
            [machine_id, down.end, down.start],
        ).fetchall():
            if quantities_of(unit.connection, instance_id, "gpu", [down]):
                _record_down(unit, instance_id, down, places)


def _record_down(unit: Unit, instance_id: int, down: Range, places: int) -> None:
    """Record the minutes of *down* that are not recorded yet, in runs of one word."""
    known = unit.connection.execute(
        "SELECT start, until FROM witnesses WHERE instance_id = %s AND until > %s AND start < %s",
        [instance_id, down.start, down.end],
    ).fetchall()
    runs: list[tuple[Range, RenterWord]] = []
    for start in range(down.start, down.end, MINUTE_SECONDS):
        if any(low <= start < high for low, high in known):
            continue
        word = renter_word(unit.connection, instance_id, start, start + MINUTE_SECONDS)
        if runs and runs[-1][0].end == start and runs[-1][1] == word:
            runs[-1] = (Range(runs[-1][0].start, start + MINUTE_SECONDS), word)
        else:
            runs.append((Range(start, start + MINUTE_SECONDS), word))
    for span, word in runs:
        verdict: WitnessVerdict = "no_network" if word == "alive" else "hold"
        _record(unit, instance_id, span, word, "down", 0, places, verdict)


def hold(unit: Unit) -> list[int]:
    """Open a dispute of the platform for every instance with minutes to hold; their ids.

    Minutes for which nothing was billed are looked at again until no tick can come in time.
    """
    minutes: dict[int, list[tuple[int, int]]] = {}
    cause: dict[int, int] = {}
    for instance_id, start, until, position in unit.connection.execute(
        "SELECT instance_id, start, until, position FROM witnesses WHERE verdict = 'hold'"
        " AND dispute_id IS NULL AND until <= %s AND until > %s ORDER BY instance_id, start",
        [unit.now - GRACE_SECONDS, horizon(unit)],
    ).fetchall():
        minutes.setdefault(instance_id, []).append((start, until))
        cause[instance_id] = position
    opened = []
    for instance_id, spans in minutes.items():
        seconds = [DisputedSeconds(start=one.start, until=one.end) for one in _merged(spans)]
        dispute_id = open_for_witnesses(unit, instance_id, seconds, cause[instance_id])
        if dispute_id is not None:
            opened.append(dispute_id)
    return opened


def _merged(spans: Iterable[tuple[int, int]]) -> Sequence[Range]:
    found: list[Range] = []
    for start, until in spans:
        if found and found[-1].end >= start:
            found[-1] = Range(found[-1].start, max(until, found[-1].end))
        else:
            found.append(Range(start, until))
    return found
