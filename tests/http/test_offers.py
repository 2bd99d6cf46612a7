"""The market over HTTP: every field and operator of the search, pages, quotes, and renting."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import pytest

from ledger.services import deposits, listings, rentals
from ledger.services.questions.offer_fields import OPERATORS, fields
from tests.http.conftest import Api
from tests.support.market import DOLLAR, START
from tests.support.offers import describe, verify

Row = dict[str, Any]
CENT = DOLLAR // 100
COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "eq": operator.eq,
    "neq": operator.ne,
    "gt": operator.gt,
    "gte": operator.ge,
    "lt": operator.lt,
    "lte": operator.le,
    "in": lambda held, values: held in values,
    "notin": lambda held, values: held not in values,
}
TYPES = {name: field.type for name, field in fields("on_demand").items()}


def search(api: Api, **wish: Any) -> list[Row]:
    """All that a search finds on its first page, verified or not."""
    body = {"verified_only": False, "limit": 1_000, **wish}
    answer = api("alice", "POST", "/v1/offers/search", body)
    assert answer.status_code == 200, answer.text
    items: list[Row] = answer.json()["items"]
    return items


def ids(found: list[Row]) -> list[int]:
    """The offers' ids; no id comes twice."""
    shown = [one["offer_id"] for one in found]
    assert len(set(shown)) == len(shown)
    return shown


def comparable(name: str, value: Any) -> Any:
    """What a field holds as something to compare: amounts as nanos."""
    if value is None or TYPES[name] != "dollars":
        return value
    whole, _, fraction = str(value).partition(".")
    return int(whole) * DOLLAR + int(fraction.ljust(9, "0") or 0)


@pytest.fixture
def bazaar(api: Api) -> Api:
    """Six machines that differ in everything that is known of a machine, and some know nothing."""
    market = api.market
    for number in range(6):
        machine = market.machine(
            host=f"host-{number % 2}",
            gpus=(1, 2, 4, 1, 3, 2)[number],
            gpu_hour=(30 + 7 * number) * CENT,
            storage=(10 + number % 3) * CENT,
            up=number * 1_000_000,
            down=(5 - number) * 1_000_000,
            mbps=1_000 * (1 + number),
            floor=None if number == 3 else (5 + number) * CENT,
            until=None if number == 4 else START + 86_400 * (1 + number),
            reserved_discount_max_bp=1_000 * number,
        )
        if number == 5:
            continue  # nothing was measured: its fields are null
        describe(
            market,
            machine,
            verification=("verified", "unverified", "deverified")[number % 3],
            secure=number % 2 == 0,
            reliability=None if number == 1 else 0.9 + number / 100,
            checks=10 * number,
            lower_bound=0.8 + number / 50,
            score=20.5 + number,
            country=("DE", "US", None, "FR", "DE")[number],
            cuda=12.0 + number / 10,
            driver=f"570.{number}",
            driver_number=570_000_000 + number,
            compute_capability=860 + 10 * number,
            cpu_name=("EPYC", "Xeon")[number % 2],
            cpu_ghz=2.5 + number / 10,
            architecture=("x86_64", "aarch64")[number % 2],
            avx=number % 2 == 0,
            disk_name=f"disk {number}",
            disk_mb_s=1_000 * number,
            pcie_gen=3 + number % 3,
            pcie_gb_s=6.5 * number,
            nvlink_gb_s=None if number < 2 else 100.0 * number,
            gpu_memory_gb_s=900.25 + number,
            gpu_power_w=300 + number,
            ports=number,
            static_ip=number % 2 == 1,
            os_version=f"24.{number}",
            mainboard=f"board {number}",
        )
    return api


# --- every field ----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["on_demand", "interruptible", "reserved"])
def test_every_field_is_shown_filtered_and_sorted(bazaar: Api, kind: str) -> None:
    """C14, API-04: each operator on each field finds what a naive look at the answers finds.

    Numbers and amounts may be texts, as they are where bids are searched, and a null matches
    nothing.
    """
    common = {"kind": kind, "disk_gb": 100, "rentable_only": False}
    everything = search(bazaar, order=[["offer_id", "asc"]], **common)
    assert len(ids(everything)) == 12
    for name, kind_of in TYPES.items():
        held = [comparable(name, one[name]) for one in everything]
        known = [one[name] for one in everything if one[name] is not None]
        assert known, name
        pivot = sorted(known, key=lambda one: comparable(name, one))[len(known) // 2]
        for sign, compare in COMPARE.items():
            if kind_of == "flag" and sign not in {"eq", "neq", "in", "notin"}:
                continue
            is_list = sign in {"in", "notin"}
            value = [known[0], pivot] if is_list else pivot
            given = [comparable(name, one) for one in value] if is_list else comparable(name, value)
            expected = [
                one["offer_id"]
                for one, mine in zip(everything, held, strict=True)
                if mine is not None and compare(mine, given)
            ]
            texts = [str(one) for one in value] if is_list else str(value)
            if kind_of == "flag":
                texts = [one.lower() for one in texts] if is_list else str(texts).lower()
            shown = texts if kind == "interruptible" else value
            found = search(
                bazaar, order=[["offer_id", "asc"]], filters={name: {sign: shown}}, **common
            )
            assert ids(found) == expected, (name, sign, shown)
        for way in ("asc", "desc"):
            found = search(bazaar, order=[[name, way]], **common)
            assert ids(found) == ids(_sorted(everything, name, way)), (name, way)


def _sorted(everything: list[Row], name: str, way: str) -> list[Row]:
    """Nulls last whatever the way, then by id."""
    known = [one for one in everything if one[name] is not None]
    values = sorted({comparable(name, one[name]) for one in known}, reverse=way == "desc")
    ranked = [one for value in values for one in known if comparable(name, one[name]) == value]
    return ranked + [one for one in everything if one[name] is None]


def test_the_fields_are_listed(api: Api) -> None:
    """Each field that can be searched has a name, a type and a meaning, and is in each offer."""
    shown = api("alice", "GET", "/v1/offers/fields").json()
    assert {one["name"]: one["type"] for one in shown["fields"]} == TYPES
    assert all(one["meaning"] for one in shown["fields"])
    assert shown["operators"] == list(OPERATORS) == list(COMPARE)
    api.market.machine()
    (offer,) = search(api)
    assert set(TYPES) <= set(offer)


def test_all_conditions_must_hold(bazaar: Api) -> None:
    """Two operators on one field and conditions on others narrow together."""
    filters = {"gpu_ram": {"gte": "24", "lt": 25.5}, "num_gpus": {"in": [1, "2"]}}
    found = search(bazaar, filters={**filters, "country": {"eq": "DE"}}, rentable_only=False)
    assert {(one["num_gpus"], one["country"]) for one in found} == {(1, "DE"), (2, "DE")}


def test_urls_find_what_bodies_find(bazaar: Api) -> None:
    """`where=field:op:value` and `order=a,-b` are the same search as the body."""
    path = (
        "/v1/offers?kind=interruptible&disk_gb=50&verified_only=false"
        "&where=num_gpus:in:1,2&where=dph_total:lte:0.35&where=country:neq:US"
        "&order=-num_gpus,dph_total"
    )
    answer = bazaar("alice", "GET", path)
    assert answer.status_code == 200, answer.text
    assert answer.json()["items"] == search(
        bazaar,
        kind="interruptible",
        disk_gb=50,
        filters={
            "num_gpus": {"in": [1, 2]},
            "dph_total": {"lte": "0.35"},
            "country": {"neq": "US"},
        },
        order=[["num_gpus", "desc"], ["dph_total", "asc"]],
    )
    assert answer.json()["items"]


def test_only_verified_and_rentable_ones_unless_asked(api: Api) -> None:
    """The market is what is verified and can be had now; both can be waived."""
    market = api.market
    free, full, unknown = (market.machine() for _ in range(3))
    for machine in (free, full):
        verify(market, machine)
    market.rent(api.accounts["alice"], full)

    def machines(**wish: bool) -> set[int]:
        return {one["machine_id"] for one in search(api, **wish)}

    assert machines(verified_only=True) == {free}
    assert machines() == {free, unknown}
    assert machines(rentable_only=False) == {free, full, unknown}
    assert {one["machine_id"] for one in api("bob", "GET", "/v1/offers").json()["items"]} == {free}


WRONG: list[tuple[Row, str]] = [
    ({"filters": {"gpu_nam": {"eq": "x"}}}, "did you mean `gpu_name`?"),
    ({"filters": {"dph_totl": {"lt": 1}}}, "did you mean `dph_total`?"),
    ({"order": [["reliabilty", "asc"]]}, "did you mean `reliability`?"),
    ({"filters": {"num_gpus": {"is": 2}}}, "`is` is no operator"),
    ({"filters": {"num_gpus": {"eq": "many"}}}, "compared with a number"),
    ({"filters": {"num_gpus": {"eq": True}}}, "compared with a number"),
    ({"filters": {"gpu_name": {"eq": 4}}}, "compared with a text"),
    ({"filters": {"dph_total": {"lte": "-1"}}}, "not an amount"),
    ({"filters": {"secure": {"eq": "maybe"}}}, "true or false"),
    ({"filters": {"secure": {"eq": [True]}}}, "no text, number or flag"),
    ({"filters": {"secure": {"in": "true"}}}, "give a list"),
    ({"filters": {"num_gpus": {"in": []}}}, "at least one value"),
    ({"filters": {"num_gpus": {"in": list(range(101))}}}, "1 to 100 values"),
    ({"filters": {"gpu_name": {"eq": "a\x00b"}}}, "NUL"),
    ({"order": [["dph_total", "asc"], ["dph_total", "desc"]]}, "different fields"),
    ({"order": [[name, "asc"] for name in list(TYPES)[:9]]}, "at most 8"),
]


@pytest.mark.parametrize(("wish", "told"), WRONG)
def test_a_search_that_cannot_be_meant_is_told_why(still: Api, wish: Row, told: str) -> None:
    """A mistyped field, operator or value is `invalid_args` with a hint, never a list (API-01)."""
    answer = still("alice", "POST", "/v1/offers/search", {"verified_only": False, **wish})
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid_args"), answer.text
    assert told in answer.json()["detail"]


@pytest.mark.parametrize(
    "query",
    [
        "where=num_gpus",
        "where=num_gpus:gte",
        "where=num_gpus:gte:1&where=num_gpus:gte:2",
        "kind=spot",
        "disk_gb=-1",
        "wher=num_gpus:eq:1",
    ],
)
def test_a_url_that_cannot_be_meant_is_400(still: Api, query: str) -> None:
    """A condition without its parts, a kind that is none, a parameter that is none: 400."""
    answer = still("alice", "GET", f"/v1/offers?{query}")
    assert (answer.status_code, answer.json()["code"]) == (400, "invalid_args"), answer.text


# --- pages ----------------------------------------------------------------------------------------


def pages(api: Api, limit: int, between: Callable[[int], None], **wish: Any) -> list[list[Row]]:
    """All pages of a search, with something happening after each of the first ones."""
    found: list[list[Row]] = []
    cursor = None
    while True:
        body = {"verified_only": False, "limit": limit, "cursor": cursor, **wish}
        answer = api("alice", "POST", "/v1/offers/search", body)
        assert answer.status_code == 200, answer.text
        found.append(answer.json()["items"])
        cursor = answer.json()["next_cursor"]
        if cursor is None:
            return found
        assert len(found[-1]) == limit
        between(len(found))


ORDERS: list[list[list[str]]] = [
    [["dph_total", "asc"]],
    [["score_per_dollar", "desc"], ["dph_total", "asc"]],
    [["reliability", "desc"]],
    [["country", "asc"], ["num_gpus", "desc"]],
    [["duration", "asc"]],
    [["duration", "desc"]],
    [["reserved_discount_max", "asc"], ["inet_up_cost", "desc"]],
    [["verified", "desc"], ["nvlink_bw", "asc"]],
    [],
]


@pytest.mark.parametrize("order", ORDERS, ids=str)
def test_pages_while_offers_come_and_go(bazaar: Api, order: list[list[str]]) -> None:
    """API-03, API-08, C12: what stands is shown once, whatever comes, goes, or how time passes."""
    market = bazaar.market
    wish = {"order": order, "rentable_only": False}
    before = ids(search(bazaar, **wish))
    machine = market.machine(host="eve", gpus=16)
    stayed = set(before)

    def between(number: int) -> None:
        if number > 3:
            return
        market.clock.move_to(market.clock() + 7)
        market.rent(bazaar.accounts["alice"], machine, gpus=1, disk_gb=1)  # one goes, one comes
        if number == 2:
            market.machine(host="eve", gpu_hour=CENT)

    shown = [one for page in pages(bazaar, 2, between, **wish) for one in page]
    assert len({one["offer_id"] for one in shown}) == len(shown)
    assert [one["offer_id"] for one in shown if one["offer_id"] in stayed] == before


def test_a_cursor_belongs_to_its_search(bazaar: Api) -> None:
    """Another order, filter, disk or kind with this search's cursor is refused, not guessed."""
    body = {"verified_only": False, "limit": 2}
    cursor = bazaar("alice", "POST", "/v1/offers/search", body).json()["next_cursor"]
    for other in (
        {"order": [["dph_total", "asc"]]},
        {"filters": {"num_gpus": {"gte": 1}}},
        {"disk_gb": 11},
        {"kind": "reserved"},
        {"rentable_only": False},
    ):
        answer = bazaar("alice", "POST", "/v1/offers/search", {**body, **other, "cursor": cursor})
        assert (answer.status_code, answer.json()["code"]) == (400, "invalid_args"), other
    more = bazaar("alice", "POST", "/v1/offers/search", {**body, "limit": 1_000, "cursor": cursor})
    assert len(more.json()["items"]) == 10


# --- prices ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("gpu_hour", "bid", "total"),
    [
        ("0.39", None, "0.410833333"),
        ("0.39", "0.20", "0.220833333"),
        ("1.60", None, "1.620833333"),
        ("0.000000001", None, "0.020833334"),
    ],
)
def test_a_quote_equals_the_first_hour(
    api: Api, gpu_hour: str, bid: str | None, total: str
) -> None:
    """C8, C9, PRICE-01, PRICE-02: quote, search and instance say what the first hour charges."""
    market = api.market
    floor = 1 if gpu_hour.startswith("0.0") else 10 * CENT
    machine = market.machine(
        host="bob", gpu_hour=comparable("dph_total", gpu_hour), up=0, down=0, floor=floor
    )
    (offer,) = search(api, disk_gb=100)
    path = f"/v1/offers/{offer['offer_id']}?disk_gb=100" + (f"&bid={bid}" if bid else "")
    quote = api("alice", "GET", path).json()
    order = {"offer_id": offer["offer_id"], "disk_gb": 100}
    made = api("alice", "POST", "/v1/instances", {**order, "bid": bid} if bid else order).json()
    market.confirm(machine, made["instance_id"])
    market.run(machine, [made["instance_id"]], 3_600)
    market.project()
    charged = sum(
        comparable("dph_total", one["amount"])
        for one in api("alice", "GET", "/v1/charges").json()["items"]
    )
    assert charged == comparable("dph_total", total)
    assert quote["dph_total"] == made["dph_total"] == total
    for one, storage in ((quote, "storage_total"), (made, "storage_rate_per_hour")):
        assert comparable("dph_total", one["dph_base"]) + comparable(
            "dph_total", one[storage]
        ) == comparable("dph_total", one["dph_total"])
    if bid is None:
        assert offer["dph_total"] == total


def test_a_price_is_for_the_requested_disk(api: Api) -> None:
    """C10, PRICE-03: storage is priced by what is asked for, in the search and its filters too."""
    api.market.machine(storage=720_000_000, gpu_hour=DOLLAR)
    for gb in (0, 1, 100, 2_000):
        (offer,) = search(api, disk_gb=gb)
        assert (offer["disk_gb"], offer["disk_space"]) == (gb, 2_000)
        assert offer["storage_total"] == f"{gb / 1_000:g}"
        assert offer["dph_total"] == f"{1 + gb / 1_000:g}"
        at_most = {"dph_total": {"lte": offer["dph_total"]}}
        assert len(search(api, disk_gb=gb, filters=at_most)) == 1
        assert search(api, disk_gb=gb + 1, filters=at_most) == []


def test_traffic_is_never_inside_a_price(api: Api) -> None:
    """PRICE-06: the rates of traffic stand beside the total and do not change it."""
    api.market.machine(up=5_000_000_000, down=7_000_000_000)
    api.market.machine(up=0, down=0)
    dear, free = search(api, order=[["offer_id", "asc"]])
    assert dear["dph_total"] == free["dph_total"]
    assert (dear["inet_up_cost"], dear["inet_down_cost"]) == ("5", "7")


def test_the_rate_of_a_slice_stands_beside_that_of_a_gpu(api: Api) -> None:
    """C25, PRICE-04: an offer of eight GPUs costs eight times one, and that once."""
    api.market.machine(gpus=8, gpu_hour=40 * CENT, floor=10 * CENT)
    shown = {one["num_gpus"]: one for one in search(api, disk_gb=0)}
    assert {number: one["dph_total"] for number, one in shown.items()} == {
        1: "0.4",
        2: "0.8",
        4: "1.6",
        8: "3.2",
    }
    assert {one["dph_per_gpu"] for one in shown.values()} == {"0.4"}
    assert {one["gpu_rate_per_gpu"] for one in shown.values()} == {"0.4"}
    assert shown[8]["min_bid"] == "0.8"


def test_a_reserved_search_uses_a_month(api: Api) -> None:
    """§9: a host that gives 0.4 at most sells a month at 20 % off."""
    api.market.machine(gpu_hour=DOLLAR)
    (offer,) = search(api, kind="reserved", disk_gb=0)
    assert (offer["dph_total"], offer["reserved_rate"]) == ("0.8", "0.8")


def test_where_no_bid_runs_there_is_no_price(api: Api) -> None:
    """A machine without a floor, or rented out on demand, has no interruptible price: null."""
    market = api.market
    market.machine()
    taken = market.machine(floor=CENT)
    market.rent(api.accounts["alice"], taken)
    found = search(api, kind="interruptible", rentable_only=False)
    assert [(one["dph_base"], one["dph_total"], one["min_bid"]) for one in found] == [
        (None, None, None)
    ] * 2
    assert search(api, kind="interruptible") == []


def test_a_quote_is_for_an_open_offer(api: Api) -> None:
    """A taken or unknown offer is 404; a bid is a price of its own kind and well formed."""
    market = api.market
    machine = market.machine(floor=10 * CENT)
    market.rent(api.accounts["alice"], machine)
    for number in (1, 77):
        answer = api("alice", "GET", f"/v1/offers/{number}")
        assert (answer.status_code, answer.json()["code"]) == (404, "no_such_ask")
    for query, status, code in (
        ("bid=x", 422, "invalid_price"),
        ("bid=-1", 422, "invalid_price"),
        ("bid=0.2&kind=on_demand", 400, "invalid_args"),
    ):
        answer = api("alice", "GET", f"/v1/offers/2?{query}")
        assert (answer.status_code, answer.json()["code"]) == (status, code), query


# --- renting from an offer ------------------------------------------------------------------------


def test_searching_interruptible_and_creating_without_a_bid_says_on_demand(api: Api) -> None:
    """C7, AUC-02: the create answer names the kind and all rates, and the charge lines name it."""
    market = api.market
    machine = market.machine(host="bob", gpu_hour=40 * CENT, floor=10 * CENT)
    (offer,) = search(api, kind="interruptible")
    made = api(
        "alice", "POST", "/v1/instances", {"offer_id": offer["offer_id"], "disk_gb": 10}
    ).json()
    assert (made["kind"], made["gpu_rate"], made["bid"]) == ("on_demand", "0.4", None)
    assert made["note"].startswith("On demand at 0.4 per hour for the whole slice")
    assert [made[f"{name}_rate"] for name in ("storage", "up", "down")] == [
        "0.15",
        "0.003",
        "0.002",
    ]
    market.confirm(machine, made["instance_id"])
    market.run(machine, [made["instance_id"]], 60)
    market.project()
    shown = api("alice", "GET", "/v1/charges").json()["items"]
    assert {one["kind"] for one in shown} == {"on_demand"}


def test_a_bid_is_the_price_paid(api: Api) -> None:
    """The create answer of an interruptible rental says that the bid is what is paid."""
    api.market.machine(gpu_hour=40 * CENT, floor=10 * CENT)
    (offer,) = search(api, kind="interruptible")
    body = {"offer_id": offer["offer_id"], "disk_gb": 10, "bid": "0.25"}
    made = api("alice", "POST", "/v1/instances", body).json()
    assert (made["kind"], made["gpu_rate"], made["bid"]) == ("interruptible", "0.25", "0.25")
    assert "bid of 0.25 per hour for the whole slice; the bid is the price paid" in made["note"]


@pytest.mark.parametrize("keyed", [False, True])
def test_a_refused_bid_leaves_nothing(api: Api, keyed: bool) -> None:
    """C6, AUC-01: below the floor or below what would run: an error, no instance, no charge."""
    market = api.market
    machine = market.machine(floor=20 * CENT)
    (offer,) = search(api, kind="interruptible")
    head = market.head()
    body = {"offer_id": offer["offer_id"], "disk_gb": 10, "cancel_unavail": False}
    headers = {"Idempotency_Key": "k"} if keyed else {}
    answer = api("alice", "POST", "/v1/instances", {**body, "bid": "0.199999999"}, **headers)
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid_price")
    assert answer.json()["floor"] == "0.2"
    market.rent(api.accounts["carol"], machine, bid=50 * CENT, disk_gb=10)
    (offer,) = search(api, kind="interruptible")
    assert market.head() > head
    head = market.head()
    body["offer_id"] = offer["offer_id"]
    answer = api("alice", "POST", "/v1/instances", {**body, "bid": "0.5"})
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid_price")
    assert answer.json()["min_bid"] == offer["min_bid"] == "0.500000001"
    assert market.head() == head
    assert api("alice", "GET", "/v1/instances").json()["items"] == []
    assert api("alice", "GET", "/v1/balance").json()["available"] == "100"


def test_a_bid_is_per_slice(api: Api) -> None:
    """C26, AUC-03: 0.90 on eight GPUs is 0.90, in the answer and in the charges, never 7.20."""
    market = api.market
    machine = market.machine(host="bob", gpus=8, floor=10 * CENT, storage=0)
    offers = {one["num_gpus"]: one for one in search(api, kind="interruptible")}
    body = {"offer_id": offers[8]["offer_id"], "disk_gb": 10, "bid": "0.90"}
    made = api("alice", "POST", "/v1/instances", body).json()
    assert (made["gpus"], made["gpu_rate"]) == (8, "0.9")
    market.confirm(machine, made["instance_id"])
    market.run(machine, [made["instance_id"]], 3_600)
    assert market.charges(made["instance_id"])["gpu"] == 90 * CENT
    low = {"offer_id": search(api, rentable_only=False)[-1]["offer_id"], "disk_gb": 1}
    below = api("carol", "POST", "/v1/instances", {**low, "bid": "0.10"})
    assert below.json()["code"] == "invalid_price"


@pytest.mark.parametrize("named", ["offer", "machine"])
def test_cancel_unavail_costs_nothing(api: Api, named: str) -> None:
    """C32, AUC-05: when the GPUs are gone nothing is created, unless the renter wants to wait."""
    market = api.market
    machine = market.machine(host="bob")
    market.rent(api.accounts["carol"], machine)
    (offer,) = search(api, rentable_only=False)
    assert offer["rentable"] is False
    what = {"offer_id": offer["offer_id"]} if named == "offer" else {"machine_id": machine}
    head = market.head()
    answer = api("alice", "POST", "/v1/instances", {**what, "disk_gb": 10})
    assert (answer.status_code, answer.json()["code"]) == (409, "no_capacity")
    assert market.head() == head
    waits = api("alice", "POST", "/v1/instances", {**what, "disk_gb": 10, "cancel_unavail": False})
    assert waits.json()["status"] == "scheduling"
    assert waits.json()["waiting_since"] == "2026-03-01T10:00:00Z"
    assert "It waits for GPUs now; only storage is billed" in waits.json()["note"]


def test_the_same_create_again_is_the_same_instance(api: Api) -> None:
    """C21, IDEM-02: without a key, (account, offer) is the key while the instance lives."""
    api.market.machine()
    (offer,) = search(api)
    body = {"offer_id": offer["offer_id"], "disk_gb": 10}
    first = api("alice", "POST", "/v1/instances", body).json()
    again = api("alice", "POST", "/v1/instances", body).json()
    assert again == {**first, "replayed": True}
    for person, headers in (("carol", {}), ("alice", {"Idempotency_Key": "k"})):
        taken = api(person, "POST", "/v1/instances", body, **headers)
        assert (taken.status_code, taken.json()["code"]) == (422, "no_such_ask"), person
    api("alice", "DELETE", f"/v1/instances/{first['instance_id']}")
    gone = api("alice", "POST", "/v1/instances", body)
    assert (gone.status_code, gone.json()["code"]) == (422, "no_such_ask")
    assert len(api("alice", "GET", "/v1/instances").json()["items"]) == 1


def test_a_second_create_with_the_same_label_is_visible(api: Api) -> None:
    """API-01: the answer names one's other living instances with this label, and nobody else's."""
    market = api.market
    machine = market.machine(gpus=4)

    def create(who: str, label: str | None) -> Row:
        body = {"machine_id": machine, "gpus": 1, "disk_gb": 10, "label": label}
        made: Row = api(who, "POST", "/v1/instances", body).json()
        return made

    first, other, unnamed = create("alice", "job"), create("carol", "job"), create("alice", None)
    assert (first["same_label"], other["same_label"], unnamed["same_label"]) == ([], [], [])
    assert create("alice", "job")["same_label"] == [first["instance_id"]]
    api("alice", "DELETE", f"/v1/instances/{first['instance_id']}")
    number = create("alice", "job")
    assert number["same_label"] == [first["instance_id"] + 3]


def test_nothing_named_is_400(api: Api) -> None:
    """A create names an offer or a machine, and both together must agree."""
    machine = api.market.machine()
    answer = api("alice", "POST", "/v1/instances", {"disk_gb": 10})
    assert (answer.status_code, answer.json()["code"]) == (400, "invalid_args")
    body = {"offer_id": 1, "machine_id": machine + 1, "disk_gb": 10}
    answer = api("alice", "POST", "/v1/instances", body)
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid_args")


def test_an_offer_of_an_ended_listing_is_gone(api: Api) -> None:
    """From its end date on a listing is neither found, nor quoted, nor rented."""
    market = api.market
    market.machine(until=START + 60)
    (offer,) = search(api)
    assert offer["duration"] == 60
    market.clock.move_to(START + 60)
    assert search(api, rentable_only=False) == []
    assert api("alice", "GET", f"/v1/offers/{offer['offer_id']}").status_code == 404
    answer = api("alice", "POST", "/v1/instances", {"offer_id": offer["offer_id"], "disk_gb": 1})
    assert (answer.status_code, answer.json()["code"]) == (422, "no_such_ask")


# --- the auction's history ------------------------------------------------------------------------


def test_the_decisions_of_an_auction_can_be_read(api: Api) -> None:
    """Who lost and got GPUs and what a place costs since, page by page in the log's order."""
    market = api.market
    machine = market.machine(host="bob", floor=10 * CENT)
    first = market.rent(api.accounts["alice"], machine, bid=20 * CENT)
    market.clock.move_to(START + 10)
    second = market.rent(api.accounts["carol"], machine, bid=30 * CENT)
    market.clock.move_to(START + 20)
    with market.ledger.unit() as unit:
        rentals.destroy(unit, second)
    path = f"/v1/machines/{machine}/allocations"
    shown = api("alice", "GET", path).json()["items"]
    assert [
        (one["decided_at"][-3:-1], one["displaced"], [row["instance_id"] for row in one["granted"]])
        for one in shown
    ] == [
        ("00", [], []),
        ("00", [], [first]),
        ("10", [first], [second]),
        ("20", [], [first]),
    ]
    assert [one["min_bids"] for one in shown] == [
        [{"gpus": 1, "amount": amount}] for amount in ("0.1", "0.200000001", "0.300000001")
    ] + [[{"gpus": 1, "amount": "0.200000001"}]]
    assert shown[1]["granted"] == [{"instance_id": first, "slots": [0]}]
    positions = [one["position"] for one in shown]
    assert positions == sorted(positions)
    paged: list[Row] = []
    cursor = ""
    while True:
        page = api("bob", "GET", f"{path}?limit=1{cursor}").json()
        paged += page["items"]
        if page["next_cursor"] is None:
            break
        cursor = f"&cursor={page['next_cursor']}"
    assert paged == shown


def test_an_auction_is_seen_where_its_machine_is(api: Api) -> None:
    """A machine that is not offered shows its auction to its host, auditors and admins only."""
    market = api.market
    machine = market.machine(host="bob", floor=CENT)
    path = f"/v1/machines/{machine}/allocations"
    for person in ("alice", "eve", "bob", "audrey", "root"):
        assert api(person, "GET", path).status_code == 200, person
    with market.ledger.unit() as unit:
        listings.unlist_machine(unit, machine)
    for person, status in (("alice", 404), ("eve", 404), ("bob", 200), ("audrey", 200)):
        assert api(person, "GET", path).status_code == status, person


def test_what_was_rented_over_http_is_rebuilt(api: Api) -> None:
    """Bids, waits and displacements that came over HTTP give the same tables when replayed."""
    market = api.market
    machine = market.machine(host="bob", gpus=2, floor=10 * CENT)
    body = {"machine_id": machine, "gpus": 1, "disk_gb": 10}
    made = [
        api("alice", "POST", "/v1/instances", {**body, "bid": bid}).json()["instance_id"]
        for bid in ("0.2", "0.3")
    ]
    assert api("carol", "POST", "/v1/instances", {**body, "bid": "0.25"}).status_code == 201
    for one in made:
        market.confirm(machine, one, assignment=1)
    market.run(machine, [made[1]], 60)
    api("alice", "PUT", f"/v1/instances/{made[0]}/bid", {"price": None})
    market.run(machine, [made[1]], 60)
    with market.ledger.unit() as unit:
        deposits.deposit(unit, api.accounts["alice"], DOLLAR, "later")
    assert market.rebuild().equal
