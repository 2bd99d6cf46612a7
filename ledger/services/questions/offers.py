"""The market: a search over every field of the open offers, and what an offer costs exactly.

A search is one query. Where it sorts by price or by score per dollar, it walks an index on the
price without the disk until no later offer can be better, so its time does not grow with the
market: a disk only ever makes an offer dearer.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal

import msgspec

from ledger.domain.money import BYTES_PER_GB
from ledger.errors import NotFoundError, RejectedError
from ledger.meters.pricing import gpu_charge, storage_charge
from ledger.services.questions.equipment import EQUIPMENT, Equipped, equipment
from ledger.services.questions.offer_fields import (
    OPERATORS,
    Field,
    SearchKind,
    fields,
    frontend_fields,
    read_value,
)
from ledger.store.database import Connection

Direction = Literal["asc", "desc"]
DEFAULT_ORDER: Final[tuple[tuple[str, Direction], ...]] = (
    ("score_per_dollar", "desc"),
    ("reliability_lower_bound", "desc"),
    ("dph_total", "asc"),
)
DEFAULT_DISK_GB: Final = 10
MAX_LIMIT: Final = 3_000
_MAX_FILTERS: Final = 64


class Search(msgspec.Struct, frozen=True, kw_only=True):
    """What a renter looks for.

    `filters`: field → operator → value (`eq neq gt gte lt lte in notin`), all of them must hold; a
    null field matches none. `after` are the values of the last row of the page before, in the order
    of `order` and then its id.
    """

    kind: SearchKind = "on_demand"
    disk_gb: int = DEFAULT_DISK_GB
    filters: Mapping[str, Mapping[str, Any]] = {}
    order: Sequence[tuple[str, Direction]] = DEFAULT_ORDER
    limit: int = 64
    after: Sequence[Any] | None = None
    verified_only: bool = True
    rentable_only: bool = True
    for_frontend: bool = False
    """The fields of `frontend_fields` may be named too."""
    renter: int | None = None
    """Whose search it is; none: nobody's in particular."""


class OfferView(Equipped, frozen=True, kw_only=True):
    """An offer, priced for one rental kind and disk. Rates in nanos, sizes in GB, links in Mbit/s.

    `dph_total = dph_base + storage_total`: exactly the first hour's charges at zero traffic.
    """

    offer_id: int
    machine_id: int
    host_id: int
    listing_id: int
    kind: SearchKind
    num_gpus: int
    machine_gpus: int
    gpu_name: str
    gpu_ram: int
    cpu_cores: int
    cpu_ram: int
    machine_cpu_cores: int
    machine_ram: int
    registered_gpus: int
    disk_space: int
    inet_up: int
    inet_down: int
    gpu_rate: int
    gpu_rate_per_gpu: int
    storage_rate: int
    up_rate: int
    down_rate: int
    floor_per_gpu: int | None
    min_bid: int | None
    reserved_rate: int
    reserved_discount_max_bp: int
    disk_gb: int
    dph_base: int | None
    storage_total: int
    dph_total: int | None
    until: int | None
    opened_at: int
    rentable: bool
    bookable: bool
    """Nothing but its tenants keeps the machine from being rented."""
    verification: str
    secure: bool
    reliability: float | None
    reliability_checks: int
    reliability_lower_bound: float
    score: float | None
    score_effective: float | None
    score_per_dollar: float | None
    country: str | None


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """A page of offers; `after` is null on the last one."""

    offers: list[OfferView]
    after: list[Any] | None


def search(connection: Connection, wish: Search, now: int) -> Found:
    """The offers that match, in order; each at most once, and none missing between pages.

    Raises:
        RejectedError: `invalid_args` for an unknown field or operator, or a value of another type.
    """
    rows = _Query(wish, now).rows(connection)
    page, rest = rows[: wish.limit], rows[wish.limit :]
    keys = [list(row) for row in page]
    offers = _shown(connection, [row[-1] for row in page], wish, now)
    return Found(offers=offers, after=keys[-1] if rest else None)


def offer(
    connection: Connection,
    offer_id: int,
    now: int,
    *,
    kind: SearchKind = "on_demand",
    disk_gb: int = DEFAULT_DISK_GB,
    bid: int | None = None,
) -> OfferView:
    """One open offer, priced; with a *bid* (nanos per hour for the slice) at that bid.

    Raises:
        NotFoundError: `no_such_ask` when it is not open.
    """
    wish = Search(kind="interruptible" if bid is not None else kind, disk_gb=disk_gb)
    found = _shown(connection, [offer_id], wish, now, bid=bid)
    if not found:
        raise NotFoundError("no_such_ask", f"there is no open offer {offer_id}")
    return found[0]


def machines_of(connection: Connection, renter: int, machine_ids: Sequence[int]) -> set[int]:
    """Those of these machines on which an account has an instance."""
    rows = connection.execute(
        "SELECT DISTINCT machine_id FROM instances WHERE account_id = %s AND machine_id = ANY(%s)"
        " AND destroyed_at IS NULL",
        [renter, list(machine_ids)],
    )
    return {row[0] for row in rows}


# --- the query ------------------------------------------------------------------------------------


class _Query:
    """One search as SQL: the sort keys and the id of each row, in order, one row more than asked.

    It first walks an index in the order of a bound that no row's key can beat, a few thousand rows
    far. Where that fills the page, only rows whose bound is as good as the page's worst key can
    belong to it, and they are all looked at; where it does not, few rows match, and all of those
    are. These are two questions, so that the planner of the second one knows how far it reaches.
    """

    def __init__(self, wish: Search, now: int) -> None:
        if not 1 <= wish.limit <= MAX_LIMIT:
            raise RejectedError("invalid_args", f"a page has 1 to {MAX_LIMIT} offers")
        if wish.disk_gb < 0:
            raise RejectedError("invalid_args", "a disk has 0 GB or more")
        self.values: dict[str, Any] = {
            "disk": wish.disk_gb,
            "now": now,
            "limit": wish.limit + 1,
            "renter": wish.renter,
        }
        self._wish = wish
        self._fields = fields(wish.kind)
        if wish.for_frontend:
            self._fields |= frontend_fields(wish.kind)
        self._details = self._machines = False
        order = [(self._field(name), direction) for name, direction in wish.order]
        where = self._conditions()
        keys = [field.sql for field, _ in order]
        sorts = [f"{field.sql} {way.upper()} NULLS LAST" for field, way in order]
        if wish.after is not None:
            where.append(self._after(order, wish.after))
        self._keys = [f"{sql} AS k{number}" for number, sql in enumerate(keys)]
        self._where = " AND ".join(where)
        self._sorts = ", ".join([*sorts, "o.offer_id"])
        self._by_alias = ", ".join(
            [*(f"k{n} {way.upper()} NULLS LAST" for n, (_, way) in enumerate(order)), "offer_id"]
        )
        details = " LEFT JOIN machine_details d USING (machine_id)" if self._details else ""
        machines = " JOIN machines m USING (machine_id)" if self._machines else ""
        self._from = f"FROM open_offers o{details}{machines}"

    def rows(self, connection: Connection) -> list[tuple[Any, ...]]:
        """The page and one row more."""
        keys = ", ".join([*self._keys, "o.offer_id"])
        edge = self._edge(connection)
        if edge is None:
            return connection.execute(
                f"SELECT {keys} {self._from} WHERE {self._where}"
                f" ORDER BY {self._sorts} LIMIT %(limit)s",
                self.values,
            ).fetchall()
        # Materialized: sorting what matches is better than following an index until it does.
        return connection.execute(
            f"WITH chosen AS MATERIALIZED (SELECT {keys} {self._from}"  # noqa: S608 - own names only
            f" WHERE {self._where}{edge})"
            f" SELECT * FROM chosen ORDER BY {self._by_alias} LIMIT %(limit)s",
            self.values,
        ).fetchall()

    def _field(self, name: str) -> Field:
        field = self._fields.get(name)
        if field is None:
            close = difflib.get_close_matches(name, self._fields, n=1)
            hint = f"; did you mean `{close[0]}`?" if close else ""
            raise RejectedError("invalid_args", f"an offer has no field `{name}`{hint}")
        self._details |= field.in_details
        self._machines |= field.in_machine
        return field

    def _conditions(self) -> list[str]:
        wish = self._wish
        found = ["(o.until IS NULL OR o.until > %(now)s)", *self._usual()]
        if sum(map(len, wish.filters.values())) > _MAX_FILTERS:
            raise RejectedError("invalid_args", f"a search has at most {_MAX_FILTERS} conditions")
        for name, conditions in wish.filters.items():
            field = self._field(name)
            for operator, value in conditions.items():
                if operator not in OPERATORS:
                    message = f"`{operator}` is no operator: use {' '.join(OPERATORS)}"
                    raise RejectedError("invalid_args", message)
                key = f"v{len(self.values)}"
                self.values[key] = read_value(name, field, operator, value)
                sign = OPERATORS[operator]
                mark = f"(%({key})s)" if operator in {"in", "notin"} else f" %({key})s"
                found.append(f"{field.sql} {sign}{mark}")
                rises = field.bound is not None and field.bound.endswith("_worth")
                if field.bound is not None and operator in (
                    {"gt", "gte"} if rises else {"lt", "lte"}
                ):
                    found.append(f"{field.bound} {sign}{mark}")  # implied, and indexed
        return found

    def _usual(self) -> list[str]:
        """What nearly every search asks for; the indexes on prices have a part for both of them."""
        wish = self._wish
        found = []
        if wish.rentable_only and wish.kind == "interruptible":
            found.append("o.bookable AND o.interruptible_cost IS NOT NULL")
        elif wish.rentable_only:
            found.append("o.rentable")
        if wish.verified_only:
            found.append("o.verified")
        return found

    def _after(self, order: Sequence[tuple[Field, Direction]], after: Sequence[Any]) -> str:
        """Rows that come after the last one of the page before, whatever the directions."""
        if len(after) != len(order) + 1:
            raise RejectedError("invalid_args", "this cursor belongs to another search")
        equal: list[str] = []
        found = []
        for number, ((field, way), value) in enumerate(zip(order, after, strict=False)):
            if value is not None:
                key = f"a{number}"
                self.values[key] = value
                sign = ">" if way == "asc" else "<"
                later = f"({field.sql} {sign} %({key})s OR {field.sql} IS NULL)"
                found.append(" AND ".join([*equal, later]))
                equal.append(f"{field.sql} = %({key})s")
            else:
                equal.append(f"{field.sql} IS NULL")
        self.values["after_id"] = after[-1]
        found.append(" AND ".join([*equal, "o.offer_id > %(after_id)s"]))
        return "(" + " OR ".join(f"({one})" for one in found) + ")"

    def _edge(self, connection: Connection) -> str | None:
        """How far an index must be followed, as a condition; empty where that is all of it.

        None where no index is in the order that is asked for.
        """
        if not self._wish.order:
            return None
        name, way = self._wish.order[0]
        field = self._fields[name]
        bound = field.bound or field.sql
        rises = bound.endswith("_worth")
        if field.bound is None and (way == "asc" or field.sql not in _WALKED):
            return None
        if field.bound is not None and rises != (way == "desc"):
            return None
        sign, worst = ("<=", "max") if way == "asc" else (">=", "min")
        nulls = " NULLS LAST" if field.bound is None else ""
        # A price has the cheapest disk in it at the least, so the bound may be that much lower.
        lowered = f"{worst}(k0) - {_CHEAPEST_DISK}" if name == "dph_total" else f"{worst}(k0)"
        # Only the prices have an index of the usual offers.
        usual = self._usual() if field.bound is not None else []
        there = " AND ".join([f"{bound} IS NOT NULL", *usual])
        near = (
            f"(SELECT * FROM open_offers o WHERE {there}"  # noqa: S608 - own names only
            f" ORDER BY {bound} {way.upper()}{nulls} LIMIT {_WALK})"
        )
        row = connection.execute(
            f"WITH first AS (SELECT {self._keys[0]} {self._from.replace('open_offers', near, 1)}"  # noqa: S608 - own names only
            f" WHERE {self._where} ORDER BY {bound} {way.upper()} LIMIT %(limit)s)"
            f" SELECT count(*) = %(limit)s, {lowered} FROM first",
            self.values,
        ).fetchone()
        assert row is not None
        is_full, self.values["edge"] = row
        if not is_full:
            return ""
        return f" AND {bound} {sign} %(edge)s"


_WALK: Final = 1_500
_CHEAPEST_DISK: Final = "floor((SELECT min(storage_cost) FROM open_offers) * %(disk)s / 720)"
_WALKED: Final = frozenset(
    f"o.{name}"
    for name in (
        *("gpus", "gpu_ram_gb", "cpu_cores", "ram_gb", "disk_gb", "up_mbps", "down_mbps"),
        *("reliability", "lower_bound", "score", "cuda", "ports", "nvlink_gb_s"),
    )
)
"""Columns with an index from the highest down (`ledger.projections.tables.market`)."""


# --- what is shown --------------------------------------------------------------------------------


def _shown(
    connection: Connection,
    offer_ids: Sequence[int],
    wish: Search,
    now: int,
    *,
    bid: int | None = None,
) -> list[OfferView]:
    """The offers with these ids, in this order, priced exactly."""
    rows = connection.execute(_SHOWN, [list(offer_ids), now])
    by_id = {row[0]: _view(row, wish, bid) for row in rows}
    return [by_id[one] for one in offer_ids if one in by_id]


_SHOWN: Final = f"""
SELECT o.offer_id, o.machine_id, o.host_id, o.listing_id, o.gpus, o.machine_gpus, o.gpu_name,
       o.gpu_ram_gb, o.cpu_cores, o.ram_gb, o.disk_gb, o.up_mbps, o.down_mbps, o.gpu_rate,
       o.storage_rate, o.up_rate, o.down_rate, o.floor, o.min_bid, o.reserved_rate,
       o.reserved_discount_max_bp, o.until, o.opened_at, o.rentable, o.verification, o.secure,
       o.reliability, o.checks, o.lower_bound, o.score, o.country, o.bookable, m.cpu_cores,
       m.ram_gb, m.gpus, {EQUIPMENT}
FROM open_offers o JOIN machines m USING (machine_id)
LEFT JOIN machine_details d USING (machine_id)
WHERE o.offer_id = ANY(%s) AND (o.until IS NULL OR o.until > %s)
"""  # noqa: S608 - constants


def _view(row: Sequence[Any], wish: Search, bid: int | None) -> OfferView:
    gpu_rate, storage_rate = int(row[13]), int(row[14])
    min_bid = None if row[18] is None else int(row[18])
    bases = {"on_demand": gpu_rate, "interruptible": min_bid, "reserved": int(row[19])}
    base = bid if bid is not None else bases[wish.kind]
    dph_base = None if base is None else gpu_charge(base, 3_600)
    storage = storage_charge(storage_rate, wish.disk_gb * BYTES_PER_GB, 3_600)
    total = None if dph_base is None else dph_base + storage
    effective = None if row[29] is None else row[29] * row[28]
    return OfferView(
        offer_id=row[0],
        machine_id=row[1],
        host_id=row[2],
        listing_id=row[3],
        kind=wish.kind,
        num_gpus=row[4],
        machine_gpus=row[5],
        gpu_name=row[6],
        gpu_ram=row[7],
        cpu_cores=row[8],
        cpu_ram=row[9],
        machine_cpu_cores=row[32],
        machine_ram=row[33],
        registered_gpus=row[34],
        disk_space=row[10],
        inet_up=row[11],
        inet_down=row[12],
        gpu_rate=gpu_rate,
        gpu_rate_per_gpu=gpu_rate // row[4],
        storage_rate=storage_rate,
        up_rate=int(row[15]),
        down_rate=int(row[16]),
        floor_per_gpu=None if row[17] is None else int(row[17]),
        min_bid=min_bid,
        reserved_rate=int(row[19]),
        reserved_discount_max_bp=row[20],
        disk_gb=wish.disk_gb,
        dph_base=dph_base,
        storage_total=storage,
        dph_total=total,
        until=row[21],
        opened_at=row[22],
        rentable=row[23],
        bookable=row[31],
        verification=row[24],
        secure=row[25],
        reliability=row[26],
        reliability_checks=row[27],
        reliability_lower_bound=row[28],
        score=row[29],
        score_effective=effective,
        score_per_dollar=None if effective is None or not total else effective * 1e9 / total,
        country=row[30],
        **equipment(row[35:]),
    )
