"""Laws of a renter's safety, under any order of payments, holds, rentals and waiting.

One alert never comes twice within a day, no card is charged without a consent that stands, charges
of a UTC day stay under its cap, and no request is ever charged twice.
"""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise
from typing import ClassVar

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from adapters.simulation.gateway import MemoryGateway
from ledger.domain.idleness import IDLE_BELOW_PERCENT, idle_tail
from ledger.domain.money import SECONDS_PER_DAY
from ledger.errors import LedgerError
from ledger.projections.usage.state import Meter
from ledger.services import deposits, holds, rentals, top_up
from ledger.services.top_up import Consent, amount_needed
from tests.support.databases import Server
from tests.support.examples import examples
from tests.support.market import DOLLAR, Market
from tests.support.safety import UNWATCHED, act_until, notices, started

CENT = 10_000_000
HOUR = 3_600


class Renter(RuleBasedStateMachine):
    """One renter around its thresholds, on a market where nobody has to report."""

    server: ClassVar[Server]

    @initialize()
    def open(self) -> None:
        """A dollar an hour, and about a day of credit."""
        self.dsn = self.server.copy()
        self.market = Market(self.dsn)
        self.market.ledger.adopt_policy(UNWATCHED)
        self.gateway = MemoryGateway()
        self.alice = self.market.account("alice", 24 * DOLLAR)
        self.machine = self.market.machine(gpu_hour=DOLLAR, storage=0)
        self.instance: int | None = None
        self.holds: list[str] = []
        self.consented: list[tuple[int, int | None]] = []
        """Spans of time in which a consent stood."""
        self.caps: dict[int, int] = {}
        self.count = 0

    def teardown(self) -> None:
        """Rebuild, then drop the database."""
        if hasattr(self, "market"):
            try:
                assert self.market.rebuild().equal
            finally:
                self.market.close()
                self.server.drop(self.dsn)

    @property
    def now(self) -> int:
        """The present second."""
        return self.market.clock()

    def _settle(self) -> None:
        act_until(self.market, self.now, self.gateway)

    @rule(cents=st.integers(1, 400))
    def pay(self, cents: int) -> None:
        """A payment of up to four dollars."""
        self.count += 1
        with self.market.ledger.unit() as unit:
            deposits.deposit(unit, self.alice, cents * CENT, f"d{self.count}")
        self._settle()

    @rule(cents=st.integers(1, 400), hours=st.integers(1, 30))
    def hold(self, cents: int, hours: int) -> None:
        """Credit set aside for some hours."""
        self.count += 1
        try:
            with self.market.ledger.unit() as unit:
                name = f"h{self.count}"
                holds.place_hold(unit, self.alice, cents * CENT, name, seconds=hours * HOUR)
        except LedgerError:
            return
        self._settle()

    @rule(seconds=st.one_of(st.integers(1, 5), st.integers(1, 20 * HOUR)))
    def wait(self, seconds: int) -> None:
        """Time passes, and what is due happens at its second."""
        act_until(self.market, self.now + seconds, self.gateway)

    @precondition(lambda self: self.instance is None)
    @rule()
    def rent(self) -> None:
        """The meter runs, if credit allows."""
        try:
            self.instance = started(self.market, self.alice, self.machine)
        except LedgerError:
            return
        self._settle()

    @precondition(lambda self: self.instance is not None)
    @rule()
    def leave(self) -> None:
        """Nothing burns any more."""
        assert self.instance is not None
        with self.market.ledger.unit() as unit:
            rentals.destroy(unit, self.instance)
        self.instance = None
        self._settle()

    @rule(below=st.integers(1, 2_500), amount=st.integers(1, 900), room=st.integers(1, 4))
    def consent(self, below: int, amount: int, room: int) -> None:
        """A consent to some amount and so many of them a day."""
        if self.consented and self.consented[-1][1] is None:
            self.consented[-1] = (self.consented[-1][0], self.now)
        given_ = Consent("mandate", below * CENT, amount * CENT, room * amount * CENT)
        with self.market.ledger.unit() as unit:
            number = top_up.consent(unit, self.alice, given_)
        self.caps[number] = given_.max_per_day
        self.consented.append((self.now, None))
        self._settle()

    @rule()
    def revoke(self) -> None:
        """The consent is withdrawn."""
        with self.market.ledger.unit() as unit:
            top_up.revoke(unit, self.alice)
        if self.consented and self.consented[-1][1] is None:
            self.consented[-1] = (self.consented[-1][0], self.now)

    @rule(answer=st.sampled_from(["declined", "pending", "lost", ""]))
    def processor(self, answer: str) -> None:
        """The processor begins to answer otherwise."""
        self.gateway.answers[self.alice] = answer

    @invariant()
    def no_alert_twice_a_day(self) -> None:
        """Two notices of one threshold are at least 24 h apart."""
        codes = ("low_balance_24h", "low_balance_4h", "low_balance_1h", "top_up_soon")
        for code in codes:
            seconds = [second for _, second in notices(self.market, self.alice, code)]
            for first, second in pairwise(seconds):
                assert second - first >= SECONDS_PER_DAY, (code, seconds)

    @invariant()
    def no_charge_without_consent(self) -> None:
        """Every request lies in a span in which a consent stood, and under that one's day cap."""
        rows = self.market.connection.execute(
            "SELECT consent_no, amount, requested_at, status FROM top_ups ORDER BY trigger"
        ).fetchall()
        self.market.connection.commit()
        days: dict[int, int] = {}
        for number, amount, second, status in rows:
            assert any(
                start <= second and (end is None or second <= end) for start, end in self.consented
            )
            if status != "failed":
                day = second // SECONDS_PER_DAY
                days[day] = days.get(day, 0) + int(amount)
                assert days[day] <= self.caps[number]

    @invariant()
    def every_charge_is_credited_once(self) -> None:
        """What the processor took is a deposit, or will be: never more than one per order."""
        rows = self.market.connection.execute(
            "SELECT deposit_id, amount FROM deposits WHERE source = 'auto_top_up'"
        ).fetchall()
        self.market.connection.commit()
        booked = {row[0]: int(row[1]) for row in rows}
        assert len(booked) == len(rows)
        for key, amount in booked.items():
            assert self.gateway.charged[key].cents * CENT == amount


def test_a_renter_is_safe_whatever_happens(server: Server) -> None:
    """Alerts, consents, caps and charges keep their laws over random histories."""
    Renter.server = server
    machine = Renter.TestCase
    machine.settings = settings(
        max_examples=examples(4),
        stateful_step_count=25,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )
    machine().runTest()


@given(
    below=st.integers(1, 10**6),
    amount=st.integers(1, 10**6),
    available=st.integers(-(10**16), 10**16),
)
def test_a_charge_is_the_smallest_multiple_that_reaches(
    below: int, amount: int, available: int
) -> None:
    """It is a multiple, enough, one less is not, and none is made where nothing is missing."""
    given_ = Consent("x", below * CENT, amount * CENT, 10**18)
    charge = amount_needed(given_, available)
    assert charge % given_.amount == 0
    assert charge >= 0
    if available >= given_.below:
        assert charge == 0
    else:
        assert available + charge >= given_.below
        assert available + charge - given_.amount < given_.below
        assert Fraction(given_.below - available, given_.amount) <= charge // given_.amount


@given(st.lists(st.lists(st.sampled_from([0, 4, 5, 97, 255]), min_size=1, max_size=8), max_size=8))
def test_an_idle_run_does_not_depend_on_how_ticks_are_cut(blocks: list[list[int]]) -> None:
    """The run that the meters keep, block by block, is the run at the end of all seconds."""
    meter = Meter(1, 1, 1, 1, 1, 0)
    second = 1_000
    flat: list[int] = []
    for block in blocks:
        column = bytes(block)
        if column[-1] < IDLE_BELOW_PERCENT:
            meter.idle(second, second + len(block), idle_tail(column))
        elif meter.idle_until:
            meter.busy()
        second += len(block)
        flat += block
    tail = 0
    while tail < len(flat) and flat[-1 - tail] < IDLE_BELOW_PERCENT:
        tail += 1
    assert (meter.idle_from, meter.idle_until) == ((second - tail, second) if tail else (0, 0))


@pytest.mark.parametrize("at", [1_000, 1_004, 1_009, 1_010, 999])
def test_work_in_a_second_of_the_run_leaves_the_rest(at: int) -> None:
    """After work at *at* the run holds the seconds after it, and nothing before it changes."""
    meter = Meter(1, 1, 1, 1, 1, 0)
    meter.idle(1_000, 1_010, 10)
    meter.busy(at)
    rest = (max(at + 1, 1_000), 1_010)
    assert (meter.idle_from, meter.idle_until) == (rest if rest[0] < 1_010 else (0, 0))
