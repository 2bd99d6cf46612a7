"""What the seconds of a dispute cost: the part of each charge that they stand for.

Whole hours are what the meters booked. Of an hour that is disputed in part, GPU seconds and bytes
are counted tick by tick, storage by what the machine attested; never more than the hour holds.
Seconds that another dispute holds, or that went back already, are not claimed again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ledger.domain.charge import Metered
from ledger.domain.events import DisputeClaim, DisputedSeconds, MeterName
from ledger.domain.money import SECONDS_PER_HOUR
from ledger.domain.reversal import reverse
from ledger.domain.usage import GPU_BILLABLE
from ledger.meters.intervals import Range, overlap, subtract
from ledger.meters.pricing import bandwidth_charge, gpu_charge, storage_charge
from ledger.services.corrections import load_charge
from ledger.services.questions.usage import TickView, ticks
from ledger.store.database import Connection

_TICKS = 100_000
"""More than one hour can hold, every second attested several times."""
_NO_BYTES = frozenset({"too_late", "outside_life", "unknown_instance", "not_folded"})
_GPU_COUNTS = frozenset({None, "bandwidth_excess"})

Quantities = dict[int, int]
"""Terms number → seconds or bytes."""


class Claimed(NamedTuple):
    """The claims on some seconds, and whether others hold or had some of these seconds."""

    claims: list[DisputeClaim]
    open_elsewhere: bool
    gone_back: bool


def disputed(
    connection: Connection,
    instance_id: int,
    seconds: Sequence[DisputedSeconds],
    meters: Sequence[str],
    *,
    dispute_id: int | None = None,
) -> Claimed:
    """What *seconds* of an instance cost on *meters*, less what other disputes are about.

    Args:
        connection: In the transaction of the command.
        instance_id: Which instance.
        seconds: Which seconds.
        meters: Which meters.
        dispute_id: A dispute that is not another one.
    """
    claims = []
    open_elsewhere = gone_back = False
    for meter in meters:
        taken = _taken(connection, instance_id, meter, dispute_id)
        ranges: list[Range] = []
        for part in seconds:
            overlapping = [
                (a, b, is_open) for a, b, is_open in taken if a < part.until and b > part.start
            ]
            open_elsewhere |= any(is_open for _, _, is_open in overlapping)
            gone_back |= any(not is_open for _, _, is_open in overlapping)
            ranges += subtract(part.start, part.until, [(a, b) for a, b, _ in overlapping])
        name: MeterName = meter  # type: ignore[assignment]  # `meters_of` names meters only
        quantities = quantities_of(connection, instance_id, name, ranges)
        for terms_no, quantity in sorted(quantities.items()):
            charge = Metered(instance_id, name, terms_no)
            claim = _claim(connection, charge, ranges, quantity, dispute_id)
            if claim is not None:
                claims.append(claim)
    return Claimed(claims, open_elsewhere, gone_back)


def _taken(
    connection: Connection, instance_id: int, meter: str, dispute_id: int | None
) -> list[tuple[int, int, bool]]:
    """Seconds that other disputes are about or gave back: start, end, whether it is still open."""
    rows = connection.execute(
        "SELECT DISTINCT s.start, s.until, d.resolved_at IS NULL FROM disputes d"
        " JOIN dispute_claims c USING (dispute_id)"
        " JOIN dispute_seconds s USING (dispute_id, charge)"
        " WHERE d.instance_id = %s AND d.dispute_id IS DISTINCT FROM %s AND c.meter = %s"
        " AND d.status NOT IN ('rejected', 'expired', 'withdrawn') ORDER BY s.start, s.until",
        [instance_id, dispute_id, meter],
    )
    return [(row[0], row[1], row[2]) for row in rows]


def _claim(
    connection: Connection,
    name: Metered,
    ranges: Sequence[Range],
    quantity: int,
    dispute_id: int | None,
) -> DisputeClaim | None:
    row = connection.execute(
        f"SELECT {name.meter}_charge, CASE %s WHEN 'storage' THEN storage_rate WHEN 'up'"  # noqa: S608 - a literal of `MeterName`
        " THEN up_rate WHEN 'down' THEN down_rate ELSE gpu_rate END, m.disk_bytes"
        " FROM rate_segments JOIN metered_instances m USING (instance_id)"
        " WHERE instance_id = %s AND terms_no = %s",
        [name.meter, name.instance_id, name.terms_no],
    ).fetchone()
    if row is None or row[0] == 0:
        return None
    charge = load_charge(connection, str(name))
    # What went back for a quantity is counted on: the parts of a charge add up to all of it.
    before = connection.execute(
        "SELECT coalesce(sum(quantity), 0) FROM corrections WHERE kind = 'reversal'"
        " AND charge = %s",
        [str(name)],
    ).fetchone()
    elsewhere = connection.execute(
        "SELECT coalesce(sum(c.amount), 0) FROM dispute_claims c JOIN disputes d USING (dispute_id)"
        " WHERE c.charge = %s AND d.resolved_at IS NULL AND d.dispute_id IS DISTINCT FROM %s",
        [str(name), dispute_id],
    ).fetchone()
    assert before is not None
    assert elsewhere is not None
    gone, rate, disk_bytes = int(before[0]), int(row[1]), row[2]
    price = _price(name.meter, rate, disk_bytes, gone + quantity) - _price(
        name.meter, rate, disk_bytes, gone
    )
    amount = min(price, charge.charged.remaining - int(elsewhere[0]))
    if amount < 1:
        return None
    return DisputeClaim(
        charge=str(name),
        meter=name.meter,
        seconds=[DisputedSeconds(start=start, until=until) for start, until in ranges],
        quantity=quantity,
        amount=amount,
        fee=reverse(charge.charged, amount).fee,
        charged=charge.charged.amount,
        charged_fee=charge.charged.fee,
    )


def _price(meter: MeterName, rate: int, disk_bytes: int, quantity: int) -> int:
    if meter == "storage":
        return storage_charge(rate, disk_bytes, quantity)
    if meter in {"up", "down"}:
        return bandwidth_charge(rate, quantity)
    return gpu_charge(rate, quantity)


# --- quantities ----------------------------------------------------------------------------------


def quantities_of(
    connection: Connection, instance_id: int, meter: MeterName, ranges: Sequence[Range]
) -> Quantities:
    """Seconds or bytes that were billed in *ranges*, per terms."""
    total: Quantities = {}
    for start, until in ranges:
        first, end = -(-start // SECONDS_PER_HOUR), until // SECONDS_PER_HOUR
        if first < end:
            _add(total, _booked(connection, instance_id, meter, first, end))
        for low, high in _edges(start, until):
            hour = low // SECONDS_PER_HOUR
            booked = _booked(connection, instance_id, meter, hour, hour + 1)
            if booked:
                counted = _counted(connection, instance_id, meter, low, high)
                _add(total, {no: min(n, booked.get(no, 0)) for no, n in counted.items()})
    return {no: quantity for no, quantity in total.items() if quantity > 0}


def _add(total: Quantities, more: Quantities) -> None:
    for terms_no, quantity in more.items():
        total[terms_no] = total.get(terms_no, 0) + quantity


def _edges(start: int, until: int) -> list[tuple[int, int]]:
    """The parts of `[start, until)` that are no whole hour."""
    first = -(-start // SECONDS_PER_HOUR) * SECONDS_PER_HOUR
    last = until // SECONDS_PER_HOUR * SECONDS_PER_HOUR
    if first > last:
        return [(start, until)]
    parts = [(start, first), (last, until)]
    return [(low, high) for low, high in parts if low < high]


def _booked(
    connection: Connection, instance_id: int, meter: MeterName, first: int, end: int
) -> Quantities:
    rows = connection.execute(
        f"SELECT terms_no, sum({meter}_quantity) FROM usage_hours WHERE instance_id = %s"  # noqa: S608 - a literal of `MeterName`
        " AND hour >= %s AND hour < %s GROUP BY terms_no",
        [instance_id, first, end],
    )
    return {terms_no: int(quantity) for terms_no, quantity in rows if quantity}


def _counted(
    connection: Connection, instance_id: int, meter: MeterName, low: int, high: int
) -> Quantities:
    terms = connection.execute(
        "SELECT terms_no, since, until FROM instance_terms WHERE instance_id = %s"
        " AND since < %s AND until > %s AND until > since ORDER BY since",
        [instance_id, high, low],
    ).fetchall()
    if meter in {"storage", "reserved_idle"}:
        kept = _kept(connection, instance_id, low, high, idle=meter == "reserved_idle")
        return {
            no: sum(b - a for a, b in overlap(kept, max(low, since), min(high, until)))
            for no, since, until in terms
        }
    seen = ticks(connection, instance_id, start=low, until=high, limit=_TICKS)
    return {
        no: sum(_of(meter, one) for one in seen if since <= one.second < until)
        for no, since, until in terms
    }


def _of(meter: MeterName, tick: TickView) -> int:
    """What a tick brought to a meter."""
    if not tick.first:
        return 0
    if meter == "gpu":
        return int(tick.state in GPU_BILLABLE and tick.why_not in _GPU_COUNTS)
    if tick.why_not in _NO_BYTES:
        return 0
    return tick.up_bytes if meter == "up" else tick.down_bytes


def _kept(
    connection: Connection, instance_id: int, low: int, high: int, *, idle: bool
) -> list[Range]:
    """Seconds of a life that the machine attested and the disk was there; or no GPU was held."""
    row = connection.execute(
        "SELECT machine_id, created_at, destroyed_at FROM metered_instances WHERE instance_id = %s",
        [instance_id],
    ).fetchone()
    if row is None:
        return []
    first = max(low, row[1])
    end = high if row[2] is None else min(high, row[2])
    attested = [
        Range(start, until)
        for start, until in connection.execute(
            "SELECT start, until FROM machine_coverage WHERE machine_id = %s AND until > %s"
            " AND start < %s ORDER BY start",
            [row[0], first, end],
        )
    ]
    table = "reserved_holds" if idle else "lost_disks"
    without = connection.execute(
        f"SELECT start, coalesce(until, %s) FROM {table} WHERE instance_id = %s ORDER BY start",  # noqa: S608 - two constants
        [high, instance_id],
    ).fetchall()
    kept: list[Range] = []
    for part in overlap(attested, first, end) if first < end else ():
        kept += subtract(part.start, part.end, [(a, b) for a, b in without])
    return kept
