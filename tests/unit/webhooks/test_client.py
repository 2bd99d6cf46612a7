"""One attempt, against a receiver on this machine that behaves in every way there is."""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from adapters.webhooks.client import Client
from ledger.services.webhooks import EXCERPT_BYTES_MAX, Delivery, Outcome
from tests.support.certificates import certificate
from tests.support.webhooks import LOOPBACK, Receiver


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    """A receiver that takes everything."""
    with Receiver() as one:
        yield one


def delivery(url: str, body: bytes = b"{}") -> Delivery:
    """An attempt to *url*."""
    headers = {"Content-Type": "application/json", "X-Gpuledger-Event": "evt_1"}
    return Delivery(1, 1, 1, 1, url, headers, body)


def attempt(url: str, *, body: bytes = b"{}", **options: Any) -> Outcome:
    """What becomes of one attempt."""

    async def run() -> Outcome:
        client = Client(**{"reach": LOOPBACK, "timeout_seconds": 5.0, **options})
        try:
            return await client.attempt(delivery(url, body))
        finally:
            await client.close()

    return asyncio.run(run())


class Names:
    """A name service that says what the test wants, and what it was asked."""

    def __init__(self, *answers: list[str]) -> None:
        """Give these answers in turn, the last one again and again."""
        self.answers = list(answers)
        self.asked: list[tuple[str, int]] = []

    async def __call__(self, host: str, port: int) -> list[str]:
        """The addresses of *host*."""
        self.asked.append((host, port))
        found = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if not found:
            message = "no such name"
            raise OSError(message)
        return found


# --- what a receiver answers ----------------------------------------------------------------------


def test_a_request_carries_exactly_the_body_and_the_headers(receiver: Receiver) -> None:
    """The receiver gets the bytes that were signed, whole, under the host that was registered."""
    body = bytes(range(256)) * 200
    outcome = attempt(receiver.url + "?a=b%20c", body=body)
    assert (outcome.taken, outcome.status, outcome.reason) == (True, 204, None)
    (got,) = receiver.received
    assert got.body == body
    assert got.path == "/hook?a=b%20c"
    assert got.headers["host"] == f"127.0.0.1:{receiver.port}"
    assert got.headers["content-type"] == "application/json"
    assert got.headers["x-gpuledger-event"] == "evt_1"
    assert got.headers["content-length"] == str(len(body))


@pytest.mark.parametrize(("status", "taken"), [(200, True), (202, True), (299, True), (400, False)])
def test_any_2xx_is_taken_and_nothing_else(status: int, taken: bool) -> None:
    """200 to 299 end a delivery; everything else is kept with its status and is tried again."""
    with Receiver(str(status)) as receiver:
        outcome = attempt(receiver.url)
    assert (outcome.taken, outcome.status) == (taken, status)
    assert outcome.reason == (None if taken else f"http_{status}")


def test_a_redirect_is_not_followed() -> None:
    """A 302 is a failure with its status; nothing is requested from where it points."""
    with Receiver("redirect") as receiver:
        outcome = attempt(receiver.url)
        assert (outcome.taken, outcome.reason) == (False, "http_302")
        assert [one.path for one in receiver.received] == ["/hook"]


def test_little_is_kept_of_a_long_answer() -> None:
    """Of a failure's body the first kibibyte is kept, as text that can be stored anywhere."""
    with Receiver("500") as receiver:
        outcome = attempt(receiver.url)
    assert outcome.excerpt is not None
    assert outcome.excerpt.startswith("answer 500\nanswer 500\n")
    assert len(outcome.excerpt.encode()) <= EXCERPT_BYTES_MAX


def test_an_answer_that_never_ends_costs_a_second() -> None:
    """A body that drips for ever is cut, and its status is what the attempt came to."""
    began = time.monotonic()
    with Receiver("drip") as receiver:
        outcome = attempt(receiver.url)
    assert (outcome.taken, outcome.reason) == (False, "http_500")
    assert len((outcome.excerpt or "").encode()) <= EXCERPT_BYTES_MAX
    assert time.monotonic() - began < 15


def test_a_receiver_that_hangs_is_given_up_in_time() -> None:
    """An attempt ends with its time limit, whatever the receiver has not done by then."""
    with Receiver("hang") as receiver:
        began = time.monotonic()
        outcome = attempt(receiver.url, timeout_seconds=0.3)
        assert time.monotonic() - began < 8  # it hangs for 20
    assert (outcome.taken, outcome.status, outcome.reason) == (False, None, "timeout")


def test_a_receiver_that_hangs_up_may_have_it(receiver: Receiver) -> None:
    """A connection that ends without an answer is a failure: the event will come twice."""
    receiver.script.append("close")
    outcome = attempt(receiver.url)
    assert (outcome.taken, outcome.reason) == (False, "closed")
    assert len(receiver.received) == 1


def test_nobody_listens() -> None:
    """A refused connection is told as such."""
    with Receiver() as gone:
        url = gone.url
    assert attempt(url).reason == "not_reached"


def test_nothing_is_kept_between_attempts() -> None:
    """Two attempts of one client share neither a connection nor a cookie."""
    with Receiver() as receiver:

        async def run() -> None:
            client = Client(LOOPBACK)
            for _ in range(2):
                assert (await client.attempt(delivery(receiver.url))).taken
            await client.close()

        asyncio.run(run())
        assert all("cookie" not in one.headers for one in receiver.received)
        assert [one.headers["connection"] for one in receiver.received] == ["close", "close"]


# --- where it leads -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "addresses",
    [
        ["127.0.0.1"],
        ["8.8.8.8", "127.0.0.1"],
        ["::ffff:127.0.0.1"],
        ["10.0.0.1"],
        ["169.254.169.254"],
        ["0.0.0.0"],  # noqa: S104 - nobody listens here
        ["fe80::1%eth0"],
        ["nonsense"],
    ],
)
def test_a_name_that_means_a_closed_address_is_not_asked(
    receiver: Receiver, addresses: list[str]
) -> None:
    """One closed address among a name's is enough: nothing is sent to any of them."""
    names = Names(addresses)
    outcome = attempt(f"https://hooks.example:{receiver.port}/", reach=(), resolve=names)
    assert (outcome.taken, outcome.reason) == (False, "address_refused")
    assert names.asked == [("hooks.example", receiver.port)]
    assert receiver.received == []


def test_a_setting_that_was_taken_back_closes_what_it_opened(receiver: Receiver) -> None:
    """A webhook that was registered to this machine is refused once that is not allowed."""
    assert attempt(receiver.url, reach=()).reason == "address_refused"
    assert receiver.received == []


def test_a_name_is_resolved_anew_for_every_attempt(receiver: Receiver) -> None:
    """An address that was fine at one attempt is judged again at the next: it may have moved."""
    names = Names(["127.0.0.1"], ["10.0.0.1"])
    url = f"http://localhost:{receiver.port}/"

    async def run() -> list[str | None]:
        client = Client(LOOPBACK, resolve=names)
        reasons = [(await client.attempt(delivery(url))).reason for _ in range(2)]
        await client.close()
        return reasons

    assert asyncio.run(run()) == [None, "address_refused"]
    assert receiver.received[0].headers["host"] == f"localhost:{receiver.port}"


def test_a_dead_address_leaves_time_for_another(receiver: Receiver) -> None:
    """When the first of a name's addresses refuses the connection, the next one is tried."""
    names = Names(["127.0.0.2", "127.0.0.1"])
    assert attempt(f"http://localhost:{receiver.port}/", resolve=names).taken


def test_a_name_that_nobody_knows_is_told(receiver: Receiver) -> None:
    """A name without an address is a failure of its own kind; one that hangs is a timeout."""
    url = f"http://localhost:{receiver.port}/"
    assert attempt(url, resolve=Names([])).reason == "name_not_resolved"

    async def never(_host: str, _port: int) -> list[str]:
        await asyncio.sleep(60)
        return []

    assert attempt(url, resolve=never, timeout_seconds=0.2).reason == "timeout"


def test_this_machine_s_own_resolver_is_asked_by_default(receiver: Receiver) -> None:
    """Without another resolver the system's is used, and both of its address families."""
    assert attempt(f"http://localhost:{receiver.port}/").taken


# --- TLS ------------------------------------------------------------------------------------------


def test_the_certificate_is_asked_of_the_name_and_not_of_the_address(tmp_path: Path) -> None:
    """A pinned address changes nothing for TLS: the name is announced, and must be certified."""
    own, other = certificate("hooks.test", tmp_path), certificate("evil.test", tmp_path)
    trusting = ssl.create_default_context(cafile=str(own))
    trusting.load_verify_locations(str(other))
    for file, reason in ((own, None), (other, "tls_failed")):
        with Receiver(tls=file) as receiver:
            url = f"https://hooks.test:{receiver.port}/"
            names = Names(["127.0.0.1"])
            outcome = attempt(url, resolve=names, context=trusting)
            assert outcome.reason == reason
            assert receiver.names == ["hooks.test"]
            assert len(receiver.received) == (reason is None)
            assert attempt(url, resolve=names).reason == "tls_failed"
