"""What surrounds a launch, over plain HTTP: templates, variables, ssh keys, logs, ways in, jobs."""

from __future__ import annotations

import json
from typing import Any

from adapters.http.vast.launches import docker_options, options_of
from ledger.domain.events import PublishedPort
from ledger.domain.launch import LaunchConfig
from ledger.services import connections
from ledger.services.connections import Addresses
from tests.http.conftest import Api
from tests.http.test_launches import KEY
from tests.vast.conftest import good_machine
from tests.vast.test_instances import create, offer_of, ok, refused, show, words

TEMPLATE: dict[str, Any] = {
    "name": "n",
    "image": "i",
    "tag": None,
    "href": None,
    "repo": None,
    "env": "-e A=1 -p 8080:8080",
    "onstart": None,
    "jup_direct": False,
    "ssh_direct": True,
    "use_jupyter_lab": False,
    "runtype": "ssh",
    "use_ssh": True,
    "jupyter_dir": None,
    "docker_login_repo": None,
    "extra_filters": {"verified": {"eq": True}},
    "recommended_disk_space": "20",
    "readme": None,
    "readme_visible": True,
    "desc": None,
    "private": True,
}
"""The captured body of `create template`, with variables."""
LONG = ("name", "n" * 129)
LOGIN = ("docker_login_repo", "docker.io -u me -p secret")
REBOOT: dict[str, Any] = {
    "start_time": 1795996800.0,
    "end_time": 1796601600.0,
    "request_method": "PUT",
    "request_body": {},
    "day_of_the_week": None,
    "hour_of_the_day": 3,
    "frequency": "DAILY",
}


def rented(api: Api, **changes: Any) -> dict[str, Any]:
    """An instance of alice's."""
    made: dict[str, Any] = ok(
        create(api, offer_of(api.market, good_machine(api.market)), **changes)
    )
    return made


# --- launches -------------------------------------------------------------------------------------


def test_a_launch_is_warned_about_and_changed(api: Api) -> None:
    """API-06: warnings stand in the answer; a change sets what it names and costs nothing."""
    made = rented(api)
    assert [one["code"] for one in made["warnings"]] == ["image_not_pinned"]
    number = made["new_contract"]
    path = f"/api/v0/instances/update_template/{number}/"
    done = ok(api("alice", "PUT", path, {"id": number, "image": "x/y:2", "env": {"B": "2"}}))
    assert done["updated_instance"]["id"] == number
    head = api.market.head()
    ok(api("alice", "PUT", path, {"id": number, "image": "x/y:2", "env": {"B": "2"}}))
    assert api.market.head() == head
    row = show(api, number)
    assert row is not None
    assert (row["image_uuid"], dict(row["extra_env"])["B"]) == ("x/y:2", "2")
    assert (row["onstart"], row["dph_total"]) == ("cd /workspace && git clone ...", 0.320833333)
    refused(api("alice", "PUT", path, {"id": number}), 400, "invalid_args")
    refused(api("alice", "PUT", path, {"env": {"-p 1:1": "1"}}), 400, "invalid_args")
    refused(api("carol", "PUT", path, {"image": "x"}), 404, "no_such_instance")


def test_options_are_read_back(api: Api) -> None:
    """Variables, ports and a host name come back from one line as they were."""
    del api
    config = LaunchConfig(env={"A": "b c'd"}, ports=["80:80", "9"], hostname="h")
    assert docker_options(options_of(config)) == {
        "A": "b c'd",
        "-p 80:80": "1",
        "-p 9": "1",
        "-h": "h",
    }


# --- templates ------------------------------------------------------------------------------------


def test_templates_are_versions_with_hashes(api: Api) -> None:
    """Every edit has a new hash, null keys stay, and instances keep what they were made from."""
    made = ok(api("alice", "POST", "/api/v0/template/", TEMPLATE))
    again = ok(api("alice", "POST", "/api/v0/template/", TEMPLATE))
    assert again["template"] == made["template"]
    assert (made["replayed"], again["replayed"]) == (False, True)
    first = made["template"]
    find = words({"select_cols": ["*"], "select_filters": {"hash_id": {"eq": first["hash_id"]}}})
    found = ok(api("alice", "GET", f"/api/v0/template/?{find}"))
    assert (found["templates_found"], found["templates"][0]["creator_id"]) == (
        1,
        api.accounts["alice"],
    )
    assert ok(api("carol", "GET", f"/api/v0/template/?{find}"))["templates"] == []

    machine = good_machine(api.market, gpus=2)
    offer = offer_of(api.market, machine)
    body = {"template_hash_id": first["hash_id"], "disk": 10, "price": 0.3, "env": {"B": "2"}}
    number = ok(api("alice", "PUT", f"/api/v0/asks/{offer}/", body))["new_contract"]
    change = {**TEMPLATE, "env": None, "image": "j", "id": first["id"], "hash_id": first["hash_id"]}
    second = ok(api("alice", "PUT", "/api/v1/template/", change))["template"]
    assert second["hash_id"] != first["hash_id"]
    assert (second["image"], second["env"], second["recommended_disk_space"]) == (
        "j",
        first["env"],
        20,
    )
    refused(api("carol", "PUT", "/api/v1/template/", change), 404, "no_such_template")
    row = show(api, number)
    assert row is not None
    assert (row["image_uuid"], row["template_hash_id"], row["template_name"]) == (
        "i",
        first["hash_id"],
        "n",
    )
    assert dict(row["extra_env"]) == {"A": "1", "B": "2", "-p 8080:8080": "1"}
    assert row["image_runtype"] == "ssh_direc ssh_proxy"

    gone = {"template_id": first["id"]}
    refused(api("carol", "DELETE", "/api/v0/template/", gone), 404, "no_such_template")
    ok(api("alice", "DELETE", "/api/v0/template/", {"hash_id": second["hash_id"]}))
    refused(api("alice", "DELETE", "/api/v0/template/", gone), 404, "no_such_template")
    row = show(api, number)
    assert row is not None
    assert (row["template_id"], row["template_name"]) == (first["id"], None)


def test_templates_keep_what_clients_put_beside_the_launch(api: Api) -> None:
    """Links and filters come back as they were sent, stay under null, and are the native ones."""
    links = {"href": "https://x.test", "repo": "https://x.test/r", "docker_login_repo": "x.test"}
    filters = {"gpu_ram": {"gte": 80000.0}, "verified": {"eq": True}}
    body = {**TEMPLATE, **links, "extra_filters": filters}
    made = ok(api("alice", "POST", "/api/v0/template/", body))["template"]
    assert {name: made[name] for name in links} == links
    assert json.loads(made["extra_filters"]) == filters
    change = {**TEMPLATE, "id": made["id"], "repo": "https://y.test", "extra_filters": None}
    changed = ok(api("alice", "PUT", "/api/v1/template/", change))["template"]
    assert (changed["href"], changed["repo"]) == (links["href"], "https://y.test")
    assert changed["extra_filters"] == made["extra_filters"]
    (native,) = api("alice", "GET", "/v1/templates?mine=true").json()["items"]
    for name in (*links, "extra_filters"):
        assert native[name] == changed[name]
    for name, value in (("href", 1), ("repo", "a\nb"), ("extra_filters", [1]), LOGIN, LONG):
        answer = api("alice", "POST", "/api/v0/template/", {**body, name: value})
        refused(answer, 400, "invalid_args")


# --- variables and keys ---------------------------------------------------------------------------


def test_variables_are_in_later_launches(api: Api) -> None:
    """An account's variables lie under the create's own, and are shown to it alone."""
    for method, value in (("POST", "1"), ("PUT", "2")):
        ok(api("alice", method, "/api/v0/secrets/", {"key": "T", "value": value}))
    assert ok(api("alice", "GET", "/api/v0/secrets/")) == {"success": True, "secrets": {"T": "2"}}
    assert ok(api("carol", "GET", "/api/v0/secrets/"))["secrets"] == {}
    row = show(api, rented(api, env={"A": "1"})["new_contract"])
    assert row is not None
    assert dict(row["extra_env"]) == {"A": "1", "T": "2"}
    ok(api("alice", "DELETE", "/api/v0/secrets/", {"key": "T"}))
    refused(api("alice", "DELETE", "/api/v0/secrets/", {"key": "T"}), 404, "no_such_secret")
    refused(
        api("alice", "POST", "/api/v0/secrets/", {"key": "a b", "value": "1"}), 400, "invalid_args"
    )
    refused(api("alice", "POST", "/api/v0/secrets/", {"key": "A"}), 400, "invalid_args")


def test_ssh_keys_open_instances(api: Api) -> None:
    """A key of the account opens later instances; others are attached and detached by hand."""
    number = rented(api)["new_contract"]
    path = f"/api/v0/instances/{number}/ssh/"
    ok(api("alice", "POST", path, {"ssh_key": KEY}))
    (one,) = ok(api("alice", "GET", "/api/v0/ssh/"))
    assert (one["public_key"], one["deleted_at"]) == (KEY, None)
    assert ok(api("alice", "POST", "/api/v0/ssh/", {"ssh_key": KEY}))["id"] == one["id"]
    assert [key["id"] for key in ok(api("alice", "GET", path))["ssh_keys"]] == [one["id"]]
    refused(api("carol", "GET", path), 404, "no_such_instance")
    refused(api("carol", "POST", path, {"ssh_key": KEY}), 404, "no_such_instance")
    ok(api("alice", "DELETE", f"{path}{one['id']}/", {}))
    refused(api("alice", "DELETE", f"{path}{one['id']}/", {}), 404, "no_such_ssh_key")
    ok(api("alice", "PUT", f"/api/v0/ssh/{one['id']}/", {"ssh_key": f"{KEY} me"}))
    ok(api("alice", "DELETE", f"/api/v0/ssh/{one['id']}/", {}))
    assert ok(api("alice", "GET", "/api/v0/ssh/")) == []
    refused(api("alice", "POST", "/api/v0/ssh/", {"ssh_key": "x"}), 400, "invalid_ssh_key")
    ok(api("alice", "PUT", "/api/v0/users/", {"ssh_key": KEY}))
    assert len(ok(api("alice", "GET", "/api/v0/ssh/"))) == 1
    refused(api("alice", "PUT", "/api/v0/users/", {"autobill_threshold": 5}), 400, "unsupported")


# --- what hosts say -------------------------------------------------------------------------------


def test_a_way_in_is_shown_while_it_holds(api: Api) -> None:
    """C15: ports as an object, ssh by the host's address, and nothing after a stop."""
    market = api.market
    machine = good_machine(market)
    number = ok(create(api, offer_of(market, machine)))["new_contract"]
    market.confirm(machine, number)
    ports = [
        PublishedPort(container_port=22, host_port=40_001, protocol="tcp"),
        PublishedPort(container_port=8080, host_port=40_002, protocol="tcp"),
    ]
    with market.ledger.unit() as unit:
        connections.publish(unit, number, 1, ports, Addresses(public_ip="203.0.113.9"))
    row = show(api, number)
    assert row is not None
    assert row["ports"]["22/tcp"] == [{"HostIp": "0.0.0.0", "HostPort": "40001"}]  # noqa: S104 - any address of the host
    assert (row["public_ipaddr"], row["ssh_host"], row["ssh_port"]) == (
        "203.0.113.9",
        "203.0.113.9",
        40_001,
    )
    assert (row["direct_port_start"], row["direct_port_end"], row["direct_port_count"]) == (
        40_001,
        40_002,
        2,
    )
    ok(api("alice", "PUT", f"/api/v0/instances/{number}/", {"state": "stopped"}))
    row = show(api, number)
    assert row is not None
    assert (row["ports"], row["public_ipaddr"], row["direct_port_count"]) == ({}, "", -1)


def test_logs_are_fetched_without_a_key(api: Api) -> None:
    """The URL is absolute, a 404 until the host has uploaded, then the text for who knows it."""
    machine = good_machine(api.market)
    number = ok(create(api, offer_of(api.market, machine)))["new_contract"]
    path = f"/api/v0/instances/request_logs/{number}/"
    asked = {"filter": "e", "tail": "100", "daemon_logs": "true"}
    url = ok(api("alice", "PUT", path, asked))["result_url"]
    assert url.startswith("http://")
    assert api(None, "GET", url).status_code == 404
    (wanted,) = api("bob", "GET", f"/v1/machines/{machine}/log-requests").json()["items"]
    assert (wanted["filter"], wanted["tail"], wanted["daemon"]) == ("e", 100, True)
    token = url.rpartition("/")[2]
    assert wanted["token"] == token
    api("bob", "PUT", f"/v1/log-requests/{token}", {"text": "epoch 1\n"})
    assert api(None, "GET", url).text == "epoch 1\n"
    refused(api("carol", "PUT", path, {}), 404, "no_such_instance")
    refused(api("alice", "PUT", path, {"tail": "0"}), 400, "invalid_args")


# --- jobs -----------------------------------------------------------------------------------------


def test_jobs_are_one_of_a_kind(api: Api) -> None:
    """A second job of a kind is a 422 that names the first; others' instances are not there."""
    number = rented(api)["new_contract"]
    path = "/api/v0/commands/schedule_job/"
    reboot = {
        **REBOOT,
        "instance_id": number,
        "api_endpoint": f"/api/v0/instances/reboot/{number}/",
    }
    made = ok(api("alice", "POST", path, reboot))["scheduled_job_id"]
    assert ok(api("alice", "POST", path, reboot))["scheduled_job_id"] == made
    later = {**reboot, "hour_of_the_day": 4}
    body = refused(api("alice", "POST", path, later), 422, "job_exists")
    assert body["scheduled_job_id"] == made
    ok(api("alice", "PUT", f"{path}{made}/", later))
    bid = {
        **REBOOT,
        "instance_id": number,
        "api_endpoint": f"/api/v0/instances/bid_price/{number}/",
        "request_body": {"client_id": "me", "price": 0.35, "instance_id": number},
        "frequency": "HOURLY",
        "hour_of_the_day": None,
    }
    ok(api("alice", "POST", path, bid))
    rows = ok(api("alice", "GET", path))
    assert [(one["id"], one["api_endpoint"], one["hour_of_the_day"]) for one in rows] == [
        (made, f"/api/v0/instances/reboot/{number}/", 4),
        (made + 1, f"/api/v0/instances/bid_price/{number}/", None),
    ]
    assert rows[1]["request_body"] == {"price": 0.35}
    refused(api("carol", "POST", path, reboot), 404, "no_such_instance")
    refused(api("carol", "DELETE", f"{path}{made}/", {}), 404, "no_such_job")
    command = {**reboot, "api_endpoint": f"/api/v0/instances/command/{number}/"}
    refused(api("alice", "POST", path, command), 400, "unsupported")
    other = {**reboot, "api_endpoint": "/api/v0/instances/reboot/99/"}
    refused(api("alice", "POST", path, other), 400, "invalid_args")
    ok(api("alice", "DELETE", f"{path}{made}/", {}))
    assert len(ok(api("alice", "GET", path))) == 1
