"""The supervisor against the real API in one process, under a clock that tests move."""

from __future__ import annotations

import io
import json
import threading
from collections.abc import Callable
from email.utils import formatdate
from typing import Any

import httpx
import pytest

from adapters.supervise import Job, Journal, Pace, supervise
from ledger.domain.usage import Observation
from ledger.errors import AuthError, RejectedError, UnavailableError
from ledger.services import policies, rentals, transfers
from tests.http.conftest import Api
from tests.support.market import DOLLAR, START

CENT = DOLLAR // 100
ONCE = Pace(once=True)


class Wire(httpx.BaseTransport):
    """The way to the API: it tells the market's time, counts, and loses answers on demand."""

    def __init__(self, api: Api) -> None:
        """Lose nothing."""
        self._api = api
        self._inner = api.client._transport
        self.requests: list[str] = []
        self.lose: Callable[[str], bool] = lambda _: False
        """Carried out, but the answer never arrives."""
        self.on_request: Callable[[str], object] = lambda _: None

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """One request."""
        name = f"{request.method} {request.url.path}"
        self.requests.append(name)
        self.on_request(name)
        response = self._inner.handle_request(request)
        response.headers["date"] = formatdate(self._api.market.clock(), usegmt=True)
        if self.lose(name):
            message = "the answer was lost"
            raise httpx.ReadTimeout(message, request=request)
        return response


class Scene:
    """Alice's job; a cheap and a dear machine of bob's, both taking bids from $0.10."""

    def __init__(self, api: Api) -> None:
        """Nothing is rented yet."""
        self.api = api
        self.market = api.market
        self.wire = Wire(api)
        self.cheap, self.dear, self.third = (
            self.market.machine(
                host="bob", gpu_hour=gpu_hour * CENT, floor=floor * CENT, up=0, down=0
            )
            for gpu_hour, floor in ((40, 10), (50, 20), (90, 50))
        )
        self.lines: list[dict[str, Any]] = []

    def go(self, pace: Pace = ONCE, key: str | None = None, **options: Any) -> int:
        """Run the supervisor; returns its exit code and keeps its lines."""
        job = Job(
            **{
                "label": "run-42",
                "max_price": 35 * CENT,
                "verified_only": False,
                "order": (("dph_total", "asc"),),
                **options,
            }
        )
        out = io.StringIO()
        try:
            return supervise(
                job,
                "http://testserver.local",
                key or self.api.keys["alice"],
                Journal(out, as_json=True),
                threading.Event(),
                pace=pace,
                transport=self.wire,
            )
        finally:
            self.lines = [json.loads(line) for line in out.getvalue().splitlines()]

    @property
    def actions(self) -> list[str]:
        """What the last run did."""
        return [one["action"] for one in self.lines]

    def mine(self) -> list[dict[str, Any]]:
        """All that was ever rented for the job."""
        found: list[dict[str, Any]] = self.api("alice", "GET", "/v1/instances?label=run-42").json()[
            "items"
        ]
        return found

    def states(self) -> list[tuple[int, str]]:
        """Machine and state of each instance of the job, oldest first."""
        return [(one["machine_id"], one["status"]) for one in self.mine()]

    def outbid(self, machine: int, bid: int = 99 * CENT) -> int:
        """Carol takes a machine."""
        return self.market.rent(self.api.accounts["carol"], machine, bid=bid, disk_gb=1)

    def pass_time(self, seconds: int) -> None:
        """Every machine reports, nothing runs on them."""
        for machine in (self.cheap, self.dear, self.third):
            count = self.market.clock() + seconds - self.market.chains[machine].sealed_until
            start = self.market.clock() + seconds - max(min(count, 300), 0)
            sealed = self.market.seal(machine, start, self.market.clock() + seconds - start)
            self.market.deliver(sealed, at=self.market.clock() + seconds)
        self.market.clock.move_to(self.market.clock() + seconds)
        policies.run_due(self.market.ledger)
        self.market.project()


@pytest.fixture
def scene(api: Api) -> Scene:
    """A market with a job to do."""
    return Scene(api)


def test_it_rents_the_first_offer_a_little_above_its_smallest_bid(scene: Scene) -> None:
    """The cheapest that will do, 10 % above the smallest bid, exactly once, with its launch."""
    assert scene.go(launch={"image": "pytorch/pytorch:2.9"}) == 0
    assert scene.actions == ["rented"]
    (rented,) = scene.lines
    assert (rented["machine_id"], rented["bid"], rented["dph_total"]) == (
        scene.cheap,
        "0.11",
        "0.112083333",
    )
    (one,) = scene.mine()
    assert (one["kind"], one["status"], one["label"]) == ("interruptible", "loading", "run-42")
    assert scene.go() == 0
    assert scene.actions == ["found"]
    assert len(scene.mine()) == 1


def test_it_moves_on_when_it_waits_too_long(scene: Scene) -> None:
    """Outbid, it waits for the time given, rents the next best machine and destroys the rest."""
    scene.go()
    market, first = scene.market, scene.mine()[0]["instance_id"]
    market.confirm(scene.cheap, first)
    market.run(scene.cheap, [first], 60)
    scene.outbid(scene.cheap)
    assert scene.go(stuck_seconds=120) == 4
    assert scene.actions == ["found"]
    assert scene.lines[0]["reason"] == "outbid"
    scene.pass_time(119)
    assert scene.go(stuck_seconds=120) == 4
    assert scene.states() == [(scene.cheap, "scheduling")]
    scene.pass_time(1)
    assert scene.go(stuck_seconds=120) == 0
    assert scene.actions == ["found", "rented", "destroyed"]
    _, rented, destroyed = scene.lines
    assert rented["why"] == "instance 1 is scheduling (outbid) for 120 s"
    assert (rented["machine_id"], rented["bid"]) == (scene.dear, "0.22")
    cost = market.charges(first)
    assert destroyed["cost_by_item"] == {
        "gpu": f"{cost['gpu'] / DOLLAR:.9f}".rstrip("0"),
        "disk": f"{cost['storage'] / DOLLAR:.9f}".rstrip("0"),
    }
    assert scene.states() == [(scene.cheap, "destroyed"), (scene.dear, "loading")]
    # Between the create and the destroy there was one more look, and nothing else.
    assert scene.wire.requests[-5:] == [
        "POST /v1/offers/search",
        "POST /v1/instances",
        "GET /v1/instances",
        f"DELETE /v1/instances/{first}",
        "GET /v1/charges",
    ]
    assert market.rebuild().equal


def test_with_keep_disk_the_old_one_is_stopped(scene: Scene) -> None:
    """--keep-disk: no GPU and no resume, the disk stays, and its price is told."""
    scene.go()
    scene.outbid(scene.cheap)
    scene.pass_time(600)
    assert scene.go(keep_disk=True) == 0
    assert scene.states() == [(scene.cheap, "stopped"), (scene.dear, "loading")]
    assert scene.actions[-1] == "stopped"
    assert "its disk goes on at 0.002083333 an hour" in scene.lines[-1]["message"]
    assert scene.go(keep_disk=True) == 0
    assert scene.actions == ["found"]
    assert scene.states() == [(scene.cheap, "stopped"), (scene.dear, "loading")]


def test_without_another_offer_it_goes_on_waiting(scene: Scene) -> None:
    """Nothing within the price: the stuck one is kept, and resumes when it can."""
    scene.go()
    for machine in (scene.cheap, scene.dear):
        rival = scene.outbid(machine)
    scene.pass_time(600)
    assert scene.go() == 4
    assert scene.actions == ["found", "no offer"]
    assert scene.lines[-1]["offers"] == 0
    assert scene.states() == [(scene.cheap, "scheduling")]
    with scene.market.ledger.unit() as unit:
        rentals.destroy(unit, rival)
    assert scene.go() == 0
    assert scene.states() == [(scene.cheap, "destroyed"), (scene.dear, "loading")]


def test_a_silent_machine_is_left(scene: Scene) -> None:
    """A machine that is offline for too long holds the job up as much as a lost auction."""
    scene.go()
    market, (one,) = scene.market, scene.mine()
    market.confirm(scene.cheap, one["instance_id"])
    market.run(scene.cheap, [one["instance_id"]], 30)
    for machine in (scene.dear, scene.third):
        market.deliver(market.seal(machine, START + 30, 300), at=START + 330)
    market.clock.move_to(START + 330)
    policies.run_due(market.ledger)
    assert scene.go(stuck_seconds=600) == 4
    assert "its machine is offline" in scene.lines[0]["message"]
    assert scene.go(stuck_seconds=200) == 0
    assert scene.states() == [(scene.cheap, "destroyed"), (scene.dear, "loading")]


def test_a_host_that_cannot_start_it_is_left(scene: Scene) -> None:
    """A launch that failed asks for another machine at once; the remains are destroyed."""
    scene.go()
    scene.pass_time(1_800)
    assert scene.mine()[0]["reason"] == "launch_failed"
    assert scene.go() == 0
    assert scene.states() == [(scene.cheap, "destroyed"), (scene.dear, "loading")]
    assert "cannot go on: stopped (launch_failed)" in scene.lines[0]["why"]


def test_a_lost_answer_rents_once(scene: Scene) -> None:
    """The create was carried out and its answer lost: the repeat gets it, and there is one."""
    lost: list[str] = []

    def lose(name: str) -> bool:
        is_first = name == "POST /v1/instances" and not lost
        if is_first:
            lost.append(name)
        return is_first

    scene.wire.lose = lose
    assert scene.go() == 0
    assert scene.actions == ["no answer", "reachable", "rented"]
    assert scene.wire.requests.count("POST /v1/instances") == 2
    assert len(scene.mine()) == 1


def test_killed_before_the_answer_it_finds_what_it_rented(scene: Scene) -> None:
    """What was rented before the program died is found by its label when it starts again."""

    class KilledError(BaseException):
        """As much as a signal 9."""

    def die(name: str) -> bool:
        if name == "POST /v1/instances":
            raise KilledError
        return False

    scene.wire.lose = die
    with pytest.raises(KilledError):
        scene.go()
    scene.wire.lose = lambda _: False
    assert scene.go() == 0
    assert scene.actions == ["found"]
    assert len(scene.mine()) == 1


def test_killed_between_renting_and_destroying_it_tidies_up(scene: Scene) -> None:
    """Two stand when it starts again: the one that waits goes, the one with GPUs stays."""
    scene.go()
    scene.outbid(scene.cheap)
    scene.pass_time(600)

    class KilledError(BaseException):
        """As much as a signal 9."""

    def die(name: str) -> None:
        if name.startswith("DELETE"):
            raise KilledError

    scene.wire.on_request = die
    with pytest.raises(KilledError):
        scene.go()
    assert scene.states() == [(scene.cheap, "scheduling"), (scene.dear, "loading")]
    scene.wire.on_request = lambda _: None
    assert scene.go() == 0
    assert scene.actions == ["found", "destroyed"]
    assert scene.states() == [(scene.cheap, "destroyed"), (scene.dear, "loading")]


def test_a_request_still_on_its_way_is_not_rented_beside(scene: Scene) -> None:
    """Started again while its first create is not carried out yet, it asks under the same key.

    The first request wanted another offer; the key is taken, and what it made is what is kept.
    """
    seen: list[str] = []

    def late(name: str) -> None:
        if name == "POST /v1/instances" and not seen:
            seen.append(name)
            key = Job(label="run-42", max_price=1).create_key(0, scene.market.clock(), 0)
            offer = scene.api(
                "alice", "GET", f"/v1/offers?verified_only=false&where=machine_id:eq:{scene.dear}"
            ).json()["items"][0]["offer_id"]
            body = {"offer_id": offer, "disk_gb": 10, "label": "run-42", "bid": "0.3"}
            made = scene.api("alice", "POST", "/v1/instances", body, Idempotency_Key=key)
            assert made.status_code == 201

    scene.wire.on_request = late
    assert scene.go() == 0
    assert scene.states() == [(scene.dear, "loading")]


def test_offers_that_went_are_passed_over(scene: Scene) -> None:
    """An offer that somebody took meanwhile is refused, told, and the next one is rented."""
    seen: list[str] = []

    def overtake(name: str) -> None:
        if name == "POST /v1/instances" and not seen:
            seen.append(name)
            scene.outbid(scene.cheap)

    scene.wire.on_request = overtake
    assert scene.go() == 0
    assert scene.actions == ["refused", "rented"]
    assert scene.lines[0]["code"] == "no_such_ask"
    assert scene.states() == [(scene.dear, "loading")]


def test_on_demand_within_the_price(scene: Scene) -> None:
    """--kind on_demand rents without a bid, and nothing above the ceiling."""
    assert scene.go(kind="on_demand") == 4
    assert scene.actions == ["no offer"]
    assert scene.go(kind="on_demand", max_price=45 * CENT) == 0
    (one,) = scene.mine()
    assert (one["kind"], one["bid"], one["dph_total"]) == ("on_demand", None, "0.402083333")


def test_a_fixed_bid(scene: Scene) -> None:
    """--bid is what is bid, where that is enough."""
    assert scene.go(bid=25 * CENT) == 0
    assert scene.mine()[0]["bid"] == "0.25"


# --- ends -----------------------------------------------------------------------------------------


def test_the_budget_ends_the_job(scene: Scene) -> None:
    """Spent over all instances of the label, metered and on its way: everything is destroyed."""
    scene.go(budget=DOLLAR)
    market, (one,) = scene.market, scene.mine()
    market.confirm(scene.cheap, one["instance_id"])
    market.run(scene.cheap, [one["instance_id"]], 3_600)
    market.project()
    cost = sum(market.charges(one["instance_id"]).values())
    assert scene.go(budget=cost + 1) == 0
    assert scene.go(budget=cost) == 3
    assert scene.actions == ["found", "budget", "destroyed"]
    assert scene.states() == [(scene.cheap, "destroyed")]
    assert scene.go(budget=cost) == 3
    assert scene.actions == ["budget"]
    assert len(scene.mine()) == 1


def test_what_is_not_metered_yet_counts(scene: Scene) -> None:
    """Usage that the meters do not show yet is reckoned at the full rate, two minutes at most."""
    scene.go()
    scene.market.clock.move_to(START + 60)
    unmetered = 112_083_333 * 60 // 3_600
    assert scene.go(budget=unmetered + 1) == 0
    assert scene.go(budget=unmetered) == 3


def test_without_credit_it_ends(scene: Scene) -> None:
    """An account that cannot pay the first hour rents nothing; exit code 3."""
    with scene.market.ledger.unit() as unit:
        alice, carol = scene.api.accounts["alice"], scene.api.accounts["carol"]
        transfers.transfer(unit, alice, carol, 9_999 * CENT, "all")
    assert scene.go() == 3
    assert (scene.actions, scene.lines[0]["code"]) == (["refused"], "insufficient_credit")
    assert scene.mine() == []


@pytest.mark.parametrize("what", ["stop", "destroy"])
def test_somebody_else_ends_the_job(scene: Scene, what: str) -> None:
    """Stopped or destroyed by another hand while it is watched: exit code 5, nothing rented."""
    looks: list[str] = []

    def meddle(name: str) -> None:
        if name == "GET /v1/instances":
            looks.append(name)
            if len(looks) == 3:
                path = f"/v1/instances/{scene.mine()[0]['instance_id']}"
                if what == "stop":
                    scene.api("alice", "POST", f"{path}/stop")
                else:
                    scene.api("alice", "DELETE", path)

    scene.wire.on_request = meddle
    assert scene.go(Pace(poll_seconds=0.01)) == 5
    assert scene.actions[-1] == "ended"
    assert len(scene.mine()) == 1


def test_a_job_that_is_done_ends(scene: Scene) -> None:
    """The container exited: exit code 0; with --destroy-on-exit its disk goes too."""
    scene.go()
    market, (one,) = scene.market, scene.mine()
    number = one["instance_id"]
    market.confirm(scene.cheap, number)
    market.run(scene.cheap, [number], 60)
    exited = Observation(
        instance=number, assignment=1, state="exited", at=market.clock(), exit_code=0
    )
    market.deliver(market.seal(scene.cheap, market.clock(), 0, [], [exited]))
    assert scene.go(Pace(poll_seconds=0.01)) == 0
    assert scene.actions == ["ended"]
    assert "its disk costs 0.002083333 an hour until it is destroyed" in scene.lines[0]["message"]
    assert scene.states() == [(scene.cheap, "stopped")]
    assert scene.go(Pace(poll_seconds=0.01, destroy_on_exit=True)) == 0
    assert scene.states() == [(scene.cheap, "destroyed")]


def test_a_bad_key_ends_it_at_once(scene: Scene) -> None:
    """A refused key is an error, not something to try again; nothing is rented."""
    with pytest.raises(AuthError):
        scene.go(key="glk_x_y")
    assert len(scene.wire.requests) == 1


def test_a_search_that_cannot_be_meant_ends_it(scene: Scene) -> None:
    """A field that offers do not have is told with the server's own words."""
    with pytest.raises(RejectedError) as error:
        scene.go(filters={"gpu_nam": {"eq": "x"}})
    assert "did you mean `gpu_name`" in error.value.message


def test_without_a_server_once_gives_up(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """--once waits a bounded time for an answer, then fails with what it knows."""
    monkeypatch.setattr("adapters.supervise.keeper._ONCE_PATIENCE_SECONDS", 0.0)
    monkeypatch.setattr("adapters.supervise.api._pause", lambda *_: 0.0)
    scene.wire.lose = lambda _: True
    with pytest.raises(UnavailableError):
        scene.go()
    assert scene.actions == ["no answer"]


def test_two_supervisors_of_one_job_rent_once(scene: Scene) -> None:
    """Started twice by mistake, both end up with the same instance."""
    both: list[int] = []

    def twice(name: str) -> None:
        if name == "POST /v1/instances" and not both:
            both.append(0)
            other = Scene.__new__(Scene)
            other.__dict__.update(scene.__dict__, wire=Wire(scene.api))
            both.append(other.go())

    scene.wire.on_request = twice
    assert scene.go() == 0
    assert both == [0, 0]
    assert len(scene.mine()) == 1


def test_lines_for_people(scene: Scene) -> None:
    """As text, a line is time, action, sentence; what others typed cannot break it."""
    out = io.StringIO()
    journal = Journal(out)
    journal("rented", "instance 1: a\x1b[31m\nb", instance_id=1)
    (line,) = out.getvalue().splitlines()
    assert line[20:] == "  rented     instance 1: a [31m b"
