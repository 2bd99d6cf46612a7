"""Lists of these clients: pages while rows arrive, filters that hold, and no silent answer."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any, Final

import pytest

from ledger.services import caps, deposits, transfers
from tests.http.conftest import Api
from tests.support.market import DOLLAR, START
from tests.vast.conftest import good_machine
from tests.vast.test_errors import READS
from tests.vast.test_instances import CENT, create, living, offer_of, ok, refused, words
from tests.vast.test_money import get
from tests.vast.test_search import COMPARE

Row = dict[str, Any]


# --- pages ----------------------------------------------------------------------------------------


def instances(api: Api) -> None:
    """Another instance of Alice's."""
    machine = good_machine(api.market, gpu_hour=CENT)
    api.market.rent(api.accounts["alice"], machine, disk_gb=8)


def movements(api: Api) -> None:
    """Another transfer of Alice's."""
    with api.market.ledger.unit() as unit:
        reference = f"gift-{api.market.head()}"
        transfers.transfer(unit, api.accounts["alice"], api.accounts["bob"], DOLLAR, reference)
    api.market.clock.move_to(api.market.clock() + 1)


def charges(api: Api) -> None:
    """Another instance of Alice's, which cost something today."""
    machine = good_machine(api.market)
    one = api.market.rent(api.accounts["alice"], machine)
    api.market.confirm(machine, one)
    api.market.run(machine, [one], 60)
    api.market.project()


DOWN: Final = {"col": "id", "dir": "desc"}
SINCE: Final = {"select_filters": {"when": {"gte": START}}}
LISTS: Final[tuple[tuple[str, str, Callable[[Api], None], str, Row], ...]] = (
    ("/api/v1/instances/", "instances", instances, "id", {}),
    ("/api/v1/instances/", "instances", instances, "id", {"order_by": [DOWN]}),
    ("/api/v1/invoices/", "results", movements, "description", SINCE),
    ("/api/v1/invoices/", "results", movements, "description", {**SINCE, "latest_first": True}),
    ("/api/v0/charges/", "results", charges, "source", {}),
    ("/api/v0/charges/", "results", charges, "source", {"latest_first": True}),
)


@pytest.mark.parametrize(
    ("path", "name", "arrive", "key", "query"),
    LISTS,
    ids=[f"{one[2].__name__}-{number % 2}" for number, one in enumerate(LISTS)],
)
def test_rows_that_arrive_move_no_page(
    api: Api, path: str, name: str, arrive: Callable[[Api], None], key: str, query: Row
) -> None:
    """API-08: while rows arrive between pages, each row there was comes once; pages keep size."""
    for _ in range(4):
        arrive(api)
    before = {one[key] for one in get(api, path, **query, limit=25)[name]}
    seen: list[Any] = []
    token: str | None = ""
    while token is not None:
        more = {"after_token": token} if token else {}
        page = get(api, path, **query, limit=2, **more)
        seen += [one[key] for one in page[name]]
        token = page["next_token"]
        assert len(page[name]) == 2 or token is None
        if len(seen) < 6:
            arrive(api)
    assert len(seen) == len(set(seen)), "no row twice"
    assert before <= set(seen), "none missing"


# --- filters --------------------------------------------------------------------------------------


@pytest.fixture
def moved(api: Api) -> Api:
    """Money of Alice's that came and went, of several amounts, at several seconds."""
    alice, bob = api.accounts["alice"], api.accounts["bob"]
    for number, amount in enumerate((3 * DOLLAR, 30 * DOLLAR, 5 * CENT)):
        api.market.clock.move_to(START + 10 * number)
        with api.market.ledger.unit() as unit:
            transfers.transfer(unit, alice, bob, amount, f"gift-{number}")
            deposits.deposit(unit, alice, 2 * amount, f"paid-{number}")
    return api


NUMBERS: Final = (
    *("id", "event_id", "when", "paid_on", "payment_expected"),
    *("amount_cents", "amount", "original_amount"),
)


def test_every_number_of_an_invoice_filters(moved: Api) -> None:
    """API-04, C14: each operator finds what it says, by a number and by the same as a text."""
    every = get(moved, "/api/v0/invoices", select_filters={})
    assert len(every) == 7
    for name in NUMBERS:
        values = sorted({one[name] for one in every})
        ends = {values[0], values[-1]}
        asked = [(sign, value) for sign in COMPARE for value in (values[0], values[1], values[-1])]
        for place, (sign, value) in enumerate(asked):
            filters: Row = {name: {sign: str(value) if place % 2 else float(value)}}
            found = get(moved, "/api/v0/invoices", select_filters=filters)
            assert found == [one for one in every if COMPARE[sign](one[name], value)], filters
        for sign, is_in in (("in", True), ("notin", False)):
            filters = {name: {sign: [str(values[0]), float(values[-1])]}}
            found = get(moved, "/api/v0/invoices", select_filters=filters)
            assert found == [one for one in every if (one[name] in ends) == is_in], filters


def test_filters_of_an_invoice_hold_together(moved: Api) -> None:
    """API-04: several on one column or on many all hold, also two names of the same number."""
    every = get(moved, "/api/v0/invoices", select_filters={})
    for filters, holds in (
        ({"when": {"gte": START, "lt": START + 10}}, lambda one: one["when"] < START + 10),
        (
            {"when": {"gte": START + 10}, "paid_on": {"gte": START}},
            lambda one: one["when"] >= START + 10,
        ),
        ({"service": {"neq": "transfer"}}, lambda one: one["service"] != "transfer"),
        (
            {"service": {"eq": "transfer"}, "type": {"in": ["transfer", "credit"]}},
            lambda one: one["service"] == "transfer",
        ),
        (
            {"is_credit": {"eq": "true"}, "amount_cents": {"lt": "1000"}},
            lambda one: one["is_credit"] and one["amount"] < 10,
        ),
        ({"user_id": {"neq": str(moved.accounts["alice"])}}, lambda _: False),
        ({"is_delayed": {"eq": True}}, lambda _: False),
    ):
        found = get(moved, "/api/v0/invoices", select_filters=filters)
        assert found == [one for one in every if holds(one)], filters
    assert Decimal("0.05") in {one["amount"] for one in every}


UNMEANT: Final[tuple[tuple[str, Row], ...]] = (
    ("/api/v0/invoices", {"no_such": {"eq": 1}}),
    ("/api/v0/invoices", {"amount_cents": {"gt": "much"}}),
    ("/api/v0/invoices", {"when": {"gt": "soon"}}),
    ("/api/v0/invoices", {"amount_cents": {"like": 1}}),
    ("/api/v1/invoices/", {"amount": {"gt": 1}}),
    ("/api/v1/invoices/", {"service": {"neq": "transfer"}}),
    ("/api/v1/invoices/", {"when": {"gt": "soon"}}),
    ("/api/v0/charges/", {"amount": {"gt": 1}}),
    ("/api/v0/charges/", {"day": {"near": 1}}),
    ("/api/v0/charges/", {"type": {"neq": "volume"}}),
)


def test_a_filter_that_would_do_nothing_is_refused(moved: Api) -> None:
    """API-01, API-04: a column, operator or value that a list has not is a 400, never ignored."""
    for path, filters in UNMEANT:
        answer = moved("alice", "GET", f"{path}?{words({'select_filters': filters})}")
        assert answer.status_code == 400, (path, filters)
        assert {"error", "msg"} <= answer.json().keys()


# --- the shape of answers -------------------------------------------------------------------------


def test_no_list_answers_a_stranger_with_success(api: Api) -> None:
    """API-01, API-02: without a key, or with a wrong one, each list is a 401 with a text."""
    for path in READS:
        if path != "/api/v0/gpu_names/unique":
            for key in (None, "glk_wrong"):
                refused(api(key, "GET", path), 401, "auth_error")


def test_a_launch_storm_ends_at_the_cap(api: Api) -> None:
    """API-01: whoever sees no instances and rents again and again is stopped by its own cap."""
    machine = good_machine(api.market, gpus=8, floor=None)
    with api.market.ledger.unit() as unit:
        caps.set_caps(unit, api.accounts["alice"], caps.Caps(per_hour=73 * CENT))
    made = []
    for _ in range(5):
        answer = create(api, offer_of(api.market, machine), price=None, disk=8)
        made.append(answer)
    assert [one.status_code for one in made] == [200, 200, 400, 400, 400]
    assert {one.json()["error"] for one in made[2:]} == {"spend_rate_limit"}
    assert ok(made[1])["same_label"] == [ok(made[0])["new_contract"]]
    assert living(api.market) == 2


def test_every_way_to_create_answers_an_object(api: Api) -> None:
    """API-06: what was made and what was refused are objects, never a text, a list or a number."""
    offer = offer_of(api.market, good_machine(api.market))
    for method, path, body in (
        ("PUT", f"/api/v0/asks/{offer}/", {"image": "i"}),
        ("POST", "/api/v0/asks/bulk/", {"image": "i", "ids": [offer]}),
        ("PUT", "/api/v0/launch_instance/", {"image": "i", "q": {}}),
        ("POST", "/api/v0/template/", {"name": "n", "image": "i"}),
        ("POST", "/api/v0/secrets/", {"key": "K", "value": "V"}),
        ("POST", "/api/v0/auth/apikeys/", {"name": "n", "permissions": {"api": {"misc": {}}}}),
        ("PUT", "/api/v0/volumes/", {"id": 1, "size": 1}),
    ):
        for sent in (body, {}, b"[]"):
            answer = api("alice", method, path, sent)
            assert isinstance(answer.json(), dict), (path, sent)
            assert answer.headers["content-type"] == "application/json"


def test_uptime_begins_again_and_age_does_not(api: Api) -> None:
    """API-05, LIFE-10: minutes since the last start, null while it does not run; age goes on."""
    market = api.market
    machine = good_machine(market)
    one = market.rent(api.accounts["alice"], machine)
    path = f"/api/v0/instances/{one}/"

    def shown() -> tuple[int | None, int]:
        row = ok(api("alice", "GET", path))["instances"]
        return row["uptime_mins"], market.clock() - row["start_date"]

    assert shown() == (None, 0)
    market.clock.move_to(START + 60)
    market.confirm(machine, one)
    market.run(machine, [one], 600)
    assert shown() == (10, 660)
    ok(api("alice", "PUT", path, {"state": "stopped"}))
    market.clock.move_to(START + 690)
    assert shown() == (None, 690)
    ok(api("alice", "PUT", path, {"state": "running"}))
    assert shown() == (None, 690)
    market.confirm(machine, one, assignment=2)
    market.run(machine, [one], 60)
    assert shown() == (1, 750)
