"""Commands about the market: what is offered, which GPUs can be, how an auction went."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple

from cyclopts import Parameter
from cyclopts.validators import Number

from adapters.cli.options import AfterKey, AfterPosition, AsJson, Home, Id, Limit, reading
from ledger.errors import RejectedError

if TYPE_CHECKING:
    from ledger.services.questions.market import AllocationView
    from ledger.services.questions.offer_pages import MarketOffer

Kind = Literal["on_demand", "interruptible", "reserved"]
Disk = Annotated[
    int,
    Parameter(
        name="--disk", help="GB of disk that prices include.", validator=Number(gte=0, lte=10**9)
    ),
]
Order = Annotated[
    str | None,
    Parameter(
        name="--order",
        allow_leading_hyphen=True,
        help="Fields such as dph_total,-score; a minus: large first. Default: score per dollar.",
    ),
]
Unverified = Annotated[
    bool, Parameter(name="--unverified", negative="", help="Unverified machines too.")
]
_PAGE_MAX = 1_000


def offers(
    *conditions: Annotated[
        str,
        Parameter(help="What must hold, such as 'gpu_name=RTX_4090 num_gpus>=2 reliability>0.98'."),
    ],
    kind: Annotated[Kind, Parameter(help="The rental kind that prices are for.")] = "on_demand",
    disk: Disk = 10,
    order: Order = None,
    unverified: Unverified = False,
    taken: Annotated[
        bool, Parameter(name="--taken", negative="", help="Also what is not free now.")
    ] = False,
    fields: Annotated[
        bool, Parameter(name="--fields", negative="", help="List the fields, and search nothing.")
    ] = False,
    after: AfterKey = "",
    limit: Limit = 20,
    home: Home = None,
    json: AsJson = False,
) -> None:
    """Search what can be rented now; quote a condition that holds < or >.

    A text is compared as it is; RTX_4090 finds `RTX 4090` too, and "RTX_4090" in quotes does not.

    Example: gpuledger offers 'gpu_name=RTX_4090 num_gpus>=2' --disk 100 --order dph_total
    """
    from adapters.cli.output import more, print_json, print_rows
    from ledger.services.questions import offer_pages as ask
    from ledger.services.questions.offer_words import parse_filters, parse_order
    from ledger.services.questions.offers import DEFAULT_ORDER, Search

    if fields:
        columns = ["name", "type", "meaning"]
        print_rows(ask.field_list(), columns, as_json=json, title="fields", empty="no fields")
        return
    if limit > _PAGE_MAX:
        raise RejectedError("invalid_args", f"--limit: a page has at most {_PAGE_MAX} offers")
    wish = Search(
        kind=kind,
        disk_gb=disk,
        filters=parse_filters(conditions),
        order=DEFAULT_ORDER if order is None else parse_order(order),
        limit=limit,
        verified_only=not unverified,
        rentable_only=not taken,
    )
    with reading(home) as (ledger, connection):
        found, following = ask.search_page(connection, wish, ledger.clock(), after or None)
    if following is not None:
        more(f"--after {following}")
    if json:
        print_json(found)
        return
    title = f"offers, {kind.replace('_', ' ')}, with {disk} GB"
    print_rows(
        _lines(found),
        [
            *("offer", "gpus", "per_hour", "per_gpu_hour", "score", "per_dollar", "reliability"),
            *("vram", "cpus", "ram", "disk", "down", "up", "country", "ends_in"),
        ],
        as_json=False,
        title=title,
        empty="no offers: try fewer conditions, --unverified or --taken",
    )


class _Line(NamedTuple):
    """An offer as people compare it; numbers are padded so that they stand below each other."""

    offer: str
    gpus: str
    per_hour: str
    per_gpu_hour: str
    score: str
    per_dollar: str
    reliability: str
    vram: str
    cpus: str
    ram: str
    disk: str
    down: str
    up: str
    country: str
    ends_in: str


def _lines(found: list[MarketOffer]) -> list[_Line]:
    columns = list(zip(*map(_cells, found), strict=True))
    padded = [
        [cell.rjust(max(map(len, column))) for cell in column]
        if number not in _LEFT
        else list(column)
        for number, column in enumerate(columns)
    ]
    return [_Line(*cells) for cells in zip(*padded, strict=True)]


_LEFT = {1, 13}
"""The columns of words: what GPUs these are, and where."""


def _cells(one: MarketOffer) -> list[str]:
    return [
        str(one.offer_id),
        f"{one.num_gpus} x {one.gpu_name}",
        _dollars(one.dph_total),
        _dollars(one.dph_per_gpu),
        _number(one.score_effective, 1),
        _number(one.score_per_dollar, 1),
        f"{_number(one.reliability, 4)} ({one.reliability_checks})",
        f"{one.gpu_ram} GB",
        str(one.cpu_cores),
        f"{one.cpu_ram} GB",
        f"{one.disk_space} GB",
        f"{one.inet_down} Mb/s",
        f"{one.inet_up} Mb/s",
        one.country or "-",
        "-" if one.duration is None else f"{one.duration / 86_400:.1f} d",
    ]


def _dollars(nanos: int | None) -> str:
    """An amount with four digits after the point for people; `--json` has every digit."""
    if nanos is None:
        return "-"
    tenths = (nanos + 50_000) // 100_000
    return f"${tenths // 10_000}.{tenths % 10_000:04d}"


def _number(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{value:.{digits}f}"


# --- auctions -------------------------------------------------------------------------------------


def gpus(machine: Id, *, home: Home = None, json: AsJson = False) -> None:
    """List a machine's GPUs: who holds them, and why one cannot be rented.

    Example: gpuledger gpus 4
    """
    from adapters.cli.output import print_rows
    from ledger.services.questions import machines, trust

    with reading(home) as (ledger, connection):
        machines.machine(connection, machine, ledger.clock())
        found = trust.gpus(connection, machine)
    columns = ["slot", "gpu_uuid", "state", "reason", "since", "instance_id"]
    title = f"GPUs of machine {machine}"
    print_rows(found, columns, as_json=json, title=title, empty="no GPUs: it is not enrolled")


def allocations(
    machine: Id,
    *,
    after: AfterPosition = 0,
    limit: Limit = 100,
    home: Home = None,
    json: AsJson = False,
) -> None:
    """List how a machine's auction was decided: who lost and got GPUs, what a place costs since.

    Example: gpuledger allocations 4 --limit 20
    """
    from adapters.cli.output import page, print_json, print_rows
    from ledger.services.questions import machines, market

    with reading(home) as (ledger, connection):
        machines.machine(connection, machine, ledger.clock())
        found = market.allocations(connection, machine, after=after, limit=limit + 1)
    shown = page(found, limit, lambda one: one.position)
    if json:
        print_json(shown)
        return
    columns = ["position", "decided_at", "displaced", "granted", "smallest_bids"]
    title = f"auction of machine {machine}"
    print_rows(
        [_decision(one) for one in shown], columns, as_json=False, title=title, empty="no decisions"
    )


class _Decision(NamedTuple):
    position: int
    decided_at: int
    displaced: str
    granted: str
    smallest_bids: str


def _decision(one: AllocationView) -> _Decision:
    from ledger.domain.money import format_dollars

    granted = [
        f"{each.instance_id} (GPU {', '.join(map(str, each.slots))})" for each in one.granted
    ]
    bids = [
        f"{each.gpus}: {'-' if each.amount is None else format_dollars(each.amount)}"
        for each in one.min_bids
    ]
    return _Decision(
        position=one.position,
        decided_at=one.decided_at,
        displaced=" ".join(map(str, one.displaced)) or "-",
        granted="; ".join(granted) or "-",
        smallest_bids=", ".join(bids) or "-",
    )
