"""Tax invoices, credit notes, periods of one's own, self-billing: issued once, never changed."""

from __future__ import annotations

import threading
from itertools import pairwise
from typing import Any

import pytest

from adapters.hostagent.reports import constant_block
from ledger.domain.dispute import Authority
from ledger.domain.ids import parse_rfc3339
from ledger.errors import DeclinedError, IdempotencyError, NotFoundError, RejectedError
from ledger.services import (
    approvals,
    billing,
    credit_notes,
    deposits,
    erasure,
    grants,
    holds,
    policies,
    rentals,
)
from ledger.services.questions.documents import Document, DocumentHead, document, documents
from tests.support.market import DOLLAR, Market

HOUR, DAY = 3_600, 86_400
CENT = DOLLAR // 100
APRIL, MAY = (parse_rfc3339(f"2026-0{month}-01T00:00:00Z") for month in (4, 5))
RATE = 360_000_000
ADMIN = Authority("account-900", 1)
ISSUER = billing.Issuer(
    name="Example GmbH", street="Kanal 1", postcode="20095", city="Hamburg", country="DE",
    vat_id="DE123456788", registration="HRB 1", email=None,
)  # fmt: skip


@pytest.fixture
def market(dsn: str) -> Any:
    """A market that opens an hour before April."""
    one = Market(dsn, APRIL - HOUR)
    yield one
    one.close()


def taxed(market: Market, name: str, rate_bp: int, credit: int = 0, **profile: Any) -> int:
    """An account whose credit is taxed."""
    account = market.account(name)
    with market.ledger.unit() as unit:
        billing.set_tax(unit, account, rate_bp=rate_bp, **profile)
        if credit:
            deposits.deposit(unit, account, credit, "d")
    return account


def heads(market: Market, account: int) -> list[tuple[str, int, int]]:
    """Number, net and tax of every document of an account."""
    with market.ledger.reading() as connection:
        found = documents(connection, account_id=account)
    return [(one.number, one.net, one.tax) for one in found]


def shown(market: Market, number: str) -> Document:
    """One document, whole."""
    with market.ledger.reading() as connection:
        return document(connection, market.ledger.vault, number)


def at(market: Market, second: int) -> None:
    """Move to a second, fold, and let the platform do what is due."""
    market.clock.move_to(second)
    for _ in range(2):
        market.project()
        policies.run_due(market.ledger)


def rented(market: Market, account: int, host: str = "bob") -> tuple[int, int]:
    """A machine without prices for disk and traffic, and a confirmed instance on it."""
    machine = market.machine(host=host, storage=0, up=0, down=0)
    one = market.rent(account, machine)
    market.confirm(machine, one)
    return machine, one


def refused(market: Market, do: Any, code: str) -> None:
    """The command is refused with this code and leaves the log as it was."""
    head = market.head()
    with (
        market.ledger.unit() as unit,
        pytest.raises((DeclinedError, RejectedError, NotFoundError, IdempotencyError)) as error,
    ):
        do(unit)
    assert error.value.code == code
    assert market.head() == head


# --- tax invoices and their credit notes ---------------------------------------------------------


def test_tax_comes_on_top_of_credit_and_is_owed_to_the_state(market: Market) -> None:
    """PRICE-11: 3.09 of credit at 20 % costs 3.71; credit is net, the tax lies in its account."""
    alice = taxed(market, "alice", 2_000, 309 * CENT)
    assert heads(market, alice) == [("INV-00000001", 309 * CENT, 62 * CENT)]
    row = market.connection.execute(
        "SELECT sum(amount) FROM movements WHERE credit = 'tax_payable'"
    ).fetchone()
    assert row == (62 * CENT,)
    row = market.connection.execute(
        "SELECT posted FROM account_credit WHERE account_id = %s", [alice]
    ).fetchone()
    assert row == (309 * CENT,)
    assert market.rebuild().equal


def test_the_profile_at_the_second_of_settlement_governs(market: Market) -> None:
    """A rate that changes later changes no document; credit bought after it bears the new one."""
    alice = taxed(market, "alice", 2_000, 100 * CENT)
    with market.ledger.unit() as unit:
        billing.set_tax(unit, alice, country="DE", rate_bp=1_900)
        deposits.deposit(unit, alice, 100 * CENT, "e")
        billing.set_tax(unit, alice, country="DE", rate_bp=1_900, treatment="exempt")
        deposits.deposit(unit, alice, 100 * CENT, "f")
    assert [tax for _, _, tax in heads(market, alice)] == [20 * CENT, 19 * CENT, 0]
    assert shown(market, "INV-00000001").rate_bp == 2_000
    assert shown(market, "INV-00000003").treatment == "exempt"


def test_a_refund_gives_credit_and_tax_back_together(market: Market) -> None:
    """INV-03, INV-04: refundable is what was paid and not refunded; the same refund is one."""
    alice = taxed(market, "alice", 2_000, 100 * CENT)
    with market.ledger.unit() as unit:
        assert deposits.refund(unit, alice, "d", 60 * CENT, "r1") == "CN-00000001"
        assert deposits.refund(unit, alice, "d", 60 * CENT, "r1") is None
    assert heads(market, alice)[1:] == [("CN-00000001", 50 * CENT, 10 * CENT)]
    refused(market, lambda unit: deposits.refund(unit, alice, "d", 61 * CENT, "r2"), "over_credit")
    refused(
        market,
        lambda unit: deposits.refund(unit, alice, "d", 59 * CENT, "r1"),
        "idempotency_conflict",
    )
    refused(market, lambda unit: deposits.refund(unit, alice, "d", CENT + 1, "x"), "invalid_amount")
    with market.ledger.unit() as unit:
        deposits.refund(unit, alice, "d", 60 * CENT, "r3")
    assert shown(market, "INV-00000001").status == "credited"
    assert market.rebuild().equal


def test_spent_credit_is_not_refunded_with_its_tax(market: Market) -> None:
    """INV-04: only unspent credit goes back, however much of the document is left."""
    alice = taxed(market, "alice", 2_000, 100 * CENT)
    with market.ledger.unit() as unit:
        holds.place_hold(unit, alice, 50 * CENT, "h")
        holds.capture_hold(unit, alice, "h")
    refused(
        market,
        lambda unit: deposits.refund(unit, alice, "d", 61 * CENT, "r"),
        "insufficient_balance",
    )
    with market.ledger.unit() as unit:
        deposits.refund(unit, alice, "d", 60 * CENT, "r")


def test_a_tax_invoice_is_voided_whole_and_by_two(market: Market) -> None:
    """INV-06, INV-10: a void takes the whole remainder and a second person; then nothing."""
    alice = taxed(market, "alice", 2_000, 100 * CENT)

    def void(unit: Any, amount: int) -> str:
        return credit_notes.credit_note(
            unit, alice, "INV-00000001", amount, "mistake", ADMIN, voids=True
        )

    refused(market, lambda unit: void(unit, 119 * CENT), "invalid_args")
    refused(market, lambda unit: void(unit, 120 * CENT), "second_approval_required")
    with market.ledger.unit() as unit:
        approvals.approve(unit, "void INV-00000001", "account-901")
        assert void(unit, 120 * CENT) == "CN-00000001"
    refused(market, lambda unit: void(unit, CENT), "over_credit")


def test_parts_of_a_cent_are_credit_without_a_document(market: Market) -> None:
    """What nobody can have paid has no tax invoice, and where there is tax it is refused."""
    alice, bob = market.account("alice"), taxed(market, "bob", 1)
    with market.ledger.unit() as unit:
        deposits.deposit(unit, alice, CENT + 1, "d")
    assert heads(market, alice) == []
    refused(market, lambda unit: deposits.deposit(unit, bob, CENT + 1, "d"), "invalid_amount")


def test_numbers_have_no_gaps_however_many_pay_at_once(market: Market) -> None:
    """INV-07: eight threads of real transactions, some of them rolled back: 1 to n, each once."""
    everybody = [taxed(market, f"r{number}", 1_900) for number in range(8)]
    start = threading.Barrier(len(everybody))
    failures: list[BaseException] = []

    def pay(account: int) -> None:
        try:
            start.wait()
            for number in range(6):
                try:
                    with market.ledger.unit() as unit:
                        deposits.deposit(unit, account, DOLLAR, f"d{number}")
                        if (account + number) % 3 == 0:
                            raise KeyError(number)  # noqa: TRY301 - the transaction must not commit
                except KeyError:
                    continue
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=pay, args=(one,)) for one in everybody]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert failures == []
    with market.ledger.reading() as connection:
        found = documents(connection, limit=1_000)
    assert len(found) == 8 * 6 - 16
    assert [one.number for one in found] == [f"INV-{n:08d}" for n in range(1, len(found) + 1)]
    assert market.rebuild().equal


# --- who stands on them --------------------------------------------------------------------------


def test_documents_keep_who_stood_on_them(market: Market) -> None:
    """A new address and a new issuer stand on later documents; erasure keeps what was issued."""
    alice = market.account("alice")
    old = billing.Customer(name="Alice", city="Paris", country="FR", vat_id="FR12345678901")
    with market.ledger.unit() as unit:
        billing.describe_issuer(unit, ISSUER)
        billing.set_customer(unit, alice, old)
        deposits.deposit(unit, alice, DOLLAR, "d")
    moved = billing.Customer(name="Alice SARL", city="Lyon", country="FR")
    with market.ledger.unit() as unit:
        billing.set_customer(unit, alice, moved)
        billing.set_customer(unit, alice, billing.Customer(name="Alice draft"))
        deposits.deposit(unit, alice, DOLLAR, "e")
        erasure.erase_subject(unit, alice)
    assert shown(market, "INV-00000001").customer == old
    assert shown(market, "INV-00000002").customer.name == "Alice draft"
    assert shown(market, "INV-00000001").issuer == ISSUER
    rows = market.connection.execute(
        "SELECT details_no, erased_at IS NOT NULL FROM customer_details ORDER BY details_no"
    ).fetchall()
    assert rows == [(1, False), (2, True), (3, False)]
    assert b"Paris" not in b"".join(
        bytes(row[0]) for row in market.connection.execute("SELECT state FROM events")
    )
    assert market.rebuild().equal


def test_a_name_on_a_document_outlives_the_account_that_is_erased(market: Market) -> None:
    """Who never gave details stands on documents by the account's name, also after the erasure."""
    alice, bob = market.account("alice", DOLLAR), market.account("bob")
    with market.ledger.unit() as unit:
        erasure.erase_subject(unit, alice)
        erasure.erase_subject(unit, bob)
    assert shown(market, "INV-00000001").customer.name == "alice"
    with market.ledger.reading() as connection:
        erased = billing.read_customer(connection, market.ledger.vault, bob)
    assert "erased" in erased.name


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"country": "Germany"}, "invalid_args"),
        ({"rate_bp": 10_001}, "invalid_args"),
        ({"treatment": "reverse_charge"}, "invalid_args"),
    ],
)
def test_a_tax_profile_that_makes_no_sense_is_refused(
    market: Market, change: dict[str, Any], code: str
) -> None:
    """No such country, more tax than net, reverse charge without a VAT id."""
    alice = market.account("alice")
    refused(market, lambda unit: billing.set_tax(unit, alice, **change), code)


# --- periods -------------------------------------------------------------------------------------


def usage(market: Market, account: int) -> list[tuple[int, int, int]]:
    """Begin, end and total of an account's usage invoices."""
    rows = market.connection.execute(
        "SELECT period_from, period_until, total FROM invoices WHERE account_id = %s"
        " ORDER BY position",
        [account],
    ).fetchall()
    return [(start, until, int(total)) for start, until, total in rows]


def test_a_period_that_ends_inside_an_hour_divides_it(market: Market) -> None:
    """TIME-04, TIME-05: at 18:30Z the day begins in Kolkata; usage is cut there, none is lost."""
    alice = market.account("alice", 100 * DOLLAR)
    start = market.clock()
    with market.ledger.unit() as unit:
        billing.choose(unit, alice, zone_name="Asia/Kolkata", cycle="weekly", anchor=4)
    machine, one = rented(market, alice)
    end = parse_rfc3339("2026-04-01T18:30:00Z")
    market.long_run(machine, [one], end + 1_800 - start)
    late = market.seal(
        machine, end + 1_800, 60,
        [constant_block(one, end + 1_800, 60, "running", up=0, down=0, util=9)],
    )  # fmt: skip
    market.clock.move_to(end + 1_860)
    market.deliver(late)
    with market.ledger.unit() as unit:
        rentals.destroy(unit, one)
    at(market, end + HOUR)
    at(market, end + 7 * DAY + HOUR)
    found = usage(market, alice)
    assert [(a, b) for a, b, _ in found] == [(start, end), (end, end + 7 * DAY)]
    assert [total for *_, total in found] == [
        RATE * (end - start) // HOUR, RATE * 1_860 // HOUR,
    ]  # fmt: skip
    assert market.rebuild().equal


def test_late_usage_of_a_week_names_its_own_week(market: Market) -> None:
    """TIME-07, ING-04: what comes after the close is on the next document, under its own period."""
    alice = market.account("alice", 100 * DOLLAR)
    with market.ledger.unit() as unit:
        billing.choose(unit, alice, zone_name="Australia/Adelaide", cycle="weekly", anchor=3)
    start = market.clock()
    boundary = parse_rfc3339("2026-04-07T14:30:00Z")
    machine, one = rented(market, alice)
    reports = [
        market.seal(
            machine, second, 300,
            [constant_block(one, second, 300, "running", up=0, down=0, util=9)],
        )
        for second in (boundary - 600, boundary - 300, boundary, boundary + 300)
    ]  # fmt: skip
    market.clock.move_to(boundary - 300)
    market.deliver(reports[0])
    at(market, boundary + HOUR)
    first = usage(market, alice)
    assert first[-1][1:] == (boundary, RATE * 300 // HOUR)
    market.clock.move_to(boundary + 2 * HOUR)
    market.deliver(*reports[1:])
    at(market, boundary + 7 * DAY + HOUR)
    rows = market.connection.execute(
        "SELECT late, quantity, l.period_from, used_from, used_until FROM invoice_lines l"
        " JOIN invoices i USING (number) WHERE i.period_until = %s ORDER BY used_from",
        [boundary + 7 * DAY],
    ).fetchall()
    own = first[-1][0]
    assert rows == [
        (True, 300, own, boundary - 300, boundary),
        (False, 600, boundary, boundary, boundary + 600),
    ]
    assert own >= start
    assert market.rebuild().equal


def test_choosing_other_periods_closes_none_twice_and_loses_none(market: Market) -> None:
    """TIME-03, TIME-05: months, then weeks elsewhere, then months again: the periods touch."""
    alice = market.account("alice", 900 * DOLLAR)
    machine, one = rented(market, alice)
    opened = market.clock()
    for zone_name, cycle, anchor in (
        ("Europe/Berlin", "weekly", 7), ("America/Havana", "monthly", 31), ("UTC", "monthly", 1),
    ):  # fmt: skip
        market.long_run(machine, [one], 10 * DAY)
        at(market, market.clock())
        with market.ledger.unit() as unit:
            billing.choose(unit, alice, zone_name=zone_name, cycle=cycle, anchor=anchor)  # type: ignore[arg-type]  # literals
            billing.choose(unit, alice, zone_name=zone_name, cycle=cycle, anchor=anchor)  # type: ignore[arg-type]  # literals
    with market.ledger.unit() as unit:
        rentals.destroy(unit, one)
    at(market, market.clock() + 40 * DAY)
    rows = market.connection.execute(
        "SELECT period_from, period_until FROM closed_periods ORDER BY period_from"
    ).fetchall()
    assert rows[0][0] == opened
    assert all(earlier[1] == later[0] for earlier, later in pairwise(rows))
    assert sum(total for *_, total in usage(market, alice)) == market.charges(one)["gpu"]
    assert market.rebuild().equal


@pytest.mark.parametrize("zero", [False, True])
def test_a_period_without_usage_has_a_document_only_if_that_was_chosen(
    market: Market, zero: bool
) -> None:
    """INV-05: both choices: nothing by default, a zero invoice each period where it is wanted."""
    alice = market.account("alice", DOLLAR)
    with market.ledger.unit() as unit:
        billing.choose(unit, alice, cycle="monthly", anchor=1, zero_invoices=zero)
    at(market, MAY + HOUR)
    assert [total for *_, total in usage(market, alice)] == ([0, 0] if zero else [])


@pytest.mark.parametrize(
    ("choice", "code"),
    [
        ({"zone_name": "Mars/Olympus"}, "invalid_args"),
        ({"cycle": "monthly", "anchor": 32}, "invalid_args"),
        ({"cycle": "weekly", "anchor": 8}, "invalid_args"),
        ({"anchor": 0}, "invalid_args"),
    ],
)
def test_periods_that_make_no_sense_are_refused(
    market: Market, choice: dict[str, Any], code: str
) -> None:
    """No such zone, no such day."""
    alice = market.account("alice")
    refused(market, lambda unit: billing.choose(unit, alice, **choice), code)


def test_plans_are_made_again_before_they_end(market: Market) -> None:
    """However long an account has been quiet, its next boundaries are known as instants."""
    alice = market.account("alice")
    with market.ledger.unit() as unit:
        billing.choose(unit, alice, zone_name="Europe/Berlin", cycle="weekly")
    for month in range(1, 9):
        at(market, APRIL + month * 30 * DAY)
        row = market.connection.execute("SELECT max(boundary) FROM planned_boundaries").fetchone()
        assert row is not None
        assert row[0] > market.clock() + 59 * DAY
    assert market.rebuild().equal


# --- what is due, and what grants paid -----------------------------------------------------------


def test_a_debt_is_settled_by_the_next_top_ups_oldest_first(market: Market) -> None:
    """An uncovered part stays due until credit comes; what a document said stays in its fact."""
    alice = market.account("alice", DOLLAR)
    machine, one = rented(market, alice)
    market.long_run(machine, [one], 2 * HOUR)
    with market.ledger.unit() as unit:
        holds.place_hold(unit, alice, CENT, "h")
        holds.capture_hold(unit, alice, "h", DOLLAR)
    at(market, APRIL + HOUR)
    with market.ledger.unit() as unit:
        rentals.destroy(unit, one)
    at(market, MAY + HOUR)

    def due() -> list[int]:
        return [
            int(row[0])
            for row in market.connection.execute("SELECT due FROM invoices ORDER BY position")
        ]

    assert due() == [0, RATE]  # The other hour below zero is that of the capture.
    with market.ledger.unit() as unit:
        deposits.deposit(unit, alice, 20 * CENT, "some")
    assert due()[1] == RATE - 20 * CENT
    with market.ledger.unit() as unit:
        deposits.deposit(unit, alice, DOLLAR, "all")
    assert due() == [0, 0]
    assert {shown(market, f"USE-0000000{n}").status for n in (1, 2)} == {"paid"}
    assert market.rebuild().equal


def test_a_grant_pays_for_usage_and_never_more_than_the_document(market: Market) -> None:
    """PRICE-12: promotional credit on documents adds up to what it paid, each within its total."""
    alice = market.account("alice", 10 * DOLLAR)
    with market.ledger.unit() as unit:
        grants.grant(unit, alice, 50 * CENT, MAY, "g", "welcome")
    machine, one = rented(market, alice)
    market.long_run(machine, [one], 3 * HOUR)
    with market.ledger.unit() as unit:
        rentals.destroy(unit, one)
    at(market, APRIL + 3 * HOUR)
    at(market, MAY + HOUR)
    rows = market.connection.execute(
        "SELECT total, promotional FROM invoices ORDER BY position"
    ).fetchall()
    assert [(int(total), int(promotional)) for total, promotional in rows] == [
        (RATE, RATE), (2 * RATE, 50 * CENT - RATE),
    ]  # fmt: skip
    assert market.rebuild().equal


# --- self-billing --------------------------------------------------------------------------------


def test_hosts_are_billed_for_when_a_month_can_change_no_more(market: Market) -> None:
    """One document per host and month, 73 hours after it; late usage of the month is on it."""
    alice = market.account("alice", 100 * DOLLAR)
    machine, one = rented(market, alice)
    blocks = [constant_block(one, APRIL - 300, 300, "running", up=0, down=0, util=9)]
    late = market.seal(machine, APRIL - 300, 300, blocks)
    market.clock.move_to(APRIL + 2 * DAY)
    market.deliver(late)
    at(market, APRIL + 73 * HOUR - 1)
    bob = market.account("bob")
    assert heads(market, bob) == []
    at(market, APRIL + 73 * HOUR)
    at(market, APRIL + 74 * HOUR)
    charged = RATE * 300 // HOUR
    assert heads(market, bob) == [("SB-00000001", charged - charged * 1_500 // 10_000, 0)]
    found = shown(market, "SB-00000001")
    assert (found.period_from, found.period_until) == (parse_rfc3339("2026-03-01T00:00:00Z"), APRIL)
    assert (found.lines[0].fee, found.lines[0].quantity) == (charged * 1_500 // 10_000, 300)
    assert market.rebuild().equal


def test_every_document_is_listed_once_page_by_page(market: Market) -> None:
    """All series in the order of issue; a page goes on where the one before ended."""
    alice = taxed(market, "alice", 1_900, DOLLAR)
    with market.ledger.unit() as unit:
        for number in range(5):
            deposits.deposit(unit, alice, DOLLAR, f"d{number}")
        deposits.refund(unit, alice, "d", 10 * CENT, "r")
    seen: list[DocumentHead] = []
    with market.ledger.reading() as connection:
        while page := documents(connection, after=seen[-1].position if seen else 0, limit=2):
            seen += page
        whole = documents(connection)
    assert seen == whole
    assert len({one.number for one in seen}) == 7
