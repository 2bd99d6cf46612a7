"""What lists hold and how they are paged: the market, transfers, ticks, charges, keys."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from adapters.hostagent.reports import constant_block
from adapters.http.wire import Body
from ledger.domain.usage import decode_stored
from ledger.services import deposits, listings
from ledger.services.questions import usage
from tests.http.conftest import Api
from tests.support.market import DOLLAR, START
from tests.support.routes import published


def items(api: Api, who: str, path: str) -> list[dict[str, Any]]:
    """The items of one page."""
    answer = api(who, "GET", path)
    assert answer.status_code == 200, answer.text
    found: list[dict[str, Any]] = answer.json()["items"]
    return found


def paged(api: Api, who: str, path: str, limit: int) -> list[dict[str, Any]]:
    """All pages of a list, each of them full but the last."""
    found: list[dict[str, Any]] = []
    cursor = ""
    while True:
        page = api(who, "GET", f"{path}limit={limit}{cursor}").json()
        found += page["items"]
        if page["next_cursor"] is None:
            return found
        assert len(page["items"]) == limit
        cursor = f"&cursor={page['next_cursor']}"


# --- the market ----------------------------------------------------------------------------------


def test_the_market_is_what_can_be_rented_now(api: Api) -> None:
    """Full, silent, unlisted and run-out machines are not on the market; their host sees them."""
    market = api.market
    full, silent, unlisted, over, small, free = (
        market.machine(host="bob", gpus=gpus) for gpus in (1, 1, 1, 1, 2, 4)
    )
    market.rent(api.accounts["alice"], full)
    market.rent(api.accounts["alice"], free, gpus=2)
    market.rent(api.accounts["alice"], small, gpus=1)
    prices = listings.Prices(DOLLAR, DOLLAR)
    with market.ledger.unit() as unit:
        listings.unlist_machine(unit, unlisted)
        listings.list_machine(unit, over, prices, until=START + 50)
        listings.list_machine(unit, small, prices, min_gpus=2)
    market.clock.move_to(START + 100)
    for machine in (full, unlisted, over, small, free):
        market.deliver(market.seal(machine, START, 100))
    for who, path in (("alice", "/v1/machines"), ("root", "/v1/machines?offered=true")):
        assert [one["machine_id"] for one in items(api, who, path)] == [free]
    assert items(api, "alice", "/v1/machines")[0]["listing"]["slices"] == [1, 2, 4]
    assert items(api, "alice", "/v1/machines")[0]["listing"]["slices_free"] == [1, 2]
    own = {one["machine_id"]: one for one in items(api, "bob", "/v1/machines")}
    assert set(own) == {full, silent, unlisted, over, small, free}
    assert [own[one]["online"] for one in (full, silent)] == [True, False]
    assert (own[full]["free_gpus"], own[full]["instances"]) == (0, 1)
    assert own[silent]["listing"]["slices_free"] == []
    assert own[over]["listing"] is None
    assert api("alice", "GET", f"/v1/machines/{over}").status_code == 404


# --- transfers -----------------------------------------------------------------------------------


def test_transfers_end_where_usage_is_not_folded(api: Api) -> None:
    """A reader of transfers never passes a place into which usage comes later (API-08)."""
    market, alice = api.market, api.accounts["alice"]
    machine = market.machine(host="bob")
    before = len(items(api, "root", "/v1/transfers"))
    one = market.rent(alice, machine)
    market.confirm(machine, one)
    market.project()
    market.run(machine, [one], 120)
    with market.ledger.unit() as unit:
        deposits.deposit(unit, alice, DOLLAR, "later")
    assert len(items(api, "root", "/v1/transfers")) == before
    market.project()
    shown = paged(api, "root", "/v1/transfers?", 1)
    assert len(shown) == before + 3
    assert [one["kind"] for one in shown[-3:]] == ["usage", "usage", "deposit"]
    assert [one["position"] for one in shown] == sorted(one["position"] for one in shown)


@pytest.mark.parametrize("who", ["alice", "bob", "root"])
def test_transfers_are_all_there_whatever_the_page(api: Api, who: str) -> None:
    """Pages of one, two and many hold the same rows in the same order, each of them once."""
    market = api.market
    place = market.machine(host="bob", gpus=2)
    rented = [market.rent(api.accounts[one], place, gpus=1) for one in ("alice", "carol")]
    for one in rented:
        market.confirm(place, one)
    market.run(place, rented, 7_200, report_seconds=300)
    market.project()
    whole = items(api, who, "/v1/transfers?limit=1000")
    assert len(whole) >= 5
    for limit in (1, 2, 5):
        assert paged(api, who, "/v1/transfers?", limit) == whole


# --- ticks and charges ---------------------------------------------------------------------------


def test_ticks_say_whether_they_counted(api: Api) -> None:
    """A tick before the confirmation, a repeated second and one not folded yet tell why not."""
    market = api.market
    machine = market.machine(host="bob")
    number = market.rent(api.accounts["alice"], machine)

    def attest(start: int, state: Any) -> None:
        block = constant_block(number, start, 10, state, up=0, down=0, util=50)
        market.clock.move_to(start + 10)
        assert market.deliver(market.seal(machine, start, 10, [block]))[0].status == "accepted"

    attest(START, "loading")
    attest(START + 10, "running")
    market.confirm(machine, number)
    attest(START + 20, "running")
    other = market.chains[machine]
    market.chains[machine] = type(other)(
        machine, other.signer, boot_id="boot-1", epoch=f"{99:032x}"
    )
    block = constant_block(number, START + 20, 10, "running", up=0, down=0, util=50)
    market.deliver(market.seal(machine, START + 20, 10, [block]))
    market.project()
    attest(START + 30, "running")
    shown = items(api, "alice", f"/v1/instances/{number}/ticks?limit=1000")
    assert len(shown) == 50
    told = {
        (one["second"][-3:-1], one["counted"], one["why_not"])
        for one in shown
        if one["second"][-3:-1] in {"05", "15", "25", "35"}
    }
    assert told == {
        ("05", True, None),
        ("15", False, "before_start"),
        ("25", True, None),
        ("25", False, "duplicate_second"),
        ("35", False, "not_folded"),
    }
    assert sum(one["first"] for one in shown) == 40
    assert paged(api, "alice", f"/v1/instances/{number}/ticks?", 7) == shown


def test_ticks_of_an_old_instance_cost_no_reading_of_the_machines_life(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reports before an instance was rented and after it was destroyed are not read."""
    market = api.market
    machine = market.machine(host="bob")
    for _ in range(100):
        market.run(machine, [], 10, report_seconds=10)
    number = market.rent(api.accounts["alice"], machine)
    market.confirm(machine, number)
    market.run(machine, [number], 20, report_seconds=10)
    assert api("alice", "DELETE", f"/v1/instances/{number}").status_code == 200
    for _ in range(100):
        market.run(machine, [], 10, report_seconds=10)
    market.project()
    read: list[object] = []

    def counting(body: bytes) -> Any:
        read.append(body)
        return decode_stored(body)

    monkeypatch.setattr("ledger.services.questions.usage.decode_stored", counting)
    with market.ledger.reading() as connection:
        assert len(usage.ticks(connection, number)) == 20
    assert len(read) < 30


def test_a_host_sees_what_its_machines_earned(api: Api) -> None:
    """A host's key lists the charges of instances on its machines, and of no others."""
    market = api.market
    machine = market.machine(host="bob")
    number = market.rent(api.accounts["alice"], machine)
    market.confirm(machine, number)
    market.run(machine, [number], 60)
    market.project()
    for by in ("segment", "hour"):
        mine = items(api, "bob", f"/v1/charges?by={by}")
        assert {one["instance_id"] for one in mine} == {number}
        assert mine == items(api, "alice", f"/v1/charges?by={by}")
        assert items(api, "eve", f"/v1/charges?by={by}") == []


# --- keys, parameters, metrics, the reference ----------------------------------------------------


def test_keys_are_paged_like_everything_else(api: Api) -> None:
    """Every key of an account shows once, oldest first."""
    for second in range(5):
        api.market.clock.move_to(START + second // 2)
        assert api("alice", "POST", "/v1/keys", {"role": "renter"}).status_code == 201
    whole = items(api, "alice", "/v1/keys")
    assert len({one["key_id"] for one in whole}) == 6
    assert paged(api, "alice", "/v1/keys?", 2) == whole


def test_a_parameter_that_does_not_exist_is_told(api: Api) -> None:
    """A mistyped filter is 400, never a list of everything (API-04)."""
    answer = api("root", "GET", "/v1/instances?acount_id=7")
    assert (answer.status_code, answer.json()["code"]) == (400, "invalid_args")
    assert "account_id" in answer.json()["detail"]
    assert api("root", "POST", "/v1/accounts?name=x", {"name": "x"}).status_code == 400


def test_metrics_count_ticks_and_commits(api: Api) -> None:
    """Stored ticks, commits and what became of reports are there for Prometheus."""
    market = api.market
    machine = market.machine(host="bob")
    number = market.rent(api.accounts["alice"], machine)
    market.confirm(machine, number)
    market.clock.move_to(START + 10)
    block = constant_block(number, START, 10, "running", up=0, down=0, util=50)
    sealed = market.seal(machine, START, 10, [block])
    for _ in range(2):
        assert api.usage(sealed).status_code == 200
    shown = api.client.get("/metrics").text
    assert "gpuledger_ticks_total 10.0" in shown
    assert "gpuledger_commit_seconds_count 2.0" in shown
    assert 'gpuledger_reports_total{status="duplicate"} 1.0' in shown


def bodies() -> list[type[Body]]:
    """Every request body of the API."""
    return Body.__subclasses__()


@pytest.mark.parametrize("kind", bodies(), ids=lambda kind: kind.__name__)
def test_every_example_of_a_body_is_a_body(kind: type[Body]) -> None:
    """What the reference shows as an example is accepted as it stands."""
    assert isinstance(msgspec.convert(kind.EXAMPLE, kind), kind)


def test_the_reference_says_what_a_client_must_know() -> None:
    """Each command names its Idempotency-Key, each body an example, each route its errors."""
    schema = published()
    for path, methods in schema["paths"].items():
        for method, one in methods.items():
            if not path.startswith("/v1/"):
                continue
            assert one["summary"], path
            assert one["description"], path
            assert {"400", "503"} <= set(one["responses"]), path
            names = {parameter["name"] for parameter in one.get("parameters", [])}
            asks = method == "get" or "needs no `Idempotency-Key`" in one["description"]
            assert ("Idempotency-Key" in names) == (not asks and path != "/v1/usage"), path
            for media, content in one.get("requestBody", {}).get("content", {}).items():
                assert media == "application/msgpack" or content["example"], path
    answers = schema["paths"]["/v1/usage"]["post"]["responses"]["200"]["content"]
    assert set(answers) == {"application/json", "application/msgpack"}
