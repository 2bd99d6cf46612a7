"""The usage report: what a host attests, column by column, and the bytes it signs.

A report attests finished seconds of one machine, `[start, start + count)`, and holds one block of
columns per instance. A tick is one second of one block. The body is msgpack and is kept byte for
byte, because the signature covers `SIGNING_PREFIX + body` (`host-agent.md` §11).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Annotated, Any, Final, Literal, NamedTuple, cast, dataclass_transform

import msgspec
from msgspec import Meta

from ledger.domain.hardware import ConnectionPort, Inventory

SIGNING_PREFIX: Final = b"ledger.usage-report.v1\x00"
GENESIS_HASH: Final = "0" * 64
MAX_BODY_BYTES: Final = 1_048_576
MAX_REPORTS_PER_REQUEST: Final = 100
MAX_WINDOW_SECONDS: Final = 300
MAX_INSTANCES: Final = 64
MAX_GPUS: Final = 16
UNKNOWN_UTILISATION: Final = 255

GPU_BILLABLE: Final = frozenset({"running", "frozen"})
TickState = Literal[
    "running", "frozen", "loading", "rebooting", "stopped", "exited", "gpu_lost", "unknown"
]
ObservedState = Literal["loading", "running", "exited", "launch_failed", "disk_gone", "gpu_lost"]
HealthKind = Literal[
    "gpu_missing", "gpu_lost", "instance_gpu_lost", "nvml_unavailable", "telemetry_gap", "xid",
    "ecc_uncorrected", "throttled", "reboot_required", "persistence_off", "foreign_process",
    "disk_high", "disk_critical", "counter_reset", "counter_glitch", "counter_gap", "new_key",
    "baseline_lost", "bandwidth_implausible", "clock_step", "suspended", "boot_changed",
    "spool_high", "inventory_changed",
]  # fmt: skip

Name = Annotated[str, Meta(max_length=256)]
Natural = Annotated[int, Meta(ge=0, le=2**63 - 1)]
PositiveId = Annotated[int, Meta(ge=1, le=2**63 - 1)]
Epoch = Annotated[str, Meta(pattern=r"^[0-9a-f]{32}\Z")]
Digest = Annotated[str, Meta(pattern=r"^[0-9a-f]{64}\Z")]
Column = list[Natural | list[Natural]]
"""Integers, one a second; or runs `[value, seconds]` where that is shorter.

Never both in one column. A run is a list checked for length here: msgspec 0.23 crashes on a union
of a bounded integer and a tuple.
"""

_KNOWN_UTILISATION: Final = bytes([*range(101), UNKNOWN_UTILISATION])


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(msgspec.field,))
class _Part(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True
):
    """A part of a report; unknown fields are refused, so a new field needs a new `v`."""


class InstanceBlock(_Part):
    """The ticks of one instance.

    `count` seconds from `start`, one value per second in each column.
    """

    instance: PositiveId
    start: Natural
    count: Annotated[int, Meta(ge=1, le=MAX_WINDOW_SECONDS)]
    state: list[tuple[TickState, Natural]]
    up: Column
    down: Column
    util: bytes


class HostClock(_Part):
    """The host's clocks at sealing; nanoseconds and milliseconds."""

    mono_ns: int
    boottime_ns: int
    wall_ns: int
    synced: bool
    offset_ms: int | None = None
    rtt_ms: int | None = None


class Observation(_Part):
    """A change of state that the host saw on one instance, with the assignment it belongs to."""

    instance: PositiveId
    assignment: Natural
    state: ObservedState
    at: Natural
    exit_code: int | None = None
    reason: Name | None = None
    ports: list[ConnectionPort] | None = None
    public_ip: Name | None = None
    digest: Name | None = None


class HealthEvent(_Part):
    """Something about the machine's health; facts for reliability, never for a bill."""

    at: Natural
    kind: HealthKind
    gpu_uuid: Name | None = None
    code: int | None = None
    instance: PositiveId | None = None
    seconds: Natural | None = None
    up: Natural | None = None
    down: Natural | None = None
    detail: Name | None = None


class GpuProcess(_Part):
    """Memory one container holds on a GPU; bytes, null when unknown."""

    container: Name | None
    mem: Natural | None = None


class GpuSample(_Part):
    """One reading of one GPU; null where the driver gave no number."""

    gpu_uuid: Name
    at: Natural
    util: int | None = None
    mem_used: Natural | None = None
    mem_reserved: Natural | None = None
    mem_total: Natural | None = None
    power_mw: Natural | None = None
    temp_c: int | None = None
    energy_mj: Natural | None = None
    throttle: Natural | None = None
    link_gen: int | None = None
    link_width: int | None = None
    procs: list[GpuProcess] | None = None
    status: Literal[
        "ok", "not_supported", "no_permission", "function_missing", "error", "stale"
    ] = "ok"


class CheckAnswer(_Part):
    """The host's answer to a check that the platform issued."""

    slot: Natural
    at: Natural
    result: Name
    measures: dict[Name, int | str | None] = {}


class UsageReport(_Part):
    """What one machine attests for one window of finished seconds."""

    v: Literal[1]
    machine: PositiveId
    epoch: Epoch
    seq: PositiveId
    prev: Digest
    boot_id: Name
    agent: Name
    start: Natural
    count: Annotated[int, Meta(ge=0, le=MAX_WINDOW_SECONDS)]
    clock: HostClock | None = None
    instances: Annotated[list[InstanceBlock], Meta(max_length=MAX_INSTANCES)] = []
    observed: Annotated[list[Observation], Meta(max_length=4 * MAX_INSTANCES)] = []
    health: Annotated[list[HealthEvent], Meta(max_length=256)] = []
    gpus: Annotated[list[GpuSample], Meta(max_length=MAX_GPUS * MAX_WINDOW_SECONDS)] = []
    inventory: Inventory | None = None
    answers: Annotated[list[CheckAnswer], Meta(max_length=256)] = []

    @property
    def until(self) -> int:
        """The first second after the window."""
        return self.start + self.count

    @property
    def brings_news(self) -> bool:
        """Whether facts may follow from the report, before its ticks are judged."""
        return bool(self.observed or self.answers or self.health or self.inventory)

    @property
    def ticks(self) -> int:
        """How many ticks the report carries; each has its own place in the log."""
        return sum([block.count for block in self.instances])


class ReportHeader(msgspec.Struct, frozen=True):
    """As much of a report as names its place in the log, whatever else is wrong with it."""

    machine: PositiveId
    epoch: Epoch
    seq: PositiveId


class ReportFault(Exception):  # noqa: N818 - it is a finding about a report, kept in the log
    """A correctly signed report that cannot be billed.

    It takes its place in the stream with this code.
    """

    def __init__(self, code: str, reason: str) -> None:
        """Keep the stable *code* and the *reason* for people."""
        super().__init__(reason)
        self.code = code
        self.reason = reason


class Tick(NamedTuple):
    """The attested state of one instance in one UTC second."""

    instance: int
    second: int
    state: str
    up_bytes: int
    down_bytes: int
    utilisation: int
    """Percent, or -1 when no GPU answered."""
    position: int


_encoder = msgspec.msgpack.Encoder()
_report_decoder = msgspec.msgpack.Decoder(UsageReport)
_header_decoder = msgspec.msgpack.Decoder(ReportHeader)


def encode_report(report: UsageReport) -> bytes:
    """The body of *report*: the bytes that are signed, sent and kept."""
    return _encoder.encode(report)


def decode_stored(body: bytes) -> UsageReport:
    """A report from the log, where only validated bodies lie."""
    return _report_decoder.decode(body)


def decode_header(body: bytes) -> ReportHeader:
    """The report's name (machine, epoch, seq).

    Raises:
        ReportFault: ``undecodable``; such a body has no place in the log.
    """
    try:
        return _header_decoder.decode(body)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise ReportFault("undecodable", f"the body does not name a report: {error}") from None


def decode_report(body: bytes) -> UsageReport:
    """A report whose columns are consistent.

    Raises:
        ReportFault: `bad_shape` when a field is missing, unknown or of the wrong type or range,
            `bad_columns` when counts do not match, `bad_window` when a block lies outside the
            window.
    """
    try:
        report = _report_decoder.decode(body)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise ReportFault("bad_shape", str(error)[:256]) from None
    _check(report)
    return report


def _check(report: UsageReport) -> None:
    start, until = report.start, report.start + report.count
    seen: set[int] = set()
    for block in report.instances:
        count = block.count
        if block.instance in seen:
            raise ReportFault(
                "bad_columns", f"instance {block.instance} appears twice in one report"
            )
        seen.add(block.instance)
        if block.start < start or block.start + count > until:
            reason = f"the block of instance {block.instance} lies outside the report's window"
            raise ReportFault("bad_window", reason)
        if (
            len(block.util) != count
            or column_length(block.up) != count
            or column_length(block.down) != count
            or sum([seconds for _, seconds in block.state]) != count
        ):
            reason = f"the columns of instance {block.instance} do not have {count} values each"
            raise ReportFault("bad_columns", reason)
        if block.util.translate(None, _KNOWN_UTILISATION):
            reason = f"instance {block.instance}: utilisation is 0 to 100, or 255 for unknown"
            raise ReportFault("bad_columns", reason)


def column_length(column: Column) -> int:
    """Seconds in a column, or -1 when it mixes integers and runs."""
    if not column:
        return 0
    try:
        if type(column[0]) is int:
            # The quickest pass at C speed that stumbles over a run among integers.
            sum(cast("list[int]", column))
            return len(column)
        return sum([seconds for _, seconds in cast("list[list[int]]", column)])
    except (TypeError, ValueError):
        return -1


def column_total(column: Column) -> int:
    """Sum of a column over all its seconds."""
    if column and type(column[0]) is list:
        return sum([value * seconds for value, seconds in cast("list[list[int]]", column)])
    return sum(cast("list[int]", column))


def column_peak(column: Column) -> int:
    """Greatest value of a column; 0 when it is empty."""
    if column and type(column[0]) is list:
        return max([value for value, _ in cast("list[list[int]]", column)])
    return max(cast("list[int]", column), default=0)


def column_values(column: Column) -> list[int]:
    """One integer a second."""
    if column and type(column[0]) is list:
        runs = cast("list[list[int]]", column)
        return [value for value, seconds in runs for _ in range(seconds)]
    return cast("list[int]", column)


def compress_column(values: list[int]) -> Column:
    """Runs when they are fewer bytes than the integers, else the integers."""
    runs: list[list[int]] = []
    for value in values:
        if runs and runs[-1][0] == value:
            runs[-1][1] += 1
        else:
            runs.append([value, 1])
            if 2 * len(runs) > len(values):
                return list(values)
    return list(runs)


def block_states(block: InstanceBlock) -> Iterator[tuple[str, int, int]]:
    """The runs of a block as (state, first second, end second)."""
    second = block.start
    for state, seconds in block.state:
        yield state, second, second + seconds
        second += seconds


def ticks_of(report: UsageReport, position: int) -> Iterator[Tick]:
    """Every tick of a report stored at *position*, in log order.

    Instance by instance, second by second.
    """
    for block in report.instances:
        states = [state for state, seconds in block.state for _ in range(seconds)]
        rows = zip(
            states, column_values(block.up), column_values(block.down), block.util, strict=True
        )
        for offset, (state, up, down, util) in enumerate(rows):
            percent = -1 if util == UNKNOWN_UTILISATION else util
            yield Tick(
                block.instance, block.start + offset, state, up, down, percent, position + offset
            )
        position += block.count


def body_hash(body: bytes) -> bytes:
    """SHA-256 of a body: what the next report's `prev` names."""
    return hashlib.sha256(body).digest()


def key_id_of(public_key: bytes) -> str:
    """Key id: the first 16 hex digits of SHA-256 of the 32 raw public bytes."""
    return hashlib.sha256(public_key).hexdigest()[:16]


def as_json(report: UsageReport) -> dict[str, Any]:
    """The report as an auditor reads it; bytes become lists, 255 becomes -1."""
    shown: dict[str, Any] = msgspec.to_builtins(report)
    for block, raw in zip(shown.get("instances", []), report.instances, strict=True):
        block["util"] = [-1 if util == UNKNOWN_UTILISATION else util for util in raw.util]
    return shown
