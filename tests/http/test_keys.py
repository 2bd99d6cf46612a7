"""What keys may do: permissions, an instance's own key, names, resets; no key is a ladder."""

from __future__ import annotations

from typing import Any

import pytest

from adapters.http.app import create_app
from adapters.http.scopes import EXCEPTIONS, SUBJECTS, Endpoint, endpoint_of
from ledger.services import instance_keys
from ledger.services.policies import exhaust
from tests.http.conftest import Api
from tests.support.market import DOLLAR, START

READS_BY_POST = {"api.instance.request_logs"}
"""What changes nothing of an account, though it is asked with a POST: a log is read."""
READ_ALL: dict[str, Any] = {"api": {"instance_read": {}, "billing_read": {}}}


def made(api: Api, person: str, known: str, permissions: Any, **more: Any) -> Any:
    """A key that *person* made, called *known* by the test."""
    role = {"alice": "renter", "bob": "host", "root": "admin"}.get(person, "renter")
    body = {"role": role, "permissions": permissions, **more}
    answer = api(person, "POST", "/v1/keys", body)
    if answer.status_code == 201:
        api.keys[known] = answer.json()["key"]
    return answer


def rented(api: Api) -> dict[str, Any]:
    """An instance of alice's."""
    body = {"machine_id": api.market.machine(host="bob"), "disk_gb": 1}
    answer: dict[str, Any] = api("alice", "POST", "/v1/instances", body).json()
    return answer


def endpoints() -> dict[str, Endpoint]:
    """Every route with a key, and what permissions call it."""
    app = create_app(None, None)  # type: ignore[arg-type]  # only the routes are looked at
    found = {}
    for route in app.routes:
        for handler in getattr(route, "route_handlers", []):
            if handler.opt.get("roles"):
                methods = "/".join(sorted(handler.http_methods - {"OPTIONS"}))
                found[f"{methods} {route.path}"] = endpoint_of(handler)
    return found


# --- the table of scopes --------------------------------------------------------------------------


def test_every_route_has_a_scope_and_a_name_of_its_own() -> None:
    """A route without a scope would be closed to all restricted keys; two names would be one."""
    found = endpoints()
    assert len(found) > 100
    assert {route: one for route, one in found.items() if one.scope is None} == {}
    names = [one.name for one in found.values()]
    assert sorted({one for one in names if names.count(one) > 1}) == []
    assert set(EXCEPTIONS) <= set(names)
    assert {name.split(".")[1] for name in names} == {one.word for one in SUBJECTS.values()}


def test_reading_and_writing_are_different_scopes() -> None:
    """No GET takes a write scope, and nothing that changes anything takes a read scope."""
    for route, one in endpoints().items():
        method = route.partition(" ")[0]
        assert one.scope is not None
        if method == "GET":
            assert not one.scope.endswith("_write"), route
        elif one.name == "api.instance.request_logs":
            assert one.scope == "instance_read", "asked for by a POST, and only read"
        elif one.scope != "misc":
            assert one.scope.endswith("_write"), route


def test_an_instances_own_rights_are_endpoints_that_exist() -> None:
    """Each endpoint that an instance's key may use is a route, under the scope that is named."""
    known = {one.name: one.scope for one in endpoints().values()}
    for scope, endpoint in instance_keys.ENDPOINTS:
        assert known[endpoint] == scope, endpoint


# --- restricted keys ------------------------------------------------------------------------------


def test_a_key_may_do_what_its_permissions_name(api: Api) -> None:
    """Reading instances and money passes, writing and the rest are 403 with the scope it takes."""
    instance = rented(api)["instance_id"]
    assert made(api, "alice", "reader", READ_ALL).status_code == 201
    for path in ("/v1/instances", f"/v1/instances/{instance}", "/v1/balance", "/v1/charges"):
        assert api("reader", "GET", path).status_code == 200, path
    head = api.market.head()
    for method, path, scope in (
        ("POST", f"/v1/instances/{instance}/stop", "instance_write"),
        ("DELETE", f"/v1/instances/{instance}", "instance_write"),
        ("POST", "/v1/instances", "instance_write"),
        ("POST", "/v1/holds", "billing_write"),
        ("POST", "/v1/transfers", "billing_write"),
        ("GET", "/v1/secrets", "user_read"),
        ("GET", "/v1/keys", "user_read"),
        ("POST", "/v1/keys", "user_write"),
        ("GET", "/v1/machines", "machine_read"),
        ("POST", "/v1/offers/search", "misc"),
    ):
        answer = api("reader", method, path, {})
        assert (answer.status_code, answer.json()["code"]) == (403, "not_authorized"), path
        assert answer.json()["scope"] == scope
    assert api.market.head() == head


def test_permissions_widen_no_role(api: Api) -> None:
    """A renter's key with every scope still may do nothing that renters may not."""
    scopes: dict[str, Any] = {
        scope: {} for one in SUBJECTS.values() for scope in (one.read, one.write)
    }
    made(api, "alice", "all", {"api": scopes})
    for method, path in (("POST", "/v1/machines"), ("POST", "/v1/deposits"), ("GET", "/v1/events")):
        assert api("all", method, path, {}).status_code == 403
    made(api, "alice", "none", {"api": {}})
    assert api("none", "GET", "/v1/balance").status_code == 403


def test_a_constraint_names_one_instance(api: Api) -> None:
    """The logs of one instance: that one passes, another does not, another endpoint neither."""
    first, second = rented(api)["instance_id"], rented(api)["instance_id"]
    endpoint = "api.instance.request_logs"
    only = {"api": {"instance_read": {endpoint: {"constraints": {"id": {"eq": first}}}}}}
    made(api, "alice", "logs", only)
    assert api("logs", "POST", f"/v1/instances/{first}/log-requests", {}).status_code == 201
    for method, path in (
        ("POST", f"/v1/instances/{second}/log-requests"),
        ("POST", f"/v1/instances/{first}/stop"),
        ("GET", f"/v1/instances/{first}"),
    ):
        assert api("logs", method, path, {}).status_code == 403, path


def test_a_constraint_may_name_a_field_of_the_body_or_the_query(api: Api) -> None:
    """One GPU at most: two of them, none named, and no body, are refused."""
    limits = {
        "api": {"instance_write": {"api.instance.rent": {"constraints": {"gpus": {"lte": 1}}}}}
    }
    made(api, "alice", "small", limits)
    machine = api.market.machine(host="bob", gpus=4)
    for gpus, status in ((1, 201), (2, 403), ("1", 201), (None, 403)):
        body = {"machine_id": machine, "disk_gb": 1, "gpus": gpus}
        assert api("small", "POST", "/v1/instances", body).status_code == status, gpus
    for raw in (b"", b"[]", b"{", b"\xff"):
        assert api("small", "POST", "/v1/instances", raw).status_code in {400, 403}
    query = {"api": {"instance_read": {"api.instance.list_instances": {
        "constraints": {"machine_id": {"eq": machine}}}}}}  # fmt: skip
    made(api, "alice", "one-machine", query)
    assert api("one-machine", "GET", f"/v1/instances?machine_id={machine}").status_code == 200
    assert api("one-machine", "GET", "/v1/instances").status_code == 403


@pytest.mark.parametrize(
    "permissions", [{}, {"api": {"nothing": {}}}, {"api": {"misc": {"x": {}}}}]
)
def test_permissions_that_are_none_are_refused(api: Api, permissions: Any) -> None:
    """A typo is 422 `invalid_permissions`; it never makes a key that may everything."""
    head = api.market.head()
    answer = made(api, "alice", "typo", permissions)
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid_permissions")
    assert api.market.head() == head


# --- no ladder ------------------------------------------------------------------------------------


def test_a_key_never_makes_one_that_may_more(api: Api) -> None:
    """Nor one that lives longer; what it makes is within it, and so on down."""
    within: dict[str, Any] = {"api": {"user_write": {}, "instance_read": {}}}
    made(api, "alice", "maker", within, expires_at="2026-03-02T00:00:00Z")
    soon = {"expires_at": "2026-03-01T12:00:00Z"}
    endpoint = {"api.instance.show_instance": {"constraints": {"id": {"eq": 1}}}}
    for permissions, more, status in (
        (None, soon, 403),
        ({"api": {"instance_write": {}}}, soon, 403),
        ({"api": {"instance_read": {}, "billing_read": {}}}, soon, 403),
        ({"api": {"instance_read": {}}}, {}, 403),
        ({"api": {"instance_read": {}}}, {"expires_at": "2026-03-02T00:00:01Z"}, 403),
        ({"api": {"instance_read": {}}}, soon, 201),
        ({"api": {"instance_read": endpoint}}, soon, 201),
        ({"api": {}}, soon, 201),
    ):
        answer = made(api, "maker", "made", permissions, **more)
        assert answer.status_code == status, (permissions, more, answer.text)


def test_a_key_cannot_reset_or_rename_one_that_may_more(api: Api) -> None:
    """A reset shows a secret: a lesser key resets lesser keys alone, and never its owner's."""
    whole = api.keys["alice"].split("_")[1]
    made(api, "alice", "keeper", {"api": {"user_write": {}}})
    for method, path in (("POST", f"/v1/keys/{whole}/reset"), ("PUT", f"/v1/keys/{whole}")):
        answer = api("keeper", method, path, {"name": "x"} if method == "PUT" else None)
        assert (answer.status_code, answer.json()["code"]) == (403, "not_authorized")
    own = api.keys["keeper"].split("_")[1]
    assert api("keeper", "POST", f"/v1/keys/{own}/reset").status_code == 200
    assert api("keeper", "GET", "/v1/me").status_code == 401


def test_a_reset_ends_the_old_text_at_once(api: Api) -> None:
    """The same key id with another secret; the old one is 401, and a revoked key is not revived."""
    made(api, "alice", "old", READ_ALL, name="laptop")
    key_id = api.keys["old"].split("_")[1]
    answer = api("alice", "POST", f"/v1/keys/{key_id}/reset", Idempotency_Key="k")
    api.keys["new"] = answer.json()["key"]
    assert api.keys["new"].split("_")[1] == key_id
    assert api("old", "GET", "/v1/balance").status_code == 401
    assert api("new", "GET", "/v1/balance").status_code == 200
    assert api("new", "POST", "/v1/instances", {}).status_code == 403
    for person in ("carol", "bob"):
        assert api(person, "POST", f"/v1/keys/{key_id}/reset").status_code == 404
    api("alice", "DELETE", f"/v1/keys/{key_id}")
    dead = api("alice", "POST", f"/v1/keys/{key_id}/reset")
    assert (dead.status_code, dead.json()["code"]) == (422, "key_revoked")


def test_keys_have_names_for_their_owner(api: Api) -> None:
    """A name and permissions are listed; auditors see no names; renaming changes nothing else."""
    made(api, "alice", "named", READ_ALL, name="laptop")
    key_id = api.keys["named"].split("_")[1]

    def shown(person: str) -> dict[str, Any]:
        path = f"/v1/keys?account_id={api.accounts['alice']}"
        items: list[dict[str, Any]] = api(person, "GET", path).json()["items"]
        return next(one for one in items if one["key_id"] == key_id)

    assert (shown("alice")["name"], shown("alice")["permissions"]) == ("laptop", READ_ALL)
    assert shown("audrey")["name"] is None
    assert shown("audrey")["permissions"] == READ_ALL
    for name in ("desk", "desk", None):
        assert api("alice", "PUT", f"/v1/keys/{key_id}", {"name": name}).status_code == 200
    assert shown("alice")["name"] is None
    assert api("named", "GET", "/v1/balance").status_code == 200
    assert api("alice", "PUT", f"/v1/keys/{key_id}", {"name": ""}).status_code == 422


# --- the key of an instance -----------------------------------------------------------------------


def test_an_instance_s_key_is_good_for_itself_alone(api: Api) -> None:
    """It reads, labels and stops its instance, and nothing of another one or of the account."""
    mine, other = rented(api), rented(api)["instance_id"]
    api.keys["inside"] = mine["instance_api_key"]
    path = f"/v1/instances/{mine['instance_id']}"
    for method, route, body in (
        ("GET", path, None),
        ("GET", f"{path}/ticks", None),
        ("GET", f"{path}/launch", None),
        ("POST", f"{path}/label", {"label": "done"}),
        ("POST", f"{path}/log-requests", {}),
        ("POST", f"{path}/heartbeat-token", None),
        ("POST", f"{path}/stop", None),
    ):
        assert api("inside", method, route, body).status_code in {200, 201}, route
    head = api.market.head()
    for method, route in (
        ("GET", f"/v1/instances/{other}"),
        ("DELETE", f"/v1/instances/{other}"),
        ("POST", f"{path}/start"),
        ("PUT", f"{path}/launch"),
        ("PUT", f"{path}/bid"),
        ("GET", "/v1/instances"),
        ("GET", "/v1/balance"),
        ("GET", "/v1/secrets"),
        ("GET", "/v1/keys"),
        ("POST", "/v1/keys"),
        ("POST", "/v1/transfers"),
        ("GET", "/v1/me"),
    ):
        answer = api("inside", method, route, {})
        assert (answer.status_code, answer.json()["code"]) == (403, "not_authorized"), route
    assert api.market.head() == head


def test_it_dies_in_the_second_of_the_destroy(api: Api) -> None:
    """An instance may destroy itself; after it its key is 401, and is listed as revoked."""
    mine = rented(api)
    api.keys["inside"] = mine["instance_api_key"]
    path = f"/v1/instances/{mine['instance_id']}"
    gone = api("inside", "DELETE", path)
    assert (gone.status_code, gone.json()["status"]) == (200, "destroyed")
    answer = api("inside", "GET", path)
    assert (answer.status_code, answer.json()["code"]) == (401, "auth_error")
    listed = api("alice", "GET", "/v1/keys").json()["items"]
    (one,) = [key for key in listed if key["instance_id"] == mine["instance_id"]]
    assert one["revoked_at"] == "2026-03-01T10:00:00Z"
    kept = api.market.connection.execute(
        "SELECT count(*) FROM vault_items WHERE name LIKE 'instance-key-%'"
    ).fetchone()
    assert kept == (0,)
    assert api.market.rebuild().equal


def test_it_outlives_a_stop_and_no_end_by_others(api: Api) -> None:
    """An exhausted account's instance is stopped and its key lives; a host's clean-up kills it."""
    machine = api.market.machine(host="bob", until=START + 3_600)
    order = {"machine_id": machine, "disk_gb": 1}
    mine = api("alice", "POST", "/v1/instances", order).json()
    api.keys["inside"] = mine["instance_api_key"]
    path = f"/v1/instances/{mine['instance_id']}"
    with api.market.ledger.unit() as unit:
        from ledger.services import transfers  # noqa: PLC0415 - beside its only use

        transfers.transfer(unit, api.accounts["alice"], api.accounts["carol"], 99 * DOLLAR, "t")
    exhaust(api.market.ledger)
    assert api("inside", "GET", path).status_code == 200
    api("root", "DELETE", f"{path}?reason=test")
    assert api("inside", "GET", path).status_code == 401


def test_me_tells_what_a_key_may(api: Api) -> None:
    """A restricted key with user_read sees its permissions; a whole key has none to show."""
    permissions: dict[str, Any] = {"api": {"user_read": {}}}
    made(api, "alice", "curious", permissions)
    assert api("curious", "GET", "/v1/me").json()["permissions"] == permissions
    assert api("alice", "GET", "/v1/me").json()["permissions"] is None
