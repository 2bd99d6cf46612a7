"""Usage invoices: gapless, closed for ever, late usage named, and every balance adds up."""

from __future__ import annotations

from typing import Any

import pytest

from adapters.hostagent.reports import constant_block
from ledger.domain.ids import parse_rfc3339
from ledger.services import deposits, holds, invoicing, policies, rentals, transfers
from tests.support.market import DOLLAR, Market

HOUR = 3_600
MARCH, APRIL, MAY = (parse_rfc3339(f"2026-0{month}-01T00:00:00Z") for month in (3, 4, 5))


def at(market: Market, second: int) -> None:
    """Move to a second, fold, and let the platform do what is due."""
    market.clock.move_to(second)
    for _ in range(2):  # a period closes, the projection passes the cut, its invoice is written
        market.project()
        policies.run_due(market.ledger)


def invoices(market: Market) -> list[dict[str, Any]]:
    """Every invoice in the order of issue, with its lines."""
    names = ("number", "account", "from", "until", "opening", "movements", "total", "closing")
    found = []
    for row in market.connection.execute(
        "SELECT number, account_id, period_from, period_until, opening, movements, total, closing"
        " FROM invoices ORDER BY position"
    ).fetchall():
        one = dict(zip(names, row, strict=True))
        one["lines"] = market.connection.execute(
            "SELECT meter, late, quantity, amount, period_from, used_from, used_until"
            " FROM invoice_lines WHERE number = %s ORDER BY line",
            [one["number"]],
        ).fetchall()
        assert one["opening"] + one["movements"] - one["total"] == one["closing"]
        assert sum(line[3] for line in one["lines"]) == one["total"]
        assert all(line[3] > 0 for line in one["lines"])
        found.append(one)
    return found


def rented(market: Market, name: str, credit: int = 100 * DOLLAR, **options: Any) -> list[int]:
    """A renter, a machine and a confirmed instance."""
    account = market.account(name, credit)
    machine = market.machine(host=f"host-{name}", **options)
    one = market.rent(account, machine)
    market.confirm(machine, one)
    return [account, machine, one]


@pytest.fixture
def market(dsn: str) -> Any:
    """A market that opens an hour before April."""
    one = Market(dsn, APRIL - HOUR)
    yield one
    one.close()


def test_a_month_is_cut_at_its_boundary_and_issued_an_hour_later(market: Market) -> None:
    """The last hour of March and the first of April are on two documents, issued 3,600 s after."""
    account, machine, one = rented(market, "alice", storage=0)
    market.run(machine, [one], 2 * HOUR, report_seconds=300)
    with market.ledger.unit() as unit:
        rentals.destroy(unit, one)
    assert invoices(market) == []
    at(market, APRIL + HOUR)
    assert len(invoices(market)) == 1
    at(market, MAY + HOUR - 1)
    assert len(invoices(market)) == 1
    at(market, MAY + HOUR)
    at(market, MAY + HOUR)
    march, april = invoices(market)
    assert (march["from"], march["until"]) == (APRIL - HOUR, APRIL)
    assert (april["from"], april["until"]) == (APRIL, MAY)
    assert march["lines"] == [("gpu", False, HOUR, 360_000_000, MARCH, APRIL - HOUR, APRIL)]
    assert april["lines"] == [("gpu", False, HOUR, 360_000_000, APRIL, APRIL, APRIL + HOUR)]
    assert (march["opening"], march["movements"]) == (0, 100 * DOLLAR)
    assert march["closing"] == april["opening"] == 100 * DOLLAR - 360_000_000
    assert april["movements"] == 0
    assert march["account"] == account
    assert market.rebuild().equal


def test_numbers_have_no_gaps_and_follow_the_issue(market: Market) -> None:
    """Five renters over two months: USE-00000001 to USE-00000010, each account once a month."""
    everybody = [rented(market, f"r{number}") for number in range(5)]
    for month in (APRIL, MAY):
        market.clock.move_to(month - HOUR)
        for _, machine, one in everybody:
            now = market.clock()
            block = constant_block(one, now, 60, "running", up=0, down=0, util=1)
            market.deliver(market.seal(machine, now, 60, [block]), at=now + 60)
        at(market, month + HOUR)
    found = invoices(market)
    assert [one["number"] for one in found] == [f"USE-{n:08d}" for n in range(1, 11)]
    assert sorted((one["account"], one["until"]) for one in found) == [
        (account, until) for account, *_ in sorted(everybody) for until in (APRIL, MAY)
    ]
    assert invoicing.issue_due(market.ledger) == 0
    assert market.rebuild().equal


def test_an_invoice_that_fails_takes_no_number(
    market: Market, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that breaks midway issues nothing; the next one begins with the same number."""
    for number in range(3):
        _, machine, one = rented(market, f"r{number}")
        block = constant_block(one, APRIL - HOUR, 60, "running", up=0, down=0, util=1)
        market.deliver(market.seal(machine, APRIL - HOUR, 60, [block]), at=APRIL - HOUR + 60)
    market.clock.move_to(APRIL + HOUR)
    market.project()
    policies.close_periods(market.ledger)
    market.project()
    issue = invoicing._issue

    def breaking(unit: Any, account_id: int, *period: int) -> None:
        if account_id > 3:
            message = "on purpose"
            raise RuntimeError(message)
        issue(unit, account_id, *period)

    monkeypatch.setattr(invoicing, "_issue", breaking)
    with pytest.raises(RuntimeError, match="on purpose"):
        invoicing.issue_due(market.ledger)
    assert invoices(market) == []
    monkeypatch.undo()
    assert invoicing.issue_due(market.ledger) == 3
    assert [one["number"] for one in invoices(market)] == [f"USE-{n:08d}" for n in (1, 2, 3)]


def test_without_lines_there_is_no_document(market: Market) -> None:
    """A deposit, a silent instance and one's own machine make no invoice, and use no number."""
    market.account("idle", DOLLAR)
    rented(market, "silent")
    bob = market.account("bob", DOLLAR)
    machine = market.machine(host="bob")
    own = market.rent(bob, machine)
    market.confirm(machine, own)
    market.run(machine, [own], 60)
    at(market, APRIL + HOUR)
    assert invoices(market) == []
    at(market, MAY + HOUR)
    assert invoices(market) == []


def test_late_usage_is_on_the_next_invoice_with_its_range_and_period(market: Market) -> None:
    """What arrives after the issue names its own seconds and month; the first stays as it was."""
    _, machine, one = rented(market, "alice", storage=0)
    market.run(machine, [one], HOUR - 600, report_seconds=300)
    late = market.seal(
        machine,
        APRIL - 300,
        300,
        [constant_block(one, APRIL - 300, 300, "running", up=0, down=0, util=1)],
    )
    at(market, APRIL + HOUR)
    before = invoices(market)
    market.clock.move_to(APRIL + 2 * HOUR)
    market.deliver(late)
    market.run(machine, [one], 600, report_seconds=300)
    with market.ledger.unit() as unit:
        rentals.destroy(unit, one)
    at(market, MAY + HOUR)
    assert invoices(market)[0] == before[0]
    second = invoices(market)[1]
    assert second["lines"] == [
        ("gpu", True, 300, 30_000_000, MARCH, APRIL - 300, APRIL),
        ("gpu", False, 600, 60_000_000, APRIL, APRIL + 2 * HOUR, APRIL + 2 * HOUR + 600),
    ]
    assert market.rebuild().equal


def test_usage_before_the_issue_is_not_late(market: Market) -> None:
    """A spool that arrives within the hour before the period closes is on its own invoice."""
    _, machine, one = rented(market, "alice", storage=0)
    block = constant_block(one, APRIL - 300, 300, "running", up=0, down=0, util=1)
    spooled = market.seal(machine, APRIL - 300, 300, [block])
    market.clock.move_to(APRIL + HOUR - 1)
    market.deliver(spooled)
    at(market, APRIL + HOUR)
    (only,) = invoices(market)
    assert only["lines"] == [("gpu", False, 300, 30_000_000, MARCH, APRIL - 300, APRIL)]


def test_usage_in_the_log_but_not_folded_at_the_close_is_not_lost(market: Market) -> None:
    """A projection that lags when the period closes still puts the seconds on the right paper."""
    _, machine, one = rented(market, "alice", storage=0)
    market.run(machine, [one], HOUR, report_seconds=300)
    market.clock.move_to(APRIL + HOUR)
    policies.close_periods(market.ledger)
    assert invoicing.issue_due(market.ledger) == 0
    market.project()
    assert invoicing.issue_due(market.ledger) == 1
    (only,) = invoices(market)
    assert only["total"] == 360_000_000
    assert not only["lines"][0][1]
    assert market.rebuild().equal


def test_one_tick_over_the_boundary_is_divided(market: Market) -> None:
    """A report from 23:59:50 to 00:00:10 puts 10 s on each month, and no nano is lost."""
    _, machine, one = rented(market, "alice", gpu_hour=333_333_333, storage=0)
    block = constant_block(one, APRIL - 10, 20, "running", up=0, down=0, util=1)
    report = market.seal(machine, APRIL - 10, 20, [block])
    market.clock.move_to(APRIL + 10)
    market.deliver(report)
    at(market, APRIL + HOUR)
    at(market, MAY + HOUR)
    march, april = invoices(market)
    assert [line[2] for line in march["lines"] + april["lines"]] == [10, 10]
    assert march["total"] + april["total"] == 333_333_333 * 20 // HOUR


def test_movements_between_two_documents_are_all_there(market: Market) -> None:
    """Deposits, transfers, captures and refunds of a month stand between opening and closing."""
    account, machine, one = rented(market, "alice", storage=0)
    market.run(machine, [one], HOUR, report_seconds=300)
    with market.ledger.unit() as unit:
        rentals.stop(unit, one)
    other = market.account("carol")
    market.clock.move_to(APRIL + 10)
    with market.ledger.unit() as unit:
        deposits.deposit(unit, account, 50 * DOLLAR, "more")
        transfers.transfer(unit, account, other, 20 * DOLLAR, "gift")
        deposits.refund(unit, account, "more", 5 * DOLLAR, "back")
        holds.place_hold(unit, account, 9 * DOLLAR, "kept")
        holds.place_hold(unit, account, 9 * DOLLAR, "spent")
        holds.capture_hold(unit, account, "spent", 7 * DOLLAR)
    at(market, APRIL + 2 * HOUR)
    market.run(machine, [], 1)
    with market.ledger.unit() as unit:
        rentals.start(unit, one)
    market.confirm(machine, one, 2)
    market.run(machine, [one], 600, report_seconds=300)
    with market.ledger.unit() as unit:
        rentals.destroy(unit, one)
    at(market, MAY + HOUR)
    first, second = invoices(market)
    assert first["movements"] == 100 * DOLLAR
    assert second["opening"] == first["closing"]
    assert second["movements"] == (50 - 20 - 5 - 7) * DOLLAR
    assert market.rebuild().equal


def test_the_running_month_is_previewed_without_issuing(market: Market) -> None:
    """The preview says what the invoice then says, and appends nothing."""
    account, machine, one = rented(market, "alice")
    market.run(machine, [one], HOUR - 300, report_seconds=300)
    market.project()
    head = market.head()
    with market.ledger.reading() as connection:
        said = invoicing.preview(connection, account, market.clock())
    assert market.head() == head
    at(market, APRIL + HOUR)
    (only,) = invoices(market)
    assert (said.total, said.opening, said.movements, said.closing) == (
        only["total"],
        only["opening"],
        only["movements"],
        only["closing"],
    )
    assert len(said.lines) == len(only["lines"]) == 2


def test_a_debt_leaves_a_part_unpaid(market: Market) -> None:
    """Of a total beyond the credit only the covered part is paid."""
    alice = market.account("alice", DOLLAR)
    machine = market.machine(gpu_hour=DOLLAR, storage=0)
    one = market.rent(alice, machine)
    market.confirm(machine, one)
    market.run(machine, [one], HOUR - 300, report_seconds=300)
    with market.ledger.unit() as unit:
        holds.place_hold(unit, alice, 10_000_000, "h")
        holds.capture_hold(unit, alice, "h", DOLLAR)
    at(market, APRIL + HOUR)
    (only,) = invoices(market)
    row = market.connection.execute("SELECT total, paid, closing FROM invoices").fetchone()
    assert row is not None
    total, paid, closing = row
    assert total == 916_666_666
    assert closing == only["closing"] == -total
    assert paid == 0
