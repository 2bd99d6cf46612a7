"""Volumes: what may be made, who may have it, where it ends (§5.6)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ledger.domain.events import VolumeDestroyed, VolumeOfferClosed
from ledger.errors import LedgerError
from ledger.services import cleanup_expired, policies, rentals, volume_offers, volumes
from ledger.services.ledger import Unit
from ledger.services.policies import volumes as ends
from ledger.services.questions import volumes as ask
from ledger.services.questions.machines import machine as machine_question
from ledger.services.volumes import Mount, NewVolume
from tests.support.market import DOLLAR, START, Market
from tests.support.volumes import RATE, create, delete, left, offer, shown

DAY = 86_400


def refused(market: Market, do: Callable[[Unit], object], code: str) -> LedgerError:
    """The command is refused with this code and leaves the log as it was."""
    head = market.head()
    with pytest.raises(LedgerError) as error, market.ledger.unit() as unit:
        do(unit)
    assert error.value.code == code
    assert market.head() == head
    return error.value


# --- what a host offers --------------------------------------------------------------------------


def test_a_volume_offer_takes_its_disk_from_what_slices_can_have(market: Market) -> None:
    """Σ instance disks + volumes ≤ machine disk: what is offered for volumes is nobody's slice."""
    alice, machine = market.account("alice", 100 * DOLLAR), market.machine()
    offer(market, machine, 1_500)
    error = refused(
        market, lambda unit: rentals.rent(unit, alice, machine, disk_gb=501), "no_capacity"
    )
    assert error.detail["free_disk_gb"] == 500
    row = market.connection.execute("SELECT disk_gb FROM open_offers").fetchone()
    assert row == (500,)
    with market.ledger.reading() as connection:
        assert machine_question(connection, machine, START).free_disk_gb == 500
    market.rent(alice, machine, disk_gb=500)


def test_a_volume_offer_fits_beside_the_instances(market: Market) -> None:
    """A host cannot offer disk for volumes that instances have, and can offer all the rest."""
    alice, machine = market.account("alice", 100 * DOLLAR), market.machine()
    market.rent(alice, machine, disk_gb=300)
    refused(
        market,
        lambda unit: volume_offers.offer(unit, machine, disk_gb=1_701, storage_rate=RATE),
        "no_capacity",
    )
    assert left(market, offer(market, machine, 1_700)) == 1_700


@pytest.mark.parametrize(
    ("disk_gb", "until"), [(0, None), (-1, None), (2_001, None), (10, START), (10, START - 1)]
)
def test_an_offer_that_cannot_be_is_refused(
    market: Market, disk_gb: int, until: int | None
) -> None:
    """No size beyond the machine's disk and no end that is not ahead."""
    machine = market.machine()
    refused(
        market,
        lambda unit: volume_offers.offer(
            unit, machine, disk_gb=disk_gb, storage_rate=RATE, until=until
        ),
        "invalid_args",
    )


def test_the_same_offer_again_changes_nothing(market: Market) -> None:
    """Repeating an offer gives its id and no fact; another rate replaces it under a new id."""
    machine = market.machine()
    first = offer(market, machine)
    head = market.head()
    assert offer(market, machine) == first
    assert market.head() == head
    second = offer(market, machine, rate=RATE + 1)
    assert second == first + 1
    alice = market.account("alice", 100 * DOLLAR)
    refused(market, lambda unit: volumes.create(unit, alice, NewVolume(first, 1)), "no_such_ask")


def test_volumes_count_towards_every_later_offer_of_their_machine(market: Market) -> None:
    """An offer of 500 GB on a machine with a volume of 100 has 400 left; deleting gives it back."""
    alice, machine = market.account("alice", 100 * DOLLAR), market.machine()
    first = offer(market, machine, 500)
    one = create(market, alice, first, 100)
    second = offer(market, machine, 500, RATE * 2)
    assert (left(market, first), left(market, second)) == (0, 400)
    assert offer(market, machine, 50, RATE) == 3
    assert left(market, 3) == 0
    delete(market, one)
    assert left(market, 3) == 50
    assert shown(market, one).storage_rate == RATE


def test_withdrawing_gives_the_disk_back_and_keeps_the_volumes(market: Market) -> None:
    """After a withdrawal slices may have all the disk that no volume has."""
    alice, machine = market.account("alice", 100 * DOLLAR), market.machine()
    one = create(market, alice, offer(market, machine, 1_000), 600)
    with market.ledger.unit() as unit:
        volume_offers.withdraw(unit, machine)
        volume_offers.withdraw(unit, machine)
    assert shown(market, one).status == "active"
    refused(market, lambda unit: rentals.rent(unit, alice, machine, disk_gb=1_401), "no_capacity")
    market.rent(alice, machine, disk_gb=1_400)


def test_an_offer_ends_by_itself(market: Market) -> None:
    """At its end date a volume offer closes, and its unsold disk is for slices again."""
    alice, machine = market.account("alice", 100 * DOLLAR), market.machine()
    one = offer(market, machine, 1_500, until=START + 60)
    market.clock.move_to(START + 60)
    refused(market, lambda unit: volumes.create(unit, alice, NewVolume(one, 1)), "no_such_ask")
    policies.run_due(market.ledger)
    closed = [fact for fact in market.facts() if isinstance(fact, VolumeOfferClosed)]
    assert [(fact.volume_offer_id, fact.reason) for fact in closed] == [(one, "ended")]
    market.rent(alice, machine, disk_gb=2_000)


def test_the_search_finds_what_can_be_made_now(market: Market) -> None:
    """Filters by machine, size, rate and verification; the cheapest first; nothing offline."""
    alice = market.account("alice", 100 * DOLLAR)
    cheap, dear = market.machine(), market.machine(host="eve")
    offer(market, dear, 100, 200)
    offer(market, cheap, 500, 100)

    def found(**filters: object) -> list[int]:
        with market.ledger.reading() as connection:
            rows = ask.volume_offers(connection, market.clock(), **filters)  # type: ignore[arg-type]
        return [row.machine_id for row in rows]

    assert found() == [cheap, dear]
    assert found(machine_id=dear) == [dear]
    assert found(disk_gb=101) == [cheap]
    assert found(storage_rate_max=100) == [cheap]
    assert found(verified=True) == []
    assert found(limit=1) == [cheap]
    assert found(after=(100, 2)) == [dear]
    create(market, alice, 1, 100)
    assert found() == [cheap]
    assert found(only_available=False) == [cheap, dear]
    market.clock.move_to(START + 61)
    assert found() == []


# --- making a volume -----------------------------------------------------------------------------


def test_a_volume_freezes_rate_fee_and_end(market: Market) -> None:
    """A dearer offer and a higher platform fee touch no volume that exists."""
    alice, machine = market.account("alice", 100 * DOLLAR), market.machine()
    one = create(market, alice, offer(market, machine, until=START + 30 * DAY))
    offer(market, machine, rate=RATE * 2, until=START + 60 * DAY)
    seen = shown(market, one)
    assert (seen.storage_rate, seen.fee_bp, seen.until) == (RATE, 1_500, START + 30 * DAY)


@pytest.mark.parametrize(("credit", "admitted"), [(500_000_000, True), (499_999_999, False)])
def test_a_volume_needs_a_day_of_its_cost(market: Market, credit: int, *, admitted: bool) -> None:
    """100 GB at $0.15: exactly $0.50 is admitted, a nano less is not, and no GPU is asked for."""
    alice, machine = market.account("alice", credit), market.machine()
    one = offer(market, machine)
    if admitted:
        assert create(market, alice, one) == 1
    else:
        error = refused(
            market,
            lambda unit: volumes.create(unit, alice, NewVolume(one, 100)),
            "insufficient_credit",
        )
        assert "hour of GPUs" not in error.message


def test_a_volume_beyond_what_is_left_is_refused(market: Market) -> None:
    """The offer says what it has left; nothing is made and nothing charged."""
    alice, machine = market.account("alice", 100 * DOLLAR), market.machine()
    one = offer(market, machine, 50)
    error = refused(
        market, lambda unit: volumes.create(unit, alice, NewVolume(one, 51)), "no_capacity"
    )
    assert error.detail["left_gb"] == 50
    refused(market, lambda unit: volumes.create(unit, alice, NewVolume(one, 0)), "invalid_args")
    refused(market, lambda unit: volumes.create(unit, alice, NewVolume(9, 1)), "no_such_ask")
    refused(
        market, lambda unit: volumes.create(unit, alice, NewVolume(one, 1, "a\0")), "invalid_args"
    )
    assert left(market, one) == 50


def test_a_silent_machine_takes_no_new_volume(market: Market) -> None:
    """What could not be made now is refused instead of being billed for nothing."""
    alice, machine = market.account("alice", 100 * DOLLAR), market.machine()
    one = offer(market, machine)
    market.clock.move_to(START + 61)
    refused(market, lambda unit: volumes.create(unit, alice, NewVolume(one, 1)), "no_capacity")


def test_a_volume_has_an_id_of_the_instances_counter(market: Market) -> None:
    """No instance and no volume share an id, so a charge names one contract."""
    alice, machine = market.account("alice", 100 * DOLLAR), market.machine(gpus=2)
    first = market.rent(alice, machine, gpus=1)
    second = create(market, alice, offer(market, machine))
    third = market.rent(alice, machine, gpus=1)
    assert (first, second, third) == (1, 2, 3)


# --- who has it ----------------------------------------------------------------------------------


def mounted(market: Market, account: int, machine: int, *mounts: Mount) -> int:
    """An instance with volumes."""
    return market.rent(account, machine, mounts=mounts)


def test_a_volume_in_use_cannot_be_deleted(market: Market) -> None:
    """Deletion is refused while an instance that is not destroyed has it, also a stopped one."""
    alice, machine = market.account("alice", 100 * DOLLAR), market.machine()
    one = create(market, alice, offer(market, machine))
    instance = mounted(market, alice, machine, Mount("/data", one))
    assert [(use.instance_id, use.mount_path) for use in shown(market, one).instances] == [
        (instance, "/data")
    ]
    with market.ledger.unit() as unit:
        rentals.stop(unit, instance)
    error = refused(market, lambda unit: volumes.delete(unit, one), "volume_in_use")
    assert error.detail["instances"] == [instance]
    with market.ledger.unit() as unit:
        rentals.destroy(unit, instance)
    assert shown(market, one).instances == []
    delete(market, one)
    head = market.head()
    delete(market, one)
    assert market.head() == head
    assert shown(market, one).status == "destroyed"


def test_one_volume_serves_several_instances(market: Market) -> None:
    """Instances of one account on its machine may share a volume; all must go before it goes."""
    alice, machine = market.account("alice", 100 * DOLLAR), market.machine(gpus=2)
    one = create(market, alice, offer(market, machine))
    pair = [market.rent(alice, machine, gpus=1, mounts=[Mount("/data", one)]) for _ in range(2)]
    with market.ledger.unit() as unit:
        rentals.destroy(unit, pair[0])
    refused(market, lambda unit: volumes.delete(unit, one), "volume_in_use")
    with market.ledger.unit() as unit:
        rentals.destroy(unit, pair[1])
    delete(market, one)


def test_anothers_volume_is_not_found(market: Market) -> None:
    """Attaching what is somebody else's is answered like what never was; nothing is rented."""
    alice, carol = market.account("alice", 100 * DOLLAR), market.account("carol", 100 * DOLLAR)
    machine = market.machine()
    one = create(market, alice, offer(market, machine))
    for volume in (one, 99):
        refused(
            market,
            lambda unit, volume=volume: rentals.rent(  # type: ignore[misc]  # bound at once
                unit, carol, machine, disk_gb=1, mounts=[Mount("/data", volume)]
            ),
            "no_such_volume",
        )


def test_a_volume_stays_on_its_machine(market: Market) -> None:
    """An instance on another machine cannot have it, and cannot have one made elsewhere."""
    alice = market.account("alice", 100 * DOLLAR)
    here, there = market.machine(), market.machine(host="eve")
    offered = offer(market, here)
    one = create(market, alice, offered)
    for wanted in (one, NewVolume(offered, 10)):
        refused(
            market,
            lambda unit, wanted=wanted: rentals.rent(  # type: ignore[misc]  # bound at once
                unit, alice, there, disk_gb=1, mounts=[Mount("/data", wanted)]
            ),
            "invalid_args",
        )


def test_a_volume_made_with_an_instance_exists_only_with_it(market: Market) -> None:
    """One transaction: a rental that is refused leaves no volume, one that is made has it."""
    alice, carol = market.account("alice", 100 * DOLLAR), market.account("carol", 100 * DOLLAR)
    machine = market.machine()
    offered = offer(market, machine)
    instance = mounted(market, alice, machine, Mount("/data", NewVolume(offered, 30, "set")))
    (volume,) = market.connection.execute("SELECT volume_id, name FROM volumes").fetchall()
    assert volume == (instance - 1, "set")
    refused(
        market,
        lambda unit: rentals.rent(
            unit, carol, machine, disk_gb=1, mounts=[Mount("/data", NewVolume(offered, 30))]
        ),
        "no_capacity",
    )
    assert left(market, offered) == 470
    refused(market, lambda unit: volumes.delete(unit, volume[0]), "volume_in_use")


@pytest.mark.parametrize(
    "path", ["", "/", "data", "/data/", "//data", "/a/../b", "/.", "/a b", "/a\0", "/" + "x" * 65]
)
def test_a_mount_path_is_a_plain_absolute_folder(market: Market, path: str) -> None:
    """Nothing that could be read in two ways by a container engine reaches a host."""
    alice, machine = market.account("alice", 100 * DOLLAR), market.machine()
    one = create(market, alice, offer(market, machine))
    refused(
        market,
        lambda unit: rentals.rent(unit, alice, machine, disk_gb=1, mounts=[Mount(path, one)]),
        "invalid_args",
    )


def test_a_path_and_a_volume_are_named_once(market: Market) -> None:
    """Two volumes at one path, or one at two, are refused; so is a seventeenth."""
    alice, machine = market.account("alice", 100 * DOLLAR), market.machine()
    offered = offer(market, machine)
    one, two = create(market, alice, offered, 1), create(market, alice, offered, 1)
    many = [Mount(f"/d{number}", NewVolume(offered, 1)) for number in range(17)]
    for mounts in (
        [Mount("/data", one), Mount("/data", two)],
        [Mount("/a", one), Mount("/b", one)],
        many,
    ):
        refused(
            market,
            lambda unit, mounts=mounts: rentals.rent(  # type: ignore[misc]  # bound at once
                unit, alice, machine, disk_gb=1, mounts=mounts
            ),
            "invalid_args",
        )


def test_the_host_learns_of_volumes(market: Market) -> None:
    """The desired state names each volume, what it begins with, who has it, and what is gone."""
    alice, machine = market.account("alice", 100 * DOLLAR), market.machine()
    offered = offer(market, machine)
    one = create(market, alice, offered, 30)
    with market.ledger.unit() as unit:
        two = volumes.clone(unit, one, offered)
    instance = mounted(market, alice, machine, Mount("/data", one))
    before = market.usage.desired(machine)
    assert [(v.volume, v.want, v.disk_bytes, v.cloned_from) for v in before.volumes] == [
        (one, "kept", 30 * 10**9, None),
        (two, "kept", 30 * 10**9, one),
    ]
    assert [(m.volume, m.mount_path) for m in before.instances[0].volumes] == [(one, "/data")]
    with market.ledger.unit() as unit:
        rentals.destroy(unit, instance)
    delete(market, one)
    after = market.usage.desired(machine)
    assert after.version > before.version
    assert [(v.volume, v.want) for v in after.volumes] == [(one, "gone"), (two, "kept")]


# --- clones --------------------------------------------------------------------------------------


def test_a_clone_is_a_contract_of_its_own(market: Market) -> None:
    """A clone on another machine has that offer's rate and its own meter; the source goes on."""
    alice = market.account("alice", 100 * DOLLAR)
    here, there = market.machine(), market.machine(host="eve")
    source = create(market, alice, offer(market, here), 30)
    dear = offer(market, there, 500, RATE * 2)
    market.run(here, [], 60)
    market.deliver(market.seal(there, START, 60, []))
    with market.ledger.unit() as unit:
        copy = volumes.clone(unit, source, dear, disk_gb=40, name="copy")
    seen = shown(market, copy)
    assert (seen.account_id, seen.machine_id, seen.disk_bytes) == (alice, there, 40 * 10**9)
    assert (seen.storage_rate, seen.cloned_from, seen.name) == (RATE * 2, source, "copy")
    market.deliver(market.seal(there, START + 60, 30, []), at=START + 95)
    assert market.seconds(copy) == (0, 30)
    assert market.seconds(source) == (0, 60)


def test_a_clone_is_as_large_as_its_source(market: Market) -> None:
    """A smaller clone is refused; without a size it has that of its source."""
    alice, machine = market.account("alice", 100 * DOLLAR), market.machine()
    offered = offer(market, machine)
    source = create(market, alice, offered, 30)
    refused(market, lambda unit: volumes.clone(unit, source, offered, disk_gb=29), "invalid_args")
    with market.ledger.unit() as unit:
        copy = volumes.clone(unit, source, offered)
    assert shown(market, copy).disk_bytes == 30 * 10**9
    assert left(market, offered) == 440


def test_what_is_gone_or_cannot_be_read_is_not_cloned(market: Market) -> None:
    """A destroyed source is not found, and a silent machine gives nothing away."""
    alice = market.account("alice", 100 * DOLLAR)
    here, there = market.machine(), market.machine(host="eve")
    offered = offer(market, here)
    gone, kept = create(market, alice, offered, 1), create(market, alice, offered, 1)
    delete(market, gone)
    target = offer(market, there)
    refused(market, lambda unit: volumes.clone(unit, gone, target), "no_such_volume")
    market.clock.move_to(START + 61)
    market.deliver(market.seal(there, START, 60, []))
    refused(market, lambda unit: volumes.clone(unit, kept, target), "no_capacity")


# --- ends ----------------------------------------------------------------------------------------


def notices(market: Market, account: int) -> list[tuple[str, str]]:
    """Codes and what they are about."""
    return market.connection.execute(
        "SELECT code, about FROM notices WHERE account_id = %s ORDER BY position", [account]
    ).fetchall()


def test_a_volume_expires_and_is_still_billed(market: Market) -> None:
    """A day before its end the renter is told; at its end nobody new gets it; its meter goes on."""
    alice, machine = market.account("alice", 100 * DOLLAR), market.machine()
    one = create(market, alice, offer(market, machine, until=START + 2 * DAY))
    with market.ledger.reading() as connection:
        assert ends.next_due(connection, START) == START + DAY
        assert ends.next_due(connection, START + DAY) == START + 2 * DAY
        assert ends.next_due(connection, START + 2 * DAY) is None
    market.clock.move_to(START + DAY)
    policies.run_due(market.ledger)
    policies.run_due(market.ledger)
    market.clock.move_to(START + 2 * DAY)
    policies.run_due(market.ledger)
    policies.run_due(market.ledger)
    about = f"volume-{one}"
    told = [code for code, what in notices(market, alice) if what == about]
    assert told == ["created", "expiring", "expired"]
    assert shown(market, one).status == "expired"
    refused(
        market,
        lambda unit: volumes.attach_all(unit, alice, machine, 7, [Mount("/data", one)]),
        "contract_expired",
    )
    market.run(machine, [], 60)
    assert market.seconds(one) == (0, 60)


def test_a_host_may_remove_an_expired_volume_after_two_days(market: Market) -> None:
    """48 hours after its end, unless a living instance has it."""
    alice, machine = market.account("alice", 100 * DOLLAR), market.machine(gpus=2)
    offered = offer(market, machine, until=START + 60)
    free, used = create(market, alice, offered, 10), create(market, alice, offered, 10)
    instance = market.rent(alice, machine, gpus=1, mounts=[Mount("/data", used)])
    market.clock.move_to(START + 60)
    policies.run_due(market.ledger)
    market.clock.move_to(START + 60 + 2 * DAY - 1)
    with market.ledger.unit() as unit:
        assert cleanup_expired.clean_up(unit, machine) == []
    market.clock.move_to(START + 60 + 2 * DAY)
    with market.ledger.unit() as unit:
        assert cleanup_expired.clean_up(unit, machine) == [free]
        rentals.destroy(unit, instance)
        assert cleanup_expired.clean_up(unit, machine) == [used]
    by = {fact.by for fact in market.facts() if isinstance(fact, VolumeDestroyed)}
    assert by == {"host"}


def test_a_machine_with_a_volume_cannot_be_removed(market: Market) -> None:
    """`has_contracts` while a volume lives; afterwards its volume offer goes with the machine."""
    alice, machine = market.account("alice", 100 * DOLLAR), market.machine()
    one = create(market, alice, offer(market, machine))
    refused(market, lambda unit: cleanup_expired.remove_machine(unit, machine), "has_contracts")
    delete(market, one)
    with market.ledger.unit() as unit:
        cleanup_expired.remove_machine(unit, machine)
    row = market.connection.execute("SELECT reason FROM volume_offers").fetchone()
    assert row == ("machine_removed",)
    assert market.rebuild().equal


def test_maintenance_is_told_to_those_who_only_keep_a_volume(market: Market) -> None:
    """A renter without an instance learns when the machine of its volume will be away."""
    from ledger.services import maintenance  # noqa: PLC0415 - its only use

    alice, machine = market.account("alice", 100 * DOLLAR), market.machine()
    create(market, alice, offer(market, machine))
    with market.ledger.unit() as unit:
        maintenance.schedule(unit, machine, START + 8 * DAY, 3_600, "disk")
    assert ("maintenance", "maintenance-1") in notices(market, alice)


def test_a_webhook_about_a_volume_says_what_it_is_then(market: Market) -> None:
    """The event of a notice carries the volume as of that fact, not as it is now."""
    from ledger.services.webhooks.events import event_at  # noqa: PLC0415 - its only use

    alice, machine = market.account("alice", 100 * DOLLAR), market.machine()
    with market.ledger.unit() as unit:
        offered = volume_offers.offer(unit, machine, disk_gb=50, storage_rate=RATE)
        one = volumes.create(unit, alice, NewVolume(offered, 30, "datasets"))
    delete(market, one)
    rows = market.connection.execute(
        "SELECT position FROM notices WHERE about = %s ORDER BY position", [f"volume-{one}"]
    ).fetchall()
    with market.ledger.reading() as connection:
        first, last = (event_at(connection, row[0]) for row in rows)
    assert (first.type, last.type) == ("created", "destroyed")
    assert first.data == {
        "volume_id": one,
        "machine_id": machine,
        "name": "datasets",
        "disk_gb": 30,
        "status": "active",
        "until": None,
        "version": 1,
    }
    assert (last.data["status"], last.data["version"]) == ("destroyed", 2)
