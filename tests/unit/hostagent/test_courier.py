from __future__ import annotations

import httpx
import pytest

from adapters.hostagent.courier import Alarm, Courier, MemorySpool
from adapters.hostagent.reports import SealedReport
from ledger.domain.acknowledgement import ReportAnswer, UsageAnswer
from ledger.domain.usage import UsageReport, body_hash, decode_report
from tests.unit.hostagent.server import EPOCH, FakeLedger, answered, chain, problem, seal


class Office:
    """A courier with everything around it, on a clock that only counts."""

    def __init__(self, reports: list[SealedReport]) -> None:
        """Put *reports* into the spool."""
        self.server = FakeLedger()
        self.spool = MemorySpool()
        self.slept: list[float] = []
        self.alarms: list[Alarm] = []
        self.answers: list[UsageAnswer] = []
        self.stand_ins: dict[int, SealedReport] = {}
        for one in reports:
            self.spool.put(one)
        self.courier = Courier(
            self.server.client(),
            self.spool,
            on_answer=self.answers.append,
            on_alarm=self.alarms.append,
            stand_in=lambda _, seq: self.stand_ins.get(seq),
            sleep=self.slept.append,
            uniform=lambda _, high: high,
        )

    def stored(self, machine: int = 4001, epoch: str = EPOCH) -> list[int]:
        """The `seq`s that the server holds."""
        return [decode_report(body).seq for body in self.server.stored.get((machine, epoch), [])]

    def judge_once(self, seq: int, status: str, code: str | None = None) -> None:
        """Let the server answer *status* the first time it sees *seq*."""
        waiting = [seq]

        def judge(report: UsageReport) -> ReportAnswer | None:
            if report.seq not in waiting:
                return None
            waiting.remove(seq)
            return answered(report, status, code=code)

        self.server.judge = judge


def test_reports_leave_oldest_first_and_are_forgotten() -> None:
    """What is acknowledged is gone from the spool, in the order in which it was sealed."""
    office = Office(seal(chain(), 250))
    assert office.courier.drain()
    assert office.stored() == list(range(1, 251))
    assert (len(office.spool), office.slept, len(office.answers)) == (0, [], 3)


def test_nothing_waits_means_nothing_is_sent() -> None:
    """An empty spool makes no request."""
    office = Office([])
    assert office.courier.step() is None
    assert office.server.requests == []


def test_a_lost_answer_is_harmless() -> None:
    """Reports that were stored and sent again are taken for accepted."""
    office = Office(seal(chain(), 2))
    stored = office.spool.oldest(2, ())
    office.server.client().post(stored)
    assert office.courier.drain()
    assert office.stored() == [1, 2]
    assert [one.status for one in office.answers[0].reports] == ["duplicate", "duplicate"]


@pytest.mark.parametrize(
    "fault",
    [
        httpx.ConnectError("down"),
        httpx.ReadTimeout("slow"),
        problem(500, "oops"),
        problem(429, "x"),
    ],
)
def test_trouble_is_waited_out_with_growing_delays(fault: httpx.Response | Exception) -> None:
    """Each failure in a row doubles the ceiling of the delay; success starts anew."""
    office = Office(seal(chain(), 1))
    office.server.faults = [fault, fault, fault]
    assert office.courier.drain()
    assert office.slept == [1.0, 2.0, 4.0]
    assert (office.courier.attempt, office.stored()) == (0, [1])


def test_a_larger_retry_after_is_kept_to() -> None:
    """A wait that the server names is not cut short by the jitter."""
    office = Office(seal(chain(), 1))
    office.server.faults = [problem(503, "unavailable", retry_after="30")]
    assert office.courier.drain()
    assert office.slept == [30.0]


def test_giving_up_leaves_everything_in_the_spool() -> None:
    """After so many failures in a row a drain ends, and nothing is lost."""
    office = Office(seal(chain(), 2))
    office.server.faults = [problem(503, "unavailable") for _ in range(9)]
    assert not office.courier.drain(give_up_after=3)
    assert (len(office.slept), len(office.spool)) == (2, 2)


def test_a_report_that_is_too_early_is_sent_again_a_second_later() -> None:
    """What the server has not stored because its window is not over goes out once more."""
    office = Office(seal(chain(), 3))
    office.judge_once(2, "too_early")
    assert office.courier.drain()
    assert office.server.requests == [[1, 2, 3], [2, 3]]
    assert (office.slept, office.stored()) == ([1.0], [1, 2, 3])


def test_a_request_that_is_too_early_waits_as_long_as_it_is_told() -> None:
    """Status 425 of a whole request is retried after its Retry-After."""
    office = Office(seal(chain(), 1))
    office.server.faults = [problem(425, "too_early", retry_after="1")]
    assert office.courier.drain()
    assert (office.slept, office.stored()) == ([1.0], [1])


def test_a_rejected_report_becomes_a_dead_letter_and_blocks_nobody() -> None:
    """A report that bills nothing is put aside with its code, and those behind it go on."""
    office = Office(seal(chain(), 3))
    real = office.server._store

    def judge(report: UsageReport) -> ReportAnswer | None:
        if report.seq != 2:
            return None
        real(report, office.spool.oldest(2, ())[1].body)
        return answered(report, "rejected", code="bad_columns")

    office.server.judge = judge
    assert office.courier.drain()
    assert [(one.report.seq, one.code) for one in office.spool.dead_letters] == [(2, "bad_columns")]
    assert (office.stored(), office.alarms) == ([1, 2, 3], [])


def test_a_conflict_is_a_dead_letter_and_an_alarm() -> None:
    """A second body under one seq is kept for people to see; the first stands."""
    office = Office(seal(chain(), 1))
    other = chain()
    other.boot_id = "another"
    office.server.client().post(seal(other, 1))
    assert office.courier.drain()
    assert [one.code for one in office.spool.dead_letters] == ["conflict"]
    assert office.alarms == [Alarm("conflict", 4001, EPOCH, 1, "")]


def test_a_fork_counts_as_received() -> None:
    """A report with the wrong hash before it is put aside, and the stream goes on."""
    reports = chain()
    first = seal(reports, 1)
    reports.prev = "0" * 63 + "1"
    office = Office(first + seal(reports, 2))
    assert office.courier.drain()
    assert [one.report.seq for one in office.spool.dead_letters] == [2]
    assert [alarm.code for alarm in office.alarms] == ["chain_fork"]
    assert office.stored() == [1, 2, 3]


def test_a_gap_is_filled_from_what_the_spool_holds() -> None:
    """When the server expects an earlier report that still waits, the next request begins there."""
    office = Office(seal(chain(), 4))
    office.judge_once(2, "too_early")
    office.courier.step()
    assert [one.status for one in office.answers[0].reports] == [
        "accepted",
        "too_early",
        "sequence_gap",
        "sequence_gap",
    ]
    assert office.courier.drain()
    assert office.server.requests[1] == [2, 3, 4]
    assert office.stored() == [1, 2, 3, 4]


def test_a_lost_report_is_replaced_by_an_empty_one() -> None:
    """A gap that nothing in the spool fills is filled by a signed report of that seq."""
    reports = chain()
    first, second, third = seal(reports, 3)
    office = Office([first, third])
    prev = body_hash(first.body).hex()
    office.stand_ins[2] = reports.stand_in(2, prev, third.start)
    assert office.courier.drain()
    assert office.stored() == [1, 2, 3]
    assert decode_report(office.server.stored[(4001, EPOCH)][1]).count == 0
    # The third names the hash of the lost body: stored, flagged, not billed.
    assert [alarm.code for alarm in office.alarms] == ["chain_fork"]
    assert second.seq == 2


def test_a_lost_report_without_a_replacement_stops_the_machine() -> None:
    """Where nothing can fill the gap, sending ends with an alarm and the spool is kept."""
    reports = seal(chain(), 3)
    office = Office([reports[0], reports[2]])
    assert office.courier.drain()
    assert [alarm.code for alarm in office.alarms] == ["lost_report"]
    assert (len(office.spool), office.courier.stopped_machines) == (1, {4001})


def test_a_refused_key_stops_sending_and_keeps_spooling() -> None:
    """After status 401 nothing more is sent, one alarm is raised, and no report is lost."""
    office = Office(seal(chain(), 2))
    office.server.faults = [problem(401, "auth_error")]
    assert office.courier.drain()
    assert [alarm.code for alarm in office.alarms] == ["auth_error"]
    assert (len(office.server.requests), len(office.spool)) == (1, 2)
    office.courier.stopped_machines.clear()
    assert office.courier.drain()
    assert office.stored() == [1, 2]


def test_a_refused_key_of_one_machine_does_not_stop_another() -> None:
    """Among reports of two machines only the one with the bad signature is held back."""
    office = Office(seal(chain(), 2) + seal(chain(4002), 2))

    def judge(report: UsageReport) -> ReportAnswer | None:
        if report.machine != 4001:
            return None
        # A body whose signer is unknown names nobody: its place in the answer says which it is.
        return ReportAnswer(machine=0, epoch="", seq=0, status="unauthorized", code="auth_error")

    office.server.judge = judge
    assert office.courier.drain()
    assert office.courier.stopped_machines == {4001}
    assert [alarm.machine for alarm in office.alarms] == [4001]
    assert (office.stored(4002), len(office.spool)) == ([1, 2], 2)


def test_a_request_that_cannot_be_read_stops_with_an_alarm() -> None:
    """Status 400 is never retried."""
    office = Office(seal(chain(), 1))
    office.server.faults = [problem(400, "undecodable")]
    assert office.courier.drain()
    assert [alarm.code for alarm in office.alarms] == ["undecodable"]
    assert (len(office.server.requests), len(office.spool)) == (1, 1)


def test_a_request_that_is_too_large_is_halved() -> None:
    """Status 413 makes the next requests smaller until they pass."""
    office = Office(seal(chain(), 8))
    office.server.faults = [problem(413, "too_large"), problem(413, "too_large")]
    assert office.courier.drain()
    assert [len(one) for one in office.server.requests] == [8, 4, 2, 6]
    assert (office.stored(), office.alarms) == (list(range(1, 9)), [])


def test_one_report_that_is_too_large_is_a_dead_letter() -> None:
    """A single report that the server will not carry is put aside with an alarm."""
    office = Office(seal(chain(), 1))
    office.server.faults = [problem(413, "too_large")]
    assert office.courier.drain()
    assert [one.code for one in office.spool.dead_letters] == ["too_large"]
    assert [alarm.code for alarm in office.alarms] == ["too_large"]


def test_an_answer_that_moves_nothing_is_waited_for() -> None:
    """A server that accepts and never acknowledges is not asked in a tight loop."""
    office = Office(seal(chain(), 1))
    office.server.judge = lambda report: answered(report, "accepted")
    assert not office.courier.drain(give_up_after=4)
    assert office.slept == [1.0, 2.0, 4.0]


def test_machines_of_a_relay_are_acknowledged_apart() -> None:
    """Reports of two machines and epochs in one spool are forgotten each by its own seq."""
    office = Office(seal(chain(), 3) + seal(chain(4002), 1) + seal(chain(epoch="ab" * 16), 2))
    assert office.courier.drain()
    assert (office.stored(), office.stored(4002)) == ([1, 2, 3], [1])
    assert (office.stored(epoch="ab" * 16), len(office.spool)) == ([1, 2], 0)
