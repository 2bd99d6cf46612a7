"""One charge in full: whose rule, whose seconds, which gaps, which formula, where in the log.

The formula and its numbers come from the pricing code itself (`ledger.meters.pricing`), so the text
cannot say anything else than what is charged. What is explained is also checked: the charge and the
fee from the quantity, the hours from their sum, and that no more seconds were billed than somebody
attested inside what the server authorised.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from ledger.domain.ids import instance_stream, volume_stream
from ledger.domain.money import format_dollars
from ledger.errors import CorruptHistoryError, NotFoundError
from ledger.meters.intervals import Range, length, overlap, subtract
from ledger.meters.pricing import (
    METERS,
    SECONDS_METERS,
    Formula,
    Meter,
    explain_charge,
    explain_fee,
)
from ledger.projections.contracts import CONTRACTS
from ledger.services.questions.usage import AnomalyView, anomalies, report_at
from ledger.store.database import Connection
from ledger.store.log import read_stream

_FOREVER = 2**62
_ANOMALIES = 1_000


class Span(msgspec.Struct, frozen=True, kw_only=True):
    """The seconds `[start, until)`; an open end is null."""

    start: int
    until: int | None


class HourRow(msgspec.Struct, frozen=True, kw_only=True):
    """What was posted for one UTC hour; `position` is the first report it came from.

    `booked` is the first second of the invoice period it belongs to.
    """

    hour: int
    booked: int
    quantity: int
    amount: int
    fee: int
    position: int


class FactRef(msgspec.Struct, frozen=True, kw_only=True):
    """A fact that made the charge what it is."""

    position: int
    topic: str
    recorded_at: int


class ReportRef(msgspec.Struct, frozen=True, kw_only=True):
    """A signed report by its address, and the second for which it is named."""

    second: int
    stream: str
    seq: int
    position: int


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """One (contract, meter, rate segment). Everything in seconds lies inside the segment.

    `kind` is `volume` where `instance_id` is the id of a volume.
    """

    instance_id: int
    meter: Meter
    kind: str
    segment: int
    segment_from: int
    segment_until: int | None
    rate: int
    fee_bp: int
    life: Span
    authorised: list[Span]
    """GPU intervals for the gpu meter; the life without lost disks for storage, and without held
    GPUs for the idle seconds of a reservation; the life for bytes."""
    lost_disks: list[Span]
    attested: list[Span]
    """Authorised seconds with an accepted tick (for storage: with a report of the machine)."""
    attested_seconds: int
    not_billed_seconds: int | None
    """Attested and not billed: not in a billable state, or too late. None for meters of bytes."""
    gaps: list[Span]
    """Authorised seconds that nobody attested; open intervals count up to the last attested one."""
    unattested_seconds: int
    anomalies: list[AnomalyView]
    quantity: int
    unit: str
    allocated_bytes: int
    charge: Formula
    fee: Formula
    host_share: int
    hours: list[HourRow]
    facts: list[FactRef]
    first_report: ReportRef | None
    """The report that attests the first attested second."""
    last_report: ReportRef | None


class Contract(NamedTuple):
    """The instance or volume whose charges are explained."""

    instance_id: int
    machine_id: int
    disk_bytes: int
    created_at: int
    destroyed_at: int | None
    is_volume: bool

    @property
    def stream(self) -> str:
        """Where its facts are."""
        name = volume_stream if self.is_volume else instance_stream
        return name(self.instance_id)

    @property
    def name(self) -> str:
        """What people call it: `volume 7`."""
        return f"{'volume' if self.is_volume else 'instance'} {self.instance_id}"


class _Seconds(msgspec.Struct, frozen=True, kw_only=True):
    """Whose seconds there are of an instance, before they are cut to a meter and a segment."""

    gpu: list[Range]
    lost: list[Range]
    covered: list[Range]
    machine: list[Range]
    held: list[Range]


def explain(
    connection: Connection,
    instance_id: int,
    meter: Meter | None = None,
    terms_no: int | None = None,
) -> list[Explanation]:
    """Every charge of an instance or a volume in full, or those of one meter or one segment.

    Without *meter*, the meters that counted nothing are left out.

    Raises:
        NotFoundError: `no_such_instance`; `no_such_segment`.
        CorruptHistoryError: `charge_differs`: a stored charge is not what its quantity says.
    """
    view = contract(connection, instance_id)
    rows = connection.execute(
        "SELECT terms_no, since, min(since) OVER (ORDER BY terms_no"
        " ROWS BETWEEN 1 FOLLOWING AND UNBOUNDED FOLLOWING), kind, fee_bp,"
        " gpu_rate, storage_rate, up_rate, down_rate, gpu_rate,"
        " gpu_quantity, gpu_charge, gpu_fee, storage_quantity, storage_charge, storage_fee,"
        " up_quantity, up_charge, up_fee, down_quantity, down_charge, down_fee,"
        " reserved_idle_quantity, reserved_idle_charge, reserved_idle_fee"
        " FROM rate_segments WHERE instance_id = %s ORDER BY terms_no",
        [instance_id],
    ).fetchall()
    chosen = [row for row in rows if terms_no in (None, row[0])]
    if terms_no is not None and not chosen:
        numbers = ", ".join(str(row[0]) for row in rows) or "none yet"
        message = f"{view.name} has no rate segment {terms_no}; it has: {numbers}"
        raise NotFoundError("no_such_segment", message)
    seconds = _Seconds(
        gpu=_ranges(connection, "gpu_intervals", "instance_id", instance_id),
        lost=_ranges(connection, "lost_disks", "instance_id", instance_id),
        covered=_ranges(connection, "coverage", "instance_id", instance_id),
        machine=_ranges(connection, "machine_coverage", "machine_id", view.machine_id),
        held=_ranges(connection, "reserved_holds", "instance_id", instance_id),
    )
    facts = [
        FactRef(position=one.position, topic=one.topic, recorded_at=one.recorded_at)
        for one in read_stream(connection, view.stream)
    ]
    noted = anomalies(connection, instance_id=instance_id, limit=_ANOMALIES)
    found = []
    for row in chosen:
        for index, name in enumerate(METERS):
            counted = row[10 + 3 * index : 13 + 3 * index]
            if name == meter or (meter is None and counted[0] > 0):
                terms = (*row[:5], row[5 + index])
                found.append(
                    _explained(connection, view, name, terms, counted, seconds, facts, noted)
                )
    return found


def _explained(
    connection: Connection,
    view: Contract,
    meter: Meter,
    terms: tuple[int, int, int | None, str, int, int],
    counted: tuple[int, int, int],
    seconds: _Seconds,
    facts: list[FactRef],
    noted: list[AnomalyView],
) -> Explanation:
    number, since, until, kind, fee_bp, rate = terms
    until = None if until is None else max(since, until)
    quantity, charge, fee = (int(value) for value in counted)
    life = Range(view.created_at, _FOREVER if view.destroyed_at is None else view.destroyed_at)
    authorised = [life]
    if meter == "gpu":
        authorised = seconds.gpu
    elif meter == "storage":
        authorised = subtract(life.start, life.end, seconds.lost)
    elif meter == "reserved_idle":
        authorised = subtract(life.start, life.end, seconds.held)
    # The end of a term that runs is known long before it comes.
    known_until = seconds.machine[-1].end if seconds.machine else 0
    is_open = until is None or until > known_until
    segment = [Range(since, _FOREVER if until is None or is_open else until)]
    authorised = _within(authorised, segment)
    by_machine = meter in {"storage", "reserved_idle"}
    attested = _within(seconds.machine if by_machine else seconds.covered, authorised)
    gaps = _gaps(authorised, attested)
    in_seconds = meter in SECONDS_METERS
    tick_of = None if by_machine else view.instance_id
    ends = (attested[0].start, attested[-1].end - 1) if attested else ()
    reports = [_report(connection, view.machine_id, second, tick_of) for second in ends]
    explanation = Explanation(
        instance_id=view.instance_id,
        meter=meter,
        kind=kind,
        segment=number,
        segment_from=since,
        segment_until=until,
        rate=int(rate),
        fee_bp=fee_bp,
        life=_span(life),
        authorised=[_span(one) for one in authorised],
        lost_disks=[_span(one) for one in seconds.lost],
        attested=[_span(one) for one in attested],
        attested_seconds=length(attested),
        not_billed_seconds=length(attested) - quantity if in_seconds else None,
        gaps=[_span(one) for one in gaps],
        unattested_seconds=length(gaps),
        anomalies=noted,
        quantity=quantity,
        unit="seconds" if in_seconds else "bytes",
        allocated_bytes=view.disk_bytes,
        charge=explain_charge(meter, int(rate), quantity, view.disk_bytes),
        fee=explain_fee(fee_bp, charge),
        host_share=charge - fee,
        hours=_hours(connection, view.instance_id, number, meter),
        facts=facts,
        first_report=reports[0] if reports else None,
        last_report=reports[-1] if reports else None,
    )
    _prove(explanation, charge, fee)
    return explanation


def _prove(one: Explanation, charge: int, fee: int) -> None:
    """Refuse to explain what is not so."""
    thing = "volume" if one.kind == "volume" else "instance"
    where = f"{thing} {one.instance_id}, {one.meter}, segment {one.segment}"
    posted = sum(hour.amount for hour in one.hours)
    kept = sum(hour.fee for hour in one.hours)
    moved = sum(hour.quantity for hour in one.hours)
    said = (one.charge.nanos, one.fee.nanos, posted, kept, moved)
    if said != (charge, fee, charge, fee, one.quantity):
        message = (
            f"{where}: stored {format_dollars(charge)} (fee {format_dollars(fee)}) for"
            f" {one.quantity} {one.unit}, the formula gives {one.charge.dollars}"
            f" ({one.fee.dollars}), the hours {format_dollars(posted)} ({format_dollars(kept)})"
            f" for {moved}; run `gpuledger rebuild --check`"
        )
        raise CorruptHistoryError("charge_differs", message)
    if one.not_billed_seconds is not None and one.not_billed_seconds < 0:
        message = (
            f"{where}: {one.quantity} seconds were billed and only {one.attested_seconds}"
            " authorised ones were attested; run `gpuledger rebuild --check`"
        )
        raise CorruptHistoryError("charge_differs", message)


def contract(connection: Connection, instance_id: int) -> Contract:
    """The instance or volume with this id.

    Raises:
        NotFoundError: `no_such_instance`.
    """
    row = connection.execute(
        "SELECT instance_id, machine_id, disk_bytes, created_at, destroyed_at, is_volume"  # noqa: S608 - a constant
        f" FROM {CONTRACTS} c WHERE instance_id = %s",
        [instance_id],
    ).fetchone()
    if row is None:
        message = f"there is no instance or volume {instance_id}"
        raise NotFoundError("no_such_instance", message)
    return Contract(*row)


# --- seconds -------------------------------------------------------------------------------------


def _ranges(connection: Connection, table: str, key: str, value: int) -> list[Range]:
    rows = connection.execute(
        f"SELECT start, until FROM {table} WHERE {key} = %s ORDER BY start",  # noqa: S608 - own names
        [value],
    )
    return [Range(start, _FOREVER if until is None else until) for start, until in rows]


def _span(span: Range) -> Span:
    return Span(start=span.start, until=None if span.end >= _FOREVER else span.end)


def _within(ranges: list[Range], bounds: list[Range]) -> list[Range]:
    return [part for low, high in bounds for part in overlap(ranges, low, high)]


def _gaps(authorised: list[Range], attested: list[Range]) -> list[Range]:
    last = attested[-1].end if attested else 0
    return [
        gap
        for start, end in authorised
        for gap in subtract(start, last if end >= _FOREVER else end, attested)
    ]


# --- where it is written -------------------------------------------------------------------------


def _hours(connection: Connection, instance_id: int, terms_no: int, meter: Meter) -> list[HourRow]:
    rows = connection.execute(
        f"SELECT hour * 3600, booked, {meter}_quantity, {meter}_charge, {meter}_fee, position"  # noqa: S608 - own names
        " FROM usage_hours WHERE instance_id = %s AND terms_no = %s"
        f" AND {meter}_quantity > 0 ORDER BY hour, booked",
        [instance_id, terms_no],
    )
    return [
        HourRow(
            hour=row[0],
            booked=row[1],
            quantity=int(row[2]),
            amount=row[3],
            fee=row[4],
            position=row[5],
        )
        for row in rows
    ]


def _report(
    connection: Connection, machine_id: int, second: int, instance_id: int | None
) -> ReportRef | None:
    found = report_at(connection, machine_id, second, instance_id)
    if found is None:
        return None
    stored = found[0]
    return ReportRef(
        second=second, stream=stored.stream_id, seq=stored.version, position=stored.position
    )
