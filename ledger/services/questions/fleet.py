"""What an account has rented: its living instances with the machines they run on, page by page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import msgspec

from ledger.domain.events import USAGE_REPORTED
from ledger.domain.money import BYTES_PER_GB
from ledger.domain.usage import UNKNOWN_UTILISATION, decode_stored
from ledger.services.questions.conditions import Filters, Order, after, require, where
from ledger.services.questions.equipment import EQUIPMENT, Equipped
from ledger.services.questions.instances import InstanceView, instances_by_id
from ledger.services.questions.offer_fields import Field
from ledger.store.database import Connection
from ledger.store.vault import Vault

LONG_SILENCE_SECONDS: Final = 240
"""How long after it was taken for silent a machine is taken for gone."""


class State(NamedTuple):
    """What the state that an instance shows is made of."""

    status: str
    reason: str
    has_run: bool
    silence: int
    """0: its machine reports; 1: it fell silent; 2: it has been silent for minutes."""


class LastTick(NamedTuple):
    """The last second that the machine's last report attests of an instance."""

    second: int
    state: str
    utilisation: int
    """Per cent; -1: unknown."""


class Rented(Equipped, frozen=True, kw_only=True):
    """An instance and its machine. Sizes in GB, links in Mbit/s; null: not known."""

    instance: InstanceView
    state: State
    wants_run: bool
    running_since: int | None
    """Since when its container runs; null unless it does."""
    launch: str | None
    """Where the launch configuration is kept."""
    last_tick: LastTick | None
    gpu_name: str
    gpu_ram: int
    registered_gpus: int
    machine_cpu_cores: int
    machine_ram: int
    inet_up: int
    inet_down: int
    verification: str
    secure: bool
    reliability: float | None
    reliability_lower_bound: float
    score: float | None
    """Of one GPU."""
    country: str | None
    min_bid: int | None
    """The smallest bid for a slice of this size that would run now; nanos per hour."""
    reserved_discount_max_bp: int


class Fleet(msgspec.Struct, frozen=True, kw_only=True):
    """A page of an account's instances; `after` is null on the last one."""

    rented: list[Rented]
    found: int
    """How many match, on all pages."""
    total: int
    labels: dict[str, int]
    """How many instances have each label; "" stands for none."""
    after: list[Any] | None


_FIELDS: Final = {
    "instance_id": Field("i.instance_id", "whole", ""),
    "machine_id": Field("i.machine_id", "whole", ""),
    "host_id": Field("i.host_id", "whole", ""),
    "label": Field("i.label", "text", ""),
    "gpu_name": Field("m.gpu_name", "text", ""),
    "num_gpus": Field("i.gpus", "whole", ""),
    "verification": Field("s.verification", "text", ""),
    "created_at": Field("i.created_at", "whole", ""),
    "ends_at": Field("i.until", "whole", ""),
    "disk_gb": Field(f"(i.disk_bytes / {BYTES_PER_GB})", "whole", ""),
    "dph_base": Field("i.gpu_rate", "dollars", ""),
    "dph_total": Field(
        "(i.gpu_rate + div(i.storage_rate * i.disk_bytes, 720000000000))", "dollars", ""
    ),
    "is_bid": Field("(i.kind = 'interruptible')", "flag", ""),
    "country": Field("s.country", "text", ""),
    "reliability": Field("s.reliability", "number", ""),
}
_SORTED: Final = {
    "label": "coalesce(i.label, '')",
    "ends_at": "coalesce(i.until, 9223372036854775807)",
    "country": "coalesce(s.country, '')",
    "reliability": "coalesce(s.reliability, -1)",
}
"""How a field that may be null is sorted by."""
_FROM: Final = (
    "FROM instances i JOIN machines m USING (machine_id) JOIN machine_standing s USING (machine_id)"
    " WHERE i.account_id = %(account)s AND i.destroyed_at IS NULL"
)
_SILENCE: Final = (
    "CASE WHEN m.offline_since IS NULL THEN 0"
    f" WHEN m.offline_since + {LONG_SILENCE_SECONDS} > %(now)s THEN 1 ELSE 2 END"
)


def fleet(
    connection: Connection,
    account_id: int,
    now: int,
    *,
    filters: Filters | None = None,
    states: Sequence[State] | None = None,
    order: Order = (),
    last: Sequence[Any] | None = None,
    limit: int = 25,
) -> Fleet:
    """A page of an account's living instances, in *order* and then by id.

    Raises:
        RejectedError: `invalid_args` for a column, operator or token that this list does not have.
    """
    values: dict[str, Any] = {"account": account_id, "now": now, "limit": limit + 1}
    conditions = where(_FIELDS, filters or {}, values)
    if states is not None:
        values |= {f"s{n}": list(column) for n, column in enumerate(zip(*states, strict=True))}
        conditions.append(_IN_STATES if states else "false")
    columns = [(_SORTED.get(name, require(_FIELDS, name).sql), way) for name, way in order]
    if not order or order[-1][0] != "instance_id":
        columns.append(("i.instance_id", "asc"))
    matching = " AND ".join([_FROM, *conditions])
    found = connection.execute(f"SELECT count(*) {matching}", values).fetchone()
    if last is not None:
        matching += " AND " + after(columns, last, values)
    sorts = ", ".join(f"{sql} {way}" for sql, way in columns)
    keys = ", ".join(sql for sql, _ in columns)
    rows = connection.execute(
        f"SELECT {keys}, i.instance_id {matching} ORDER BY {sorts} LIMIT %(limit)s",
        values,
    ).fetchall()
    labels = connection.execute(
        "SELECT coalesce(label, ''), count(*) FROM instances WHERE account_id = %s"
        " AND destroyed_at IS NULL GROUP BY 1 ORDER BY 1",
        [account_id],
    ).fetchall()
    page = rows[:limit]
    assert found is not None
    return Fleet(
        rented=rented(connection, [row[-1] for row in page], now),
        found=found[0],
        total=sum(count for _, count in labels),
        labels=dict(labels),
        after=[_plain(key) for key in page[-1][:-1]] if len(rows) > limit else None,
    )


_IN_STATES: Final = (
    f"(i.status, i.reason, i.first_run_at IS NOT NULL, {_SILENCE}) IN (SELECT * FROM"  # noqa: S608 - own names
    " unnest(%(s0)s::text[], %(s1)s::text[], %(s2)s::boolean[], %(s3)s::int[]))"
)


def _plain(key: Any) -> Any:
    return int(key) if hasattr(key, "is_finite") else key


def facets(connection: Connection, account_id: int, now: int) -> list[tuple[State, str, str]]:
    """Which states, GPU names and verifications an account's living instances have."""
    rows = connection.execute(
        f"SELECT DISTINCT i.status, i.reason, i.first_run_at IS NOT NULL, {_SILENCE},"
        f" m.gpu_name, s.verification {_FROM} ORDER BY 1, 2, 3, 4, 5, 6",
        {"account": account_id, "now": now},
    )
    return [(State(*row[:4]), row[4], row[5]) for row in rows]


_MACHINES: Final = f"""
SELECT i.instance_id, i.status, i.reason, i.first_run_at IS NOT NULL, {_SILENCE}, i.wants_run,
       CASE WHEN i.status = 'running' THEN i.gpu_from END, i.launch, i.machine_id, m.gpu_name,
       m.gpu_ram_gb, m.gpus, m.cpu_cores, m.ram_gb, m.up_mbps, m.down_mbps, s.verification,
       s.secure, s.reliability, s.lower_bound, s.score, s.country, b.amount,
       l.reserved_discount_max_bp, {EQUIPMENT}
FROM instances i JOIN machines m USING (machine_id) JOIN machine_standing s USING (machine_id)
JOIN listings l ON l.listing_id = i.listing_id
LEFT JOIN machine_details d ON d.machine_id = i.machine_id
LEFT JOIN smallest_bids b ON b.machine_id = i.machine_id AND b.gpus = i.gpus
WHERE i.instance_id = ANY(%(ids)s) AND i.destroyed_at IS NULL
"""  # noqa: S608 - own names
_OF_MACHINE: Final = (
    *("gpu_name", "gpu_ram", "registered_gpus", "machine_cpu_cores", "machine_ram", "inet_up"),
    *("inet_down", "verification", "secure", "reliability", "reliability_lower_bound", "score"),
    *("country", "min_bid", "reserved_discount_max_bp", *Equipped.__struct_fields__),
)
"""The columns of `_MACHINES` from `gpu_name` on, as fields of `Rented`."""


def rented(connection: Connection, instance_ids: Sequence[int], now: int) -> list[Rented]:
    """These instances with their machines, in this order; those that do not live are left out."""
    ids = list(instance_ids)
    views = instances_by_id(connection, ids)
    rows = connection.execute(_MACHINES, {"ids": ids, "now": now}).fetchall()
    ticks = _last_ticks(connection, list({row[8] for row in rows}))
    found = {}
    for row in rows:
        of_machine = dict(zip(_OF_MACHINE, row[9:], strict=True))
        smallest = of_machine["min_bid"]
        found[row[0]] = Rented(
            instance=views[row[0]],
            state=State(*row[1:5]),
            wants_run=row[5],
            running_since=row[6],
            launch=row[7],
            last_tick=ticks.get(row[0]),
            **{**of_machine, "min_bid": None if smallest is None else int(smallest)},
        )
    return [found[one] for one in ids if one in found]


def _last_ticks(connection: Connection, machine_ids: list[int]) -> dict[int, LastTick]:
    """What the last report of each machine says at its end of the instances on it."""
    rows = connection.execute(
        "SELECT DISTINCT ON (h.machine_id) e.state, e.topic FROM stream_heads h JOIN events e"
        " ON e.stream_id = h.stream_id AND e.version = h.version WHERE h.machine_id = ANY(%s)"
        " ORDER BY h.machine_id, h.recorded_at DESC",
        [machine_ids],
    )
    found = {}
    for state, topic in rows:
        if topic == USAGE_REPORTED:
            for block in decode_stored(bytes(state)).instances:
                used = block.util[-1]
                found[block.instance] = LastTick(
                    block.start + block.count - 1,
                    block.state[-1][0],
                    -1 if used == UNKNOWN_UTILISATION else used,
                )
    return found


class FromTemplate(NamedTuple):
    """The version of a template that an instance was made from; no name once it was deleted."""

    template_id: int
    hash_id: str
    name: str | None


def templates_of(
    connection: Connection, vault: Vault, instance_ids: Sequence[int]
) -> dict[int, FromTemplate]:
    """The templates of those of some instances that were made from one."""
    rows = connection.execute(
        "SELECT l.instance_id, l.template_id, l.template_hash, v.reference"
        " FROM instance_launches l LEFT JOIN template_versions v ON v.hash_id = l.template_hash"
        " WHERE l.instance_id = ANY(%s) AND l.template_id IS NOT NULL",
        [list(instance_ids)],
    ).fetchall()
    contents = launches(connection, vault, list({row[3] for row in rows if row[3] is not None}))
    return {
        row[0]: FromTemplate(row[1], row[2], contents.get(row[3] or "", {}).get("name"))
        for row in rows
    }


def launches(
    connection: Connection, vault: Vault, references: Sequence[str]
) -> dict[str, dict[str, Any]]:
    """The launch configurations kept under *references*; those that were erased are left out."""
    opened = vault.open_all(connection, [one.rpartition("/")[::2] for one in references])
    return {
        f"{subject}/{name}": msgspec.json.decode(text) for (subject, name), text in opened.items()
    }
