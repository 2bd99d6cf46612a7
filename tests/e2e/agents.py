"""Hosts of the end-to-end tests: the real agent's code, driven by the clock on the wall."""

from __future__ import annotations

import secrets
import threading
import time
from typing import Final

import httpx

from adapters.hostagent.client import UsageClient, enrol
from adapters.hostagent.courier import Courier, MemorySpool
from adapters.hostagent.identity import HostIdentity
from adapters.hostagent.reports import ReportChain, SealedReport, constant_block, new_epoch
from adapters.hostagent.simulated import SimulatedHost
from ledger.domain.acknowledgement import ReportAnswer, UsageAnswer
from ledger.domain.ids import usage_stream
from ledger.errors import UnavailableError
from tests.e2e.serving import HostMachine, Serving

_ANSWER_SECONDS: Final = 20
_STORED: Final = frozenset({"accepted", "duplicate"})
_DAYS_AGO: Final = 20 * 86_400
_SECONDS: Final = 60


class Agent:
    """A simulated machine that enrols, obeys, signs every second and posts, on a thread."""

    def __init__(self, url: str, machine: HostMachine, gpus: int = 1) -> None:
        """Enrol with the machine's token and begin to report."""
        self._http = httpx.Client(timeout=10)
        identity = HostIdentity.generate()
        uuids = [f"GPU-{secrets.token_hex(8)}" for _ in range(gpus)]
        self.machine = enrol(url, machine.token, identity, uuids, http=self._http)
        self.epoch = new_epoch()
        self.host = SimulatedHost(
            self.machine,
            identity,
            now=int(time.time()),
            epoch=self.epoch,
            boot_id=secrets.token_hex(8),
            report_seconds=1,
            idle_window_seconds=1,
        )
        self.spool = MemorySpool()
        self.sealed: list[SealedReport] = []
        self.stored: dict[int, ReportAnswer] = {}
        """By `seq`, the first answer that called a report stored."""
        self.alarms: list[object] = []
        self._courier = Courier(
            UsageClient(url, self._http),
            self.spool,
            on_answer=self._heard,
            on_alarm=self.alarms.append,
            sleep=lambda seconds: time.sleep(min(seconds, 0.2)),
        )
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="agent", daemon=True)
        self._thread.start()

    @property
    def stream(self) -> str:
        """The log's name for what this agent sends."""
        return usage_stream(self.machine, self.epoch)

    @property
    def bodies(self) -> list[bytes]:
        """What was sealed, in order."""
        return [one.body for one in self.sealed]

    def end(self) -> None:
        """Send what waits, then stop; nothing is left behind."""
        self._ending.set()
        self._thread.join(60)
        assert not self._thread.is_alive()
        self._http.close()

    def _run(self) -> None:
        while not self._ending.is_set():
            for sealed in self.host.seal(max(self.host.now, int(time.time()))):
                self.sealed.append(sealed)
                self.spool.put(sealed)
            self._courier.drain(give_up_after=1)
            time.sleep(0.2)
        self._courier.drain(give_up_after=100)

    def _heard(self, answer: UsageAnswer) -> None:
        for one in answer.reports:
            if one.status in _STORED:
                self.stored.setdefault(one.seq, one)
        for ack in answer.acks:
            if ack.machine == self.machine and ack.desired is not None:
                self.host.obey(ack.desired, max(self.host.now, int(time.time())))


class Flood:
    """Posts reports of long gone seconds as fast as it may, and remembers what was acknowledged."""

    def __init__(self, serving: Serving, machine: HostMachine) -> None:
        """Enrol with the machine's token; `begin` starts the thread."""
        self._http = httpx.Client(timeout=10)
        self._client = UsageClient(serving.url, self._http)
        identity = HostIdentity.generate()
        uuids = [f"GPU-{secrets.token_hex(8)}"]
        self.machine = enrol(serving.url, machine.token, identity, uuids, http=self._http)
        start = int(time.time()) - _DAYS_AGO
        self._chain = ReportChain(
            self.machine, identity, boot_id="boot-1", epoch=new_epoch(), sealed_until=start
        )
        self.sealed: list[SealedReport] = []
        self.stored: dict[int, ReportAnswer] = {}
        """By `seq`, the first answer that called a report stored."""
        self.failures: list[UnavailableError] = []
        self.surprises: list[object] = []
        """Answers that nobody should get, and errors that nobody should see."""
        self._ending = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def stream(self) -> str:
        """The log's name for what this host sends."""
        return usage_stream(self.machine, self._chain.epoch)

    @property
    def bodies(self) -> list[bytes]:
        """What was sealed, in order."""
        return [one.body for one in self.sealed]

    def begin(self) -> None:
        """Post until `end`."""
        self._ending.clear()
        self._thread = threading.Thread(target=self._run, name="flood", daemon=True)
        self._thread.start()

    def end(self) -> None:
        """Stop; a report without an answer stays sealed and not stored."""
        assert self._thread is not None
        self._ending.set()
        self._thread.join(60)
        assert not self._thread.is_alive()

    def resend(self) -> None:
        """Post everything once more, with what never got an answer.

        What was acknowledged must be a duplicate at the position of its first answer; what was not
        is stored now at the latest.
        """
        for first in range(0, len(self.sealed), 100):
            chunk = self.sealed[first : first + 100]
            for sealed, answer in zip(chunk, self._post_until_answered(chunk).reports, strict=True):
                known = self.stored.get(sealed.seq)
                expected = {"duplicate"} if known is not None else _STORED
                assert answer.status in expected, (sealed.seq, known, answer)
                self.stored.setdefault(sealed.seq, answer)

    def _post_until_answered(self, chunk: list[SealedReport]) -> UsageAnswer:
        """Post as a host does: again, while a worker whose parent was killed may still go away."""
        deadline = time.monotonic() + _ANSWER_SECONDS
        while True:
            try:
                return self._client.post(chunk)
            except UnavailableError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.1)

    def close(self) -> None:
        """Close the connections."""
        if self._thread is not None and self._thread.is_alive():
            self.end()
        self._http.close()

    def _run(self) -> None:
        batch: list[SealedReport] = []
        while not self._ending.is_set():
            if not batch:
                batch = [self._seal(), self._seal()]
            try:
                answer = self._client.post(batch)
            except UnavailableError as error:
                self.failures.append(error)
                time.sleep(0.05)
                continue
            except Exception as error:
                self.surprises.append(error)
                time.sleep(0.05)
                continue
            for one in answer.reports:
                if one.status in _STORED:
                    self.stored.setdefault(one.seq, one)
                else:
                    self.surprises.append(one)
            batch = []
            time.sleep(0.004)

    def _seal(self) -> SealedReport:
        start = self._chain.sealed_until
        block = constant_block(10**6, start, _SECONDS, "running", up=5, down=7, util=50)
        sealed = self._chain.seal(start, _SECONDS, [block])
        self.sealed.append(sealed)
        return sealed
