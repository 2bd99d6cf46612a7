"""Volumes over the API: offer, find, create, mount, clone, delete."""

from __future__ import annotations

from typing import Any

import pytest

from ledger.services import rentals
from tests.http.conftest import Api
from tests.support.market import START


@pytest.fixture
def machine(api: Api) -> int:
    """A listed machine of bob's."""
    return api.market.machine(host="bob")


def offered(api: Api, machine: int, **more: Any) -> int:
    """Bob offers 500 GB for volumes; returns the offer's id."""
    body = {"disk_gb": 500, "storage_gb_month": "0.10", **more}
    answer = api("bob", "PUT", f"/v1/machines/{machine}/volume-offer", body)
    assert answer.status_code == 200, answer.text
    return int(answer.json()["volume_offer_id"])


def created(api: Api, offer: int, **more: Any) -> dict[str, Any]:
    """A volume of alice's."""
    body = {"volume_offer_id": offer, "disk_gb": 30, "name": "datasets", **more}
    answer = api("alice", "POST", "/v1/volumes", body)
    assert answer.status_code == 201, answer.text
    shown: dict[str, Any] = answer.json()
    return shown


def test_a_volume_says_what_it_costs_and_until_when(api: Api, machine: int) -> None:
    """The answer of a create has the rate, its cost per hour, the end date and the size."""
    volume = created(api, offered(api, machine, until="2026-06-01T00:00:00Z"))
    assert volume == {
        "volume_id": 1,
        "account_id": api.accounts["alice"],
        "machine_id": machine,
        "volume_offer_id": 1,
        "name": "datasets",
        "disk_bytes": 30_000_000_000,
        "storage_rate": "0.1",
        "storage_rate_per_hour": "0.004166666",
        "until": "2026-06-01T00:00:00Z",
        "status": "active",
        "cloned_from": None,
        "offline_since": None,
        "instances": [],
        "created_at": "2026-03-01T10:00:00Z",
        "destroyed_at": None,
        "storage_seconds": 0,
        "storage_charge": "0",
    }
    assert api("alice", "GET", "/v1/volumes/1").json() == volume
    assert api("alice", "GET", "/v1/volumes").json()["items"] == [volume]
    assert api("bob", "GET", "/v1/volumes").json()["items"] == [volume]


def test_an_instance_names_its_volumes_and_they_name_it(api: Api, machine: int) -> None:
    """One that exists and one made with it are mounted; both are in use until it is destroyed."""
    offer = offered(api, machine)
    volume = created(api, offer)
    body = {
        "machine_id": machine,
        "disk_gb": 10,
        "volumes": [
            {"mount_path": "/data", "volume_id": volume["volume_id"]},
            {"mount_path": "/new", "volume_offer_id": offer, "disk_gb": 5, "name": "fresh"},
        ],
    }
    rented = api("alice", "POST", "/v1/instances", body).json()
    instance = rented["instance_id"]
    assert rented["volumes"] == [
        {"volume_id": 1, "mount_path": "/data"},
        {"volume_id": 2, "mount_path": "/new"},
    ]
    fresh = api("alice", "GET", "/v1/volumes/2").json()
    assert (fresh["name"], fresh["instances"]) == (
        "fresh",
        [{"instance_id": instance, "mount_path": "/new"}],
    )
    refused = api("alice", "DELETE", "/v1/volumes/1")
    assert (refused.status_code, refused.json()["code"]) == (409, "volume_in_use")
    assert refused.json()["instances"] == [instance]
    with api.market.ledger.unit() as unit:
        rentals.destroy(unit, instance)
    for _ in range(2):
        gone = api("alice", "DELETE", "/v1/volumes/1")
        assert (gone.status_code, gone.json()["status"]) == (200, "destroyed")


@pytest.mark.parametrize(
    "mount",
    [
        {"mount_path": "/data"},
        {"mount_path": "/data", "volume_offer_id": 1},
        {"mount_path": "/data", "disk_gb": 5},
        {"mount_path": "/data", "volume_id": 1, "name": "x"},
        {"mount_path": "/data", "volume_id": 1, "disk_gb": 5},
        {"mount_path": "/data", "volume_id": 1, "volume_offer_id": 1, "disk_gb": 5},
        {"mount_path": "/data", "volume_id": 0},
        {"mount_path": "/data", "volume_id": 1, "colour": "red"},
        {"mount_path": "relative", "volume_id": 1},
        {"mount_path": "/data\u0000", "volume_id": 1},
        {"volume_id": 1},
        1,
        None,
    ],
)
def test_a_mount_is_one_volume_or_a_new_one(api: Api, machine: int, mount: Any) -> None:
    """Half a wish, two wishes at once, or a path that cannot be: refused, and nothing exists."""
    created(api, offered(api, machine))
    head = api.market.head()
    body = {"machine_id": machine, "disk_gb": 10, "volumes": [mount]}
    answer = api("alice", "POST", "/v1/instances", body)
    assert answer.status_code in {400, 422}, answer.text
    assert answer.json()["code"] == "invalid_args"
    assert api.market.head() == head


def test_the_market_of_volumes_is_paged_and_filtered(api: Api) -> None:
    """Verified machines unless asked otherwise, the cheapest first, each once over all pages."""
    for number in range(3):
        machine = api.market.machine(host="bob")
        offered(api, machine, storage_gb_month=f"0.{3 - number}")
    assert api("alice", "GET", "/v1/volume-offers").json()["items"] == []
    seen: list[str] = []
    cursor = ""
    while True:
        path = f"/v1/volume-offers?verified=false&limit=1{cursor}"
        page = api("alice", "GET", path).json()
        seen += [one["storage_rate"] for one in page["items"]]
        if page["next_cursor"] is None:
            break
        cursor = f"&cursor={page['next_cursor']}"
    assert seen == ["0.1", "0.2", "0.3"]
    query = "/v1/volume-offers?verified=false&storage_gb_month_max=0.2&disk_gb=500"
    assert len(api("alice", "GET", query).json()["items"]) == 2
    assert len(api("bob", "GET", "/v1/volume-offers").json()["items"]) == 3
    assert api("eve", "GET", "/v1/volume-offers").json()["items"] == []
    api("bob", "DELETE", "/v1/machines/1/volume-offer")
    assert len(api("bob", "GET", "/v1/volume-offers").json()["items"]) == 2


def test_a_clone_names_its_source(api: Api, machine: int) -> None:
    """A clone is a new volume of its own size and price, and says what it was made from."""
    offer = offered(api, machine)
    source = created(api, offer)["volume_id"]
    answer = api(
        "alice", "POST", f"/v1/volumes/{source}/clone", {"volume_offer_id": offer, "disk_gb": 40}
    )
    assert answer.status_code == 201
    copy = answer.json()
    assert (copy["cloned_from"], copy["disk_bytes"]) == (source, 40_000_000_000)
    small = {"volume_offer_id": offer, "disk_gb": 29}
    refused = api("alice", "POST", f"/v1/volumes/{source}/clone", small)
    assert (refused.status_code, refused.json()["code"]) == (422, "invalid_args")


def test_a_repeated_create_makes_one_volume(api: Api, machine: int) -> None:
    """The same key and body give the first answer again; without a key two volumes are made."""
    offer = offered(api, machine)
    body = {"volume_offer_id": offer, "disk_gb": 30}
    key = {"Idempotency_Key": "v-1"}
    answers = [api("alice", "POST", "/v1/volumes", body, **key) for _ in range(2)]
    assert answers[0].json() == answers[1].json()
    assert len(api("alice", "GET", "/v1/volumes").json()["items"]) == 1
    api("alice", "POST", "/v1/volumes", body)
    assert len(api("alice", "GET", "/v1/volumes").json()["items"]) == 2


def test_an_admin_deletes_with_a_reason(api: Api, machine: int) -> None:
    """An admin's delete without a reason is refused; with one, the log names it."""
    volume = created(api, offered(api, machine))["volume_id"]
    assert api("root", "DELETE", f"/v1/volumes/{volume}").status_code == 400
    assert api("root", "DELETE", f"/v1/volumes/{volume}?reason=abuse").status_code == 200
    fact = api.market.facts(f"volume-{volume}")[-1]
    assert (fact.by, fact.reason) == ("admin", "abuse")  # type: ignore[union-attr]


def test_a_volumes_charges_are_listed_under_its_id(api: Api, machine: int) -> None:
    """The charges of a renter name the volume, its kind, seconds and rate."""
    volume = created(api, offered(api, machine))["volume_id"]
    api.market.run(machine, [], 3_600)
    api.market.project()
    (line,) = api("alice", "GET", "/v1/charges").json()["items"]
    assert (line["instance_id"], line["kind"], line["item"]) == (volume, "volume", "disk")
    assert (line["quantity"], line["amount"]) == (3_600, "0.004166666")
    shown = api("alice", "GET", f"/v1/volumes/{volume}").json()
    assert (shown["storage_seconds"], shown["storage_charge"]) == (3_600, "0.004166666")
    assert api.market.clock() == START + 3_600
