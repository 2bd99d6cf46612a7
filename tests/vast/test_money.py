"""Charges, movements, earnings, transfers, keys and hosts over plain HTTP."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any
from urllib.parse import quote

import msgspec
import pytest

from ledger.services import contracts, deposits, templates, transfers
from ledger.services.questions import balances, usage
from tests.http.conftest import Api
from tests.support.market import DOLLAR, START
from tests.vast.conftest import good_machine
from tests.vast.test_instances import ok, refused, words

Row = dict[str, Any]
CENT = DOLLAR // 100
DAY = 86_400
MIDNIGHT = START - START % DAY


def get(api: Api, path: str, who: str = "alice", **query: Any) -> Any:
    """The exact numbers of an answer."""
    answer = api(who, "GET", f"{path}?{words(query)}")
    ok(answer)
    return msgspec.json.Decoder(float_hook=Decimal).decode(answer.content)


def nanos(value: Any) -> int:
    """Dollars of an answer as whole nanos."""
    scaled = Decimal(value) * DOLLAR
    assert scaled == scaled.to_integral_value()
    return int(scaled)


DESCRIBED = {"machine_details", "machine_standing", "open_offers"}
"""Tables into which `describe` writes what no fact says."""


@pytest.fixture
def used(api: Api) -> Api:
    """Two instances of Alice run over a midnight; one of them is stopped and bid for anew."""
    market = api.market
    market.clock.move_to(MIDNIGHT + DAY - 600)
    machine = good_machine(market, gpus=2, gpu_hour=25 * CENT)
    with market.ledger.unit() as unit:
        content = {"name": "n", "launch": {"image": "i"}}
        template = templates.create(unit, api.accounts["alice"], content)
    first = market.rent(api.accounts["alice"], machine, gpus=1, label="a", template=template)
    second = market.rent(api.accounts["alice"], machine, gpus=1, bid=333_333_333)
    for one in (first, second):
        market.confirm(machine, one)
    market.run(machine, [first, second], 1_800, up=777, down=12_345, report_seconds=300)
    market.project()
    return api


def test_charges_are_the_ledgers_to_the_nano(used: Api) -> None:
    """INV-01, TIME-01, C11, C13, LEDG-03: days of UTC, no zero lines, sums equal to the meters."""
    page = get(used, "/api/v0/charges/", limit=100)
    rows = page["results"]
    assert (page["count"], page["total"], page["next_token"]) == (4, 4, None)
    assert [(one["source"], one["metadata"]["day"]) for one in rows] == [
        ("instance-1", MIDNIGHT),
        ("instance-2", MIDNIGHT),
        ("instance-1", MIDNIGHT + DAY),
        ("instance-2", MIDNIGHT + DAY),
    ]
    assert {one["source"]: one["metadata"]["template_id"] for one in rows} == {
        "instance-1": 1,
        "instance-2": None,
    }
    with used.market.ledger.reading() as connection:
        lines = usage.charges(connection, account_id=used.accounts["alice"])
    expected: dict[tuple[str, str], int] = {}
    for line in lines:
        expected[f"instance-{line.instance_id}", line.item] = line.amount
    found: dict[tuple[str, str], int] = {}
    keys = {"start", "end", "type", "source", "description", "amount", "metadata", "items"}
    for row in rows:
        assert nanos(row["amount"]) == sum(nanos(one["amount"]) for one in row["items"])
        assert set(row) == keys
        for item in row["items"]:
            assert set(item) == keys
            assert item["amount"] > 0
            key = row["source"], item["type"]
            found[key] = found.get(key, 0) + nanos(item["amount"])
    assert found == expected
    with used.market.ledger.reading() as connection:
        balance = balances.balance(connection, used.accounts["alice"], used.market.clock())
    assert sum(found.values()) == balance.charged
    assert {item["metadata"]["rental_type"] for row in rows for item in row["items"]} == {
        "on_demand",
        "interruptible",
    }, "AUC-02: charge lines name the kind"
    assert {item["metadata"]["quantity"] for item in rows[0]["items"] if item["type"] == "bwd"} == {
        600 * 12_345
    }, "PRICE-06, C37: bytes are named"
    tables = used.market.rebuild().tables
    differing = {one.name for one in tables if one.first_difference is not None}
    assert differing <= DESCRIBED, "nothing but what the machine was described with"


def test_windows_pages_and_types_of_charges(used: Api) -> None:
    """API-04, API-08, C14: any second of a day finds the day; pages repeat and miss no row."""
    for first in (MIDNIGHT + DAY, MIDNIGHT + DAY + 5, float(MIDNIGHT + DAY), str(MIDNIGHT + DAY)):
        filters = {"day": {"gte": first, "lte": MIDNIGHT + DAY + 9}}
        rows = get(used, "/api/v0/charges/", select_filters=filters)["results"]
        assert {one["metadata"]["day"] for one in rows} == {MIDNIGHT + DAY}
    for latest_first in (True, False):
        seen: list[Row] = []
        token: str | None = ""
        while token is not None:
            more = {"after_token": token} if token else {}
            page = get(used, "/api/v0/charges/", limit=1, latest_first=latest_first, **more)
            seen += page["results"]
            token = page["next_token"]
            assert (len(page["results"]), page["total"]) == (1, 4)
        every = get(used, "/api/v0/charges/", latest_first=latest_first)["results"]
        assert seen == every
    for types, count in ((["instance"], 4), (["volume"], 0), (["instance", "volume"], 4)):
        page = get(used, "/api/v0/charges/", select_filters={"type": {"in": types}}, format="tree")
        assert (len(page["results"]), page["total"]) == (count, count)
    assert get(used, "/api/v0/charges/", who="carol")["results"] == []
    wrong = quote(json.dumps({"type": {"in": ["x"]}}))
    answer = used("alice", "GET", f"/api/v0/charges/?select_filters={wrong}")
    refused(answer, 400, "invalid_request")
    answer = used("alice", "GET", "/api/v0/charges/?after_token=x")
    refused(answer, 400, "invalid_token")


def test_movements_have_the_signs_of_the_client(api: Api) -> None:
    """INV-01: payments, refunds, transfers, deposits: each has the sign that the client turns."""
    market, alice, bob = api.market, api.accounts["alice"], api.accounts["bob"]
    instance = market.rent(alice, good_machine(market, gpu_hour=DOLLAR))
    with market.ledger.unit() as unit:
        deposits.refund(unit, alice, f"opening-{alice}", 10 * DOLLAR, "back-1")
        transfers.transfer(unit, alice, bob, 5 * DOLLAR, "gift-1")
        transfers.transfer(unit, bob, alice, 2 * DOLLAR, "gift-2")
        contracts.reserve(unit, instance, amount=50 * DOLLAR)
        contracts.unreserve(unit, instance)
    window = {"when": {"gte": START, "lte": market.clock()}}
    page = get(api, "/api/v1/invoices/", select_filters=window)
    assert [
        (one["type"], one["metadata"]["service"], one["amount"]) for one in page["results"]
    ] == [
        ("credit", "stripe_payments", -100),
        ("refund", "stripe_payments", 10),
        ("transfer", "transfer", -5),
        ("transfer", "transfer", 2),
        ("reserved", "instance_prepay", 50),
        ("reserved", "instance_prepay", -50),
    ]
    assert all(isinstance(one["metadata"]["invoice_id"], int) for one in page["results"])
    signs = {"transfer": 1, "payout": 1}
    moved = sum(one["amount"] * signs.get(one["type"], -1) for one in page["results"])
    with market.ledger.reading() as connection:
        available = balances.balance(connection, alice, market.clock()).available
    assert nanos(moved) == available, "opening and movements are what there is"
    one_service = {**window, "service": {"in": ["transfer"]}}
    found = get(api, "/api/v1/invoices/", select_filters=one_service)["results"]
    assert [one["amount"] for one in found] == [-5, 2]
    first = get(api, "/api/v1/invoices/", select_filters=window, limit=4)
    rest = get(
        api, "/api/v1/invoices/", select_filters=window, after_token=first["next_token"], limit=4
    )
    assert first["results"] + rest["results"] == page["results"]


FILTERS: tuple[tuple[Row, int], ...] = (
    ({}, 3),
    ({"amount_cents": {"gt": "3000"}}, 1),
    ({"amount_cents": {"lte": 1_000}}, 2),
    ({"when": {"gt": float(START)}}, 1),
    ({"when": {"lte": str(START)}}, 2),
    ({"is_credit": {"eq": True}}, 1),
    ({"is_credit": {"eq": "false"}}, 2),
    ({"service": {"eq": "transfer"}}, 2),
    ({"paypal_email": {"eq": "x"}}, 0),
    ({"user_id": {"eq": "999"}}, 0),
)


def test_invoice_search_filters(api: Api) -> None:
    """API-04, C14: filters on amount, time and kind work, with numbers sent as text too."""
    alice, bob = api.accounts["alice"], api.accounts["bob"]
    for number, amount in enumerate((10 * DOLLAR, 5 * DOLLAR)):
        with api.market.ledger.unit() as unit:
            transfers.transfer(unit, alice, bob, amount, f"gift-{number}")
        api.market.clock.move_to(START + 10)
    for filters, count in FILTERS:
        rows = get(api, "/api/v0/invoices", select_cols=["*"], select_filters=filters)
        assert len(rows) == count, filters


def test_the_old_list_has_numeric_texts(used: Api) -> None:
    """The deprecated list sums to the same charge; labels are found by `contracts/fetch`."""
    page = get(used, "/api/v0/users/me/invoices", owner="me", sdate=0, inc_charges="true")
    charges = [one for one in page["invoices"] if one["type"] == "charge"]
    total = sum(Decimal(one["amount"]) for one in charges)
    assert total == page["current"]["charges"]
    assert len({one["id"] for one in page["invoices"]}) == len(page["invoices"])
    body = {"label": "a", "contract_ids": [1, 2, 99]}
    found = ok(used("alice", "POST", "/api/v0/contracts/fetch/", body))["contracts"]
    assert [one["id"] for one in found] == [1]
    assert ok(used("carol", "POST", "/api/v0/contracts/fetch/", body))["contracts"] == []


def test_earnings_are_net_of_the_fee(used: Api) -> None:
    """What a host reads of its earnings is what it is owed, per machine and per day alike."""
    page = get(used, "/api/v0/users/me/machine-earnings", who="bob", owner="me", machid="null")
    with used.market.ledger.reading() as connection:
        payable = balances.balance(connection, used.accounts["bob"], used.market.clock())
    parts = ("gpu_earn", "sto_earn", "bwu_earn", "bwd_earn")
    for rows in (page["per_machine"], page["per_day"]):
        assert sum(nanos(row[part]) for row in rows for part in parts) == payable.host_payable
    assert sum(nanos(one) for one in page["summary"].values()) == payable.host_payable
    assert [one["day"] for one in page["per_day"]] == [MIDNIGHT // DAY, MIDNIGHT // DAY + 1]
    day = MIDNIGHT // DAY + 0.5
    one = get(used, "/api/v0/users/me/machine-earnings", who="bob", sday=day, eday=day)
    assert [row["day"] for row in one["per_day"]] == [MIDNIGHT // DAY]
    assert get(used, "/api/v0/users/me/machine-earnings", who="eve")["per_machine"] == []


def test_transfers_are_once_in_ten_minutes(api: Api) -> None:
    """IDEM-03, IDEM-05: the same transfer again is the first; refusals are a 200 with a text."""
    path = "/api/v0/commands/transfer_credit/"
    body = {"sender": "me", "recipient": "bob", "amount": 25.5}
    assert ok(api("alice", "PUT", path, body))["replayed"] is False
    assert ok(api("alice", "PUT", path, body))["replayed"] is True
    by_id = {**body, "recipient": str(api.accounts["carol"]), "amount": "1"}
    assert ok(api("alice", "PUT", path, by_id))["success"] is True
    api.market.clock.move_to(START + 600)
    assert ok(api("alice", "PUT", path, body))["replayed"] is False
    for change, error in (
        ({"recipient": "alice"}, "invalid_recipient"),
        ({"recipient": "nobody"}, "invalid_recipient"),
        ({"amount": 0.001}, "invalid_args"),
        ({"amount": -1}, "invalid_args"),
        ({"amount": None}, "invalid_args"),
        ({"amount": 1_000}, "insufficient_balance"),
    ):
        answer = ok(api("alice", "PUT", path, {**body, **change}))
        assert (answer["success"], answer["error"]) == (False, error)
        assert answer["msg"]
    assert get(api, "/api/v0/users/current", who="bob")["credit"] == 151
    assert get(api, "/api/v0/users/current")["credit"] == 48


def test_who_one_is_and_ones_keys(api: Api) -> None:
    """A key is made, listed without its secret, deleted and reset; none is broader than asked."""
    me = get(api, "/api/v0/users/current")
    assert (me["username"], me["id"], me["host_agreement_accepted"]) == (
        "alice",
        api.accounts["alice"],
        False,
    )
    assert get(api, "/api/v0/users/current", who="bob")["host_agreement_accepted"] is True
    wrong = {"name": "n", "permissions": {"api": {"instances": {}}}}
    refused(api("alice", "POST", "/api/v0/auth/apikeys/", wrong), 400, "invalid_permissions")
    everything = {"name": "n", "permissions": {"api": {one: {} for one in me["rights"]}}}
    made = ok(api("alice", "POST", "/api/v0/auth/apikeys/", everything))
    assert get(api, "/api/v0/users/current", who=made["key"])["id"] == me["id"]
    keys = get(api, "/api/v0/auth/apikeys/")["apikeys"]
    assert made["id"] in {one["id"] for one in keys}
    assert made["key"] not in json.dumps(keys, default=str)
    path = f"/api/v0/auth/apikeys/{made['id']}/"
    assert get(api, path)["id"] == made["id"]
    refused(api("carol", "DELETE", path, {}), 404, "not_found")
    ok(api("alice", "DELETE", path, {}))
    refused(api(made["key"], "GET", "/api/v0/users/current"), 401, "auth_error")
    new = ok(api("alice", "PUT", "/api/v0/commands/reset_apikey/", {"client_id": "me"}))
    refused(api("alice", "GET", "/api/v0/users/current"), 401, "auth_error")
    assert get(api, "/api/v0/subaccounts", who=new["new_api_key"], owner="me") == {"users": []}


def test_hosts_see_and_change_only_their_machines(api: Api) -> None:
    """Listing keeps what is left out; other hosts' machines are not there; contracts stay."""
    market = api.market
    machine = good_machine(market, gpus=4, until=START + 30 * DAY)
    market.rent(api.accounts["alice"], machine, gpus=2)
    market.rent(api.accounts["alice"], machine, gpus=1, bid=DOLLAR)
    (row,) = get(api, "/api/v0/machines", who="bob", owner="me")["machines"]
    assert sorted(row["gpu_occupancy"].split()) == ["D", "D", "I", "x"]
    assert isinstance(row["hostname"], str)
    for path, method, body in (
        ("create_asks", "PUT", {"machine": machine, "price_gpu": 1}),
        (f"{machine}/asks", "DELETE", {}),
        (f"{machine}/minbid", "PUT", {"price": 0.3}),
        (f"{machine}/dnotify", "PUT", {"sdate": START + DAY, "duration": 1}),
        (f"{machine}/cancel_maint", "PUT", {}),
        (f"{machine}/cleanup", "PUT", {}),
        (f"{machine}/force_delete", "POST", {}),
        ("defrag_offers", "PUT", {"machine_ids": [machine]}),
    ):
        answer = api("eve", method, f"/api/v0/machines/{path}/", body)
        refused(answer, 404, "no_such_machine")
        refused(api("alice", method, f"/api/v0/machines/{path}/", body), 403, "not_authorized")
    refused(api("eve", "GET", f"/api/v0/machines/{machine}?owner=me"), 404, "no_such_machine")
    later = {"machine": machine, "end_date": START + 60.0 * DAY, "min_chunk": 1}
    assert ok(api("bob", "PUT", "/api/v0/machines/create_asks/", later))["extended"] == 2
    longer = {"machine": machine, "price_gpu": 9, "duration": "90 days", "min_chunk": 1}
    done = ok(api("bob", "PUT", "/api/v0/machines/create_asks/", longer))
    assert (done["extended"], done["end_date"]) == (1, START + 90 * DAY), (
        "a bid keeps its own price"
    )
    (row,) = get(api, f"/api/v0/machines/{machine}", who="bob", owner="me")
    assert (row["listed_gpu_cost"], row["min_bid_price"], row["listed_storage_cost"]) == (
        9,
        Decimal("0.1"),
        Decimal("0.15"),
    )
    wrong: tuple[Row, ...] = ({"price_gpu": "x"}, {"duration": "soon"}, {"credit_discount_max": 2})
    for change in wrong:
        sent = {"machine": machine, **change}
        assert api("bob", "PUT", "/api/v0/machines/create_asks/", sent).status_code == 400
    refused(
        api("bob", "PUT", "/api/v0/machines/create_asks/", {"machine": machine, "vol_size": 100}),
        400,
        "invalid_price",
    )
    refused(api("bob", "POST", f"/api/v0/machines/{machine}/force_delete/"), 400, "has_contracts")


def test_maintenance_is_scheduled_once(api: Api) -> None:
    """A repeat of a lost answer makes no second window; a category that is not ours is `other`."""
    machine = good_machine(api.market)
    body = {"sdate": START + 8.0 * DAY, "duration": 0.5, "maintenance_category": "moving"}
    path = f"/api/v0/machines/{machine}/"
    assert ok(api("bob", "PUT", path + "dnotify/", body))["replayed"] is False
    assert ok(api("bob", "PUT", path + "dnotify/", body))["replayed"] is True
    rows = get(api, "/api/v0/machines/maintenances", who="bob", machine_ids=[machine, 77])
    assert [(one["duration_hours"], one["maintenance_category"]) for one in rows] == [
        (Decimal("0.5"), "other")
    ]
    for expected in (1, 0):
        cancelled = ok(api("bob", "PUT", path + "cancel_maint/", {"machine_id": machine}))
        assert cancelled["cancelled"] == expected
    refused(api("bob", "PUT", path + "dnotify/", {**body, "duration": -1}), 400, "invalid_args")
    assert get(api, f"/api/v0/machines/{machine}/reports/", who="bob") == []
    metrics = get(api, "/api/v0/metrics/gpu/current/", verified="all", num_gpus="all")["gpus"]
    assert [(one["gpu_name"], one["total"], one["price_median"]) for one in metrics] == [
        ("RTX 4090", 1, Decimal("0.36"))
    ]
