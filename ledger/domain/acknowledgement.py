"""The answer to `POST /v1/usage`: one status per report, one acknowledgement per stream of reports.

Server and agent share these structs. Unknown fields are ignored, so that an old agent understands
a newer server (`host-agent.md` §12.2).
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

ReportStatus = Literal[
    "accepted",
    "duplicate",
    "conflict",
    "chain_fork",
    "rejected",
    "sequence_gap",
    "too_early",
    "unauthorized",
    "undecodable",
]
WantedState = Literal["running", "stopped", "gone"]


class ReportAnswer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What became of one report of the request, in the order of the request."""

    machine: int
    epoch: str
    seq: int
    status: ReportStatus
    code: str | None = None
    reason: str | None = None
    expected: int | None = None
    """The next `seq` that the server would store; set on a sequence gap."""
    position: int | None = None
    """Place of the report's first tick in the log; set once it is stored."""
    hash: str | None = None
    """SHA-256 of the stored body, in hex; set once it is stored."""


class Rejection(msgspec.Struct, frozen=True, kw_only=True):
    """A report that took its place in the stream and bills nothing."""

    seq: int
    code: str
    reason: str


class DesiredMount(msgspec.Struct, frozen=True, kw_only=True):
    """A volume that an instance has, and where."""

    volume: int
    mount_path: str


class DesiredVolume(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A disk that the host keeps apart from instances, or is to remove."""

    volume: int
    want: Literal["kept", "gone"]
    disk_bytes: int
    cloned_from: int | None = None
    """The volume with whose contents it begins; it may be on another machine."""


class DesiredInstance(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the host is to do with one instance."""

    instance: int
    assignment: int
    want: WantedState
    gpu_uuids: list[str] = []
    disk_bytes: int = 0
    run_until: int | None = None
    """Credit lease: an agent without contact stops the instance at this second; null for never."""
    at_once: bool = False
    """It is killed without grace: it was displaced, or its account ran dry."""
    reboots: int = 0
    """How often the renter asked for a restart in place; the agent moves towards this number."""
    spec: dict[str, Any] | None = None
    """What it is started from; only in answers to requests that the machine itself signed."""
    volumes: list[DesiredMount] = []


class Desired(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Everything that one machine is to hold; what is not named is left as it is."""

    version: int
    instances: list[DesiredInstance]
    volumes: list[DesiredVolume] = []
    server_time_ms: int | None = None
    """When it was said, where it is asked for by itself: a machine without a clock needs the time
    before it can attest its first second."""
    log_request: int | None = None
    """Number of the newest log that a renter waits for, 0 for none; where a machine asks for it."""


class Acknowledgement(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How far one stream of reports is stored, and what the machine is to do next."""

    machine: int
    epoch: str
    acked_through: int
    """The last stored `seq`; 0 when nothing is stored."""
    rejected: list[Rejection] = []
    desired: Desired | None = None
    checks: list[dict[str, Any]] = []
    """Open checks, to be answered in the next report: `slot`, `at`, `kind` (ping, challenge or
    benchmark), `nonce`, and `deadline`, the last second in which an answer counts."""


class UsageAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The body of the answer: statuses in the order of the request, and the acknowledgements."""

    server_time_ms: int
    reports: list[ReportAnswer]
    acks: list[Acknowledgement]
