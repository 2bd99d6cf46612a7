"""Checks: issued, handed out, answered, judged; starts, incidents, maintenance, disputes."""

from __future__ import annotations

from typing import Any

import pytest

from ledger.domain import challenge
from ledger.domain.checks import ANSWER_SECONDS, RENTERS_FAULT
from ledger.domain.events import CheckIssued, CheckJudged, CheckReclassified, GpuHealthChanged
from ledger.domain.ids import machine_stream
from ledger.domain.reliability import SLOT_SECONDS, slot_of, slot_start
from ledger.domain.reliability import rating as naive_rating
from ledger.domain.usage import HealthEvent, Observation
from ledger.services import (
    check_timer,
    checks,
    cleanup_expired,
    incidents,
    listings,
    maintenance,
    policies,
    rentals,
)
from ledger.services.policies import trust as trust_policy
from ledger.services.questions import trust
from ledger.services.usage import SignedReport
from tests.support.market import DOLLAR, START, Market
from tests.support.suite import proven
from tests.support.trust import (
    answer,
    checks_of,
    inventory_of,
    issue,
    judged,
    rating,
    report,
    standing,
)

DAY = 86_400


def last(market: Market, machine: int) -> CheckJudged:
    """The last judged check of a machine."""
    found = [one for one in market.facts(machine_stream(machine)) if isinstance(one, CheckJudged)]
    return found[-1]


def handed_out(market: Market, machine: int) -> list[dict[str, Any]]:
    """What the acknowledgement of the machine's next report asks."""
    chain = market.chains[machine]
    one = chain.seal(max(market.clock(), chain.sealed_until), 0)
    signed = SignedReport(one.key_id, one.signature, one.body)
    answered = market.usage.submit([signed]).result(timeout=30)
    return answered.acks[0].checks


# --- issuing --------------------------------------------------------------------------------------


def test_every_machine_that_was_heard_gets_one_check_a_slot(market: Market) -> None:
    """At a second of the slot, once however often the timer calls, and never before it reported."""
    heard, silent = market.machine(), market.machine()
    report(market, heard)
    for second in (0, 1, 2, SLOT_SECONDS, SLOT_SECONDS + 1):
        market.clock.move_to(START + second)
        check_timer.keep_slots(market.ledger)
    issued = [one for one in market.facts() if isinstance(one, CheckIssued)]
    assert [one.machine_id for one in issued] == [heard, heard]
    assert [one.slot for one in issued] == [slot_of(START), slot_of(START) + 1]
    for one in issued:
        assert slot_of(one.at) == one.slot
        assert one.issued_at <= one.at < slot_start(one.slot + 1)
        assert one.deadline == one.at + ANSWER_SECONDS[one.kind]
    assert len({one.nonce for one in issued}) == len(issued)
    assert silent not in {one.machine_id for one in issued}


def test_policies_issue_no_check(market: Market) -> None:
    """`run_due` alone never asks a machine anything: a simulated clock jumps over answers."""
    machine = market.machine()
    report(market, machine)
    for _ in range(3):
        market.clock.move_to(market.clock() + SLOT_SECONDS)
        policies.run_due(market.ledger)
    assert not [one for one in market.facts() if isinstance(one, CheckIssued)]


def test_a_rented_machine_is_only_pinged(market: Market) -> None:
    """A challenge fills the memory of all GPUs and waits until nobody rents one."""
    machine, alice = market.machine(), market.account("alice", 100 * DOLLAR)
    report(market, machine)
    market.rent(alice, machine)
    for number in range(40):
        market.clock.move_to(START + SLOT_SECONDS * (number + 1))
        with market.ledger.unit() as unit:
            check_timer.issue_to(unit, [machine])
    assert {one.kind for one in market.facts() if isinstance(one, CheckIssued)} == {"ping"}


def test_a_machine_that_is_gone_for_a_month_is_asked_no_more(market: Market) -> None:
    """Of a machine that nobody hears and nobody rents there is nothing left to learn."""
    machine = market.machine()
    report(market, machine)
    market.clock.move_to(START + DAY)
    policies.run_due(market.ledger)
    check_timer.keep_slots(market.ledger)
    asked = len([one for one in market.facts() if isinstance(one, CheckIssued)])
    assert asked == 1
    market.clock.move_to(START + 32 * DAY)
    check_timer.keep_slots(market.ledger)
    assert len([one for one in market.facts() if isinstance(one, CheckIssued)]) == asked


# --- handing out ----------------------------------------------------------------------------------


def test_a_check_is_told_when_its_second_has_come_and_until_it_is_answered(market: Market) -> None:
    """Neither early nor to another machine; the acknowledgement repeats it until the answer."""
    machine, other = market.machine(), market.machine()
    with market.ledger.unit() as unit:
        stream, fact = checks.issued(machine, "ping", START + 100, unit.now)
        unit.append(stream, fact)
    assert isinstance(fact, CheckIssued)
    asked = {
        "slot": fact.slot,
        "at": fact.at,
        "kind": "ping",
        "nonce": fact.nonce,
        "deadline": fact.deadline,
    }
    assert handed_out(market, machine) == []
    market.clock.move_to(START + 100)
    assert handed_out(market, other) == []
    assert handed_out(market, machine) == [asked]
    market.clock.move_to(START + 101)
    assert handed_out(market, machine) == [asked]
    report(market, machine, answers=[answer(fact)])
    market.clock.move_to(START + 102)
    assert handed_out(market, machine) == []


# --- judging --------------------------------------------------------------------------------------


def test_an_answer_with_its_nonce_passes(market: Market) -> None:
    """The check is judged in the transaction of the report that answers it."""
    machine = market.machine()
    check = issue(market, machine)
    market.clock.move_to(check.deadline)
    report(market, machine, answers=[answer(check, gpus=1)])
    found = last(market, machine)
    assert (found.slot, found.kind, found.at) == (check.slot, "ping", check.at)
    assert (found.result, found.reason, found.judged_at) == ("passed", "answered", check.deadline)
    report(market, machine, answers=[answer(check, "failed")])
    assert last(market, machine) == found


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        pytest.param({"nonce": "0" * 32}, "wrong_nonce", id="a-nonce-of-its-own"),
        pytest.param({"result": "failed"}, "reported_failure", id="its-own-word"),
        pytest.param({"result": "inconclusive"}, "driver_does_not_answer", id="no-driver"),
        pytest.param({"result": "fine"}, "bad_answer", id="no-word-of-the-contract"),
        pytest.param({"gpus": 0}, "gpu_missing", id="a-gpu-less"),
    ],
)
def test_a_bad_answer_fails(market: Market, said: dict[str, Any], reason: str) -> None:
    """What the agent says is one input; the platform judges."""
    machine = market.machine()
    check = issue(market, machine)
    report(market, machine, answers=[answer(check, **said)])
    assert (last(market, machine).result, last(market, machine).reason) == ("failed", reason)
    assert last(market, machine).severity == 1


def test_an_answer_to_no_open_check_changes_nothing(market: Market) -> None:
    """Unknown slots, checks of others and guesses before the second are passed over."""
    machine, other = market.machine(), market.machine()
    theirs = issue(market, other)
    with market.ledger.unit() as unit:
        stream, coming = checks.issued(machine, "ping", START + 200, unit.now)
        unit.append(stream, coming)
    assert isinstance(coming, CheckIssued)
    report(market, machine, answers=[answer(theirs), answer(coming)])
    assert not [one for one in market.facts() if isinstance(one, CheckJudged)]


@pytest.mark.parametrize(("rented", "severity"), [(True, 3), (False, 1)])
def test_no_answer_by_the_deadline_fails(market: Market, rented: bool, severity: int) -> None:
    """Unreachable while somebody rents it is the worst; at the deadline itself it may answer."""
    machine, alice = market.machine(), market.account("alice", 100 * DOLLAR)
    if rented:
        market.rent(alice, machine)
    check = issue(market, machine)
    market.clock.move_to(check.deadline)
    policies.run_due(market.ledger)
    assert not [one for one in market.facts() if isinstance(one, CheckJudged)]
    with market.ledger.reading() as connection:
        assert policies.next_due(connection, market.clock()) == check.deadline + 1
    market.clock.move_to(check.deadline + 1)
    policies.run_due(market.ledger)
    found = last(market, machine)
    assert (found.result, found.severity, found.reason) == ("failed", severity, "no_answer")
    report(market, machine, answers=[answer(check)])
    assert last(market, machine) == found


def test_an_answer_that_comes_too_late_is_none(market: Market) -> None:
    """Even before the policy has looked, an answer after the deadline does not pass."""
    machine = market.machine()
    check = issue(market, machine)
    market.clock.move_to(check.deadline + 1)
    report(market, machine, answers=[answer(check)])
    assert (last(market, machine).result, last(market, machine).reason) == ("failed", "no_answer")


def test_a_removed_machine_is_judged_no_more(market: Market) -> None:
    """Its open check stays open for ever and keeps nobody busy."""
    machine = market.machine()
    issue(market, machine)
    with market.ledger.unit() as unit:
        listings.unlist_machine(unit, machine)
        cleanup_expired.remove_machine(unit, machine)
    with market.ledger.reading() as connection:
        assert trust_policy.next_due(connection, market.clock()) is None
    market.clock.move_to(START + 1_000)
    head = market.head()
    trust_policy.judge_checks(market.ledger)
    assert market.head() == head


def test_its_host_renting_it_makes_silence_no_worse(market: Market) -> None:
    """Only somebody else than the host counts as a renter."""
    machine = market.machine(host="bob")
    market.rent(market.account("bob"), machine)
    issue(market, machine)
    market.clock.move_to(START + 1_000)
    policies.run_due(market.ledger)
    assert last(market, machine).severity == 1


# --- the platform's own faults --------------------------------------------------------------------


def test_when_the_timer_stood_still_nothing_is_concluded(market: Market) -> None:
    """A platform that was down for ten minutes blames no machine for them."""
    machine = market.machine()
    report(market, machine)
    check_timer.keep_slots(market.ledger)
    (check,) = [one for one in market.facts() if isinstance(one, CheckIssued)]
    market.clock.move_to(check.deadline + 600)
    check_timer.keep_slots(market.ledger)
    policies.run_due(market.ledger)
    found = last(market, machine)
    assert (found.slot, found.result) == (check.slot, "inconclusive")
    assert found.reason == "platform_fault"
    assert rating(market, machine).n == 0


def test_when_all_hosts_fall_silent_at_once_nothing_is_concluded(market: Market) -> None:
    """Three hosts that were heard a minute ago do not fail in one moment: the platform did."""
    machines = [market.machine(host=name) for name in ("bob", "eve", "joe")]
    for machine in machines:
        report(market, machine)
    market.clock.move_to(START + 60)
    issued = [issue(market, machine) for machine in machines]
    market.clock.move_to(issued[0].deadline + 1)
    policies.run_due(market.ledger)
    assert {last(market, machine).result for machine in machines} == {"inconclusive"}


def test_one_that_is_silent_while_others_are_heard_fails(market: Market) -> None:
    """As soon as anybody was heard, a missing answer is the machine's."""
    machines = [market.machine(host=name) for name in ("bob", "eve", "joe")]
    for machine in machines:
        report(market, machine)
    market.clock.move_to(START + 60)
    issued = [issue(market, machine) for machine in machines]
    market.clock.move_to(START + 100)
    report(market, machines[0], answers=[answer(issued[0])])
    market.clock.move_to(issued[0].deadline + 1)
    policies.run_due(market.ledger)
    assert [last(market, one).result for one in machines] == ["passed", "failed", "failed"]


# --- starts and incidents -------------------------------------------------------------------------


def test_a_start_is_a_check_and_a_second_boot_is_none(market: Market) -> None:
    """The first confirmation of an assignment passes; the same one after a reboot adds nothing."""
    machine, alice = market.machine(), market.account("alice", 100 * DOLLAR)
    instance = market.rent(alice, machine)
    market.confirm(machine, instance)
    found = last(market, machine)
    assert (found.kind, found.result, found.instance_id) == ("start", "passed", instance)
    market.clock.move_to(START + 400)
    market.chains[machine].boot_id = "boot-2"
    market.confirm(machine, instance)
    assert market.status(instance) == "running"
    assert last(market, machine) == found


@pytest.mark.parametrize(
    ("reason", "result", "severity"),
    [
        (None, "failed", 2),
        ("out_of_disk", "failed", 2),
        ("It is not MY fault\x00", "failed", 2),
        *((reason, "inconclusive", 1) for reason in sorted(RENTERS_FAULT)),
    ],
)
def test_a_failed_launch_fails_unless_the_renter_is_to_blame(
    market: Market, reason: str | None, result: str, severity: int
) -> None:
    """Severity 2; a bad image is the renter's, and the host's word for it is no pass."""
    machine, alice = market.machine(), market.account("alice", 100 * DOLLAR)
    instance = market.rent(alice, machine)
    seen = Observation(
        instance=instance, assignment=1, state="launch_failed", at=START, reason=reason
    )
    report(market, machine, observed=[seen])
    found = last(market, machine)
    assert (found.kind, found.result, found.severity) == ("start", result, severity)
    assert "\x00" not in found.reason


def test_a_launch_that_nobody_confirms_fails(market: Market) -> None:
    """After half an hour the start has failed by the host's fault."""
    machine, alice = market.machine(), market.account("alice", 100 * DOLLAR)
    market.rent(alice, machine)
    market.clock.move_to(START + 1_800)
    policies.run_due(market.ledger)
    found = last(market, machine)
    assert (found.kind, found.result, found.severity) == ("start", "failed", 2)


def test_renting_from_oneself_proves_nothing(market: Market) -> None:
    """Neither a start nor a failure of one's own instance is a check (§18, self-dealing)."""
    machine = market.machine(host="bob")
    instance = market.rent(market.account("bob"), machine)
    market.confirm(machine, instance)
    other = market.machine(host="bob")
    market.rent(market.account("bob"), other)
    market.clock.move_to(START + 1_800)
    policies.run_due(market.ledger)
    assert not [one for one in market.facts() if isinstance(one, CheckJudged)]


def test_a_lost_disk_fails_the_slot(market: Market) -> None:
    """A host that loses a renter's disk fails, beside everything else that follows."""
    machine, alice = market.machine(), market.account("alice", 100 * DOLLAR)
    instance = market.rent(alice, machine)
    market.confirm(machine, instance)
    market.clock.move_to(START + 10)
    seen = Observation(instance=instance, assignment=1, state="disk_gone", at=START + 10)
    report(market, machine, observed=[seen])
    found = [one for one in market.facts() if isinstance(one, CheckJudged)]
    assert [(one.kind, one.result) for one in found] == [
        ("start", "passed"),
        ("incident", "failed"),
    ]
    shown = rating(market, machine, START + SLOT_SECONDS)
    assert (shown.passed, shown.n) == (0, 1)


def test_at_most_one_result_counts_per_slot_the_worst(market: Market) -> None:
    """A pass, a mild and a severe failure of one slot are one severe failure."""
    machine, alice = market.machine(), market.account("alice", 100 * DOLLAR)
    check = issue(market, machine)
    report(market, machine, answers=[answer(check)])
    assert (rating(market, machine, START + 1).passed, rating(market, machine, START + 1).n) == (
        1,
        1,
    )
    market.clock.move_to(START + 5)
    with market.ledger.unit() as unit:
        incidents.fail_slot(unit, machine, "no_network")
    market.clock.move_to(START + 9)
    instance = market.rent(alice, machine)
    seen = Observation(instance=instance, assignment=1, state="launch_failed", at=START + 9)
    report(market, machine, observed=[seen])
    market.clock.move_to(START + 600)
    shown = rating(market, machine)
    assert (shown.passed, shown.n) == (0, 1)
    assert shown.expected_reliability == pytest.approx(6 / (10 + 2), abs=1e-3)
    assert rating(market, machine, START + 5).passed == 1, "as it was before the failure"
    assert shown.lower_bound == naive_rating(checks_of(market, machine), START + 600).lower_bound


# --- maintenance and disputes ---------------------------------------------------------------------


def test_a_slot_in_approved_maintenance_is_excluded(market: Market) -> None:
    """Announced a week ahead, the window costs nothing; before and after it failures count."""
    machine = market.machine()
    begin = slot_start(slot_of(START + 8 * DAY))
    with market.ledger.unit() as unit:
        maintenance.schedule(unit, machine, begin, 3_600, "power")
    market.clock.move_to(begin - SLOT_SECONDS)
    judged(market, machine, ["failed"] * 14)
    excluded = [one.excluded for one in market.facts() if isinstance(one, CheckJudged)]
    assert excluded == [False, *[True] * 12, False]
    assert rating(market, machine).n == 2


def test_maintenance_at_short_notice_excludes_nothing(market: Market) -> None:
    """Less than seven days ahead, a window is announced and not approved."""
    machine = market.machine()
    with market.ledger.unit() as unit:
        maintenance.schedule(unit, machine, START + 600, 3_600, "power")
    market.clock.move_to(START + 600)
    judged(market, machine, ["failed"] * 3)
    assert rating(market, machine).n == 3


def test_an_upheld_dispute_turns_its_slots_to_failed(market: Market) -> None:
    """Passed slots in the disputed time fail, the first result stays on record, once."""
    machine = market.machine()
    judged(market, machine, ["passed"] * 20)
    judged(market, machine, ["failed"])
    start = START + 3 * SLOT_SECONDS
    with market.ledger.unit() as unit:
        until = START + 6 * SLOT_SECONDS
        assert checks.turn_to_failed(unit, machine, start, until, "dispute_upheld", 7) == 3
        assert checks.turn_to_failed(unit, machine, start, until, "dispute_upheld", 7) == 0
        far = START + 100 * SLOT_SECONDS
        assert checks.turn_to_failed(unit, machine, START + 20 * SLOT_SECONDS, far, "again") == 0
    turned = [one for one in market.facts() if isinstance(one, CheckReclassified)]
    assert [one.slot - slot_of(START) for one in turned] == [3, 4, 5]
    assert {one.dispute_id for one in turned} == {7}
    shown = rating(market, machine)
    assert (shown.passed, shown.n) == (17, 21)
    assert standing(market, machine)["checks"] == 21
    with market.ledger.reading() as connection:
        listed = trust.checks(connection, machine, since=start, limit=2)
    assert [(one.result, one.judged_as) for one in listed] == [("failed", "passed")] * 2
    assert market.rebuild().equal


# --- ratings --------------------------------------------------------------------------------------


def test_the_rating_of_a_past_second_is_what_it_was(market: Market) -> None:
    """36 slots later the rating of every second so far is still the same."""
    machine = market.machine()
    shown = []
    for number in range(36):
        judged(market, machine, ["failed" if number % 7 == 3 else "passed"])
        second = market.clock() - 1
        shown.append((second, rating(market, machine, second)))
    assert [rating(market, machine, second) for second, _ in shown] == [one for _, one in shown]
    assert shown[10][1].reliability is None
    assert shown[11][1].reliability == 10 / 12
    assert rating(market, machine, START - 1).n == 0
    assert rating(market, machine, START - 1).expected_reliability == 0.6


def test_what_is_older_than_thirty_days_falls_out(market: Market) -> None:
    """The window is [now − 30 d, now): its first second counts, its last does not."""
    machine = market.machine()
    judged(market, machine, ["passed"])
    assert rating(market, machine, START).n == 0
    assert rating(market, machine, START + 1).n == 1
    assert rating(market, machine, START + 30 * DAY).n == 1
    assert rating(market, machine, START + 30 * DAY + 1).n == 0
    weight = 2.0**-10
    ignored = START + 140 * DAY
    assert rating(market, machine, ignored).expected_reliability == (6 + weight) / (10 + weight)
    assert rating(market, machine, ignored + 1).expected_reliability == 0.6


def test_the_offers_show_the_rating(market: Market) -> None:
    """Reliability, number of checks and lower bound follow in the rows of the search."""
    machine = market.machine()
    judged(market, machine, ["passed"] * 59 + ["failed"])
    row = market.connection.execute(
        "SELECT reliability, checks, lower_bound FROM open_offers WHERE machine_id = %s", [machine]
    ).fetchone()
    shown = rating(market, machine)
    assert row == (59 / 60, 60, shown.lower_bound)


# --- GPUs -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "event",
    [
        HealthEvent(at=START + 10, kind="xid", gpu_uuid="GPU-1-1", code=79),
        HealthEvent(at=START + 10, kind="gpu_missing", gpu_uuid="GPU-1-1"),
    ],
    ids=["xid-79", "gpu-missing"],
)
def test_a_fatal_fault_takes_the_gpu_and_stops_its_holder(
    market: Market, event: HealthEvent
) -> None:
    """The holder stops by the host's fault, at the fault's second; the other one runs on."""
    machine, alice = market.machine(gpus=2), market.account("alice", 100 * DOLLAR)
    kept, hit = (market.rent(alice, machine, gpus=1) for _ in range(2))
    for instance in (kept, hit):
        market.confirm(machine, instance)
    market.run(machine, [kept, hit], 10)
    market.clock.move_to(START + 15)
    report(market, machine, health=[event, event])
    assert (market.status(kept), market.status(hit)) == ("running", "stopped")
    row = market.connection.execute(
        "SELECT reason, stopped_at FROM instances WHERE instance_id = %s", [hit]
    ).fetchone()
    assert row == ("host_fault", START + 10)
    assert (last(market, machine).kind, last(market, machine).result) == ("incident", "failed")
    with pytest.raises(Exception, match="no 1 free GPUs"):
        market.rent(alice, machine, gpus=1)
    assert market.rebuild().equal


def test_an_event_that_names_no_gpu_is_about_all_of_them(market: Market) -> None:
    """A fatal XID without a UUID makes every GPU of the machine unhealthy; a renter's, none."""
    machine = market.machine(gpus=2)
    report(market, machine, health=[HealthEvent(at=START, kind="xid", code=31)])
    assert not [one for one in market.facts() if isinstance(one, GpuHealthChanged)]
    report(market, machine, health=[HealthEvent(at=START, kind="xid", code=48)])
    changed = [one for one in market.facts() if isinstance(one, GpuHealthChanged)]
    assert [(one.gpu_uuid, one.healthy) for one in changed] == [
        ("GPU-1-0", False),
        ("GPU-1-1", False),
    ]


@pytest.mark.parametrize(("code", "counts"), [(63, 1), (94, 1), (999, 0)])
def test_a_degraded_gpu_is_kept_by_its_holder_and_rented_to_nobody_else(
    market: Market, code: int, counts: int
) -> None:
    """Until a challenge passes; a suspect one does not count against the host."""
    machine, alice = market.machine(), market.account("alice", 100 * DOLLAR)
    instance = market.rent(alice, machine)
    market.confirm(machine, instance)
    market.clock.move_to(START + 400)
    report(market, machine, health=[HealthEvent(at=START + 400, kind="xid", code=code)])
    assert market.status(instance) == "running"
    failed = [one for one in market.facts() if getattr(one, "result", "") == "failed"]
    assert len(failed) == counts
    with market.ledger.unit() as unit:
        rentals.stop(unit, instance)
        rentals.start(unit, instance)
    assert market.status(instance) == "scheduling"
    row = market.connection.execute(
        "SELECT rentable FROM open_offers WHERE machine_id = %s", [machine]
    ).fetchone()
    assert row == (False,)
    check = issue(market, machine, "challenge")
    report(market, machine, answers=[answer(check, **proven(check.nonce))])
    assert last(market, machine).result == "passed"
    assert market.status(instance) == "loading"
    assert market.rebuild().equal


def test_a_challenge_brings_a_lost_gpu_back(market: Market) -> None:
    """Unhealthy until all GPUs computed at once; a challenge on fewer does not pass."""
    machine, alice = market.machine(gpus=2), market.account("alice", 100 * DOLLAR)
    report(market, machine, health=[HealthEvent(at=START, kind="xid", code=79)])
    first = issue(market, machine, "challenge")
    report(market, machine, answers=[answer(first, **proven(first.nonce))])
    assert last(market, machine).reason == "gpu_missing"
    with pytest.raises(Exception, match="no 2 free GPUs"):
        market.rent(alice, machine)
    market.clock.move_to(START + 300)
    second = issue(market, machine, "challenge")
    report(market, machine, answers=[answer(second, **proven(second.nonce, gpus=2))])
    assert market.status(market.rent(alice, machine)) == "loading"


def test_a_proof_is_found_out_before_the_log_is_locked(
    market: Market, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And only for a check that is open: nobody else makes the server compute."""
    machine = market.machine()
    check = issue(market, machine, "challenge")
    held: list[bool] = []

    def computed(*arguments: Any) -> list[bytes]:
        row = market.connection.execute(
            "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND granted"
        ).fetchone()
        assert row is not None
        held.append(row[0] > 0)
        return compute(*arguments)

    compute = challenge._computed
    monkeypatch.setattr(challenge, "_computed", computed)
    said = proven(check.nonce)
    report(market, machine, answers=[answer(check, **said)])
    assert (held, last(market, machine).result) == ([False], "passed")
    market.clock.move_to(START + 2)
    report(market, machine, answers=[answer(check, **{**said, "root.0": "00" * 32})])
    assert held == [False]


def test_an_idle_machine_with_a_bad_gpu_is_challenged(market: Market) -> None:
    """Every slot, until it passes: nothing else brings the GPU back."""
    machine = market.machine()
    report(market, machine, health=[HealthEvent(at=START, kind="xid", code=63)])
    for number in range(3):
        market.clock.move_to(START + SLOT_SECONDS * (number + 1))
        with market.ledger.unit() as unit:
            check_timer.issue_to(unit, [machine])
    assert [one.kind for one in market.facts() if isinstance(one, CheckIssued)] == ["challenge"] * 3


# --- replay ---------------------------------------------------------------------------------------


def test_replay_gives_identical_tables(market: Market) -> None:
    """Everything that checks touch is rebuilt from the log to the same bytes."""
    machine, alice = market.machine(gpus=2), market.account("alice", 100 * DOLLAR)
    report(market, machine, inventory=inventory_of(machine, 2))
    instance = market.rent(alice, machine)
    market.confirm(machine, instance)
    check_timer.keep_slots(market.ledger)
    judged(market, machine, ["passed", "failed", "inconclusive", "passed"])
    with market.ledger.unit() as unit:
        checks.turn_to_failed(unit, machine, START, START + 400, "dispute_upheld", 1)
    market.clock.move_to(START + 40 * DAY)
    policies.run_due(market.ledger)
    judged(market, machine, ["passed"] * 3)
    result = market.rebuild()
    assert result.equal, [one for one in result.tables if not one.equal]
