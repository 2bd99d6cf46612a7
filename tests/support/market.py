"""A small marketplace for tests: one clock, a ledger, machines whose reports tests seal by hand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from adapters.hostagent.identity import HostIdentity
from adapters.hostagent.reports import ReportChain, SealedReport, constant_block
from ledger.domain.acknowledgement import ReportAnswer
from ledger.domain.events import AnyFact, MachineSpec
from ledger.domain.usage import MAX_WINDOW_SECONDS, InstanceBlock, Observation, TickState
from ledger.projections.rebuild import RebuildResult
from ledger.projections.runner import UsageRunner
from ledger.services import accounts, deposits, listings, machines, rentals
from ledger.services.ledger import Ledger, SimulatedClock
from ledger.services.usage import SignedReport, UsageService
from ledger.store.codec import decode_fact
from ledger.store.log import read_facts
from ledger.store.vault import Vault
from tests.support.databases import KeptDatabase, open_database, rebuilt

START = 1_772_359_200
"""2026-03-01T10:00:00Z."""
DOLLAR = 10**9


class Market:
    """A ledger on a fresh database under a clock that stands still."""

    def __init__(self, dsn: str, start: int = START) -> None:
        """Adopt the default rules at second *start*."""
        self.clock = SimulatedClock(start)
        self._dsn = dsn
        database = open_database(dsn)
        self.ledger = Ledger(database, Vault(bytes(32)), self.clock)
        self.ledger.adopt_policy()
        self.usage = UsageService(self.ledger)
        self.runner = UsageRunner()
        self.connection = (
            database.session("questions")
            if isinstance(database, KeptDatabase)
            else database.connect(autocommit=True)
        )
        self.chains: dict[int, ReportChain] = {}

    def close(self) -> None:
        """Close every connection, but those that the next test takes over."""
        if not isinstance(self.ledger.database, KeptDatabase):
            self.connection.close()
        self.usage.close()
        self.ledger.close()

    def account(self, name: str, credit: int = 0) -> int:
        """An account with so many nanos of credit."""
        with self.ledger.unit() as unit:
            account = accounts.ensure_account(unit, name)
            if credit:
                deposits.deposit(unit, account, credit, f"opening-{account}")
        return account

    def machine(
        self,
        host: str = "bob",
        gpus: int = 1,
        gpu_hour: int = 360_000_000,
        storage: int = 150_000_000,
        up: int = 3_000_000,
        down: int = 2_000_000,
        mbps: int = 10_000,
        floor: int | None = None,
        **listing: Any,
    ) -> int:
        """A listed machine with a key of its own; rates in nanos, *floor* per GPU."""
        owner = self.account(host)
        spec = MachineSpec(
            gpus=gpus,
            gpu_name="RTX 4090",
            gpu_ram_gb=24,
            cpu_cores=8 * gpus,
            ram_gb=64 * gpus,
            disk_gb=2_000 * gpus,
            up_mbps=mbps,
            down_mbps=mbps,
        )
        with self.ledger.unit() as unit:
            machine = machines.register(unit, owner, spec)
            identity = HostIdentity.from_seed(machine.to_bytes(32, "big"))
            token = machines.offer_enrolment(unit, machine)
            uuids = [f"GPU-{machine}-{slot}" for slot in range(gpus)]
            machines.enrol(unit, token, identity.public_key_hex, uuids)
            listings.list_machine(
                unit, machine, listings.Prices(gpu_hour, storage, up, down, floor), **listing
            )
        self.chains[machine] = ReportChain(
            machine, identity, boot_id="boot-1", epoch=f"{machine:032x}"
        )
        return machine

    def rent(self, account: int, machine: int | None, **options: Any) -> int:
        """An instance with a disk of 100 GB unless told otherwise."""
        with self.ledger.unit() as unit:
            return rentals.rent(unit, account, machine, **{"disk_gb": 100, **options})

    def list_again(
        self,
        machine: int,
        gpu_hour: int = 360_000_000,
        storage: int = 150_000_000,
        up: int = 3_000_000,
        down: int = 2_000_000,
        floor: int | None = None,
        **listing: Any,
    ) -> int:
        """Another listing of a machine; returns its id."""
        with self.ledger.unit() as unit:
            return listings.list_machine(
                unit, machine, listings.Prices(gpu_hour, storage, up, down, floor), **listing
            )

    def status(self, instance: int) -> str:
        """The state of an instance."""
        row = self.connection.execute(
            "SELECT status FROM instances WHERE instance_id = %s", [instance]
        ).fetchone()
        assert row is not None
        return str(row[0])

    def facts(self, *streams: str) -> list[AnyFact]:
        """All facts of the log, or of these streams, in order."""
        return [
            decode_fact(stored.topic, stored.state)
            for stored in read_facts(self.connection)
            if not streams or stored.stream_id in streams
        ]

    def seal(
        self,
        machine: int,
        start: int,
        count: int,
        blocks: Sequence[InstanceBlock] = (),
        observed: Sequence[Observation] = (),
    ) -> SealedReport:
        """The next report of a machine."""
        return self.chains[machine].seal(start, count, list(blocks), list(observed))

    def deliver(self, *reports: SealedReport, at: int | None = None) -> list[ReportAnswer]:
        """Append reports, received now or at second *at*."""
        second = self.clock() if at is None else at
        signed = [SignedReport(one.key_id, one.signature, one.body) for one in reports]
        return self.usage.deliver(signed, [second] * len(signed))

    def confirm(self, machine: int, instance: int, assignment: int = 1) -> None:
        """The host says that the container runs since this second."""
        seen = Observation(
            instance=instance, assignment=assignment, state="running", at=self.clock()
        )
        chain = self.chains[machine]
        sealed = chain.seal(max(self.clock(), chain.sealed_until), 0, [], [seen])
        assert self.deliver(sealed)[0].status == "accepted"

    def run(
        self,
        machine: int,
        instances: Sequence[int],
        seconds: int,
        *,
        state: TickState = "running",
        up: int = 0,
        down: int = 0,
        report_seconds: int = 60,
    ) -> list[SealedReport]:
        """Let time pass with constant ticks, reported in time; returns the reports."""
        sealed = []
        while seconds > 0:
            count = min(seconds, report_seconds)
            now = self.clock()
            blocks = [
                constant_block(one, now, count, state, up=up, down=down, util=90)
                for one in instances
            ]
            self.clock.move_to(now + count)
            report = self.seal(machine, now, count, blocks)
            sealed.append(report)
            assert self.deliver(report)[0].status == "accepted"
            seconds -= count
        return sealed

    def long_run(self, machine: int, instances: Sequence[int], seconds: int) -> None:
        """Let days pass with constant `running` ticks, each report received when it is finished."""
        start, end = self.clock(), self.clock() + seconds
        sealed = []
        for first in range(start, end, MAX_WINDOW_SECONDS):
            count = min(MAX_WINDOW_SECONDS, end - first)
            blocks = [
                constant_block(one, first, count, "running", up=0, down=0, util=90)
                for one in instances
            ]
            sealed.append(self.seal(machine, first, count, blocks))
        for at in range(0, len(sealed), 1_000):
            batch = sealed[at : at + 1_000]
            signed = [SignedReport(one.key_id, one.signature, one.body) for one in batch]
            answers = self.usage.deliver(signed, [one.until for one in batch])
            assert {answer.status for answer in answers} == {"accepted"}
        self.clock.move_to(end)

    def project(self) -> None:
        """Fold everything there is."""
        self.runner.catch_up(self.connection)

    def charges(self, instance: int) -> dict[str, int]:
        """Nanos per meter, folded up to now."""
        self.project()
        row = self.connection.execute(
            "SELECT sum(gpu_charge), sum(storage_charge), sum(up_charge), sum(down_charge)"
            " FROM rate_segments WHERE instance_id = %s",
            [instance],
        ).fetchone()
        self.connection.commit()
        assert row is not None
        return {
            meter: int(amount or 0)
            for meter, amount in zip(("gpu", "storage", "up", "down"), row, strict=True)
        }

    def seconds(self, instance: int) -> tuple[int, int]:
        """Billed seconds of GPU and storage."""
        self.project()
        row = self.connection.execute(
            "SELECT sum(gpu_quantity), sum(storage_quantity) FROM rate_segments"
            " WHERE instance_id = %s",
            [instance],
        ).fetchone()
        self.connection.commit()
        assert row is not None
        return int(row[0] or 0), int(row[1] or 0)

    def anomalies(self, instance: int) -> dict[str, int]:
        """Seconds per code."""
        self.project()
        rows = self.connection.execute(
            "SELECT code, sum(until - start) FROM anomalies WHERE instance_id = %s GROUP BY code",
            [instance],
        ).fetchall()
        self.connection.commit()
        return {code: int(seconds) for code, seconds in rows}

    def head(self) -> int:
        """The last position of the log."""
        row = self.connection.execute("SELECT next - 1 FROM log_position").fetchone()
        self.connection.commit()
        assert row is not None
        return int(row[0])

    def rebuild(self) -> RebuildResult:
        """Rebuild all read models beside the live ones and compare."""
        self.project()
        return rebuilt(self._dsn)
