"""Idempotency keys: what is compared, what is kept, and that no secret lies in the database."""

from __future__ import annotations

import pytest

from tests.http.conftest import Api
from tests.support.market import START, Market


def kept(market: Market) -> bytes:
    """Everything that the server keeps of its answers."""
    rows = market.connection.execute("SELECT answer FROM idempotency").fetchall()
    return b"".join(bytes(answer) for (answer,) in rows)


def test_a_repeat_shows_the_same_secret_and_the_database_does_not(api: Api) -> None:
    """A key made under an Idempotency-Key is shown again to its maker, and is stored nowhere."""
    first = api("alice", "POST", "/v1/keys", {"role": "renter"}, idempotency_key="k")
    again = api("alice", "POST", "/v1/keys", {"role": "renter"}, idempotency_key="k")
    assert (again.status_code, again.json()) == (201, first.json())
    assert again.headers["idempotency-replayed"] == "true"
    assert len(api("alice", "GET", "/v1/keys").json()["items"]) == 2
    machine = api.market.machine(host="bob")
    path = f"/v1/machines/{machine}/enrolment-tokens"
    token = api("bob", "POST", path, idempotency_key="t").json()["token"]
    assert api("bob", "POST", path, idempotency_key="t").json()["token"] == token
    for secret in (first.json()["key"], token):
        assert secret.rpartition("_")[2].encode() not in kept(api.market)


def test_a_kept_secret_opens_for_the_key_that_asked_for_it_only(api: Api) -> None:
    """Another API key of the same account cannot read the secret out of a repeat."""
    made = api("alice", "POST", "/v1/keys", {"role": "renter"}, idempotency_key="k").json()
    api.keys["second"] = made["key"]
    answer = api("second", "POST", "/v1/keys", {"role": "renter"}, idempotency_key="k")
    assert (answer.status_code, answer.json()["code"]) == (422, "idempotency_conflict")
    assert made["key"] not in answer.text


def test_the_query_is_part_of_the_request(api: Api) -> None:
    """A key that captured one account's hold captures no other account's hold of the same id."""
    for person in ("alice", "carol"):
        api(person, "POST", "/v1/holds", {"amount": "1", "id": "h"})
    paths = [f"/v1/holds/h/capture?account_id={api.accounts[one]}" for one in ("alice", "carol")]
    assert api("root", "POST", paths[0], {}, idempotency_key="c").status_code == 200
    answer = api("root", "POST", paths[1], {}, idempotency_key="c")
    assert (answer.status_code, answer.json()["code"]) == (422, "idempotency_conflict")
    assert api("carol", "GET", "/v1/holds").json()["items"][0]["status"] == "pending"


def test_an_enrolment_can_be_repeated_under_its_key(api: Api) -> None:
    """The enrolment of one token is answered again; the same key with another token is its own."""
    spec = {
        "gpus": 1, "gpu_name": "A10", "gpu_ram_gb": 24, "cpu_cores": 8, "ram_gb": 64,
        "disk_gb": 500, "up_mbps": 100, "down_mbps": 100,
    }  # fmt: skip
    ids = []
    for number in (1, 2):
        machine = api("bob", "POST", "/v1/machines", spec).json()["machine_id"]
        token = api("bob", "POST", f"/v1/machines/{machine}/enrolment-tokens").json()["token"]
        body = {"token": token, "public_key": f"{number:064x}", "gpu_uuids": [f"GPU-{number}"]}
        first = api(None, "POST", "/v1/enrolments", body, idempotency_key="same")
        again = api(None, "POST", "/v1/enrolments", body, idempotency_key="same")
        assert (first.status_code, again.status_code) == (201, 201)
        assert first.json() == again.json()
        assert again.headers["idempotency-replayed"] == "true"
        ids.append(first.json()["machine_id"])
    assert ids[0] != ids[1]


@pytest.mark.parametrize("key", ["", "x" * 256, "a\tb"])
def test_what_is_no_key_is_refused(api: Api, key: str) -> None:
    """An empty, overlong or unprintable Idempotency-Key is 400, and nothing is done."""
    head = api.market.head()
    body = {"to_account_id": api.accounts["carol"], "amount": "1", "id": "t"}
    answer = api("alice", "POST", "/v1/transfers", body, idempotency_key=key)
    assert (answer.status_code, answer.json()["code"]) == (400, "invalid_args")
    assert api.market.head() == head


def test_the_last_use_of_a_key_is_kept_to_the_minute(api: Api) -> None:
    """A key shows when it was last used; uses within a minute of that are one."""

    def last_used() -> str | None:
        shown = api("root", "GET", f"/v1/keys?account_id={api.accounts['alice']}").json()
        used: str | None = shown["items"][0]["last_used_at"]
        return used

    assert last_used() is None
    api("alice", "GET", "/v1/me")
    first = last_used()
    assert first == "2026-03-01T10:00:00Z"
    api.market.clock.move_to(START + 59)
    api("alice", "GET", "/v1/me")
    assert last_used() == first
    api.market.clock.move_to(START + 60)
    api("alice", "GET", "/v1/me")
    assert last_used() == "2026-03-01T10:01:00Z"
