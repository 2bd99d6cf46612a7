"""What the agent says beside its reports: logs, ways in, its diary, hints to look, volumes."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from adapters.hostagent.acting.calls import SignedCalls
from adapters.hostagent.acting.diary import LINES_MAX, Diary
from adapters.hostagent.acting.hints import Hints
from adapters.hostagent.acting.scribe import TEXT_CHARACTERS, Scribe, shown
from adapters.hostagent.acting.volumes import Volumes
from adapters.hostagent.acting.ways_in import WaysIn, public_address, way_in
from adapters.hostagent.runtime.port import (
    Connection,
    Jupyter,
    LaunchSpec,
    PortWish,
    RuntimeUnavailableError,
)
from adapters.hostagent.runtime.twin import RuntimeTwin
from ledger.domain.acknowledgement import DesiredVolume
from ledger.domain.hardware import ConnectionPort
from ledger.domain.machine_call import read_credential, signed_bytes
from tests.unit.hostagent.server import IDENTITY

MACHINE = 4001
BASE = "http://ledger.test"


class Server:
    """Answers signed requests; `status` is what a PUT is answered with."""

    def __init__(self) -> None:
        """Wait for nothing."""
        self.waits: list[dict[str, Any]] = []
        self.puts: list[tuple[str, Any]] = []
        self.status = 200
        http = httpx.Client(transport=httpx.MockTransport(self._answer))
        self.calls = SignedCalls(BASE, MACHINE, IDENTITY, second=lambda: 1_000, http=http)

    def _answer(self, request: httpx.Request) -> httpx.Response:
        scheme, _, text = request.headers["authorization"].partition(" ")
        credential = read_credential(text)
        assert scheme == "Machine"
        assert credential is not None
        target = request.url.raw_path.decode()
        signed = signed_bytes(MACHINE, 1_000, request.method, target, request.content)
        public_key = Ed25519PublicKey.from_public_bytes(IDENTITY.public_key)
        public_key.verify(credential.signature, signed)
        if request.method == "GET":
            assert target == f"/v1/machines/{MACHINE}/log-requests"
            return httpx.Response(200, json={"items": self.waits})
        self.puts.append((target, json.loads(request.content)))
        return httpx.Response(self.status, json={})


@pytest.fixture
def server() -> Server:
    """A server for which nobody waits."""
    return Server()


@pytest.fixture
def twin() -> RuntimeTwin:
    """A runtime with instance 7 under assignments 1 and 2."""
    one = RuntimeTwin(time.time())
    for assignment in (1, 2):
        one.start(spec(assignment))
    return one


def spec(assignment: int, **fields: Any) -> LaunchSpec:
    """Instance 7."""
    return LaunchSpec(instance=7, assignment=assignment, gpu_uuids=(), **fields)


# --- logs -----------------------------------------------------------------------------------------


def test_every_log_that_is_waited_for_is_uploaded(server: Server, twin: RuntimeTwin) -> None:
    """Output, the agent's own words and an instance that is not here each get their answer."""
    diary = Diary()
    diary.note(7, 0, "cannot be started (bad_command): no such file")
    server.waits = [
        {"token": "1-a", "instance_id": 7, "tail": 1},
        {"token": "2-b", "instance_id": 7, "daemon": True},
        {"token": "3-c", "instance_id": 8},
    ]
    Scribe(server.calls, twin, diary).serve()
    assert server.puts == [
        ("/v1/log-requests/1-a", {"text": "assignment 2 started\n"}),
        (
            "/v1/log-requests/2-b",
            {"text": "1970-01-01T00:00:00Z cannot be started (bad_command): no such file\n"},
        ),
        ("/v1/log-requests/3-c", {"text": ""}),
    ]


def test_a_log_that_has_expired_does_not_keep_the_others_waiting(
    server: Server, twin: RuntimeTwin
) -> None:
    """A request that the server does not know any more is passed over."""
    server.waits = [{"token": "1-a", "instance_id": 7}, {"token": "2-b", "instance_id": 7}]
    server.status = 404
    Scribe(server.calls, twin, Diary()).serve()
    assert len(server.puts) == 2


@pytest.mark.parametrize("status", [401, 429, 500, 503])
def test_an_upload_that_may_succeed_later_is_tried_again(
    server: Server, twin: RuntimeTwin, status: int
) -> None:
    """What says "later" ends the round with an error, and the request stays open."""
    server.waits = [{"token": "1-a", "instance_id": 7}]
    server.status = status
    with pytest.raises(httpx.HTTPStatusError):
        Scribe(server.calls, twin, Diary()).serve()


def test_a_runtime_that_is_away_is_no_empty_log(server: Server, twin: RuntimeTwin) -> None:
    """Nothing is uploaded while nobody can say what was written."""
    server.waits = [{"token": "1-a", "instance_id": 7}]
    twin.is_away = True
    with pytest.raises(RuntimeUnavailableError):
        Scribe(server.calls, twin, Diary()).serve()
    assert server.puts == []


def test_a_filter_chooses_before_the_tail() -> None:
    """The last lines with the text are shown, not those of the last lines that have it."""
    output = b"error 1\nfine\nerror 2\nfine\n"
    assert shown(output, 1, "error") == "error 2\n"
    assert shown(output, 2, None) == "error 2\nfine\n"
    assert shown(b"\xff\n", 9, None) == "�\n"


def test_of_a_long_log_the_end_is_sent() -> None:
    """What the server would cut away does not travel."""
    text = shown(b"x" * TEXT_CHARACTERS + b"end", 9, None)
    assert (len(text), text[-4:]) == (TEXT_CHARACTERS, "xend")


def test_a_diary_is_bounded_and_of_one_line_each() -> None:
    """The oldest lines go, and no text makes two lines of one."""
    diary = Diary()
    for number in range(LINES_MAX + 5):
        diary.note(7, number, f"line\n{number}")
    lines = diary.text(7).splitlines()
    assert (len(lines), lines[0][-6:]) == (LINES_MAX, "line 5")
    diary.forget(7)
    assert diary.text(7) == ""


# --- ways in --------------------------------------------------------------------------------------


def test_a_way_in_is_told_once_and_again_when_it_changed(server: Server, twin: RuntimeTwin) -> None:
    """The same ports are told once; another assignment, or another port, is told anew."""
    ways = WaysIn(server.calls, twin, "203.0.113.9")
    twin.start(spec(3, ports=(PortWish(22),)))
    for _ in range(2):
        ways.running(twin.list())
        ways.publish()
    expected = {
        "assignment": 3,
        "ports": [{"container_port": 22, "host_port": 40_000, "protocol": "tcp"}],
        "public_ip": "203.0.113.9",
        "ssh_host": "203.0.113.9",
        "ssh_port": 40_000,
    }
    assert server.puts == [("/v1/instances/7/connection", expected)]
    twin.stop("7", 0)
    ways.running([])
    ways.publish()
    twin.start(spec(4, ports=(PortWish(22, "tcp", 41_000),)))
    ways.running(twin.list())
    ways.publish()
    assert server.puts[1][1]["ports"][0]["host_port"] == 41_000
    assert len(server.puts) == 2


def test_an_instance_without_a_way_in_is_not_talked_about(
    server: Server, twin: RuntimeTwin
) -> None:
    """No port, no digest: there is nothing to tell."""
    ways = WaysIn(server.calls, twin, "203.0.113.9")
    ways.running(twin.list())
    ways.publish()
    assert server.puts == []


def test_a_way_in_that_came_too_late_is_not_repeated(server: Server, twin: RuntimeTwin) -> None:
    """A refusal for good is taken; one that says "later" is tried again."""
    ways = WaysIn(server.calls, twin, None)
    twin.start(spec(3, ports=(PortWish(22),)))
    ways.running(twin.list())
    server.status = 503
    with pytest.raises(httpx.HTTPStatusError):
        ways.publish()
    server.status = 422
    ways.publish()
    ways.publish()
    assert [body["assignment"] for _, body in server.puts] == [3, 3]


def test_a_notebook_is_named_by_its_address_and_what_opens_it() -> None:
    """Its published port makes the URL; without an address nothing but ports is told."""
    port = ConnectionPort(container_port=8080, host_port=40_080)
    connection = Connection([port], jupyter=Jupyter(8080, "t0k"))
    told = way_in(1, connection, "2001:db8::1")
    assert (told["jupyter_url"], told["jupyter_token"]) == ("http://[2001:db8::1]:40080/", "t0k")
    assert way_in(1, connection, None).keys() == {"assignment", "ports"}


def test_an_address_that_the_world_cannot_reach_is_none() -> None:
    """Towards a server on this machine the own address is the loopback's, which helps nobody."""
    assert public_address("http://127.0.0.1:8080") is None
    assert public_address("http://no.such.host.invalid") is None


# --- hints and volumes ----------------------------------------------------------------------------


def test_a_hint_is_given_once_for_an_event_that_comes_again(twin: RuntimeTwin) -> None:
    """What the runtime repeats is known; what it tells newly is a hint, from where it left off."""
    twin.repeats_events = True
    hints = Hints(twin, lambda: None, now=lambda: twin.now - 10)
    assert [hints.ask(), hints.ask()] == [True, False]
    twin.now += 1
    twin.exit(7, 0)
    assert [hints.ask(), hints.ask()] == [True, False]
    twin.is_away = True
    assert not hints.ask()


@pytest.fixture
def patience() -> Callable[[Callable[[], object]], None]:
    """Wait for something that a thread does."""

    def wait(condition: Callable[[], object]) -> None:
        deadline = time.monotonic() + 5
        while not condition():
            assert time.monotonic() < deadline, "waited in vain"
            time.sleep(0.01)

    return wait


def test_a_volume_that_is_gone_is_removed_once(
    twin: RuntimeTwin, patience: Callable[[Callable[[], object]], None]
) -> None:
    """What is kept stays; a runtime that is away is asked again at the next word."""
    volumes = Volumes(twin)
    wanted = [
        DesiredVolume(volume=3, want="gone", disk_bytes=1),
        DesiredVolume(volume=4, want="kept", disk_bytes=1),
    ]
    twin.is_away = True
    volumes.take(wanted)
    patience(lambda: not volumes.is_busy)
    twin.is_away = False
    for _ in range(2):
        volumes.take(wanted)
        patience(lambda: not volumes.is_busy)
    assert twin.removed_volumes == [3]


def test_copies_come_before_removals(
    twin: RuntimeTwin, patience: Callable[[Callable[[], object]], None]
) -> None:
    """What a copy begins with is not removed before, also when the runtime was away."""
    volumes = Volumes(twin)
    wanted = [
        DesiredVolume(volume=3, want="gone", disk_bytes=1),
        DesiredVolume(volume=4, want="kept", disk_bytes=1, cloned_from=3),
    ]
    twin.is_away = True
    volumes.take(wanted)
    patience(lambda: not volumes.is_busy)
    twin.is_away = False
    for _ in range(2):
        volumes.take(wanted)
        patience(lambda: not volumes.is_busy)
    assert twin.volume_steps == [("copy", 4), ("remove", 3)]
