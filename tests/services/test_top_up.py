"""Automatic top-ups: never without consent, never twice, never beyond the day's cap (CRED-01)."""

from __future__ import annotations

import pytest

from adapters.simulation.gateway import MemoryGateway
from ledger.errors import LedgerError, RejectedError
from ledger.services import billing, caps, deposits, holds, policies, rentals, top_up
from ledger.services.payments.gateway import Order, Outcome, Settled
from ledger.services.policies import top_ups
from ledger.services.questions.balances import balance
from ledger.services.top_up import Consent
from tests.support.market import DOLLAR, START, Market
from tests.support.safety import UNWATCHED, act, act_until, next_due, notices, started, topics

HOUR = 3_600
MIDNIGHT = START + 14 * HOUR
CONSENT = Consent("mandate-1", 5 * DOLLAR, 2 * DOLLAR, 100 * DOLLAR)


def agree(market: Market, account: int, **changes: int | str) -> None:
    """Record a consent: $2 below $5, at most $100 a day, unless told otherwise."""
    with market.ledger.unit() as unit:
        top_up.consent(unit, account, CONSENT._replace(**changes))  # type: ignore[arg-type]  # by name


def available(market: Market, account: int) -> int:
    """Nanos available now."""
    with market.ledger.reading() as connection:
        return balance(connection, account, market.clock()).available


def burning(market: Market, credit: int, gpu_hour: int = DOLLAR) -> tuple[int, int]:
    """An account and an instance that burns a dollar an hour, where nobody has to report."""
    market.ledger.adopt_policy(UNWATCHED)
    alice = market.account("alice", credit)
    return alice, started(market, alice, market.machine(gpu_hour=gpu_hour, storage=0))


def test_without_consent_no_card_is_ever_charged(market: Market) -> None:
    """An account runs dry, is exhausted and owes: the processor is never asked (C2)."""
    gateway = MemoryGateway()
    alice, _ = burning(market, DOLLAR)
    act_until(market, START + 2 * HOUR, gateway)
    assert [code for code, _ in notices(market, alice)][-1] == "exhausted"
    assert gateway.asked == []
    assert topics(market, "top_up.requested.v1") == 0


def test_a_charge_begins_in_the_first_second_below(market: Market) -> None:
    """At exactly $5 nothing happens; one second later $2 are charged and credited."""
    gateway = MemoryGateway()
    alice, _ = burning(market, 6 * DOLLAR)
    agree(market, alice)
    act(market, gateway=gateway)
    act(market, START + HOUR, gateway)
    assert available(market, alice) == 5 * DOLLAR
    assert gateway.asked == []
    assert next_due(market) == START + HOUR + 1
    act(market, START + HOUR + 1, gateway)
    assert [order.cents for order in gateway.asked] == [200]
    assert available(market, alice) == 7 * DOLLAR - 277_777
    assert notices(market, alice, "top_up_soon", "top_up_failed") == []
    market.project()
    assert market.rebuild().equal


@pytest.mark.parametrize(
    ("credit", "cents"),
    [
        (3 * DOLLAR, 200),
        (3 * DOLLAR - 1, 400),
        (1, 600),
        (4_999_999_999, 200),
        (5 * DOLLAR, None),
    ],
)
def test_the_charge_is_the_smallest_multiple_that_reaches(
    market: Market, credit: int, cents: int | None
) -> None:
    """From $3.00 one charge of $2 reaches $5; from a nano less it takes two."""
    gateway = MemoryGateway()
    alice = market.account("alice", credit)
    agree(market, alice)
    act(market, gateway=gateway)
    act(market, gateway=gateway)
    assert [order.cents for order in gateway.asked] == ([] if cents is None else [cents])


def test_every_charge_traces_to_its_consent(market: Market) -> None:
    """A deposit leads to its request, and that to the fact that allowed it (CRED-01)."""
    alice = market.account("alice")
    agree(market, alice)
    act(market, gateway=MemoryGateway())
    row = market.connection.execute(
        "SELECT d.source, d.amount, t.consent_no, c.reference, e.topic FROM deposits d"
        " JOIN top_ups t ON d.deposit_id = 'top-up-' || t.account_id || '-' || t.trigger"
        " JOIN top_up_consents c ON c.account_id = t.account_id"
        " JOIN events e ON e.position = t.trigger"
    ).fetchone()
    assert row == ("auto_top_up", 6 * DOLLAR, 1, "mandate-1", "top_up.consented.v1")


def test_a_lost_answer_is_asked_for_again_and_charges_once(market: Market) -> None:
    """The card was charged and the answer never came: it is credited all the same, once."""
    gateway = MemoryGateway()
    alice = market.account("alice")
    agree(market, alice)
    gateway.answers[alice] = "lost"
    act(market, gateway=gateway)
    assert len(gateway.charged) == 1
    act(market, START + 1, gateway)
    act(market, START + 2, gateway)
    assert (len(gateway.charged), available(market, alice)) == (1, 6 * DOLLAR)
    assert len({order.key for order in gateway.asked}) == 1


def test_a_crash_before_the_call_is_finished_by_the_next_run(market: Market) -> None:
    """A request that was written and never sent is sent by whoever comes next, and only once."""

    class Dying(MemoryGateway):
        def charge(self, order: Order) -> Outcome:
            del order
            raise KeyboardInterrupt

    alice = market.account("alice")
    agree(market, alice)
    with pytest.raises(KeyboardInterrupt):
        act(market, gateway=Dying())
    assert topics(market, "top_up.requested.v1") == 1
    gateway = MemoryGateway()
    act(market, gateway=gateway)
    act(market, gateway=gateway)
    assert available(market, alice) == 6 * DOLLAR
    assert topics(market, "top_up.requested.v1") == 1


def test_no_transaction_is_open_while_the_processor_is_asked(market: Market) -> None:
    """A processor that takes its time holds up no command: one runs within the very call."""

    class Slow(MemoryGateway):
        def charge(self, order: Order) -> Outcome:
            with market.ledger.unit() as unit:
                deposits.deposit(unit, order.account_id, DOLLAR, "meanwhile")
            return super().charge(order)

    alice = market.account("alice")
    agree(market, alice)
    act(market, gateway=Slow())
    assert available(market, alice) == 7 * DOLLAR


def test_two_leaders_at_once_charge_once(market: Market) -> None:
    """A second run within the call of the first sees its request and makes none of its own."""
    inner = MemoryGateway()

    class Twice(MemoryGateway):
        def charge(self, order: Order) -> Outcome:
            policies.top_up(market.ledger, inner)
            return inner.charge(order)

    alice = market.account("alice")
    agree(market, alice)
    act(market, gateway=Twice())
    assert (len(inner.charged), available(market, alice)) == (1, 6 * DOLLAR)
    assert topics(market, "top_up.settled.v1") == topics(market, "deposit.settled.v1") == 1


def test_pending_payments_count_as_there(market: Market) -> None:
    """While a charge is pending none begins, at 75 % the renter is told, and then it settles."""
    gateway = MemoryGateway()
    alice, _ = burning(market, 5 * DOLLAR)
    agree(market, alice)
    gateway.answers[alice] = "pending"
    act_until(market, START + 2 * HOUR, gateway)
    assert len({order.key for order in gateway.asked}) == 1
    soon = START + 4_501  # $3.75 are left after 4,500 s.
    assert notices(market, alice, "top_up_soon") == [("top_up_soon", soon)]
    gateway.answers.clear()
    act(market, START + 2 * HOUR + 120, gateway)
    assert topics(market, "top_up.settled.v1") == 1


def test_an_old_pending_charge_is_asked_about_once_a_minute(market: Market) -> None:
    """A processor that does not know yet is not asked in every second."""
    gateway = MemoryGateway()
    alice = market.account("alice")
    agree(market, alice)
    gateway.answers[alice] = "pending"
    for second in range(START, START + 200):
        before = len(gateway.asked)
        market.clock.move_to(second)
        policies.top_up(market.ledger, gateway)
        assert len(gateway.asked) - before <= 1
    assert 60 <= len(gateway.asked) <= 65


def test_a_decline_is_told_and_not_repeated_within_the_hour(market: Market) -> None:
    """A failed charge is an event with a notice; the next is tried 3,600 s later, not before."""
    gateway = MemoryGateway()
    alice = market.account("alice")
    agree(market, alice)
    gateway.answers[alice] = "declined"
    act(market, gateway=gateway)
    act(market, START + HOUR - 1, gateway)
    assert len(gateway.asked) == 1
    assert notices(market, alice, "top_up_failed") == [("top_up_failed", START)]
    assert next_due(market) == START + HOUR
    gateway.answers.clear()
    act(market, START + HOUR, gateway)
    assert available(market, alice) == 6 * DOLLAR


def test_three_failures_in_a_row_switch_it_off_until_the_renter_acts(market: Market) -> None:
    """The third decline is followed by a notice and silence; a new consent begins anew."""
    gateway = MemoryGateway()
    alice = market.account("alice")
    agree(market, alice)
    gateway.answers[alice] = "declined"
    act_until(market, START + 10 * HOUR, gateway)
    failed = [("top_up_failed", START + number * HOUR) for number in range(3)]
    off = ("top_up_off", START + 2 * HOUR)
    assert notices(market, alice, "top_up_failed", "top_up_off") == [*failed, off]
    assert len(gateway.asked) == 3
    gateway.answers.clear()
    act(market, START + 11 * HOUR, gateway)
    assert len(gateway.asked) == 3
    agree(market, alice)
    act(market, gateway=gateway)
    assert available(market, alice) == 6 * DOLLAR
    assert market.rebuild().equal


def test_a_success_ends_the_row_of_failures(market: Market) -> None:
    """Two declines, a charge, two declines, a charge: nothing is switched off."""
    gateway = MemoryGateway()
    alice = market.account("alice")
    agree(market, alice)
    for number in range(2):
        gateway.answers[alice] = "declined"
        act_until(market, market.clock() + HOUR, gateway)
        gateway.answers.clear()
        act_until(market, market.clock() + HOUR, gateway)
        assert topics(market, "top_up.settled.v1") == number + 1
        with market.ledger.unit() as unit:
            holds.place_hold(unit, alice, 6 * DOLLAR - 1, f"h{number}")
    assert topics(market, "top_up.failed.v1") == 4
    assert notices(market, alice, "top_up_off") == []


def test_the_cap_of_the_day_counts_automatic_top_ups_of_the_utc_day(market: Market) -> None:
    """With $4 a day the third $2 waits for 00:00 UTC, to the second."""
    gateway = MemoryGateway()
    alice, _ = burning(market, 7 * DOLLAR, gpu_hour=500_000_000)
    agree(market, alice, max_per_day=4 * DOLLAR)
    act_until(market, MIDNIGHT - 1, gateway)
    assert [order.cents for order in gateway.asked] == [200, 200]
    act_until(market, MIDNIGHT, gateway)
    assert [order.cents for order in gateway.asked] == [200, 200, 200]


def taxed(market: Market, rate_bp: int) -> int:
    """An account without credit whose credit is taxed."""
    alice = market.account("alice")
    with market.ledger.unit() as unit:
        billing.set_tax(unit, alice, rate_bp=rate_bp)
    return alice


def test_a_taxed_account_is_charged_the_amount_and_its_tax(market: Market) -> None:
    """$6 are needed and cost $7.20 at 20 %: credit is net, and both are on the tax invoice."""
    gateway = MemoryGateway()
    alice = taxed(market, 2_000)
    agree(market, alice)
    for _ in range(3):
        act(market, gateway=gateway)
    assert [order.cents for order in gateway.asked] == [720]
    assert available(market, alice) == 6 * DOLLAR
    rows = market.connection.execute(
        "SELECT number, net, tax, rate_bp FROM tax_invoices WHERE account_id = %s", [alice]
    ).fetchall()
    assert rows == [("INV-00000001", 6 * DOLLAR, 1_200_000_000, 2_000)]
    market.project()
    assert market.rebuild().equal


@pytest.mark.parametrize(
    ("cap", "cents"),
    [(719, []), (720, [720]), (959, [720]), (960, [720, 240])],
)
def test_the_cap_of_the_day_counts_the_tax_as_well(
    market: Market, cap: int, cents: list[int]
) -> None:
    """What a day may charge is what a card is charged: to the cent, at 20 % on $6 and then $2."""
    gateway = MemoryGateway()
    alice = taxed(market, 2_000)
    agree(market, alice, max_per_day=cap * DOLLAR // 100)
    act(market, gateway=gateway)
    with market.ledger.unit() as unit:
        spent = min(available(market, alice), 2 * DOLLAR)
        if spent:
            holds.place_hold(unit, alice, spent, "h")
    act(market, START + 60, gateway)
    assert [order.cents for order in gateway.asked] == cents


def test_the_account_s_own_cap_on_the_day_binds_top_ups_too(market: Market) -> None:
    """A spend cap of $3 a day lets one charge of $2 through (§13.1)."""
    gateway = MemoryGateway()
    alice = market.account("alice", 4 * DOLLAR)
    with market.ledger.unit() as unit:
        caps.set_caps(unit, alice, caps.Caps(per_day=3 * DOLLAR))
    agree(market, alice)
    act(market, gateway=gateway)
    with market.ledger.unit() as unit:
        holds.place_hold(unit, alice, 2 * DOLLAR, "h")
    act(market, START + 60, gateway)
    assert [order.cents for order in gateway.asked] == [200]
    act(market, MIDNIGHT, gateway)
    assert [order.cents for order in gateway.asked] == [200, 200]


def test_a_revoked_consent_charges_nothing_more(market: Market) -> None:
    """After the renter said no, nothing is asked of the processor; saying it twice is fine."""
    gateway = MemoryGateway()
    alice, instance = burning(market, 6 * DOLLAR)
    agree(market, alice)
    for _ in range(2):
        with market.ledger.unit() as unit:
            top_up.revoke(unit, alice)
    act_until(market, START + 5 * HOUR, gateway)
    assert gateway.asked == []
    assert topics(market, "top_up.revoked.v1") == 1
    with market.ledger.unit() as unit:
        rentals.destroy(unit, instance)


@pytest.mark.parametrize("was_charged", [True, False])
def test_a_request_whose_consent_was_revoked_is_only_looked_up(
    market: Market, was_charged: bool
) -> None:
    """A charge that went through before the no is credited; one that did not never will be."""
    gateway = MemoryGateway()
    alice = market.account("alice")
    agree(market, alice)
    top_ups._request(market.ledger)
    if was_charged:
        with market.ledger.reading() as connection:
            gateway.charge(top_up.open_requests(connection)[0].order)
    with market.ledger.unit() as unit:
        top_up.revoke(unit, alice)
    asked = len(gateway.asked)
    act(market, START + 1, gateway)
    assert len(gateway.asked) == asked
    assert available(market, alice) == (6 * DOLLAR if was_charged else 0)
    assert topics(market, "top_up.failed.v1") == (not was_charged)
    assert notices(market, alice, "top_up_failed") == []


def test_what_the_processor_says_late_is_booked(market: Market) -> None:
    """A charge that we took for failed and that did go through becomes credit, once."""
    gateway = MemoryGateway()
    alice = market.account("alice")
    agree(market, alice)
    gateway.answers[alice] = "declined"
    act(market, gateway=gateway)
    row = market.connection.execute("SELECT trigger FROM top_ups").fetchone()
    assert row is not None
    for _ in range(2):
        with market.ledger.unit() as unit:
            top_up.finish(unit, alice, row[0], Settled("payment-9"))
    assert available(market, alice) == 6 * DOLLAR
    assert market.rebuild().equal


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"below": 5 * DOLLAR + 1}, "invalid_amount"),
        ({"amount": 1_000_000}, "invalid_amount"),
        ({"amount": 0}, "invalid_amount"),
        ({"below": -DOLLAR}, "invalid_amount"),
        ({"max_per_day": DOLLAR}, "invalid_amount"),
        ({"reference": ""}, "invalid_args"),
        ({"reference": "a b"}, "invalid_args"),
        ({"reference": "4242-4242-4242-4242"}, "invalid_args"),
    ],
)
def test_a_consent_that_cannot_be_meant_is_refused(
    market: Market, changes: dict[str, int | str], code: str
) -> None:
    """Amounts are whole cents above 0, a day holds one amount, and a card number never enters."""
    alice = market.account("alice")
    head = market.head()
    with pytest.raises(RejectedError) as error:
        agree(market, alice, **changes)
    assert error.value.code == code
    assert market.head() == head


def test_a_consent_needs_an_account(market: Market) -> None:
    """Nobody consents for an account that is not there."""
    with pytest.raises(LedgerError) as error:
        agree(market, 99)
    assert error.value.code == "no_such_account"


def test_a_top_up_in_the_second_of_exhaustion_comes_too_late(market: Market) -> None:
    """Credit that runs dry stops everything, although a charge in that second fills it again."""
    gateway = MemoryGateway()
    alice, _ = burning(market, DOLLAR)
    act_until(market, START + HOUR - 1, gateway)
    agree(market, alice)
    with market.ledger.unit() as unit:
        holds.place_hold(unit, alice, 277_778, "rest")
    act(market, gateway=gateway)
    row = market.connection.execute("SELECT status, reason FROM instances").fetchone()
    assert row == ("stopped", "zero_balance")
    assert available(market, alice) > 5 * DOLLAR
