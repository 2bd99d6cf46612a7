"""Maintenance, outages, compensation and the host's broom through the API."""

from __future__ import annotations

import httpx

from ledger.domain.events import InstanceDiskLost
from ledger.domain.ids import instance_stream
from ledger.services import policies
from ledger.services.policies.outages import compensate
from tests.http.conftest import Api
from tests.support.market import DOLLAR, START
from tests.support.operations import DAY, HOUR, SLA_1

WORK = {"start": "2026-03-11T10:00:00Z", "duration_seconds": 7_200, "category": "power"}


def code(answer: httpx.Response) -> tuple[int, str]:
    """Status and error code."""
    return answer.status_code, answer.json().get("code", "")


def test_a_host_schedules_and_everybody_sees_it(api: Api) -> None:
    """The host's window is shown to renters, other hosts and auditors alike, with its approval."""
    machine = api.market.machine(host="bob")
    path = f"/v1/machines/{machine}/maintenance"
    made = api("bob", "POST", path, WORK)
    assert made.status_code == 201
    assert made.json() == {
        "machine_id": machine,
        "maintenance_id": 1,
        "start": "2026-03-11T10:00:00Z",
        "until": "2026-03-11T12:00:00Z",
        "category": "power",
        "approved": True,
        "status": "scheduled",
        "scheduled_at": "2026-03-01T10:00:00Z",
        "announced_at": None,
        "rentals_stopped_at": None,
        "closed_at": None,
    }
    for person in ("alice", "eve", "audrey", "root", "bob"):
        assert api(person, "GET", path).json()["items"] == [made.json()]
    assert code(api("bob", "POST", path, WORK)) == (422, "maintenance_overlap")
    assert api("bob", "POST", path, WORK).json()["maintenance_id"] == 1
    assert code(api("eve", "POST", path, WORK)) == (404, "no_such_machine")
    assert code(api("alice", "POST", path, WORK)) == (403, "not_authorized")
    assert code(api("alice", "GET", "/v1/machines/99/maintenance")) == (404, "no_such_machine")


def test_what_is_no_window_is_refused(api: Api) -> None:
    """A start in the past, no duration, an unknown category: nothing is stored."""
    machine = api.market.machine(host="bob")
    path = f"/v1/machines/{machine}/maintenance"
    head = api.market.head()
    for change, status in (
        ({"start": "2026-03-01T09:59:59Z"}, 422),
        ({"start": "tomorrow"}, 400),
        ({"duration_seconds": 0}, 400),
        ({"duration_seconds": 2_592_001}, 400),
        ({"category": "weather"}, 400),
    ):
        assert code(api("bob", "POST", path, WORK | change)) == (status, "invalid_args")
    assert api.market.head() == head


def test_a_host_cancels_its_own_window(api: Api) -> None:
    """Cancelling is idempotent, a stranger's window is not found, a past one is over."""
    machine = api.market.machine(host="bob")
    path = f"/v1/machines/{machine}/maintenance"
    assert api("bob", "POST", path, WORK).status_code == 201
    assert code(api("eve", "DELETE", f"{path}/1")) == (404, "no_such_machine")
    assert code(api("bob", "DELETE", f"{path}/2")) == (404, "no_such_maintenance")
    for _ in range(2):
        answer = api("bob", "DELETE", f"{path}/1")
        assert (answer.status_code, answer.json()["status"]) == (200, "cancelled")
    assert api("bob", "GET", f"{path}?open=true").json()["items"] == []
    assert api("bob", "POST", path, WORK | {"duration_seconds": 60}).status_code == 201
    api.market.clock.move_to(START + 11 * DAY)
    policies.run_due(api.market.ledger)
    assert code(api("bob", "DELETE", f"{path}/2")) == (422, "maintenance_over")
    assert [one["status"] for one in api("bob", "GET", path).json()["items"]] == [
        "cancelled",
        "ended",
    ]


def test_the_same_key_schedules_once(api: Api) -> None:
    """A repeat under one Idempotency-Key is the same window, not an overlap."""
    machine = api.market.machine(host="bob")
    path = f"/v1/machines/{machine}/maintenance"
    first = api("bob", "POST", path, WORK, Idempotency_Key="w-1")
    again = api("bob", "POST", path, WORK, Idempotency_Key="w-1")
    assert first.json() == again.json()
    assert again.headers["idempotency-replayed"] == "true"


def test_the_list_is_of_what_concerns_you(api: Api) -> None:
    """Hosts see windows of their machines, renters of those they live on, page by page."""
    market = api.market
    mine, theirs = market.machine(host="bob"), market.machine(host="eve")
    for machine, host, day in ((mine, "bob", 20), (theirs, "eve", 11), (mine, "bob", 11)):
        body = WORK | {"start": f"2026-03-{day}T10:00:00Z"}
        assert api(host, "POST", f"/v1/machines/{machine}/maintenance", body).status_code == 201
    market.rent(api.accounts["alice"], theirs)

    def seen(person: str, query: str = "") -> list[int]:
        items = api(person, "GET", f"/v1/maintenance{query}").json()["items"]
        return [one["maintenance_id"] for one in items]

    assert seen("bob") == [1, 3]
    assert seen("eve") == seen("alice") == [2]
    assert seen("carol") == []
    assert seen("audrey") == seen("root") == [1, 2, 3]
    page = api("audrey", "GET", "/v1/maintenance?limit=2").json()
    assert seen("audrey", f"?limit=2&cursor={page['next_cursor']}") == [3]


def test_probes_decide_together_and_outages_are_public(api: Api) -> None:
    """Four locations report one machine down: an outage that everybody may look up."""
    machine = api.market.machine(host="bob")
    for number in range(1, 5):
        body = {"location": f"p{number}", "region": "DE"}
        assert api("root", "POST", "/v1/probe-locations", body).status_code == 201
    shown = api("audrey", "GET", "/v1/probe-locations").json()
    assert [one["location"] for one in shown] == ["p1", "p2", "p3", "p4"]
    assert code(api("bob", "POST", "/v1/probe-results", {})) == (403, "not_authorized")

    def round_of(result: str) -> httpx.Response:
        for number in range(1, 5):
            looks = [{"machine_id": machine, "result": result}, {"machine_id": 99, "result": "up"}]
            body = {"location": f"p{number}", "results": looks}
            answer = api("root", "POST", "/v1/probe-results", body)
            assert answer.status_code == 200
        return answer

    assert round_of("down").json() == {"location": "p4", "machines": 1, "unknown": [99]}
    path = f"/v1/outages?machine_id={machine}"
    outage = {
        "outage_id": 1,
        "machine_id": machine,
        "witnesses": ["p1", "p2", "p3", "p4"],
        "detected_at": "2026-03-01T10:00:00Z",
        "ended_at": None,
        "credited": "0",
        "settled_at": None,
    }
    for person in ("alice", "eve", "audrey", "root"):
        assert api(person, "GET", path).json()["items"] == [outage]
    assert api("alice", "GET", "/v1/outages?open=true").json()["items"] == [outage]
    api.market.clock.move_to(START + 60)
    round_of("up")
    (ended,) = api("alice", "GET", "/v1/outages").json()["items"]
    assert ended["ended_at"] == "2026-03-01T10:01:00Z"
    assert api("alice", "GET", "/v1/outages?open=true").json()["items"] == []
    assert code(
        api(
            "root",
            "POST",
            "/v1/probe-results",
            {"location": "nowhere", "results": [{"machine_id": machine, "result": "down"}]},
        )
    ) == (404, "no_such_location")
    assert api("root", "DELETE", "/v1/probe-locations/p1").status_code == 200
    assert code(api("root", "DELETE", "/v1/probe-locations/p9")) == (404, "no_such_location")
    assert (
        api("root", "POST", "/v1/probe-locations", {"location": "A b", "region": "DE"}).json()[
            "code"
        ]
        == "invalid_args"
    )


def test_renters_see_what_they_got_and_hosts_what_they_paid(api: Api) -> None:
    """A lost disk under `sla-1` is on the renter's list and on the host's, and on nobody else's."""
    market = api.market
    market.ledger.adopt_policy(SLA_1)
    alice, bob = api.accounts["alice"], api.accounts["bob"]
    machine = market.machine(host="bob", gpu_hour=400_000_000, storage=0)
    one = market.rent(alice, machine)
    market.confirm(machine, one)
    market.run(machine, [one], 5 * HOUR, report_seconds=300)
    market.clock.move_to(START + 35 * DAY)
    with market.ledger.unit() as unit:
        unit.append(instance_stream(one), InstanceDiskLost(instance_id=one, lost_at=market.clock()))
    market.project()
    compensate(market.ledger)
    (got,) = api("alice", "GET", "/v1/compensations").json()["items"]
    assert got == {
        "account_id": alice,
        "instance_id": one,
        "machine_id": machine,
        "host_id": bob,
        "outage_id": None,
        "lost_at": "2026-04-05T10:00:00Z",
        "policy": "sla-1",
        "policy_version": 2,
        "multiplier": 40,
        "seconds": 0,
        "claim": "16",
        "spent": "2",
        "cap_applied": True,
        "amount": "2",
        "credited_at": "2026-04-05T10:00:00Z",
        "position": got["position"],
    }
    assert api("bob", "GET", "/v1/compensations").json()["items"] == [got]
    for person in ("carol", "eve"):
        assert api(person, "GET", "/v1/compensations").json()["items"] == []
    mine = f"/v1/compensations?account_id={alice}"
    assert api("audrey", "GET", mine).json()["items"] == [got]
    assert code(api("carol", "GET", mine)) == (404, "no_such_account")
    moved = api("alice", "GET", "/v1/transfers").json()["items"]
    assert [one["amount"] for one in moved if one["kind"] == "compensation"] == ["2"]


def test_a_host_cleans_up_and_removes(api: Api) -> None:
    """Expired contracts go after 48 h, the machine after its last contract, strangers are 404."""
    market = api.market
    machine = market.machine(host="bob", gpus=2, until=START + DAY)
    alice = market.account("anna", 100 * DOLLAR)
    first, second = (market.rent(alice, machine, gpus=1) for _ in range(2))
    path = f"/v1/machines/{machine}"
    assert api("bob", "POST", f"{path}/clean-up").json()["destroyed"] == []
    assert code(api("bob", "DELETE", f"{path}/instances/{first}")) == (422, "not_expired")
    assert code(api("bob", "DELETE", path)) == (422, "has_contracts")
    market.clock.move_to(START + DAY)
    policies.run_due(market.ledger)
    market.clock.move_to(START + 3 * DAY)
    for method, target in (
        ("POST", f"{path}/clean-up"),
        ("DELETE", f"{path}/instances/{first}"),
        ("DELETE", path),
    ):
        assert code(api("eve", method, target)) == (404, "no_such_machine")
    for _ in range(2):
        answer = api("bob", "DELETE", f"{path}/instances/{first}")
        assert answer.json() == {"machine_id": machine, "destroyed": [first]}
    assert code(api("bob", "DELETE", f"{path}/instances/99")) == (404, "no_such_instance")
    cleaned = api("bob", "POST", f"{path}/clean-up").json()
    assert cleaned == {"machine_id": machine, "destroyed": [second]}
    assert api("bob", "DELETE", path).json() == {"machine_id": machine}
    for method, target in (("GET", path), ("DELETE", path), ("GET", f"{path}/maintenance")):
        assert code(api("bob", method, target)) == (404, "no_such_machine")
    assert market.rebuild().equal
