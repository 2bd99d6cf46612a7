from __future__ import annotations

import pytest

from adapters.hostagent.sensing.traffic import Counter, advance, begin

LINK = 125_000_000
SECOND_NS = 1_000_000_000


@pytest.mark.parametrize(
    ("readings", "deltas", "flags"),
    [
        ([1_000, 1_500], [500], [()]),
        ([1_500, 200, 260], [200, 60], [("counter_reset",), ()]),
        (
            [9_000_000_000, 0, 9_000_001_000],
            [0, 1_000],
            [("counter_reset",), ("counter_glitch",)],
        ),
        # After one reading the fall is history: growing past it is not a glitch.
        ([1_000, 0, 100, 1_200], [0, 100, 1_100], [("counter_reset",), (), ()]),
        # 32 bits that wrapped: nothing is added for it.
        ([4_294_967_290, 5], [5], [("counter_reset",)]),
        ([0, 131_250_000], [131_250_000], [()]),
        ([0, 131_250_001], [131_250_001], [("bandwidth_implausible",)]),
    ],
)
def test_each_row_of_the_delta_rule(
    readings: list[int], deltas: list[int], flags: list[tuple[str, ...]]
) -> None:
    """Growth, reset, glitch, wrap and too much: bytes and flags of readings a second apart."""
    counter = Counter(readings[0])
    found = []
    for reading in readings[1:]:
        delta = advance(counter, reading, SECOND_NS, LINK)
        counter = delta.counter
        found.append(delta)
    assert [one.bytes for one in found] == deltas
    assert [one.flags for one in found] == flags


def test_a_new_counter_is_carried_or_a_baseline() -> None:
    """700 of a new container are 700; 5 GB of one that is older than our state are 0."""
    new = begin(700, SECOND_NS, LINK, is_older_than_state=False)
    assert (new.bytes, new.flags) == (700, ("new_key",))
    old = begin(5_000_000_000, SECOND_NS, LINK, is_older_than_state=True)
    assert (old.bytes, old.flags, old.counter.last) == (0, ("baseline_lost",), 5_000_000_000)
