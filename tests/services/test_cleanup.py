"""Cleanup of stopped instances: only on request, never without a day's notice (§13.5)."""

from __future__ import annotations

import pytest

from ledger.domain.money import SECONDS_PER_DAY
from ledger.errors import RejectedError
from ledger.services import cleanup, contracts, listings, policies, rentals
from ledger.services.cleanup import CleanupPolicy
from tests.support.market import DOLLAR, START, Market
from tests.support.safety import (
    UNWATCHED,
    act_until,
    notices,
    started,
    status,
    topics,
)

WEEK = 7 * SECONDS_PER_DAY
GONE = START + WEEK + 1
"""The first second at which something stopped at START was stopped for more than 7 days."""


def opt_in(market: Market, account: int, scope: str = "all", days: int = 7) -> None:
    """Set a cleanup policy."""
    with market.ledger.unit() as unit:
        policy = CleanupPolicy(scope, days)  # type: ignore[arg-type]  # one of the three
        cleanup.set_cleanup_policy(unit, account, policy)


def stopped(market: Market, account: int, machine: int, label: str | None = None) -> int:
    """An instance that its renter stopped in this second."""
    instance = market.rent(account, machine, gpus=1, label=label)
    with market.ledger.unit() as unit:
        rentals.stop(unit, instance)
    return instance


def opened(market: Market, gpus: int = 4) -> tuple[int, int]:
    """An account with credit for weeks, and a machine, where nobody has to report."""
    market.ledger.adopt_policy(UNWATCHED)
    return market.account("alice", 10_000 * DOLLAR), market.machine(gpus=gpus)


def test_nothing_goes_unless_its_owner_asked(market: Market) -> None:
    """A month after it stopped, an instance is where it was: cleanup is off at first."""
    alice, machine = opened(market)
    one = stopped(market, alice, machine, label="finished")
    act_until(market, START + 30 * SECONDS_PER_DAY)
    assert status(market, one) == ("stopped", "renter")
    assert notices(market, alice, "cleanup_soon") == []


def test_an_instance_goes_after_more_than_its_days_with_a_day_of_notice(market: Market) -> None:
    """Told at 6 days and a second, destroyed at 7 days and a second, by `cleanup`."""
    alice, machine = opened(market)
    one = stopped(market, alice, machine)
    opt_in(market, alice)
    with market.ledger.reading() as connection:
        assert policies.cleanup.next_due(connection, START) == GONE - SECONDS_PER_DAY
    act_until(market, GONE - 1)
    assert notices(market, alice, "cleanup_soon") == [("cleanup_soon", GONE - SECONDS_PER_DAY)]
    assert status(market, one) == ("stopped", "renter")
    act_until(market, GONE)
    assert status(market, one)[0] == "destroyed"
    row = market.connection.execute(
        "SELECT convert_from(state, 'UTF8')::json ->> 'by' FROM events"
        " WHERE topic = 'instance.destroyed.v1'"
    ).fetchone()
    assert row == ("cleanup",)
    assert topics(market, "cleanup.destroyed.v1") == 1
    act_until(market, GONE + WEEK)
    assert market.rebuild().equal


def test_who_opts_in_late_still_has_a_day(market: Market) -> None:
    """An instance that was stopped for a month goes 24 h after the policy was set, not at once."""
    alice, machine = opened(market)
    one = stopped(market, alice, machine)
    late = START + 30 * SECONDS_PER_DAY
    market.clock.move_to(late)
    opt_in(market, alice)
    act_until(market, late + SECONDS_PER_DAY - 1)
    assert status(market, one)[0] == "stopped"
    assert notices(market, alice, "cleanup_soon") == [("cleanup_soon", late)]
    act_until(market, late + SECONDS_PER_DAY)
    assert status(market, one)[0] == "destroyed"


def test_the_label_marks_what_is_finished(market: Market) -> None:
    """With scope `labelled` only those go whose label has the word; `unfinished` is another."""
    alice, machine = opened(market, gpus=8)
    labels = ["finished", "train-7: FINISHED", "unfinished", None, "run"]
    ours = [stopped(market, alice, machine, label) for label in labels]
    opt_in(market, alice, "labelled")
    act_until(market, GONE)
    states = [status(market, one)[0] for one in ours]
    assert states == ["destroyed", "destroyed", "stopped", "stopped", "stopped"]


def test_what_was_announced_may_be_saved(market: Market) -> None:
    """A start, another label or an end of the policy takes the announcement back."""
    alice, machine = opened(market)
    runs = stopped(market, alice, machine, "finished")
    relabelled = stopped(market, alice, machine, "finished")
    opt_in(market, alice, "labelled")
    act_until(market, GONE - 60)
    with market.ledger.unit() as unit:
        rentals.start(unit, runs)
        rentals.label(unit, relabelled, "keep")
    act_until(market, GONE + 60)
    assert {status(market, one)[0] for one in (runs, relabelled)} == {"loading", "stopped"}
    assert topics(market, "cleanup.withdrawn.v1") == 2
    with market.ledger.unit() as unit:
        rentals.label(unit, relabelled, "finished")
    act_until(market, GONE + 60 + SECONDS_PER_DAY - 1)
    assert status(market, relabelled)[0] == "stopped"
    assert len(notices(market, alice, "cleanup_soon")) == 3
    opt_in(market, alice, "off")
    act_until(market, GONE + 60 + 2 * SECONDS_PER_DAY)
    assert status(market, relabelled)[0] == "stopped"
    assert market.rebuild().equal


def test_started_and_stopped_within_a_second_counts_from_the_new_stop(market: Market) -> None:
    """An old announcement never destroys what was in use since."""
    alice, machine = opened(market)
    one = stopped(market, alice, machine)
    opt_in(market, alice)
    act_until(market, GONE - 60)
    with market.ledger.unit() as unit:
        rentals.start(unit, one)
        rentals.stop(unit, one)
    act_until(market, GONE - 60 + WEEK)
    assert status(market, one)[0] == "stopped"
    assert len(notices(market, alice, "cleanup_soon")) == 2
    act_until(market, GONE - 60 + WEEK + 1)
    assert status(market, one)[0] == "destroyed"


def test_what_was_outbid_is_never_cleaned_up(market: Market) -> None:
    """An instance in `scheduling` because of a higher bid waits for weeks and stays."""
    alice, machine = opened(market, gpus=1)
    carol = market.account("carol", 10_000 * DOLLAR)
    with market.ledger.unit() as unit:
        listings.list_machine(unit, machine, listings.Prices(DOLLAR, 0, 0, 0, 10_000_000))
    outbid = started(market, alice, machine, bid=100_000_000)
    started(market, carol, machine, bid=200_000_000)
    opt_in(market, alice)
    act_until(market, START + 20 * SECONDS_PER_DAY)
    assert status(market, outbid) == ("scheduling", "outbid")
    assert topics(market, "cleanup.announced.v1") == 0


def test_what_a_reservation_pays_for_is_not_touched(market: Market) -> None:
    """Destroying it would cost the penalty of cancelling: it is left alone until the term ends."""
    alice, machine = opened(market)
    one = market.rent(alice, machine, gpus=1)
    with market.ledger.unit() as unit:
        contracts.reserve(unit, one, seconds=contracts.SECONDS_PER_MONTH)
        rentals.stop(unit, one)
    opt_in(market, alice)
    act_until(market, START + 20 * SECONDS_PER_DAY)
    assert status(market, one)[0] == "stopped"
    assert topics(market, "cleanup.announced.v1") == 0


def test_a_dry_run_lists_and_changes_nothing(market: Market) -> None:
    """What a policy would take can be seen before it is set, soonest first."""
    alice, machine = opened(market)
    first = stopped(market, alice, machine)
    market.clock.move_to(START + 100)
    second = stopped(market, alice, machine)
    started(market, alice, machine, gpus=1)
    head = market.head()
    with market.ledger.reading() as connection:
        found = cleanup.candidates(connection, {alice: CleanupPolicy("all", 3)})
    assert [(one.instance_id, one.due_at) for one in found] == [
        (first, START + 3 * SECONDS_PER_DAY + 1),
        (second, START + 100 + 3 * SECONDS_PER_DAY + 1),
    ]
    assert market.head() == head


@pytest.mark.parametrize(("days", "label"), [(0, "x"), (366, "x"), (7, ""), (7, "two words")])
def test_a_cleanup_policy_that_cannot_be_meant_is_refused(
    market: Market, days: int, label: str
) -> None:
    """Days are 1 to 365 and the label is one word."""
    alice = market.account("alice")
    with market.ledger.unit() as unit, pytest.raises(RejectedError) as error:
        cleanup.set_cleanup_policy(unit, alice, CleanupPolicy("all", days, label))
    assert error.value.code == "invalid_args"
