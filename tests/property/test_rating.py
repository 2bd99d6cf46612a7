"""The rating that is kept by one statement a check is the one that follows from all checks."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from ledger.domain import reliability
from ledger.domain.checks import Verdict
from ledger.domain.events import CheckJudged, CheckReclassified
from ledger.domain.ids import machine_stream
from ledger.domain.reliability import Result, Severity, slot_of
from tests.support.databases import Server
from tests.support.examples import examples
from tests.support.market import Market
from tests.support.trust import checks_of, rating, standing

DAY = 86_400


@pytest.fixture(scope="module")
def shared(server: Server) -> Iterator[Market]:
    """One market for all examples: each takes a machine of its own."""
    dsn = server.copy()
    market = Market(dsn)
    yield market
    market.close()
    server.drop(dsn)


RESULTS: st.SearchStrategy[Result] = st.sampled_from(["passed", "failed", "inconclusive"])
SEVERITIES: st.SearchStrategy[Severity] = st.sampled_from([1, 2, 3])


@st.composite
def histories(draw: st.DrawFn) -> list[tuple[int, int, Verdict, bool, bool]]:
    """Checks as (second, delay of the judgement, verdict, excluded, reclassified later)."""
    near = [0, 7, 100, 299, 300, 301, 3_000, DAY, 15 * DAY]
    gaps = st.sampled_from([*near, 30 * DAY, 30 * DAY + 5, 31 * DAY, 100 * DAY])
    second, found = 0, []
    for _ in range(draw(st.integers(1, 14))):
        second += draw(gaps)
        delay = draw(st.sampled_from([0, 1, 180, 900, 2 * DAY]))
        verdict = Verdict(draw(RESULTS), draw(SEVERITIES), "drawn")
        excluded = draw(st.integers(0, 9)) == 0
        again = draw(st.integers(0, 4)) == 0
        found.append((second, delay, verdict, excluded, again))
    return found


@given(history=histories(), seed=st.integers(0, 2**16))
@settings(
    max_examples=examples(15),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    phases=[Phase.generate],  # every step of a shorter example would be a machine more
)
def test_the_rating_of_any_second_is_that_of_all_checks(
    shared: Market, history: list[tuple[int, int, Verdict, bool, bool]], seed: int
) -> None:
    """Judged late, in any order, replaced, excluded, reclassified: never more, never less."""
    chance = random.Random(seed)  # noqa: S311 - a test's choice of seconds
    machine = shared.machine()
    base = shared.clock()
    for second, delay, verdict, excluded, again in sorted(history, key=lambda one: sum(one[:2])):
        shared.clock.move_to(max(shared.clock(), base + second + delay))
        with shared.ledger.unit() as unit:
            at = base + second
            slot = slot_of(at)
            unit.append(
                machine_stream(machine),
                CheckJudged(
                    machine_id=machine,
                    slot=slot,
                    kind="incident",
                    at=at,
                    result=verdict.result,
                    severity=verdict.severity,
                    reason=verdict.reason,
                    excluded=excluded,
                    instance_id=None,
                    judged_at=unit.now,
                ),
            )
            if again:
                unit.append(
                    machine_stream(machine),
                    CheckReclassified(
                        machine_id=machine,
                        slot=slot,
                        result=chance.choice(["passed", "failed", "inconclusive"]),
                        severity=2,
                        reason="drawn",
                        dispute_id=None,
                        reclassified_at=unit.now,
                    ),
                )
    known = checks_of(shared, machine)
    interesting = [one.at + shift for one in known for shift in (-1, 0, 1, 30 * DAY, 140 * DAY)]
    interesting += [one.at + 140 * DAY + 1 for one in known] + [base - 1, shared.clock() + 1]
    for second in chance.sample(interesting, min(len(interesting), 12)):
        shown, wanted = rating(shared, machine, second), reliability.rating(known, second)
        assert (shown.passed, shown.n) == (wanted.passed, wanted.n), second
        assert shown.reliability == wanted.reliability
        assert shown.lower_bound == wanted.lower_bound
        assert shown.expected_reliability == pytest.approx(wanted.expected_reliability, abs=1e-12)
    wanted = reliability.rating(known, shared.clock() + 1)
    row = standing(shared, machine)
    assert (row["checks"], row["reliability"]) == (wanted.n, wanted.reliability)
    assert row["lower_bound"] == wanted.lower_bound


def test_a_rebuild_gives_the_same_ratings_to_the_last_bit(shared: Market) -> None:
    """All of the above replayed: tables with running totals and decayed sums are equal bytes."""
    result = shared.rebuild()
    assert result.equal, [one for one in result.tables if not one.equal]
