"""Launches over HTTP: who sees what, warnings, templates, secrets, ways in, logs, jobs."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from litestar.testing import TestClient

from adapters.http.app import create_app
from ledger.domain.launch import ImageLogin
from ledger.services.images import ImageResolver
from ledger.services.policies.jobs import run_jobs
from tests.http.conftest import Api
from tests.support.market import START

DIGEST = "sha256:" + "5e" * 32
AWS = "AKIA" + "ABCDEFGHIJKLMNOP"
KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f"


def order(api: Api, **launch: Any) -> dict[str, Any]:
    """A create on a machine of bob's."""
    return {"machine_id": api.market.machine(host="bob"), "disk_gb": 10, "launch": launch}


def rented(api: Api, **launch: Any) -> dict[str, Any]:
    """What a create by alice answered."""
    made = api("alice", "POST", "/v1/instances", order(api, **launch))
    assert made.status_code == 201, made.text
    answer: dict[str, Any] = made.json()
    return answer


def test_a_create_warns_and_goes_on(api: Api) -> None:
    """A tag and a key on a community machine are warnings in an object, no refusal (API-06)."""
    made = rented(api, image="pytorch/pytorch:2.9", env={"AWS_ACCESS_KEY_ID": AWS})
    assert [one["code"] for one in made["warnings"]] == [
        "image_not_pinned",
        "key_on_community_machine",
    ]
    assert AWS not in str(made["warnings"])
    assert made["status"] == "loading"
    pinned = rented(api, image=f"a/b@{DIGEST}")
    assert (pinned["warnings"], pinned["image_digest"]) == ([], DIGEST)


def test_the_contents_are_for_the_renter_and_the_host(api: Api) -> None:
    """Auditors and admins see reference and hash alone; the host gets the container's own key."""
    made = rented(api, image="a/b:1", env={"T": "hunter2"})
    api("alice", "POST", "/v1/ssh-keys", {"ssh_key": KEY})
    path = f"/v1/instances/{made['instance_id']}"
    api("alice", "POST", f"{path}/ssh-keys", {"ssh_key_id": 1})
    mine = api("alice", "GET", f"{path}/launch").json()
    assert mine["config"] == {"image": "a/b:1", "env": {"T": "hunter2"}}
    assert mine["ssh_keys"] == [KEY]
    hosts = api("bob", "GET", f"{path}/launch").json()
    assert hosts["config"]["env"] == {
        "T": "hunter2",
        "GPULEDGER_INSTANCE_ID": str(made["instance_id"]),
        "GPULEDGER_API_KEY": made["instance_api_key"],
    }
    for person in ("audrey", "root"):
        seen = api(person, "GET", f"{path}/launch").json()
        assert (seen["config"], seen["ssh_keys"]) == (None, [])
        assert seen["reference"] == mine["reference"]
        assert len(seen["launch_hash"]) == 64
        keys = api(person, "GET", f"{path}/ssh-keys").json()["items"]
        assert [(one["ssh_key_id"], one["public_key"]) for one in keys] == [(1, None)]
    assert api("eve", "GET", f"{path}/launch").status_code == 404
    api("alice", "DELETE", path)
    assert api("bob", "GET", f"{path}/launch").json()["config"] is None
    assert api("alice", "GET", f"{path}/launch").json()["config"]["env"] == {"T": "hunter2"}


def test_a_change_sets_what_it_names(api: Api) -> None:
    """Null fields stay, an empty body is 400, and the same again is the same answer."""
    made = rented(api, image="a/b:1", env={"T": "1"})
    path = f"/v1/instances/{made['instance_id']}/launch"
    assert api("alice", "PUT", path, {}).status_code == 400
    head = api.market.head()
    for _ in range(2):
        assert api("alice", "PUT", path, {"onstart": "run", "env": None}).status_code == 200
    assert api.market.head() == head + 1
    shown = api("alice", "GET", path).json()
    assert shown["config"] == {"image": "a/b:1", "env": {"T": "1"}, "onstart": "run"}
    assert shown["changed_at"] == "2026-03-01T10:00:00Z"


class Registry(ImageResolver):
    """Says one digest, and remembers what it was asked."""

    def __init__(self) -> None:
        """Nothing was asked yet."""
        self.asked: list[str] = []

    def digest_of(self, image: str, login: ImageLogin | None = None) -> str | None:
        """The digest of every image."""
        del login
        self.asked.append(image)
        return DIGEST


def test_tags_are_resolved_before_the_transaction(api: Api) -> None:
    """With a resolver the digest of a create, a template's image and a change are recorded."""
    registry = Registry()
    app = create_app(api.market.ledger, api.market.usage, images=registry)
    with TestClient(app) as client:
        asks = Api.__new__(Api)
        asks.market, asks.client, asks.keys, asks.accounts = (
            api.market,
            client,
            api.keys,
            api.accounts,
        )
        made = rented(asks, image="a/b:1")
        assert made["image_digest"] == DIGEST
        assert DIGEST in made["warnings"][0]["message"]
        template = {"name": "t", "launch": {"image": "t/t:1"}}
        made_id = asks("alice", "POST", "/v1/templates", template).json()["template_id"]
        body = {**order(asks), "template": made_id}
        assert asks("alice", "POST", "/v1/instances", body).json()["image_digest"] == DIGEST
        path = f"/v1/instances/{made['instance_id']}"
        asks("alice", "PUT", f"{path}/launch", {"image": "c/d:2"})
        assert asks("alice", "GET", path).json()["image_digest"] == DIGEST
        rented(asks, image=f"p/p@{DIGEST}")
    assert registry.asked == ["a/b:1", "t/t:1", "c/d:2"]


def test_a_repeated_create_shows_its_key_again_to_its_key_alone(api: Api) -> None:
    """Under an Idempotency-Key the answer is the same, with its key, kept sealed (IDEM-01)."""
    body = order(api, image=f"a/b@{DIGEST}")
    first = api("alice", "POST", "/v1/instances", body, Idempotency_Key="k")
    again = api("alice", "POST", "/v1/instances", body, Idempotency_Key="k")
    assert again.content == first.content
    key = first.json()["instance_api_key"]
    kept = api.market.connection.execute("SELECT answer FROM idempotency").fetchone()
    assert kept is not None
    assert key.encode() not in bytes(kept[0])


def test_an_unkeyed_repeat_shows_the_same_key(api: Api) -> None:
    """The repeat of a create by its offer is the same instance with its key, made once (C21)."""
    api.market.machine(host="bob")
    offer = api("alice", "GET", "/v1/offers?verified_only=false").json()["items"][0]["offer_id"]
    body = {"offer_id": offer, "disk_gb": 1}
    first = api("alice", "POST", "/v1/instances", body).json()
    again = api("alice", "POST", "/v1/instances", body).json()
    assert (again["instance_id"], again["replayed"]) == (first["instance_id"], True)
    assert again["instance_api_key"] == first["instance_api_key"]


def test_the_secure_tier_can_be_demanded(api: Api) -> None:
    """A create elsewhere is 422 `secure_tier_required`, and nothing exists then."""
    assert api("alice", "GET", "/v1/launch-policy").json()["secure_only"] is False
    api("alice", "PUT", "/v1/launch-policy", {"secure_only": True})
    refused = api("alice", "POST", "/v1/instances", order(api))
    assert (refused.status_code, refused.json()["code"]) == (422, "secure_tier_required")
    assert api("alice", "GET", "/v1/instances").json()["items"] == []


# --- templates, secrets, ssh keys -----------------------------------------------------------------


def test_templates_come_and_go(api: Api) -> None:
    """Made, found by name and hash, changed, used, deleted; others see public ones alone."""
    body = {"name": "train", "launch": {"image": "a/b:1", "env": {"X": "1"}}}
    made = api("alice", "POST", "/v1/templates", body)
    assert made.status_code == 201
    first = made.json()
    assert (first["version"], first["name"], first["public"]) == (1, "train", False)
    path = f"/v1/templates/{first['template_id']}"
    assert api("carol", "GET", "/v1/templates").json()["items"] == []
    changed = api("alice", "PUT", path, {**body, "public": True}).json()
    assert changed["version"] == 2
    for query in ("search=TRAI", f"search={changed['hash_id']}", "mine=true"):
        items = api("alice", "GET", f"/v1/templates?{query}").json()["items"]
        assert [one["template_id"] for one in items] == [first["template_id"]], query
    (seen,) = api("carol", "GET", "/v1/templates").json()["items"]
    assert seen["launch"] == body["launch"]
    order_of = {**order(api), "template": changed["hash_id"]}
    rented_with = api("carol", "POST", "/v1/instances", order_of).json()
    launch = api("carol", "GET", f"/v1/instances/{rented_with['instance_id']}/launch").json()
    assert launch["config"] == body["launch"]
    assert launch["template_hash"] == changed["hash_id"]
    assert api("carol", "DELETE", path).status_code == 404
    assert api("alice", "DELETE", path).status_code == 200
    gone = api("carol", "POST", "/v1/instances", {**order(api), "template": changed["hash_id"]})
    assert (gone.status_code, gone.json()["code"]) == (404, "no_such_template")


def test_auditors_see_that_a_template_is_there(api: Api) -> None:
    """Of a private template auditors and admins see ids and hashes, no text."""
    api("alice", "POST", "/v1/templates", {"name": "quiet", "launch": {"image": "quiet/x"}})
    for person in ("audrey", "root"):
        answer = api(person, "GET", "/v1/templates")
        assert "quiet" not in answer.text
        assert len(answer.json()["items"]) == 1


def test_templates_are_paged(api: Api) -> None:
    """Each page has the size that was asked for, and no template comes twice (API-08)."""
    for number in range(5):
        api("alice", "POST", "/v1/templates", {"name": f"t{number}", "launch": {}})
    seen, cursor = [], ""
    while True:
        page = api("alice", "GET", f"/v1/templates?limit=2{cursor}").json()
        seen += [one["name"] for one in page["items"]]
        if page["next_cursor"] is None:
            break
        cursor = f"&cursor={page['next_cursor']}"
    assert seen == [f"t{number}" for number in range(5)]


def test_secrets_are_ones_own(api: Api) -> None:
    """A secret is shown to its account and put into its launches, and into nobody else's."""
    for value in ("one", "two"):
        answer = api("alice", "PUT", "/v1/secrets", {"name": "T", "value": value})
        assert answer.json() == {"name": "T"}
    (kept,) = api("alice", "GET", "/v1/secrets").json()["items"]
    assert (kept["name"], kept["value"]) == ("T", "two")
    for person in ("carol", "root"):
        assert api(person, "GET", "/v1/secrets").json()["items"] == []
    for person in ("bob", "audrey"):
        assert api(person, "GET", "/v1/secrets").status_code == 403
    made = rented(api, image="a/b:1")
    path = f"/v1/instances/{made['instance_id']}/launch"
    assert api("alice", "GET", path).json()["config"]["env"] == {"T": "two"}
    assert api("alice", "DELETE", "/v1/secrets/T").status_code == 200
    again = api("alice", "DELETE", "/v1/secrets/T")
    assert (again.status_code, again.json()["code"]) == (404, "no_such_secret")


def test_ssh_keys_are_kept_attached_and_detached(api: Api) -> None:
    """A pasted key is kept and attached in one; a private key is refused and not repeated."""
    made = rented(api)
    path = f"/v1/instances/{made['instance_id']}/ssh-keys"
    number = api("alice", "POST", path, {"ssh_key": f"{KEY} me@home"}).json()["ssh_key_id"]
    (shown,) = api("alice", "GET", path).json()["items"]
    assert shown["public_key"] == f"{KEY} me@home"
    assert shown["fingerprint"] == "SHA256:ZkAslGjFiUHdGf/WUL8rQvkib4PTvQatUV0OUQSncCA"
    (host_sees,) = api("bob", "GET", path).json()["items"]
    assert host_sees == shown
    assert api("alice", "DELETE", f"{path}/{number}").status_code == 200
    assert api("alice", "GET", path).json()["items"] == []
    assert len(api("alice", "GET", "/v1/ssh-keys").json()["items"]) == 1
    private = "-----BEGIN OPENSSH PRIVATE KEY-----\nc2VjcmV0\n-----END OPENSSH PRIVATE KEY-----"
    refused = api("alice", "POST", "/v1/ssh-keys", {"ssh_key": private})
    assert (refused.status_code, refused.json()["code"]) == (422, "invalid_ssh_key")
    assert "c2VjcmV0" not in refused.text
    for body in ({}, {"ssh_key": KEY, "ssh_key_id": number}):
        assert api("alice", "POST", path, body).status_code == 400


# --- ways in, logs, jobs --------------------------------------------------------------------------


@pytest.fixture
def running(api: Api) -> tuple[int, int]:
    """A machine of bob's, and an instance of alice's that runs on it."""
    machine = api.market.machine(host="bob")
    made = api("alice", "POST", "/v1/instances", {"machine_id": machine, "disk_gb": 1}).json()
    api.market.confirm(machine, made["instance_id"])
    return machine, made["instance_id"]


def test_a_way_in_is_read_back(api: Api, running: tuple[int, int]) -> None:
    """What the host publishes its renter reads; ports are always an object (API-07, C36)."""
    _, instance = running
    path = f"/v1/instances/{instance}"
    assert api("alice", "GET", path).json()["connection"] is None
    body = {
        "assignment": 1,
        "ports": [{"container_port": 22, "host_port": 40022}],
        "public_ip": "203.0.113.9",
        "ssh_host": "ssh.example",
        "ssh_port": 40022,
        "jupyter_token": "t0k",
        "digest": DIGEST,
    }
    for person in ("eve", "alice"):
        assert api(person, "PUT", f"{path}/connection", body).status_code in {403, 404}
    answer = api("bob", "PUT", f"{path}/connection", body, Idempotency_Key="k")
    assert answer.status_code == 200, answer.text
    for person in ("alice", "bob"):
        shown = api(person, "GET", path).json()["connection"]
        assert shown["public_ip"] == "203.0.113.9"
        assert shown["ports"] == [{"container_port": 22, "host_port": 40022, "protocol": "tcp"}]
    seen = api("audrey", "GET", path).json()["connection"]
    assert (seen["public_ip"], seen["jupyter_token"], seen["digest"]) == (None, None, DIGEST)
    stale = api("bob", "PUT", f"{path}/connection", {**body, "assignment": 2})
    assert (stale.status_code, stale.json()["code"]) == (422, "stale_assignment")
    api("alice", "DELETE", path)
    assert api("alice", "GET", path).json()["connection"] is None


def test_a_log_is_fetched_without_a_key(api: Api, running: tuple[int, int]) -> None:
    """The URL is 404 until the host uploaded, then the text, and 404 an hour after it was asked."""
    machine, instance = running
    asked = api("alice", "POST", f"/v1/instances/{instance}/log-requests", {"tail": 5})
    assert asked.status_code == 201
    url = asked.json()["result_url"]
    path = url[url.index("/v1/") :]
    assert api(None, "GET", path).status_code == 404
    for person in ("eve", "carol"):
        assert api(person, "GET", f"/v1/machines/{machine}/log-requests").status_code in {403, 404}
    (waits,) = api("bob", "GET", f"/v1/machines/{machine}/log-requests").json()["items"]
    assert (waits["instance_id"], waits["tail"], waits["daemon"]) == (instance, 5, False)
    upload = f"/v1/log-requests/{waits['token']}"
    assert api("eve", "PUT", upload, {"text": "x"}).status_code == 404
    assert api("bob", "PUT", upload, {"text": "epoch 1 ✓\n"}).json() == {"characters": 10}
    answer = api(None, "GET", path)
    assert (answer.status_code, answer.text) == (200, "epoch 1 ✓\n")
    assert answer.headers["content-type"] == "text/plain; charset=utf-8"
    assert answer.headers["cache-control"] == "no-store"
    api.market.clock.move_to(START + 3_600)
    gone = api(None, "GET", path)
    assert (gone.status_code, gone.json()["code"]) == (404, "no_such_log")


def test_jobs_are_scheduled_shown_and_removed(api: Api, running: tuple[int, int]) -> None:
    """A job is made once, tells what came of it, is changed and removed; others see none of it."""
    _, instance = running
    body = {"action": "stop", "frequency": "DAILY", "hour": 11, "until": "2026-04-01T00:00:00Z"}
    made = api("alice", "POST", "/v1/scheduled-jobs", {**body, "instance_id": instance})
    assert made.status_code == 201, made.text
    assert made.json()["due_at"] == "2026-03-01T11:00:00Z"
    again = api("alice", "POST", "/v1/scheduled-jobs", {**body, "instance_id": instance})
    assert again.json() == made.json()
    other = {**body, "instance_id": instance, "hour": 12}
    refused = api("alice", "POST", "/v1/scheduled-jobs", other)
    job = made.json()["job_id"]
    assert (refused.status_code, refused.json()["job_id"]) == (422, job)
    api.market.clock.move_to(START + 3_600)
    run_jobs(api.market.ledger)
    (shown,) = api("alice", "GET", f"/v1/scheduled-jobs?instance_id={instance}").json()["items"]
    assert (shown["last_outcome"], shown["last_due_at"]) == ("done", "2026-03-01T11:00:00Z")
    assert api("carol", "GET", "/v1/scheduled-jobs").json()["items"] == []
    changed = api("alice", "PUT", f"/v1/scheduled-jobs/{job}", {**body, "hour": 13})
    assert changed.json()["due_at"] == "2026-03-01T13:00:00Z"
    assert api("alice", "DELETE", f"/v1/scheduled-jobs/{job}").status_code == 200
    assert api("alice", "GET", "/v1/scheduled-jobs").json()["items"] == []
    assert api("alice", "DELETE", f"/v1/scheduled-jobs/{job}").status_code == 404


def test_nothing_of_it_is_in_the_log(api: Api) -> None:
    """No text of launches, templates, secrets, keys' names and ways in is in any event (§20)."""
    machine = api.market.machine(host="bob")
    launch = {"image": "quiet/image:1", "onstart": "quiet-start"}
    made = api(
        "alice", "POST", "/v1/instances", {"machine_id": machine, "disk_gb": 1, "launch": launch}
    ).json()
    api("alice", "PUT", "/v1/secrets", {"name": "QUIET_NAME", "value": "quiet-value"})
    api("alice", "POST", "/v1/templates", {"name": "quiet-template", "launch": launch})
    api("alice", "POST", "/v1/keys", {"role": "renter", "name": "quiet-laptop"})
    api("alice", "POST", "/v1/ssh-keys", {"ssh_key": f"{KEY} quiet@home"})
    way = {"assignment": 1, "public_ip": "203.0.113.200"}
    path = f"/v1/instances/{made['instance_id']}/connection"
    assert api("bob", "PUT", path, way).status_code == 200
    events = api("audrey", "GET", "/v1/events?limit=1000").json()["items"]
    text = msgspec.json.encode(events).decode().lower()
    for secret in ("quiet", "203.0.113.200", made["instance_api_key"].split("_", 2)[2].lower()):
        assert secret not in text, secret
