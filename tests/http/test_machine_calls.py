"""What a machine's own key opens besides the desired state: logs that are waited for, ways in."""

from __future__ import annotations

import threading
import time
from typing import Any

import httpx
import msgspec
import pytest

from adapters.hostagent.identity import HostIdentity
from ledger.domain.machine_call import Credential, signed_bytes, write_credential
from tests.http.conftest import Api

WAY = {"assignment": 1, "ports": [{"container_port": 22, "host_port": 40022}]}


def call(
    api: Api, machine: int, method: str, target: str, body: Any = None, **headers: str
) -> httpx.Response:
    """A request that the machine signs, its body included."""
    identity = HostIdentity.from_seed(machine.to_bytes(32, "big"))
    content = b"" if body is None else msgspec.json.encode(body)
    second = api.market.clock()
    signature = identity.sign_call(signed_bytes(machine, second, method, target, content))
    credential = write_credential(Credential(machine, identity.key_id, second, signature))
    sent = {"authorization": credential, "content-type": "application/json", **headers}
    return api.client.request(method, target, content=content, headers=sent)


@pytest.fixture
def machine(api: Api) -> int:
    """A machine of bob's."""
    return api.market.machine("bob")


@pytest.fixture
def instance(api: Api, machine: int) -> int:
    """What alice rents on it."""
    return api.market.rent(api.accounts["alice"], machine)


def asked(api: Api, instance: int) -> str:
    """Alice asks for the log; returns the path of the text."""
    answer = api("alice", "POST", f"/v1/instances/{instance}/log-requests", {"tail": 5})
    url: str = answer.json()["result_url"]
    return url[url.index("/v1/") :]


def test_a_machine_reads_what_is_waited_for_and_uploads_it(
    api: Api, machine: int, instance: int
) -> None:
    """The machine's signature is enough to list the request and to answer it."""
    path = asked(api, instance)
    (waits,) = call(api, machine, "GET", f"/v1/machines/{machine}/log-requests").json()["items"]
    target = f"/v1/log-requests/{waits['token']}"
    assert call(api, machine, "PUT", target, {"text": "epoch 1\n"}).status_code == 200
    assert api(None, "GET", path).text == "epoch 1\n"


def test_another_machine_of_the_host_answers_for_none_but_itself(
    api: Api, machine: int, instance: int
) -> None:
    """Logs and ways in of a machine are closed to the key of another one of the same host."""
    other = api.market.machine("bob")
    asked(api, instance)
    (waits,) = api("bob", "GET", f"/v1/machines/{machine}/log-requests").json()["items"]
    for method, target, body in (
        ("GET", f"/v1/machines/{machine}/log-requests", None),
        ("PUT", f"/v1/log-requests/{waits['token']}", {"text": "x"}),
        ("PUT", f"/v1/instances/{instance}/connection", WAY),
    ):
        assert call(api, other, method, target, body).status_code == 404, target


def test_a_machine_publishes_the_way_into_its_instance(
    api: Api, machine: int, instance: int
) -> None:
    """The renter sees what the machine's own request said."""
    target = f"/v1/instances/{instance}/connection"
    assert call(api, machine, "PUT", target, WAY).status_code == 200
    shown = api("alice", "GET", f"/v1/instances/{instance}").json()["connection"]
    assert shown["ports"] == [{"container_port": 22, "host_port": 40022, "protocol": "tcp"}]


def test_a_body_is_part_of_what_is_signed(api: Api, machine: int, instance: int) -> None:
    """A signature does not serve for the same request with other words in it."""
    target = f"/v1/instances/{instance}/connection"
    identity = HostIdentity.from_seed(machine.to_bytes(32, "big"))
    second = api.market.clock()
    signed = signed_bytes(machine, second, "PUT", target, msgspec.json.encode(WAY))
    credential = Credential(machine, identity.key_id, second, identity.sign_call(signed))
    forged = {**WAY, "public_ip": "203.0.113.66"}
    answer = api.client.put(
        target, json=forged, headers={"authorization": write_credential(credential)}
    )
    assert answer.status_code == 401


def test_a_machine_keeps_nothing_under_an_idempotency_key(
    api: Api, machine: int, instance: int
) -> None:
    """A machine has no API key to seal an answer with, so such a request is refused."""
    target = f"/v1/instances/{instance}/connection"
    headers = {"Idempotency-Key": "k"}
    assert call(api, machine, "PUT", target, WAY, **headers).status_code == 400


def test_a_waiting_machine_is_told_of_a_log_within_a_second(
    api: Api, machine: int, instance: int
) -> None:
    """A renter's request lets the machine's wait end, with the request's number in the answer."""
    known = call(api, machine, "GET", f"/v1/machines/{machine}/desired").json()
    assert known["log_request"] == 0
    answers: list[tuple[float, dict[str, Any]]] = []

    def wait() -> None:
        target = f"/v1/machines/{machine}/desired?after={known['version']}&wait=20&after_log=0"
        answer = call(api, machine, "GET", target)
        answers.append((time.monotonic(), answer.json()))

    thread = threading.Thread(target=wait)
    thread.start()
    time.sleep(0.5)
    assert answers == []
    asked(api, instance)
    began = time.monotonic()
    thread.join(20)
    ((heard, answer),) = answers
    assert heard - began < 10  # not at the end of the wait
    assert (answer["version"], answer["log_request"] > 0) == (known["version"], True)
    assert "log_request" not in api("bob", "GET", f"/v1/machines/{machine}/desired").json()


def test_a_log_that_was_uploaded_is_waited_for_no_more(
    api: Api, machine: int, instance: int
) -> None:
    """The number falls back to that of the newest request that still waits."""
    asked(api, instance)
    asked(api, instance)
    path = f"/v1/machines/{machine}/log-requests"
    first, second = call(api, machine, "GET", path).json()["items"]

    def newest() -> int:
        answer = call(api, machine, "GET", f"/v1/machines/{machine}/desired").json()
        number: int = answer["log_request"]
        return number

    assert newest() == int(second["token"].partition("-")[0])
    call(api, machine, "PUT", f"/v1/log-requests/{second['token']}", {"text": ""})
    assert newest() == int(first["token"].partition("-")[0])
    call(api, machine, "PUT", f"/v1/log-requests/{first['token']}", {"text": ""})
    assert newest() == 0
