"""Every number of `marketplace.md` §12, and the order of offers."""

from __future__ import annotations

from itertools import permutations

import pytest

from ledger.domain.score import (
    Run,
    mean_ratio,
    median_score,
    ranking_key,
    score_effective,
    score_per_dollar,
    score_raw,
)

REFERENCE = {"fp32": 11.0, "fp16": 22.0, "memory": 484.0}


@pytest.mark.parametrize(
    ("ratio", "score"),
    [
        pytest.param(1.0, 10, id="gtx-1080-ti"),
        pytest.param(1.4, 14, id="rtx-2080-ti"),
        pytest.param(2.1, 21, id="v100"),
    ],
)
def test_one_gpu_scores_ten_times_its_mean_ratio(ratio: float, score: float) -> None:
    """The three cards of the rule book: 10, 14 and 21."""
    assert score_raw(ratio, 1, 1.0) == pytest.approx(score)


def test_the_example_of_the_rule_book() -> None:
    """Mean 2.1 on 4 GPUs at 0.9 → 75.6; bound 0.945512 → 71.4807; 44.1012 or 46.6427 a dollar."""
    raw = score_raw(2.1, 4, 0.9)
    effective = score_effective(raw, 0.945512)
    assert f"{raw:.1f}" == "75.6"
    assert f"{effective:.4f}" == "71.4807"
    assert f"{score_per_dollar(effective, 1.6208333):.4f}" == "44.1012"
    assert f"{score_per_dollar(raw, 1.6208333):.4f}" == "46.6427"


def test_the_reference_card_has_the_ratio_one() -> None:
    """A machine that measures what a 1080 Ti measures scores 10."""
    ratio = mean_ratio(REFERENCE, REFERENCE)
    assert ratio is not None
    assert score_raw(ratio, 1, 1.0) == pytest.approx(10)


def test_ratios_are_averaged_geometrically() -> None:
    """Eight times faster on one of three benchmarks is twice as fast, not 3.33 times."""
    assert mean_ratio(REFERENCE | {"fp16": 176.0}, REFERENCE) == pytest.approx(2)


@pytest.mark.parametrize(
    "measured",
    [
        pytest.param({}, id="nothing"),
        pytest.param({"fp32": 11.0, "fp16": 22.0}, id="one-is-missing"),
        pytest.param(REFERENCE | {"int8": 1.0}, id="one-of-another-suite"),
        pytest.param(REFERENCE | {"fp32": 0.0}, id="zero"),
        pytest.param(REFERENCE | {"fp32": -11.0}, id="negative"),
        pytest.param(REFERENCE | {"fp32": float("nan")}, id="not-a-number"),
        pytest.param(REFERENCE | {"fp32": float("inf")}, id="infinite"),
    ],
)
def test_what_is_no_run_of_the_suite_has_no_ratio(measured: dict[str, float]) -> None:
    """A missing, additional or impossible measurement gives no score, not a low or high one."""
    assert mean_ratio(measured, REFERENCE) is None


def test_an_empty_suite_scores_nobody() -> None:
    """Without benchmarks there is no mean."""
    assert mean_ratio({}, {}) is None


def runs(*scores: float, suite: str = "s1", start: int = 0) -> list[Run]:
    """Runs one second apart."""
    return [Run(suite, start + i, score) for i, score in enumerate(scores)]


@pytest.mark.parametrize(
    ("scores", "shown"),
    [
        pytest.param([], None, id="no-run"),
        pytest.param([70], 70, id="one-run"),
        pytest.param([70, 80], 75, id="the-mean-of-two"),
        pytest.param([10, 90, 70], 70, id="the-middle-of-three"),
        pytest.param([1, 70, 71, 72, 99], 71, id="the-middle-of-five"),
        pytest.param([1, 1, 1, 70, 71, 72, 73, 74], 72, id="the-last-five-only"),
    ],
)
def test_the_score_is_the_median_of_the_last_five_runs(
    scores: list[float], shown: float | None
) -> None:
    """One lucky or unlucky run does not move it, and old runs are forgotten, in any order given."""
    assert median_score(runs(*scores), "s1") == shown
    assert median_score(reversed(runs(*scores)), "s1") == shown


def test_suite_versions_are_never_mixed() -> None:
    """Five later runs of another suite version neither count nor push a run out."""
    both = [*runs(70, 71, 72), *runs(1, 2, 3, 4, 5, suite="s2", start=100)]
    assert median_score(both, "s1") == 71
    assert median_score(both, "s2") == 3
    assert median_score(both, "s3") is None


def test_offers_are_ranked_by_score_then_bound_then_price_then_age() -> None:
    """Each later number decides only between offers that are equal in all earlier ones."""
    order = [
        (50.0, 0.5, 9.0, 9),
        (44.0, 0.9, 5.0, 8),
        (44.0, 0.8, 2.0, 7),
        (44.0, 0.8, 3.0, 1),
        (44.0, 0.8, 3.0, 2),
        (0.0, 1.0, 0.1, 3),
        (None, 0.9, 1.0, 4),
        (None, 0.8, 0.5, 5),
    ]
    keys = [ranking_key(*offer) for offer in order]
    assert sorted([*keys[4:], *keys[:4]]) == keys
    for three in permutations(keys[1:4]):
        assert sorted(three) == keys[1:4]


def test_without_reliability_speed_is_worth_nothing() -> None:
    """A new machine's bound is 0, so its effective score is 0 and it ranks below any proven one."""
    assert score_effective(75.6, 0.0) == 0
    assert ranking_key(0.0, 0.0, 0.1, 1) > ranking_key(1.0, 0.9, 9.0, 2)
