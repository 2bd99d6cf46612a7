"""Volumes at the command line: listed, and explained like every other contract."""

from __future__ import annotations

import pytest

from ledger.services.volumes import Mount
from tests.cli.conftest import Cli
from tests.support.market import DOLLAR, Market
from tests.support.volumes import create, delete, offer


@pytest.fixture
def kept(dsn: str) -> None:
    """Alice has a volume that an instance uses, and one that she deleted."""
    market = Market(dsn)
    alice, machine = market.account("alice", 10 * DOLLAR), market.machine()
    offered = offer(market, machine)
    one, two = create(market, alice, offered), create(market, alice, offered, 1)
    market.rent(alice, machine, mounts=[Mount("/data", one)])
    delete(market, two)
    market.run(machine, [3], 3_600, state="loading")
    market.project()
    market.close()


@pytest.mark.usefixtures("kept")
def test_volumes_are_listed_with_who_has_them(own_cli: Cli) -> None:
    """Size, rate, cost so far and the living instances of each, filtered by state and machine."""
    first, second = own_cli("volumes", "--account", "alice", "--json").json
    assert (first["volume_id"], first["status"], first["storage_charge"]) == (
        1,
        "active",
        "0.020833333",
    )
    assert first["instances"] == [{"instance_id": 3, "mount_path": "/data"}]
    assert (second["status"], second["storage_charge"]) == ("destroyed", "0")
    assert len(own_cli("volumes", "--status", "active", "--json").json) == 1
    assert own_cli("volumes", "--machine", 9).out == "no volumes\n"
    assert own_cli("volumes", "--account", "bob").out == "no volumes\n"
    page = own_cli("volumes", "--limit", 1)
    assert "--after 1" in page.err
    assert "/data" in page.out


@pytest.mark.usefixtures("kept")
def test_a_volume_is_explained_by_its_id(own_cli: Cli) -> None:
    """Terms, seconds, formula and facts of the storage meter, under the word volume."""
    shown = own_cli("explain", 1).out
    for part in (
        "volume 1, storage, segment 1: $0.020833333",
        "volume, $0.15 a GB-month, platform fee 15 %",
        "3,600 attested, of which 0 not billed",
        "volume.created.v1",
        "volume.attached.v1",
        "first report 2026-03-01T10:00:00Z in usage-1-",
    ):
        assert part in shown
    assert "instance 1," not in shown


@pytest.mark.usefixtures("kept")
def test_charges_and_transfers_say_volume(own_cli: Cli) -> None:
    """A line of a volume is told apart from one of an instance."""
    kinds = {one["instance_id"]: one["kind"] for one in own_cli("charges", "--json").json}
    assert kinds == {1: "volume", 3: "on_demand"}
    moved = {one["reference"] for one in own_cli("transfers", "--json").json}
    assert {"volume-1", "instance-3"} <= moved
