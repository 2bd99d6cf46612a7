"""Trust over HTTP: ratings now and then, checks, verification by hand, papers, probes."""

from __future__ import annotations

from typing import Any

import pytest

from ledger.domain.ids import rfc3339
from ledger.domain.reliability import SLOT_SECONDS
from ledger.domain.usage import HealthEvent
from tests.http.conftest import Api
from tests.http.test_lists import items, paged
from tests.support.market import START
from tests.support.trust import inventory_of, issue, judged, rating, report

PAPER: dict[str, Any] = {
    "kind": "iso27001",
    "number": "IS 700001",
    "issuer": "BSI",
    "valid_from": "2026-01-01T00:00:00Z",
    "valid_to": "2029-01-01T00:00:00Z",
    "evidence_hash": "ab" * 32,
}


def test_a_rating_is_shown_now_and_as_of_any_second(api: Api) -> None:
    """`as_of` gives what was true then; a second to come gives what is true now."""
    machine = api.market.machine(host="bob")
    judged(api.market, machine, ["passed"] * 20 + ["failed"])
    path = f"/v1/machines/{machine}/rating"
    now = api("alice", "GET", path).json()
    assert (now["passed"], now["n"], now["reliability"]) == (20, 21, 20 / 21)
    assert now["at"] == rfc3339(api.market.clock())
    assert now["lower_bound"] == rating(api.market, machine).lower_bound
    then = rfc3339(START + 11 * SLOT_SECONDS)
    past = api("alice", "GET", f"{path}?as_of={then}").json()
    assert (past["at"], past["passed"], past["n"], past["reliability"]) == (then, 11, 11, None)
    assert api("alice", "GET", f"{path}?as_of=2030-01-01T00:00:00Z").json() == now
    answer = api("alice", "GET", f"{path}?as_of=yesterday")
    assert (answer.status_code, answer.json()["code"]) == (400, "invalid_args")


def test_checks_are_listed_page_by_page_without_their_nonces(api: Api) -> None:
    """Whoever could read a nonce could answer in the machine's place."""
    machine = api.market.machine(host="bob")
    judged(api.market, machine, ["passed", "failed", "inconclusive"])
    open_one = issue(api.market, machine)
    path = f"/v1/machines/{machine}/checks"
    found = paged(api, "bob", f"{path}?", 2)
    assert [one["result"] for one in found] == ["passed", "failed", "inconclusive", None]
    assert found[-1]["deadline"] == rfc3339(open_one.deadline)
    shown = api("root", "GET", path).text
    assert open_one.nonce not in shown
    since = rfc3339(START + 2 * SLOT_SECONDS + 17)
    assert len(items(api, "alice", f"{path}?since={since}")) == 2


def test_an_admin_verifies_by_hand_with_a_reason(api: Api) -> None:
    """Verified, deverified and reset are steps of the history, each with who and why."""
    machine = api.market.machine(host="bob")
    path = f"/v1/machines/{machine}/verification"
    assert api("alice", "GET", path).json()["verification"] == "unverified"
    for state in ("verified", "deverified", "unverified"):
        answer = api("root", "POST", path, {"verification": state, "reason": f"{state} by hand"})
        assert (answer.status_code, answer.json()["verification"]) == (200, state)
        assert api("alice", "GET", path).json()["judged_by"] == "admin"
    history = paged(api, "alice", f"{path}/history?", 2)
    assert [(one["verification"], one["reason"]) for one in history] == [
        ("verified", "verified by hand"),
        ("deverified", "deverified by hand"),
        ("unverified", "unverified by hand"),
    ]
    refused = api("root", "POST", path, {"verification": "verified", "reason": " "})
    assert (refused.status_code, refused.json()["code"]) == (422, "invalid_args")
    key = {"Idempotency_Key": "once"}
    body = {"verification": "verified", "reason": "again"}
    assert api("root", "POST", path, body, **key).status_code == 200
    head = api.market.head()
    assert api("root", "POST", path, body, **key).headers["Idempotency-Replayed"] == "true"
    assert api.market.head() == head


def test_what_a_machine_lacks_is_told(api: Api) -> None:
    """Differences name what was stated and found; a bar that was not measured has found null."""
    machine = api.market.machine(host="bob")
    report(api.market, machine, inventory=inventory_of(machine, cpu_cores=4, cuda="11.9"))
    shown = api("bob", "GET", f"/v1/machines/{machine}/verification").json()
    assert shown["differences"] == [
        {"field": "cpu_cores", "stated": "8", "found": "4", "severity": "not_verified"}
    ]
    assert {one["bar"]: one["found"] for one in shown["missed_to_verify"]} == {
        "cuda": "11.9",
        "open_ports": None,
        "up_mbps": None,
        "down_mbps": None,
    }
    assert shown["missed_to_list"] == []
    probe = {"up_mbps": 10_000, "down_mbps": 10_000, "open_ports": 2, "country": "SE"}
    probed = api("root", "POST", f"/v1/machines/{machine}/probes", probe).json()
    assert probed["missed_to_list"] == [{"bar": "open_ports", "needed": "3", "found": "2"}]
    assert probed["below_bars"] is True
    listing = {"gpu_hour": "1", "storage_gb_month": "0"}
    refused = api("bob", "PUT", f"/v1/machines/{machine}/listing", listing)
    assert (refused.status_code, refused.json()["code"]) == (422, "below_bars")


def test_a_host_says_where_its_own_machine_stands(api: Api) -> None:
    """Nobody else's, and only a country that could be one."""
    machine = api.market.machine(host="bob")
    path = f"/v1/machines/{machine}/location"
    assert api("bob", "PUT", path, {"country": "SE"}).json()["country"] == "SE"
    assert api("eve", "PUT", path, {"country": "US"}).status_code == 404
    assert api("bob", "PUT", path, {"country": "se"}).status_code == 400
    assert api("root", "PUT", path, {"country": "NO"}).json()["country"] == "NO"


def test_a_machine_that_is_not_offered_shows_nothing_to_strangers(api: Api) -> None:
    """As with the machine itself: its host, auditors and admins see it, others get 404."""
    machine = api.market.machine(host="bob")
    api("bob", "DELETE", f"/v1/machines/{machine}/listing")
    for rest in ("rating", "checks", "verification", "verification/history", "benchmarks"):
        path = f"/v1/machines/{machine}/{rest}"
        for who, status in (("bob", 200), ("audrey", 200), ("root", 200), ("alice", 404)):
            assert api(who, "GET", path).status_code == status, (who, rest)
        answer = api("root", "GET", f"/v1/machines/99/{rest}")
        assert (answer.status_code, answer.json()["code"]) == (404, "no_such_machine")


def test_papers_are_recorded_by_admins_and_read_by_all(api: Api) -> None:
    """With number and evidence; a withdrawn one stays in the list and counts no more."""
    bob = api.accounts["bob"]
    path = f"/v1/hosts/{bob}/certifications"
    made = api("root", "POST", path, PAPER)
    assert (made.status_code, made.json()) == (201, {"host_id": bob, "certification_no": 1})
    assert api("root", "POST", path, PAPER | {"kind": "tier3"}).json()["certification_no"] == 2
    found = paged(api, "alice", f"{path}?", 1)
    assert [one["kind"] for one in found] == ["iso27001", "tier3"]
    assert [one["counts"] for one in found] == [True, True]
    assert found[0]["valid_to"] == PAPER["valid_to"]
    gone = api("root", "DELETE", f"{path}/1?reason=revoked")
    assert gone.status_code == 200
    assert [one["counts"] for one in items(api, "alice", path)] == [False, True]
    unknown = api("root", "DELETE", f"{path}/9?reason=revoked")
    assert (unknown.status_code, unknown.json()["code"]) == (404, "no_such_certification")


@pytest.mark.parametrize(
    "change",
    [
        {"kind": "iso9001"},
        {"valid_from": "soon"},
        {"valid_to": "2025-01-01T00:00:00Z"},
        {"evidence_hash": "none"},
        {"number": ""},
        {"surprise": 1},
    ],
)
def test_a_paper_that_cannot_be_is_refused(api: Api, change: dict[str, Any]) -> None:
    """Unknown kinds, impossible spans and missing evidence record nothing."""
    head = api.market.head()
    answer = api("root", "POST", f"/v1/hosts/{api.accounts['bob']}/certifications", PAPER | change)
    assert answer.status_code in {400, 422}
    assert answer.json()["code"] == "invalid_args"
    assert api.market.head() == head


def test_a_host_sees_why_a_gpu_is_out_and_an_admin_can_vouch_for_it(api: Api) -> None:
    """Suspect while it is held, lost after a fatal fault; back by a word that has a reason."""
    market = api.market
    machine = market.machine(host="bob", gpus=2)
    one = market.rent(api.accounts["alice"], machine, gpus=1)
    held, free = f"GPU-{machine}-0", f"GPU-{machine}-1"
    report(
        market,
        machine,
        health=[
            HealthEvent(at=START, kind="xid", code=63, gpu_uuid=held),
            HealthEvent(at=START, kind="xid", code=79, gpu_uuid=free),
        ],
    )
    path = f"/v1/machines/{machine}/gpus"
    first, second = api("bob", "GET", path).json()
    now = rfc3339(START)
    assert (first["state"], first["reason"], first["since"]) == ("suspect", "xid 63", now)
    assert first["instance_id"] == one
    assert (second["state"], second["reason"], second["since"]) == ("lost", "xid 79", now)
    assert second["instance_id"] is None
    for who, status in (("eve", 404), ("alice", 403), ("audrey", 200)):
        assert api(who, "GET", path).status_code == status
    vouched = {"reason": "reseated"}
    assert api("bob", "POST", f"{path}/{free}/restore", vouched).status_code == 403
    answer = api("root", "POST", f"{path}/{free}/restore", {"reason": " "})
    assert answer.json()["code"] == "invalid_args"
    assert api("root", "POST", f"{path}/GPU-of-nobody/restore", vouched).status_code == 404
    for uuid in (held, free, free):
        answer = api("root", "POST", f"{path}/{uuid}/restore", vouched)
        assert (answer.status_code, answer.json()["state"]) == (200, "good")
    assert [one["reason"] for one in api("bob", "GET", path).json()] == [None, None]
    assert market.status(market.rent(api.accounts["carol"], machine, gpus=1)) == "loading"
    assert market.rebuild().equal
