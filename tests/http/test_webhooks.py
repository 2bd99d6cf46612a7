"""Webhooks and notices over HTTP: what their owners do, and what others see of it."""

from __future__ import annotations

from typing import Any

import pytest

from adapters.webhooks.verify import verify
from ledger.domain.webhooks import TRIES
from ledger.services.webhooks import REACH_VARIABLE
from tests.http.conftest import Api
from tests.support.market import START
from tests.support.webhooks import claim, fail, take, tell

URL = "https://hooks.example/gpuledger?token=abc"
NEW = {"url": URL, "codes": ["outbid", "resumed"]}


def made(api: Api, who: str = "alice", **fields: Any) -> dict[str, Any]:
    """A new webhook of somebody."""
    answer = api(who, "POST", "/v1/webhooks", {"url": URL, **fields})
    assert answer.status_code == 201, answer.text
    shown: dict[str, Any] = answer.json()
    return shown


def items(api: Api, path: str, who: str = "alice") -> list[dict[str, Any]]:
    """The rows of a list's first page."""
    answer = api(who, "GET", path)
    assert answer.status_code == 200, answer.text
    found: list[dict[str, Any]] = answer.json()["items"]
    return found


def test_a_webhook_is_made_shown_changed_and_removed(api: Api) -> None:
    """Each step answers with what holds from then on, and what is removed is not found."""
    webhook = made(api, codes=["outbid", "resumed"])["webhook_id"]
    path = f"/v1/webhooks/{webhook}"
    expected = {
        "webhook_id": webhook,
        "account_id": api.accounts["alice"],
        "url": URL,
        "codes": ["outbid", "resumed"],
        "overlap_until": None,
        "registered_at": "2026-03-01T10:00:00Z",
        "pending": 0,
        "dead": 0,
    }
    assert api("alice", "GET", path).json() == expected
    assert items(api, "/v1/webhooks") == [expected]
    changed = {"url": "https://new.example/"}
    shown = api("alice", "PUT", path, changed).json()
    assert shown == {**expected, "url": "https://new.example/", "codes": None}
    for _ in range(2):
        assert api("alice", "DELETE", path).json() == {"webhook_id": webhook}
    for method, under, body in (
        ("GET", "", None),
        ("PUT", "", changed),
        ("POST", "/test", None),
        ("POST", "/rotate", None),
        ("GET", "/deliveries", None),
        ("POST", "/replay", {"since": "2026-03-01T00:00:00Z"}),
    ):
        answer = api("alice", method, path + under, body)
        assert (answer.status_code, answer.json()["code"]) == (404, "no_such_webhook")
    assert items(api, "/v1/webhooks") == []


def test_the_secret_is_shown_once_and_to_its_own_key_again(api: Api) -> None:
    """A repeat under the same key is the same secret; no list, fact or other key ever shows it."""
    first = api("alice", "POST", "/v1/webhooks", NEW, Idempotency_Key="w-1")
    again = api("alice", "POST", "/v1/webhooks", NEW, Idempotency_Key="w-1")
    assert again.json() == first.json()
    secret, webhook = first.json()["secret"], first.json()["webhook_id"]
    assert secret.startswith("whsec_")
    rotated = api("alice", "POST", f"/v1/webhooks/{webhook}/rotate").json()
    assert rotated["overlap_until"] == "2026-03-02T10:00:00Z"
    assert rotated["secret"] != secret
    kept = b"".join(
        bytes(row[0]) for row in api.market.connection.execute("SELECT answer FROM idempotency")
    )
    shown = api("alice", "GET", "/v1/webhooks").content
    log = api("audrey", "GET", "/v1/events?limit=1000").content
    for text in (secret, rotated["secret"]):
        assert text.encode() not in kept + shown + log


def test_an_auditor_sees_that_there_is_a_webhook_and_not_where(api: Api) -> None:
    """Auditors read all webhooks without their addresses; admins act for an account they name."""
    webhook = made(api)["webhook_id"]
    (seen,) = items(api, "/v1/webhooks", "audrey")
    assert (seen["webhook_id"], seen["url"]) == (webhook, None)
    assert api("audrey", "GET", f"/v1/webhooks/{webhook}").json()["url"] is None
    tell(api.market.ledger, api.accounts["alice"], "idle")
    fail(api.market.ledger, claim(api.market.ledger))
    deliveries = f"/v1/webhooks/{webhook}/deliveries"
    for who, excerpt in (("alice", "sorry"), ("root", "sorry"), ("audrey", None)):
        (waits,) = items(api, deliveries, who)
        assert (waits["reason"], waits["excerpt"]) == ("http_500", excerpt)
    assert api("root", "GET", f"/v1/webhooks/{webhook}").json()["url"] == URL
    alice = api.accounts["alice"]
    assert items(api, f"/v1/webhooks?account_id={alice}", "root") == items(api, "/v1/webhooks")
    missing = api("root", "POST", f"/v1/webhooks/{webhook}/test")
    assert missing.json()["code"] == "no_such_webhook"
    sent = api("root", "POST", f"/v1/webhooks/{webhook}/test?account_id={alice}")
    assert sent.status_code == 200
    made(api, "root", account_id=alice, url="https://other.example/")
    assert len(items(api, "/v1/webhooks")) == 2


def test_a_webhook_of_somebody_else_is_not_there(api: Api) -> None:
    """Carol finds none of alice's webhooks, by no route, and cannot name alice's account."""
    webhook = made(api)["webhook_id"]
    head = api.market.head()
    path = f"/v1/webhooks/{webhook}"
    for method, under, body in (
        ("GET", "", None),
        ("PUT", "", {"url": "https://evil.example/"}),
        ("DELETE", "", None),
        ("POST", "/rotate", None),
        ("POST", "/test", None),
        ("GET", "/deliveries", None),
        ("POST", "/replay", {"event_id": "evt_1"}),
    ):
        answer = api("carol", method, path + under, body)
        assert (answer.status_code, answer.json()["code"]) == (404, "no_such_webhook"), under
    assert items(api, "/v1/webhooks", "carol") == []
    named = {"url": URL, "account_id": api.accounts["alice"]}
    assert api("carol", "POST", "/v1/webhooks", named).json()["code"] == "no_such_account"
    assert api.market.head() == head


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({"url": "http://hooks.example/"}, 422, "invalid_url"),
        ({"url": "https://user:secret@hooks.example/"}, 422, "invalid_url"),
        ({"url": "https://127.0.0.1/"}, 422, "invalid_url"),
        ({"url": "https://169.254.169.254/latest"}, 422, "invalid_url"),
        ({"url": URL, "codes": []}, 422, "invalid_args"),
        ({"url": URL, "codes": ["sunrise"]}, 400, "invalid_args"),
        ({"url": 7}, 400, "invalid_args"),
        ({}, 400, "invalid_args"),
    ],
)
def test_what_is_no_webhook_is_refused(
    api: Api, body: dict[str, Any], status: int, code: str
) -> None:
    """Addresses that lead inside, other schemes and codes that there are not change nothing."""
    head = api.market.head()
    answer = api("alice", "POST", "/v1/webhooks", body)
    assert (answer.status_code, answer.json()["code"]) == (status, code)
    assert api.market.head() == head


def test_the_operator_s_setting_opens_this_machine(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With `GPULEDGER_WEBHOOK_REACH=loopback` a receiver beside the server may be registered."""
    here = {"url": "http://127.0.0.1:9000/"}
    assert api("alice", "POST", "/v1/webhooks", here).status_code == 422
    monkeypatch.setenv(REACH_VARIABLE, "loopback")
    assert api("alice", "POST", "/v1/webhooks", here).status_code == 201


def test_deliveries_are_seen_in_every_state(api: Api) -> None:
    """What waits, arrives and dies is listed with its last answer; dead letters are replayed."""
    ledger = api.market.ledger
    webhook = made(api)
    path = f"/v1/webhooks/{webhook['webhook_id']}"
    test = api("alice", "POST", f"{path}/test").json()["event_id"]
    tell(ledger, api.accounts["alice"], "outbid", about="instance-7")
    sent = claim(ledger)
    assert verify(webhook["secret"], sent[0].headers, sent[0].body, START)["id"] == test
    take(ledger, sent[:1])
    fail(ledger, sent[1:])
    (waits,) = items(api, f"{path}/deliveries")
    assert waits == {
        "event_id": f"evt_{sent[1].position}",
        "type": "outbid",
        "about": "instance-7",
        "state": "pending",
        "attempts": 1,
        "attempted_at": "2026-03-01T10:00:00Z",
        "due_at": waits["due_at"],
        "ended_at": None,
        "status": 500,
        "reason": "http_500",
        "excerpt": "sorry",
    }
    (arrived,) = items(api, f"{path}/deliveries?state=delivered")
    assert (arrived["event_id"], arrived["type"], arrived["status"]) == (test, "test", 204)
    assert arrived["due_at"] is None
    for _ in range(TRIES - 1):
        api.market.clock.move_to(api.market.clock() + 86_400)
        fail(ledger, claim(ledger))
    assert api("alice", "GET", path).json()["dead"] == 1
    (dead,) = items(api, f"{path}/deliveries?state=dead")
    assert (dead["event_id"], dead["attempts"]) == (waits["event_id"], TRIES)
    replayed = api("alice", "POST", f"{path}/replay", {"since": "2026-03-01T00:00:00Z"})
    assert replayed.json() == {"events": 1}
    assert items(api, f"{path}/deliveries?state=dead") == []
    replayed = api("alice", "POST", f"{path}/replay", {"event_id": test})
    assert replayed.json() == {"events": 1}
    assert len(items(api, f"{path}/deliveries")) == 2
    assert api("alice", "GET", f"{path}/deliveries?state=lost").status_code == 400
    assert api.market.rebuild().equal


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"until": "2026-03-01T00:00:00Z"},
        {"event_id": "evt_1", "since": "2026-03-01T00:00:00Z"},
        {"event_id": "evt_1", "until": "2026-03-01T00:00:00Z"},
        {"since": "yesterday"},
    ],
)
def test_a_replay_names_an_event_or_a_time(api: Api, body: dict[str, Any]) -> None:
    """A replay of nothing, or of two things, is told as the caller's mistake."""
    webhook = made(api)["webhook_id"]
    answer = api("alice", "POST", f"/v1/webhooks/{webhook}/replay", body)
    assert (answer.status_code, answer.json()["code"]) == (400, "invalid_args")


def test_deliveries_and_webhooks_page(api: Api) -> None:
    """Pages of one row each show every delivery and every webhook once, in order."""
    ledger = api.market.ledger
    paths = [f"/v1/webhooks/{made(api)['webhook_id']}/deliveries", "/v1/webhooks", "/v1/notices"]
    made(api, url="https://other.example/")
    tell(ledger, api.accounts["alice"], "outbid", "idle", "resumed")
    claim(ledger)
    for path, count in zip(paths, (3, 2, 4), strict=True):
        whole = items(api, path)
        assert len(whole) == count
        found, cursor = [], ""
        while True:
            page = api("alice", "GET", f"{path}?limit=1{cursor}").json()
            found += page["items"]
            if page["next_cursor"] is None:
                break
            cursor = f"&cursor={page['next_cursor']}"
        assert found == whole


def test_notices_are_listed_for_whom_they_are(api: Api) -> None:
    """A renter sees its own notices, by code if it likes; auditors and admins see all."""
    ledger = api.market.ledger
    alice, carol = api.accounts["alice"], api.accounts["carol"]
    tell(ledger, alice, "outbid", "idle", about="instance-7")
    tell(ledger, carol, "idle")
    own = items(api, "/v1/notices")
    assert own.pop(0)["code"] == "receipt"  # Of the credit that everybody begins with.
    assert [one["code"] for one in own] == ["outbid", "idle"]
    assert own[0] == {
        "event_id": f"evt_{own[0]['position']}",
        "account_id": alice,
        "code": "outbid",
        "about": "instance-7",
        "issued_at": "2026-03-01T10:00:00Z",
        "position": own[0]["position"],
    }
    assert items(api, "/v1/notices?code=idle") == own[1:]
    assert items(api, "/v1/notices?code=expired") == []
    everybody = items(api, "/v1/notices?code=idle", "audrey")
    assert [one["account_id"] for one in everybody] == [alice, carol]
    assert items(api, f"/v1/notices?code=idle&account_id={carol}", "root") == everybody[1:]
    assert api("alice", "GET", f"/v1/notices?account_id={carol}").status_code == 404
    assert api("alice", "GET", "/v1/notices?code=sunrise").status_code == 400
