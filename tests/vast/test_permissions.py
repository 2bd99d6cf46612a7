"""What restricted keys may do through the frontend: what they may natively, and nothing more."""

from __future__ import annotations

from typing import Any

import pytest

from adapters.http.scopes import endpoints_of
from adapters.http.vast.app import _MODULES
from adapters.http.vast.elsewhere import ENDPOINTS as REFUSED_HERE
from ledger.services.instance_keys import ENDPOINTS as OF_INSTANCES
from tests.http.conftest import Api
from tests.support.routes import application
from tests.vast.captured import CREATE, LAUNCH
from tests.vast.conftest import good_machine
from tests.vast.test_instances import create, living, offer_of, ok, refused

BODIES: tuple[dict[str, Any], ...] = (
    {},
    {"state": "running"},
    {"state": "stopped"},
    {"label": "x"},
    {"vol_size": 1},
)


def handlers() -> list[Any]:
    """Every endpoint of the frontend that does something."""
    return [one for module in _MODULES for one in module.ENDPOINTS if one not in REFUSED_HERE]


def key_with(api: Api, permissions: Any, who: str = "alice") -> str:
    """A key that may no more than this, made through the frontend."""
    body = {"name": "narrow", "permissions": permissions}
    made: str = ok(api(who, "POST", "/api/v0/auth/apikeys/", body))["key"]
    return made


def test_every_endpoint_needs_a_native_one() -> None:
    """Nothing is served that no scope stands for: each name is a route of the native API."""
    known = endpoints_of(
        handler for one in application().routes for handler in getattr(one, "route_handlers", ())
    )
    assert len(known) > 100
    found = handlers()
    assert len(found) > 75
    for handler in found:
        needed = {name for body in BODIES for name in handler.opt["needs"](body)}
        assert needed, handler.paths
        assert needed <= known.keys(), handler.paths
        reads = all((known[name].scope or "").endswith("_read") for name in needed)
        if reads and "misc" not in {known[name].scope for name in needed}:
            assert handler.http_methods & {"GET"} or handler.paths & {
                "/v0/contracts/fetch",
                "/v0/machines/defrag_offers",
                "/v0/instances/request_logs/{instance_id:int}",
            }, handler.paths


def test_an_instances_key_reaches_its_own_instance_alone(api: Api) -> None:
    """It shows, labels, stops and destroys its instance, no other one, and dies with it."""
    machine = good_machine(api.market, gpus=2)
    mine = ok(create(api, offer_of(api.market, machine)))
    other = ok(create(api, offer_of(api.market, machine)))["new_contract"]
    inside, number = mine["instance_api_key"], mine["new_contract"]
    again = ok(create(api, mine["ask_id"]))
    assert (again["replayed"], again["instance_api_key"]) == (True, inside)

    path = f"/api/v0/instances/{number}/"
    row = ok(api(inside, "GET", path))["instances"]
    assert (row["id"], dict(row["extra_env"])["AWS_ACCESS_KEY_ID"]) == (number, "AK")
    ok(api(inside, "PUT", path, {"label": "done"}))
    ok(api(inside, "PUT", f"/api/v0/instances/request_logs/{number}/", {"tail": "5"}))
    ok(api(inside, "PUT", path, {"state": "stopped"}))
    ok(api(inside, "PUT", "/api/v0/instances/", {"state": "stopped", "ids": [number]}))
    head = api.market.head()
    denied: tuple[tuple[str, str, Any], ...] = (
        ("GET", f"/api/v0/instances/{other}/", None),
        ("DELETE", f"/api/v0/instances/{other}/", {}),
        ("DELETE", f"/api/v0/instances/{other}/", {"id": number}),
        ("PUT", f"/api/v0/instances/{other}/", {"label": "x"}),
        ("PUT", path, {"state": "running"}),
        ("PUT", path, {"label": "x", "state": "running"}),
        ("PUT", "/api/v0/instances/", {"state": "stopped", "ids": [number, other]}),
        ("DELETE", "/api/v0/instances/", {"instance_ids": [number, other]}),
        ("PUT", f"/api/v0/instances/update_template/{number}/", {"image": "x"}),
        ("PUT", f"/api/v0/instances/bid_price/{number}/", {"price": 1}),
        ("PUT", f"/api/v0/instances/reboot/{number}/", {}),
        ("PUT", f"/api/v0/instances/prepay/{number}/", {"amount": 1}),
        ("PUT", f"/api/v0/instances/request_logs/{other}/", {}),
        ("POST", f"/api/v0/instances/{number}/ssh/", {"ssh_key": "x"}),
        ("GET", "/api/v1/instances/", None),
        ("GET", "/api/v0/instances?owner=me", None),
        ("GET", "/api/v0/users/current", None),
        ("GET", "/api/v0/secrets/", None),
        ("GET", "/api/v0/auth/apikeys/", None),
        ("POST", "/api/v0/auth/apikeys/", {"name": "more"}),
        ("PUT", "/api/v0/commands/reset_apikey/", {}),
        ("PUT", "/api/v0/commands/transfer_credit/", {"recipient": "carol", "amount": 1}),
        ("PUT", f"/api/v0/asks/{offer_of(api.market, machine)}/", CREATE),
        ("PUT", "/api/v0/launch_instance/", LAUNCH),
        ("PUT", "/api/v0/volumes/", {"id": 1}),
        ("POST", "/api/v0/commands/schedule_job/", {"instance_id": number}),
        ("GET", "/api/v0/audit_logs/", None),
    )
    for method, route, body in denied:
        refused(api(inside, method, route, body), 403, "not_authorized")
    assert api.market.head() == head
    assert living(api.market) == 2

    ok(api(inside, "DELETE", path))
    refused(api(inside, "GET", path), 401, "auth_error")


def test_what_an_instance_may_is_served(api: Api) -> None:
    """The endpoints of an instance's key that have a command here are reached by it."""
    del api
    served = {name for one in handlers() for body in BODIES for name in one.opt["needs"](body)}
    missing = {name for _, name in OF_INSTANCES} - served
    assert missing == {
        "api.instance.ticks",
        "api.instance.show_launch",
        "api.instance.heartbeat_token",
    }, "show_launch decides which columns of a row are filled"


READING: dict[str, Any] = {"api": {"instance_read": {}, "user_read": {}, "misc": {}}}


def test_a_reading_key_cannot_rent(api: Api) -> None:
    """It lists and searches; what costs, changes or shows money is a 403 that names the scope."""
    machine = good_machine(api.market)
    key = key_with(api, READING)
    assert ok(api(key, "GET", "/api/v1/instances/"))["instances"] == []
    assert ok(api(key, "POST", "/api/v0/bundles/", {}))["offers"]
    body = refused(create(api, offer_of(api.market, machine), who=key), 403, "not_authorized")
    assert "instance_write" in body["msg"]
    refused(api(key, "PUT", "/api/v0/launch_instance/", LAUNCH), 403, "not_authorized")
    refused(api(key, "GET", "/api/v0/charges/"), 403, "not_authorized")
    refused(api(key, "GET", "/api/v0/users/current"), 403, "not_authorized")
    broad = {"name": "more", "permissions": {"api": {"instance_write": {}}}}
    refused(api(key, "POST", "/api/v0/auth/apikeys/", broad), 403, "not_authorized")
    assert living(api.market) == 0
    (shown,) = [
        one
        for one in ok(api("alice", "GET", "/api/v0/auth/apikeys/"))["apikeys"]
        if one["name"] == "narrow"
    ]
    assert shown["rights"] == ["instance_read", "misc", "user_read"]


def test_a_key_limited_to_an_instance_reads_its_logs_alone(api: Api) -> None:
    """The contract's example: `request_logs` of one id, and nothing of another one."""
    machine = good_machine(api.market, gpus=2)
    one = ok(create(api, offer_of(api.market, machine)))["new_contract"]
    other = ok(create(api, offer_of(api.market, machine)))["new_contract"]
    limits = {"api.instance.request_logs": {"constraints": {"id": {"eq": one}}}}
    key = key_with(api, {"api": {"instance_read": limits}})
    ok(api(key, "PUT", f"/api/v0/instances/request_logs/{one}/", {}))
    for number, body in ((other, {}), (other, {"id": one}), (other, {"instance_id": one})):
        answer = api(key, "PUT", f"/api/v0/instances/request_logs/{number}/", body)
        refused(answer, 403, "not_authorized")
    refused(api(key, "GET", f"/api/v0/instances/{one}/"), 403, "not_authorized")


def test_a_limit_on_disks_is_of_the_disk_that_is_rented(api: Api) -> None:
    """A field that the frontend does not read meets no constraint, whatever it says."""
    machine = good_machine(api.market, gpus=4)
    limits = {"api.instance.rent": {"constraints": {"disk_gb": {"lte": 20}}}}
    key = key_with(api, {"api": {"instance_write": limits}})
    offer = offer_of(api.market, machine)
    for body in ({"disk": 21}, {"disk": 20.5}, {"disk": 100, "disk_gb": 1}):
        refused(create(api, offer, who=key, **body), 403, "not_authorized")
    ok(create(api, offer, who=key, disk=20))


def test_a_key_that_reads_no_launches_sees_none(api: Api) -> None:
    """Rows of a list hold environment and addresses only for keys that may see them one by one."""
    number = ok(create(api, offer_of(api.market, good_machine(api.market))))["new_contract"]
    limits: dict[str, Any] = {"api.instance.list_instances": {}}
    key = key_with(api, {"api": {"instance_read": limits}})
    (row,) = ok(api(key, "GET", "/api/v1/instances/"))["instances"]
    assert (row["id"], row["extra_env"], row["onstart"], row["image_uuid"]) == (
        number,
        [],
        None,
        "",
    )


@pytest.mark.parametrize("who", ["alice", "audrey"])
def test_calls_are_kept_as_native_ones_are(api: Api, who: str) -> None:
    """Commands of all and readings of auditors are in the access log, with the native name."""
    number = ok(create(api, offer_of(api.market, good_machine(api.market))))["new_contract"]
    api(who, "PUT", f"/api/v0/instances/{number}/", {"state": "stopped"})
    api(who, "GET", "/api/v1/instances/")
    found = ok(api(who, "GET", "/api/v0/audit_logs/"))
    shown = [(one["api_route"], one["endpoint"], one["status"]) for one in found]
    stopped = (f"PUT /api/v0/instances/{number}", "api.instance.stop")
    if who == "alice":
        rented = (f"PUT /api/v0/asks/{number}", "api.instance.rent", 200)
        assert shown == [(*stopped, 200), rented]
    else:
        assert shown == [
            ("GET /api/v1/instances", "api.instance.list_instances", 200),
            (f"PUT /api/v0/instances/{number}", "api.instance.label", 403),
        ]
    assert {one["ip_address"] for one in found} == {"testclient"}
    if who == "alice":
        (place,) = ok(api(who, "GET", "/api/v0/users/me/ipaddrs?owner=me"))["results"]
        assert place["ip"] == "testclient"
