"""What a host may end by itself: contracts two days after their end, and an empty machine."""

from __future__ import annotations

import pytest

from adapters.hostagent.identity import HostIdentity
from ledger.domain.events import MachineSpec
from ledger.errors import NotFoundError, RejectedError
from ledger.services import cleanup_expired, listings, machines, maintenance, rentals
from tests.support.market import DOLLAR, START, Market
from tests.support.operations import DAY, HOUR, at, locations, say, topics


def clean_up(market: Market, machine: int) -> list[int]:
    """The host destroys what expired long enough ago."""
    with market.ledger.unit() as unit:
        return cleanup_expired.clean_up(unit, machine)


def destroy(market: Market, machine: int, one: int) -> None:
    """The host destroys this one."""
    with market.ledger.unit() as unit:
        cleanup_expired.destroy_expired(unit, machine, one)


def remove(market: Market, machine: int) -> None:
    """The host takes its machine away."""
    with market.ledger.unit() as unit:
        cleanup_expired.remove_machine(unit, machine)


def test_cleaning_up_is_allowed_at_its_second(market: Market) -> None:
    """Storage is billed until 48 h after the end; then the host may destroy, and that is final."""
    alice, carol = market.account("alice", 500 * DOLLAR), market.account("carol", 500 * DOLLAR)
    machine = market.machine(gpus=2, until=START + DAY)
    first = market.rent(alice, machine, gpus=1)
    second = market.rent(carol, machine, gpus=1)
    head = market.head()
    assert clean_up(market, machine) == []
    with pytest.raises(RejectedError) as running:
        destroy(market, machine, first)
    assert running.value.code == "not_expired"
    assert market.head() == head
    at(market, START + DAY)
    assert {market.status(first), market.status(second)} == {"expired"}
    market.clock.move_to(START + 3 * DAY - 1)
    assert clean_up(market, machine) == []
    with pytest.raises(RejectedError) as early:
        destroy(market, machine, first)
    assert early.value.detail == {"allowed_at": "2026-03-04T10:00:00Z"}
    market.clock.move_to(START + 3 * DAY)
    destroy(market, machine, first)
    head = market.head()
    destroy(market, machine, first)
    assert market.head() == head
    assert market.status(second) == "expired"
    assert clean_up(market, machine) == [second]
    assert clean_up(market, machine) == []
    rows = market.connection.execute(
        "SELECT status, destroyed_at FROM instances ORDER BY instance_id"
    ).fetchall()
    assert rows == [("destroyed", START + 3 * DAY)] * 2
    assert market.rebuild().equal


def test_a_host_cleans_up_its_own_machine_only(market: Market) -> None:
    """An instance of another machine is not found, and a machine that never was neither."""
    alice = market.account("alice", 500 * DOLLAR)
    machine, other = market.machine(), market.machine()
    one = market.rent(alice, machine)
    with pytest.raises(NotFoundError) as error:
        destroy(market, other, one)
    assert error.value.code == "no_such_instance"
    with pytest.raises(NotFoundError) as missing:
        clean_up(market, 99)
    assert missing.value.code == "no_such_machine"


def test_a_machine_with_contracts_stays(market: Market) -> None:
    """Any instance that is not destroyed, stopped or expired too, keeps the machine."""
    alice = market.account("alice", 500 * DOLLAR)
    machine = market.machine(until=START + DAY)
    one = market.rent(alice, machine)
    with market.ledger.unit() as unit:
        rentals.stop(unit, one)
    for second in (START + HOUR, START + DAY, START + 3 * DAY):
        at(market, second)
        head = market.head()
        with pytest.raises(RejectedError) as error:
            remove(market, machine)
        assert (error.value.code, error.value.detail) == ("has_contracts", {"contracts": 1})
        assert market.head() == head
    assert clean_up(market, machine) == [one]
    remove(market, machine)


def test_a_removed_machine_is_gone_and_its_history_is_not(market: Market) -> None:
    """Nobody finds, lists or hears it any more; what was charged on it stays charged."""
    alice = market.account("alice", 500 * DOLLAR)
    machine = market.machine()
    one = market.rent(alice, machine)
    market.confirm(machine, one)
    market.run(machine, [one], 600)
    with market.ledger.unit() as unit:
        rentals.destroy(unit, one)
        maintenance.schedule(unit, machine, START + DAY, HOUR, "gpu")
    say(market, locations(market, 4), machine, "down")
    before = market.charges(one)
    late = market.seal(machine, START + 600, 60)
    remove(market, machine)
    assert market.charges(one) == before
    for command in (
        lambda unit: rentals.rent(unit, alice, machine, disk_gb=1),
        lambda unit: listings.list_machine(unit, machine, listings.Prices(1, 0)),
        lambda unit: maintenance.schedule(unit, machine, START + DAY, HOUR, "gpu"),
        lambda unit: cleanup_expired.remove_machine(unit, machine),
        lambda unit: machines.offer_enrolment(unit, machine),
    ):
        with market.ledger.unit() as unit, pytest.raises(NotFoundError) as error:
            command(unit)
        assert error.value.code == "no_such_machine"
    market.clock.move_to(START + 700)
    assert market.deliver(late)[0].status == "unauthorized"
    assert market.connection.execute("SELECT count(*) FROM open_offers").fetchone() == (0,)
    assert market.connection.execute("SELECT status FROM maintenance_windows").fetchall() == [
        ("cancelled",)
    ]
    for second in (START + 1_000, START + 2 * DAY):
        at(market, second)
    assert topics(market, "machine.")[-1] == ("machine.removed", START + 600)
    assert [topic for topic, _ in topics(market, "outage.")] == [
        "outage.detected",
        "outage.ended",
        "outage.settled",
    ]
    assert market.rebuild().equal


def test_the_gpus_of_a_removed_machine_may_come_back(market: Market) -> None:
    """The same cards in another computer: enrolled, listed and rented again, as a new machine."""
    alice = market.account("alice", 500 * DOLLAR)
    machine = market.machine(gpus=2)
    one = market.rent(alice, machine)
    market.confirm(machine, one)
    market.clock.move_to(START + 100)
    with market.ledger.unit() as unit:
        rentals.destroy(unit, one)
    remove(market, machine)
    spec = MachineSpec(
        gpus=2,
        gpu_name="RTX 4090",
        gpu_ram_gb=24,
        cpu_cores=16,
        ram_gb=128,
        disk_gb=4_000,
        up_mbps=1_000,
        down_mbps=1_000,
    )
    bob = market.account("bob")
    with market.ledger.unit() as unit:
        again = machines.register(unit, bob, spec)
        key = HostIdentity.from_seed(b"another computer".ljust(32)).public_key_hex
        token = machines.offer_enrolment(unit, again)
        machines.enrol(unit, token, key, [f"GPU-{machine}-{slot}" for slot in (1, 0)])
        listings.list_machine(unit, again, listings.Prices(360_000_000, 0))
    assert again != machine
    market.rent(alice, again)
    rows = market.connection.execute(
        "SELECT machine_id, slot, lower(during), upper(during) FROM gpu_assignments"
        " ORDER BY lower(during), slot"
    ).fetchall()
    assert rows == [
        (machine, 0, START, START + 100),
        (machine, 1, START, START + 100),
        (again, 0, START + 100, None),
        (again, 1, START + 100, None),
    ]
    assert market.rebuild().equal
