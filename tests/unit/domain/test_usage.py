from __future__ import annotations

import hashlib
from copy import deepcopy
from typing import Any

import msgspec
import pytest

from ledger.domain.hardware import ConnectionPort, GpuInventory, Inventory
from ledger.domain.usage import (
    GENESIS_HASH,
    GPU_BILLABLE,
    MAX_BODY_BYTES,
    MAX_INSTANCES,
    MAX_WINDOW_SECONDS,
    SIGNING_PREFIX,
    CheckAnswer,
    Column,
    GpuProcess,
    GpuSample,
    HealthEvent,
    HostClock,
    InstanceBlock,
    Observation,
    ReportFault,
    Tick,
    UsageReport,
    as_json,
    block_states,
    body_hash,
    column_length,
    column_peak,
    column_total,
    column_values,
    compress_column,
    decode_header,
    decode_report,
    decode_stored,
    encode_report,
    key_id_of,
    ticks_of,
)
from tests.support.reports import (
    BLOCK,
    EPOCH,
    KEY,
    NEW_YEAR_2027,
    REPORT,
    body_of,
    fields_of,
    sign,
    verifies,
)

T = NEW_YEAR_2027
FULL = msgspec.structs.replace(
    REPORT,
    seq=184,
    prev="ab" * 32,
    clock=HostClock(
        mono_ns=81_234_567_890,
        boottime_ns=81_234_567_890,
        wall_ns=1_798_761_610_003_000_000,
        synced=True,
        offset_ms=-3,
        rtt_ms=21,
    ),
    observed=[
        Observation(
            instance=1001,
            assignment=3,
            state="running",
            at=T + 8,
            ports=[ConnectionPort(container_port=22, host_port=40022)],
            public_ip="192.0.2.7",
            digest="sha256:00",
        ),
        Observation(instance=1002, assignment=1, state="exited", at=T + 9, exit_code=137),
    ],
    health=[HealthEvent(at=T + 9, kind="xid", gpu_uuid="GPU-a", code=31, instance=1001)],
    gpus=[
        GpuSample(
            gpu_uuid="GPU-a",
            at=T + 5,
            util=97,
            mem_used=10**10,
            procs=[GpuProcess(container="c1", mem=None)],
        ),
        GpuSample(gpu_uuid="GPU-b", at=T + 5, status="stale"),
    ],
    inventory=Inventory(
        cpu_name="cpu",
        ram_mib=515_000,
        gpus=[GpuInventory(uuid="GPU-a", mib=81_920)],
        measured={"ram_mib": "/proc/meminfo"},
    ),
    answers=[CheckAnswer(slot=3, at=T + 2, result="ok", measures={"ms": 12, "note": None})],
)


# --- bytes ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("report", [REPORT, FULL], ids=["small", "full"])
def test_a_report_comes_back_as_it_was_sent(report: UsageReport) -> None:
    """Encoding, checking and reading from the log change nothing in a valid report."""
    body = encode_report(report)
    assert decode_report(body) == report
    assert decode_stored(body) == report
    assert encode_report(decode_report(body)) == body


def test_a_report_travels_as_a_map_with_the_documented_keys() -> None:
    """A report on the wire is a map under the key names of the reference, util as raw bytes."""
    fields = fields_of(REPORT)
    assert list(fields) == [
        "v",
        "machine",
        "epoch",
        "seq",
        "prev",
        "boot_id",
        "agent",
        "start",
        "count",
        "instances",
    ]
    assert fields["instances"][0] == {
        "instance": 1001,
        "start": T + 4,
        "count": 6,
        "state": [["loading", 4], ["running", 2]],
        "up": [0, 0, 0, 0, 1500, 66],
        "down": [[0, 4], [900, 1], [66, 1]],
        "util": bytes([255, 255, 255, 255, 0, 97]),
    }


def test_an_empty_report_is_a_report() -> None:
    """A window of no seconds and no instances is valid: it carries events only."""
    fields = fields_of(REPORT) | {"count": 0, "instances": []}
    report = decode_report(body_of(fields))
    assert (report.until, report.ticks) == (report.start, 0)


def test_null_and_absent_are_the_same_for_optional_parts() -> None:
    """A host may send null where it has no clock and no inventory."""
    fields = fields_of(REPORT) | {"clock": None, "inventory": None, "gpus": [], "answers": []}
    assert decode_report(body_of(fields)) == REPORT


def test_the_host_signs_the_prefix_and_the_body() -> None:
    """A signature made as the reference says is one that covers our prefix and the exact body."""
    body = encode_report(REPORT)
    assert SIGNING_PREFIX == b"ledger.usage-report.v1\x00"
    assert verifies(sign(body), body)


@pytest.mark.parametrize(
    "changed",
    [
        pytest.param(lambda body: body + b"\x00", id="a-byte-more"),
        pytest.param(lambda body: body[:-1], id="a-byte-less"),
        pytest.param(lambda body: b"", id="nothing"),
        pytest.param(lambda body: SIGNING_PREFIX + body, id="the-prefix-twice"),
        pytest.param(
            lambda body: encode_report(msgspec.structs.replace(decode_stored(body), machine=4002)),
            id="another-machine",
        ),
    ],
)
def test_a_signature_covers_nothing_but_its_body(changed: Any) -> None:
    """A signature of one body verifies for no other body."""
    body = encode_report(REPORT)
    assert not verifies(sign(body), changed(body))


def test_a_signature_over_the_bare_body_is_worthless() -> None:
    """Bytes signed for another purpose, without our prefix, are no report."""
    body = encode_report(REPORT)
    assert not verifies(KEY.sign(body), body)


def test_the_chain_hash_is_the_sha256_of_the_bytes() -> None:
    """LEDG-03: a body's hash is of the bytes as received, and the chain starts at 64 zeros."""
    body = encode_report(REPORT)
    assert body_hash(body) == hashlib.sha256(body).digest()
    assert GENESIS_HASH == "0" * 64


def test_a_key_is_named_by_the_start_of_its_hash() -> None:
    """A key id is the first 16 hex digits of SHA-256 of the raw public key."""
    assert key_id_of(bytes(32)) == hashlib.sha256(bytes(32)).hexdigest()[:16]
    assert key_id_of(bytes(32)) == "66687aadf862bd77"


def test_the_largest_window_of_all_instances_fits_the_body_limit() -> None:
    """Sixty seconds of 64 busy instances stay below 1 MiB without any run lengths."""
    count = 60
    block = InstanceBlock(
        instance=1,
        start=T,
        count=count,
        state=[("running", count)],
        up=[2**40 + second for second in range(count)],
        down=[2**40 - second for second in range(count)],
        util=bytes(count),
    )
    blocks = [msgspec.structs.replace(block, instance=2**40 + i) for i in range(MAX_INSTANCES)]
    report = msgspec.structs.replace(REPORT, count=count, instances=blocks)
    body = encode_report(report)
    assert len(body) < MAX_BODY_BYTES
    assert decode_report(body).ticks == MAX_INSTANCES * count


# --- what is wrong with a report ------------------------------------------------------------------


def spoiled(*path: str | int, to: Any) -> dict[str, Any]:
    """The report with one value replaced."""
    fields = deepcopy(fields_of(FULL))
    place: Any = fields
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = to
    return fields


def without(*path: str | int) -> dict[str, Any]:
    """The report with one key removed."""
    fields = deepcopy(fields_of(FULL))
    place: Any = fields
    for step in path[:-1]:
        place = place[step]
    del place[path[-1]]
    return fields


BAD_SHAPES = {
    "version 2": spoiled("v", to=2),
    "version 0": spoiled("v", to=0),
    "a version as text": spoiled("v", to="1"),
    "a version as a truth value": spoiled("v", to=True),
    "an unknown field": spoiled("extra", to=1),
    "an unknown field in a block": spoiled("instances", 0, "price", to=1),
    "an unknown field in the clock": spoiled("clock", "tz", to="UTC"),
    "an unknown field in an observation": spoiled("observed", 0, "cost", to=0),
    "an unknown field in the inventory": spoiled("inventory", "x", to=0),
    "machine 0": spoiled("machine", to=0),
    "a negative machine": spoiled("machine", to=-4001),
    "a machine as a float": spoiled("machine", to=4001.5),
    "an epoch in capitals": spoiled("epoch", to="9F2C" * 8),
    "an epoch too short": spoiled("epoch", to=EPOCH[1:]),
    "an epoch too long": spoiled("epoch", to=EPOCH + "0"),
    "an epoch with a line end": spoiled("epoch", to=EPOCH + "\n"),
    "prev with a line end": spoiled("prev", to=GENESIS_HASH + "\n"),
    "seq 0": spoiled("seq", to=0),
    "seq 2^63": spoiled("seq", to=2**63),
    "prev that is no hash": spoiled("prev", to="0" * 63),
    "a boot id of 257 letters": spoiled("boot_id", to="b" * 257),
    "a negative start": spoiled("start", to=-1),
    "a negative count": spoiled("count", to=-1),
    "a window of 301 seconds": spoiled("count", to=MAX_WINDOW_SECONDS + 1),
    "a count as a float": spoiled("count", to=10.0),
    "no instances list": spoiled("instances", to={}),
    "65 instances": spoiled(
        "instances", to=[fields_of(REPORT)["instances"][0]] * (MAX_INSTANCES + 1)
    ),
    "instance 0": spoiled("instances", 0, "instance", to=0),
    "a block of no seconds": spoiled("instances", 0, "count", to=0),
    "a block of 301 seconds": spoiled("instances", 0, "count", to=301),
    "a state that does not exist": spoiled("instances", 0, "state", to=[["idle", 6]]),
    "a state without a length": spoiled("instances", 0, "state", to=[["running"]]),
    "a state with two lengths": spoiled("instances", 0, "state", to=[["running", 3, 3]]),
    "a state of negative length": spoiled("instances", 0, "state", to=[["running", -6]]),
    "states as plain text": spoiled("instances", 0, "state", to=["running"] * 6),
    "negative bytes": spoiled("instances", 0, "up", to=[0, 0, 0, 0, 1500, -66]),
    "bytes of 2^63": spoiled("instances", 0, "up", to=[0, 0, 0, 0, 0, 2**63]),
    "bytes of 2^64 - 1": spoiled("instances", 0, "up", to=[0, 0, 0, 0, 0, 2**64 - 1]),
    "bytes as a float": spoiled("instances", 0, "up", to=[0, 0, 0, 0, 0, 1.5]),
    "bytes that are not a number": spoiled("instances", 0, "up", to=[0] * 5 + [float("nan")]),
    "bytes as text": spoiled("instances", 0, "up", to=["0"] * 6),
    "bytes as truth values": spoiled("instances", 0, "up", to=[True] * 6),
    "null bytes": spoiled("instances", 0, "up", to=[None] * 6),
    "a run of negative bytes": spoiled("instances", 0, "down", to=[[-1, 6]]),
    "a run of negative length": spoiled("instances", 0, "down", to=[[0, 7], [0, -1]]),
    "a run of 2^63 bytes": spoiled("instances", 0, "down", to=[[2**63, 6]]),
    "utilisation as a list": spoiled("instances", 0, "util", to=[0] * 6),
    "utilisation as text": spoiled("instances", 0, "util", to="000000"),
    "an observation of an unknown state": spoiled("observed", 0, "state", to="happy"),
    "an observation before time": spoiled("observed", 0, "at", to=-1),
    "an observation of no instance": spoiled("observed", 0, "instance", to=0),
    "a health event of an unknown kind": spoiled("health", 0, "kind", to="rain"),
    "a GPU reading below zero": spoiled("gpus", 0, "mem_used", to=-1),
    "a GPU status that does not exist": spoiled("gpus", 1, "status", to="fine"),
    "17 GPUs in the inventory": spoiled("inventory", "gpus", to=[{"uuid": "GPU-a"}] * 17),
    "a measure that is a float": spoiled("answers", 0, "measures", "ms", to=1.5),
} | {
    f"no {name}": without(name)
    for name in ("v", "machine", "epoch", "seq", "prev", "boot_id", "agent", "start", "count")
} | {
    f"no {name} in a block": without("instances", 0, name)
    for name in ("instance", "start", "count", "state", "up", "down", "util")
}  # fmt: skip

BAD_COLUMNS = {
    "a second too few going up": spoiled("instances", 0, "up", to=[0] * 5),
    "a second too many going up": spoiled("instances", 0, "up", to=[0] * 7),
    "nothing going up": spoiled("instances", 0, "up", to=[]),
    "runs too short": spoiled("instances", 0, "down", to=[[0, 5]]),
    "runs too long": spoiled("instances", 0, "down", to=[[0, 4], [1, 3]]),
    "a run that never ends": spoiled("instances", 0, "down", to=[[0, 2**63 - 1]]),
    "runs after integers": spoiled("instances", 0, "up", to=[0, 0, 0, 0, 0, [0, 1]]),
    "integers after runs": spoiled("instances", 0, "up", to=[[0, 5], 0]),
    "a run without a length": spoiled("instances", 0, "up", to=[[0, 5], [0]]),
    "an empty run": spoiled("instances", 0, "up", to=[[0, 6], []]),
    "a run of three": spoiled("instances", 0, "up", to=[[0, 6, 0]]),
    "states too short": spoiled("instances", 0, "state", to=[["running", 5]]),
    "states too long": spoiled("instances", 0, "state", to=[["running", 4], ["frozen", 3]]),
    "no states": spoiled("instances", 0, "state", to=[]),
    "utilisation too short": spoiled("instances", 0, "util", to=bytes(5)),
    "utilisation too long": spoiled("instances", 0, "util", to=bytes(7)),
    "utilisation of 101": spoiled("instances", 0, "util", to=bytes([0, 0, 0, 0, 0, 101])),
    "utilisation of 254": spoiled("instances", 0, "util", to=bytes([254, 0, 0, 0, 0, 0])),
    "one instance twice": spoiled("instances", to=[*fields_of(REPORT)["instances"]] * 2),
}

BAD_WINDOWS = {
    "a block that starts before the window": spoiled("instances", 0, "start", to=T - 1),
    "a block that ends after the window": spoiled("instances", 0, "start", to=T + 5),
    "a block in another century": spoiled("instances", 0, "start", to=2**63 - 1),
    "a block in a window of no seconds": spoiled("count", to=0),
}


@pytest.mark.parametrize("fields", BAD_SHAPES.values(), ids=BAD_SHAPES.keys())
def test_what_a_report_cannot_say_is_a_bad_shape(fields: dict[str, Any]) -> None:
    """A missing, unknown, mistyped or out-of-range field is `bad_shape`, with a short reason."""
    with pytest.raises(ReportFault) as fault:
        decode_report(body_of(fields))
    assert fault.value.code == "bad_shape"
    assert 0 < len(fault.value.reason) <= 256


@pytest.mark.parametrize("fields", BAD_COLUMNS.values(), ids=BAD_COLUMNS.keys())
def test_columns_that_disagree_are_bad_columns(fields: dict[str, Any]) -> None:
    """A column without one value for each second, or an instance twice, is `bad_columns`."""
    with pytest.raises(ReportFault) as fault:
        decode_report(body_of(fields))
    assert fault.value.code == "bad_columns"
    assert "1001" in fault.value.reason


@pytest.mark.parametrize("fields", BAD_WINDOWS.values(), ids=BAD_WINDOWS.keys())
def test_a_block_outside_the_window_is_a_bad_window(fields: dict[str, Any]) -> None:
    """Ticks outside the seconds that the report attests are `bad_window`."""
    with pytest.raises(ReportFault) as fault:
        decode_report(body_of(fields))
    assert fault.value.code == "bad_window"


@pytest.mark.parametrize(
    "fields",
    [*BAD_SHAPES.values(), *BAD_COLUMNS.values(), *BAD_WINDOWS.values()],
    ids=[*BAD_SHAPES, *BAD_COLUMNS, *BAD_WINDOWS],
)
def test_a_faulty_report_keeps_its_place_as_long_as_it_is_named(fields: dict[str, Any]) -> None:
    """ING-02: whatever else is wrong, a report that names itself can be filed under its name."""
    named = (fields.get("machine"), fields.get("epoch"), fields.get("seq"))
    if named == (4001, EPOCH, 184):
        header = decode_header(body_of(fields))
        assert (header.machine, header.epoch, header.seq) == named
    else:
        with pytest.raises(ReportFault) as fault:
            decode_header(body_of(fields))
        assert fault.value.code == "undecodable"


def test_the_largest_numbers_of_the_format_are_accepted() -> None:
    """2^63 - 1 bytes in one second are a claim like any other, judged later."""
    top = 2**63 - 1
    fields = spoiled("instances", 0, "up", to=[top] * 6) | {"seq": top, "machine": top}
    report = decode_report(body_of(fields))
    assert column_total(report.instances[0].up) == 6 * top


NOT_A_REPORT = {
    "nothing": b"",
    "null": b"\xc0",
    "a number": b"\x01",
    "an empty map": b"\x80",
    "an empty array": b"\x90",
    "JSON": b'{"v":1,"machine":4001}',
    "never-used byte": b"\xc1",
    "text that is not UTF-8": b"\x81\xa1\xff\x01",
    "an epoch that is not UTF-8": body_of(fields_of(REPORT)).replace(EPOCH.encode(), b"\xff" * 32),
    "a map that claims 2^32 - 1 entries": b"\xdf\xff\xff\xff\xff",
    "an array that claims 2^32 - 1 items": b"\xdd\xff\xff\xff\xff",
    "text that claims 2^32 - 1 bytes": b"\xdb\xff\xff\xff\xff",
    "an extension": b"\xc7\x0c\xff" + b"\xff" * 12,
    "10,000 nested arrays": b"\x91" * 10_000 + b"\xc0",
    "10,000 nested arrays that never end": b"\x91" * 10_000,
    "10,000 nested maps": b"\x81\xa1x" * 10_000 + b"\xc0",
    "a million nested arrays": b"\x91" * 1_000_000 + b"\xc0",
    "10,000 nested arrays in a field": b"\x81\xa9instances" + b"\x91" * 10_000 + b"\xc0",
    "10,000 nested arrays in an unknown field": b"\x81\xa1x" + b"\x91" * 10_000 + b"\xc0",
}


@pytest.mark.parametrize("body", NOT_A_REPORT.values(), ids=NOT_A_REPORT.keys())
def test_bytes_that_are_no_report_are_a_finding_not_a_crash(body: bytes) -> None:
    """Garbage, truncated, endless or deeply nested bytes are refused with a code, every time."""
    with pytest.raises(ReportFault) as fault:
        decode_header(body)
    assert fault.value.code == "undecodable"
    with pytest.raises(ReportFault) as fault:
        decode_report(body)
    assert fault.value.code == "bad_shape"


@pytest.mark.parametrize("depth", [100, 10_000])
@pytest.mark.parametrize(
    "path",
    [
        ("instances", 0, "up"),
        ("instances", 0, "state"),
        ("answers", 0, "measures"),
        ("inventory", "measured"),
        ("inventory", "gpus"),
        ("observed", 0, "ports"),
    ],
    ids=lambda path: path[-1],
)
def test_nesting_inside_a_field_is_a_bad_shape(path: tuple[str | int, ...], depth: int) -> None:
    """However deep the nesting and wherever it hides, the report is a bad shape."""
    marker = "a place for the nest"
    body = body_of(spoiled(*path, to=marker))
    packed = msgspec.msgpack.encode(marker)
    assert body.count(packed) == 1
    with pytest.raises(ReportFault) as fault:
        decode_report(body.replace(packed, b"\x91" * depth + b"\xc0"))
    assert fault.value.code == "bad_shape"


def test_every_truncation_of_a_report_is_refused() -> None:
    """A report cut off at any byte is a bad shape, never a shorter report."""
    body = encode_report(FULL)
    for cut in range(len(body)):
        with pytest.raises(ReportFault) as fault:
            decode_report(body[:cut])
        assert fault.value.code == "bad_shape"


def test_a_byte_after_the_report_is_refused() -> None:
    """A body is one report to its last byte: nothing can hide behind it."""
    with pytest.raises(ReportFault) as fault:
        decode_report(encode_report(REPORT) + b"\xc0")
    assert fault.value.code == "bad_shape"


def test_a_fault_tells_people_and_programs() -> None:
    """A finding carries its stable code and its sentence."""
    fault = ReportFault("bad_window", "outside")
    assert (fault.code, fault.reason, str(fault)) == ("bad_window", "outside", "outside")


# --- columns --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("column", "length", "total", "peak", "values"),
    [
        pytest.param([], 0, 0, 0, [], id="empty"),
        pytest.param([5], 1, 5, 5, [5], id="one-second"),
        pytest.param([0, 7, 3], 3, 10, 7, [0, 7, 3], id="integers"),
        pytest.param([[7, 3]], 3, 21, 7, [7, 7, 7], id="one-run"),
        pytest.param([[0, 2], [9, 1]], 3, 9, 9, [0, 0, 9], id="two-runs"),
        pytest.param([[9, 0], [1, 2]], 2, 2, 9, [1, 1], id="a-run-of-no-seconds"),
        pytest.param(
            [[2**63 - 1, 300]], 300, 300 * (2**63 - 1), 2**63 - 1, [2**63 - 1] * 300, id="huge"
        ),
    ],
)
def test_a_column_of_integers_or_runs(
    column: Column, length: int, total: int, peak: int, values: list[int]
) -> None:
    """LEDG-08: both forms have the same length, sum, peak and values, without a narrow integer."""
    assert column_length(column) == length
    assert column_total(column) == total
    assert column_peak(column) == peak
    assert column_values(column) == values


@pytest.mark.parametrize(
    "column", [[1, [1, 1]], [[1, 1], 1], [[1]], [[]], [[1, 1, 1]], [[1, 1], []]]
)
def test_a_mixed_column_has_no_length(column: Column) -> None:
    """A column that mixes the forms, or holds a run of another length than two, has no length."""
    assert column_length(column) == -1


@pytest.mark.parametrize(
    ("values", "column"),
    [
        pytest.param([], [], id="nothing"),
        pytest.param([0], [0], id="one"),
        pytest.param([0, 0], [[0, 2]], id="two-equal"),
        pytest.param([0] * 300, [[0, 300]], id="all-equal"),
        pytest.param([1, 2, 3], [1, 2, 3], id="all-different"),
        pytest.param([1, 1, 2, 2], [[1, 2], [2, 2]], id="half"),
        pytest.param([1, 1, 2], [1, 1, 2], id="more-than-half"),
        pytest.param([0, 0, 0, 0, 1500, 66], [[0, 4], [1500, 1], [66, 1]], id="a-start"),
    ],
)
def test_a_column_is_written_in_the_shorter_form(values: list[int], column: Column) -> None:
    """Runs are used when at most half as many as the seconds, else the plain integers."""
    assert compress_column(values) == column


def test_compressing_leaves_the_callers_list_alone() -> None:
    """The column is a new list: changing it later does not change the counters it came from."""
    values = [1, 2, 3]
    column = compress_column(values)
    column.append(4)
    assert values == [1, 2, 3]


# --- ticks ----------------------------------------------------------------------------------------


def test_only_a_running_or_frozen_process_is_billable() -> None:
    """LIFE-08: of all attested states exactly two run the GPU meter."""
    assert {"running", "frozen"} == GPU_BILLABLE


def test_the_runs_of_a_block_are_half_open_and_touch() -> None:
    """Each run starts in the second in which the one before ended."""
    assert list(block_states(BLOCK)) == [
        ("loading", T + 4, T + 8),
        ("running", T + 8, T + 10),
    ]


def test_every_tick_has_its_own_place_in_the_log() -> None:
    """ING-03: ticks are numbered by instance and second, from the place of their report."""
    other = InstanceBlock(
        instance=1002,
        start=T,
        count=2,
        state=[("frozen", 2)],
        up=[[8, 2]],
        down=[1, 2],
        util=bytes([100, 255]),
    )
    report = msgspec.structs.replace(REPORT, instances=[BLOCK, other])
    assert list(ticks_of(report, 500)) == [
        Tick(1001, T + 4, "loading", 0, 0, -1, 500),
        Tick(1001, T + 5, "loading", 0, 0, -1, 501),
        Tick(1001, T + 6, "loading", 0, 0, -1, 502),
        Tick(1001, T + 7, "loading", 0, 0, -1, 503),
        Tick(1001, T + 8, "running", 1500, 900, 0, 504),
        Tick(1001, T + 9, "running", 66, 66, 97, 505),
        Tick(1002, T, "frozen", 8, 1, 100, 506),
        Tick(1002, T + 1, "frozen", 8, 2, -1, 507),
    ]
    assert report.ticks == 8
    assert report.until == T + 10


def test_a_report_without_instances_has_no_ticks() -> None:
    """A report that only keeps the machine online takes no tick places."""
    report = msgspec.structs.replace(REPORT, instances=[])
    assert list(ticks_of(report, 500)) == []
    assert report.ticks == 0


def test_an_auditor_reads_utilisation_as_numbers() -> None:
    """Shown to people, unknown utilisation is -1 and the rest are percents, one a second."""
    shown = as_json(FULL)
    assert shown["instances"][0]["util"] == [-1, -1, -1, -1, 0, 97]
    assert (shown["machine"], shown["seq"]) == (4001, 184)
    assert "instances" not in as_json(msgspec.structs.replace(REPORT, instances=[]))
