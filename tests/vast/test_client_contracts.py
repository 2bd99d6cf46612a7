"""The real client on contracts: several at once, restarts, deposits, proposals, what is read."""

from __future__ import annotations

from ledger.domain.events import InstanceRebooted, PublishedPort
from ledger.domain.ids import instance_stream
from ledger.services import connections, jobs
from ledger.services.connections import Addresses
from ledger.services.questions import market as ask
from tests.support.market import DOLLAR, START, Market
from tests.vast.conftest import Person, good_machine
from tests.vast.drives import drives
from tests.vast.loopback import Loopback
from tests.vast.test_client import CENT, of
from tests.vast.test_instances import offer_of

DAY = 86_400


@drives(
    *("create instances", "stop instances", "start instances", "destroy instances"),
    *("reboot instance", "recycle instance", "ssh-url", "scp-url"),
)
def test_several_at_once(market: Market, person: Person) -> None:
    """IDEM-01, API-07: several are rented, stopped, started, destroyed; restarts keep the GPUs."""
    machine = good_machine(market, gpus=2)
    other = good_machine(market)
    alice = person("alice", "renter")
    account = market.account("alice")
    offers = [str(offer_of(market, one)) for one in (machine, other)]

    assert alice("create", "instances", *offers, "--image", "img", "--disk", "10").err == ""
    numbers = [str(one.instance_id) for one in of(market, account)]
    assert [one.machine_id for one in of(market, account)] == [machine, other]
    shown = str(list(map(int, numbers)))
    assert f"stopping instance {shown}" in alice("stop", "instances", *numbers).out
    assert [one.status for one in of(market, account)] == ["stopped", "stopped"]
    assert f"starting instance {shown}" in alice("start", "instances", *numbers).out
    assert [one.status for one in of(market, account)] == ["loading", "loading"]

    first = numbers[0]
    assert "only a running instance" in alice("reboot", "instance", first).err
    market.confirm(machine, int(first), assignment=2)
    port = PublishedPort(container_port=22, host_port=40_001, protocol="tcp")
    with market.ledger.unit() as unit:
        connections.publish(unit, int(first), 2, [port], Addresses(public_ip="203.0.113.9"))
    ports = alice.raw("show", "instance", first)["ports"]
    assert [(name, one["HostPort"]) for name, (one,) in ports.items()] == [("22/tcp", "40001")]
    assert alice("ssh-url", first).out.strip() == "ssh://root@203.0.113.9:40001"
    assert alice("scp-url", first).out.strip() == "scp://root@203.0.113.9:40001"
    assert f"Rebooting instance {first}" in alice("reboot", "instance", first).out
    assert f"Recycling instance {first}" in alice("recycle", "instance", first).out
    facts = market.facts(instance_stream(int(first)))
    assert sum(isinstance(one, InstanceRebooted) for one in facts) == 2
    assert alice.raw("show", "instance", first)["cur_state"] == "running"

    assert f"destroying instance {shown}" in alice("destroy", "instances", *numbers, "-y").out
    assert {one.status for one in of(market, account)} == {"destroyed"}


@drives("prepay instance", "show deposit")
def test_a_prepaid_term(market: Market, person: Person) -> None:
    """What the client shows of a deposit is locked in the ledger; without credit it is told so."""
    machine = good_machine(market, gpu_hour=DOLLAR)
    alice = person("alice", "renter")
    number = str(market.rent(market.account("alice"), machine))

    refused = alice("prepay", "instance", number, "5000")
    assert (refused.code, refused.out) == (0, "")
    assert "Failed with error 411" in refused.err
    assert alice.raw("show", "deposit", number)["refundable_deposit"] == 0
    printed = alice("prepay", "instance", number, "50").out
    assert f"months of instance {number} applying $50.0 credits" in printed
    assert alice.raw("show", "deposit", number)["refundable_deposit"] == 50
    with market.ledger.reading() as connection:
        (term,) = ask.reservations(connection, int(number))
    assert (term.status, term.remaining) == ("running", 50 * DOLLAR)


@drives(
    *("show pending-price-increases", "accept price-increase", "reject price-increase"),
    "list machines",
)
def test_proposed_prices(market: Market, person: Person) -> None:
    """PRICE-09: an accepted price holds from the contract's end; a second answer is stale."""
    end = START + DAY
    machines = [good_machine(market, gpu_hour=40 * CENT, until=end) for _ in range(2)]
    alice, bob = person("alice", "renter"), person("bob", "host")
    account = market.account("alice")
    first, second = (str(market.rent(account, one)) for one in machines)

    assert alice.raw("show", "pending-price-increases")["count"] == 0
    dear = ("-g", ".5", "-s", ".15", "-u", ".003", "-d", ".002", "-e", "12/31/2026")
    listed = bob.raw("list", "machines", *map(str, machines), *dear)
    assert [one["success"] for one in listed] == [True, True]
    table = alice("show", "pending-price-increases", "--no-color").out
    assert "0.4" in table
    assert "0.5" in table

    assert alice("accept", "price-increase", first).code == 1, "without --yes nothing is sent"
    accepted = alice("accept", "price-increase", first, "--yes")
    assert "Accepted 1 / Stale 0 / Failed 0 of 1" in accepted.out
    rejected = alice("reject", "price-increase", first, second, "--yes")
    assert (rejected.code, "Rejected 1 / Stale 1 / Failed 0 of 2" in rejected.out) == (2, True)
    views = {one.instance_id: one for one in of(market, account)}
    assert [one.gpu_rate for one in views.values()] == [40 * CENT] * 2
    assert [(terms.gpu_rate, terms.effective_at) for terms in views[int(first)].coming] == [
        (50 * CENT, end)
    ]
    assert views[int(second)].coming == []


@drives("change bid", "show scheduled-jobs", "delete scheduled-job")
def test_a_bid_that_changes_by_itself(market: Market, loopback: Loopback, person: Person) -> None:
    """`change bid --schedule` is a job with the bid in nanos, seen and deleted by its number."""
    machine = good_machine(market)
    alice = person("alice", "renter")
    account = market.account("alice")
    number = str(market.rent(account, machine, bid=DOLLAR))
    weekly = ("--schedule", "WEEKLY", "--day", "1", "--hour", "3")
    assert "success" in alice("change", "bid", number, "--price", ".35", *weekly).out
    with market.ledger.reading() as connection:
        (job,) = jobs.jobs(connection, account)
    assert (job.plan.action, job.plan.bid, job.plan.day, job.plan.hour) == (
        *("change_bid", 35 * CENT, 1, 3),
    )
    assert "bid_price" in alice("show", "scheduled-jobs").out
    (shown,) = alice.raw("show", "scheduled-jobs")
    assert shown["id"] == job.job_id
    assert alice("delete", "scheduled-job", str(job.job_id)).err == ""
    with market.ledger.reading() as connection:
        assert jobs.jobs(connection, account) == []
    assert loopback.requests()
