"""Webhooks: at least once; what was given up is seen and sent again; what a receiver can rely on.

HOOK-02.
"""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from ledger.domain.webhooks import TRIES
from ledger.errors import NotFoundError, RejectedError
from ledger.services import erasure, rentals, webhooks
from ledger.services.news import KEEP_SECONDS
from ledger.services.webhooks.queue import LEASE_SECONDS
from tests.support.market import DOLLAR, START, Market
from tests.support.webhooks import (
    claim,
    event_of,
    fail,
    queue,
    register,
    shown,
    stored,
    take,
    tell,
)

URL = "https://hooks.example/gpuledger"


@pytest.fixture
def alice(market: Market) -> int:
    """A renter."""
    return market.account("alice", 100 * DOLLAR)


def test_an_unrecorded_attempt_is_made_again_after_its_lease(market: Market, alice: int) -> None:
    """A sender that dies leaves a claim; its event is due again at its end, or for a new leader."""
    register(market.ledger, alice, URL)
    tell(market.ledger, alice, "outbid")
    (first,) = claim(market.ledger)
    assert claim(market.ledger) == []
    market.clock.move_to(START + LEASE_SECONDS - 1)
    assert claim(market.ledger) == []
    market.clock.move_to(START + LEASE_SECONDS)
    (second,) = claim(market.ledger)
    with market.ledger.database.pool.connection() as connection:
        assert webhooks.release(connection, market.clock()) == 1
    (third,) = claim(market.ledger)
    assert [one.attempt for one in (first, second, third)] == [1, 2, 3]
    assert len({one.position for one in (first, second, third)}) == 1
    take(market.ledger, [first])
    fail(market.ledger, [second])
    assert stored(market.ledger, first.webhook_id, "pending")[0].attempts == 3
    take(market.ledger, [third])
    assert stored(market.ledger, first.webhook_id, "pending") == []
    (arrived,) = stored(market.ledger, first.webhook_id, "delivered")
    assert (arrived.attempts, arrived.status, arrived.reason) == (3, 204, None)


def test_a_failure_is_tried_again_until_it_is_given_up(market: Market, alice: int) -> None:
    """Each failure waits longer, the twelfth makes a dead letter, which is a fact and is listed."""
    webhook = register(market.ledger, alice, URL).webhook_id
    tell(market.ledger, alice, "outbid")
    due = START
    for number in range(1, TRIES):
        market.clock.move_to(due)
        sent = claim(market.ledger)
        assert [one.attempt for one in sent] == [number]
        assert fail(market.ledger, sent) == []
        (waits,) = stored(market.ledger, webhook, "pending")
        assert (waits.attempts, waits.status, waits.reason) == (number, 500, "http_500")
        assert waits.excerpt == "sorry"
        assert waits.due_at is not None
        assert waits.due_at > due + 7
        due = waits.due_at
        market.clock.move_to(due - 1)
        assert claim(market.ledger) == []
    assert 2 * 86_400 < due - START < 4 * 86_400
    market.clock.move_to(due)
    (lost,) = fail(market.ledger, claim(market.ledger), "timeout")
    assert stored(market.ledger, webhook, "pending") == []
    (dead,) = stored(market.ledger, webhook, "dead")
    assert (dead.attempts, dead.reason, dead.ended_at) == (TRIES, "timeout", due)
    assert dead.position == lost.delivery.position
    state = market.connection.execute(
        "SELECT state FROM events WHERE topic = 'webhook.dead_lettered.v1'"
    ).fetchall()
    assert [json.loads(row[0])["event"] for row in state] == [dead.position]
    assert (shown(market.ledger, webhook).pending, shown(market.ledger, webhook).dead) == (0, 1)
    market.clock.move_to(due + 10 * 86_400)
    assert claim(market.ledger) == []
    assert market.rebuild().equal


def test_a_broken_receiver_hides_nobody_else(market: Market, alice: int) -> None:
    """However much waits for one webhook, a claim holds what is due for the others as well."""
    broken = register(market.ledger, alice, URL, ["idle"]).webhook_id
    for _ in range(60):
        tell(market.ledger, alice, "idle")
    fine = register(market.ledger, alice, "https://fine.example/", ["outbid"]).webhook_id
    tell(market.ledger, alice, "outbid")
    sent = claim(market.ledger, limit=20)
    assert [one.webhook_id for one in sent].count(broken) == 8
    assert [one.webhook_id for one in sent].count(fine) == 1
    with market.ledger.database.pool.connection() as connection:
        room = {broken: 1, fine: 4}
        more = webhooks.claim(
            connection, market.ledger.vault, START, 20, lambda webhook: room[webhook]
        )
    assert [one.webhook_id for one in more] == [broken]


def test_what_belonged_to_an_erased_person_is_not_sent(market: Market, alice: int) -> None:
    """Erasing an account destroys addresses and secrets; what waits is dropped, others go on."""
    webhook = register(market.ledger, alice, URL).webhook_id
    carol = market.account("carol")
    other = register(market.ledger, carol, URL).webhook_id
    tell(market.ledger, alice, "idle")
    tell(market.ledger, carol, "idle")
    with market.ledger.unit() as unit:
        erasure.erase_subject(unit, alice)
    assert [one.webhook_id for one in claim(market.ledger)] == [other]
    assert stored(market.ledger, webhook, "pending") == []
    assert shown(market.ledger, webhook).url is None
    with pytest.raises(NotFoundError, match="erased"):
        register(market.ledger, alice, "https://new.example/")
    assert market.rebuild().equal


def test_a_removed_webhook_leaves_nothing_behind(market: Market, alice: int) -> None:
    """Removing drops what waits, ignores what is on its way, and destroys address and secrets."""
    webhook = register(market.ledger, alice, URL).webhook_id
    tell(market.ledger, alice, "idle", "idle")
    first, _ = claim(market.ledger)
    for _ in range(2):
        with market.ledger.unit() as unit:
            webhooks.remove(unit, alice, webhook)
    take(market.ledger, [first])
    names = market.connection.execute("SELECT name FROM vault_items").fetchall()
    assert not [name for (name,) in names if name.startswith("webhook")]
    rows = market.connection.execute("SELECT count(*) FROM webhook_deliveries").fetchone()
    assert rows == (0,)
    with pytest.raises(NotFoundError):
        shown(market.ledger, webhook)
    assert market.rebuild().equal


def test_what_ended_a_month_ago_is_forgotten(market: Market, alice: int) -> None:
    """What arrived is forgotten after 30 days; a dead letter stays listed and can be replayed."""
    webhook = register(market.ledger, alice, URL).webhook_id
    tell(market.ledger, alice, "idle", "outbid", "resumed")
    waiting, lost, taken = claim(market.ledger)
    market.connection.execute(
        "UPDATE webhook_deliveries SET tries = 12 WHERE position = %s", [lost.position]
    )
    assert len(fail(market.ledger, [lost._replace(tries=TRIES)])) == 1
    take(market.ledger, [taken])
    fail(market.ledger, [waiting])
    for second, left in ((KEEP_SECONDS - 1, 3), (KEEP_SECONDS, 1)):
        market.clock.move_to(START + second)
        with market.ledger.database.pool.connection() as connection:
            webhooks.tidy(connection, market.clock())
            row = connection.execute("SELECT count(*) FROM webhook_deliveries").fetchone()
        assert row == (left,)
    (dead,) = stored(market.ledger, webhook, "dead")
    assert (dead.event_id, dead.reason, dead.excerpt) == (
        f"evt_{lost.position}",
        "http_500",
        None,
    )
    with market.ledger.unit() as unit:
        assert webhooks.replay(unit, alice, webhook, dead.event_id) == 1
    again = [one for one in claim(market.ledger) if one.position == lost.position]
    assert [one.attempt for one in again] == [2]


# --- again ----------------------------------------------------------------------------------------


def test_what_was_given_up_is_sent_again_when_asked(market: Market, alice: int) -> None:
    """A replay takes dead letters of its time, once; an event dies again after twelve tries."""
    webhook = register(market.ledger, alice, URL).webhook_id
    tell(market.ledger, alice, "idle")
    _give_up(market)
    died = market.clock()
    market.clock.move_to(died + 1_000)
    with market.ledger.unit() as unit:
        assert webhooks.replay_since(unit, alice, webhook, died + 1) == 0
        assert webhooks.replay_since(unit, alice, webhook, 0, died) == 0
        assert webhooks.replay_since(unit, alice, webhook, died, died + 1) == 1
        assert webhooks.replay_since(unit, alice, webhook, died) == 0
    assert stored(market.ledger, webhook, "dead") == []
    (waits,) = stored(market.ledger, webhook, "pending")
    assert (waits.attempts, waits.due_at) == (TRIES, died + 1_000)
    _give_up(market)
    (dead,) = stored(market.ledger, webhook, "dead")
    assert dead.attempts == 2 * TRIES
    with market.ledger.unit() as unit:
        webhooks.replay(unit, alice, webhook, dead.event_id)
    take(market.ledger, claim(market.ledger))
    assert [one.attempts for one in stored(market.ledger, webhook, "delivered")] == [2 * TRIES + 1]
    replays = market.connection.execute(
        "SELECT count(*) FROM events WHERE topic = 'webhook.replayed.v1'"
    ).fetchone()
    assert replays == (2,)
    assert market.rebuild().equal


def _give_up(market: Market) -> None:
    """Let every attempt fail until nothing waits."""
    queue(market.ledger)
    while True:
        row = market.connection.execute(
            "SELECT min(due_at) FROM webhook_deliveries WHERE state = 'pending'"
        ).fetchone()
        assert row is not None
        if row[0] is None:
            return
        market.clock.move_to(max(row[0], market.clock()))
        fail(market.ledger, claim(market.ledger))


def test_a_replay_can_take_everything_of_some_time(market: Market, alice: int) -> None:
    """With everything asked for, what arrived and what came before the webhook are sent as well."""
    tell(market.ledger, alice, "outbid", "idle")
    market.clock.move_to(START + 10)
    webhook = register(market.ledger, alice, URL, ["outbid"]).webhook_id
    tell(market.ledger, alice, "outbid", "idle")
    take(market.ledger, claim(market.ledger))
    with market.ledger.unit() as unit:
        assert webhooks.replay_since(unit, alice, webhook, START + 1, everything=True) == 1
        assert webhooks.replay_since(unit, alice, webhook, START, START + 1, everything=True) == 1
    sent = claim(market.ledger)
    assert [(event_of(one)["type"], one.attempt) for one in sent] == [("outbid", 1), ("outbid", 2)]


def test_only_an_event_of_the_account_can_be_replayed(market: Market, alice: int) -> None:
    """Another's notice, a fact that is no event, and no position at all are `no_such_event`."""
    carol = market.account("carol")
    webhook = register(market.ledger, alice, URL).webhook_id
    with market.ledger.unit() as unit:
        test = webhooks.send_test(unit, alice, webhook)
    tell(market.ledger, carol, "idle")
    others = [f"evt_{market.head()}", "evt_1", "evt_999999", "evt_x", "", "evt_" + "9" * 18]
    head = market.head()
    for event in others:
        with pytest.raises(NotFoundError) as missing, market.ledger.unit() as unit:
            webhooks.replay(unit, alice, webhook, event)
        assert missing.value.code == "no_such_event"
    assert market.head() == head
    with market.ledger.unit() as unit:
        assert webhooks.replay(unit, alice, webhook, test) == 1


def test_a_replay_of_too_much_is_refused(
    market: Market, alice: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More events than one replay takes are refused as a whole, not cut."""
    monkeypatch.setattr("ledger.services.webhooks.replays.REPLAY_MAX", 2)
    webhook = register(market.ledger, alice, URL).webhook_id
    tell(market.ledger, alice, "idle", "idle", "idle")
    head = market.head()
    with pytest.raises(RejectedError) as refused, market.ledger.unit() as unit:
        webhooks.replay_since(unit, alice, webhook, 0, everything=True)
    assert refused.value.code == "too_many_events"
    assert market.head() == head


# --- at the other end -----------------------------------------------------------------------------


class _Books:
    """A receiver that keeps the state of instances: idempotent by event id and by object."""

    def __init__(self) -> None:
        """Know nothing."""
        self.seen: set[str] = set()
        self.known: dict[str, dict[str, Any]] = {}
        self.stops = 0

    def take(self, event: dict[str, Any]) -> None:
        """Take an event, whatever came before it."""
        if event["id"] in self.seen:
            return
        self.seen.add(event["id"])
        self.stops += event["type"] == "stopped"
        data = event["data"]
        if self.known.get(event["about"], {"version": 0})["version"] < data["version"]:
            self.known[event["about"]] = data


@pytest.mark.parametrize("seed", range(10))
def test_hook_02_any_order_and_any_number_of_deliveries_give_one_state(
    market: Market, alice: int, seed: int
) -> None:
    """HOOK-02: shuffled and doubled, the events leave a receiver with the ledger's own state."""
    machine = market.machine(gpus=4)
    register(market.ledger, alice, URL)
    chance = random.Random(seed)  # noqa: S311 - an order, not a secret
    instances = [market.rent(alice, machine, gpus=1) for _ in range(3)]
    for instance in instances:
        market.confirm(machine, instance)
    wishes = [rentals.stop, rentals.start, rentals.stop, rentals.destroy]
    for step in range(12):
        instance = chance.choice(instances)
        with market.ledger.unit() as unit:
            if unit.instance(instance).status != "destroyed":
                chance.choice(wishes[: 2 + step // 4])(unit, instance)
    events = []
    while sent := claim(market.ledger):
        events += [event_of(one) for one in sent]
    books = _Books()
    arriving = events * 2
    chance.shuffle(arriving)
    for event in arriving:
        books.take(event)
    told = {
        f"instance-{row[0]}": row[1]
        for row in market.connection.execute("SELECT instance_id, status FROM instances")
    }
    for name, status in told.items():
        assert books.known[name]["status"] == status, name
    assert books.stops == len([one for one in events if one["type"] == "stopped"])
    assert len(books.seen) == len(events)
