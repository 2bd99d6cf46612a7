from __future__ import annotations

from collections.abc import Sequence

import pytest

from ledger.domain.charge import Metered, Replacement, parse_charge
from ledger.domain.dispute import (
    HOST_ANSWER_SECONDS,
    RENTER_ANSWER_SECONDS,
    Answer,
    Authority,
    Dispute,
    DisputeCommand,
    LetPass,
    Question,
    Resolve,
    Withdraw,
    decide,
    evolve,
    fold,
    is_restricted,
    meters_of,
)
from ledger.domain.events import (
    DisputeClaim,
    DisputedSeconds,
    DisputeFact,
    DisputeOpened,
    DisputeResolved,
)
from ledger.domain.reversal import Charged, require_second_person, reverse
from ledger.errors import CorruptHistoryError, LedgerError, NotFoundError, RejectedError

T = 1_772_359_200
SECONDS = [DisputedSeconds(start=T - 3_600, until=T - 3_000)]
OPENED = DisputeOpened(
    dispute_id=1,
    account_id=2,
    host_id=3,
    instance_id=7,
    machine_id=4,
    by="renter",
    reason="not_running",
    seconds=SECONDS,
    claims=[
        DisputeClaim(
            charge="instance-7.gpu.1",
            meter="gpu",
            seconds=SECONDS,
            quantity=600,
            amount=66_666_666,
            fee=9_999_999,
            charged=400_000_000,
            charged_fee=60_000_000,
        )
    ],
    claimed=66_666_666,
    evidence=[],
    statement=None,
    statement_hash=None,
    as_of=10,
    answer_due_at=T + HOST_ANSWER_SECONDS,
    cause=None,
    policy_version=1,
    actor="account-2",
    effective_at=T - 3_600,
    opened_at=T,
)
BY = Authority("account-1", 1, 11)


class Story:
    """A dispute and what is done to it, one wish after another."""

    def __init__(self, *given: DisputeFact) -> None:
        """Begin with facts that happened."""
        self.state: Dispute = fold([OPENED, *given])

    def do(self, command: DisputeCommand, at: int = T + 1) -> Sequence[DisputeFact]:
        """Carry out a wish and fold what it caused."""
        new = decide(self.state, command, BY, at)
        for fact in new:
            self.state = evolve(self.state, fact)
        return new


def refusal(story: Story, command: DisputeCommand, at: int = T + 1) -> str:
    """The code with which a wish is refused; nothing may have changed."""
    before = story.state
    with pytest.raises(LedgerError) as refused:
        story.do(command, at)
    assert story.state == before
    return refused.value.code


def upheld(amount: int | None = None) -> Resolve:
    """The wish to uphold, all of it unless an amount says less."""
    return Resolve("upheld", amount, "admin", 66_666_666)


REJECTED = Resolve("rejected", None, "admin", 66_666_666)


# --- silence -------------------------------------------------------------------------------------


def test_silence_of_the_host_upholds_at_72_hours_and_not_a_second_before() -> None:
    """A host that says nothing for 72 hours loses; one second earlier nothing is decided."""
    story = Story()
    limit = 66_666_666
    assert story.do(LetPass(limit), T + HOST_ANSWER_SECONDS - 1) == []
    (resolved,) = story.do(LetPass(limit), T + HOST_ANSWER_SECONDS)
    assert isinstance(resolved, DisputeResolved)
    assert (resolved.outcome, resolved.amount) == ("upheld", limit)
    assert resolved.rule_id == "host_silence"
    assert story.do(LetPass(limit), T + HOST_ANSWER_SECONDS + 1) == []


def test_an_answer_in_the_72nd_hour_counts_and_one_after_it_does_not() -> None:
    """The last second in time is the one before the deadline."""
    assert Story().do(Answer("host"), T + HOST_ANSWER_SECONDS - 1)
    assert refusal(Story(), Answer("host"), T + HOST_ANSWER_SECONDS) == "dispute_closed"


def test_an_answered_dispute_waits_for_a_decision() -> None:
    """Once the host explained itself, time alone decides nothing."""
    story = Story()
    story.do(Answer("host"))
    assert story.do(LetPass(1), T + 365 * 86_400) == []


def test_a_question_left_unanswered_for_seven_days_expires_the_dispute() -> None:
    """The renter's silence has the effect of a rejection: nothing goes back."""
    story = Story()
    story.do(Answer("host"))
    story.do(Question(), T + 10)
    assert story.do(LetPass(1), T + 10 + RENTER_ANSWER_SECONDS - 1) == []
    (resolved,) = story.do(LetPass(1), T + 10 + RENTER_ANSWER_SECONDS)
    assert isinstance(resolved, DisputeResolved)
    assert (resolved.outcome, resolved.amount) == ("expired", 0)


def test_of_two_silences_the_earlier_deadline_decides() -> None:
    """A host that is silent loses, although the renter too left a question unanswered."""
    story = Story()
    story.do(Question(), T)
    (resolved,) = story.do(LetPass(5), T + RENTER_ANSWER_SECONDS)
    assert isinstance(resolved, DisputeResolved)
    assert (resolved.outcome, resolved.amount) == ("upheld", 5)


def test_an_answered_question_stops_the_clock() -> None:
    """After its answer the renter cannot lose by time; the host's own deadline still runs."""
    story = Story()
    story.do(Question(), T)
    story.do(Answer("renter"), T + 5)
    assert story.state.question_due_at is None
    assert story.state.host_due_at == T + HOST_ANSWER_SECONDS


def test_what_witnesses_hold_is_upheld_for_what_is_billed_then() -> None:
    """A hold of the platform gives back what its minutes cost at the end, not at the beginning."""
    opened = fold([OPENED])
    platform = evolve(None, _by_platform())
    (resolved,) = decide(platform, LetPass(99_000_000), BY, T + HOST_ANSWER_SECONDS)
    assert isinstance(resolved, DisputeResolved)
    assert (resolved.amount, resolved.rule_id) == (99_000_000, "witness_down")
    assert opened.by == "renter"


def _by_platform() -> DisputeOpened:
    fields = {name: getattr(OPENED, name) for name in OPENED.__struct_fields__}
    return DisputeOpened(**{**fields, "by": "platform"})


# --- people --------------------------------------------------------------------------------------


def test_the_first_explanation_stands() -> None:
    """A host that answers again changes nothing: its evidence was given the first time."""
    story = Story()
    assert story.do(Answer("host", ("ab" * 32,)))
    assert story.do(Answer("host", ("cd" * 32,))) == []


def test_a_renter_answers_only_what_was_asked() -> None:
    """Without a question there is nothing for the renter to answer."""
    assert refusal(Story(), Answer("renter")) == "no_open_question"


def test_uphold_gives_back_all_that_can_go_back() -> None:
    """Without an amount the whole claim goes back, or what is left of its charge."""
    (resolved,) = Story().do(upheld())
    assert isinstance(resolved, DisputeResolved)
    assert resolved.amount == 66_666_666
    (less,) = Story().do(Resolve("upheld", None, "admin", 10))
    assert isinstance(less, DisputeResolved)
    assert less.amount == 10


@pytest.mark.parametrize(
    ("command", "code"),
    [
        (Resolve("partial", None, "admin", 100), "invalid_amount"),
        (Resolve("partial", 0, "admin", 100), "invalid_amount"),
        (Resolve("partial", 101, "admin", 100), "over_reversal"),
        (Resolve("upheld", 101, "admin", 100), "over_reversal"),
        (Resolve("rejected", 1, "admin", 100), "invalid_amount"),
        (Resolve("expired", 1, "admin", 100), "invalid_amount"),
    ],
)
def test_an_amount_fits_its_outcome(command: Resolve, code: str) -> None:
    """A partial outcome names an amount within the claim; a rejected one gives nothing back."""
    assert refusal(Story(), command) == code


def test_the_same_decision_again_changes_nothing_and_another_is_refused() -> None:
    """LEDG-01: the end is final; repeating it is harmless, contradicting it is an error."""
    story = Story()
    story.do(upheld())
    assert story.do(upheld()) == []
    assert story.do(upheld(66_666_666)) == []
    assert refusal(story, upheld(1)) == "dispute_closed"
    for command in (REJECTED, Withdraw(), Answer("host"), Answer("renter"), Question()):
        assert refusal(story, command) == "dispute_closed"


def test_withdrawing_is_final_too() -> None:
    """A dispute that was withdrawn cannot be upheld later, and withdrawing again is no error."""
    story = Story()
    assert story.do(Withdraw())
    assert story.do(Withdraw()) == []
    assert refusal(story, upheld()) == "dispute_closed"


def test_a_history_begins_with_an_opening() -> None:
    """A dispute whose stream begins with anything else stops the reader."""
    answered = Story().do(Answer("host"))
    with pytest.raises(CorruptHistoryError):
        fold(answered)


# --- arithmetic ----------------------------------------------------------------------------------


def test_ten_minutes_of_the_worked_example() -> None:
    """§15: c = 400 000 000, f = 60 000 000; renter +66 666 666, platform and host their shares."""
    back = reverse(Charged(400_000_000, 60_000_000), 66_666_666)
    assert (back.amount, back.fee, back.host) == (66_666_666, 9_999_999, 56_666_667)


def test_a_whole_charge_goes_back_with_exactly_its_fee() -> None:
    """In six parts of the worked example the fee returned is all of it, to the nano."""
    charge = Charged(400_000_000, 60_000_000)
    parts = [66_666_666] * 5 + [66_666_670]
    for part in parts:
        back = reverse(charge, part)
        charge = charge._replace(
            reversed=charge.reversed + part, fee_reversed=charge.fee_reversed + back.fee
        )
    assert (charge.remaining, charge.fee_reversed) == (0, 60_000_000)


@pytest.mark.parametrize(
    ("amount", "code"),
    [(0, "invalid_amount"), (-1, "invalid_amount"), (334_000_000, "over_reversal")],
)
def test_never_less_than_a_nano_or_more_than_is_left(amount: int, code: str) -> None:
    """LEDG-01: all reversals together are at most the charge."""
    with pytest.raises(RejectedError) as refused:
        reverse(Charged(400_000_000, 60_000_000, 66_666_666, 9_999_999), amount)
    assert refused.value.code == code


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_one_person_corrects_up_to_depth_three(depth: int) -> None:
    """A correction of a correction of a correction needs nobody else."""
    require_second_person(depth, "account-1", None)


@pytest.mark.parametrize("approved_by", [None, "account-1"])
def test_beyond_depth_three_it_takes_two(approved_by: str | None) -> None:
    """Nobody is their own second person."""
    with pytest.raises(RejectedError) as refused:
        require_second_person(4, "account-1", approved_by)
    assert refused.value.code == "second_approval_required"
    require_second_person(4, "account-1", "account-2")


def test_the_sixth_rejected_dispute_restricts() -> None:
    """More than five in 30 days: five are still free."""
    assert not is_restricted(5)
    assert is_restricted(6)


def test_a_reason_says_which_meters_are_in_question() -> None:
    """A container that did not run still had its disk: storage is not disputed with it."""
    assert meters_of("not_running") == ("gpu",)
    assert set(meters_of("overbilled_bytes")) == {"up", "down"}
    assert "storage" in meters_of("host_offline")


# --- names ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [Metered(7, "gpu", 2), Metered(1, "reserved_idle", 1)])
def test_the_name_of_a_metered_charge_is_read_back(name: Metered) -> None:
    """Writing a charge's name and reading it gives the same charge."""
    assert parse_charge(str(name)) == name


def test_a_replacement_is_a_charge_of_its_own() -> None:
    """`correction-3` names what the third correction posted."""
    assert parse_charge("correction-3") == Replacement(3)


@pytest.mark.parametrize(
    "text", ["", "instance-0.gpu.1", "instance-7.vram.1", "instance-7.gpu", "correction-", "x" * 99]
)
def test_what_no_charge_is_called_is_not_found(text: str) -> None:
    """A name that no charge can have is answered like a charge that is not there."""
    with pytest.raises(NotFoundError) as missing:
        parse_charge(text)
    assert missing.value.code == "no_such_charge"
