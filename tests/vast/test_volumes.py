"""Volumes over plain HTTP: offered, found, made once, mounted, cloned, billed, deleted."""

from __future__ import annotations

from typing import Any

from tests.http.conftest import Api
from tests.support import volumes
from tests.support.market import START
from tests.vast.conftest import good_machine
from tests.vast.test_instances import create, offer_of, ok, refused, show, words

SEARCH: dict[str, Any] = {
    "verified": {"eq": True},
    "external": {"eq": False},
    "disk_space": {"gte": 1, "gt": "50"},
    "order": [["score", "desc"]],
    "allocated_storage": 1.0,
}


def listed(api: Api, machine: int, **more: Any) -> int:
    """Bob offers 100 GB of a machine at $0.10; the offer's id."""
    body = {"size": 100, "machine": machine, "price_disk": 0.1, **more}
    (offer,) = ok(api("bob", "POST", "/api/v0/volumes/", body))["ids"]
    return int(offer)


def search(api: Api, **more: Any) -> list[dict[str, Any]]:
    """What a search without a key finds."""
    found: list[dict[str, Any]] = ok(
        api(None, "POST", "/api/v0/volumes/search/", {**SEARCH, **more})
    )["offers"]
    return found


def test_a_host_offers_and_everybody_finds(api: Api) -> None:
    """Price, size and place are the offer's; filters are numbers or texts; nulls match nothing."""
    machine = good_machine(api.market)
    offer = listed(api, machine)
    (row,) = search(api)
    assert (row["id"], row["machine_id"], row["disk_space"]) == (offer, machine, 100)
    assert (row["storage_cost"], row["geolocation"]) == (0.1, "Sweden, SE")
    met: tuple[dict[str, Any], ...] = (
        {"storage_cost": {"lte": "0.1"}},
        {"geolocation": {"in": ["SE", "NO"]}},
        {"machine_id": {"eq": machine}},
        {"verified": {"eq": "any"}},
    )
    for filters in met:
        assert [one["id"] for one in search(api, **filters)] == [offer], filters
    missed: tuple[dict[str, Any], ...] = (
        {"storage_cost": {"lt": 0.1}},
        {"disk_space": {"gt": 100}},
        {"geolocation": {"eq": "US"}},
        {"no_such": {"eq": 1}},
    )
    for filters in missed:
        assert search(api, **filters) == [], filters
    refused(api(None, "POST", "/api/v0/volumes/search/", {"id": {"like": 1}}), 400, "invalid_args")
    instances = ok(api("alice", "POST", "/api/v0/bundles/", {}))["offers"]
    assert {(one["avail_vol_ask_id"], one["avail_vol_size"]) for one in instances} == {(offer, 100)}
    again = {"machine": machine, "vol_size": 200, "vol_price": 0.2, "price_gpu": 0.36}
    ok(api("bob", "PUT", "/api/v0/machines/create_asks/", again))
    (row,) = search(api)
    assert (row["disk_space"], row["storage_cost"]) == (200, 0.2)
    assert row["id"] != offer
    refused(api("eve", "POST", "/api/v0/volumes/unlist", {"id": row["id"]}), 404, "no_such_volume")
    sold = {"size": 10, "machine": machine, "price_disk": 1}
    refused(api("eve", "POST", "/api/v0/volumes/", sold), 404, "no_such_machine")
    assert ok(api("bob", "POST", "/api/v0/volumes/unlist", {"id": row["id"]}))["msg"]
    assert search(api) == []


def test_a_repeated_create_makes_one_volume(api: Api) -> None:
    """IDEM-01: the same volume within ten minutes is one meter; a deleted one is made anew."""
    offer = listed(api, good_machine(api.market))
    body = {"size": 30, "id": offer, "name": "v1"}
    first = ok(api("alice", "PUT", "/api/v0/volumes/", body))
    again = ok(api("alice", "PUT", "/api/v0/volumes/", body))
    assert (first["replayed"], again["replayed"]) == (False, True)
    assert again["volume_name"] == first["volume_name"] == f"V.{first['id']}"
    other = ok(api("alice", "PUT", "/api/v0/volumes/", {**body, "name": "v2"}))
    assert other["id"] != first["id"]
    full = {**body, "size": 41}
    refused(api("alice", "PUT", "/api/v0/volumes/", full), 410, "no_such_ask")
    refused(api("alice", "PUT", "/api/v0/volumes/", {**body, "id": 99}), 404, "no_such_ask")

    path = f"/api/v0/volumes/?id={first['id']}"
    refused(api("carol", "DELETE", path, {}), 404, "no_such_volume")
    ok(api("alice", "DELETE", path, {}))
    head = api.market.head()
    ok(api("alice", "DELETE", "/api/v0/volumes/", {"id": first["id"]}))
    assert api.market.head() == head
    assert ok(api("alice", "PUT", "/api/v0/volumes/", body))["replayed"] is False
    refused(api("alice", "DELETE", f"{path}", {"id": other["id"]}), 400, "invalid_args")


def test_an_instance_has_its_volumes(api: Api) -> None:
    """A volume is linked by `volume_info` or `-v`, made with the instance, and refused in use."""
    market = api.market
    machine = good_machine(market, gpus=4)
    offer = listed(api, machine)
    made = ok(api("alice", "PUT", "/api/v0/volumes/", {"size": 30, "id": offer}))["id"]
    linked = {"mount_path": "/data", "create_new": False, "volume_id": made}
    one = ok(create(api, offer_of(market, machine), volume_info=linked))
    assert one["volumes"] == [made]
    row = show(api, one["new_contract"])
    assert row is not None
    assert row["volume_info"] == [
        {"id": made, "mount_path": "/data", "avail_space": -1, "total_space": 30}
    ]
    named = {"A": "1", f"-v V.{made}:/mnt": "1"}
    two = ok(create(api, offer_of(market, machine), env=named))
    assert two["volumes"] == [made]
    new = {"mount_path": "/d", "create_new": True, "volume_id": offer, "name": "v"}
    three = ok(create(api, offer_of(market, machine), volume_info=new))
    assert ok(create(api, three["ask_id"], volume_info=new))["volumes"] == three["volumes"]

    found = ok(api("alice", "GET", "/api/v0/volumes?owner=me&type=local_volume"))["volumes"]
    assert [(v["id"], v["disk_space"], v["instances"]) for v in found] == [
        (made, 30, [one["new_contract"], two["new_contract"]]),
        (three["volumes"][0], 15, [three["new_contract"]]),
    ]
    assert {v["start_date"] for v in found} == {START}
    nothing = ok(api("alice", "GET", "/api/v0/volumes?owner=me&type=network_volume"))
    assert nothing["volumes"] == []
    assert ok(api("carol", "GET", "/api/v0/volumes"))["volumes"] == []
    path = f"/api/v0/volumes/?id={made}"
    refused(api("alice", "DELETE", path, {}), 400, "volume_in_use")
    for number in (one["new_contract"], two["new_contract"]):
        ok(api("alice", "DELETE", f"/api/v0/instances/{number}/"))
    ok(api("alice", "DELETE", path, {}))


def test_a_clone_and_its_charges(api: Api) -> None:
    """Clones are contracts of their own; both are rows of type `volume` that add up to the nano."""
    market = api.market
    machine = good_machine(market)
    offer = listed(api, machine)
    source = ok(api("alice", "PUT", "/api/v0/volumes/", {"size": 30, "id": offer}))["id"]
    body = {"src_id": source, "dst_id": offer, "size": 40.0}
    clone = ok(api("alice", "POST", "/api/v0/volumes/copy/", body))
    assert ok(api("alice", "POST", "/api/v0/volumes/copy/", body))["id"] == clone["id"]
    refused(api("carol", "POST", "/api/v0/volumes/copy/", body), 404, "no_such_volume")
    small = {**body, "size": 29}
    refused(api("alice", "POST", "/api/v0/volumes/copy/", small), 400, "invalid_args")
    market.run(machine, [], 3_600)
    market.project()
    asked = words({"select_filters": {"type": {"in": ["volume"]}}})
    page = ok(api("alice", "GET", f"/api/v0/charges/?{asked}"))
    assert [(one["type"], one["source"]) for one in page["results"]] == [
        ("volume", f"volume-{source}"),
        ("volume", f"volume-{clone['id']}"),
    ]
    for row, number in zip(page["results"], (source, clone["id"]), strict=True):
        assert round(row["amount"] * 10**9) == volumes.shown(market, number).storage_charge
        assert [one["type"] for one in row["items"]] == ["disk"]
    only = words({"select_filters": {"type": {"in": ["instance"]}}})
    assert ok(api("alice", "GET", f"/api/v0/charges/?{only}"))["total"] == 0
    assert ok(api("alice", "GET", "/api/v0/charges/"))["total"] == 2
