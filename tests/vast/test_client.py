"""The real client, command by command: what it prints, and what the ledger then says."""

from __future__ import annotations

from typing import Any

from ledger.services.questions import balances
from ledger.services.questions.instances import InstanceView, instances
from tests.support.market import DOLLAR, START, Market
from tests.vast.captured import CREATE, GUIDE_QUERY, SEARCH_A
from tests.vast.conftest import Person, good_machine
from tests.vast.drives import drives
from tests.vast.loopback import Loopback

CENT = DOLLAR // 100
WINDOW = ("-s", "2026-03-01", "-e", "2026-03-02")


def of(market: Market, account: int) -> list[InstanceView]:
    """The instances that an account ever had, as the ledger has them."""
    with market.ledger.reading() as connection:
        return instances(connection, account_id=account)


@drives(
    *("search offers", "create instance", "show instances", "show instance", "stop instance"),
    *("start instance", "label instance", "change bid", "destroy instance"),
    "destroy instances",
)
def test_renting_reading_and_ending(market: Market, loopback: Loopback, person: Person) -> None:
    """Search, create, read, stop, start, label, bid and destroy print what the ledger holds."""
    machine = good_machine(market)
    alice = person("alice", "renter")
    account = market.account("alice")

    assert "RTX_4090" in alice("search", "offers", GUIDE_QUERY, "-o", "dlperf_usd-").out
    assert [one.body for one in loopback.requests()] == [SEARCH_A]
    (offer,) = alice.raw("search", "offers", GUIDE_QUERY, "--new", "--storage", "100")
    assert (offer["dph_base"], offer["dph_total"]) == (0.36, 0.380833333)

    loopback.requests()
    made = alice.raw(
        *("create", "instance", str(offer["id"]), "--image", CREATE["image"], "--disk", "100"),
        *("--ssh", "--direct", "--bid_price", "0.30", "--label", "run-42", "--onstart-cmd"),
        *(CREATE["onstart"], "--env"),
        "-e AWS_ACCESS_KEY_ID=AK -e AWS_SECRET_ACCESS_KEY=SK -p 8080:8080",
    )
    assert [one.body for one in loopback.requests()] == [CREATE]
    number = made["new_contract"]
    assert (made["success"], made["is_bid"], made["rental_type"]) == (True, True, "bid")
    (view,) = of(market, account)
    assert (view.instance_id, view.label, view.bid) == (number, "run-42", 30 * CENT)

    market.confirm(machine, number)
    market.run(machine, [number], 60)
    (row,) = alice.raw("show", "instances")
    assert (row["id"], row["label"], row["actual_status"]) == (number, "run-42", "running")
    assert (row["dph_base"], row["dph_total"]) == (0.3, 0.320833333)
    assert (row["gpu_util"], row["uptime_mins"]) == (90.0, 1.0)
    assert row["extra_env"] == CREATE["env"], "the client makes an object of the pairs"
    assert "run-42" in alice("show", "instances").out
    assert alice.raw("show", "instance", str(number))["cur_state"] == "running"
    gone = alice("show", "instance", "99")
    assert gone.code == 1
    assert "not found" in gone.out + gone.err

    number = str(number)
    assert "stopping instance" in alice("stop", "instance", number).out
    assert of(market, account)[0].status == "stopped"
    assert "starting instance" in alice("start", "instance", number).out
    assert "set to x y" in alice("label", "instance", number, "x y").out
    assert "price changed" in alice("change", "bid", number, "--price", ".35").out
    (view,) = of(market, account)
    assert (view.status, view.label, view.coming[0].gpu_rate) == ("loading", "x y", 35 * CENT)
    refused = alice("change", "bid", number, "--price", ".01")
    assert (refused.code, refused.out) == (0, "")
    assert "Failed with error 400: a bid for this slice is at least 0.1" in refused.err

    assert "Aborted" in alice("destroy", "instance", number).out
    assert of(market, account)[0].destroyed_at is None
    assert "destroying instance" in alice("destroy", "instance", number, "-y").out
    assert "destroying instance" in alice("destroy", "instances", number, "-y").out
    assert of(market, account)[0].status == "destroyed"
    assert alice.raw("show", "instances") == []


@drives(
    *("create instance", "launch instance", "destroy instance", "transfer credit"),
    "prepay instance",
)
def test_a_lost_answer_rents_once(market: Market, loopback: Loopback, person: Person) -> None:
    """IDEM-01, C39: whatever answer is lost, repeats make one instance, one transfer."""
    machine = good_machine(market)
    good_machine(market, gpu_hour=720_000_000)  # a launch passes over machines one rents already
    alice = person("alice", "renter")
    account, bob = market.account("alice"), market.account("bob")

    def lost(*words: str) -> list[Any]:
        loopback.requests()
        loopback.lose = 2
        assert alice(*words).code == 0
        sent = loopback.requests()
        assert len(sent) == 3
        assert sent[0] == sent[1] == sent[2]
        return sent

    lost("create", "instance", "1", "--image", "img", "--disk", "10")
    (view,) = of(market, account)
    lost("launch", "instance", "-g", "RTX_4090", "-n", "1", "-i", "img")
    assert [one.gpus for one in of(market, account)] == [1, 1]

    market.confirm(machine, view.instance_id)
    market.run(machine, [view.instance_id], 60)
    lost("transfer", "credit", "bob", "25.5", "--skip")
    lost("prepay", "instance", str(view.instance_id), "50")
    market.project()
    with market.ledger.reading() as connection:
        mine = balances.balance(connection, account, market.clock())
        theirs = balances.balance(connection, bob, market.clock())
    assert theirs.posted == 25 * DOLLAR + 50 * CENT
    assert mine.locked == 50 * DOLLAR
    assert mine.posted == 100 * DOLLAR - theirs.posted

    lost("destroy", "instance", str(view.instance_id), "-y")
    assert [one.status for one in of(market, account)] == ["destroyed", "loading"]


@drives(
    *("show invoices-v1", "search invoices", "show invoices", "show user"),
)
def test_money(market: Market, loopback: Loopback, person: Person) -> None:
    """What the client prints of charges, movements and credit are the ledger's nanos."""
    machine = good_machine(market)
    alice = person("alice", "renter")
    account = market.account("alice")
    instance = market.rent(account, machine, label="run-42")
    market.confirm(machine, instance)
    market.run(machine, [instance], 3_600, up=1_000, down=100_000, report_seconds=300)
    charged = market.charges(instance)

    page = alice.raw("show", "invoices-v1", "--charges", *WINDOW)
    (row,) = page["results"]
    assert (row["source"], row["metadata"]["label"]) == (f"instance-{instance}", "run-42")
    amounts = {one["type"]: round(one["amount"] * DOLLAR) for one in row["items"]}
    assert amounts == {
        "gpu": charged["gpu"],
        "disk": charged["storage"],
        "bwu": charged["up"],
        "bwd": charged["down"],
    }
    assert round(row["amount"] * DOLLAR) == sum(charged.values())
    table = alice("show", "invoices-v1", "--charges", *WINDOW, "--no-color").out
    assert f"${row['amount']:.3f}" in table
    tree = alice("show", "invoices-v1", "-c", *WINDOW, "-f", "tree", "--verbose", "--no-color").out
    assert "hours at $0.36/hour" in tree

    paid = alice("show", "invoices-v1", "--invoices", *WINDOW, "--no-color").out
    assert "$100.00" in paid
    (payment,) = alice.raw("search", "invoices", "amount_cents>3000 when>01/01/2026")
    assert payment["amount_cents"] == 10_000
    assert alice("search", "invoices", "amount_cents>30000").out.strip() == "[]"
    old = alice("show", "invoices", "-s", "03/01/2026", "-e", "03/02/2026").out
    assert "payment" in old

    user = alice.raw("show", "user")
    with market.ledger.reading() as connection:
        balance = balances.balance(connection, account, market.clock())
    assert round(user["credit"] * DOLLAR) == balance.available
    assert loopback.requests()


@drives(
    *("show machines", "show machine", "list machine", "set min-bid", "unlist machine"),
    *("delete machine", "schedule maint", "show maints", "cancel maint", "show earnings"),
    *("reports", "show gpu-metrics"),
)
def test_hosts(market: Market, loopback: Loopback, person: Person) -> None:
    """A host lists, prices, schedules and removes its machine; the client shows what came of it."""
    machine = good_machine(market)
    bob, alice = person("bob", "host"), person("alice", "renter")
    number = str(machine)
    instance = market.rent(market.account("alice"), machine, disk_gb=100)
    market.confirm(machine, instance)
    market.run(machine, [instance], 600)
    market.project()

    assert "RTX_4090" in bob("show", "machines").out
    (shown,) = bob.raw("show", "machine", number)
    assert (shown["gpu_occupancy"], shown["listed_gpu_cost"]) == ("D", 0.36)
    listed = bob(
        *("list", "machine", number, "-g", ".4", "-s", ".15", "-u", ".003", "-d", ".003"),
        *("-b", ".2", "-r", ".4", "-m", "1", "-e", "12/31/2026"),
    )
    assert "offers created/updated" in listed.out
    assert "price changed" in bob("set", "min-bid", number, "--price", ".21").out
    assert market.connection.execute(
        "SELECT gpu_rate_per_gpu, min_bid_per_gpu, until FROM listings"
        " ORDER BY listing_id DESC LIMIT 1"
    ).fetchone() == (40 * CENT, 21 * CENT, 1_798_675_200)
    market.connection.commit()

    planned = ("--sdate", str(START + 7 * 86_400), "--duration", "0.5")
    category = ("--maintenance_category", "power")
    assert "success" in bob("schedule", "maint", number, *planned, *category, stdin="y\n").out
    (window,) = bob.raw("show", "maints", "--ids", number)
    assert (window["duration_hours"], window["maintenance_category"]) == (0.5, "power")
    assert "success" in bob("cancel", "maint", number, stdin="y\n").out
    earned = bob.raw("show", "earnings", *WINDOW, "-m", number)
    gpu = market.charges(instance)["gpu"]
    assert round(earned["summary"]["total_gpu"] * DOLLAR) == gpu - gpu * 1_500 // 10_000
    assert "reports: []" in bob("reports", number).out
    assert "RTX_4090" in bob("show", "gpu-metrics").out
    assert "delisted" in bob("unlist", "machine", number).out
    kept = bob("delete", "machine", number)
    assert "contracts are on machine" in kept.err

    wrong = alice("show", "user", "--api-key", "glk_no_such", "--raw")
    assert '"status_code": 401' in wrong.err
    assert loopback.requests()
