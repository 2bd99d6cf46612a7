"""What it takes to catch up after days without network: the soak test's run, with its figures."""

from __future__ import annotations

from typing import Final

from tests.bench.row import Row
from tests.e2e.offline import INSTANCES, REPORT_SECONDS, CatchUp, catch_up
from tests.e2e.serving import Serving

HOURS: Final = 72
QUICK_HOURS: Final = 1
_DELAY_SECONDS: Final = 1.0


def rows(*, quick: bool = False) -> list[Row]:
    """Come back after three days with a real agent, and look at it, its server and a neighbour."""
    with Serving(workers=2) as serving:
        return [shown(catch_up(serving, QUICK_HOURS if quick else HOURS))]


def shown(found: CatchUp) -> Row:
    """The figures of one run."""
    hours = found.backlog * REPORT_SECONDS // 3_600
    turns, waits = found.turn_delays, found.live_delays
    return Row(
        f"{hours} h offline, then caught up: {found.backlog:,} reports of {INSTANCES} × "
        f"{REPORT_SECONDS} s from a real spool by the real agent, which goes on sealing",
        f"{found.backlog / found.seconds:,.0f} reports/s, {found.seconds:.1f} s; a live report"
        f" waits p99 {_p99(turns):.2f} s for its answer once it is its turn",
        f"one request at most; memory does not grow; ≤ {_DELAY_SECONDS:.0f} s for other machines",
        f"{len(waits)} live reports behind the backlog, for {max(waits, default=0):.1f} s at most;"
        f" slowest request {found.slowest_request:.2f} s; the agent's memory"
        f" {found.rss_at_start / 1e6:.0f} MB, at most {found.rss_peak / 1e6:.0f} MB; another"
        f" machine's report p99 {_p99(found.busy_latencies):.3f} s, before"
        f" {_p99(found.quiet_latencies):.3f} s",
    )


def _p99(seconds: list[float]) -> float:
    return sorted(seconds)[int(len(seconds) * 0.99)]
