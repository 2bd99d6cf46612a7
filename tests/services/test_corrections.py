"""Corrections: never edited, bounded, replayable under two times; credit notes without gaps."""

from __future__ import annotations

import pytest

from ledger.domain.dispute import Authority
from ledger.domain.events import ChargePosted, ChargeReversed, CreditNoteIssued
from ledger.errors import LedgerError
from ledger.services import approvals, credit_notes, rentals
from ledger.services.questions import corrections as ask
from ledger.services.questions import credit_notes as ask_notes
from ledger.services.questions.corrections import ChargeAsSeen, as_invoiced, as_known
from tests.support.disputes import (
    ADMIN,
    DAY,
    HOUR,
    Books,
    Rental,
    books,
    dispute,
    late,
    of_kind,
    ran,
    rented,
    replace,
    resolve,
    reverse,
    run_due,
)
from tests.support.market import START, Market

DAY_OF_START = START // DAY * DAY
APRIL = 1_775_001_600
SECOND_ADMIN = "account-901"


@pytest.fixture
def alice(market: Market) -> Rental:
    """One whole hour at $0.40, then stopped."""
    rental = rented(market)
    ran(market, rental, HOUR)
    market.project()
    with market.ledger.unit() as unit:
        rentals.stop(unit, rental.instance)
    return rental


def charge(rental: Rental) -> str:
    """The name of its one charge."""
    return f"instance-{rental.instance}.gpu.1"


def note(market: Market, rental: Rental, amount: int, **options: bool) -> str:
    """An admin credits part of the first invoice."""
    with market.ledger.unit() as unit:
        by = Authority(ADMIN, unit.policy.version)
        return credit_notes.credit_note(
            unit, rental.renter, "USE-00000001", amount, "goodwill", by, **options
        )


def code_of(market: Market, do: object) -> str:
    """The code with which something is refused, having appended nothing."""
    head = market.head()
    assert callable(do)
    with pytest.raises(LedgerError) as error:
        do()
    assert market.head() == head
    return error.value.code


# --- reversals and replacements ------------------------------------------------------------------


def test_reversals_are_bounded_over_all_of_them(market: Market, alice: Rental) -> None:
    """LEDG-01: together at most the charge; one nano more is refused and changes nothing."""
    for part in (1, 66_666_666, 133_333_333, 200_000_000):
        reverse(market, charge(alice), part)
    assert books(market, alice) == Books(100_000_000_000, 0, 0, 0, 0)
    assert code_of(market, lambda: reverse(market, charge(alice), 1)) == "over_reversal"
    assert market.rebuild().equal


def test_a_replacement_is_a_charge_that_can_be_corrected_again(
    market: Market, alice: Rental
) -> None:
    """INV-12: the wrong charge goes back, the right one is posted, and each points at the last."""
    one = replace(market, charge(alice), 300_000_000)
    assert books(market, alice) == Books(99_700_000_000, 255_000_000, 45_000_000, 0, 0)
    two = replace(market, f"correction-{one}", 200_000_000)
    assert books(market, alice) == Books(99_800_000_000, 170_000_000, 30_000_000, 0, 0)
    posted = of_kind(market.facts(), ChargePosted)
    assert [fact.corrects for fact in posted] == [charge(alice), f"correction-{one}"]
    assert [fact.depth for fact in posted] == [1, 2]
    reversed_ = of_kind(market.facts(), ChargeReversed)
    assert [fact.cause for fact in posted] == [
        position
        for (position,) in market.connection.execute(
            "SELECT position FROM corrections WHERE kind = 'reversal' ORDER BY position"
        )
    ]
    assert [fact.reverses for fact in reversed_] == [charge(alice), f"correction-{one}"]
    assert two == one + 2
    assert market.rebuild().equal


def test_beyond_depth_three_a_second_person_has_to_agree(market: Market, alice: Rental) -> None:
    """The fourth correction of a correction needs an approval by somebody else, for that one."""
    name = charge(alice)
    for amount in (390_000_000, 380_000_000, 370_000_000):
        name = f"correction-{replace(market, name, amount)}"
    fourth = name
    assert code_of(market, lambda: reverse(market, fourth, 1)) == "second_approval_required"
    assert code_of(market, lambda: replace(market, fourth, 1)) == "second_approval_required"
    with market.ledger.unit() as unit:
        approvals.approve(unit, f"correct {fourth}", ADMIN)
    assert code_of(market, lambda: reverse(market, fourth, 1)) == "second_approval_required"
    with market.ledger.unit() as unit:
        approvals.approve(unit, f"correct {fourth}", SECOND_ADMIN)
    reverse(market, fourth, 1)
    (last,) = ask.corrections(market.connection, charge=fourth)
    assert (last.depth, last.approved_by) == (4, SECOND_ADMIN)
    # An approval is for one command.
    assert code_of(market, lambda: reverse(market, fourth, 1)) == "second_approval_required"
    assert market.rebuild().equal


def test_an_approval_is_forgotten_after_a_day(market: Market, alice: Rental) -> None:
    """What somebody agreed to yesterday is not agreed to today."""
    name = charge(alice)
    for amount in (390_000_000, 380_000_000, 370_000_000):
        name = f"correction-{replace(market, name, amount)}"
    with market.ledger.unit() as unit:
        approvals.approve(unit, f"correct {name}", SECOND_ADMIN)
    market.clock.move_to(market.clock() + DAY)
    assert code_of(market, lambda: reverse(market, name, 1)) == "second_approval_required"


@pytest.mark.parametrize("name", ["instance-1.gpu.9", "instance-9.gpu.1", "correction-1", "x"])
def test_what_was_never_charged_cannot_be_corrected(
    market: Market, alice: Rental, name: str
) -> None:
    """A charge that is not there, or was never anything, is not found."""
    del alice
    assert code_of(market, lambda: reverse(market, name, 1)) == "no_such_charge"


@pytest.mark.parametrize("subject", ["", "pay me", "void", "correct a b", "file account 7"])
def test_an_approval_names_what_a_command_asks_for(market: Market, subject: str) -> None:
    """A subject that no command will ever look for is refused."""

    def approve() -> None:
        with market.ledger.unit() as unit:
            approvals.approve(unit, subject, ADMIN)

    assert code_of(market, approve) == "invalid_args"


# --- credit notes --------------------------------------------------------------------------------


def test_credit_notes_are_gapless_and_bounded_by_their_document(
    market: Market, alice: Rental
) -> None:
    """INV-07: numbers follow each other, also past refusals, and the sum is at most the total."""
    run_due(market, APRIL + HOUR)
    assert note(market, alice, 100_000_000) == "CN-00000001"
    assert code_of(market, lambda: note(market, alice, 300_000_001)) == "over_credit"
    assert code_of(market, lambda: note(market, alice, 0)) == "invalid_amount"
    assert note(market, alice, 300_000_000) == "CN-00000002"
    assert code_of(market, lambda: note(market, alice, 1)) == "over_credit"
    assert books(market, alice) == Books(100_000_000_000, 0, 0, 0, 0)
    row = market.connection.execute("SELECT total, closing, paid FROM invoices").fetchone()
    assert row == (400_000_000, 99_600_000_000, 400_000_000)
    assert market.rebuild().equal


def test_a_failed_command_uses_no_number(market: Market, alice: Rental) -> None:
    """LEDG-05: a number that was taken in a transaction that failed is free again."""
    run_due(market, APRIL + HOUR)
    failure = RuntimeError("the transaction fails at its end")

    def fail() -> None:
        with market.ledger.unit() as unit:
            by = Authority(ADMIN, 1)
            credit_notes.credit_note(unit, alice.renter, "USE-00000001", 1, "x", by)
            raise failure

    with pytest.raises(RuntimeError):
        fail()
    assert note(market, alice, 1) == "CN-00000001"


def test_a_note_is_spread_over_the_lines_of_its_document(market: Market) -> None:
    """Several meters give back in proportion, each within its own line."""
    rental = rented(market, storage=150_000_000, up=3_000_000, down=2_000_000)
    ran(market, rental, HOUR, up=1_000_000, down=500_000)
    market.project()
    with market.ledger.unit() as unit:
        rentals.destroy(unit, rental.instance)
    run_due(market, APRIL + HOUR)
    total = sum(market.charges(rental.instance).values())
    note(market, rental, total // 3)
    (seen,) = ask_notes.credit_notes(market.connection)
    found = ask_notes.credit_note(market.connection, seen.number)
    assert sum(line.amount for line in found.lines) == found.total == total // 3
    assert len(found.lines) == 4
    note(market, rental, total - total // 3)
    after = books(market, rental)
    assert after == Books(100_000_000_000, 0, 0, 0, 0)
    assert market.rebuild().equal


def test_voiding_takes_the_whole_remainder_and_two_people(market: Market, alice: Rental) -> None:
    """INV-06: an exact reversal of what is left, at most once, agreed by somebody else."""
    run_due(market, APRIL + HOUR)
    note(market, alice, 100_000_000)
    assert code_of(market, lambda: note(market, alice, 1, voids=True)) == "invalid_args"
    left = 300_000_000
    assert (
        code_of(market, lambda: note(market, alice, left, voids=True)) == "second_approval_required"
    )
    with market.ledger.unit() as unit:
        approvals.approve(unit, "void USE-00000001", SECOND_ADMIN)
    note(market, alice, left, voids=True)
    last = of_kind(market.facts(), CreditNoteIssued)[-1]
    assert (last.voids, last.approved_by, last.total) == (True, SECOND_ADMIN, left)
    assert books(market, alice) == Books(100_000_000_000, 0, 0, 0, 0)
    assert code_of(market, lambda: note(market, alice, 1)) == "over_credit"
    assert market.rebuild().equal


def test_the_document_of_somebody_else_is_not_found(market: Market, alice: Rental) -> None:
    """A credit note names an invoice of its own account."""
    run_due(market, APRIL + HOUR)
    other = alice._replace(renter=alice.host)
    assert code_of(market, lambda: note(market, other, 1)) == "no_such_invoice"


def test_what_was_given_back_before_the_invoice_is_not_credited_again(
    market: Market, alice: Rental
) -> None:
    """A reversal in the same period is a movement of that invoice; only the rest is creditable."""
    reverse(market, charge(alice), 100_000_000)
    assert of_kind(market.facts(), CreditNoteIssued) == []
    run_due(market, APRIL + HOUR)
    row = market.connection.execute("SELECT total, movements, closing FROM invoices").fetchone()
    assert row == (400_000_000, 100_100_000_000, 99_700_000_000)
    assert code_of(market, lambda: note(market, alice, 300_000_001)) == "over_credit"
    note(market, alice, 300_000_000)
    assert books(market, alice).credit == 100_000_000_000


# --- two times -----------------------------------------------------------------------------------


def amounts(found: list[ChargeAsSeen]) -> list[tuple[int, int, int]]:
    """What was charged, what went back, and what is left of it."""
    return [(one.charged, one.reversed, one.amount) for one in found]


def test_as_invoiced_and_as_now_known_differ_by_the_corrections(
    market: Market, alice: Rental
) -> None:
    """§15: the document's view never changes, the known one does, and both add up."""
    run_due(market, APRIL + HOUR)
    window = {"start": START, "until": START + HOUR, "account_id": alice.renter}
    before = amounts(as_invoiced(market.connection, **window))
    assert before == [(400_000_000, 0, 400_000_000)]
    reverse(market, charge(alice), 66_666_666)
    replace(market, charge(alice), 300_000_000)
    assert amounts(as_invoiced(market.connection, **window)) == before
    (now,) = as_known(market.connection, **window)
    assert (now.charged, now.reversed, now.posted, now.amount) == (
        400_000_000,
        400_000_000,
        300_000_000,
        300_000_000,
    )
    assert as_invoiced(market.connection, known_at=APRIL, **window) == []


def test_what_was_known_at_a_second_stays_what_was_known(market: Market, alice: Rental) -> None:
    """LEDG-09: corrections made later, of anything earlier, never change an old answer."""
    window = {"start": DAY_OF_START, "until": DAY_OF_START + DAY, "account_id": alice.renter}
    morning = DAY_OF_START + DAY + HOUR
    run_due(market, morning)
    asked = amounts(as_known(market.connection, known_at=morning, **window))
    assert asked == [(400_000_000, 0, 400_000_000)]
    assert as_known(market.connection, known_at=morning - 1, **window) == []
    resolve(market, dispute(market, alice, START, START + 600), "upheld")
    market.clock.move_to(morning + HOUR)
    reverse(market, charge(alice), 33_333_334)
    assert amounts(as_known(market.connection, known_at=morning - 1, **window)) == []
    assert amounts(as_known(market.connection, known_at=morning, **window)) == [
        (400_000_000, 66_666_666, 333_333_334)
    ]
    assert amounts(as_known(market.connection, known_at=morning + HOUR, **window)) == [
        (400_000_000, 100_000_000, 300_000_000)
    ]
    assert amounts(as_known(market.connection, **window)) == [
        (400_000_000, 100_000_000, 300_000_000)
    ]
    assert market.rebuild().equal


def test_late_usage_is_known_from_the_statement_that_names_it(market: Market) -> None:
    """LEDG-09: usage of a day that arrives later is part of what is known later, and not before."""
    rental = rented(market)
    ran(market, rental, 600)
    morning = DAY_OF_START + DAY + HOUR
    window = {"start": DAY_OF_START, "until": DAY_OF_START + DAY, "account_id": rental.renter}
    run_due(market, morning)
    late(market, rental, START + 600, 600)
    run_due(market, morning + DAY)
    first, both = 66_666_666, 133_333_333
    assert amounts(as_known(market.connection, known_at=morning, **window)) == [(first, 0, first)]
    assert amounts(as_known(market.connection, known_at=morning + DAY, **window)) == [
        (both, 0, both)
    ]
    assert amounts(as_known(market.connection, **window)) == [(both, 0, both)]


def test_a_correction_belongs_to_the_time_since_which_it_applies(
    market: Market, alice: Rental
) -> None:
    """A window before or after the corrected seconds does not show the correction."""
    one = dispute(market, alice, START + 600, START + 1_200)
    resolve(market, one, "upheld")
    day = DAY_OF_START
    here = as_known(market.connection, start=day, until=day + DAY, account_id=alice.renter)
    assert amounts(here) == [(400_000_000, 66_666_666, 333_333_334)]
    other = as_known(
        market.connection, start=day + DAY, until=day + 2 * DAY, account_id=alice.renter
    )
    assert other == []
