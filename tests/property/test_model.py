"""The whole system against a naive model: exact fractions, a list of seconds, no shared code."""

from __future__ import annotations

from fractions import Fraction
from typing import ClassVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from adapters.hostagent.reports import constant_block
from ledger.domain.usage import TickState
from ledger.errors import LedgerError
from ledger.services import deposits, holds, rentals, transfers, volume_offers, volumes
from ledger.services.questions.balances import trial_balance
from ledger.services.volumes import Mount, NewVolume
from tests.support.databases import Server
from tests.support.examples import examples
from tests.support.market import DOLLAR, Market

GPU = 333_333_333
DISK = 150_000_000
UP = 3_000_000
VOLUME = 777_777_777
ROOM = 100


class Rented:
    """What the model remembers of an instance: plain counts."""

    def __init__(self, owner: int) -> None:
        """Begin loading, with nothing used."""
        self.owner = owner
        self.state = "loading"
        self.assignment = 1
        self.gpu = self.disk = self.up = 0

    def cost(self) -> int:
        """Each meter's exact product, cut off to whole nanos."""
        exact = (
            Fraction(GPU * self.gpu, 3_600),
            Fraction(DISK * 10 * self.disk, 30 * 24 * 3_600),
            Fraction(UP * self.up, 10**9),
        )
        return sum(part.numerator // part.denominator for part in exact)


class Kept:
    """What the model remembers of a volume."""

    def __init__(self, owner: int, gb: int) -> None:
        """Begin with nothing used."""
        self.owner = owner
        self.gb = gb
        self.disk = 0
        self.alive = True
        self.used_by: set[int] = set()

    def cost(self) -> int:
        """The exact product, cut off to whole nanos."""
        exact = Fraction(VOLUME * self.gb * self.disk, 30 * 24 * 3_600)
        return exact.numerator // exact.denominator


class Business(RuleBasedStateMachine):
    """Two renters and one machine of two GPUs; every rule acts on both and compares answers."""

    server: ClassVar[Server]

    @initialize()
    def open(self) -> None:
        """A fresh database, a machine, two accounts."""
        self.dsn = self.server.copy()
        self.market = Market(self.dsn)
        self.people = [self.market.account(name) for name in ("alice", "carol")]
        self.machine = self.market.machine(gpus=2, gpu_hour=GPU, up=UP)
        self.cash = dict.fromkeys(self.people, 0)
        self.holds: dict[str, tuple[int, int]] = {}
        self.rented: dict[int, Rented] = {}
        self.kept: dict[int, Kept] = {}
        with self.market.ledger.unit() as unit:
            self.offer = volume_offers.offer(unit, self.machine, disk_gb=ROOM, storage_rate=VOLUME)
        self.count = 0

    def teardown(self) -> None:
        """Rebuild once more, then drop the database."""
        if hasattr(self, "market"):
            try:
                assert self.market.rebuild().equal
            finally:
                self.market.close()
                self.server.drop(self.dsn)

    def available(self, account: int) -> int:
        """Cash minus what is held and what was used."""
        contracts: list[Rented | Kept] = [*self.rented.values(), *self.kept.values()]
        used = sum(one.cost() for one in contracts if one.owner == account)
        held = sum(amount for owner, amount in self.holds.values() if owner == account)
        return self.cash[account] - used - held

    def _name(self) -> str:
        self.count += 1
        return f"n{self.count}"

    @rule(who=st.integers(0, 1), dollars=st.integers(1, 3))
    def deposit(self, who: int, dollars: int) -> None:
        """A payment, sent twice, counts once."""
        account, name = self.people[who], self._name()
        for _ in range(2):
            with self.market.ledger.unit() as unit:
                deposits.deposit(unit, account, dollars * DOLLAR, name)
        self.cash[account] += dollars * DOLLAR

    @rule(who=st.integers(0, 1), cents=st.integers(1, 300))
    def transfer(self, who: int, cents: int) -> None:
        """Credit moves only when it is there."""
        sender, recipient = self.people[who], self.people[1 - who]
        amount = cents * 10_000_000
        allowed = self.available(sender) >= amount
        code = self._do(
            lambda unit: transfers.transfer(unit, sender, recipient, amount, self._name())
        )
        assert code == (None if allowed else "insufficient_balance")
        if allowed:
            self.cash[sender] -= amount
            self.cash[recipient] += amount

    @rule(who=st.integers(0, 1), cents=st.integers(1, 200))
    def hold(self, who: int, cents: int) -> None:
        """A hold never exceeds what is available."""
        account, amount, name = self.people[who], cents * 10_000_000, self._name()
        allowed = self.available(account) >= amount
        code = self._do(lambda unit: holds.place_hold(unit, account, amount, name))
        assert code == (None if allowed else "insufficient_credit")
        if allowed:
            self.holds[name] = (account, amount)

    @precondition(lambda self: bool(self.holds))
    @rule(spend=st.booleans())
    def end_hold(self, spend: bool) -> None:
        """A hold is spent or given back, once."""
        name, (account, amount) = self.holds.popitem()
        if spend:
            self.cash[account] -= amount
            assert self._do(lambda unit: holds.capture_hold(unit, account, name)) is None
            assert self._do(lambda unit: holds.release_hold(unit, account, name)) == "hold_closed"
        else:
            assert self._do(lambda unit: holds.release_hold(unit, account, name)) is None
            assert self._do(lambda unit: holds.capture_hold(unit, account, name)) == "hold_closed"

    @rule(who=st.integers(0, 1), gb=st.integers(1, 60))
    def keep(self, who: int, gb: int) -> None:
        """A volume is made while there is room and a day of it is covered."""
        account = self.people[who]
        room = ROOM - sum(one.gb for one in self.kept.values() if one.alive)
        needed = VOLUME * gb * 86_400 // (30 * 24 * 3_600)
        made: list[int] = []
        wanted = NewVolume(self.offer, gb)
        code = self._do(lambda unit: made.append(volumes.create(unit, account, wanted)))
        if gb > room:
            assert code == "no_capacity"
        elif self.available(account) < needed:
            assert code == "insufficient_credit"
        else:
            assert code is None
            self.kept[made[0]] = Kept(account, gb)

    @precondition(lambda self: bool(self.kept))
    @rule(which=st.integers(0, 50))
    def let_go(self, which: int) -> None:
        """A volume goes once, and never while an instance that lives has it."""
        number = sorted(self.kept)[which % len(self.kept)]
        one = self.kept[number]
        in_use = any(self.rented[user].state != "destroyed" for user in one.used_by)
        code = self._do(lambda unit: volumes.delete(unit, number))
        assert code == ("volume_in_use" if in_use else None)
        one.alive = one.alive and in_use

    @rule(who=st.integers(0, 1), which=st.none() | st.integers(0, 50))
    def rent(self, who: int, which: int | None) -> None:
        """A GPU is rented when one is free and an hour and a day are covered.

        With a volume too, if it is one's own and was not destroyed.
        """
        account = self.people[who]
        volume = (
            None if which is None or not self.kept else sorted(self.kept)[which % len(self.kept)]
        )
        busy = sum(one.state in ("loading", "running") for one in self.rented.values())
        needed = GPU + DISK * 10 * 86_400 // (30 * 24 * 3_600)
        made: list[int] = []
        code = self._do(
            lambda unit: made.append(
                rentals.rent(
                    unit,
                    account,
                    self.machine,
                    gpus=1,
                    disk_gb=10,
                    mounts=[] if volume is None else [Mount("/data", volume)],
                )
            )
        )
        if busy == 2:
            assert code == "no_capacity"
        elif self.available(account) < needed:
            assert code == "insufficient_credit"
        elif volume is not None and not self._serves(volume, account):
            assert code == "no_such_volume"
        else:
            assert code is None
            self.rented[made[0]] = Rented(account)
            if volume is not None:
                self.kept[volume].used_by.add(made[0])

    def _serves(self, volume: int, account: int) -> bool:
        return self.kept[volume].owner == account and self.kept[volume].alive

    @precondition(lambda self: any(one.state == "loading" for one in self.rented.values()))
    @rule()
    def confirm(self) -> None:
        """The host confirms what loads."""
        for number, one in self.rented.items():
            if one.state == "loading":
                self.market.confirm(self.machine, number, one.assignment)
                one.state = "running"

    @precondition(lambda self: bool(self.rented))
    @rule(which=st.integers(0, 50), end=st.booleans())
    def stop_or_destroy(self, which: int, end: bool) -> None:
        """Stopping ends the GPU meter, destroying everything; again changes nothing."""
        number = sorted(self.rented)[which % len(self.rented)]
        one = self.rented[number]
        if end:
            assert self._do(lambda unit: rentals.destroy(unit, number)) is None
            one.state = "destroyed"
        else:
            code = self._do(lambda unit: rentals.stop(unit, number))
            assert code == ("no_such_instance" if one.state == "destroyed" else None)
            if one.state != "destroyed":
                one.state = "stopped"

    @rule(seconds=st.integers(1, 300), up=st.integers(0, 2_000_000))
    def time(self, seconds: int, up: int) -> None:
        """Seconds pass, and the machine reports each of them."""
        now = self.market.clock()
        blocks = []
        for number, one in self.rented.items():
            if one.state == "destroyed":
                continue
            state: TickState = "running" if one.state == "running" else "stopped"
            moved = up if one.state == "running" else 0
            blocks.append(constant_block(number, now, seconds, state, up=moved, down=0, util=50))
            one.gpu += seconds if one.state == "running" else 0
            one.disk += seconds
            one.up += moved * seconds
        for kept in self.kept.values():
            kept.disk += seconds if kept.alive else 0
        self.market.clock.move_to(now + seconds)
        self.market.deliver(self.market.seal(self.machine, now, seconds, blocks))
        self.market.project()

    def _do(self, command: object) -> str | None:
        """The code of the refusal, or none."""
        assert callable(command)
        try:
            with self.market.ledger.unit() as unit:
                command(unit)
        except LedgerError as error:
            return error.code
        return None

    @invariant()
    def the_books_agree(self) -> None:
        """Balances and states are the model's, and debits equal credits."""
        if not hasattr(self, "market"):
            return
        from ledger.services.credit import read_credit  # noqa: PLC0415 - only to ask

        with self.market.ledger.reading() as connection:
            from ledger.services.ledger import read_policy  # noqa: PLC0415 - only to ask

            policy = read_policy(connection)
            for account, credit in read_credit(connection, self.people).items():
                available = credit.available(self.market.clock(), policy)
                assert available == self.available(account)
            rows = trial_balance(connection)
            assert sum(row.debit - row.credit for row in rows) == 0
            states = dict(
                connection.execute("SELECT instance_id, status FROM instances").fetchall()
            )
            alive = connection.execute(
                "SELECT volume_id FROM volumes WHERE destroyed_at IS NULL ORDER BY volume_id"
            ).fetchall()
        assert states == {number: one.state for number, one in self.rented.items()}
        assert [row[0] for row in alive] == [
            number for number, one in sorted(self.kept.items()) if one.alive
        ]


@pytest.mark.usefixtures("server")
def test_the_system_is_what_the_model_says(server: Server) -> None:
    """Any order of commands, time and refusals leaves the balances of the naive model."""
    from hypothesis.stateful import run_state_machine_as_test  # noqa: PLC0415 - its only use

    Business.server = server
    run_state_machine_as_test(
        Business,
        settings=settings(
            max_examples=examples(6),
            stateful_step_count=20,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
