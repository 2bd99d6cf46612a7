"""A machine that was days without network comes back: the real agent, its full spool, the server.

The backlog is sealed ahead by the agent's own code, so that its seconds lie where they would lie.
"""

from __future__ import annotations

import contextlib
import random
import secrets
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from adapters.hostagent.client import UsageClient, enrol
from adapters.hostagent.identity import HostIdentity
from adapters.hostagent.reports import ReportChain, SealedReport, block, constant_block
from adapters.hostagent.spool import SqliteSpool
from ledger.domain.acknowledgement import UsageAnswer
from ledger.domain.usage import UsageReport, decode_report
from ledger.errors import UnavailableError
from tests.e2e.hostagents import HostAgent, until
from tests.e2e.serving import HostMachine, Serving
from tests.support.fault_proxy import Exchange, FaultProxy

REPORT_SECONDS: Final = 10
"""In a report of the backlog; live ones have one second, so that there are many to look at."""
INSTANCES: Final = 8
_FIRST_INSTANCE: Final = 10**6
"""Nobody's: what they are billed is no question here, and no second of theirs is."""
_PATIENCE: Final = 600.0
_QUIET_SECONDS: Final = 3.0
_EVERY_SECONDS: Final = 0.1
_STORED: Final = frozenset({"accepted", "duplicate"})


class CatchUp(NamedTuple):
    """What it took to catch up. Delays and latencies are in seconds, in the order they came."""

    backlog: int
    """Reports that waited when the agent began."""
    seconds: float
    """From the first request to the answer that had the last report of the backlog."""
    live: list[UsageReport]
    """Reports that were sealed since the agent began."""
    live_delays: list[float]
    """From sealing to the answer, of what was sealed while there was a backlog."""
    turn_delays: list[float]
    """Of all live ones: from sealing, or the answer to the report before, to the answer."""
    slowest_request: float
    requests_with_room: int
    """That left with fewer reports than a request holds, though something older waited."""
    rss_at_start: int
    rss_peak: int
    """Of the agent's process, in bytes."""
    quiet_latencies: list[float]
    """Of another machine's requests before."""
    busy_latencies: list[float]
    """Of the same machine's requests while the first one caught up."""
    bodies: list[bytes]
    """Everything that was sent, the backlog first: the server has them as versions 1, 2, 3, …"""


class Neighbour:
    """Another machine that posts a report ten times a second, and times the answers."""

    def __init__(self, url: str, machine: HostMachine) -> None:
        """Enrol with the machine's token and begin."""
        identity = HostIdentity.generate()
        self._client = UsageClient(url)
        number = enrol(url, machine.token, identity, [f"GPU-{secrets.token_hex(8)}"])
        start = int(time.time()) - 10 * 86_400
        self._chain = ReportChain(number, identity, boot_id="b1", sealed_until=start)
        self.latencies: list[tuple[float, float]] = []
        """When it was posted, and seconds until the answer."""
        self.surprises: list[str] = []
        """Answers that call nothing stored."""
        self.unanswered = 0
        """Requests that got no answer within the agent's ten seconds."""
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="neighbour", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End; the last request is answered."""
        self._ending.set()
        self._thread.join(60)
        self._client.close()

    def between(self, began: float, ended: float) -> list[float]:
        """The latencies of what was posted between two monotonic seconds."""
        return [took for at, took in self.latencies if began <= at <= ended]

    def _run(self) -> None:
        while not self._ending.wait(_EVERY_SECONDS):
            start = self._chain.sealed_until
            sealed = self._chain.seal(
                start,
                1,
                [constant_block(_FIRST_INSTANCE, start, 1, "running", up=1, down=2, util=3)],
            )
            began = time.monotonic()
            answer = self._post_until_answered(sealed)
            self.latencies.append((began, time.monotonic() - began))
            self.surprises += [one.status for one in answer.reports if one.status not in _STORED]

    def _post_until_answered(self, sealed: SealedReport) -> UsageAnswer:
        """Post as a host does: again, when no answer came in time; the wait counts."""
        while True:
            with contextlib.suppress(UnavailableError):
                return self._client.post([sealed])
            self.unanswered += 1


def fill(agent: HostAgent, hours: int) -> list[SealedReport]:
    """Seal what an agent without network would have sealed in the past *hours*, up to now."""
    chance = random.Random(hours)  # noqa: S311 - traffic, not a secret
    identity = HostIdentity.load(agent.home.key_file)
    count = hours * 3_600 // REPORT_SECONDS
    first = int(time.time()) - count * REPORT_SECONDS
    spool = SqliteSpool(agent.home.spool_file, agent.machine)
    try:
        return [
            _seal(spool, identity, first + number * REPORT_SECONDS, chance)
            for number in range(count)
        ]
    finally:
        spool.close()


def _seal(
    spool: SqliteSpool, identity: HostIdentity, start: int, chance: random.Random
) -> SealedReport:
    def bytes_a_second() -> list[int]:
        return [chance.randrange(65_536) for _ in range(REPORT_SECONDS)]

    blocks = [
        block(
            _FIRST_INSTANCE + number,
            start,
            ["running"] * REPORT_SECONDS,
            up=bytes_a_second(),
            down=bytes_a_second(),
            util=[chance.randrange(101) for _ in range(REPORT_SECONDS)],
        )
        for number in range(INSTANCES)
    ]
    return spool.seal(
        identity, "b1", start, lambda chain: chain.seal(start, REPORT_SECONDS, blocks)
    )


def catch_up(serving: Serving, hours: int) -> CatchUp:
    """Be offline for *hours*, come back, and stay for some seconds after the last late report."""
    host = serving.person("hannah", "host")
    exchanges: list[Exchange] = []
    with contextlib.ExitStack() as started:
        neighbour = Neighbour(serving.url, serving.machine(host))
        started.callback(neighbour.close)
        proxy = FaultProxy(serving.port, random.Random(1), on_usage=exchanges.append)  # noqa: S311
        started.callback(proxy.close)
        agent = HostAgent(proxy.url, serving.machine(host, INSTANCES).token, gpus=INSTANCES)
        started.callback(agent.close)
        backlog = fill(agent, hours)
        time.sleep(_QUIET_SECONDS)
        began = time.monotonic()
        memory = _Memory(agent)
        started.callback(memory.close)
        agent.start()
        memory.begin()
        last = backlog[-1].seq
        until(lambda: agent.status()["spool"]["acknowledged"] >= last, "the backlog", _PATIENCE)
        time.sleep(_QUIET_SECONDS)
        assert agent.dead_letters() == []
        memory.close()
        assert agent.stop() == 0
        neighbour.close()
        assert neighbour.surprises == []
        return _judged(backlog, exchanges, memory.seen, neighbour, began)


def _judged(
    backlog: Sequence[SealedReport],
    exchanges: Sequence[Exchange],
    memory: Sequence[int],
    neighbour: Neighbour,
    began: float,
) -> CatchUp:
    last = backlog[-1].seq
    requests = [[decode_report(one) for one in _bodies(each.body)] for each in exchanges]
    bodies = {
        report.seq: body
        for each, reports in zip(exchanges, requests, strict=True)
        for report, body in zip(reports, _bodies(each.body), strict=True)
    }
    answered = {
        report.seq: each.answered_at
        for each, reports in zip(exchanges, requests, strict=True)
        for report in reports
    }
    caught_up_at = answered[last]
    sealed_at = {
        report.seq: report.clock.mono_ns / 1e9
        for reports in requests
        for report in reports
        if report.seq > last and report.clock is not None
    }
    return CatchUp(
        backlog=len(backlog),
        seconds=caught_up_at - exchanges[0].came_at,
        live=[one for reports in requests for one in reports if one.seq > last],
        live_delays=[answered[seq] - at for seq, at in sealed_at.items() if at < caught_up_at],
        turn_delays=[answered[seq] - max(at, answered[seq - 1]) for seq, at in sealed_at.items()],
        slowest_request=max(each.answered_at - each.came_at for each in exchanges),
        requests_with_room=sum(
            len(reports) < 100 and reports[-1].seq < last for reports in requests
        ),
        rss_at_start=memory[0],
        rss_peak=max(memory),
        quiet_latencies=neighbour.between(began - _QUIET_SECONDS, began),
        busy_latencies=neighbour.between(exchanges[0].came_at, caught_up_at),
        bodies=[one.body for one in backlog]
        + [bodies[seq] for seq in sorted(bodies) if seq > last],
    )


def _bodies(request: bytes) -> list[bytes]:
    signed = msgspec.msgpack.decode(request, type=list[tuple[str, bytes, bytes]])
    return [body for _, _, body in signed]


class _Memory:
    """Looks at an agent's resident memory again and again."""

    def __init__(self, agent: HostAgent) -> None:
        self._agent = agent
        self.seen: list[int] = []
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="memory", daemon=True)

    def begin(self) -> None:
        """Begin, once it answers."""
        self._thread.start()

    def close(self) -> None:
        """End."""
        self._ending.set()
        if self._thread.is_alive():
            self._thread.join(10)

    def _run(self) -> None:
        assert self._agent.process is not None
        statm = Path(f"/proc/{self._agent.process.pid}/statm")
        while not self._ending.is_set():
            with contextlib.suppress(OSError):
                self.seen.append(int(statm.read_text().split()[1]) * 4_096)
            self._ending.wait(_EVERY_SECONDS)
