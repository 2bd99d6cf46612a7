"""Webhooks: what is registered, which notices are queued, and what an event says.

HOOK-01, C35.
"""

from __future__ import annotations

import pytest

from adapters.webhooks.verify import InvalidDeliveryError, verify
from ledger.domain.webhooks import OVERLAP_SECONDS, TRIES
from ledger.errors import NotFoundError, RejectedError
from ledger.services import rentals, webhooks
from ledger.services.webhooks.queue import LEASE_SECONDS
from tests.support.market import DOLLAR, START, Market
from tests.support.webhooks import claim, event_of, fail, queue, register, shown, take, tell

URL = "https://hooks.example/gpuledger?token=abc"


@pytest.fixture
def alice(market: Market) -> int:
    """A renter."""
    return market.account("alice", 100 * DOLLAR)


# --- registering ----------------------------------------------------------------------------------


def test_neither_address_nor_secret_is_in_the_log(market: Market, alice: int) -> None:
    """Facts hold a reference and a keyed hash; the vault gives both back, and nobody else does."""
    made = register(market.ledger, alice, URL, ["outbid"])
    with market.ledger.unit() as unit:
        rotated = webhooks.rotate(unit, alice, made.webhook_id)
    everything = b"\n".join(
        row[0] for row in market.connection.execute("SELECT state FROM events").fetchall()
    )
    for secret in (URL, "hooks.example", made.secret, rotated.secret):
        assert secret.encode() not in everything
    assert made.secret != rotated.secret
    assert shown(market.ledger, made.webhook_id).url == URL
    sealed = market.connection.execute("SELECT sealed FROM vault_items").fetchall()
    assert not any(b"whsec" in row[0] or b"hooks" in row[0] for row in sealed)


def test_what_cannot_be_registered_changes_nothing(market: Market, alice: int) -> None:
    """A bad address, a bad code, a known address and an eleventh webhook are refused in turn."""
    made = register(market.ledger, alice, URL)
    head = market.head()
    for url, codes, code in (
        ("http://hooks.example/", None, "invalid_url"),
        ("https://10.0.0.1/", None, "invalid_url"),
        ("https://other.example/", ["sunrise"], "invalid_args"),
        ("https://other.example/", [], "invalid_args"),
        (URL, None, "webhook_exists"),
    ):
        with pytest.raises(RejectedError) as refused:
            register(market.ledger, alice, url, codes)
        assert refused.value.code == code
    with pytest.raises(NotFoundError, match="no account"):
        register(market.ledger, 999, URL)
    assert market.head() == head
    for number in range(1, webhooks.WEBHOOKS_MAX):
        register(market.ledger, alice, f"https://hooks.example/{number}")
    with pytest.raises(RejectedError) as refused:
        register(market.ledger, alice, "https://hooks.example/more")
    assert refused.value.code == "too_many_webhooks"
    with market.ledger.unit() as unit:
        webhooks.remove(unit, alice, made.webhook_id)
    assert register(market.ledger, alice, URL).webhook_id == webhooks.WEBHOOKS_MAX + 1


def test_a_webhook_of_somebody_else_does_not_exist(market: Market, alice: int) -> None:
    """Changing, rotating, testing, removing or replaying another's is `no_such_webhook`."""
    carol = market.account("carol")
    webhook = register(market.ledger, alice, URL).webhook_id
    head = market.head()
    for wish in (
        lambda unit: webhooks.change(unit, carol, webhook, URL),
        lambda unit: webhooks.rotate(unit, carol, webhook),
        lambda unit: webhooks.remove(unit, carol, webhook),
        lambda unit: webhooks.send_test(unit, carol, webhook),
        lambda unit: webhooks.replay(unit, carol, webhook, "evt_1"),
        lambda unit: webhooks.replay_since(unit, carol, webhook, 0),
    ):
        with pytest.raises(NotFoundError) as missing, market.ledger.unit() as unit:
            wish(unit)
        assert missing.value.code == "no_such_webhook"
    assert market.head() == head


def test_both_secrets_sign_for_a_day_and_then_the_new_one(market: Market, alice: int) -> None:
    """A receiver that still has the old secret verifies up to the last second of the overlap."""
    made = register(market.ledger, alice, URL)
    with market.ledger.unit() as unit:
        rotated = webhooks.rotate(unit, alice, made.webhook_id)
    assert rotated.overlap_until == START + OVERLAP_SECONDS
    for second, both in ((START, True), (START + 86_399, True), (START + 86_400, False)):
        market.clock.move_to(second)
        tell(market.ledger, alice, "outbid")
        (sent,) = claim(market.ledger)
        take(market.ledger, [sent])
        assert verify(rotated.secret, sent.headers, sent.body, second)["type"] == "outbid"
        if both:
            verify(made.secret, sent.headers, sent.body, second)
        else:
            with pytest.raises(InvalidDeliveryError):
                verify(made.secret, sent.headers, sent.body, second)
    with market.ledger.unit() as unit:
        webhooks.rotate(unit, alice, made.webhook_id)
        last = webhooks.rotate(unit, alice, made.webhook_id)
    tell(market.ledger, alice, "outbid")
    (sent,) = claim(market.ledger)
    verify(last.secret, sent.headers, sent.body, market.clock())
    with pytest.raises(InvalidDeliveryError):
        verify(rotated.secret, sent.headers, sent.body, market.clock())


# --- into the queue -------------------------------------------------------------------------------


def test_only_what_is_noticed_after_the_registration_is_sent(market: Market, alice: int) -> None:
    """Neither what came before a webhook, nor what came after it ended, nor other codes go out."""
    tell(market.ledger, alice, "outbid")
    first = register(market.ledger, alice, URL).webhook_id
    tell(market.ledger, alice, "resumed", "idle")
    second = register(market.ledger, alice, "https://other.example/", ["idle"]).webhook_id
    tell(market.ledger, alice, "outbid", "idle")
    tell(market.ledger, market.account("carol"), "idle")
    assert queue(market.ledger) == 5
    assert queue(market.ledger) == 0
    sent = {(one.webhook_id, event_of(one)["type"]): one for one in claim(market.ledger)}
    assert set(sent) == {
        (first, "resumed"),
        (first, "idle"),
        (first, "outbid"),
        (second, "idle"),
    }
    with market.ledger.unit() as unit:
        webhooks.remove(unit, alice, first)
    tell(market.ledger, alice, "idle")
    market.clock.move_to(START + 2 * LEASE_SECONDS)
    again = claim(market.ledger)
    assert {one.webhook_id for one in again} == {second}
    assert market.rebuild().equal


def test_hook_01_one_notice_is_one_event_however_often_it_is_sent(
    market: Market, alice: int
) -> None:
    """HOOK-01: queued twice, retried, given up and replayed, an event keeps its one id."""
    webhook = register(market.ledger, alice, URL).webhook_id
    other = register(market.ledger, alice, "https://other.example/").webhook_id
    tell(market.ledger, alice, "outbid")
    seen = []
    for _ in range(3):
        queue(market.ledger)
    for _ in range(TRIES):
        sent = claim(market.ledger)
        seen += [(one.webhook_id, one.headers["X-Gpuledger-Event"], one.attempt) for one in sent]
        fail(market.ledger, sent)
        market.clock.move_to(market.clock() + 86_400)
    with market.ledger.unit() as unit:
        webhooks.replay_since(unit, alice, webhook, 0)
    sent = claim(market.ledger)
    seen += [(one.webhook_id, event_of(one)["id"], event_of(one)["attempt"]) for one in sent]
    (position,) = market.connection.execute(
        "SELECT position FROM notices WHERE code = 'outbid'"
    ).fetchall()[0]
    assert {event for _, event, _ in seen} == {f"evt_{position}"}
    assert [one for one in seen if one[0] == webhook] == [
        (webhook, f"evt_{position}", attempt) for attempt in range(1, TRIES + 2)
    ]
    assert len([one for one in seen if one[0] == other]) == TRIES


def test_hook_01_a_repeated_command_is_no_second_event(market: Market, alice: int) -> None:
    """HOOK-01: stopping and destroying again, and reports sent again, notice nothing again."""
    machine = market.machine()
    webhook = register(market.ledger, alice, URL).webhook_id
    instance = market.rent(alice, machine)
    market.confirm(machine, instance)
    reports = market.run(machine, [instance], 120)
    market.deliver(*reports)
    for _ in range(3):
        with market.ledger.unit() as unit:
            rentals.stop(unit, instance)
    for _ in range(3):
        with market.ledger.unit() as unit:
            rentals.destroy(unit, instance)
    types = [event_of(one)["type"] for one in claim(market.ledger) if one.webhook_id == webhook]
    assert types == ["created", "started", "stopped", "destroyed"]


def test_a_change_of_codes_divides_at_its_place_in_the_log(market: Market, alice: int) -> None:
    """What was noticed before the change follows the old codes, also if nobody had queued it."""
    webhook = register(market.ledger, alice, URL, ["idle"]).webhook_id
    tell(market.ledger, alice, "idle", "outbid")
    with market.ledger.unit() as unit:
        webhooks.change(unit, alice, webhook, "https://new.example/", ["outbid"])
    tell(market.ledger, alice, "idle", "outbid")
    head = market.head()
    with market.ledger.unit() as unit:
        webhooks.change(unit, alice, webhook, "https://new.example/", ["outbid", "outbid"])
    assert market.head() == head
    sent = claim(market.ledger)
    assert [event_of(one)["type"] for one in sent] == ["idle", "outbid"]
    assert {one.url for one in sent} == {"https://new.example/"}
    assert market.rebuild().equal


def test_a_test_event_goes_to_its_webhook_alone(market: Market, alice: int) -> None:
    """A test is sent whatever the codes, is signed like any other, and means nothing."""
    made = register(market.ledger, alice, URL, ["idle"])
    register(market.ledger, alice, "https://other.example/")
    with market.ledger.unit() as unit:
        event = webhooks.send_test(unit, alice, made.webhook_id)
    (sent,) = claim(market.ledger)
    assert verify(made.secret, sent.headers, sent.body, START) == {
        "id": event,
        "type": "test",
        "account_id": alice,
        "about": f"webhook-{made.webhook_id}",
        "at": "2026-03-01T10:00:00Z",
        "attempt": 1,
        "data": {"webhook_id": made.webhook_id},
    }
    assert market.rebuild().equal


# --- out of it ------------------------------------------------------------------------------------


def test_an_event_tells_the_state_as_of_its_fact(market: Market, alice: int) -> None:
    """An event that waits for hours says what was true when it happened, and its place in order."""
    machine = market.machine()
    register(market.ledger, alice, URL)
    instance = market.rent(alice, machine, label="job")
    market.confirm(machine, instance)
    market.run(machine, [instance], 60)
    with market.ledger.unit() as unit:
        rentals.stop(unit, instance)
    market.clock.move_to(START + 50_000)
    events = [event_of(one) for one in claim(market.ledger)]
    assert [(one["type"], one["data"]["status"], one["data"]["version"]) for one in events] == [
        ("created", "scheduling", 1),
        ("started", "running", 3),
        ("stopped", "stopped", 4),
    ]
    assert events[2] == {
        "id": events[2]["id"],
        "type": "stopped",
        "account_id": alice,
        "about": f"instance-{instance}",
        "at": "2026-03-01T10:01:00Z",
        "attempt": 1,
        "data": {
            "instance_id": instance,
            "machine_id": machine,
            "label": "job",
            "gpus": 1,
            "kind": "on_demand",
            "status": "stopped",
            "reason": "renter",
            "until": None,
            "version": 4,
        },
    }


def test_the_same_attempt_is_the_same_bytes(market: Market, alice: int) -> None:
    """Two senders that make one attempt of one event send the same body, byte by byte."""
    machine = market.machine()
    register(market.ledger, alice, URL)
    instance = market.rent(alice, machine)
    (first,) = claim(market.ledger)
    with market.ledger.unit() as unit:
        rentals.destroy(unit, instance)
    market.connection.execute(
        "UPDATE webhook_deliveries SET attempts = 0, tries = 0, due_at = 0, claimed = false"
    )
    again = claim(market.ledger, limit=1)[0]
    assert (again.position, again.body) == (first.position, first.body)
