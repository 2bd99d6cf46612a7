"""Disputes: the hold, the answers, the ends, and what each moves to the nano."""

from __future__ import annotations

from typing import Any

import pytest

from ledger.domain.events import (
    ChargeReversed,
    CreditNoteIssued,
    EarningsHeld,
    EarningsReleased,
    FilingRestricted,
)
from ledger.errors import DeclinedError, LedgerError, NotFoundError, RejectedError
from ledger.services import approvals, disputes, filing, rentals
from ledger.services.disputes import Words
from ledger.services.erasure import erase_subject
from ledger.services.questions import disputes as ask
from tests.support.disputes import (
    ADMIN,
    DAY,
    HOUR,
    Books,
    Rental,
    answer,
    books,
    dispute,
    of_kind,
    pay_out,
    ran,
    rented,
    resolve,
    reverse,
    run_due,
)
from tests.support.market import DOLLAR, START, Market

ONE_OCLOCK = START // DAY * DAY + DAY + HOUR
START_BOOKS = Books(99_600_000_000, 340_000_000, 60_000_000, 0, 0)


@pytest.fixture
def alice(market: Market) -> Rental:
    """One whole hour at $0.40: c = 400 000 000, f = 60 000 000."""
    rental = rented(market)
    ran(market, rental, HOUR)
    assert books(market, rental) == START_BOOKS
    return rental


def refused(market: Market, rental: Rental, *args: Any, **options: Any) -> str:
    """The code with which a filing is refused; nothing may have been appended."""
    market.project()
    head = market.head()
    with pytest.raises(LedgerError) as error:
        dispute(market, rental, *args, **options)
    assert market.head() == head
    return error.value.code


# --- money ---------------------------------------------------------------------------------------


def test_the_worked_example_to_the_nano(market: Market, alice: Rental) -> None:
    """§15: ten minutes upheld give the renter 66 666 666, 9 999 999 and 56 666 667 of it."""
    one = dispute(market, alice, START + 600, START + 1_200)
    held = Books(99_600_000_000, 283_333_333, 60_000_000, 56_666_667, 0)
    assert books(market, alice) == held
    assert resolve(market, one, "upheld") == 66_666_666
    after = Books(99_666_666_666, 283_333_333, 50_000_001, 0, 0)
    assert books(market, alice) == after
    assert resolve(market, one, "upheld") == 66_666_666
    assert books(market, alice) == after
    assert market.rebuild().equal


@pytest.mark.parametrize("outcome", ["rejected", "expired"])
def test_a_rejected_dispute_gives_the_hold_back(
    market: Market, alice: Rental, outcome: str
) -> None:
    """Nothing moved that does not come back: the books are those before the dispute."""
    one = dispute(market, alice, START, START + 600)
    assert resolve(market, one, outcome) == 0
    assert books(market, alice) == START_BOOKS
    assert market.rebuild().equal


def test_a_withdrawn_dispute_gives_the_hold_back(market: Market, alice: Rental) -> None:
    """The renter may let it be; again changes nothing, and it does not count as rejected."""
    one = dispute(market, alice, START, START + 600)
    for _ in range(2):
        with market.ledger.unit() as unit:
            disputes.withdraw(unit, one, alice.renter)
    assert books(market, alice) == START_BOOKS


def test_a_partial_outcome_moves_its_amount_and_frees_the_rest(
    market: Market, alice: Rental
) -> None:
    """Half of the claim goes back in shares; what was held beyond it is the host's again."""
    one = dispute(market, alice, START, START + 1_200)
    assert resolve(market, one, "partial", 40_000_000) == 40_000_000
    assert books(market, alice) == Books(99_640_000_000, 306_000_000, 54_000_000, 0, 0)
    assert market.rebuild().equal


def test_what_was_paid_out_is_held_and_taken_as_a_debt(market: Market, alice: Rental) -> None:
    """A share that left already comes from `host_receivable`, and the books still balance."""
    pay_out(market, alice, 320_000_000)
    one = dispute(market, alice, START, START + 600)
    assert books(market, alice) == Books(99_600_000_000, 0, 60_000_000, 56_666_667, 36_666_667)
    resolve(market, one, "upheld")
    assert books(market, alice) == Books(99_666_666_666, 0, 50_000_001, 0, 36_666_667)
    assert market.rebuild().equal


def test_a_rejection_takes_the_debt_back_too(market: Market, alice: Rental) -> None:
    """A host that was right owes nothing, whatever of the hold had been paid out."""
    pay_out(market, alice, 320_000_000)
    one = dispute(market, alice, START, START + 600)
    resolve(market, one, "rejected")
    assert books(market, alice) == Books(99_600_000_000, 20_000_000, 60_000_000, 0, 0)


def test_a_debt_is_a_line_of_the_next_payout(market: Market, alice: Rental) -> None:
    """On Friday 00:00 UTC what the host owes is taken from what it has earned since."""
    run_due(market)  # the week is known
    pay_out(market, alice, 340_000_000)
    resolve(market, dispute(market, alice, START, START + 600), "upheld")
    assert books(market, alice).receivable == 56_666_667
    ran(market, alice, HOUR)
    run_due(market)
    assert books(market, alice).receivable == 56_666_667
    with market.ledger.unit() as unit:
        rentals.destroy(unit, alice.instance)
    friday = 1_772_755_200  # 2026-03-06T00:00:00Z
    run_due(market, friday - 1)
    assert books(market, alice).receivable == 56_666_667
    run_due(market, friday)
    found = books(market, alice)
    assert (found.payable, found.receivable) == (340_000_000 - 56_666_667, 0)
    run_due(market, friday + 60)
    assert books(market, alice) == found
    assert market.rebuild().equal


def test_every_movement_names_its_cause(market: Market, alice: Rental) -> None:
    """C24: a correction is a new event with cause, version, actor and both times."""
    one = dispute(market, alice, START + 600, START + 1_200)
    market.clock.move_to(START + 2 * HOUR)
    resolve(market, one, "upheld")
    held, released, back = (
        of_kind(market.facts(), kind)[0]
        for kind in (EarningsHeld, EarningsReleased, ChargeReversed)
    )
    assert held.actor == f"account-{alice.renter}"
    assert back.actor == released.actor == ADMIN
    assert back.cause == released.cause is not None
    assert (back.effective_at, back.reversed_at) == (START + 600, START + 2 * HOUR)
    assert (back.reverses, back.charged, back.charged_fee) == (
        f"instance-{alice.instance}.gpu.1",
        400_000_000,
        60_000_000,
    )
    opened = ask.dispute(market.connection, one)
    assert opened.as_of < market.head()
    topics: dict[int, str] = dict(
        market.connection.execute("SELECT position, topic FROM events").fetchall()
    )
    assert topics[held.cause] == "dispute.opened.v1"
    assert topics[back.cause] == "dispute.resolved.v1"


def test_an_invoiced_charge_gets_a_credit_note(market: Market, alice: Rental) -> None:
    """The invoice stays as it was; a document of its own says what went back, and why."""
    with market.ledger.unit() as unit:
        rentals.stop(unit, alice.instance)
    april = 1_775_001_600
    run_due(market, april + HOUR)
    # Only an admin can act on what is older than a week.
    charge = f"instance-{alice.instance}.gpu.1"
    reverse(market, charge, 66_666_666)
    (note,) = of_kind(market.facts(), CreditNoteIssued)
    assert (note.number, note.document, note.total) == ("CN-00000001", "USE-00000001", 66_666_666)
    assert [line.amount for line in note.lines] == [66_666_666]
    row = market.connection.execute("SELECT total, closing FROM invoices").fetchone()
    assert row == (400_000_000, 99_600_000_000)
    reverse(market, charge, 1)
    assert [one.number for one in of_kind(market.facts(), CreditNoteIssued)] == [
        "CN-00000001",
        "CN-00000002",
    ]
    assert market.rebuild().equal


# --- filing --------------------------------------------------------------------------------------


def test_the_window_closes_seven_days_after_the_statement(market: Market, alice: Rental) -> None:
    """Within 7 days of the statement, its last second included; then `dispute_window_closed`."""
    with market.ledger.unit() as unit:
        rentals.destroy(unit, alice.instance)
    run_due(market, ONE_OCLOCK)
    market.clock.move_to(ONE_OCLOCK + 7 * DAY + 1)
    assert refused(market, alice, START, START + 600) == "dispute_window_closed"
    assert refused(market, alice, START, START + 600, by_admin=True) == "dispute_window_closed"


def test_the_last_second_of_the_window_counts(market: Market, alice: Rental) -> None:
    """Exactly seven days after the statement a dispute can still be opened."""
    run_due(market, ONE_OCLOCK)
    market.clock.move_to(ONE_OCLOCK + 7 * DAY)
    assert dispute(market, alice, START, START + 600) == 1


def test_a_day_without_a_statement_closes_as_if_it_had_one(market: Market, alice: Rental) -> None:
    """Where no statement was issued, the window runs from when it was due."""
    market.clock.move_to(ONE_OCLOCK + 7 * DAY + 1)
    assert refused(market, alice, START, START + 600) == "dispute_window_closed"


@pytest.mark.parametrize(
    ("start", "until", "reason"),
    [
        (START + 600, START + 600, "not_running"),
        (START + 600, START, "not_running"),
        (START, START + 10 * HOUR, "not_running"),
        (-5, START, "not_running"),
        (START, START + 600, "too_slow"),
    ],
)
def test_what_is_no_span_or_reason_is_refused(
    market: Market, alice: Rental, start: int, until: int, reason: str
) -> None:
    """Empty, backward and future spans, and reasons that are not in the list."""
    assert refused(market, alice, start, until, reason) == "invalid_args"


@pytest.mark.parametrize(
    "words", [Words(("zz" * 32,)), Words(("ab" * 32,) * 33), Words((), "é" * 5_000)]
)
def test_evidence_is_hashes_and_statements_are_short(
    market: Market, alice: Rental, words: Words
) -> None:
    """Evidence is up to 32 SHA-256 hashes, a statement at most 8 KiB."""
    assert refused(market, alice, START, START + 600, words=words) == "invalid_args"


def test_nothing_charged_is_nothing_to_dispute(market: Market, alice: Rental) -> None:
    """Seconds that were free, or before the instance ran, are refused without a trace."""
    assert refused(market, alice, START - 600, START) == "no_such_charge"
    assert refused(market, alice, START, START + 600, "overbilled_bytes") == "no_such_charge"


def test_a_charge_has_one_open_dispute(market: Market, alice: Rental) -> None:
    """`already_disputed` for the same seconds and for others of the charge, until it is over."""
    one = dispute(market, alice, START, START + 600)
    assert refused(market, alice, START, START + 600) == "already_disputed"
    assert refused(market, alice, START + 1_200, START + 1_800) == "already_disputed"
    resolve(market, one, "rejected")
    assert dispute(market, alice, START, START + 600) == 2


def test_seconds_that_went_back_are_not_claimed_again(market: Market, alice: Rental) -> None:
    """LEDG-01: a repeat of an upheld dispute is told that all of it went back already."""
    resolve(market, dispute(market, alice, START, START + 600), "upheld")
    assert refused(market, alice, START, START + 600) == "over_reversal"
    overlapping = dispute(market, alice, START, START + HOUR)
    resolve(market, overlapping, "upheld")
    assert books(market, alice) == Books(100 * DOLLAR, 0, 0, 0, 0)
    assert refused(market, alice, START, START + HOUR) == "over_reversal"


def test_direct_corrections_limit_what_a_dispute_gives_back(market: Market, alice: Rental) -> None:
    """What an admin gave back meanwhile is not given back again when silence upholds."""
    dispute(market, alice, START, START + HOUR)
    reverse(market, f"instance-{alice.instance}.gpu.1", 399_999_999)
    run_due(market, market.clock() + 3 * DAY)
    found = books(market, alice)
    assert (found.credit, found.fees, found.hold) == (100 * DOLLAR, 0, 0)
    # The share was held, so it was owed meanwhile; the next payout sets one against the other.
    assert found.payable == found.receivable == 340_000_000
    assert market.rebuild().equal


def test_reports_that_wait_to_be_metered_are_waited_for(market: Market, alice: Rental) -> None:
    """A claim is never too small because the projection lags: try again a moment later."""
    ran(market, alice, 60)
    with market.ledger.unit() as unit, pytest.raises(DeclinedError) as error:
        filing.open_dispute(
            unit, alice.instance, START, market.clock(), "not_running", actor=alice.renter
        )
    assert error.value.code == "usage_pending"


def test_more_than_five_rejections_in_thirty_days_need_an_admin(
    market: Market, alice: Rental
) -> None:
    """The sixth rejection restricts; an approval lets one dispute through, and time all of them."""
    for number in range(6):
        one = dispute(market, alice, START + 60 * number, START + 60 * (number + 1))
        assert of_kind(market.facts(), FilingRestricted) == []
        resolve(market, one, "rejected")
    (restricted,) = of_kind(market.facts(), FilingRestricted)
    assert (restricted.account_id, restricted.rejected) == (alice.renter, 6)
    assert refused(market, alice, START, START + 60) == "filing_restricted"
    subject = f"file account-{alice.renter}"
    with market.ledger.unit() as unit:
        approvals.approve(unit, subject, f"account-{alice.renter}")
    assert refused(market, alice, START, START + 60) == "filing_restricted"
    with market.ledger.unit() as unit:
        approvals.approve(unit, subject, ADMIN)
    one = dispute(market, alice, START, START + 60)
    resolve(market, one, "rejected")
    assert refused(market, alice, START, START + 60) == "filing_restricted"
    assert dispute(market, alice, START, START + 60, by_admin=True) == one + 1
    assert len(of_kind(market.facts(), FilingRestricted)) == 1
    assert market.rebuild().equal


def test_a_restriction_ends_when_the_rejections_are_thirty_days_old(
    market: Market, alice: Rental
) -> None:
    """Thirty days later the account files freely again."""
    for number in range(6):
        one = dispute(market, alice, START + 60 * number, START + 60 * (number + 1))
        resolve(market, one, "rejected")
    market.clock.move_to(market.clock() + 30 * DAY)
    ran(market, alice, 600)
    now = market.clock()
    assert dispute(market, alice, now - 600, now) == 7


# --- answers -------------------------------------------------------------------------------------


def test_silence_of_the_host_upholds_after_72_hours(market: Market, alice: Rental) -> None:
    """The policy resolves it at its second, with the rule that decided."""
    one = dispute(market, alice, START + 600, START + 1_200)
    opened = market.clock()
    run_due(market, opened + 72 * HOUR - 1)
    assert ask.dispute(market.connection, one).status == "open"
    run_due(market, opened + 72 * HOUR)
    seen = ask.dispute(market.connection, one)
    assert (seen.status, seen.rule_id, seen.decided_by) == ("upheld", "host_silence", "platform")
    assert books(market, alice).credit == 99_666_666_666


def test_an_answer_keeps_the_hold_until_somebody_decides(market: Market, alice: Rental) -> None:
    """An explained dispute stays held; no deadline decides it."""
    one = dispute(market, alice, START, START + 600)
    answer(market, one, "host", alice.host, "the rack lost power")
    run_due(market, market.clock() + 30 * DAY)
    assert ask.dispute(market.connection, one).status == "answered"
    assert books(market, alice).hold == 56_666_667


def test_an_unanswered_question_expires_the_dispute(market: Market, alice: Rental) -> None:
    """Seven days of the renter's silence have the effect of a rejection."""
    one = dispute(market, alice, START, START + 600)
    answer(market, one, "host", alice.host)
    with market.ledger.unit() as unit:
        disputes.question(unit, one, 900, "which error did you see?")
    asked = market.clock()
    assert ask.dispute(market.connection, one).status == "questioned"
    run_due(market, asked + 7 * DAY)
    assert ask.dispute(market.connection, one).status == "expired"
    assert books(market, alice) == START_BOOKS


def test_an_answered_question_goes_back_to_who_decides(market: Market, alice: Rental) -> None:
    """With the renter's answer the dispute is answered again, and upheld by a person."""
    one = dispute(market, alice, START, START + 600)
    answer(market, one, "host", alice.host)
    with market.ledger.unit() as unit:
        disputes.question(unit, one, 900, "which error?")
    answer(market, one, "renter", alice.renter, "CUDA error 999")
    assert ask.dispute(market.connection, one).status == "answered"
    assert resolve(market, one, "upheld") == 66_666_666
    assert market.rebuild().equal


def test_words_are_in_the_vault_and_only_a_hash_in_the_log(market: Market, alice: Rental) -> None:
    """§20: no text of a person is in any fact; parties read it until its subject is erased."""
    secret = "my tenant Jane Roe saw it"
    one = dispute(market, alice, START, START + 600, words=Words(("ab" * 32,), secret))
    stored = market.connection.execute("SELECT state FROM events").fetchall()
    assert all(secret.encode() not in bytes(state) for (state,) in stored)
    (said,) = ask.words(market.connection, market.ledger.vault, one, readable=True)
    assert (said.text, said.evidence) == (secret, ["ab" * 32])
    (hidden,) = ask.words(market.connection, market.ledger.vault, one, readable=False)
    assert hidden.text is None
    with market.ledger.unit() as unit:
        erase_subject(unit, alice.renter)
    (erased,) = ask.words(market.connection, market.ledger.vault, one, readable=True)
    assert erased.text is None


def test_a_dispute_that_is_not_there_is_not_found(market: Market) -> None:
    """Every command on an unknown dispute says so and changes nothing."""
    head = market.head()
    for do in (
        lambda: resolve(market, 9, "upheld"),
        lambda: answer(market, 9, "host", 1),
    ):
        with pytest.raises(NotFoundError) as error:
            do()
        assert error.value.code == "no_such_dispute"
    assert market.head() == head


def test_an_outcome_has_to_be_one(market: Market, alice: Rental) -> None:
    """`withdrawn` is not for admins, and nonsense is no outcome."""
    one = dispute(market, alice, START, START + 600)
    for outcome in ("withdrawn", "maybe"):
        with pytest.raises(RejectedError) as error:
            resolve(market, one, outcome)
        assert error.value.code == "invalid_args"


# --- what seconds cost ---------------------------------------------------------------------------


def test_only_the_seconds_that_were_billed_are_claimed(market: Market) -> None:
    """A window with a stop, loading seconds and gaps claims what its running ticks cost."""
    rental = rented(market)
    ran(market, rental, 100)
    ran(market, rental, 50, state="gpu_lost")
    market.clock.move_to(market.clock() + 30)
    ran(market, rental, 40)
    one = dispute(market, rental, START + 10, START + 200)
    (claim,) = ask.dispute(market.connection, one).claims
    assert claim.quantity == 90 + 20


def test_a_window_over_hours_and_terms_claims_each_charge(market: Market) -> None:
    """Whole hours come from the meters, edges from ticks; the sum is what the window cost."""
    rental = rented(market, storage=150_000_000, up=3_000_000, down=2_000_000)
    ran(market, rental, 3 * HOUR, up=1_000, down=500)
    end = market.clock()
    one = dispute(market, rental, START + 600, end - 600, "host_offline")
    claims = {claim.meter: claim for claim in ask.dispute(market.connection, one).claims}
    seconds = 3 * HOUR - 1_200
    assert {meter: claim.quantity for meter, claim in claims.items()} == {
        "gpu": seconds,
        "storage": seconds,
        "up": 1_000 * seconds,
        "down": 500 * seconds,
    }
    resolve(market, one, "upheld")
    assert market.rebuild().equal


def test_storage_alone_is_disputed_where_only_storage_is_wrong(market: Market) -> None:
    """`storage_after_destroy` leaves the GPU charge alone."""
    rental = rented(market, storage=150_000_000)
    ran(market, rental, HOUR)
    one = dispute(market, rental, START, START + HOUR, "storage_after_destroy")
    (claim,) = ask.dispute(market.connection, one).claims
    assert (claim.meter, claim.amount) == ("storage", 20_833_333)
