from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
from hypothesis import example, given
from hypothesis import strategies as st

from ledger.domain.usage import (
    GPU_BILLABLE,
    InstanceBlock,
    ReportFault,
    UsageReport,
    block_states,
    body_hash,
    column_length,
    column_peak,
    column_total,
    column_values,
    compress_column,
    decode_header,
    decode_report,
    encode_report,
    ticks_of,
)
from tests.support.reports import REPORT, body_of, fields_of, sign, verifies

STATES = ["running", "frozen", "loading", "rebooting", "stopped", "exited", "gpu_lost", "unknown"]
counters = st.sampled_from([0, 0, 1, 66, 1500, 2**63 - 1]) | st.integers(0, 2**63 - 1)
columns = st.lists(counters, max_size=40) | st.lists(st.sampled_from([0, 9]), max_size=300)
utilisation = st.sampled_from([*range(101), 255])


@st.composite
def runs(draw: st.DrawFn, count: int) -> list[tuple[str, int]]:
    """Run lengths of states that add up to *count*."""
    cuts = sorted(draw(st.sets(st.integers(1, count), max_size=4)) | {count})
    lengths = [end - start for start, end in zip([0, *cuts], cuts, strict=False)]
    return [(draw(st.sampled_from(STATES)), length) for length in lengths]


@st.composite
def reports(draw: st.DrawFn) -> UsageReport:
    """A valid report of a few instances."""
    window = draw(st.integers(0, 30))
    start = draw(st.integers(0, 2**40))
    blocks = []
    numbers = draw(st.sets(st.integers(1, 2**63 - 1), max_size=3)) if window else set()
    for number in sorted(numbers, key=lambda one: one % 7):
        offset = draw(st.integers(0, window - 1))
        count = draw(st.integers(1, window - offset))
        up, down = (draw(st.lists(counters, min_size=count, max_size=count)) for _ in range(2))
        block = {
            "instance": number,
            "start": start + offset,
            "count": count,
            "state": draw(runs(count)),
            "up": compress_column(up),
            "down": down,
            "util": bytes(draw(st.lists(utilisation, min_size=count, max_size=count))),
        }
        blocks.append(msgspec.convert(block, InstanceBlock))
    return msgspec.structs.replace(
        REPORT,
        machine=draw(st.integers(1, 2**63 - 1)),
        seq=draw(st.integers(1, 2**63 - 1)),
        boot_id=draw(st.text(max_size=20)),
        start=start,
        count=window,
        instances=blocks,
    )


@given(reports())
def test_a_report_survives_the_wire(report: UsageReport) -> None:
    """Decoding what was encoded gives the report, and encoding that gives the bytes."""
    body = encode_report(report)
    assert decode_report(body) == report
    assert encode_report(decode_report(body)) == body
    header = decode_header(body)
    assert (header.machine, header.epoch, header.seq) == (report.machine, report.epoch, report.seq)


@given(reports(), st.integers(1, 2**40))
def test_ticks_are_the_columns_read_second_by_second(report: UsageReport, position: int) -> None:
    """LIFE-09: ticks carry all bytes and states of a report once, at consecutive places."""
    ticks = list(ticks_of(report, position))
    assert [tick.position for tick in ticks] == list(range(position, position + report.ticks))
    assert len({(tick.instance, tick.second) for tick in ticks}) == len(ticks)
    for block in report.instances:
        mine = [tick for tick in ticks if tick.instance == block.instance]
        assert [tick.second for tick in mine] == list(range(block.start, block.start + block.count))
        assert sum(tick.up_bytes for tick in mine) == column_total(block.up)
        assert max(tick.down_bytes for tick in mine) == column_peak(block.down)
        billable = sum(
            end - start for state, start, end in block_states(block) if state in GPU_BILLABLE
        )
        assert sum(tick.state in GPU_BILLABLE for tick in mine) == billable


@given(columns)
def test_a_column_survives_compression(values: list[int]) -> None:
    """LEDG-08: either form of a column has the same seconds, sum, peak and values."""
    column = compress_column(values)
    assert column_values(column) == values
    assert column_length(column) == len(values)
    assert column_total(column) == sum(values)
    assert column_peak(column) == max(values, default=0)
    assert len(column) <= max(len(values), 1)


@given(reports(), st.data())
def test_a_signature_fails_with_any_single_byte_changed(
    report: UsageReport, data: st.DataObject
) -> None:
    """No byte of a signed body can be changed without the signature failing and the hash moving."""
    body = encode_report(report)
    signature = sign(body)
    at = data.draw(st.integers(0, len(body) - 1))
    flipped = bytearray(body)
    flipped[at] ^= data.draw(st.integers(1, 255))
    assert verifies(signature, body)
    assert not verifies(signature, bytes(flipped))
    assert body_hash(bytes(flipped)) != body_hash(body)


def fault_of(read: Callable[[bytes], object], body: bytes) -> str | None:
    """The code that *read* refuses *body* with, or nothing; any other error fails the test."""
    try:
        read(body)
    except ReportFault as fault:
        return fault.code
    return None


def assert_refused_or_read(body: bytes) -> None:
    """Anything but an answer or a `ReportFault` fails the test that calls this."""
    assert fault_of(decode_header, body) in {None, "undecodable"}
    code = fault_of(decode_report, body)
    assert code in {None, "bad_shape", "bad_columns", "bad_window"}
    if code is None:
        report = decode_report(body)
        assert len(list(ticks_of(report, 1))) == report.ticks


@given(st.binary(max_size=200))
@example(b"\xc7\x0c\xff" + b"\xff" * 12)
def test_arbitrary_bytes_are_a_finding_at_worst(body: bytes) -> None:
    """Whatever bytes a host sends, they are read or refused with a code."""
    assert_refused_or_read(body)


@given(reports(), st.data())
def test_a_damaged_report_is_a_finding_at_worst(report: UsageReport, data: st.DataObject) -> None:
    """A report with bytes replaced, removed or inserted is read or refused, never a crash."""
    body = encode_report(report)
    start = data.draw(st.integers(0, len(body)))
    end = data.draw(st.integers(start, min(len(body), start + 8)))
    assert_refused_or_read(body[:start] + data.draw(st.binary(max_size=8)) + body[end:])


anything: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats()
    | st.text(max_size=8)
    | st.binary(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4)
    ),
    max_leaves=12,
)


@given(st.data(), anything)
def test_any_value_in_any_field_is_a_finding_at_worst(data: st.DataObject, value: Any) -> None:
    """ING-02: whatever stands in whichever field, the report is read or refused with a code."""
    fields = fields_of(REPORT)
    place = data.draw(st.sampled_from([fields, fields["instances"][0]]))
    place[data.draw(st.sampled_from(sorted(place)))] = value
    assert_refused_or_read(body_of(fields))
