"""How ticks are cut, ordered and repeated on their way never changes what they cost."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from adapters.hostagent.reports import ReportChain, SealedReport, block
from ledger.domain.usage import TickState
from ledger.projections.runner import UsageRunner
from tests.support.databases import Server
from tests.support.examples import examples
from tests.support.market import DOLLAR, START, Market

SECONDS = 7_300
"""Two hours and a little, so that hours are crossed."""

_STATES: list[TickState] = ["running", "running", "running", "frozen", "gpu_lost", "unknown"]


@pytest.fixture
def servers(server: Server) -> Server:
    """The server, under a name of its own: every example takes a fresh database."""
    return server


def _history(seed: int) -> list[tuple[TickState, int, int]]:
    """One tick a second: state, bytes up, bytes down; the same for the same seed."""
    ticks = []
    value = seed * 2_654_435_761 % 2**32
    for second in range(SECONDS):
        value = (value * 1_103_515_245 + 12_345) % 2**31
        state = _STATES[value >> 16 & 7] if value >> 16 & 7 < len(_STATES) else "running"
        ticks.append((state, value % 70_000, (value >> 3) % 9_000 if second % 5 else 0))
    return ticks


def _cuts(sizes: list[int]) -> Iterator[tuple[int, int]]:
    start, index = 0, 0
    while start < SECONDS:
        count = min(sizes[index % len(sizes)], SECONDS - start)
        yield start, count
        start += count
        index += 1


def _outcome(
    server: Server, sizes: list[list[int]], order: list[int], repeats: list[int], page: int
) -> tuple[object, object, object]:
    """Deliver two machines' histories in this way and return what is billed."""
    dsn = server.copy()
    market = Market(dsn)
    try:
        market.runner = UsageRunner(page_events=page)
        alice = market.account("alice", 1_000 * DOLLAR)
        queues: list[list[SealedReport]] = []
        for number, cut in enumerate(sizes):
            machine = market.machine(host=f"h{number}", gpu_hour=333_333_333 + number)
            one = market.rent(alice, machine)
            market.confirm(machine, one)
            queues.append(_sealed(market.chains[machine], one, _history(number + 1), cut))
        market.clock.move_to(START + SECONDS + 10)
        sent: list[SealedReport] = []
        step = 0
        while any(queues):
            which = order[step % len(order)] % len(queues)
            queue = queues[which] or next(one for one in queues if one)
            report = queue.pop(0)
            market.deliver(report)
            sent.append(report)
            if repeats and step % 3 == 0:
                market.deliver(sent[repeats[step % len(repeats)] % len(sent)])
            step += 1
        market.project()
        result = (
            market.connection.execute(
                "SELECT instance_id, gpu_quantity, gpu_charge, gpu_fee, storage_quantity,"
                " storage_charge, storage_fee, up_quantity, up_charge, up_fee, down_quantity,"
                " down_charge, down_fee FROM rate_segments ORDER BY instance_id"
            ).fetchall(),
            market.connection.execute(
                "SELECT instance_id, start, until FROM coverage ORDER BY instance_id, start"
            ).fetchall(),
            market.connection.execute(
                "SELECT charged, earned, fees FROM account_usage ORDER BY account_id"
            ).fetchall(),
        )
        assert market.rebuild().equal
    finally:
        market.close()
        server.drop(dsn)
    return result


def _sealed(
    chain: ReportChain, instance: int, ticks: list[tuple[TickState, int, int]], sizes: list[int]
) -> list[SealedReport]:
    sealed = []
    for start, count in _cuts(sizes):
        part = ticks[start : start + count]
        one = block(
            instance,
            START + start,
            [state for state, _, _ in part],
            up=[up for _, up, _ in part],
            down=[down for _, _, down in part],
            util=[50] * count,
        )
        sealed.append(chain.seal(START + start, count, [one]))
    return sealed


_SIZES = st.lists(st.sampled_from([7, 60, 61, 120, 299, 300]), min_size=1, max_size=4)


@settings(
    max_examples=examples(4),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    sizes=st.lists(_SIZES, min_size=2, max_size=2),
    order=st.lists(st.integers(0, 1), min_size=1, max_size=7),
    repeats=st.lists(st.integers(0, 500), max_size=4),
    page=st.sampled_from([1, 7, 50, 1_000]),
)
def test_cutting_order_and_repetition_change_nothing(
    servers: Server, sizes: list[list[int]], order: list[int], repeats: list[int], page: int
) -> None:
    """Any cut into reports, any order between machines, repeats and page sizes cost the same."""
    plain = _PLAIN.get("outcome") or _outcome(servers, [[300], [300]], [0, 1], [], 1_000)
    _PLAIN["outcome"] = plain
    assert _outcome(servers, sizes, order, repeats, page) == plain


_PLAIN: dict[str, tuple[object, object, object]] = {}


def test_the_plain_outcome_is_that_of_a_model_with_fractions(server: Server) -> None:
    """Quantities and charges equal a naive second-by-second model in exact fractions."""
    from fractions import Fraction  # noqa: PLC0415 - the model's own arithmetic, nowhere else

    segments, _, accounts = _outcome(server, [[300], [60]], [0, 1], [], 1_000)
    charged = 0
    assert isinstance(segments, list)
    for number, row in enumerate(segments):
        ticks = _history(number + 1)
        running = sum(state in ("running", "frozen") for state, _, _ in ticks)
        rates = {
            "gpu": Fraction(333_333_333 + number, 3_600) * running,
            "storage": Fraction(150_000_000, 30 * 24 * 3_600) * 100 * SECONDS,
            "up": Fraction(3_000_000, 10**9) * sum(up for _, up, _ in ticks),
            "down": Fraction(2_000_000, 10**9) * sum(down for _, _, down in ticks),
        }
        for index, exact in enumerate(rates.values()):
            whole = exact.numerator // exact.denominator
            fee = Fraction(15, 100) * whole
            assert int(row[2 + 3 * index]) == whole
            assert int(row[3 + 3 * index]) == fee.numerator // fee.denominator
            charged += whole
    assert isinstance(accounts, list)
    assert sum(int(row[0]) for row in accounts) == charged
