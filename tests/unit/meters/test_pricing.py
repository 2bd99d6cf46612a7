"""Every number of `marketplace.md` §5, and the cases of public bug reports about prices."""

from __future__ import annotations

from itertools import accumulate, pairwise

import pytest

from ledger.domain.ids import next_month_start, parse_rfc3339
from ledger.domain.money import parse_dollars
from ledger.meters.pricing import (
    METERS,
    Meter,
    bandwidth_charge,
    charge_of,
    explain_charge,
    explain_fee,
    gpu_charge,
    increments,
    platform_fee,
    storage_charge,
)

GB = 10**9
HOUR = 3_600
DAY = 86_400
MONTH = 720 * HOUR
RATE_040 = 400_000_000
RATE_025 = 250_000_000
STORAGE_015 = 150_000_000
UP_0003 = 3_000_000
UP_001 = 10_000_000


# --- GPU (§5.2) -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("seconds", "nanos"),
    [
        (0, 0),
        (1, 111_111),
        (2, 222_222),
        (3, 333_333),
        (8, 888_888),
        (9, 1_000_000),
        (10, 1_111_111),
        (3_600, 400_000_000),
    ],
)
def test_gpu_seconds_at_forty_cents_an_hour(seconds: int, nanos: int) -> None:
    """LIFE-09: a charge is the floor of the whole product, so a full hour costs the hourly rate."""
    assert gpu_charge(RATE_040, seconds) == nanos


def test_the_nine_increments_at_forty_cents() -> None:
    """What is posted second by second catches up: eight times 111 111, then 111 112."""
    posted = increments(lambda seconds: gpu_charge(RATE_040, seconds), [1] * 9)
    assert posted == [111_111] * 8 + [111_112]


def test_an_hour_posted_second_by_second_is_not_short() -> None:
    """LIFE-09: 3 600 postings add up to 400 000 000, not to the 399 999 600 of floored seconds."""
    posted = increments(lambda seconds: gpu_charge(RATE_040, seconds), [1] * HOUR)
    assert sum(posted) == 400_000_000
    assert gpu_charge(RATE_040, 1) * HOUR == 399_999_600


@pytest.mark.parametrize(
    ("seconds", "nanos"), [(1, 92_592), (HOUR, 333_333_333), (DAY, 7_999_999_992)]
)
def test_a_bid_that_divides_by_nothing(seconds: int, nanos: int) -> None:
    """A bid of 333 333 333 nanos an hour is charged exactly for a second, an hour and a day."""
    assert gpu_charge(333_333_333, seconds) == nanos


def test_thirty_seconds_around_midnight() -> None:
    """TIME-01: a day costs the difference of two cumulative charges, so days add up."""
    first, second = increments(lambda seconds: gpu_charge(RATE_025, seconds), [10, 20])
    assert (first, second) == (694_444, 1_388_889)
    assert first + second == gpu_charge(RATE_025, 30) == 2_083_333
    assert gpu_charge(RATE_025, 20) == 1_388_888


def test_a_rate_change_opens_a_second_segment() -> None:
    """PRICE-07, PRICE-08: 1 000 s at $0.40 and 800 s at $0.50 are floored each for itself."""
    parts = (gpu_charge(RATE_040, 1_000), gpu_charge(500_000_000, 800))
    assert parts == (111_111_111, 111_111_111)
    assert sum(parts) == 222_222_222


def test_a_bid_raised_after_37_minutes() -> None:
    """PRICE-07: each minute is charged at the bid that held then."""
    parts = (gpu_charge(RATE_025, 37 * 60), gpu_charge(300_000_000, 23 * 60))
    assert parts == (154_166_666, 115_000_000)
    assert sum(parts) == 269_166_666


def test_segments_keep_their_own_price() -> None:
    """PRICE-07: 3 h at 0.096 and 3 h at 0.384 are 1.44, whatever ran last."""
    parts = [
        gpu_charge(parse_dollars(rate), seconds)
        for rate, seconds in [("0.096", 3 * HOUR), ("0.384", 3 * HOUR)]
    ]
    assert sum(parts) == parse_dollars("1.44")


@pytest.mark.parametrize(
    ("seconds", "fee"),
    [
        (1, 16_666),
        (2, 33_333),
        (3, 49_999),
        (4, 66_666),
        (5, 83_333),
        (6, 99_999),
        (7, 116_666),
        (8, 133_333),
        (9, 150_000),
    ],
)
def test_the_fee_of_the_first_nine_seconds(seconds: int, fee: int) -> None:
    """The fee is the floor over the segment's cumulative charge."""
    assert platform_fee(1_500, gpu_charge(RATE_040, seconds)) == fee


def test_a_fee_floored_per_increment_would_be_short() -> None:
    """Nine seconds cost 150 000 in fees, not the 149 994 of nine floored increments."""
    charges = [gpu_charge(RATE_040, seconds) for seconds in range(10)]
    fees = [platform_fee(1_500, charge) for charge in charges]
    assert sum(after - before for before, after in pairwise(fees)) == 150_000
    assert (
        sum(platform_fee(1_500, after - before) for before, after in pairwise(charges)) == 149_994
    )


def test_an_hour_is_shared_between_renter_platform_and_host() -> None:
    """One hour at $0.40: the renter pays 400 000 000, of which 60 000 000 are fee."""
    charge = gpu_charge(RATE_040, HOUR)
    fee = platform_fee(1_500, charge)
    assert (charge, fee, charge - fee) == (400_000_000, 60_000_000, 340_000_000)


@pytest.mark.parametrize(("fee_bp", "fee"), [(0, 0), (1, 40_000), (10_000, 400_000_000)])
def test_the_ends_of_the_fee(fee_bp: int, fee: int) -> None:
    """No fee leaves everything to the host; a fee of 100 % leaves nothing."""
    assert platform_fee(fee_bp, 400_000_000) == fee


def test_use_below_an_hour_costs_its_seconds() -> None:
    """PRICE-04: ten minutes cost ten minutes; there is no minimum and no rounding to hours."""
    assert gpu_charge(600_000_000, 600) == 100_000_000
    assert gpu_charge(600_000_000, 601) == 100_166_666


@pytest.mark.parametrize("gpus", [1, 2, 4, 8])
def test_the_price_of_a_slice_counts_its_gpus_once(gpus: int) -> None:
    """PRICE-04: a slice rate is per-GPU rate times GPUs, and the charge multiplies by nothing."""
    per_gpu = 350_000_000
    assert gpu_charge(per_gpu * gpus, HOUR) == gpus * gpu_charge(per_gpu, HOUR)


def test_no_gpu_costs_nothing() -> None:
    """LIFE-12: a slice without GPUs has a rate of 0 and a charge of 0."""
    assert gpu_charge(0, 10**9) == 0


@pytest.mark.parametrize("dollars", ["99.999999999", "100", "101", "1000000", "1000000000"])
def test_no_rate_is_too_high(dollars: str) -> None:
    """PRICE-16: a rate of 100 or more is charged like any other, exactly."""
    rate = parse_dollars(dollars)
    assert gpu_charge(rate, HOUR) == rate
    assert gpu_charge(rate, 10**6 * HOUR) == rate * 10**6


def test_a_rate_written_in_two_ways_is_one_rate() -> None:
    """PRICE-16: rates are compared as numbers, so 2, 2.0 and 2.00 are the same rate."""
    assert len({parse_dollars(text) for text in ("2", "2.0", "2.00", 2)}) == 1


def test_products_larger_than_64_bits_are_exact() -> None:
    """LEDG-08: the largest rate over a century loses no nano on the way."""
    assert gpu_charge(10**18 + 1, 3_153_600_000) == (10**18 + 1) * 876_000


# --- storage (§5.3) -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("seconds", "nanos"),
    [
        pytest.param(0, 0, id="nothing"),
        pytest.param(1, 5_787, id="1s"),
        pytest.param(2, 11_574, id="2s"),
        pytest.param(3, 17_361, id="3s"),
        pytest.param(4, 23_148, id="4s"),
        pytest.param(HOUR, 20_833_333, id="1h"),
        pytest.param(DAY, 500_000_000, id="24h"),
        pytest.param(22 * HOUR, 458_333_333, id="22h-of-24h-attested"),
        pytest.param(MONTH, 15_000_000_000, id="720h"),
        pytest.param(28 * DAY, 14_000_000_000, id="february"),
        pytest.param(31 * DAY, 15_500_000_000, id="a-month-of-31-days"),
        pytest.param(30 * DAY, 15_000_000_000, id="LIFE-01-stopped-for-30-days"),
        pytest.param(3_685, 21_325_231, id="the-full-example"),
    ],
)
def test_a_disk_of_100_gb_at_fifteen_cents(seconds: int, nanos: int) -> None:
    """LIFE-01: storage costs its attested seconds, and a month in a rate is 720 hours."""
    assert storage_charge(STORAGE_015, 100 * GB, seconds) == nanos


@pytest.mark.parametrize(
    ("text", "dollars"), [("2027-02-01T00:00:00Z", "14"), ("2027-03-01T00:00:00Z", "15.5")]
)
def test_a_calendar_month_costs_its_own_seconds(text: str, dollars: str) -> None:
    """TIME-03: February costs 28/30 of the rate and March 31/30, by their seconds in UTC."""
    start = parse_rfc3339(text)
    charge = storage_charge(STORAGE_015, 100 * GB, next_month_start(start) - start)
    assert charge == parse_dollars(dollars)


@pytest.mark.parametrize(("size_gb", "nanos"), [(1, 208_333), (100, 20_833_333), (101, 21_041_666)])
def test_the_disk_charge_is_for_the_size_asked_for(size_gb: int, nanos: int) -> None:
    """PRICE-03, PRICE-05: the requested gigabytes are all that the disk's price depends on."""
    assert storage_charge(STORAGE_015, size_gb * GB, HOUR) == nanos


def test_a_gigabyte_is_a_thousand_megabytes() -> None:
    """PRICE-04: neither MB nor GiB is taken for a GB."""
    assert storage_charge(STORAGE_015, GB, MONTH) == STORAGE_015
    assert storage_charge(STORAGE_015, 10**6, MONTH) == STORAGE_015 // 1_000
    assert storage_charge(STORAGE_015, 2**30, MONTH) == 161_061_273


def test_the_full_example() -> None:
    """LIFE-01: one hour of GPU and 3 685 s of disk, from creation to destroy."""
    created, running, stopped, destroyed = (
        1_798_761_600,
        1_798_761_625,
        1_798_765_225,
        1_798_765_285,
    )
    assert created == parse_rfc3339("2027-01-01T00:00:00Z")
    assert gpu_charge(RATE_040, stopped - running) == 400_000_000
    assert storage_charge(STORAGE_015, 100 * GB, destroyed - created) == 21_325_231


def test_a_quote_is_the_first_hour() -> None:
    """PRICE-02: base 0.39 or bid 0.20 with 100 GB is 0.410833 or 0.220833 for the first hour."""
    disk = storage_charge(STORAGE_015, 100 * GB, HOUR)
    assert gpu_charge(parse_dollars("0.39"), HOUR) + disk == 410_833_333
    assert gpu_charge(parse_dollars("0.20"), HOUR) + disk == 220_833_333


# --- bandwidth (§5.4) -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rate", "count", "nanos"),
    [
        (UP_0003, 5_006_124, 15_018),
        (UP_001, 0, 0),
        (UP_001, 1, 0),
        (UP_001, 99, 0),
        (UP_001, 100, 1),
        (UP_001, 250, 2),
        (UP_0003, GB, 3_000_000),
    ],
)
def test_bytes_cost_the_floor_of_their_share_of_a_gigabyte(
    rate: int, count: int, nanos: int
) -> None:
    """PRICE-06: bytes are charged exactly, and too few of them cost nothing yet."""
    assert bandwidth_charge(rate, count) == nanos


def test_bytes_too_few_to_cost_anything_are_not_forgotten() -> None:
    """Ten times 99 bytes at $0.01/GB are 9 nanos: the fractions wait in the segment."""
    posted = increments(lambda count: bandwidth_charge(UP_001, count), [99] * 10)
    assert posted == [0, 1, 1, 1, 1, 1, 1, 1, 1, 1]
    assert list(accumulate(posted))[-1] == bandwidth_charge(UP_001, 990) == 9


# --- by meter, and in words -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("meter", "rate", "quantity", "nanos"),
    [
        ("gpu", RATE_040, 9, 1_000_000),
        ("storage", STORAGE_015, 4, 23_148),
        ("up", UP_0003, 5_006_124, 15_018),
        ("down", UP_001, 250, 2),
    ],
)
def test_each_meter_has_its_own_formula(meter: Meter, rate: int, quantity: int, nanos: int) -> None:
    """The charge of a segment is that of its meter: seconds for two, bytes for two."""
    assert charge_of(meter, rate, quantity, 100 * GB) == nanos


def test_only_storage_depends_on_the_disk() -> None:
    """PRICE-03: the size of the disk changes no other line."""
    for meter in METERS:
        small, large = (charge_of(meter, RATE_040, 10**9, size * GB) for size in (1, 2))
        assert (small != large) == (meter == "storage")


@pytest.mark.parametrize(
    ("meter", "numbers", "nanos", "dollars"),
    [
        ("gpu", "400000000 · 3600 // 3600", 400_000_000, "0.4"),
        (
            "storage",
            "400000000 · 100000000000 · 3600 // 2592000000000000",
            55_555_555,
            "0.055555555",
        ),
        ("up", "400000000 · 3600 // 1000000000", 1_440, "0.00000144"),
        ("down", "400000000 · 3600 // 1000000000", 1_440, "0.00000144"),
    ],
)
def test_the_explanation_of_a_charge_is_the_charge(
    meter: Meter, numbers: str, nanos: int, dollars: str
) -> None:
    """PRICE-06: what a line says about itself is what it charges, with all of its numbers."""
    told = explain_charge(meter, RATE_040, HOUR, 100 * GB)
    assert told[1:] == (numbers, nanos, dollars)
    assert told.nanos == charge_of(meter, RATE_040, HOUR, 100 * GB)
    assert told.formula.startswith("rate [nanos/")


@pytest.mark.parametrize("meter", METERS)
def test_an_auditor_can_work_an_explanation_out(meter: Meter) -> None:
    """The numbers of an explanation, worked out by hand, give its amount."""
    told = explain_charge(meter, 123_456_789, 987_654_321, 55 * GB)
    product, _, divisor = told.numbers.partition(" // ")
    worked = 1
    for factor in product.split(" · "):
        worked *= int(factor)
    assert worked // int(divisor) == told.nanos


def test_the_explanation_of_a_fee_is_the_fee() -> None:
    """A fee line tells its basis points, its charge and what they give."""
    told = explain_fee(1_500, 400_000_000)
    assert told.numbers == "1500 · 400000000 // 10000"
    assert (told.nanos, told.dollars) == (60_000_000, "0.06")
