"""The real client of a host: volumes of many machines, what ended, what cannot be moved."""

from __future__ import annotations

from ledger.services.questions import volumes as ask
from tests.support.market import START, Market
from tests.support.operations import DAY, at
from tests.vast.conftest import Person, good_machine
from tests.vast.drives import drives
from tests.vast.test_client import of


@drives("list volumes", "cleanup machine", "defrag machines", "delete machine", "show machines")
def test_a_host_tidies_up(market: Market, person: Person) -> None:
    """Expired contracts are removed, nothing is moved, and an empty machine can go."""
    machines = [good_machine(market, until=START + DAY) for _ in range(2)]
    numbers = [str(one) for one in machines]
    bob = person("bob", "host")
    account = market.account("alice", 100 * 10**9)
    instance = market.rent(account, machines[0])
    market.confirm(machines[0], instance)

    assert "Created" in bob("list", "volumes", *numbers, "-p", ".1", "-s", "200").out
    with market.ledger.reading() as connection:
        offers = ask.volume_offers(connection, market.clock())
    assert [(one.machine_id, one.disk_gb) for one in offers] == [(one, 200) for one in machines]
    moved = bob("defrag", "machines", *numbers).out
    assert "'success': True" in moved
    assert market.status(instance) == "running"

    at(market, START + DAY)
    assert market.status(instance) == "expired"
    market.clock.move_to(START + 3 * DAY)
    cleaned = bob.raw("cleanup", "machine", numbers[0])
    assert (cleaned["success"], cleaned["num_deleted"]) == (True, 1)
    assert [one.status for one in of(market, account)] == ["destroyed"]
    assert bob.raw("cleanup", "machine", numbers[0])["num_deleted"] == 0

    assert f"deleted machine_id ({numbers[1]})" in bob("delete", "machine", numbers[1]).out
    shown = bob.raw("show", "machines")["machines"]
    assert [one["id"] for one in shown] == [machines[0]]


@drives("self-test machine")
def test_a_self_test_reads_the_offer(market: Market, person: Person) -> None:
    """Its checks before the rental read the machine's own offer; one that fails rents nothing."""
    machine = good_machine(market)
    bob = person("bob", "host")
    head = market.head()
    tested = bob("self-test", "machine", str(machine))
    assert "PCIe bandwidth\n  actual: 0.0 GB/s" in tested.out, "nobody measures it"
    assert "Test failed: 1 preflight requirement check(s) failed" in tested.out
    assert market.head() == head
