"""Disputes, statements and corrections over HTTP: who sees what, and what it does."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest

from ledger.domain.ids import rfc3339
from ledger.services import api_keys, rentals, witnesses
from tests.http.conftest import Api
from tests.support.disputes import DAY, HOUR, Rental, ran, run_due
from tests.support.market import START

APRIL = 1_775_001_600
MORNING = START // DAY * DAY + DAY + HOUR


@pytest.fixture
def rental(api: Api) -> Rental:
    """Alice runs an instance of Bob's for an hour at $0.40; the meters have seen it."""
    market = api.market
    machine = market.machine("bob", gpu_hour=400_000_000, storage=0, up=0, down=0)
    instance = market.rent(api.accounts["alice"], machine)
    market.confirm(machine, instance)
    found = Rental(api.accounts["alice"], api.accounts["bob"], machine, instance)
    ran(market, found, HOUR)
    market.project()
    return found


def body(rental: Rental, start: int = START + 600, until: int = START + 1_200) -> dict[str, Any]:
    """A dispute about ten minutes."""
    return {
        "instance_id": rental.instance,
        "start": rfc3339(start),
        "until": rfc3339(until),
        "reason": "not_running",
        "evidence": ["ab" * 32],
        "statement": "nvidia-smi found no device",
    }


def opened(api: Api, rental: Rental) -> int:
    """A dispute of Alice's; its id."""
    answer = api("alice", "POST", "/v1/disputes", body(rental))
    assert answer.status_code == 201, answer.text
    return int(answer.json()["dispute_id"])


def balance(api: Api, who: str, field: str) -> str:
    """One number of somebody's balance."""
    return str(api(who, "GET", "/v1/balance").json()[field])


def test_a_dispute_from_filing_to_credit(api: Api, rental: Rental) -> None:
    """Alice files, Bob's share is held, Bob answers, an admin upholds: $0.066666666 go back."""
    one = opened(api, rental)
    assert balance(api, "bob", "host_payable") == "0.283333333"
    assert balance(api, "alice", "posted") == "100"
    path = f"/v1/disputes/{one}"
    answer = api("bob", "POST", f"{path}/answer", {"statement": "the rack lost power"})
    assert answer.json()["status"] == "answered"
    answer = api("root", "POST", f"{path}/resolve", {"outcome": "upheld", "rule_id": "power"})
    found = answer.json()
    assert (found["status"], found["amount"], found["held"]) == ("upheld", "0.066666666", "0")
    assert found["rule_id"] == "power"
    assert [said["text"] for said in found["said"]] == [
        "nvidia-smi found no device",
        "the rack lost power",
    ]
    assert balance(api, "alice", "posted") == "100.066666666"
    assert balance(api, "bob", "host_payable") == "0.283333333"
    (correction,) = api("alice", "GET", "/v1/corrections").json()["items"]
    assert correction["charge"] == f"instance-{rental.instance}.gpu.1"
    assert (correction["amount"], correction["fee"]) == ("0.066666666", "0.009999999")
    assert correction["effective_at"] == rfc3339(START + 600)
    trial = api("audrey", "GET", "/v1/trial-balance").json()
    assert trial["difference"] == "0"


def test_the_parties_see_a_dispute_and_nobody_else(api: Api, rental: Rental) -> None:
    """Another renter and another host are told that there is no such dispute."""
    one = opened(api, rental)
    path = f"/v1/disputes/{one}"
    for who in ("alice", "bob", "root"):
        assert api(who, "GET", path).json()["said"][0]["text"] == "nvidia-smi found no device"
    (said,) = api("audrey", "GET", path).json()["said"]
    assert (said["text"], said["evidence"]) == (None, ["ab" * 32])
    for who in ("carol", "eve"):
        for method, tail, sent in (
            ("GET", "", None),
            ("POST", "/answer", {"statement": "x"}),
        ):
            answer = api(who, method, path + tail, sent)
            assert (answer.status_code, answer.json()["code"]) == (404, "no_such_dispute")
        assert api(who, "GET", "/v1/disputes").json()["items"] == []
    assert api("carol", "POST", f"{path}/withdraw").status_code == 404
    for who in ("alice", "bob", "audrey"):
        (listed,) = api(who, "GET", "/v1/disputes?status=open").json()["items"]
        assert listed["dispute_id"] == one


def test_only_ones_own_instance_can_be_disputed(api: Api, rental: Rental) -> None:
    """A dispute about somebody else's instance is about no instance at all."""
    head = api.market.head()
    answer = api("carol", "POST", "/v1/disputes", body(rental))
    assert (answer.status_code, answer.json()["code"]) == (404, "no_such_instance")
    assert api.market.head() == head


@pytest.mark.parametrize(
    ("change", "status", "code"),
    [
        ({"reason": "slow"}, 400, "invalid_args"),
        ({"start": "yesterday"}, 400, "invalid_args"),
        ({"until": rfc3339(START)}, 422, "invalid_args"),
        ({"evidence": ["x"]}, 422, "invalid_args"),
        ({"start": rfc3339(START - 600), "until": rfc3339(START - 300)}, 422, "no_such_charge"),
        ({"surprise": 1}, 400, "invalid_args"),
    ],
)
def test_a_wrong_filing_is_told_what_is_wrong(
    api: Api, rental: Rental, change: dict[str, Any], status: int, code: str
) -> None:
    """Each refusal has its code, and nothing is stored of it."""
    head = api.market.head()
    answer = api("alice", "POST", "/v1/disputes", {**body(rental), **change})
    assert (answer.status_code, answer.json()["code"]) == (status, code)
    assert api.market.head() == head


def test_a_repeated_filing_is_the_same_dispute(api: Api, rental: Rental) -> None:
    """IDEM-01: with a key the first answer is repeated; without one it is `already_disputed`."""
    first = api("alice", "POST", "/v1/disputes", body(rental), Idempotency_Key="d-1")
    again = api("alice", "POST", "/v1/disputes", body(rental), Idempotency_Key="d-1")
    assert (again.status_code, again.json()) == (201, first.json())
    assert again.headers["Idempotency-Replayed"] == "true"
    answer = api("alice", "POST", "/v1/disputes", body(rental))
    assert (answer.status_code, answer.json()["code"]) == (422, "already_disputed")


def test_questions_answers_and_withdrawal(api: Api, rental: Rental) -> None:
    """An admin asks, the renter answers, and may still let it be; then it is closed."""
    one = opened(api, rental)
    path = f"/v1/disputes/{one}"
    asked = api("root", "POST", f"{path}/question", {"statement": "which driver?"}).json()
    assert asked["status"] == "questioned"
    assert asked["question_due_at"] == rfc3339(api.market.clock() + 7 * DAY)
    assert api("alice", "POST", f"{path}/answer", {"statement": "570"}).json()["status"] == "open"
    assert api("alice", "POST", f"{path}/withdraw").json()["status"] == "withdrawn"
    answer = api("root", "POST", f"{path}/resolve", {"outcome": "upheld"})
    assert (answer.status_code, answer.json()["code"]) == (422, "dispute_closed")
    assert balance(api, "bob", "host_payable") == "0.34"


def test_an_admin_answers_for_a_party_and_nobody_else_does(api: Api, rental: Rental) -> None:
    """What a host told the platform on the phone counts; parties speak for themselves only."""
    path = f"/v1/disputes/{opened(api, rental)}"
    wrong = api("alice", "POST", f"{path}/answer", {"on_behalf_of": "host"})
    assert (wrong.status_code, wrong.json()["code"]) == (403, "not_authorized")
    wrong = api("root", "POST", f"{path}/answer", {})
    assert (wrong.status_code, wrong.json()["code"]) == (422, "invalid_args")
    found = api("root", "POST", f"{path}/answer", {"on_behalf_of": "host"}).json()
    assert found["status"] == "answered"
    assert found["said"][1]["actor"] == f"account-{api.accounts['root']}"


def test_a_statement_and_the_proof_of_its_line(api: Api, rental: Rental) -> None:
    """A client that knows SHA-256 checks a line against the root without trusting the server."""
    run_due(api.market, MORNING)
    (listed,) = api("alice", "GET", "/v1/statements").json()["items"]
    day = listed["day"][:10]
    full = api("alice", "GET", f"/v1/statements/{day}").json()
    assert full["statement"] == listed
    (line,) = full["lines"]
    assert (line["amount"], line["fee"], line["quantity"]) == ("0.4", "0.06", 3_600)
    proof = api("alice", "GET", f"/v1/statements/{day}/lines/0/proof").json()
    found = hashlib.sha256(b"\x00" + proof["bytes"].encode()).digest()
    index, last = proof["line"], proof["lines"] - 1
    for hash_ in map(bytes.fromhex, proof["path"]):
        pair = hash_ + found if index % 2 or index == last else found + hash_
        found = hashlib.sha256(b"\x01" + pair).digest()
        index, last = index // 2, last // 2
    assert found.hex() == proof["merkle_root"] == listed["merkle_root"]
    number = rental.renter
    assert api("audrey", "GET", f"/v1/statements/{day}?account_id={number}").json() == full
    for who, tail in (
        ("carol", ""),
        ("carol", f"?account_id={number}"),
        ("alice", "/lines/1/proof"),
    ):
        assert api(who, "GET", f"/v1/statements/{day}{tail}").status_code == 404
    assert api("alice", "GET", "/v1/statements/today").status_code == 400


def test_an_admin_corrects_a_charge(api: Api, rental: Rental) -> None:
    """A reversal in part, then a replacement; the charge is bounded, and the views differ."""
    charge = f"instance-{rental.instance}.gpu.1"
    wrong = {"charge": charge, "reason": "price_mismatch", "amount": "0.1"}
    made = api("root", "POST", "/v1/corrections", wrong)
    assert (made.status_code, made.json()["kind"]) == (201, "reversal")
    made = api(
        "root",
        "POST",
        "/v1/corrections",
        {"charge": charge, "reason": "price_mismatch", "replace_with": "0.2"},
    )
    assert (made.json()["kind"], made.json()["fee"]) == ("charge", "0.03")
    assert balance(api, "alice", "posted") == "100.2"
    window = f"from={rfc3339(START)}&until={rfc3339(START + HOUR)}"
    (known,) = api("alice", "GET", f"/v1/corrected-charges?{window}").json()["items"]
    assert (known["charged"], known["reversed"], known["posted"], known["amount"]) == (
        "0.4",
        "0.4",
        "0.2",
        "0.2",
    )
    assert api("alice", "GET", f"/v1/corrected-charges?{window}&as=invoiced").json()["items"] == []
    answer = api("root", "POST", "/v1/corrections", wrong)
    assert (answer.status_code, answer.json()["code"]) == (422, "over_reversal")
    both = {**wrong, "replace_with": "0.3"}
    assert api("root", "POST", "/v1/corrections", both).status_code == 400
    assert api("root", "POST", "/v1/corrections", {**wrong, "charge": "x"}).status_code == 404


def test_credit_notes_and_the_second_person(api: Api, rental: Rental) -> None:
    """Voiding an invoice takes an approval by another admin than the one who voids it."""
    market = api.market
    with market.ledger.unit() as unit:
        rentals.stop(unit, rental.instance)
    run_due(market, APRIL + HOUR)
    note = {
        "account_id": rental.renter,
        "document": "USE-00000001",
        "amount": "0.1",
        "reason": "goodwill",
    }
    made = api("root", "POST", "/v1/credit-notes", note).json()
    assert (made["number"], made["total"]) == ("CN-00000001", "0.1")
    assert [line["document_line"] for line in made["lines"]] == [1]
    void = {**note, "amount": "0.3", "void": True}
    for _ in range(2):
        answer = api("root", "POST", "/v1/credit-notes", void)
        assert answer.json()["code"] == "second_approval_required"
        agreed = api("root", "POST", "/v1/approvals", {"subject": "void USE-00000001"})
        assert agreed.status_code == 201
    with market.ledger.unit() as unit:
        api.keys["boss"] = api_keys.create_key(unit, api.accounts["eve"], "admin")
    api("boss", "POST", "/v1/approvals", {"subject": "void USE-00000001"})
    voided = api("root", "POST", "/v1/credit-notes", void).json()
    assert (voided["voids"], voided["approved_by"]) == (True, f"account-{api.accounts['eve']}")
    numbers = [one["number"] for one in api("alice", "GET", "/v1/credit-notes").json()["items"]]
    assert numbers == ["CN-00000001", "CN-00000002"]
    shown = api("alice", "GET", "/v1/credit-notes/CN-00000001").json()
    assert shown == made
    assert api("carol", "GET", "/v1/credit-notes/CN-00000001").status_code == 404
    assert api("alice", "GET", "/v1/invoices/USE-00000001").json()["total"] == "0.4"
    assert balance(api, "alice", "posted") == "100.4"


def test_heartbeats_with_the_instances_own_token(api: Api, rental: Rental) -> None:
    """The owner gets the token, the container uses it, and nobody else can have either."""
    path = f"/v1/instances/{rental.instance}/heartbeat-token"
    token = api("alice", "POST", path).json()["token"]
    answer = api(token, "POST", "/v1/heartbeats")
    assert (answer.status_code, answer.json()["instance_id"]) == (200, rental.instance)
    assert api("carol", "POST", path).status_code == 404
    assert api("bob", "POST", path).status_code == 403
    for wrong in (api.keys["alice"], token + "x"):
        answer = api(wrong, "POST", "/v1/heartbeats")
        assert (answer.status_code, answer.json()["code"]) == (401, "auth_error")
    assert api(None, "POST", "/v1/heartbeats").status_code == 401
    assert api(token, "GET", "/v1/balance").status_code == 401


def test_contradictions_are_listed_to_both_sides(api: Api, rental: Rental) -> None:
    """Renter and host see the minutes that the platform will judge by; others see none."""
    with api.market.ledger.unit() as unit:
        witnesses.record_minute(unit, rental.instance, START + 600, up=0, down=4, configured=4)
    for who in ("alice", "bob", "audrey"):
        (one,) = api(who, "GET", "/v1/witnesses").json()["items"]
        assert (one["start"], one["verdict"]) == (rfc3339(START + 600), "hold")
    for who in ("carol", "eve"):
        assert api(who, "GET", "/v1/witnesses").json()["items"] == []
