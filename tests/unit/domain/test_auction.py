from __future__ import annotations

import pytest

from ledger.domain.auction import Grant, Waiting, allocate, place


@pytest.mark.parametrize(
    ("free", "gpus", "slots"),
    [
        pytest.param([0, 1, 2, 3], 1, (0,), id="the-lowest-slot"),
        pytest.param([1, 3], 1, (1,), id="the-lowest-free-slot"),
        pytest.param([0, 1, 2, 3], 2, (0, 1), id="a-block-of-two"),
        pytest.param([1, 2, 3], 2, (2, 3), id="a-block-starts-at-a-multiple"),
        pytest.param([1, 2], 2, (1, 2), id="no-block-then-the-lowest-slots"),
        pytest.param([0, 3, 5, 6], 2, (0, 3), id="no-block-and-scattered"),
        pytest.param([0, 1, 2, 4, 5, 6, 7], 4, (4, 5, 6, 7), id="a-block-of-four"),
        pytest.param([0, 1, 2, 4, 5, 6], 4, (0, 1, 2, 4), id="two-broken-blocks-of-four"),
        pytest.param(list(range(8)), 8, tuple(range(8)), id="the-whole-machine"),
        pytest.param(list(range(6)), 6, tuple(range(6)), id="a-size-that-is-no-power-of-two"),
        pytest.param([2, 3, 4, 5], 3, (3, 4, 5), id="a-block-of-three-starts-at-three"),
    ],
)
def test_placement_takes_the_lowest_aligned_block_else_the_lowest_slots(
    free: list[int], gpus: int, slots: tuple[int, ...]
) -> None:
    """Rule 5: an aligned block when there is one, wherever the other free slots lie."""
    assert place(free, gpus) == slots


def test_requests_are_served_in_the_order_of_the_log() -> None:
    """Rule 1: the earlier request gets the GPU, whatever the ids and the order of the list."""
    waiting = [Waiting(1, 1, 30), Waiting(2, 1, 10), Waiting(3, 1, 20)]
    assert allocate([0], waiting) == [Grant(2, (0,))]


def test_a_request_that_does_not_fit_is_skipped_and_the_next_one_tried() -> None:
    """Rule 1: a large request at the head of the line does not block a small one behind it."""
    waiting = [Waiting(1, 4, 10), Waiting(2, 2, 20), Waiting(3, 2, 30)]
    assert allocate([0, 1, 2], waiting) == [Grant(2, (0, 1))]


def test_a_skipped_request_does_not_use_up_what_it_did_not_get() -> None:
    """Rule 1: everything that fits after a skipped request is granted, in order."""
    waiting = [Waiting(1, 8, 1), Waiting(2, 1, 2), Waiting(3, 4, 3), Waiting(4, 2, 4)]
    grants = allocate(range(7), waiting)
    assert grants == [Grant(2, (0,)), Grant(3, (1, 2, 3, 4)), Grant(4, (5, 6))]


def test_a_block_is_kept_whole_for_the_one_it_was_placed_for() -> None:
    """Rule 5: a later grant in the same decision is placed in what the earlier ones left."""
    waiting = [Waiting(1, 1, 1), Waiting(2, 4, 2), Waiting(3, 2, 3)]
    grants = allocate(range(8), waiting)
    assert grants == [Grant(1, (0,)), Grant(2, (4, 5, 6, 7)), Grant(3, (2, 3))]


@pytest.mark.parametrize(
    ("free", "waiting"),
    [([], [Waiting(1, 1, 1)]), ([0, 1], []), ([0, 1], [Waiting(1, 3, 1)])],
)
def test_nothing_is_granted_when_nothing_fits(free: list[int], waiting: list[Waiting]) -> None:
    """No free GPU, nobody waiting or too large a request gives no grant at all."""
    assert allocate(free, waiting) == []


def test_a_decision_does_not_change_what_it_was_given() -> None:
    """The same state gives the same decision again: the arguments are left as they were."""
    free = [0, 1, 2, 3]
    waiting = [Waiting(2, 2, 2), Waiting(1, 2, 1)]
    first = allocate(free, waiting)
    assert (free, waiting) == ([0, 1, 2, 3], [Waiting(2, 2, 2), Waiting(1, 2, 1)])
    assert allocate(free, waiting) == first
