"""Renting, commands and lists over plain HTTP: replays, states, pages, and what is refused."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote

import httpx

from adapters.http.vast.instance_rows import COLUMNS
from ledger.services import listings
from ledger.services.policies.machines import watch_machines
from tests.http.conftest import Api
from tests.support.market import DOLLAR, Market
from tests.vast.captured import CREATE, LAUNCH
from tests.vast.conftest import good_machine

Row = dict[str, Any]
CENT = DOLLAR // 100


def ok(answer: httpx.Response) -> Any:
    """The body of a success: always 200 and exactly this content type."""
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == "application/json"
    return answer.json()


def refused(answer: httpx.Response, status: int, error: str) -> Row:
    """The body of a refusal: always an object with a code and a text."""
    assert answer.status_code == status, answer.text
    body: Row = answer.json()
    assert (body["success"], body["error"]) == (False, error)
    assert isinstance(body["msg"], str)
    assert body["msg"]
    return body


def create(api: Api, offer: int, who: str = "alice", **changes: Any) -> httpx.Response:
    """The captured create, changed."""
    return api(who, "PUT", f"/api/v0/asks/{offer}/", {**CREATE, **changes})


def offer_of(market: Market, machine: int, gpus: int = 1) -> int:
    """The open offer of a slice."""
    row = market.connection.execute(
        "SELECT offer_id FROM open_offers WHERE machine_id = %s AND gpus = %s", [machine, gpus]
    ).fetchone()
    market.connection.commit()
    assert row is not None
    return int(row[0])


def living(market: Market) -> int:
    """How many instances there are."""
    row = market.connection.execute(
        "SELECT count(*) FROM instances WHERE destroyed_at IS NULL"
    ).fetchone()
    market.connection.commit()
    assert row is not None
    return int(row[0])


def show(api: Api, instance: int, who: str = "alice") -> Row | None:
    """One instance as a client reads it."""
    found: Row | None = ok(api(who, "GET", f"/api/v0/instances/{instance}/?owner=me"))["instances"]
    return found


def words(query: Row) -> str:
    """A query as the client writes it: texts as they are, everything else as JSON."""
    return "&".join(
        f"{name}={quote(value if isinstance(value, str) else json.dumps(value))}"
        for name, value in query.items()
    )


def listed(api: Api, who: str = "alice", **query: Any) -> Row:
    """A page of the list."""
    page: Row = ok(api(who, "GET", f"/api/v1/instances/?{words(query)}"))
    return page


# --- renting --------------------------------------------------------------------------------------


def test_create_says_how_it_is_rented(api: Api) -> None:
    """AUC-02, AUC-03, C7, C26, API-06: kind and rates are in the answer; a bid is for the slice."""
    machine = good_machine(api.market, gpus=8)
    made = ok(create(api, offer_of(api.market, machine, 8), price=0.8))
    assert (made["is_bid"], made["rental_type"], made["price"]) == (True, "bid", 0.8)
    assert (made["dph_base"], made["dph_total"]) == (0.8, 0.820833333)
    plain = ok(create(api, offer_of(api.market, machine, 1), price=None, label=None))
    assert (plain["is_bid"], plain["rental_type"], plain["price"]) == (False, "on-demand", None)
    assert "on demand" in plain["msg"]
    assert isinstance(plain["new_contract"], int)


def test_a_repeated_create_is_the_same_instance(api: Api) -> None:
    """IDEM-01, IDEM-02, C21: (account, offer) is one instance as long as it lives, then none."""
    offer = offer_of(api.market, good_machine(api.market, gpus=2), 1)
    first = ok(create(api, offer))
    again = ok(create(api, offer))
    assert (first["replayed"], again["replayed"]) == (False, True)
    assert again == {**first, "replayed": True}
    assert living(api.market) == 1
    refused(create(api, offer, who="carol"), 404, "invalid_args")
    ok(api("alice", "DELETE", f"/api/v0/instances/{first['new_contract']}/"))
    gone = refused(create(api, offer), 404, "invalid_args")
    assert f"error 404/3603: no_such_ask Instance type by id {offer}" in gone["msg"]
    assert gone["ask_id"] == offer
    refused(create(api, offer, cancel_unavail=True), 410, "no_such_ask")


def test_a_second_create_with_the_same_label_is_visible(api: Api) -> None:
    """API-01: whoever rents again by mistake reads of the first one."""
    machine = good_machine(api.market, gpus=2)
    first = ok(create(api, offer_of(api.market, machine, 1)))["new_contract"]
    second = ok(create(api, offer_of(api.market, machine, 1)))
    assert second["same_label"] == [first]
    assert listed(api)["label_counts"] == {"run-42": 2}


REFUSED: tuple[tuple[Row, int, str], ...] = (
    ({"price": 0.09}, 400, "invalid_price"),
    ({"price": 0.0009}, 400, "invalid_price"),
    ({"price": 129}, 400, "invalid_price"),
    ({"price": "much"}, 400, "invalid_price"),
    ({"price": True}, 400, "invalid_price"),
    ({"disk": 10**12}, 400, "invalid_args"),
    ({"disk": -1}, 400, "invalid_args"),
    ({"disk": 3_000}, 400, "invalid_args"),
    ({"image": None}, 400, "invalid_args"),
    ({"label": "x" * 1_025}, 400, "label_too_long"),
    ({"label": "a\x00b"}, 400, "invalid_args"),
    ({"env": "-z 1"}, 400, "invalid_args"),
    ({"env": 7}, 400, "invalid_args"),
    ({"args": "echo"}, 400, "invalid_args"),
    ({"target_state": "dancing"}, 400, "invalid_args"),
    ({"template_hash_id": "abc"}, 404, "no_such_template"),
    ({"volume_info": {"volume_id": 1}}, 400, "invalid_args"),
    ({"volume_info": {"volume_id": 1, "mount_path": "/d"}}, 404, "no_such_volume"),
    ({"env": {"-v /host:/d": "1"}}, 400, "invalid_args"),
    ({"env": {"-p 99999:1": "1"}}, 400, "invalid_args"),
    ({"env": {"-n net": "1"}}, 400, "unsupported"),
    ({"image_login": "-u only"}, 400, "invalid_args"),
)


def test_a_refused_create_leaves_nothing(api: Api) -> None:
    """AUC-01, C6: a refusal names its reason, and neither instance nor charge exists."""
    offer = offer_of(api.market, good_machine(api.market))
    head = api.market.head()
    for changes, status, error in REFUSED:
        refused(create(api, offer, **changes), status, error)
        assert (living(api.market), api.market.head()) == (0, head), changes


def test_without_credit_nothing_is_rented(api: Api) -> None:
    """C22: what an account cannot pay is a 400, and not a 402 as in the native API."""
    offer = offer_of(api.market, good_machine(api.market, gpu_hour=200 * DOLLAR, floor=None))
    refused(create(api, offer, price=None), 400, "insufficient_credit")
    assert living(api.market) == 0


def test_taken_gpus_wait_or_are_refused(api: Api) -> None:
    """AUC-05, C32: without `cancel_unavail` it waits at no GPU charge; with it nothing exists."""
    machine = good_machine(api.market)
    api.market.rent(api.accounts["carol"], machine)
    offer = offer_of(api.market, machine)
    refused(create(api, offer, price=None, cancel_unavail=True), 410, "no_such_ask")
    body = {"image": "i", "target_state": "running"}
    refused(api("alice", "PUT", f"/api/v0/asks/{offer}/", body), 410, "no_such_ask")
    assert living(api.market) == 1
    waiting = ok(create(api, offer, price=None))["new_contract"]
    row = show(api, waiting)
    assert row is not None
    assert (row["actual_status"], row["cur_state"], row["next_state"]) == (
        None,
        "stopped",
        "running",
    )
    assert row["status_msg"].startswith("SCHEDULING: ")
    assert (row["uptime_mins"], row["waiting_seconds"]) == (None, 0)


def test_a_client_that_sends_little(api: Api) -> None:
    """`SyncClient` and dstack name an image and hardly more; the rest has its defaults."""
    machine = good_machine(api.market, gpus=4)
    body = {"image": "i", "disk": 10}
    made = ok(api("alice", "PUT", f"/api/v0/asks/{offer_of(api.market, machine)}", body))
    row = show(api, made["new_contract"])
    assert row is not None
    assert (row["disk_space"], row["image_runtype"], row["extra_env"]) == (10, "ssh", [])
    stopped = {"image": "i", "target_state": "stopped", "env": "-e A='b c' -p 80:80 -h me"}
    made = ok(api("alice", "PUT", f"/api/v0/asks/{offer_of(api.market, machine)}", stopped))
    row = show(api, made["new_contract"])
    assert row is not None
    assert (row["actual_status"], row["extra_env"]) == (
        "stopped",
        [["-h", "me"], ["-p 80:80", "1"], ["A", "b c"]],
    )


def test_bulk_is_per_offer(api: Api) -> None:
    """C39: several offers at once; what fails does not undo the rest, and a repeat adds nothing."""
    machine = good_machine(api.market, gpus=4)
    offers = [offer_of(api.market, machine, gpus) for gpus in (1, 2)]
    body = {**CREATE, "price": None, "ids": [*offers, 999]}
    first = ok(api("alice", "POST", "/api/v0/asks/bulk/", body))
    assert (first["success"], len(first["new_contracts"])) == (False, 2)
    assert [one["ask_id"] for one in first["failed"]] == [999]
    again = ok(api("alice", "POST", "/api/v0/asks/bulk/", body))
    assert again["new_contracts"] == again["replayed"] == first["new_contracts"]
    assert living(api.market) == 2


def test_launch_takes_the_best_that_is_there(api: Api) -> None:
    """A launch rents the first offer found; its repeat is the same instance while it lives."""
    good_machine(api.market, gpu_hour=2 * DOLLAR)
    cheap = good_machine(api.market)
    first = ok(api("alice", "PUT", "/api/v0/launch_instance/", LAUNCH))
    row = show(api, first["new_contract"])
    assert row is not None
    assert (row["machine_id"], row["disk_space"], row["label"]) == (cheap, 32, "run-42")
    again = ok(api("alice", "PUT", "/api/v0/launch_instance/", LAUNCH))
    assert (again["replayed"], again["new_contract"]) == (True, first["new_contract"])
    other = ok(api("alice", "PUT", "/api/v0/launch_instance/", {**LAUNCH, "label": "run-43"}))
    assert other["new_contract"] != first["new_contract"]
    ok(api("alice", "DELETE", f"/api/v0/instances/{first['new_contract']}/"))
    third = ok(api("alice", "PUT", "/api/v0/launch_instance/", LAUNCH))
    assert (third["replayed"], third["new_contract"] > other["new_contract"]) == (False, True)
    nothing = {**LAUNCH, "label": "x", "q": {**LAUNCH["q"], "num_gpus": {"eq": 7}}}
    body = refused(api("alice", "PUT", "/api/v0/launch_instance/", nothing), 404, "no_such_ask")
    assert body["message"] == body["msg"]


# --- commands -------------------------------------------------------------------------------------


def test_commands_are_idempotent_by_state(api: Api) -> None:
    """C18, C39, LIFE-04: start, stop, label, bid and destroy again change nothing and succeed."""
    market = api.market
    machine = good_machine(market)
    instance = ok(create(api, offer_of(market, machine)))["new_contract"]
    path = f"/api/v0/instances/{instance}/"
    for body in ({"state": "stopped"}, {"state": "running"}, {"label": "a"}, {"label": ""}):
        ok(api("alice", "PUT", path, body))
        head = market.head()
        ok(api("alice", "PUT", path, body))
        assert market.head() == head, body
    bid = f"/api/v0/instances/bid_price/{instance}/"
    assert ok(api("alice", "PUT", bid, {"client_id": "me", "price": 0.35}))["price"] == 0.35
    head = market.head()
    ok(api("alice", "PUT", bid, {"client_id": "me", "price": 0.35}))
    assert market.head() == head
    assert ok(api("alice", "PUT", bid, {"client_id": "me", "price": None}))["price"] == 0.1
    refused(api("alice", "PUT", bid, {"price": 32.01}), 400, "invalid_price")
    stop = ok(api("alice", "PUT", "/api/v0/instances/", {"state": "stopped", "ids": [instance]}))
    assert stop["results"][str(instance)]["storage_total_cost"] == 0.020833333, "LIFE-01, C1"
    bodies: tuple[Row | None, ...] = (None, {})
    for sent in bodies:
        ok(api("alice", "DELETE", path, sent))
    head = market.head()
    ok(api("alice", "DELETE", "/api/v0/instances/", {"instance_ids": [instance]}))
    assert market.head() == head
    assert show(api, instance) is None
    refused(api("alice", "PUT", path, {"state": "running"}), 404, "no_such_instance")


def test_what_is_not_ones_own_is_not_there(api: Api) -> None:
    """Somebody else's instance answers as one that never was, in lists and commands alike."""
    instance = ok(create(api, offer_of(api.market, good_machine(api.market))))["new_contract"]
    for number in (instance, 999, 2**63 - 1):
        path = f"/api/v0/instances/{number}/"
        assert show(api, number, "carol") is None
        refused(api("carol", "PUT", path, {"state": "stopped"}), 404, "no_such_instance")
        refused(api("carol", "DELETE", path, {}), 404, "no_such_instance")
        for word in ("reboot", "recycle", "bid_price", "prepay"):
            body = {"amount": 1, "price": 1}
            answer = api("carol", "PUT", f"/api/v0/instances/{word}/{number}/", body)
            refused(answer, 404, "no_such_instance")
        answer = api("carol", "GET", f"/api/v0/instances/balance/{number}/?owner=me")
        refused(answer, 404, "no_such_instance")
    assert listed(api, "carol")["instances"] == []
    bulk = api("carol", "DELETE", "/api/v0/instances/", {"instance_ids": [instance]})
    refused(bulk, 404, "no_such_instance")
    assert living(api.market) == 1


def test_prepaying(api: Api) -> None:
    """Prepaying locks a deposit once in 600 s; without credit it is a 411."""
    market = api.market
    machine = good_machine(market, gpu_hour=DOLLAR)
    offer = offer_of(market, machine)
    instance = ok(create(api, offer, price=None))["new_contract"]
    path = f"/api/v0/instances/prepay/{instance}/"
    refused(api("alice", "PUT", path, {"amount": 5_000}), 411, "insufficient_credit")
    first = ok(api("alice", "PUT", path, {"amount": 50.0}))
    assert (first["discounted_hourly"], first["replayed"]) == (0.973362622, False)
    assert first["timescale"] == round(184_925 / 2_592_000, 9)
    market.clock.move_to(market.clock() + 599)
    again = ok(api("alice", "PUT", path, {"amount": 50.0}))
    assert again == {**first, "replayed": True}
    deposit = ok(api("alice", "GET", f"/api/v0/instances/balance/{instance}/?owner=me"))
    assert deposit["refundable_deposit"] == 50
    market.clock.move_to(market.clock() + 2)
    refused(api("alice", "PUT", path, {"amount": 50.0}), 411, "insufficient_credit")
    row = show(api, instance)
    assert row is not None
    assert (row["rental_type"], row["dph_base"]) == ("reserved", 0.973362622)
    assert row["credit_balance"] == 50


def test_price_increases(api: Api) -> None:
    """PRICE-09, C31: one pending row in dollars per second; a second answer is a 404."""
    market = api.market
    end = market.clock() + 86_400
    machine = good_machine(market, gpus=2, gpu_hour=40 * CENT, until=end)
    instance = ok(create(api, offer_of(market, machine, 2), price=None))["new_contract"]
    for rate in (45, 50):
        with market.ledger.unit() as unit:
            prices = listings.Prices(rate * CENT, 150_000_000, 3_000_000, 2_000_000)
            listings.list_machine(unit, machine, prices, until=end + 86_400)
    path = "/api/v0/instances/pending-price-increases/"
    page = ok(api("alice", "GET", path))
    (row,) = page["pending_price_increases"]
    assert (page["count"], row["contract_id"]) == (1, instance)
    assert (row["old_gpu_costpersec"], row["new_gpu_costpersec"]) == (
        round(0.4 / 3600, 15),
        round(0.5 / 3600, 15),
    )
    assert (row["new_disk_ram_costpersec"], row["new_bwu_cost"]) == (None, None)
    assert (row["contract_end_date"], row["ask_end_date"]) == (end, end + 86_400)
    body = {"pending_price_increase_id": row["pending_price_increase_id"]}
    accept = "/api/v0/instances/accept-price-increase/"
    stale = {"pending_price_increase_id": row["pending_price_increase_id"] - 1}
    refused(api("alice", "PUT", accept, stale), 404, "no_pending_price_increase")
    refused(api("carol", "PUT", accept, body), 404, "no_pending_price_increase")
    assert ok(api("alice", "PUT", accept, body)) == {
        "success": True,
        **body,
        "contract_id": instance,
    }
    for word in ("accept", "reject"):
        answer = api("alice", "PUT", f"/api/v0/instances/{word}-price-increase/", body)
        refused(answer, 404, "no_pending_price_increase")
    shown = show(api, instance)
    assert shown is not None
    assert (shown["dph_base"], shown["end_date"]) == (0.8, end + 86_400)
    assert ok(api("alice", "GET", path))["count"] == 0


# --- reading --------------------------------------------------------------------------------------


def test_a_row_has_every_column_and_no_null_that_clients_trip_over(api: Api) -> None:
    """API-05, API-07, C15, C36: numbers, pairs and objects are there; uptime after the start."""
    market = api.market
    machine = good_machine(market)
    instance = ok(create(api, offer_of(market, machine)))["new_contract"]
    row = show(api, instance)
    assert row is not None
    assert set(row) == COLUMNS
    assert row["start_date"] == market.clock()
    assert row["ports"] == {}
    assert row["extra_env"] == [[name, value] for name, value in sorted(CREATE["env"].items())]
    for name in ("status_msg", "image_runtype", "public_ipaddr", "geolocation", "gpu_name"):
        assert isinstance(row[name], str), name
    for name in ("gpu_util", "disk_space", "dph_total", "inet_up", "duration", "disk_usage"):
        assert isinstance(row[name], int | float), name
    assert (row["uptime_mins"], row["actual_status"]) == (None, "created")
    market.run(machine, [instance], 30, state="loading")
    assert (show(api, instance) or {})["actual_status"] == "loading"
    market.confirm(machine, instance)
    for state in ("running", "frozen", "rebooting"):
        market.run(machine, [instance], 60, state=state)
        row = show(api, instance)
        assert row is not None
        assert (row["actual_status"], row["cur_state"]) == (state, "running")
    assert row["uptime_mins"] == 3
    assert row["start_date"] == market.clock() - 210, "age is not uptime"


def test_silence_shows(api: Api) -> None:
    """A machine silent for a minute makes its instances unknown, for five minutes offline."""
    market = api.market
    machine = good_machine(market)
    instance = ok(create(api, offer_of(market, machine)))["new_contract"]
    market.confirm(machine, instance)
    market.run(machine, [instance], 60)
    for seconds, expected in ((61, "unknown"), (240, "offline")):
        market.clock.move_to(market.clock() + seconds)
        watch_machines(market.ledger)
        row = show(api, instance)
        assert row is not None
        assert (row["actual_status"], row["cur_state"]) == (expected, "running")
        found = listed(api, select_filters={"actual_status": {"in": [expected]}})
        assert found["instances_found"] == 1
        assert listed(api, select_filters={"actual_status": {"eq": "running"}})["instances"] == []


def test_pages_hold_every_row_once(api: Api) -> None:
    """API-08: each page has its size, no row comes twice and none is missed while others arrive."""
    market = api.market
    machine = good_machine(market, gpus=16, gpu_hour=CENT, floor=None)
    made = [
        ok(create(api, offer_of(market, machine), price=None, disk=8, label=label))["new_contract"]
        for label in ("b", None, "a", "b", None, "c", "a")
    ]
    for order, key in (
        ([{"col": "id", "dir": "asc"}], lambda one: one["id"]),
        ([{"col": "id", "dir": "desc"}], lambda one: -one["id"]),
        (
            [{"col": "label", "dir": "asc"}, {"col": "id", "dir": "asc"}],
            lambda one: (one["label"] or "", one["id"]),
        ),
    ):
        seen: list[Row] = []
        token: str | None = ""
        while token is not None:
            more = {"after_token": token} if token else {}
            page = listed(api, limit=3, order_by=order, select_cols=["id", "label"], **more)
            seen += page["instances"]
            token = page["next_token"]
            assert len(page["instances"]) == 3 or token is None
            assert (page["instances_found"], page["total_instances"]) == (7, 7)
        assert {one["id"] for one in seen} == set(made)
        assert len(seen) == 7
        assert seen == sorted(seen, key=key)
    assert listed(api)["label_counts"] == {"": 2, "a": 2, "b": 2, "c": 1}
    unlabelled = listed(api, select_filters={"label": {"in": [None]}})
    assert {one["label"] for one in unlabelled["instances"]} == {None}
    assert unlabelled["instances_found"] == 2
    wanted = {"label": {"in": ["c", None]}, "gpu_name": {"in": ["RTX 4090"]}}
    both = listed(api, select_filters=wanted)
    assert both["instances_found"] == 3
    facets = ok(api("alice", "GET", "/api/v0/instances/filters/"))["filters"]
    assert facets == [
        {"actual_status": "created", "gpu_name": "RTX 4090", "verification": "verified"}
    ]


WRONG_LISTS: tuple[tuple[Row, str], ...] = (
    ({"select_cols": ["no_such"]}, "invalid_request"),
    ({"select_filters": {"no_such": {"eq": 1}}}, "invalid_request"),
    ({"select_filters": {"label": {"like": "x"}}}, "invalid_request"),
    ({"select_filters": {"num_gpus": {"eq": "x"}}}, "invalid_request"),
    ({"order_by": [{"col": "no_such", "dir": "asc"}]}, "invalid_request"),
    ({"after_token": "nonsense"}, "invalid_token"),
    ({"after_token": "WyJhIl0"}, "invalid_token"),
    ({"limit": 0}, "invalid_request"),
    ({"select_filters": "{cut"}, "invalid_args"),
)


def test_a_list_that_cannot_be_meant_is_refused(api: Api) -> None:
    """API-01, C4: a wrong column, operator or token is a 400, never a 200 with nothing in it."""
    for query, error in WRONG_LISTS:
        refused(api("alice", "GET", f"/api/v1/instances/?{words(query)}"), 400, error)


def test_old_and_new_list_agree(api: Api) -> None:
    """API-01, API-02: the old list is served too, with the same rows; a bad key is a 401."""
    market = api.market
    machine = good_machine(market, gpus=2)
    for _ in range(2):
        ok(create(api, offer_of(market, machine), label=None))
    old = ok(api("alice", "GET", "/api/v0/instances?owner=me"))["instances"]
    assert old == listed(api)["instances"]
    for path in ("/api/v0/instances?owner=me", "/api/v1/instances/", "/api/v0/instances/1/"):
        for key in (None, "glk_wrong"):
            refused(api(key, "GET", path), 401, "auth_error")
