"""Ways into a container: of the assignment that runs, sealed, gone with the instance."""

from __future__ import annotations

from typing import Any

import pytest

from ledger.domain.events import ConnectionPublished, PublishedPort
from ledger.errors import LedgerError, NotFoundError, RejectedError
from ledger.services import connections, erasure, rentals
from ledger.services.connections import Addresses, WayIn
from tests.contract.test_vault import everything
from tests.support.market import DOLLAR, Market

DIGEST = "sha256:" + "5e" * 32
SSH = PublishedPort(container_port=22, host_port=40_022, protocol="tcp")
HERE = Addresses(public_ip="203.0.113.77", ssh_host="ssh.example", ssh_port=40_022)


@pytest.fixture
def running(market: Market) -> tuple[int, int]:
    """A machine and an instance that runs on it under its first assignment."""
    machine = market.machine()
    instance = market.rent(market.account("alice", 100 * DOLLAR), machine)
    market.confirm(machine, instance)
    return machine, instance


def publish(market: Market, instance: int, assignment: int = 1, **changes: Any) -> None:
    """What the host says of an instance."""
    given: dict[str, Any] = {"ports": [SSH], "addresses": HERE, "digest": DIGEST, **changes}
    with market.ledger.unit() as unit:
        connections.publish(unit, instance, assignment, **given)


def way_into(market: Market, instance: int) -> WayIn | None:
    """How one gets in now."""
    with market.ledger.reading() as connection:
        return connections.way_into(connection, market.ledger.vault, instance)


def test_a_way_in_is_shown_and_the_log_has_no_address(
    market: Market, running: tuple[int, int]
) -> None:
    """Ports and digest are in the fact, addresses by reference and keyed hash alone (§20)."""
    _, instance = running
    assert way_into(market, instance) is None
    publish(market, instance)
    found = way_into(market, instance)
    assert found is not None
    assert (found.ports, found.addresses, found.digest) == ([SSH], HERE, DIGEST)
    (fact,) = [one for one in market.facts() if isinstance(one, ConnectionPublished)]
    assert fact.ports == [SSH]
    for text in (b"203.0.113.77", b"ssh.example"):
        assert text not in everything(market)
    assert market.rebuild().equal


def test_the_same_again_is_no_fact_and_another_replaces_it(
    market: Market, running: tuple[int, int]
) -> None:
    """A host may repeat itself; other ports, addresses or digests are each another fact."""
    _, instance = running
    publish(market, instance)
    head = market.head()
    publish(market, instance)
    assert market.head() == head
    other = Addresses(public_ip="203.0.113.78")
    others: list[dict[str, Any]] = [{"addresses": other}, {"ports": []}, {"digest": None}]
    for number, changes in enumerate(others, 1):
        publish(market, instance, **changes)
        assert market.head() == head + number
    publish(market, instance, addresses=Addresses(), ports=[])
    found = way_into(market, instance)
    assert found is not None
    assert (found.addresses, found.ports) == (None, [])
    assert market.rebuild().equal


def test_only_the_assignment_that_runs_can_be_published(
    market: Market, running: tuple[int, int]
) -> None:
    """Another assignment, and a stopped instance, are `stale_assignment`; a stop hides the way."""
    _, instance = running
    for assignment in (0, 2):
        with pytest.raises(RejectedError) as error:
            publish(market, instance, assignment)
        assert error.value.code == "stale_assignment"
    publish(market, instance)
    with market.ledger.unit() as unit:
        rentals.stop(unit, instance)
    assert way_into(market, instance) is None
    with pytest.raises(RejectedError):
        publish(market, instance, ports=[])
    with market.ledger.unit() as unit:
        rentals.start(unit, instance)
    assert way_into(market, instance) is None
    publish(market, instance, 2)
    assert way_into(market, instance) is not None


def test_a_destroy_takes_it_out_of_table_and_vault(
    market: Market, running: tuple[int, int]
) -> None:
    """Once destroyed there is no way in, no address in the vault, and nothing can be published."""
    _, instance = running
    publish(market, instance)
    with market.ledger.unit() as unit:
        rentals.destroy(unit, instance)
    assert way_into(market, instance) is None
    kept = market.connection.execute(
        "SELECT (SELECT count(*) FROM connections), (SELECT count(*) FROM vault_items"
        " WHERE name LIKE 'connection-%')"
    ).fetchone()
    assert kept == (0, 0)
    with pytest.raises(NotFoundError) as error:
        publish(market, instance)
    assert error.value.code == "no_such_instance"
    assert market.rebuild().equal


def test_erasing_the_renter_hides_the_addresses(market: Market, running: tuple[int, int]) -> None:
    """After the renter's personal data are erased, ports stay and addresses are gone."""
    _, instance = running
    publish(market, instance)
    alice = market.account("alice")
    with market.ledger.unit() as unit:
        erasure.erase_subject(unit, alice)
    found = way_into(market, instance)
    assert found is not None
    assert (found.addresses, found.ports) == (None, [SSH])
    assert market.rebuild().equal


@pytest.mark.parametrize(
    "changes",
    [
        {"digest": "sha256:short"},
        {"ports": [PublishedPort(container_port=0, host_port=1, protocol="tcp")]},
        {"ports": [PublishedPort(container_port=1, host_port=65_536, protocol="tcp")]},
        {"ports": [PublishedPort(container_port=1, host_port=1, protocol="icmp")]},
        {"ports": [SSH] * 257},
    ],
)
def test_what_is_no_way_in(
    market: Market, running: tuple[int, int], changes: dict[str, Any]
) -> None:
    """Ports that do not exist and digests that are none are `invalid_args`."""
    with pytest.raises(RejectedError) as error:
        publish(market, running[1], **changes)
    assert error.value.code == "invalid_args"


def test_an_instance_that_never_was(market: Market) -> None:
    """An unknown id is `no_such_instance`."""
    with pytest.raises(LedgerError) as error:
        publish(market, 99)
    assert error.value.code == "no_such_instance"
