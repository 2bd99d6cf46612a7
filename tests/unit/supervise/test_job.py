"""A job as a search, a bid and a create request: always within its price."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.supervise import Job
from adapters.supervise.records import Offer
from ledger.domain.money import format_dollars, parse_dollars
from ledger.errors import RejectedError

CENT = 10_000_000


def job(**options: Any) -> Job:
    """A job for $0.35 an hour in all."""
    return Job(**{"label": "run-42", "max_price": 35 * CENT, "disk_gb": 100, **options})


def offer(min_bid: str | None = "0.20", storage: str = "0.02", total: str | None = "0.22") -> Offer:
    """An offer of one GPU."""
    return Offer(
        offer_id=7,
        machine_id=4,
        num_gpus=1,
        gpu_name="RTX 4090",
        min_bid=min_bid,
        storage_total=storage,
        dph_total=total,
    )


def test_the_search_keeps_the_price_the_disk_and_the_wishes() -> None:
    """The ceiling and the disk join the job's own conditions; the tighter ones win."""
    body = job(
        filters={
            "gpu_name": {"eq": "RTX 4090"},
            "dph_total": {"lte": "0.30", "gt": "0.1"},
            "disk_space": {"gte": "500"},
            "machine_id": {"notin": [3]},
        },
        order=(("dph_total", "asc"),),
    ).search({9, 5}, 10)
    assert body == {
        "kind": "interruptible",
        "disk_gb": 100,
        "limit": 10,
        "verified_only": True,
        "order": [["dph_total", "asc"]],
        "filters": {
            "gpu_name": {"eq": "RTX 4090"},
            "dph_total": {"lte": "0.3", "gt": "0.1"},
            "disk_space": {"gte": 500.0},
            "machine_id": {"notin": [3, 5, 9]},
        },
    }
    assert job().search((), 1)["filters"] == {
        "dph_total": {"lte": "0.35"},
        "disk_space": {"gte": 100},
    }
    assert job(filters={"dph_total": {"lte": "9"}}).search((), 1)["filters"]["dph_total"] == {
        "lte": "0.35"
    }


@pytest.mark.parametrize("filters", [{"dph_total": {"lte": "x"}}, {"disk_space": {"gte": "x"}}])
def test_a_search_that_is_none(filters: Any) -> None:
    """A price or a disk that is no number is told."""
    with pytest.raises(RejectedError) as error:
        job(filters=filters).search((), 1)
    assert error.value.code == "invalid_args"


@pytest.mark.parametrize(
    ("options", "min_bid", "bid"),
    [
        ({}, "0.20", "0.22"),
        ({"margin_bp": 0}, "0.20", "0.2"),
        ({}, "0.32", "0.33"),
        ({}, "0.33", "0.33"),
        ({}, "0.330000001", None),
        ({}, None, None),
        ({"bid": 25 * CENT}, "0.20", "0.25"),
        ({"bid": 25 * CENT}, "0.250000001", None),
        ({"bid": 34 * CENT}, "0.20", None),
        ({"margin_bp": 10**9}, "0.20", "0.33"),
    ],
)
def test_what_is_bid(options: Any, min_bid: str | None, bid: str | None) -> None:
    """A little above what runs, never above the ceiling less the disk; a fixed bid is kept."""
    body = job(**options).order_of(offer(min_bid))
    if bid is None:
        assert body is None
    else:
        assert body == {"offer_id": 7, "disk_gb": 100, "label": "run-42", "bid": bid}


def test_on_demand_names_no_bid() -> None:
    """An on-demand create has no bid, and none is made above the ceiling."""
    on_demand = job(kind="on_demand", launch={"image": "x"})
    assert on_demand.order_of(offer(None)) == {
        "offer_id": 7,
        "disk_gb": 100,
        "label": "run-42",
        "launch": {"image": "x"},
    }
    assert on_demand.order_of(offer(None, total="0.350000001")) is None
    assert on_demand.order_of(offer(None, total=None)) is None


@given(
    smallest=st.integers(0, 10**10),
    storage=st.integers(0, 10**9),
    ceiling=st.integers(1, 10**10),
    margin=st.integers(0, 10**6),
    fixed=st.none() | st.integers(0, 10**10),
)
def test_no_bid_breaks_the_ceiling(
    smallest: int, storage: int, ceiling: int, margin: int, fixed: int | None
) -> None:
    """Whatever the market asks: bid and disk together stay within the price, and the bid runs."""
    wish = job(max_price=ceiling, margin_bp=margin, bid=fixed)
    found = wish.bid_for(offer(format_dollars(smallest), format_dollars(storage)))
    if found is None:
        assert smallest + storage > ceiling or (
            fixed is not None and (fixed < smallest or fixed + storage > ceiling)
        )
    else:
        assert smallest <= found
        assert found + storage <= ceiling
        assert fixed in {None, found}
        assert parse_dollars(format_dollars(found)) == found


def test_keys_of_a_step() -> None:
    """One step, one minute, one key for whoever takes it; another step is another key."""
    keys = {
        job().create_key(0, 60, 0),
        job().create_key(1, 60, 0),
        job().create_key(0, 60, 1),
        job().create_key(0, 120, 0),
        job(label="run-43").create_key(0, 60, 0),
    }
    assert len(keys) == 5
    assert job().create_key(3, 60.1, 2) == job(max_price=1).create_key(3, 119.9, 2)
    assert all(one.isascii() and one.isprintable() and len(one) < 255 for one in keys)
    assert job(label="läufer \U0001f680").create_key(0, 0, 0).isascii()
