from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from ledger.domain.ids import (
    account_stream,
    instance_stream,
    machine_stream,
    month_start,
    next_month_start,
    parse_rfc3339,
    rfc3339,
    usage_stream,
)

NEW_YEAR_2027 = 1_798_761_600
EPOCH = "9f2c" * 8


def test_every_kind_of_stream_has_its_own_name() -> None:
    """Two things with the same number never share a stream."""
    names = [account_stream(7), machine_stream(7), instance_stream(7), usage_stream(7, EPOCH)]
    assert names == ["account-7", "machine-7", "instance-7", f"usage-7-{EPOCH}"]


@pytest.mark.parametrize(
    ("second", "text"),
    [
        (0, "1970-01-01T00:00:00Z"),
        (NEW_YEAR_2027, "2027-01-01T00:00:00Z"),
        (NEW_YEAR_2027 - 1, "2026-12-31T23:59:59Z"),
        (1_709_164_800, "2024-02-29T00:00:00Z"),
    ],
)
def test_an_instant_is_written_and_read_in_utc(second: int, text: str) -> None:
    """Writing and reading an instant are inverse, to the second."""
    assert rfc3339(second) == text
    assert parse_rfc3339(text) == second


@pytest.mark.parametrize(
    "text",
    ["2027-01-01T01:00:00+01:00", "2026-12-31T14:00:00-10:00", "2027-01-01T00:00:00+00:00"],
)
def test_an_offset_is_applied(text: str) -> None:
    """One instant written in any zone is one second."""
    assert parse_rfc3339(text) == NEW_YEAR_2027


@pytest.mark.parametrize(
    "text",
    [
        "",
        "now",
        "2027-01-01",
        "2027-01-01T00:00:00",
        "2027-01-01T00:00:00.5Z",
        "2027-01-01T00:00:60Z",
        "2027-13-01T00:00:00Z",
        "2027-02-29T00:00:00Z",
        "1798761600",
    ],
)
def test_what_is_not_a_whole_second_with_an_offset_is_refused(text: str) -> None:
    """A local time, a fraction, a leap second or a day that does not exist names no instant."""
    with pytest.raises(ValueError, match=r".+"):
        parse_rfc3339(text)


@pytest.mark.parametrize(
    ("second", "start", "after"),
    [
        ("2027-01-01T00:00:00Z", "2027-01-01T00:00:00Z", "2027-02-01T00:00:00Z"),
        ("2026-12-31T23:59:59Z", "2026-12-01T00:00:00Z", "2027-01-01T00:00:00Z"),
        ("2028-02-29T12:00:00Z", "2028-02-01T00:00:00Z", "2028-03-01T00:00:00Z"),
        ("2027-02-28T23:59:59Z", "2027-02-01T00:00:00Z", "2027-03-01T00:00:00Z"),
        ("2027-01-31T00:00:00Z", "2027-01-01T00:00:00Z", "2027-02-01T00:00:00Z"),
    ],
)
def test_months_touch_and_never_overlap(second: str, start: str, after: str) -> None:
    """TIME-03: the next month starts after the second, also on the 31st and in December."""
    assert month_start(parse_rfc3339(second)) == parse_rfc3339(start)
    assert next_month_start(parse_rfc3339(second)) == parse_rfc3339(after)


@pytest.fixture(params=["America/Los_Angeles", "Australia/Sydney", "Pacific/Kiritimati"])
def local_zone(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Let the process live in another time zone."""
    with monkeypatch.context() as patch:
        patch.setenv("TZ", request.param)
        time.tzset()
        yield request.param
    time.tzset()


def test_the_zone_of_the_process_changes_nothing(local_zone: str) -> None:
    """TIME-01: reading, writing and month boundaries are the same wherever the program runs."""
    assert local_zone
    assert rfc3339(NEW_YEAR_2027) == "2027-01-01T00:00:00Z"
    assert parse_rfc3339("2027-01-01T00:00:00Z") == NEW_YEAR_2027
    assert month_start(NEW_YEAR_2027 + 5) == NEW_YEAR_2027
    assert next_month_start(NEW_YEAR_2027 - 1) == NEW_YEAR_2027
