"""What instances cost per UTC day, and what they earned per machine and day."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Literal, NamedTuple

import msgspec

from ledger.domain.money import SECONDS_PER_DAY
from ledger.meters.pricing import METERS
from ledger.store.database import Connection

Contract = Literal["instance", "volume"]
Item = Literal["gpu", "disk", "bwu", "bwd", "reserved_idle"]
_ITEMS: Final[tuple[Item, ...]] = ("gpu", "disk", "bwu", "bwd", "reserved_idle")
_HOURS: Final = 24
_ALL: Final = " + ".join(f"h.{meter}_charge" for meter in METERS)


class ChargeItem(msgspec.Struct, frozen=True, kw_only=True):
    """What one meter of an instance cost in a day under one set of terms; nanos."""

    item: Item
    kind: str
    start: int
    until: int
    rate: int
    quantity: int
    """Seconds (gpu, disk, reserved_idle) or bytes (bwu, bwd)."""
    amount: int


class DayCharge(msgspec.Struct, frozen=True, kw_only=True):
    """What one instance, or volume, cost in one UTC day; `amount` is the sum of its items."""

    instance_id: int
    contract: Contract
    day: int
    """The day's first second."""
    start: int
    until: int
    amount: int
    disk_bytes: int
    label: str | None
    """A volume's name, or an instance's label."""
    template_id: int | None
    """The template that an instance was made from."""
    items: list[ChargeItem]


class ChargeDays(msgspec.Struct, frozen=True, kw_only=True):
    """A page of days; `after` is null on the last one."""

    days: list[DayCharge]
    total: int
    """How many there are on all pages."""
    after: tuple[int, int] | None


_DAYS: Final = f"""
WITH days AS MATERIALIZED (
    SELECT h.instance_id, h.hour / {_HOURS} AS day, min(h.first_second) AS start,
           max(h.until) AS until, sum({_ALL}) AS amount
    FROM usage_hours h WHERE h.account_id = %(account)s
      AND h.hour >= %(first)s AND h.hour < %(end)s
      AND (%(only)s::bigint[] IS NULL OR h.instance_id = ANY(%(only)s))
      AND (%(contract)s::text IS NULL OR (%(contract)s = 'volume')
           = EXISTS (SELECT FROM volumes v WHERE v.volume_id = h.instance_id))
    GROUP BY 1, 2 HAVING sum({_ALL}) > 0
)
SELECT instance_id, day, start, until, amount, (SELECT count(*) FROM days)
FROM days WHERE %(after)s::boolean IS NOT TRUE OR (day, instance_id) {{sign}} (%(day)s, %(id)s)
ORDER BY day {{way}}, instance_id {{way}} LIMIT %(limit)s
"""  # noqa: S608 - constants
_SUMS: Final = ", ".join(f"sum(h.{meter}_quantity), sum(h.{meter}_charge)" for meter in METERS)
_DAY_ITEMS: Final = f"""
SELECT h.instance_id, k.day, s.kind, min(h.first_second), max(h.until), s.gpu_rate, s.storage_rate,
       s.up_rate, s.down_rate, {_SUMS}
FROM unnest(%(ids)s::bigint[], %(days)s::bigint[]) AS k (id, day)
JOIN usage_hours h ON h.instance_id = k.id AND h.hour >= k.day * {_HOURS}
    AND h.hour < (k.day + 1) * {_HOURS}
JOIN rate_segments s USING (instance_id, terms_no)
GROUP BY h.instance_id, k.day, h.terms_no, s.kind, s.gpu_rate, s.storage_rate, s.up_rate,
         s.down_rate
ORDER BY h.instance_id, k.day, h.terms_no
"""  # noqa: S608 - constants


def charge_days(
    connection: Connection,
    account_id: int,
    *,
    first: int = 0,
    last: int | None = None,
    only: Sequence[int] | None = None,
    contract: Contract | None = None,
    latest_first: bool = False,
    after: tuple[int, int] | None = None,
    limit: int = 100,
) -> ChargeDays:
    """Days on which instances cost something, in order of day and instance; no zero lines.

    Args:
        connection: An open connection.
        account_id: Who paid.
        first: A second of the first day.
        last: A second of the last day; none: today and later.
        only: These instances.
        contract: Only what instances cost, or only what volumes do.
        latest_first: The other way round.
        after: The mark of the page before.
        limit: Rows at most.
    """
    end = 2**60 if last is None else (last // SECONDS_PER_DAY + 1) * _HOURS
    rows = connection.execute(
        _DAYS.format(sign="<" if latest_first else ">", way="DESC" if latest_first else "ASC"),
        {
            "account": account_id,
            "first": first // SECONDS_PER_DAY * _HOURS,
            "end": end,
            "only": None if only is None else list(only),
            "contract": contract,
            "after": after is not None,
            "day": 0 if after is None else after[0],
            "id": 0 if after is None else after[1],
            "limit": limit + 1,
        },
    ).fetchall()
    page = rows[:limit]
    more = len(rows) > limit
    about = _about(connection, [row[0] for row in page])
    items = _items_of(connection, [row[:2] for row in page])
    return ChargeDays(
        days=[
            DayCharge(
                instance_id=row[0],
                contract=about[row[0]].contract,
                day=row[1] * SECONDS_PER_DAY,
                start=row[2],
                until=row[3],
                amount=int(row[4]),
                disk_bytes=about[row[0]].disk_bytes,
                label=about[row[0]].label,
                template_id=about[row[0]].template_id,
                items=items.get((row[0], row[1]), []),
            )
            for row in page
        ],
        total=rows[0][5] if rows else 0,
        after=(page[-1][1], page[-1][0]) if more else None,
    )


class _About(NamedTuple):
    contract: Contract
    disk_bytes: int
    label: str | None
    template_id: int | None


def _about(connection: Connection, contract_ids: list[int]) -> dict[int, _About]:
    """What instances and volumes are; their ids come from one sequence."""
    rows = connection.execute(
        "SELECT instance_id, 'instance', disk_bytes, label, template_id FROM instances"
        " LEFT JOIN instance_launches USING (instance_id) WHERE instance_id = ANY(%(ids)s)"
        " UNION ALL SELECT volume_id, 'volume', disk_bytes, name, NULL FROM volumes"
        " WHERE volume_id = ANY(%(ids)s)",
        {"ids": contract_ids},
    )
    return {row[0]: _About(*row[1:]) for row in rows}


def _items_of(
    connection: Connection, keys: Sequence[Sequence[int]]
) -> dict[tuple[int, int], list[ChargeItem]]:
    found: dict[tuple[int, int], list[ChargeItem]] = {}
    for row in connection.execute(
        _DAY_ITEMS, {"ids": [key[0] for key in keys], "days": [key[1] for key in keys]}
    ):
        rates = (*row[5:9], row[5])
        for number, item in enumerate(_ITEMS):
            quantity, amount = int(row[9 + 2 * number]), int(row[10 + 2 * number])
            if amount:
                found.setdefault((row[0], row[1]), []).append(
                    ChargeItem(
                        item=item,
                        kind=row[2],
                        start=row[3],
                        until=row[4],
                        rate=int(rates[number]),
                        quantity=quantity,
                        amount=amount,
                    )
                )
    return found


# --- earnings -------------------------------------------------------------------------------------


class Earned(NamedTuple):
    """What a host kept of one machine's day after the platform's fee, per meter; nanos."""

    machine_id: int
    day: int
    """Days since 1970."""
    gpu: int
    storage: int
    up: int
    down: int
    fee: int
    """What the platform kept of it."""


_EARNED: Final = f"""
SELECT m.machine_id, h.hour / {_HOURS} AS day,
       sum(h.gpu_charge - h.gpu_fee + h.reserved_idle_charge - h.reserved_idle_fee),
       sum(h.storage_charge - h.storage_fee), sum(h.up_charge - h.up_fee),
       sum(h.down_charge - h.down_fee), sum({" + ".join(f"h.{one}_fee" for one in METERS)})
FROM metered_instances m JOIN usage_hours h USING (instance_id)
WHERE m.host_id = %(host)s AND (%(machine)s::bigint IS NULL OR m.machine_id = %(machine)s)
  AND h.hour >= %(first)s AND h.hour < %(end)s
GROUP BY 1, 2 ORDER BY 1, 2
"""  # noqa: S608 - constants


def earnings(
    connection: Connection,
    host_id: int,
    *,
    first_day: int = 0,
    last_day: int | None = None,
    machine_id: int | None = None,
) -> list[Earned]:
    """What a host's machines earned per UTC day, from *first_day* to *last_day* (since 1970)."""
    values: dict[str, Any] = {
        "host": host_id,
        "machine": machine_id,
        "first": first_day * _HOURS,
        "end": 2**60 if last_day is None else (last_day + 1) * _HOURS,
    }
    return [
        Earned(row[0], row[1], *(int(part) for part in row[2:]))
        for row in connection.execute(_EARNED, values)
    ]
