"""The simulated marketplace: real services, log, policies and projections under one clock.

Between two seconds at which something is due, the reports of all machines are appended in one
stretch, each with its own second of receipt, so a quiet year takes seconds.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from adapters.hostagent.identity import HostIdentity
from adapters.hostagent.reports import SealedReport
from adapters.hostagent.simulated import SimulatedHost
from adapters.simulation.gateway import MemoryGateway
from ledger.domain.events import MachineSpec
from ledger.domain.idleness import IDLE_BELOW_PERCENT
from ledger.domain.money import BYTES_PER_GB
from ledger.errors import CorruptHistoryError
from ledger.projections.rebuild import RebuildResult, check
from ledger.projections.runner import UsageRunner
from ledger.services import accounts, machines, policies
from ledger.services.credit import read_credit
from ledger.services.ledger import Ledger, Policy, SimulatedClock, Unit, read_policy
from ledger.services.usage import SignedReport, UsageService
from ledger.store.database import Connection
from ledger.store.log import head_position

_DELIVERY: Final = 2_000
"""Reports appended in one transaction."""
_STEPS_MAX: Final = 100


class World:
    """A marketplace that stands still until it is moved.

    `names` maps the names of accounts to ids. Reports cut at multiples of `report_seconds`.
    """

    def __init__(
        self,
        start: int,
        policy: Policy,
        *,
        home: Path | None = None,
        url: str = "",
        report_seconds: int = 10,
        boot_seconds: int = 0,
    ) -> None:
        """Open a fresh ledger at second *start*.

        It lies in *home* (a temporary folder by default), or in the empty database at *url*.
        """
        self._temporary = home is None
        self.home = home or temporary_home()
        self.clock = SimulatedClock(start)
        # A simulation never touches the database that serves, whatever the environment says.
        self.ledger = Ledger.open(self.home, url=url, clock=self.clock)
        self.ledger.adopt_policy(policy)
        self.usage = UsageService(self.ledger)
        self.gateway = MemoryGateway(self.clock)
        self.runner = UsageRunner(page_events=4_000)
        self.connection = self.ledger.database.connect(autocommit=True)
        self.report_seconds = report_seconds
        self.boot_seconds = boot_seconds
        self.hosts: dict[int, SimulatedHost] = {}
        self.names: dict[str, int] = {}
        self.delivered: dict[int, list[SealedReport]] = {}
        self.keeps_delivered = True
        self._obeyed: dict[int, int] = {}
        self._spooled: dict[int, list[SealedReport]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Stop everything; a temporary home is removed."""
        self.connection.close()
        self.usage.close()
        self.ledger.close()
        if self._temporary:
            shutil.rmtree(self.home, ignore_errors=True)

    @property
    def now(self) -> int:
        """The present second."""
        return self.clock.now

    # --- people and machines ---------------------------------------------------------------------

    def account(self, unit: Unit, name: str) -> int:
        """The id of the account with this name, opened when first named."""
        if name not in self.names:
            self.names[name] = accounts.ensure_account(unit, name)
        return self.names[name]

    def add_machine(self, unit: Unit, host_id: int, spec: MachineSpec) -> int:
        """Register and enrol a machine with a key and GPU UUIDs of its own."""
        machine_id = machines.register(unit, host_id, spec)
        identity = HostIdentity.from_seed(hashlib.sha256(f"machine-{machine_id}".encode()).digest())
        token = machines.offer_enrolment(unit, machine_id)
        uuids = [f"GPU-{machine_id:08d}-{slot:04d}" for slot in range(spec.gpus)]
        machines.enrol(unit, token, identity.public_key_hex, uuids)
        self.hosts[machine_id] = SimulatedHost(
            machine_id,
            identity,
            now=self.now,
            epoch=hashlib.sha256(f"epoch-{machine_id}".encode()).hexdigest()[:32],
            boot_id=f"boot-{machine_id}-1",
            report_seconds=self.report_seconds,
            boot_seconds=self.boot_seconds,
        )
        self.delivered[machine_id] = []
        return machine_id

    # --- time ------------------------------------------------------------------------------------

    def advance(self, to: int) -> None:
        """Move the clock to second *to*; whatever falls due on the way happens at its second."""
        while self.now < to:
            self._move(self.next_stop(to))

    def settle(self) -> None:
        """Let hosts obey, confirm and report within the present second, until nothing changes."""
        for _ in range(_STEPS_MAX):
            self._deliver(self.now)
            self.project()
            before = head_position(self.connection)
            policies.run_due(self.ledger, self.gateway)
            if not self._obey() and head_position(self.connection) == before:
                return
        message = f"the marketplace does not come to rest at second {self.now}"
        raise CorruptHistoryError("no_rest", message)

    def _move(self, stop: int) -> None:
        self._deliver(stop)
        self.clock.move_to(stop)
        self.project()
        self.settle()

    def next_stop(self, to: int) -> int:
        """The next second at which anything falls due, at most *to*; later than now."""
        stops = [to]
        with self.ledger.reading() as connection:
            due = policies.next_due(connection, self.now)
            stops += self._offline_stops(connection)
        stops += [self._traffic_stop(), self._idle_stop()]
        if due is not None:
            stops.append(due)
        for host in self.hosts.values():
            for container in host.containers.values():
                if container.ready_at is not None and not host.is_down:
                    stops.append(container.ready_at)
        return min(stop for stop in stops if stop > self.now)

    def _offline_stops(self, connection: Connection) -> list[int]:
        """When the machines that nobody hears will be taken for offline."""
        silence = read_policy(connection).offline_after_seconds
        if silence is None:
            return []
        quiet = [
            machine
            for machine, host in self.hosts.items()
            if host.is_down or host.silent_since is not None
        ]
        contacts = [machines.last_contact(connection, machine) for machine in quiet]
        return [contact + silence + 1 for contact in contacts if contact is not None]

    def _idle_stop(self) -> int:
        """The next second while something begins to be idle that no tick has shown yet.

        From its first idle tick on, the policy itself says when something is due.
        """
        idle = [
            container.instance
            for host in self.hosts.values()
            if host.silent_since is None and not host.is_down
            for container in host.containers.values()
            if container.state == "running" and 0 <= container.load.util < IDLE_BELOW_PERCENT
        ]
        if not idle:
            return 2**62
        known = self.connection.execute(
            "SELECT count(*) FROM idle_spans WHERE instance_id = ANY(%s)", [idle]
        ).fetchone()
        self.connection.commit()
        assert known is not None
        return self.now + 1 if known[0] < len(idle) else 2**62

    def _traffic_stop(self) -> int:
        """A second before which no account reaches a limit, whatever its instances transfer.

        Bytes are billed when they are reported, so near the limit every report is a stop.
        """
        far = 2**62
        rates: dict[int, int] = {}
        owners: dict[int, int] = dict(
            self.connection.execute(
                "SELECT instance_id, account_id FROM instances WHERE destroyed_at IS NULL"
                " AND up_rate + down_rate > 0"
            ).fetchall()
        )
        prices = {
            row[0]: (int(row[1]), int(row[2]))
            for row in self.connection.execute(
                "SELECT instance_id, up_rate, down_rate FROM instances WHERE instance_id = ANY(%s)",
                [list(owners)],
            )
        }
        for host in self.hosts.values():
            for instance, load in host.loads.items():
                moved = load.up_bytes_per_second + load.down_bytes_per_second
                if moved and instance in owners:
                    up, down = prices[instance]
                    per_second = (
                        load.up_bytes_per_second * up + load.down_bytes_per_second * down
                    ) // BYTES_PER_GB + 1
                    account = owners[instance]
                    rates[account] = rates.get(account, 0) + per_second
        if not rates:
            self.connection.commit()
            return far
        policy = read_policy(self.connection)
        headroom = policies.headroom(self.connection, list(rates), self.now)
        stop = far
        for account, credit in read_credit(self.connection, rates).items():
            burn, scale = credit.burn_per_hour(self.now)
            per_second = rates[account] + burn // scale // 3_600 + 1
            limit = self.connection.execute(
                "SELECT CASE WHEN exhausted_at IS NULL THEN 0 ELSE debt_limit END"
                " FROM account_credit WHERE account_id = %s",
                [account],
            ).fetchone()
            assert limit is not None
            left = max(credit.available(self.now, policy), 0) or (
                credit.available(self.now, policy) + int(limit[0])
            )
            left = min(left, headroom.get(account, left))
            safe = max(left, 0) // per_second - 2 * self.report_seconds
            if limit[0] and left <= 0:
                continue
            stop = min(stop, self.now + max(safe, self._to_next_report()))
        self.connection.commit()
        return stop

    def _to_next_report(self) -> int:
        return self.report_seconds - self.now % self.report_seconds

    def crash(self, machine_id: int) -> None:
        """A machine is down; it seals what it has, and delivers it if it can be heard."""
        host = self.hosts[machine_id]
        last = host.crash(self.now)
        if host.silent_since is None:
            self.deliver([(self.now, one) for one in last])
        else:
            self._spooled.setdefault(machine_id, []).extend(last)

    def recover(self, machine_id: int, boot_id: str) -> None:
        """A machine that was down is up again, and first learns what is wanted of it."""
        host = self.hosts[machine_id]
        if host.silent_since is None:
            host.obey(self.usage.desired(machine_id), self.now)
        host.recover(self.now, boot_id)

    def resume(self, machine_id: int) -> None:
        """A silent machine is heard again and delivers its spool."""
        host = self.hosts[machine_id]
        host.resume(self.now)
        spool = self._spooled.pop(machine_id, [])
        self.deliver([(self.now, one) for one in [*spool, *host.seal(self.now)]])

    # --- reports ---------------------------------------------------------------------------------

    def _deliver(self, until: int) -> None:
        """Hand over what the machines that can be heard have finished before second *until*."""
        sealed: list[tuple[int, SealedReport]] = []
        for host in self.hosts.values():
            if host.silent_since is None and not host.is_down:
                sealed += [(max(self.now, one.until), one) for one in host.seal(until)]
        self.deliver(sealed)

    def deliver(self, sealed: Iterable[tuple[int, SealedReport]]) -> None:
        """Append reports, each received at its second."""
        ordered = sorted(sealed, key=lambda one: one[0])
        for first in range(0, len(ordered), _DELIVERY):
            batch = ordered[first : first + _DELIVERY]
            answers = self.usage.deliver(
                [SignedReport(one.key_id, one.signature, one.body) for _, one in batch],
                [second for second, _ in batch],
            )
            for answer in answers:
                if answer.status not in {"accepted", "duplicate"}:
                    message = f"a simulated host's report was answered {answer}"
                    raise CorruptHistoryError("simulation_broken", message)
        if self.keeps_delivered:
            for _, one in ordered:
                self.delivered[one.machine].append(one)

    def redeliver(self, machine_id: int) -> None:
        """Send every report of a machine so far once more."""
        again = self.delivered[machine_id]
        answers = self.usage.deliver(
            [SignedReport(one.key_id, one.signature, one.body) for one in again],
            [self.now] * len(again),
        )
        assert {answer.status for answer in answers} <= {"duplicate"}, answers

    def project(self) -> None:
        """Fold everything the log holds."""
        self.runner.catch_up(self.connection)

    def _obey(self) -> bool:
        """Let hosts that can be heard carry out what changed; True when a host has news."""
        versions = self.connection.execute(
            "SELECT machine_id, desired_version FROM machines ORDER BY machine_id"
        ).fetchall()
        self.connection.commit()
        news = False
        for machine_id, version in versions:
            host = self.hosts[machine_id]
            if host.silent_since is not None or host.is_down:
                continue
            if self._obeyed.get(machine_id) != version:
                self._obeyed[machine_id] = version
                host.obey(self.usage.desired(machine_id), self.now)
                news = True
        return news

    # --- proof -----------------------------------------------------------------------------------

    def rebuild(self) -> RebuildResult:
        """Rebuild every read model and compare; the result says whether all are equal."""
        self.project()
        return check(self.ledger.database)


def temporary_home() -> Path:
    """A new folder that the database's own user can enter, wherever the program runs."""
    home = Path(tempfile.mkdtemp(prefix="gpuledger-"))
    os.chmod(home, 0o755)  # noqa: S103 - a server started by root runs as a user of its own
    return home
