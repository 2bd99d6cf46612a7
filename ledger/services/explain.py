"""One charge in full: whose rule, whose seconds, which gaps, which formula, where in the log.

The formula and its numbers come from the pricing code itself (`ledger.meters.pricing`), so the text
cannot say anything else than what is charged. What is explained is also checked: the quantity from
its intervals, the charge from its quantity, the hours from their sum.
"""

from __future__ import annotations

import msgspec

from ledger.domain.events import USAGE_REPORTED
from ledger.domain.ids import instance_stream
from ledger.domain.money import format_dollars
from ledger.errors import CorruptHistoryError, NotFoundError
from ledger.meters.intervals import Range, length, overlap, subtract
from ledger.meters.pricing import METERS, Formula, Meter, explain_charge, explain_fee
from ledger.services.questions.instances import instance
from ledger.services.questions.usage import AnomalyView, anomalies
from ledger.store.database import Connection
from ledger.store.log import read_stream


class Span(msgspec.Struct, frozen=True, kw_only=True):
    """The seconds `[start, until)`; an open end is null."""

    start: int
    until: int | None


class HourRow(msgspec.Struct, frozen=True, kw_only=True):
    """What was posted in one UTC hour; `position` is the first report it came from."""

    hour: int
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
    """A signed report by its address."""

    stream: str
    seq: int
    position: int


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """One (instance, meter, rate segment)."""

    instance_id: int
    meter: str
    kind: str
    segment: int
    segment_from: int
    rate: int
    fee_bp: int
    life: Span
    authorised: list[Span]
    """GPU intervals for the gpu meter, the life without lost disks for storage and bytes."""
    attested: list[Span]
    unattested_seconds: int
    """Authorised seconds that nobody attested: never billed, unless their ticks still arrive."""
    gaps: list[Span]
    anomalies: list[AnomalyView]
    quantity: int
    unit: str
    charge: Formula
    fee: Formula
    host_share: int
    hours: list[HourRow]
    facts: list[FactRef]
    first_report: ReportRef | None
    last_report: ReportRef | None


def explain(
    connection: Connection, instance_id: int, meter: Meter | None = None
) -> list[Explanation]:
    """Every charge of an instance in full, or those of one meter.

    Raises:
        NotFoundError: `no_such_instance`.
        CorruptHistoryError: A stored charge is not what its quantity says.
    """
    view = instance(connection, instance_id)
    segments = connection.execute(
        "SELECT terms_no, since, kind, fee_bp, gpu_rate, storage_rate, up_rate, down_rate,"
        " gpu_quantity, gpu_charge, gpu_fee, storage_quantity, storage_charge, storage_fee,"
        " up_quantity, up_charge, up_fee, down_quantity, down_charge, down_fee"
        " FROM rate_segments WHERE instance_id = %s ORDER BY terms_no",
        [instance_id],
    ).fetchall()
    if not segments:
        message = f"nothing of instance {instance_id} has been folded yet; try again in a second"
        raise NotFoundError("nothing_metered", message)
    life = Span(start=view.created_at, until=view.destroyed_at)
    gpu = _spans(connection, "gpu_intervals", "instance_id", instance_id)
    lost = _spans(connection, "lost_disks", "instance_id", instance_id)
    covered = _spans(connection, "coverage", "instance_id", instance_id)
    machine = _spans(connection, "machine_coverage", "machine_id", view.machine_id)
    facts = [
        FactRef(position=one.position, topic=one.topic, recorded_at=one.recorded_at)
        for one in read_stream(connection, instance_stream(instance_id))
    ]
    noted = anomalies(connection, instance_id=instance_id, limit=1_000)
    found = []
    for row in segments:
        for index, name in enumerate(METERS):
            if meter is not None and name != meter:
                continue
            quantity, charge, fee = (int(value) for value in row[8 + 3 * index : 11 + 3 * index])
            if quantity == 0 and meter is None:
                continue
            authorised = gpu if name == "gpu" else _without([life], lost)
            attested = machine if name == "storage" else covered
            hours = _hours(connection, instance_id, row[0], name)
            explanation = Explanation(
                instance_id=instance_id,
                meter=name,
                kind=row[2],
                segment=row[0],
                segment_from=row[1],
                rate=int(row[4 + index]),
                fee_bp=row[3],
                life=life,
                authorised=authorised,
                attested=_within(attested, authorised),
                unattested_seconds=length(_gaps(authorised, attested)),
                gaps=[Span(start=a, until=b) for a, b in _gaps(authorised, attested)],
                anomalies=noted,
                quantity=quantity,
                unit="seconds" if name in {"gpu", "storage"} else "bytes",
                charge=explain_charge(name, int(row[4 + index]), quantity, view.disk_bytes),
                fee=explain_fee(row[3], charge),
                host_share=charge - fee,
                hours=hours,
                facts=facts,
                first_report=_report(connection, hours[0].position) if hours else None,
                last_report=_report(connection, hours[-1].position) if hours else None,
            )
            _prove(explanation, charge, fee)
            found.append(explanation)
    return found


def _prove(one: Explanation, charge: int, fee: int) -> None:
    """Refuse to explain what is not so."""
    posted = sum(hour.amount for hour in one.hours)
    moved = sum(hour.quantity for hour in one.hours)
    if (one.charge.nanos, one.fee.nanos, posted, moved) != (charge, fee, charge, one.quantity):
        message = (
            f"instance {one.instance_id}, {one.meter}: stored {format_dollars(charge)},"
            f" the formula gives {one.charge.dollars}, the hours {format_dollars(posted)}"
        )
        raise CorruptHistoryError("charge_differs", message)


def _spans(connection: Connection, table: str, key: str, value: int) -> list[Span]:
    rows = connection.execute(
        f"SELECT start, until FROM {table} WHERE {key} = %s ORDER BY start",  # noqa: S608 - own names
        [value],
    )
    return [Span(start=start, until=until) for start, until in rows]


def _end(span: Span) -> int:
    return 2**62 if span.until is None else span.until


def _without(spans: list[Span], lost: list[Span]) -> list[Span]:
    taken = [(one.start, _end(one)) for one in lost]
    return [
        Span(start=a, until=None if b >= 2**62 else b)
        for span in spans
        for a, b in subtract(span.start, _end(span), taken)
    ]


def _within(attested: list[Span], authorised: list[Span]) -> list[Span]:
    ranges = [(one.start, _end(one)) for one in attested]
    return [
        Span(start=a, until=b)
        for span in authorised
        for a, b in overlap(ranges, span.start, _end(span))
    ]


def _gaps(authorised: list[Span], attested: list[Span]) -> list[Range]:
    """Authorised seconds without attestation, up to the last attested one."""
    ranges = [(one.start, _end(one)) for one in attested]
    last = max((end for _, end in ranges), default=0)
    return [
        gap
        for span in authorised
        for gap in subtract(span.start, min(_end(span), last), ranges)
        if span.start < last
    ]


def _hours(connection: Connection, instance_id: int, terms_no: int, meter: Meter) -> list[HourRow]:
    rows = connection.execute(
        f"SELECT hour * 3600, {meter}_quantity, {meter}_charge, {meter}_fee, position"  # noqa: S608 - own names
        " FROM usage_hours WHERE instance_id = %s AND terms_no = %s"
        f" AND {meter}_quantity > 0 ORDER BY hour, booked",
        [instance_id, terms_no],
    )
    return [
        HourRow(hour=row[0], quantity=int(row[1]), amount=row[2], fee=row[3], position=row[4])
        for row in rows
    ]


def _report(connection: Connection, position: int) -> ReportRef | None:
    """The report that holds the tick at *position*."""
    row = connection.execute(
        "SELECT stream_id, version, position FROM events WHERE position <= %s AND topic = %s"
        " ORDER BY position DESC LIMIT 1",
        [position, USAGE_REPORTED],
    ).fetchone()
    return None if row is None else ReportRef(stream=row[0], seq=row[1], position=row[2])
