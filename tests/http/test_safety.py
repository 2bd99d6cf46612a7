"""What keeps a renter from spending more than it meant, over HTTP."""

from __future__ import annotations

from adapters.simulation.gateway import MemoryGateway
from ledger.domain.ids import rfc3339
from ledger.services import holds, policies, rentals
from tests.http.conftest import Api
from tests.support.market import DOLLAR, START

CONSENT = {"below": "5", "amount": "20", "max_per_day": "100", "reference": "mandate_1Pq8"}


def rented(api: Api) -> tuple[int, int]:
    """A running instance of alice's at $0.36 an hour, without storage, and its machine."""
    machine = api.market.machine(storage=0)
    instance = api.market.rent(api.accounts["alice"], machine)
    api.market.confirm(machine, instance)
    return machine, instance


def test_caps_are_set_shown_and_bind(api: Api) -> None:
    """A start beyond the cap is 409 `spend_rate_limit` and leaves nothing (C4, API-01)."""
    machine = api.market.machine(gpus=2, storage=0)
    shown = api("alice", "GET", "/v1/spend-caps").json()
    assert (shown["per_hour"], shown["per_day"], shown["hard"]) == (None, None, False)
    answer = api("alice", "PUT", "/v1/spend-caps", {"per_hour": "0.36", "per_day": "5"})
    assert answer.status_code == 200
    assert answer.json() | {"account_id": 0} == {
        "account_id": 0,
        "per_hour": "0.36",
        "per_day": "5",
        "hard": False,
        "day_from": "2026-03-01T00:00:00Z",
        "spent_today": "0",
    }
    body = {"machine_id": machine, "gpus": 1, "disk_gb": 1}
    assert api("alice", "POST", "/v1/instances", body).status_code == 201
    refused = api("alice", "POST", "/v1/instances", body)
    assert (refused.status_code, refused.json()["code"]) == (409, "spend_rate_limit")
    assert refused.json()["cap"] == "0.36"
    assert len(api("alice", "GET", "/v1/instances").json()["items"]) == 1
    api("alice", "PUT", "/v1/spend-caps", {"per_hour": None, "per_day": None})
    assert api("alice", "POST", "/v1/instances", body).status_code == 201


def test_a_consent_is_given_used_and_withdrawn(api: Api) -> None:
    """Nothing is charged before the consent; after it every charge is listed with its trigger."""
    alice, gateway = api.accounts["alice"], MemoryGateway()
    with api.market.ledger.unit() as unit:
        holds.place_hold(unit, alice, 98 * DOLLAR, "h")
    policies.top_up(api.market.ledger, gateway)
    missing = api("alice", "GET", "/v1/auto-top-up")
    assert (missing.status_code, missing.json()["code"]) == (404, "no_such_consent")
    given = api("alice", "PUT", "/v1/auto-top-up", CONSENT)
    assert (given.status_code, given.json()["status"]) == (200, "on")
    policies.top_up(api.market.ledger, gateway)
    (charge,) = api("alice", "GET", "/v1/top-ups").json()["items"]
    assert (charge["amount"], charge["status"], charge["consent_no"]) == ("20", "settled", 1)
    position = charge["trigger"]
    events = api("audrey", "GET", f"/v1/events/account-{alice}").json()["items"]
    topics = {one["position"]: one["topic"] for one in events}
    assert topics[position] == "top_up.consented.v1"
    assert api("alice", "GET", "/v1/balance").json()["available"] == "22"
    gone = api("alice", "DELETE", "/v1/auto-top-up")
    assert (gone.status_code, gone.json()["status"]) == (200, "revoked")
    assert len(gateway.asked) == 1


def test_nobody_consents_for_another(api: Api) -> None:
    """The body names no account: not even an admin can let somebody else be charged."""
    body = {**CONSENT, "account_id": api.accounts["alice"]}
    assert api("root", "PUT", "/v1/auto-top-up", body).status_code == 400
    assert api("root", "PUT", "/v1/auto-top-up", CONSENT).status_code == 200
    assert api("alice", "GET", "/v1/auto-top-up").status_code == 404


def test_a_card_number_is_refused_and_kept_nowhere(api: Api) -> None:
    """A reference that looks like a card is 422, and the log does not grow."""
    head = api.market.head()
    for number in ("4242424242424242", "4242-4242-4242-4242"):
        answer = api("alice", "PUT", "/v1/auto-top-up", {**CONSENT, "reference": number})
        assert (answer.status_code, answer.json()["code"]) == (422, "invalid_args")
        assert number not in answer.text
    assert api.market.head() == head


def test_alerts_say_when_they_may_come_again(api: Api) -> None:
    """An open alert has no `armed_at`; a cleared one is armed a day after it was raised."""
    rented(api)
    alice = api.accounts["alice"]
    with api.market.ledger.unit() as unit:
        holds.place_hold(unit, alice, 92 * DOLLAR, "h")
    policies.run_due(api.market.ledger)
    body = api("alice", "GET", "/v1/alerts").json()
    assert body == {
        "account_id": alice,
        "items": [
            {
                "alert": "low_balance_24h",
                "raised_at": rfc3339(START),
                "cleared_at": None,
                "armed_at": None,
            }
        ],
    }
    with api.market.ledger.unit() as unit:
        holds.release_hold(unit, alice, "h")
    policies.run_due(api.market.ledger)
    (alert,) = api("alice", "GET", "/v1/alerts").json()["items"]
    assert (alert["cleared_at"], alert["armed_at"]) == (rfc3339(START), rfc3339(START + 86_400))


def test_a_lease_is_set_and_ends_the_instance(api: Api) -> None:
    """The instance stops with reason `lease`, and a start then is 409 `lease_ended`."""
    _, instance = rented(api)
    path = f"/v1/instances/{instance}"
    assert api("alice", "GET", f"{path}/lease").json()["until"] is None
    body = {"until": rfc3339(START + 60), "spend_limit": "5"}
    shown = api("alice", "PUT", f"{path}/lease", body).json()
    assert (shown["until"], shown["spend_limit"], shown["ended_at"]) == (*body.values(), None)
    api.market.clock.move_to(START + 60)
    policies.run_due(api.market.ledger)
    assert api("alice", "GET", path).json()["reason"] == "lease"
    assert api("alice", "GET", f"{path}/lease").json()["ended_at"] == rfc3339(START + 60)
    refused = api("alice", "POST", f"{path}/start")
    assert (refused.status_code, refused.json()["code"]) == (409, "lease_ended")


def test_idle_and_cleanup_policies(api: Api) -> None:
    """Both are off at first, are shown as they were set, and a dry run changes nothing."""
    _, instance = rented(api)
    assert api("alice", "GET", "/v1/idle-policy").json()["stop_seconds"] is None
    body = {"notice_seconds": 600, "stop_seconds": 1200}
    assert api("alice", "PUT", "/v1/idle-policy", body).json()["stop_seconds"] == 1200
    assert api("alice", "GET", "/v1/idle-policy").json()["notice_seconds"] == 600
    with api.market.ledger.unit() as unit:
        rentals.stop(unit, instance)
    assert api("alice", "GET", "/v1/cleanup-policy").json()["takes"] == []
    head = api.market.head()
    dry = api("alice", "GET", "/v1/cleanup-policy?scope=all&days=3").json()
    assert [one["instance_id"] for one in dry["takes"]] == [instance]
    assert dry["takes"][0]["due_at"] == rfc3339(START + 3 * 86_400 + 1)
    assert api.market.head() == head
    assert api("alice", "GET", "/v1/cleanup-policy").json()["scope"] == "off"
    shown = api("alice", "PUT", "/v1/cleanup-policy", {"scope": "labelled"}).json()
    assert (shown["scope"], shown["days"], shown["label"], shown["takes"]) == (
        "labelled",
        7,
        "finished",
        [],
    )
    assert api("alice", "GET", "/v1/cleanup-policy?days=0").status_code == 400
