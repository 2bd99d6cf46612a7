"""How fast a machine is and how much of it a dollar buys (`marketplace.md` §12).

The platform issues benchmark runs of a suite; each measurement is set in relation to a GTX 1080 Ti,
which scores 10. Floats are fine here, nothing in this file posts money.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from statistics import geometric_mean, median
from typing import Final, NamedTuple

REFERENCE_SCORE: Final = 10
"""Score of one GTX 1080 Ti."""

MEDIAN_OF: Final = 5
"""Runs that the shown score is the median of."""


class Run(NamedTuple):
    """One run of a suite version that the platform issued, and what it scored."""

    suite: str
    at: int
    score_raw: float


def mean_ratio(measured: Mapping[str, float], reference: Mapping[str, float]) -> float | None:
    """Geometric mean over the suite of measured / reference; None when it is no run of the suite.

    Args:
        measured: What the machine says, per benchmark, more is faster; anything may be in it.
        reference: The same of a GTX 1080 Ti; its names are the suite.
    """
    if measured.keys() != reference.keys() or not reference:
        return None
    ratios = [measured[name] / reference[name] for name in reference]
    if not all(math.isfinite(ratio) and ratio > 0 for ratio in ratios):
        return None
    return geometric_mean(ratios)


def score_raw(ratio: float, gpus: int, efficiency: float) -> float:
    """Ten times the mean *ratio* of one GPU, times the GPUs, times how well they work together."""
    return REFERENCE_SCORE * ratio * gpus * efficiency


def median_score(runs: Iterable[Run], suite: str) -> float | None:
    """Median of the last five runs of this suite version; None without any.

    Runs of other versions are never mixed in, and between two middle runs it is their mean.
    """
    last = sorted((one for one in runs if one.suite == suite), key=lambda one: one.at)
    scores = [one.score_raw for one in last[-MEDIAN_OF:]]
    return median(scores) if scores else None


def score_effective(raw: float, lower_bound: float) -> float:
    """The raw score times the lower bound of the machine's reliability."""
    return raw * lower_bound


def score_per_dollar(score: float, dph_total: float) -> float:
    """A score per dollar an hour, storage at the requested disk included."""
    assert dph_total > 0, dph_total
    return score / dph_total


def ranking_key(
    per_dollar: float | None, lower_bound: float, dph_total: float, offer_id: int
) -> tuple[bool, float, float, float, int]:
    """Sorts offers into their default order, ascending: what comes first is offered first.

    Most score per dollar, then the higher lower bound, then the lower price, then the older offer.
    An offer without a score in the suite version of this result (None) comes after all that have
    one.
    """
    return (per_dollar is None, -(per_dollar or 0.0), -lower_bound, dph_total, offer_id)
