"""Reading instances: page by page, all at once for older clients, and one."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, Final, Literal, NoReturn

from litestar import Response
from litestar.params import FromPath

from adapters.http.vast.call import ANYONE, Call, Caller, endpoint
from adapters.http.vast.errors import Refusal
from adapters.http.vast.instance_rows import COLUMNS, Sees, rows
from adapters.http.vast.search import selected
from adapters.http.vast.states import matches, shown, states_with
from adapters.http.vast.wire import Json, answer, keys_of, token, whole
from ledger.errors import NotFoundError, RejectedError
from ledger.services.questions import fleet
from ledger.services.questions import instances as ask
from ledger.services.questions.conditions import Filters
from ledger.services.questions.fleet import Fleet
from ledger.store.database import Connection

_LIMIT: Final = 25
_ALL: Final = 10_000
_FIELDS: Final = {
    "id": "instance_id",
    "machine_id": "machine_id",
    "host_id": "host_id",
    "label": "label",
    "gpu_name": "gpu_name",
    "num_gpus": "num_gpus",
    "verification": "verification",
    "start_date": "created_at",
    "created_at": "created_at",
    "end_date": "ends_at",
    "disk_space": "disk_gb",
    "dph_base": "dph_base",
    "dph_total": "dph_total",
    "is_bid": "is_bid",
    "reliability2": "reliability",
    "geolocation": "country",
}
_TEXTS: Final = frozenset({"label", "gpu_name", "verification", "country"})
_STATUS: Final = "actual_status"
Way = Literal["asc", "desc"]


@endpoint("GET", "/v1/instances", roles=ANYONE, needs="api.instance.list_instances")
async def listed(call: Caller) -> Response[Any]:
    """One's living instances, a page at a time."""
    columns = _columns(call.query("select_cols"))
    filters, wanted = _filters(call.query("select_filters"))
    order = _order(call.query("order_by"))
    limit = _limit(call.query("limit"))
    last = keys_of(call.query_text("after_token"), _key_types(order))

    def find(connection: Connection) -> tuple[Fleet, list[Json]]:
        found = _fleet(connection, call, filters, wanted, order=order, last=last, limit=limit)
        kept = [
            one
            for one in found.rented
            if wanted is None or matches(shown(one.state, one.last_tick).actual, wanted)
        ]
        return found, rows(connection, call.ledger.vault, kept, call.now, _sees(call))

    found, shown_rows = await call.question(find)
    return answer(
        {
            "success": True,
            "instances_found": found.found,
            "total_instances": found.total,
            "label_counts": found.labels,
            "next_token": token(found.after),
            "instances": selected(shown_rows, columns),
        }
    )


def _sees(call: Call) -> Sees:
    """What the native API would show this key of its account's instances.

    A host's key is on machines that others rent: it shows nothing of what its account runs itself.
    """

    def may(name: str, instance_id: int) -> bool:
        return call.role != "host" and call.may(name, instance_id)

    return Sees(
        launch=partial(may, "api.instance.show_launch"),
        connection=partial(may, "api.instance.show_instance"),
    )


def _fleet(
    connection: Connection,
    call: Call,
    filters: Filters,
    wanted: Sequence[str | None] | None,
    **page: Any,
) -> Fleet:
    try:
        return fleet.fleet(
            connection,
            call.account_id,
            call.now,
            filters=filters,
            states=None if wanted is None else states_with(wanted),
            **page,
        )
    except RejectedError as error:
        code = "invalid_request" if error.code == "invalid_args" else error.code
        raise Refusal(400, code, error.message) from error


def _columns(asked: Any) -> list[str] | None:
    if asked is None or asked == ["*"]:
        return None
    if not isinstance(asked, list) or not all(isinstance(one, str) for one in asked):
        _refuse("`select_cols` is a list of names")
    unknown = [one for one in asked if one != "*" and one not in COLUMNS]
    if unknown:
        _refuse(f"an instance has no column `{unknown[0][:40]}`")
    return asked


def _filters(asked: Any) -> tuple[Filters, list[str | None] | None]:
    """Conditions on columns, and the states that are wanted; none: all of them."""
    if asked is None:
        return {}, None
    if not isinstance(asked, dict):
        _refuse("`select_filters` is an object of columns")
    found: dict[str, dict[str, Any]] = {}
    wanted = None
    for name, comparisons in asked.items():
        given = comparisons if isinstance(comparisons, dict) else {"eq": comparisons}
        if name == _STATUS:
            wanted = _statuses(given)
        elif name in _FIELDS:
            found[_FIELDS[name]] = given
        else:
            _refuse(f"instances cannot be filtered by `{name[:40]}`")
    return found, wanted


def _statuses(comparisons: dict[str, Any]) -> list[str | None]:
    found: list[str | None] = []
    for operator, value in comparisons.items():
        given = value if isinstance(value, list) else [value]
        if operator not in {"eq", "in"} or not all(isinstance(one, str | None) for one in given):
            _refuse(f"`{_STATUS}` is compared with `eq` or `in`")
        found += given
    return found


def _order(asked: Any) -> list[tuple[str, Way]]:
    found: list[tuple[str, Way]] = []
    for one in asked if isinstance(asked, list) else []:
        name = one.get("col") if isinstance(one, dict) else None
        if not isinstance(name, str) or name not in _FIELDS:
            _refuse(f"instances cannot be sorted by `{str(name)[:40]}`")
        way: Way = "desc" if str(one.get("dir")).lower() == "desc" else "asc"
        found.append((_FIELDS[name], way))
        if name == "id":
            break  # nothing after a name that no two instances share changes the order
    return found


def _key_types(order: Sequence[tuple[str, Way]]) -> list[type]:
    types: list[type] = [
        str
        if name in _TEXTS
        else float
        if name == "reliability"
        else bool
        if name == "is_bid"
        else int
        for name, _ in order
    ]
    return types if order and order[-1][0] == "instance_id" else [*types, int]


def _limit(asked: Any) -> int:
    if asked is None:
        return _LIMIT
    limit = whole(asked, "limit")
    if limit < 1:
        _refuse("`limit` is 1 to 25")
    return min(limit, _LIMIT)


def _refuse(msg: str) -> NoReturn:
    raise Refusal(400, "invalid_request", msg)


@endpoint("GET", "/v0/instances", roles=ANYONE, needs="api.instance.list_instances")
async def all_at_once(call: Caller) -> Response[Any]:
    """One's living instances without pages, as older clients ask for them."""

    def find(connection: Connection) -> list[Json]:
        found = _fleet(connection, call, {}, None, limit=_ALL)
        return rows(connection, call.ledger.vault, found.rented, call.now, _sees(call))

    return answer({"success": True, "instances": await call.question(find)})


@endpoint(
    "GET", "/v0/instances/{instance_id:int}", roles=ANYONE, needs="api.instance.show_instance"
)
async def one(call: Caller, instance_id: FromPath[int]) -> Response[Any]:
    """One instance; null where it is destroyed, somebody else's, or never was."""

    def find(connection: Connection) -> Json | None:
        try:
            view = ask.instance(connection, instance_id)
        except NotFoundError:
            return None
        if view.account_id != call.account_id:
            return None
        found = fleet.rented(connection, [instance_id], call.now)
        shown_rows = rows(connection, call.ledger.vault, found, call.now, _sees(call))
        return shown_rows[0] if shown_rows else None

    return answer({"instances": await call.question(find)})


@endpoint("GET", "/v0/instances/filters", roles=ANYONE, needs="api.instance.list_instances")
async def facets(call: Caller) -> Response[Any]:
    """Which values one's instances can be filtered by."""
    found = await call.question(
        lambda connection: fleet.facets(connection, call.account_id, call.now)
    )
    filters = [
        {"actual_status": shown(state).actual, "gpu_name": gpu_name, "verification": verification}
        for state, gpu_name, verification in found
    ]
    return answer({"filters": [one for n, one in enumerate(filters) if one not in filters[:n]]})


ENDPOINTS: Sequence[Any] = [listed, all_at_once, one, facets]
