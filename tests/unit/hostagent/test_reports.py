import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.hostagent.reports import Run, block, constant_block, new_epoch, run_block
from ledger.domain.usage import (
    GENESIS_HASH,
    TickState,
    body_hash,
    column_values,
    decode_report,
    ticks_of,
)
from tests.unit.hostagent.server import EPOCH, IDENTITY, START, chain, seal

STATES: list[TickState] = ["loading", "running", "stopped"]


def test_a_chain_counts_from_one_and_names_the_hash_before() -> None:
    """Each report has the next seq and the hash of the body before it; the first names zeros."""
    first, second, third = seal(chain(), 3)
    assert [first.seq, second.seq, third.seq] == [1, 2, 3]
    assert decode_report(first.body).prev == GENESIS_HASH
    assert decode_report(second.body).prev == body_hash(first.body).hex()
    assert decode_report(third.body).prev == body_hash(second.body).hex()


def test_a_sealed_report_says_what_its_body_says() -> None:
    """Place, window, key id and signature belong to the body."""
    reports = chain()
    sealed = reports.seal(START, 10)
    report = decode_report(sealed.body)
    assert (sealed.machine, sealed.epoch, sealed.seq) == (report.machine, report.epoch, report.seq)
    assert (sealed.start, sealed.until) == (report.start, report.until) == (START, START + 10)
    assert (sealed.key_id, sealed.signature) == (IDENTITY.key_id, IDENTITY.sign(sealed.body))


def test_a_chain_goes_on_where_an_earlier_process_left_it() -> None:
    """A chain made from the kept seq, hash and end continues as if it had never stopped."""
    whole, head = chain(), chain()
    expected = seal(whole, 2)[1]
    seal(head, 1)
    tail = chain()
    tail.next_seq, tail.prev, tail.sealed_until = head.next_seq, head.prev, head.sealed_until
    assert seal(tail, 1) == [expected]


def test_a_window_never_overlaps_an_earlier_one() -> None:
    """A second that is attested cannot be sealed again, and the refusal uses up no seq."""
    reports = chain()
    reports.seal(START, 10)
    with pytest.raises(ValueError, match="attested already"):
        reports.seal(START + 9, 10)
    assert reports.seal(START + 20, 10).seq == 2


@pytest.mark.parametrize("count", [-1, 301])
def test_a_window_has_at_most_300_seconds(count: int) -> None:
    """Windows that the server would refuse are not sealed."""
    with pytest.raises(ValueError, match="window"):
        chain().seal(START, count)


def test_a_block_outside_the_window_is_not_sealed() -> None:
    """A block that reaches past the window is refused."""
    one = constant_block(1, START + 5, 6, "running", up=0, down=0, util=1)
    with pytest.raises(ValueError, match="outside"):
        chain().seal(START, 10, [one])


def test_more_instances_than_a_report_holds_are_not_sealed() -> None:
    """The sixty-fifth block is refused."""
    blocks = [constant_block(one, START, 1, "stopped", up=0, down=0, util=-1) for one in range(65)]
    with pytest.raises(ValueError, match="64"):
        chain().seal(START, 1, blocks)


def test_a_stand_in_is_an_empty_report_in_the_old_place() -> None:
    """A stand-in carries the lost seq, no second, and leaves the chain where it is."""
    reports = chain()
    first, _, third = seal(reports, 3)
    prev, next_seq = body_hash(first.body).hex(), reports.next_seq
    report = decode_report(reports.stand_in(2, prev, third.start).body)
    assert (report.seq, report.prev, report.start, report.count) == (2, prev, third.start, 0)
    assert reports.next_seq == next_seq


def test_epochs_are_32_hex_digits_and_differ() -> None:
    """Two epochs made at random are valid and not the same."""
    first, second = new_epoch(), new_epoch()
    assert len(first) == len(second) == 32
    assert first != second
    assert int(first, 16) >= 0


def test_a_block_keeps_every_second_it_was_given() -> None:
    """The ticks of a sealed block are the values that went in."""
    states: list[TickState] = ["loading", "running", "running"]
    one = block(7, START + 1, states, up=[0, 5, 6], down=[0, 0, 0], util=[-1, 0, 97])
    report = decode_report(chain().seal(START, 5, [one]).body)
    assert [tuple(tick)[:6] for tick in ticks_of(report, 1)] == [
        (7, START + 1, "loading", 0, 0, -1),
        (7, START + 2, "running", 5, 0, 0),
        (7, START + 3, "running", 6, 0, 97),
    ]
    assert one.state == [("loading", 1), ("running", 2)]
    assert (one.up, one.down) == ([0, 5, 6], [[0, 3]])


runs_in_a_row = st.lists(
    st.builds(
        Run,
        st.integers(1, 9),
        st.sampled_from(STATES),
        st.integers(0, 2),
        st.integers(0, 2),
        st.integers(-1, 100),
    ),
    min_size=1,
    max_size=8,
)


@given(runs_in_a_row)
def test_a_block_from_runs_is_the_block_from_seconds(runs: list[Run]) -> None:
    """However a block is built, its columns are the same."""
    seconds = [run for run in runs for _ in range(run.seconds)]
    plain = block(
        1,
        START,
        [run.state for run in seconds],
        up=[run.up for run in seconds],
        down=[run.down for run in seconds],
        util=[run.util for run in seconds],
    )
    assert run_block(1, START, runs) == plain


@given(st.integers(1, 300), st.integers(0, 3), st.integers(-1, 100))
def test_a_constant_block_is_a_block_of_one_run(count: int, moved: int, util: int) -> None:
    """The short way for constant traffic gives the same block."""
    short = constant_block(1, START, count, "running", up=moved, down=0, util=util)
    assert short == run_block(1, START, [Run(count, "running", moved, 0, util)])
    assert column_values(short.up) == [moved] * count


def test_one_epoch_is_kept_over_a_boot() -> None:
    """A new boot id changes the report and not the chain."""
    reports = chain()
    reports.seal(START, 10)
    reports.boot_id = "b2"
    report = decode_report(reports.seal(START + 50, 10).body)
    assert (report.boot_id, report.epoch, report.seq) == ("b2", EPOCH, 2)
