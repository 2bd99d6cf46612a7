"""Laws of promotional credit: what a grant paid follows from seconds, not from arrival."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from ledger.domain.promotion import Grant, Spent, boundaries, drawn

SECONDS = st.integers(0, 60)


@st.composite
def granted(draw: st.DrawFn) -> list[Grant]:
    """A few grants with lives that overlap as they like, some of them revoked."""
    found = []
    for number in range(draw(st.integers(1, 4))):
        start = draw(SECONDS)
        end = start + draw(st.integers(1, 60))
        revoked = draw(st.none() | st.integers(start, end - 1))
        place = None if revoked is None else 1_000 + number
        found.append(
            Grant(f"g{number}", draw(st.integers(1, 100)), start, end, number + 1, revoked, place)
        )
    return found


@st.composite
def grants_and_usage(draw: st.DrawFn) -> tuple[list[Grant], list[Spent]]:
    """Grants, and nanos used in single seconds of stretches between their ends."""
    grants = draw(granted())
    bounds = boundaries(grants)
    used = []
    for start, end in pairwise([*bounds, bounds[-1] + 10]):
        for second in draw(st.lists(st.integers(start, end - 1), max_size=4)):
            used.append(Spent(second, draw(st.integers(0, 60))))
    return grants, used


@given(grants_and_usage())
def test_no_grant_pays_more_than_it_is_or_outside_its_life(
    case: tuple[list[Grant], list[Spent]],
) -> None:
    """A grant pays at most its amount, and at most what was used while it was good."""
    grants, used = case
    paid = drawn(grants, used)
    for one in grants:
        within = sum(u.amount for u in used if one.granted_at <= u.second < one.ends_at)
        assert 0 <= paid[one.grant_id] <= min(one.amount, within)
    assert sum(paid.values()) <= sum(u.amount for u in used)


@given(grants_and_usage(), st.randoms(use_true_random=False))
def test_the_order_in_which_usage_arrives_does_not_matter(
    case: tuple[list[Grant], list[Spent]], chance: object
) -> None:
    """Late reports, shuffled reports and timely ones leave the same unspent in every grant."""
    grants, used = case
    shuffled = list(used)
    chance.shuffle(shuffled)  # type: ignore[attr-defined]  # Hypothesis hands out a Random
    assert drawn(grants, shuffled) == drawn(grants, used)


@given(grants_and_usage())
def test_nothing_is_paid_from_own_credit_while_a_grant_is_left(
    case: tuple[list[Grant], list[Spent]],
) -> None:
    """Second by second, a naive model that pays from the earliest expiry says the same."""
    grants, used = case
    left = {one.grant_id: one.amount for one in grants}
    for spent in sorted(used, key=lambda one: one.second):
        open_ = [one for one in grants if one.granted_at <= spent.second < one.ends_at]
        nanos = spent.amount
        for one in sorted(open_, key=lambda one: (one.expires_at, one.position)):
            part = min(nanos, left[one.grant_id])
            left[one.grant_id] -= part
            nanos -= part
    assert drawn(grants, used) == {one.grant_id: one.amount - left[one.grant_id] for one in grants}


@given(grants_and_usage(), st.integers(1, 10**6))
def test_an_ended_grant_is_left_alone_by_later_usage(
    case: tuple[list[Grant], list[Spent]], more: int
) -> None:
    """Usage after the end of a grant changes nothing of what it paid."""
    grants, used = case
    for one in grants:
        later = [*used, Spent(max(boundaries(grants)), more)]
        assert drawn(grants, later)[one.grant_id] == drawn(grants, used)[one.grant_id]
