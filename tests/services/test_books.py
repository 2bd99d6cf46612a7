"""Journals that other people's programs prove, and books as of any instant."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from adapters.export import JournalFormat
from adapters.hostagent.reports import constant_block
from ledger.domain.dispute import Authority
from ledger.errors import LedgerError
from ledger.services import corrections, deposits
from ledger.services.journal import RollUp, journal
from ledger.services.policies import close_periods
from ledger.services.questions import books
from ledger.services.questions.balances import balance, trial_balance
from tests.support.books import APRIL, DAY, MARCH, MAY, business, checked, written
from tests.support.databases import Server
from tests.support.market import DOLLAR, START, Market


class Trade(NamedTuple):
    """A market, and who is in it."""

    market: Market
    alice: int
    bob: int
    instance: int


@pytest.fixture(scope="module")
def trade(server: Server) -> Iterator[Trade]:
    """One month end of business that every test here only reads."""
    dsn = server.copy()
    one = Market(dsn)
    yield Trade(one, *business(one))
    one.close()
    server.drop(dsn)


FORMATS: list[JournalFormat] = ["beancount", "hledger"]
ROLL_UPS: list[RollUp] = ["hour", "month"]


@pytest.mark.parametrize("roll_up", ROLL_UPS)
@pytest.mark.parametrize("how", FORMATS)
def test_the_programs_prove_the_journal(
    trade: Trade, tmp_path: Path, how: JournalFormat, roll_up: RollUp
) -> None:
    """`bean-check` and `hledger check --strict` find nothing wrong with what was exported."""
    text = written(trade.market, how, 0, MAY, roll_up)
    assert checked(how, text, tmp_path) == ""
    assert "usage" in text
    amounts = re.findall(r"-?[0-9]+\.([0-9]*) USD", text)
    assert amounts
    assert {len(decimals) for decimals in amounts} == {9}


@pytest.mark.parametrize("how", FORMATS)
def test_one_nano_too_much_in_a_transaction_is_refused(
    trade: Trade, tmp_path: Path, how: JournalFormat
) -> None:
    """A single nano that was changed in one line does not pass: nothing is forgiven."""
    text = written(trade.market, how, 0, MAY)
    planted = text.replace("12.345678901 USD", "12.345678902 USD", 1)
    assert planted != text
    assert "balance" in checked(how, planted, tmp_path).lower()


@pytest.mark.parametrize("how", FORMATS)
def test_a_transaction_left_out_breaks_the_balance_of_its_month(
    trade: Trade, tmp_path: Path, how: JournalFormat
) -> None:
    """Month ends are added up apart from the transactions, so that none can be missing."""
    kept = [
        part for part in written(trade.market, how, 0, MAY).split("\n\n") if "lunch" not in part
    ]
    assert "balance" in checked(how, "\n\n".join(kept), tmp_path).lower()


def test_the_default_of_beancount_would_forgive_what_ours_refuses(tmp_path: Path) -> None:
    """1.004 against -1.00 passes without the option that our journals begin with."""
    unbalanced = (
        "2026-01-01 open Assets:A USD\n2026-01-01 open Assets:B USD\n"
        '2026-01-02 * "a" "b"\n  Assets:A  1.004 USD\n  Assets:B  -1.00 USD\n'
    )
    assert checked("beancount", unbalanced, tmp_path) == ""
    exact = 'option "tolerance_multiplier" "0"\n' + unbalanced
    assert "does not balance" in checked("beancount", exact, tmp_path)


def test_hledger_refuses_what_does_not_balance(tmp_path: Path) -> None:
    """1.004 against -1.00 is refused by hledger as well."""
    unbalanced = (
        "commodity 1000.000000000 USD\naccount A\naccount B\n"
        "2026-01-02 * b\n    A  1.004 USD\n    B  -1.00 USD\n"
    )
    assert "could not balance" in checked("hledger", unbalanced, tmp_path)


@pytest.mark.parametrize("how", FORMATS)
def test_a_journal_of_one_month_begins_with_its_opening_balances(
    trade: Trade, tmp_path: Path, how: JournalFormat
) -> None:
    """April alone passes, starts from March's balances, and ends where the whole journal ends."""
    text = written(trade.market, how, APRIL, MAY)
    assert checked(how, text, tmp_path) == ""
    assert "opening" in text
    assert "lunch" not in text
    closing = [line for line in text.splitlines() if "RenterCredit:Account1 " in line][-1]
    whole = [
        line
        for line in written(trade.market, how, 0, MAY).splitlines()
        if "RenterCredit:Account1 " in line
    ][-1]
    assert closing == whole


def test_a_month_rolled_up_says_the_same_in_fewer_transactions(trade: Trade) -> None:
    """Rolled up by month there are fewer transactions and the same balances."""
    hour, month = (written(trade.market, "beancount", 0, MAY, one) for one in ROLL_UPS)
    assert month.count(" * ") < hour.count(" * ")
    balances = [
        [line for line in text.splitlines() if " balance " in line] for text in (hour, month)
    ]
    assert balances[0] == balances[1]
    assert len(balances[0]) > 5


def test_a_journal_says_where_in_the_log_each_transaction_comes_from(trade: Trade) -> None:
    """Every transaction names positions of the log."""
    text = written(trade.market, "beancount", 0, MAY)
    assert text.count("positions:") == text.count(" * ")
    transfer = next(part for part in text.split("\n\n") if "lunch" in part)
    (named,) = re.findall(r'positions: "([0-9]+)"', transfer)
    row = trade.market.connection.execute(
        "SELECT kind FROM movements WHERE position = %s", [int(named)]
    ).fetchone()
    assert row == ("transfer",)


def test_progress_ends_at_the_whole(trade: Trade) -> None:
    """The bar is told how many movements there are, and that all are done."""
    told: list[tuple[int, int]] = []
    with trade.market.ledger.reading() as connection:
        list(journal(connection, 0, MAY, "hour", lambda done, total: told.append((done, total))))
        assert told[-1] == (books.posting_count(connection, 0, MAY),) * 2


@pytest.mark.parametrize(("start", "until"), [(1, MAY), (0, MAY + 1), (MAY, MAY), (MAY, APRIL)])
def test_a_journal_is_of_whole_days(market: Market, start: int, until: int) -> None:
    """What does not begin and end with a UTC day, in this order, is refused."""
    with market.ledger.reading() as connection, pytest.raises(LedgerError) as error:
        list(journal(connection, start, until))
    assert error.value.code == "invalid_args"


# --- as of ---------------------------------------------------------------------------------------


def test_the_trial_balance_of_now_is_the_last_as_of(trade: Trade) -> None:
    """The trial balance as of the end of time equals the one that is added up without dates."""
    with trade.market.ledger.reading() as connection:
        dated = {
            row.ledger_account: row.debit - row.credit
            for row in books.trial_balance_at(connection, books.FOREVER)
        }
        plain = {row.ledger_account: row.debit - row.credit for row in trial_balance(connection)}
    assert dated == plain
    assert sum(dated.values()) == 0
    assert len(dated) == 5


def test_every_instant_balances(trade: Trade) -> None:
    """At every hour from before the first movement on, debits equal credits."""
    with trade.market.ledger.reading() as connection:
        for at in (START - 1, START, START + 3_599, START + 3_600, APRIL - 1, APRIL, APRIL + DAY):
            rows = books.trial_balance_at(connection, at)
            assert sum(row.debit - row.credit for row in rows) == 0
            assert bool(rows) == (at >= START)


def test_usage_posts_when_its_hour_is_over(trade: Trade) -> None:
    """As of one second before its hour ends, usage of the hour is not in the books."""
    alice = trade.alice
    with trade.market.ledger.reading() as connection:
        before = books.account_statement(connection, alice, as_of=START + 3_598)
        after = books.account_statement(connection, alice, as_of=START + 3_599)
    assert [line.kind for line in before.lines] == ["deposit", "transfer"]
    assert [line.kind for line in after.lines] == ["deposit", "transfer", "usage", "usage"]
    assert (
        after.closing
        == after.lines[-1].balance
        == after.opening + sum(line.amount for line in after.lines)
    )


def test_a_closed_month_answers_the_same_after_late_usage(market: Market) -> None:
    """LEDG-09, ING-04: usage of March that arrives in April posts in April, and March stays."""
    alice = market.account("alice", 10 * DOLLAR)
    machine = market.machine("bob")
    one = market.rent(alice, machine)
    market.confirm(machine, one)
    market.clock.move_to(APRIL - 7_200)
    market.run(machine, [one], 3_600)
    late = market.seal(
        machine,
        APRIL - 3_600,
        60,
        [constant_block(one, APRIL - 3_600, 60, "running", up=0, down=0, util=90)],
    )
    market.clock.move_to(APRIL + 3_600)
    close_periods(market.ledger)
    market.project()
    with market.ledger.reading() as connection:
        before = books.account_statement(connection, alice, as_of=APRIL - 1)
    assert market.deliver(late)[0].status == "accepted"
    market.project()
    with market.ledger.reading() as connection:
        after = books.account_statement(connection, alice, as_of=APRIL - 1)
        in_april = books.account_statement(connection, alice, start=APRIL)
    assert after == before
    assert [line.posted_at for line in in_april.lines] == [APRIL, APRIL]
    assert in_april.closing < in_april.opening == before.closing


def test_a_statement_ends_at_the_balance(trade: Trade) -> None:
    """INV-01: opening and movements are the closing balance, which is what the account has."""
    alice, bob = trade.alice, trade.bob
    with trade.market.ledger.reading() as connection:
        renter = books.account_statement(connection, alice)
        host = books.account_statement(connection, bob, "host_payable")
        now = balance(connection, alice, trade.market.clock())
        owed = balance(connection, bob, trade.market.clock()).host_payable
    assert renter.opening == 0
    assert renter.closing == now.posted - now.charged
    assert sum(line.amount for line in renter.lines) == renter.closing
    assert host.closing == owed > 0


def test_pages_of_the_general_ledger_are_the_whole(trade: Trade) -> None:
    """Whatever the size of a page, no line is missing or twice, and balances run on."""
    with trade.market.ledger.reading() as connection:
        whole = books.general_ledger(connection, "renter_credit")
        for size in (1, 2, 5):
            lines: list[books.Line] = []
            key = ""
            while True:
                found = books.general_ledger(connection, "renter_credit", after=key, limit=size)
                assert (found.opening, found.closing) == (whole.opening, whole.closing)
                if not found.lines:
                    break
                lines += found.lines
                key = found.lines[-1].key
            assert lines == whole.lines
    assert whole.lines[-1].balance == whole.closing


def test_a_reversal_is_in_the_books_of_its_own_day(market: Market) -> None:
    """A correction of March that is made in May posts in May; what March said stays."""
    alice, _, one = business(market)
    with market.ledger.reading() as connection:
        march = books.trial_balance_at(connection, APRIL - 1)
    market.clock.move_to(MAY)
    with market.ledger.unit() as unit:
        charge = corrections.load_charge(unit.connection, f"instance-{one}.gpu.1")
        order = corrections.Order(
            reason="price_mismatch", by=Authority("account-9", 1), effective_at=MARCH
        )
        corrections.reverse(unit, charge, 1_000, order)
    with market.ledger.reading() as connection:
        assert books.trial_balance_at(connection, APRIL - 1) == march
        (line,) = books.account_statement(connection, alice, start=MAY).lines[:1]
        assert (line.kind, line.other) == ("reversal", "host_payable")


@pytest.mark.parametrize(
    ("name", "code"),
    [("petty_cash", "no_such_ledger_account"), ("platform_fee", "no_such_ledger_account")],
)
def test_a_statement_is_of_what_people_have(market: Market, name: str, code: str) -> None:
    """Nobody has an account that is not in the chart, or that is the platform's own."""
    alice = market.account("alice")
    with market.ledger.reading() as connection, pytest.raises(LedgerError) as error:
        books.account_statement(connection, alice, name)
    assert error.value.code == code


def test_deposits_of_tomorrow_are_not_in_the_books_of_today(market: Market) -> None:
    """LEDG-06: as of an instant, nothing later is in any list, in no combination with a filter."""
    alice = market.account("alice", DOLLAR)
    market.clock.move_to(START + DAY)
    with market.ledger.unit() as unit:
        deposits.deposit(unit, alice, DOLLAR, "second")
    with market.ledger.reading() as connection:
        today = books.account_statement(connection, alice, as_of=START)
        tomorrow = books.account_statement(connection, alice, start=START + 1)
        never = books.account_statement(connection, alice, start=START + 1, as_of=START + DAY - 1)
    assert (today.closing, len(today.lines)) == (DOLLAR, 1)
    assert (tomorrow.opening, tomorrow.closing, len(tomorrow.lines)) == (DOLLAR, 2 * DOLLAR, 1)
    assert (never.opening, never.closing, never.lines) == (DOLLAR, DOLLAR, [])
