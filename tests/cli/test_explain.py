"""`gpuledger explain`: one charge in full, checked while it is explained."""

from __future__ import annotations

import pytest

from ledger.errors import CorruptHistoryError
from ledger.meters.pricing import Meter
from ledger.services import rentals
from ledger.services.explain import Explanation, Span, explain
from ledger.store.database import Database
from tests.cli.conftest import Cli
from tests.support.market import DOLLAR, START, Market


def explained(market: Market, instance: int, meter: Meter) -> Explanation:
    """One meter of an instance, from the service itself."""
    market.project()
    with market.ledger.reading() as connection:
        (found,) = explain(connection, instance, meter)
    return found


def test_the_text_tells_the_whole_charge(cli: Cli) -> None:
    """Terms, seconds, the gap, the formula and the places in the log are all there."""
    shown = cli("explain", 1, "--meter", "gpu").out
    for part in (
        "on_demand, $0.36 an hour, platform fee 15 %",
        "authorised   2026-03-01T10:00:30Z to 2026-03-01T11:11:10Z (4,240 s)",
        "not attested 2026-03-01T10:10:30Z to 2026-03-01T10:11:10Z (40 s)",
        "after_stop (info) 2026-03-01T11:11:10Z to 2026-03-01T11:11:30Z (20 s)",
        "= 360000000 · 4200 // 3600 = 420,000,000 nanos = $0.42",
        "instance.stopped.v1",
        "first report 2026-03-01T10:00:30Z in usage-1-",
        "last report  2026-03-01T11:11:09Z in usage-1-",
    ):
        assert part in shown


def test_without_a_meter_all_that_counted_are_explained(cli: Cli) -> None:
    """Each meter that counted something has its own explanation."""
    assert [one["meter"] for one in cli("explain", 1, "--json").json] == [
        "gpu",
        "storage",
        "up",
        "down",
    ]


def test_the_hours_add_up(cli: Cli) -> None:
    """Increments of the hours are shares of the segment's charge, and add up to it."""
    (one,) = cli("explain", 1, "--meter", "gpu", "--segment", 1, "--json").json
    assert [hour["amount"] for hour in one["hours"]] == ["0.353", "0.067"]
    assert one["quantity"] == sum(hour["quantity"] for hour in one["hours"])


def test_an_unknown_segment_is_not_found(cli: Cli) -> None:
    """Asking for a segment that never was says which there are."""
    answer = cli("explain", 1, "--segment", 2)
    assert (answer.code, answer.out) == (1, "")
    assert answer.err == "error: instance 1 has no rate segment 2; it has: 1\n"


def test_nothing_consumed_is_no_error(market: Market, own_cli: Cli) -> None:
    """An instance that consumed nothing yet has nothing to explain."""
    one = market.rent(market.account("alice", DOLLAR), market.machine())
    answer = own_cli("explain", one)
    assert answer.code == 0
    assert answer.out == f"instance {one} has consumed nothing that was folded yet\n"
    assert own_cli("explain", one, "--json").json == []


def test_attested_seconds_that_are_not_billable_are_told_apart(market: Market) -> None:
    """Seconds inside the interval whose GPU was lost are attested and not billed."""
    machine = market.machine()
    one = market.rent(market.account("alice", DOLLAR), machine)
    market.confirm(machine, one)
    market.run(machine, [one], 60)
    market.run(machine, [one], 10, state="gpu_lost")
    found = explained(market, one, "gpu")
    assert (found.attested_seconds, found.not_billed_seconds, found.quantity) == (70, 10, 60)


def test_a_gap_before_a_stop_is_unattested(market: Market) -> None:
    """Authorised seconds up to a stop that nobody attested are a gap, though nothing follows."""
    machine = market.machine()
    one = market.rent(market.account("alice", DOLLAR), machine)
    market.confirm(machine, one)
    market.run(machine, [one], 60)
    market.clock.move_to(START + 100)
    with market.ledger.unit() as unit:
        rentals.stop(unit, one)
    found = explained(market, one, "gpu")
    assert found.gaps == [Span(start=START + 60, until=START + 100)]
    assert found.unattested_seconds == 40


def test_storage_names_the_machine_s_reports(market: Market) -> None:
    """Storage is attested by reports of the machine that say nothing of the instance."""
    machine = market.machine()
    one = market.rent(market.account("alice", DOLLAR), machine)
    market.run(machine, [], 120)
    found = explained(market, one, "storage")
    assert found.quantity == found.attested_seconds == 120
    assert found.last_report is not None
    assert (found.last_report.second, found.last_report.seq) == (START + 119, 2)


def test_a_late_report_is_found_by_its_second(market: Market) -> None:
    """The last report is the one that attests the last second, not the last that arrived."""
    machine = market.machine()
    one = market.rent(market.account("alice", DOLLAR), machine)
    market.confirm(machine, one)
    market.run(machine, [one], 180, report_seconds=60)
    found = explained(market, one, "gpu")
    assert found.first_report is not None
    assert found.last_report is not None
    assert found.first_report.second == START
    assert (found.last_report.second, found.last_report.seq) == (START + 179, 4)


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE rate_segments SET gpu_charge = gpu_charge + 1",
        "UPDATE rate_segments SET gpu_fee = gpu_fee + 1",
        "UPDATE usage_hours SET gpu_charge = gpu_charge + 1",
        "UPDATE usage_hours SET gpu_quantity = gpu_quantity + 1",
        "DELETE FROM coverage",
    ],
)
def test_a_charge_that_is_not_so_is_not_explained(
    market: Market, own_cli: Cli, dsn: str, change: str
) -> None:
    """One nano or one second more than the log says, anywhere, and the command exits 1."""
    machine = market.machine()
    one = market.rent(market.account("alice", DOLLAR), machine)
    market.confirm(machine, one)
    market.run(machine, [one], 60)
    market.project()
    with Database.open(None, dsn) as database, database.connect("owner") as owner:
        owner.execute(change)
    answer = own_cli("explain", one, "--meter", "gpu")
    assert (answer.code, answer.out) == (1, "")
    assert answer.err.startswith("error: the books contradict each other: instance 1, gpu")
    assert answer.err.count("\n") == 1
    with (
        market.ledger.reading() as connection,
        pytest.raises(CorruptHistoryError, match="rebuild --check"),
    ):
        explain(connection, one, "gpu")
