"""At least once: whatever senders and receivers do, every event arrives, under its one id."""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ledger.services import webhooks
from ledger.services.webhooks import Delivery
from tests.support.databases import Server
from tests.support.examples import examples
from tests.support.market import START, Market
from tests.support.webhooks import claim, event_of, fail, queue, register, take, tell

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("tell"), st.sampled_from(["idle", "outbid", "resumed"])),
        st.tuples(st.just("queue"), st.none()),
        st.tuples(st.just("claim"), st.integers(1, 5)),
        st.tuples(st.just("take"), st.integers(0, 50)),
        st.tuples(st.just("fail"), st.integers(0, 50)),
        st.tuples(st.just("crash"), st.none()),
        st.tuples(st.just("wait"), st.integers(1, 100_000)),
        st.tuples(st.just("replay"), st.none()),
    ),
    max_size=30,
)


@given(steps=STEPS)
@settings(max_examples=examples(5), suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_every_event_is_sent_until_it_is_taken(
    server: Server, steps: list[tuple[str, Any]]
) -> None:
    """For any order of attempts, results, crashes, late results and replays nothing is lost.

    An event has one id and one content, and its attempts are numbered without gaps.
    """
    dsn = server.copy()
    market = Market(dsn)
    try:
        _run(market, steps)
    finally:
        market.close()
        server.drop(dsn)


def _run(market: Market, steps: list[tuple[str, Any]]) -> None:
    ledger = market.ledger
    alice = market.account("alice")
    hooks = [
        register(ledger, alice, f"https://{one}.example/", codes).webhook_id
        for one, codes in (("all", None), ("some", ["outbid"]))
    ]
    sent: list[Delivery] = []
    open_: list[Delivery] = []
    for step, value in steps:
        match step:
            case "tell":
                tell(ledger, alice, value)
            case "queue":
                queue(ledger)
            case "claim":
                got = claim(ledger, value)
                sent += got
                open_ += got
            case "take" if open_:
                take(ledger, [open_.pop(value % len(open_))])
            case "fail" if open_:
                fail(ledger, [open_.pop(value % len(open_))])
            case "crash":
                # Its results may still come, long after somebody else has taken over.
                with ledger.database.pool.connection() as connection:
                    webhooks.release(connection, market.clock())
            case "wait":
                market.clock.move_to(market.clock() + value)
            case "replay":
                with ledger.unit() as unit:
                    webhooks.replay_since(unit, alice, hooks[0], START, everything=True)
            case _:
                assert not open_, step  # Nothing to end.
    while True:
        got = claim(ledger)
        sent += got
        take(ledger, got)
        row = market.connection.execute(
            "SELECT min(due_at) FROM webhook_deliveries WHERE state = 'pending'"
        ).fetchone()
        assert row is not None
        if row[0] is None:
            break
        market.clock.move_to(max(market.clock(), row[0]))
    noticed = market.connection.execute("SELECT position, code FROM notices").fetchall()
    dead = market.connection.execute(
        "SELECT webhook_id, event FROM webhook_dead_letters WHERE replayed_at IS NULL"
    ).fetchall()
    expected = {(hooks[0], position) for position, _ in noticed}
    expected |= {(hooks[1], position) for position, code in noticed if code == "outbid"}
    by_event: dict[tuple[int, int], list[Delivery]] = {}
    for one in sent:
        by_event.setdefault((one.webhook_id, one.position), []).append(one)
    assert set(by_event) == expected
    assert set(dead) <= expected
    for (_, position), tries in by_event.items():
        assert sorted(one.attempt for one in tries) == list(range(1, len(tries) + 1))
        contents = {str({**event_of(one), "attempt": None}) for one in tries}
        assert len(contents) == 1
        assert event_of(tries[0])["id"] == f"evt_{position}"
    assert market.rebuild().equal
