"""What a machine is to do: told to those who may know, at once, and with secrets to itself only."""

from __future__ import annotations

import threading
import time

import httpx
import pytest

from adapters.hostagent.identity import HostIdentity
from ledger.domain.machine_call import (
    CALL_PREFIX,
    SKEW_SECONDS,
    Credential,
    read_credential,
    signed_bytes,
    write_credential,
)
from ledger.services import rentals
from ledger.services.desired import DesiredWatch
from tests.http.conftest import Api
from tests.support.market import DOLLAR

LAUNCH = {"image": "pytorch/pytorch:2.4.0", "env": {"TOKEN": "open-sesame"}, "onstart": "train"}


def sign(machine: int, target: str, second: int, method: str = "GET") -> str:
    """The header of a request that the machine of the test market signed."""
    identity = HostIdentity.from_seed(machine.to_bytes(32, "big"))
    signature = identity.sign_call(signed_bytes(machine, second, method, target))
    return write_credential(Credential(machine, identity.key_id, second, signature))


def ask(
    api: Api, machine: int, target: str | None = None, second: int | None = None
) -> httpx.Response:
    """The machine asks what it is to do."""
    target = target or f"/v1/machines/{machine}/desired"
    header = sign(machine, target, api.market.clock() if second is None else second)
    return api.client.get(target, headers={"Authorization": header})


@pytest.fixture
def machine(api: Api) -> int:
    """A machine of bob's."""
    return api.market.machine("bob")


def test_only_the_machine_itself_learns_what_an_instance_is_started_from(
    api: Api, machine: int
) -> None:
    """The launch, with its secrets, is in the machine's signed answer and in no other."""
    api.market.rent(api.accounts["alice"], machine, launch=LAUNCH)
    (mine,) = ask(api, machine).json()["instances"]
    (hosts,) = api("bob", "GET", f"/v1/machines/{machine}/desired").json()["instances"]
    told = {name: mine["spec"][name] for name in LAUNCH}
    environment = told["env"] = {**told["env"]}
    assert environment.pop("GPULEDGER_INSTANCE_ID") == str(mine["instance"])
    assert (mine["want"], told) == ("running", LAUNCH)
    assert "spec" not in hosts
    sealed = api.market.seal(machine, api.market.clock(), 0)
    assert b"open-sesame" not in api.usage(sealed).content


def test_a_stopped_instance_takes_its_launch_from_the_machine(api: Api, machine: int) -> None:
    """A machine that must not run an instance is not told what it would be started from."""
    instance = api.market.rent(api.accounts["alice"], machine, launch=LAUNCH)
    with api.market.ledger.unit() as unit:
        rentals.stop(unit, instance)
    (mine,) = ask(api, machine).json()["instances"]
    assert (mine["want"], "spec" in mine) == ("stopped", False)


def test_a_machine_asks_for_itself_only(api: Api, machine: int) -> None:
    """A good signature of one machine does not show what is wanted of another."""
    other = api.market.machine("eve")
    target = f"/v1/machines/{other}/desired"
    answer = api.client.get(
        target, headers={"Authorization": sign(machine, target, api.market.clock())}
    )
    assert (answer.status_code, answer.json()["code"]) == (404, "no_such_machine")


def test_a_signature_serves_for_one_request(api: Api, machine: int) -> None:
    """The same signature for another query, another second or another method is refused."""
    now = api.market.clock()
    target = f"/v1/machines/{machine}/desired"
    good = sign(machine, target, now)
    assert api.client.get(target, headers={"Authorization": good}).status_code == 200
    for header, path in (
        (good, target + "?after=0"),
        (good.replace(str(now), str(now + 1)), target),
        (sign(machine, target, now, "PUT"), target),
        (good[:-2] + ("00" if good[-2:] != "00" else "11"), target),
        ("Machine nothing", target),
    ):
        answer = api.client.get(path, headers={"Authorization": header})
        assert (answer.status_code, answer.json()["code"]) == (401, "auth_error"), header


def test_a_clock_far_off_is_told_apart_from_a_wrong_key(api: Api, machine: int) -> None:
    """A request signed too long ago is refused with a code of its own, at the edge exactly."""
    now = api.market.clock()
    assert ask(api, machine, second=now - SKEW_SECONDS).status_code == 200
    answer = ask(api, machine, second=now - SKEW_SECONDS - 1)
    assert (answer.status_code, answer.json()["code"]) == (401, "clock_skew")


def test_a_revoked_key_asks_no_more(api: Api, machine: int) -> None:
    """After a revocation the machine's signature opens nothing."""
    key_id = HostIdentity.from_seed(machine.to_bytes(32, "big")).key_id
    assert api("bob", "DELETE", f"/v1/machines/{machine}/keys/{key_id}").status_code == 200
    assert ask(api, machine).status_code == 401


def test_a_signature_opens_no_other_route(api: Api, machine: int) -> None:
    """What a machine signs is no API key: routes of its host stay closed to it."""
    target = f"/v1/machines/{machine}"
    header = sign(machine, target, api.market.clock())
    assert api.client.get(target, headers={"Authorization": header}).status_code == 401


def test_who_waits_is_told_within_a_second_of_the_decision(api: Api, machine: int) -> None:
    """A waiting machine hears of a stop right after its commit, not at the end of its wait."""
    instance = api.market.rent(api.accounts["alice"], machine, launch=LAUNCH)
    version = ask(api, machine).json()["version"]
    answers: list[tuple[float, httpx.Response]] = []

    def wait() -> None:
        target = f"/v1/machines/{machine}/desired?after={version}&wait=20"
        answer = ask(api, machine, target)
        answers.append((time.monotonic(), answer))

    thread = threading.Thread(target=wait)
    thread.start()
    time.sleep(0.5)
    assert answers == []
    with api.market.ledger.unit() as unit:
        rentals.stop(unit, instance)
    decided = time.monotonic()
    thread.join(20)
    ((heard, answer),) = answers
    assert answer.json()["instances"][0]["want"] == "stopped"
    assert answer.json()["version"] > version
    assert heard - decided < 10  # not at the end of the wait


def test_a_wait_without_news_ends_with_the_same_version(api: Api, machine: int) -> None:
    """Nothing new within the wait is answered with what was known."""
    version = ask(api, machine).json()["version"]
    began = time.monotonic()
    target = f"/v1/machines/{machine}/desired?after={version}&wait=1"
    assert ask(api, machine, target).json()["version"] == version
    assert 0.9 <= time.monotonic() - began < 15


def test_a_change_before_the_wait_is_not_waited_for(api: Api, machine: int) -> None:
    """Whoever asks after an old version is answered at once."""
    api.market.rent(api.accounts["alice"], machine, launch=LAUNCH)
    began = time.monotonic()
    ask(api, machine, f"/v1/machines/{machine}/desired?after=0&wait=20")
    assert time.monotonic() - began < 10  # not at the end of the wait


def test_a_closed_watch_lets_everybody_go(api: Api, machine: int) -> None:
    """A server that ends keeps no request waiting."""
    watch = DesiredWatch(api.market.ledger)
    waiting = watch.changed(machine, 2**60, 60.0)
    watch.close()
    assert waiting.result(1) is None
    assert watch.changed(machine, 2**60, 60.0).done()


def test_a_reboot_is_a_level(api: Api, machine: int) -> None:
    """Each reboot raises the number that the agent moves towards, and the version with it."""
    instance = api.market.rent(api.accounts["alice"], machine, launch=LAUNCH)
    api.market.confirm(machine, instance)
    before = ask(api, machine).json()
    for _ in range(2):
        with api.market.ledger.unit() as unit:
            rentals.reboot(unit, instance)
    after = ask(api, machine).json()
    assert after["instances"][0]["reboots"] == 2
    assert after["version"] > before["version"]
    assert api.market.rebuild().equal


def test_a_displaced_instance_is_killed_at_once(api: Api) -> None:
    """Who was outbid is stopped without grace, who stops by himself is not."""
    machine = api.market.machine("bob", floor=10**8)
    low = api.market.rent(api.accounts["alice"], machine, bid=2 * 10**8)
    high = api.market.rent(api.accounts["carol"], machine, bid=DOLLAR)
    wanted = {one["instance"]: one for one in ask(api, machine).json()["instances"]}
    assert (wanted[low]["want"], wanted[low]["at_once"]) == ("stopped", True)
    assert wanted[high]["want"] == "running"
    with api.market.ledger.unit() as unit:
        rentals.stop(unit, high)
    wanted = {one["instance"]: one for one in ask(api, machine).json()["instances"]}
    assert (wanted[high]["want"], wanted[high].get("at_once", False)) == ("stopped", False)


@pytest.mark.parametrize(
    "text",
    ["", "1:k:2", f"1:k:2:{'0' * 126}", f"x:k:2:{'0' * 128}", f"1:k;:2:{'0' * 128}", "1:k:2:zz"],
)
def test_what_is_no_credential_is_none(text: str) -> None:
    """A malformed credential is told apart before any key is looked up."""
    assert read_credential(text) is None


def test_a_call_is_never_taken_for_a_report() -> None:
    """What is signed for a request begins with words that no report's signature begins with."""
    assert signed_bytes(1, 2, "GET", "/x").startswith(CALL_PREFIX)
    assert not CALL_PREFIX.startswith(b"ledger.usage-report")
