from __future__ import annotations

import pytest

from ledger.meters.bandwidth import capped, within_ceiling

GIGABIT = 125_000_000


@pytest.mark.parametrize(
    ("attested", "counted"),
    [
        pytest.param([], [], id="nobody"),
        pytest.param([0, 0], [0, 0], id="silence"),
        pytest.param([125_000_000], [125_000_000], id="exactly-the-link"),
        pytest.param([130_000_000], [125_000_000], id="one-above-the-link"),
        pytest.param([100_000_000] * 2, [62_500_000] * 2, id="two-share-it"),
        pytest.param([60_000_000, 65_000_000], [60_000_000, 65_000_000], id="two-fill-it"),
        pytest.param([60_000_000, 65_000_001], [59_999_999, 65_000_000], id="one-byte-too-many"),
        pytest.param([2**63 - 1, 0], [125_000_000, 0], id="a-wild-counter-alone"),
        pytest.param([2**63 - 1, 125_000_000], [62_500_000] * 2, id="a-wild-counter-beside"),
        pytest.param([2**63 - 1] * 3, [41_666_666] * 3, id="floored-each"),
    ],
)
def test_no_second_counts_more_than_the_link_carries(
    attested: list[int], counted: list[int]
) -> None:
    """Each instance counts at most the link, and all together are scaled down to it."""
    assert capped(attested, GIGABIT) == counted


def test_the_excess_of_the_printed_example() -> None:
    """130 000 000 bytes in one second leave 5 000 000 as excess."""
    assert 130_000_000 - capped([130_000_000], GIGABIT)[0] == 5_000_000


def test_a_machine_without_a_link_bills_no_bytes() -> None:
    """A link of 0 Mbit/s carries nothing, so nothing counts."""
    assert capped([5, 0, 7], 0) == [0, 0, 0]


@pytest.mark.parametrize(
    ("peaks", "fits"),
    [([], True), ([GIGABIT], True), ([GIGABIT + 1], False), ([GIGABIT, 1], False), ([1, 2], True)],
)
def test_a_report_is_within_the_ceiling_when_its_peaks_are(peaks: list[int], fits: bool) -> None:
    """A report whose peaks together fit the link needs no look at its single seconds."""
    assert within_ceiling(peaks, GIGABIT) is fits
