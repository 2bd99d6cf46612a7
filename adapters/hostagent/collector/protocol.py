"""What agent and collector process say to each other: msgpack behind four bytes of length.

The parent asks one thing at a time and the child answers it; between the answers the child tells
of XID events by itself. Times are CLOCK_MONOTONIC nanoseconds, which both processes share.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, Literal

import msgspec

_LENGTH_BYTES: Final = 4
MAX_FRAME_BYTES: Final = 1_048_576
"""16 GPUs with thousands of processes fit; a longer frame is a broken child."""

Cadence = Literal[1, 5, 60]
"""Seconds between two sweeps; each cadence reads calls of its own."""
Status = Literal["ok", "not_supported", "no_permission", "function_missing", "error", "stale"]

Field = Literal[
    "util", "mem_util",
    "mem_total", "mem_used", "mem_reserved",
    "power_mw", "power_limit_mw", "temp_c", "energy_mj", "throttle", "sm_mhz", "mem_mhz", "pstate",
    "link_gen", "link_gen_max", "link_width", "link_width_max", "pcie_replays",
    "pcie_tx_kb_s", "pcie_rx_kb_s", "nvlinks",
    "ecc_corrected_volatile", "ecc_uncorrected_volatile",
    "ecc_corrected_aggregate", "ecc_uncorrected_aggregate",
    "rows_remapped_corrected", "rows_remapped_uncorrected", "rows_pending", "rows_failed",
    "pages_retired_single", "pages_retired_double",
    "procs", "proc_util",
]  # fmt: skip
"""What is read of one GPU; the unit ends the name, memory is in bytes, utilisation in percent."""


class ProcessMemory(msgspec.Struct, frozen=True, array_like=True):
    """One process on a GPU, by its pid in the host's namespace; bytes, null when unknown."""

    pid: int
    mem: int | None


class ProcessUtilisation(msgspec.Struct, frozen=True, array_like=True):
    """One sample of what a process did on a GPU; percent of the multiprocessors."""

    pid: int
    percent: int


class GpuIdentity(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What does not change while the driver stays loaded; null where NVML does not say."""

    uuid: str
    slot: int
    """Place in NVML's order in this generation: a label for people, never a key."""
    name: str | None = None
    serial: str | None = None
    pci: str | None = None
    """Bus address as `0000:01:00.0`."""
    minor: int | None = None
    vbios: str | None = None
    compute_capability: str | None = None
    memory_bytes: int | None = None
    memory_bandwidth_mb_s: int | None = None
    pcie_gen_max: int | None = None
    pcie_width_max: int | None = None
    power_limit_mw: int | None = None
    mig: bool | None = None
    """Null: the card knows no MIG. True: nothing more is read of it."""
    persistence: bool | None = None


class Versions(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Of driver, library and CUDA; null when unknown."""

    driver: str | None = None
    nvml: str | None = None
    cuda: str | None = None


class GpuRow(msgspec.Struct, kw_only=True, omit_defaults=True):
    """What one sweep read of one GPU: a number per field, or why there is none."""

    uuid: str
    values: dict[Field, int] = {}
    missing: dict[Field, Status] = {}
    procs: list[ProcessMemory] | None = None
    proc_util: list[ProcessUtilisation] | None = None


class Open(msgspec.Struct, frozen=True, tag="open"):
    """Begin a generation: initialise NVML and look which GPUs are there."""


class Sweep(msgspec.Struct, frozen=True, tag="sweep"):
    """Read what belongs to this cadence, of all GPUs of the generation."""

    cadence: Cadence


class Close(msgspec.Struct, frozen=True, tag="close"):
    """End the generation and let go of the driver."""


Question = Open | Sweep | Close


class Opened(msgspec.Struct, frozen=True, tag="opened", kw_only=True):
    """A generation has begun."""

    versions: Versions
    gpus: list[GpuIdentity]
    unreadable: list[int] = []
    """NVML codes of the places at which a GPU is counted and cannot be reached."""
    events: bool
    """False: XIDs come from the kernel's log alone."""


class Refused(msgspec.Struct, frozen=True, tag="refused"):
    """NVML could not be initialised."""

    code: int


class Swept(msgspec.Struct, frozen=True, tag="swept", kw_only=True):
    """The answer to a sweep. After `ended` the generation is over and NVML is shut down."""

    cadence: Cadence
    began_ns: int
    ended_ns: int
    rows: list[GpuRow]
    lost: list[str] = []
    """GPUs that fell off the bus, as far as this sweep saw."""
    present: list[str] | None = None
    """UUIDs found by counting anew; only in the 60 s sweep."""
    ended: int | None = None
    """The NVML code that ended the generation; -1 when the set of GPUs changed."""
    open_fds: int
    rss_bytes: int
    cpu_ns: int


class Closed(msgspec.Struct, frozen=True, tag="closed"):
    """The driver is let go of; false when the event thread kept it."""

    is_shut_down: bool


class Xid(msgspec.Struct, frozen=True, tag="xid"):
    """The driver reported a fault. Without a UUID it may be any GPU of the machine."""

    at_ns: int
    code: int
    uuid: str | None = None


class EventsFailed(msgspec.Struct, frozen=True, tag="events_failed"):
    """Waiting for events failed with this code; faults may have been missed."""

    at_ns: int
    code: int


Answer = Opened | Refused | Swept | Closed | Xid | EventsFailed

_encoder = msgspec.msgpack.Encoder()
_questions = msgspec.msgpack.Decoder(Question)
_answers = msgspec.msgpack.Decoder(Answer)


class BrokenFrameError(Exception):
    """The other side sent what is no frame; nothing after it can be read."""


def frame(message: Question | Answer) -> bytes:
    """*message* as it goes over the pipe."""
    body = _encoder.encode(message)
    assert len(body) <= MAX_FRAME_BYTES, len(body)
    return len(body).to_bytes(_LENGTH_BYTES, "big") + body


class Frames:
    """Bytes as they come from a pipe, cut into messages."""

    def __init__(self) -> None:
        """Begin at the start of a frame."""
        self._rest = bytearray()

    def _bodies(self, data: bytes) -> Iterator[bytes]:
        self._rest += data
        while len(self._rest) >= _LENGTH_BYTES:
            size = int.from_bytes(self._rest[:_LENGTH_BYTES], "big")
            if size > MAX_FRAME_BYTES:
                message = f"a frame of {size} bytes"
                raise BrokenFrameError(message)
            end = _LENGTH_BYTES + size
            if len(self._rest) < end:
                return
            body = bytes(self._rest[_LENGTH_BYTES:end])
            del self._rest[:end]
            yield body

    def answers(self, data: bytes) -> list[Answer]:
        """The answers that *data* completes.

        Raises:
            BrokenFrameError: They are none.
        """
        try:
            return [_answers.decode(body) for body in self._bodies(data)]
        except msgspec.MsgspecError as error:
            raise BrokenFrameError(str(error)) from error

    def questions(self, data: bytes) -> list[Question]:
        """The questions that *data* completes.

        Raises:
            BrokenFrameError: They are none.
        """
        try:
            return [_questions.decode(body) for body in self._bodies(data)]
        except msgspec.MsgspecError as error:
            raise BrokenFrameError(str(error)) from error
