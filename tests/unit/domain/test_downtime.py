"""The formulas of downtime, each with the numbers of the rule book (`marketplace.md` §16)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger.domain.downtime import Award, lost_disk_award, outage_award, quorum

DOLLAR = 10**9
RATE = 400_000_000
HOUR = 3_600


@pytest.mark.parametrize(
    ("configured", "needed"), [(0, None), (2, None), (3, 3), (4, 4), (5, 4), (40, 4)]
)
def test_four_locations_must_agree_or_all_of_three(configured: int, needed: int | None) -> None:
    """Below three locations nothing is ever down; three must all agree; of more, four."""
    assert quorum(configured) == needed


@pytest.mark.parametrize(
    ("rate", "seconds", "secure", "spent", "expected"),
    [
        # $0.40/h, 2 h, five times: 4.00, so the minimum of $5.00.
        (RATE, 2 * HOUR, False, 30 * DOLLAR, Award(5, 5 * DOLLAR, False, 5 * DOLLAR)),
        (RATE, 2 * HOUR, False, 3 * DOLLAR, Award(5, 5 * DOLLAR, True, 3 * DOLLAR)),
        (RATE, 2 * HOUR, False, 5 * DOLLAR, Award(5, 5 * DOLLAR, False, 5 * DOLLAR)),
        (RATE, 2 * HOUR, True, 30 * DOLLAR, Award(10, 8 * DOLLAR, False, 8 * DOLLAR)),
        (RATE, 3 * HOUR, False, 30 * DOLLAR, Award(5, 6 * DOLLAR, False, 6 * DOLLAR)),
        (RATE, 9_001, False, 30 * DOLLAR, Award(5, 5_000_555_555, False, 5_000_555_555)),
        (RATE, 0, False, 30 * DOLLAR, Award(5, 5 * DOLLAR, False, 5 * DOLLAR)),
        (RATE, 2 * HOUR, False, 0, Award(5, 5 * DOLLAR, True, 0)),
    ],
)
def test_an_outage_pays_a_multiple_of_its_time(
    rate: int, seconds: int, secure: bool, spent: int, expected: Award
) -> None:
    """min(max(multiplier x rate x seconds // 3600, $5), charges of last month), nano by nano."""
    assert outage_award(rate * seconds, secure=secure, cap=spent) == expected


@pytest.mark.parametrize(
    ("rate", "spent", "expected"),
    [
        (RATE, 30 * DOLLAR, Award(40, 16 * DOLLAR, False, 16 * DOLLAR)),
        (RATE, 3 * DOLLAR, Award(40, 16 * DOLLAR, True, 3 * DOLLAR)),
        # No minimum here: forty hours of a cheap card are worth forty hours.
        (10_000_000, 30 * DOLLAR, Award(40, 400_000_000, False, 400_000_000)),
    ],
)
def test_a_lost_disk_pays_forty_hours(rate: int, spent: int, expected: Award) -> None:
    """A lost disk is worth 40 hours of the GPU rate, up to the charges of last month."""
    assert lost_disk_award(rate, cap=spent) == expected


@given(st.integers(0, 10**12), st.integers(0, 10**7), st.booleans(), st.integers(0, 10**15))
def test_nobody_gets_more_than_was_charged(
    rate: int, seconds: int, secure: bool, spent: int
) -> None:
    """An award lies between 0 and the cap, and says whether the cap made it smaller."""
    award = outage_award(rate * seconds, secure=secure, cap=spent)
    assert 0 <= award.amount <= spent
    assert award.cap_applied == (award.amount < award.claim)
    assert award.amount in {award.claim, spent}
