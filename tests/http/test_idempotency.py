"""Repeats: the same key, or the same id, is the same command (IDEM-01 to IDEM-05)."""

from __future__ import annotations

import re
import threading
import time
from typing import Any

import httpx
import pytest

from ledger.domain.events import InstanceDestroyed, InstanceStopped
from ledger.services import rentals
from tests.http.conftest import Api
from tests.http.test_access import paths
from tests.http.test_bad_input import GOOD, Refuses
from tests.support.market import DOLLAR

REPLAYED = "idempotency-replayed"


def topics(api: Api) -> list[str]:
    """The topics of the whole log, in its order."""
    items = api("audrey", "GET", "/v1/events?limit=1000").json()["items"]
    return [one["topic"] for one in items]


def available(api: Api, person: str) -> str:
    """What somebody has."""
    found: str = api(person, "GET", "/v1/balance").json()["available"]
    return found


@pytest.fixture
def order(api: Api) -> dict[str, Any]:
    """A machine that can be rented, as the body of a request."""
    return {"machine_id": api.market.machine(host="bob"), "disk_gb": 10}


def test_create_again_is_the_same_instance(api: Api, order: dict[str, Any]) -> None:
    """A create repeated six times with its key is one instance with one id (IDEM-01)."""
    first = api("alice", "POST", "/v1/instances", order, Idempotency_Key="k")
    assert first.status_code == 201
    assert REPLAYED not in first.headers
    head = api.market.head()
    for _ in range(6):
        again = api("alice", "POST", "/v1/instances", order, Idempotency_Key="k")
        assert (again.status_code, again.content) == (201, first.content)
        assert again.headers[REPLAYED] == "true"
        assert again.headers["content-type"] == first.headers["content-type"]
    assert api.market.head() == head
    assert len(api("alice", "GET", "/v1/instances").json()["items"]) == 1


def test_the_first_answer_stands_when_the_world_has_moved_on(
    api: Api, order: dict[str, Any]
) -> None:
    """A replay shows what was answered then, also after a stop, a destroy and a year (IDEM-01)."""
    first = api("alice", "POST", "/v1/instances", order, Idempotency_Key="k")
    number = first.json()["instance_id"]
    api("alice", "DELETE", f"/v1/instances/{number}")
    api.market.clock.move_to(api.market.clock() + 366 * 86_400)
    again = api("alice", "POST", "/v1/instances", order, Idempotency_Key="k")
    assert again.content == first.content
    assert again.json()["status"] == "loading"
    assert api("alice", "GET", f"/v1/instances/{number}").json()["status"] == "destroyed"


@pytest.mark.parametrize("key", [None, "k"])
def test_stop_and_destroy_again_change_nothing(
    api: Api, order: dict[str, Any], key: str | None
) -> None:
    """Stop three times and destroy six times leave one fact each, with or without key (IDEM-01)."""
    number = api("alice", "POST", "/v1/instances", order).json()["instance_id"]
    for repeats, method, path, kind in (
        (3, "POST", f"/v1/instances/{number}/stop", InstanceStopped),
        (6, "DELETE", f"/v1/instances/{number}", InstanceDestroyed),
    ):
        headers = {} if key is None else {"Idempotency_Key": f"{key}-{method}"}
        answers = [api("alice", method, path, **headers) for _ in range(repeats)]
        assert {one.status_code for one in answers} == {200}
        assert {one.content for one in answers} == {answers[0].content}
        assert topics(api).count(kind.__struct_config__.tag) == 1  # type: ignore[arg-type]


def test_a_refusal_by_a_rule_is_an_answer_too(api: Api, order: dict[str, Any]) -> None:
    """No capacity stays the answer to its key when the GPU is free again; a new key gets it."""
    number = api("alice", "POST", "/v1/instances", order).json()["instance_id"]
    refused = api("carol", "POST", "/v1/instances", order, Idempotency_Key="k")
    assert (refused.status_code, refused.json()["code"]) == (409, "no_capacity")
    with api.market.ledger.unit() as unit:
        rentals.destroy(unit, number)
    head = api.market.head()
    again = api("carol", "POST", "/v1/instances", order, Idempotency_Key="k")
    assert (again.status_code, again.content) == (409, refused.content)
    assert again.headers[REPLAYED] == "true"
    assert again.headers["content-type"].startswith("application/problem+json")
    assert api.market.head() == head
    assert api("carol", "POST", "/v1/instances", order, Idempotency_Key="new").status_code == 201


REFUSALS: list[tuple[str, Any, str]] = [
    ("/v1/instances", {"machine_id": 999, "disk_gb": 1}, "no_such_machine"),
    ("/v1/instances/999/stop", None, "no_such_instance"),
    ("/v1/transfers", {"to_account_id": 999, "amount": "1", "id": "t"}, "invalid_recipient"),
    ("/v1/holds", {"amount": "1000", "id": "h"}, "insufficient_credit"),
]


def test_every_command_repeats_under_its_key(api: Api) -> None:
    """Each route that takes a key answers a repeat with its first answer, and does nothing more."""
    known = Refuses(api)
    ids = {"machine_id": known.machine, "instance_id": known.instance, "hold_id": "h-0"}
    asked = 0
    for path, methods in paths().items():
        for method, operation in methods.items():
            names = {one["name"] for one in operation.get("parameters", [])}
            if "Idempotency-Key" not in names:
                continue
            route = f"{method.upper()} {path}"
            where = re.sub(r"{(\w+)}", lambda found: str(ids.get(found[1], 1)), path)
            where += "?reason=x" if "reason" in names else ""
            body = GOOD.get(route)
            first = api("root", method.upper(), where, body, Idempotency_Key=route)
            head = api.market.head()
            again = api("root", method.upper(), where, body, Idempotency_Key=route)
            assert (again.status_code, again.content) == (first.status_code, first.content), route
            assert api.market.head() == head, route
            if first.is_success:
                assert again.headers[REPLAYED] == "true", route
                asked += 1
    assert asked > 20


def test_each_kind_of_refusal_is_kept(api: Api) -> None:
    """404, 422 and 402 are replayed as they were first given."""
    for path, body, code in REFUSALS:
        first = api("alice", "POST", path, body, Idempotency_Key=code)
        assert first.json()["code"] == code
        again = api("alice", "POST", path, body, Idempotency_Key=code)
        assert (again.status_code, again.content) == (first.status_code, first.content)
        assert again.headers[REPLAYED] == "true"


def test_what_is_no_request_uses_up_no_key(api: Api, order: dict[str, Any]) -> None:
    """A body that cannot be read, a bad API key or a forbidden role leave the key free."""
    assert api("alice", "POST", "/v1/instances", b"{", Idempotency_Key="k").status_code == 400
    assert api("bob", "POST", "/v1/instances", order, Idempotency_Key="k").status_code == 403
    assert api("glk_x_y", "POST", "/v1/instances", order, Idempotency_Key="k").status_code == 401
    assert api("alice", "POST", "/v1/instances", order, Idempotency_Key="k").status_code == 201


def test_a_key_stands_for_one_request(api: Api, order: dict[str, Any]) -> None:
    """Another body, path, query or method under a used key is 422 and does nothing (IDEM-04)."""
    made = api("root", "POST", "/v1/instances", order, Idempotency_Key="k")
    number = made.json()["instance_id"]
    head = api.market.head()
    for method, path, body in (
        ("POST", "/v1/instances", {**order, "disk_gb": 11}),
        ("POST", "/v1/instances", {**order, "label": None}),
        ("POST", f"/v1/instances/{number}/stop", None),
        ("POST", f"/v1/instances/{number}/start", None),
        ("DELETE", f"/v1/instances/{number}?reason=x", None),
        ("POST", "/v1/accounts", {"name": "x"}),
    ):
        answer = api("root", method, path, body, Idempotency_Key="k")
        assert (answer.status_code, answer.json()["code"]) == (422, "idempotency_conflict"), path
        assert REPLAYED not in answer.headers
    assert api.market.head() == head
    again = api("root", "POST", "/v1/instances", order, Idempotency_Key="k")
    assert again.content == made.content


def test_the_query_is_part_of_the_request(api: Api) -> None:
    """The same key with another account in the query is another request (IDEM-04)."""
    for person in ("alice", "carol"):
        api(person, "POST", "/v1/holds", {"amount": "1", "id": "h"})
    path = f"/v1/holds/h/release?account_id={api.accounts['alice']}"
    assert api("root", "POST", path, Idempotency_Key="k").status_code == 200
    path = f"/v1/holds/h/release?account_id={api.accounts['carol']}"
    answer = api("root", "POST", path, Idempotency_Key="k")
    assert (answer.status_code, answer.json()["code"]) == (422, "idempotency_conflict")


def test_what_the_server_adds_is_not_compared(api: Api) -> None:
    """Keys and tokens are random, yet a repeat is the same request, seconds later too (IDEM-04)."""
    first = api("alice", "POST", "/v1/accounts", {"name": "x"}, Idempotency_Key="k")
    assert first.status_code == 403
    made = api("root", "POST", "/v1/accounts", {"name": "x"}, Idempotency_Key="k")
    api.market.clock.move_to(api.market.clock() + 60)
    again = api("root", "POST", "/v1/accounts", {"name": "x"}, Idempotency_Key="k")
    assert (again.status_code, again.content) == (201, made.content)
    keys = [
        api("alice", "POST", "/v1/keys", {"role": "renter"}, Idempotency_Key="q").json()
        for _ in range(3)
    ]
    assert keys[0] == keys[1] == keys[2]
    assert api(keys[0]["key"], "GET", "/v1/me").status_code == 200
    assert len(api("alice", "GET", "/v1/keys").json()["items"]) == 2


def test_a_key_belongs_to_its_account(api: Api) -> None:
    """The same text under another account is another key, and shows nobody's answer to others."""
    made = {
        person: api(
            person, "POST", "/v1/holds", {"amount": "1", "id": "h"}, Idempotency_Key="k"
        ).json()
        for person in ("alice", "carol")
    }
    assert {name: one["account_id"] for name, one in made.items()} == {
        name: api.accounts[name] for name in made
    }


def test_while_the_first_runs_a_repeat_is_409(api: Api, order: dict[str, Any]) -> None:
    """A repeat in flight is told to wait and stores nothing; later it gets the first answer."""
    market = api.market
    answers: list[httpx.Response] = []

    def first() -> None:
        answers.append(api("alice", "POST", "/v1/instances", order, Idempotency_Key="k"))

    runner = threading.Thread(target=first)
    with market.ledger.database.connect() as connection:
        connection.execute("SELECT next FROM log_position FOR UPDATE")
        runner.start()
        with market.ledger.database.connect(autocommit=True) as watching:
            for _ in range(500):
                row = watching.execute(
                    "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 1"
                    " AND pid <> pg_backend_pid() AND database = (SELECT oid FROM pg_database"
                    " WHERE datname = current_database())"
                ).fetchone()
                if row != (0,):
                    break
                time.sleep(0.01)
        second = api("alice", "POST", "/v1/instances", order, Idempotency_Key="k")
        other = api("carol", "GET", "/v1/balance", Idempotency_Key="k")
        connection.rollback()
    runner.join()
    assert (second.status_code, second.json()["code"]) == (409, "idempotency_in_flight")
    assert other.status_code == 200
    assert answers[0].status_code == 201
    again = api("alice", "POST", "/v1/instances", order, Idempotency_Key="k")
    assert again.content == answers[0].content
    assert len(api("alice", "GET", "/v1/instances").json()["items"]) == 1


def test_orphans_are_found_by_label(api: Api, order: dict[str, Any]) -> None:
    """A client that lost its answer finds the instance by the label it chose (IDEM-02)."""
    label = "run-4711"
    made = api("alice", "POST", "/v1/instances", {**order, "label": label}).json()
    second = api("alice", "POST", "/v1/instances", {**order, "label": label})
    assert (second.status_code, second.json()["code"]) == (409, "no_capacity")
    found = api("alice", "GET", f"/v1/instances?label={label}").json()["items"]
    assert [one["instance_id"] for one in found] == [made["instance_id"]]
    assert api("carol", "GET", f"/v1/instances?label={label}").json()["items"] == []


def test_the_same_deposit_twice_is_one(api: Api) -> None:
    """10, then 100 twice under one id, is 110 more, without any Idempotency-Key (IDEM-03)."""
    dora = api("root", "POST", "/v1/accounts", {"name": "dora"}).json()["account_id"]
    for number, amount in (("d-1", "10"), ("d-2", "100"), ("d-2", "100"), ("d-2", "100.00")):
        body = {"account_id": dora, "amount": amount, "id": number}
        assert api("root", "POST", "/v1/deposits", body).status_code == 201
    balance = api("root", "GET", f"/v1/balance?account_id={dora}").json()
    assert balance["available"] == "110"


MOVEMENTS = [
    ("root", "/v1/deposits", {"account_id": "alice", "amount": "2", "id": "m"}, "102"),
    (
        "root",
        "/v1/refunds",
        {"account_id": "alice", "deposit_id": "opening-1", "amount": "2", "id": "m"},
        "98",
    ),
    ("alice", "/v1/transfers", {"to_account_id": "carol", "amount": "2", "id": "m"}, "98"),
    ("alice", "/v1/holds", {"amount": "2", "id": "m"}, "98"),
]


@pytest.mark.parametrize(("person", "path", "body", "left"), MOVEMENTS)
def test_money_moves_once_per_id(
    api: Api, person: str, path: str, body: dict[str, Any], left: str
) -> None:
    """Each movement needs an id; the same again is the first, another is 422 (IDEM-05)."""
    sent = {name: api.accounts.get(str(value), value) for name, value in body.items()}
    without = {name: value for name, value in sent.items() if name != "id"}
    assert api(person, "POST", path, without).status_code == 400
    assert available(api, "alice") == "100"
    first = api(person, "POST", path, sent)
    assert first.status_code == 201
    head = api.market.head()
    for headers in ({}, {"Idempotency_Key": "a"}, {"Idempotency_Key": "b"}):
        again = api(person, "POST", path, sent, **headers)
        assert (again.status_code, again.json()) == (201, first.json())
    other = api(person, "POST", path, {**sent, "amount": "3"})
    assert (other.status_code, other.json()["code"]) == (422, "idempotency_conflict")
    assert api.market.head() == head
    assert available(api, "alice") == left


def test_ids_of_movements_belong_to_their_account(api: Api) -> None:
    """The same id of another account is another movement; a repeat never reaches a stranger's."""
    for person, other in (("alice", "carol"), ("carol", "alice")):
        body = {"to_account_id": api.accounts[other], "amount": "5", "id": "t"}
        assert api(person, "POST", "/v1/transfers", body).status_code == 201
    assert (available(api, "alice"), available(api, "carol")) == ("100", "100")
    body = {"to_account_id": api.accounts["bob"], "amount": "5", "id": "t"}
    answer = api("alice", "POST", "/v1/transfers", body)
    assert (answer.status_code, answer.json()["code"]) == (422, "idempotency_conflict")


def test_closing_a_hold_again_is_the_same(api: Api) -> None:
    """Capture and release repeat; the other way to close, or another amount, is refused."""
    for number in ("c", "r"):
        api("alice", "POST", "/v1/holds", {"amount": "10", "id": number})
    assert available(api, "alice") == "80"
    for _ in range(3):
        assert api("alice", "POST", "/v1/holds/c/capture", {"amount": "4"}).json()["amount"] == "4"
        assert api("alice", "POST", "/v1/holds/r/release").status_code == 200
    for path, body in (
        ("/v1/holds/c/capture", {"amount": "5"}),
        ("/v1/holds/c/release", None),
        ("/v1/holds/r/capture", {}),
    ):
        answer = api("alice", "POST", path, body)
        assert (answer.status_code, answer.json()["code"]) == (422, "hold_closed"), path
    assert available(api, "alice") == "96"


def test_enrolment_again_is_the_same_enrolment(api: Api) -> None:
    """An agent that lost its answer repeats token and key; a second key is refused (IDEM-01)."""
    machine = {
        "gpus": 1,
        "gpu_name": "A10",
        "gpu_ram_gb": 24,
        "cpu_cores": 8,
        "ram_gb": 64,
        "disk_gb": 100,
        "up_mbps": 100,
        "down_mbps": 100,
    }
    number = api("bob", "POST", "/v1/machines", machine).json()["machine_id"]
    made = api("bob", "POST", f"/v1/machines/{number}/enrolment-tokens")
    body = {"token": made.json()["token"], "public_key": "ab" * 32, "gpu_uuids": ["GPU-a"]}
    first = api(None, "POST", "/v1/enrolments", body)
    head = api.market.head()
    again = api(None, "POST", "/v1/enrolments", body)
    assert (
        (again.status_code, again.json())
        == (first.status_code, first.json())
        == (
            201,
            {
                "machine_id": number,
                "key_id": first.json()["key_id"],
            },
        )
    )
    other = api(None, "POST", "/v1/enrolments", {**body, "public_key": "cd" * 32})
    assert (other.status_code, other.json()["code"]) == (401, "auth_error")
    assert api.market.head() == head


def test_credit_moves_between_accounts_and_nothing_is_lost(api: Api) -> None:
    """After all repeats the sum over accounts is what was deposited."""
    for number in range(5):
        body = {"to_account_id": api.accounts["carol"], "amount": "0.01", "id": f"t{number % 2}"}
        api("alice", "POST", "/v1/transfers", body, Idempotency_Key=f"k{number}")
    assert (available(api, "alice"), available(api, "carol")) == ("99.98", "100.02")
    with api.market.ledger.reading() as connection:
        row = connection.execute("SELECT sum(posted) FROM account_credit").fetchone()
    assert row == (len(api.accounts) * 100 * DOLLAR,)
