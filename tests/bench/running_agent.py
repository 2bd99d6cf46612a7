"""What the whole host agent costs while it works: loop, senses, runtime, sealing and sending.

The program itself, with its collector, on simulated GPUs under the real binding; its instances are
processes that do nothing, and the server is a stand-in on the loopback interface.
"""

from __future__ import annotations

import hashlib
import os
import time
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any, ClassVar, Final, NamedTuple

import msgspec

from ledger.domain.acknowledgement import (
    Acknowledgement,
    Desired,
    DesiredInstance,
    ReportAnswer,
    UsageAnswer,
)
from ledger.domain.usage import UsageReport, decode_report
from tests.e2e.hostagents import HostAgent, until

_MACHINE: Final = 4001
_NEWS_SECONDS: Final = 25.0
_REPORT_SECONDS: Final = 10
_HERTZ: Final = os.sysconf("SC_CLK_TCK")
_PAGE: Final = os.sysconf("SC_PAGESIZE")


class Cost(NamedTuple):
    """What both processes of an agent took over some seconds."""

    seconds: float
    parent_cpu: float
    collector_cpu: float
    """Seconds on a processor."""
    wake_ups: int
    threads: int
    parent_bytes: int
    collector_bytes: int
    """Resident memory at the end."""
    reports: int


def cost(driver: dict[str, str], gpus: int, instances: int, seconds: int, warm_up: float) -> Cost:
    """Run an agent that holds *instances*, one GPU each, and look at it for so many *seconds*.

    Args:
        driver: Environment in which the driver's library is found.
        gpus: How many the driver has.
        instances: How many are rented.
        seconds: How long to look.
        warm_up: Seconds after the last instance runs before looking.
    """
    uuids = [f"GPU-00000000-0000-0000-0000-{index:012d}" for index in range(gpus)]
    server = _Server([_rented(1 + index, uuids[index]) for index in range(instances)])
    try:
        agent = HostAgent(server.url, "a token", driver=driver, report_seconds=_REPORT_SECONDS)
        try:
            agent.start()
            until(lambda: _running(agent) == instances, f"{instances} instances to run", 60)
            time.sleep(warm_up)
            return _look(agent, server, seconds)
        finally:
            agent.close()
    finally:
        server.close()


def _running(agent: HostAgent) -> int:
    return sum(one["state"] == "running" for one in agent.status()["instances"])


def _look(agent: HostAgent, server: _Server, seconds: int) -> Cost:
    assert agent.process is not None
    parent = agent.process.pid
    (collector,) = (pid for pid in _children(parent) if "collector.child" in _command(pid))
    before, began, reports = (_cpu(parent), _cpu(collector)), time.monotonic(), server.reports
    woken = _wake_ups(parent) + _wake_ups(collector)
    time.sleep(seconds)
    after, ended = (_cpu(parent), _cpu(collector)), time.monotonic()
    return Cost(
        seconds=ended - began,
        parent_cpu=after[0] - before[0],
        collector_cpu=after[1] - before[1],
        wake_ups=_wake_ups(parent) + _wake_ups(collector) - woken,
        threads=sum(len(list(_tasks(pid))) for pid in (parent, collector)),
        parent_bytes=_resident(parent),
        collector_bytes=_resident(collector),
        reports=server.reports - reports,
    )


# --- what the kernel says of processes -----------------------------------------------------------


def _tasks(pid: int) -> list[Path]:
    return list(Path(f"/proc/{pid}/task").iterdir())


def _children(pid: int) -> list[int]:
    return [int(one) for task in _tasks(pid) for one in (task / "children").read_text().split()]


def _command(pid: int) -> str:
    return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()


def _cpu(pid: int) -> float:
    """Seconds in user and kernel mode, with threads that have ended."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _HERTZ


def _wake_ups(pid: int) -> int:
    """How often its present threads waited for something, and went on."""
    found = 0
    for task in _tasks(pid):
        for line in (task / "status").read_text().splitlines():
            if line.startswith("voluntary_ctxt_switches:"):
                found += int(line.split()[1])
    return found


def _resident(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE


# --- the server ----------------------------------------------------------------------------------


def _rented(instance: int, gpu_uuid: str) -> DesiredInstance:
    return DesiredInstance(
        instance=instance,
        assignment=instance,
        want="running",
        gpu_uuids=[gpu_uuid],
        disk_bytes=10**10,
        spec={"args": ["sleep", "86400"]},
    )


class _Server:
    """Enrols one machine, wants the same instances for ever, and takes every report."""

    def __init__(self, instances: list[DesiredInstance]) -> None:
        self.reports = 0
        self.instances = instances
        handler = type("Handler", (_Handler,), {"ledger": self})
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._http.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._http.server_address[1]}"
        Thread(target=self._http.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._http.shutdown()
        self._http.server_close()

    def take(self, body: bytes) -> bytes:
        """The answer to reports, all of them in sequence."""
        signed = msgspec.msgpack.decode(body, type=list[tuple[str, bytes, bytes]])
        reports = [decode_report(one) for _, _, one in signed]
        self.reports += len(reports)
        answers = [
            ReportAnswer(
                machine=one.machine,
                epoch=one.epoch,
                seq=one.seq,
                status="accepted",
                position=1,
                hash=hashlib.sha256(signed[index][2]).hexdigest(),
            )
            for index, one in enumerate(reports)
        ]
        return msgspec.msgpack.encode(
            UsageAnswer(
                server_time_ms=time.time_ns() // 10**6,
                reports=answers,
                acks=[self._acknowledged(reports[-1])],
            )
        )

    def _acknowledged(self, report: UsageReport) -> Acknowledgement:
        secretless = [msgspec.structs.replace(one, spec=None) for one in self.instances]
        desired = Desired(version=1, instances=secretless)
        return Acknowledgement(
            machine=_MACHINE, epoch=report.epoch, acked_through=report.seq, desired=desired
        )

    def desired(self) -> bytes:
        """What is wanted, to the machine itself."""
        return msgspec.json.encode(
            Desired(
                version=1,
                instances=self.instances,
                server_time_ms=time.time_ns() // 10**6,
                log_request=0,
            )
        )


class _Handler(BaseHTTPRequestHandler):
    ledger: ClassVar[_Server]
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        if self.path == "/v1/usage":
            self._answer(self.ledger.take(body), "application/msgpack")
            return
        assert self.path == "/v1/enrolments", self.path
        key = bytes.fromhex(msgspec.json.decode(body)["public_key"])
        enrolled = {"machine_id": _MACHINE, "key_id": hashlib.sha256(key).hexdigest()[:16]}
        self._answer(msgspec.json.encode(enrolled), "application/json")

    def do_GET(self) -> None:
        assert self.path.startswith(f"/v1/machines/{_MACHINE}/desired"), self.path
        if "wait=" in self.path:
            time.sleep(_NEWS_SECONDS)
        self._answer(self.ledger.desired(), "application/json")

    def do_PUT(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        self._answer(b"{}", "application/json")

    def log_message(self, format: str, *args: Any) -> None:
        """Nobody reads it."""

    def _answer(self, content: bytes, kind: str) -> None:
        self.send_response(200)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        with suppress(BrokenPipeError):
            self.wfile.write(content)  # an agent that ends does not wait for news
