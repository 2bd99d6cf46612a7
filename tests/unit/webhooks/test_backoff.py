"""When a failed delivery is tried again."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from ledger.domain.webhooks import FIRST_PAUSE_SECONDS, TRIES, pause_seconds

DAY = 86_400


def pauses(seed: str) -> list[int]:
    """All pauses of a delivery that always fails."""
    found = [pause_seconds(tries, seed) for tries in range(1, TRIES)]
    return [pause for pause in found if pause is not None]


def test_these_are_the_pauses_of_one_delivery() -> None:
    """The schedule of a given delivery is fixed: a change of it is a change of this test."""
    assert pauses("3/42") == [10, 32, 85, 262, 791, 2476, 8113, 24188, 53012, 85536, 73512]
    assert pause_seconds(TRIES, "3/42") is None


@given(st.text())
def test_it_takes_about_three_days_whatever_the_chance(seed: str) -> None:
    """From 10 s to at most 24 h, each pause about three times the last, over two to four days."""
    found = pauses(seed)
    assert len(found) == TRIES - 1
    assert FIRST_PAUSE_SECONDS * 8 // 10 <= found[0] <= FIRST_PAUSE_SECONDS * 12 // 10
    assert max(found) <= DAY
    assert 2.2 * DAY < sum(found) < 3.4 * DAY
    for before, after in pairwise(found[:-2]):
        assert 2 <= after / before <= 4.5
    for extra in (TRIES, TRIES + 1, 10**6):
        assert pause_seconds(extra, seed) is None


def test_deliveries_that_failed_together_are_not_tried_together() -> None:
    """The pauses of a thousand deliveries after one failure are spread over the whole range."""
    first = {pause_seconds(5, f"1/{position}") for position in range(1_000)}
    assert len(first) > 200
    assert min(filter(None, first)) < 670
    assert max(filter(None, first)) > 950
