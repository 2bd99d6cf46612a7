"""Seconds attested more than once: whatever arrives first counts, and nothing is billed twice."""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from adapters.hostagent.reports import ReportChain, constant_block
from ledger.domain.usage import Observation, TickState
from ledger.projections.runner import UsageRunner
from tests.support.databases import Server
from tests.support.examples import examples
from tests.support.market import DOLLAR, START, Market

SPAN = 400
BILLED = ("running", "frozen")

_REPORTS = st.lists(
    st.tuples(
        st.integers(0, 2),
        st.integers(0, SPAN - 1),
        st.integers(1, 150),
        st.sampled_from(["running", "frozen", "stopped", "gpu_lost"]),
        st.integers(0, 1_000),
    ),
    min_size=1,
    max_size=12,
)
"""Reports in order of arrival: epoch, first second, seconds, state, bytes up per second."""


@settings(
    max_examples=examples(8),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    reports=_REPORTS,
    confirmed=st.integers(0, SPAN),
    after=st.integers(0, 12),
    page=st.sampled_from([1, 3, 1_000]),
)
def test_of_overlapping_epochs_the_first_tick_of_a_second_counts(
    server: Server,
    reports: list[tuple[int, int, int, TickState, int]],
    confirmed: int,
    after: int,
    page: int,
) -> None:
    """Quantities and anomalies equal those of a model that walks through arrivals one by one."""
    dsn = server.copy()
    market = Market(dsn)
    try:
        market.runner = UsageRunner(page_events=page)
        machine = market.machine()
        one = market.rent(market.account("alice", 100 * DOLLAR), machine)
        signer = market.chains[machine].signer
        chains = [
            ReportChain(machine, signer, boot_id="boot-1", epoch=f"{number:02x}" * 16)
            for number in range(1, 4)
        ]
        market.clock.move_to(START + SPAN + 200)
        first: dict[int, tuple[TickState, int]] = {}
        repeated = 0
        for index, (epoch, begin, count, state, up) in enumerate(reports):
            if index == after:
                _confirm(market, machine, one, START + confirmed)
            start = max(START + begin, chains[epoch].sealed_until)
            if start + count > market.clock():
                continue
            tick = constant_block(one, start, count, state, up=up, down=0, util=1)
            sealed = chains[epoch].seal(start, count, [tick])
            for _ in range(2):
                answer = market.deliver(sealed)[0]
            assert answer.status == "duplicate"
            for second in range(start, start + count):
                repeated += second in first
                first.setdefault(second, (state, up))
        if after >= len(reports):
            _confirm(market, machine, one, START + confirmed)
        billable = [second for second, (state, _) in first.items() if state in BILLED]
        gpu = sum(second >= START + confirmed for second in billable)
        market.project()
        row = market.connection.execute(
            "SELECT coalesce(sum(gpu_quantity), 0), coalesce(sum(storage_quantity), 0),"
            " coalesce(sum(up_quantity), 0) FROM rate_segments"
        ).fetchone()
        assert row == (gpu, len(first), sum(up for _, up in first.values()))
        anomalies = market.anomalies(one)
        assert anomalies.get("before_start", 0) == len(billable) - gpu
        assert (anomalies.get("duplicate_second", 0) > 0) == (repeated > 0)
        assert market.rebuild().equal
    finally:
        market.close()
        server.drop(dsn)


def _confirm(market: Market, machine: int, instance: int, at: int) -> None:
    seen = Observation(instance=instance, assignment=1, state="running", at=at)
    chain = market.chains[machine]
    assert market.deliver(chain.seal(at, 0, [], [seen]))[0].status == "accepted"
