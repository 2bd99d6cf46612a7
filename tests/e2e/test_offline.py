"""Days without network, then everything at once: nothing is lost, and nobody else waits for it."""

from __future__ import annotations

import itertools
import statistics

import pytest

from ledger.domain.ids import usage_stream
from tests.e2e.offline import INSTANCES, REPORT_SECONDS, catch_up
from tests.e2e.serving import Serving, books_equal_a_rebuild, stored_once, wait_until_folded

_GROWTH_BYTES = 16 * 10**6


@pytest.mark.parametrize("hours", [1, pytest.param(72, marks=pytest.mark.soak)])
def test_what_was_sealed_without_network_arrives_once_and_in_order(hours: int) -> None:
    """Every late second is at the server once, live reports and other machines hardly wait."""
    with Serving(workers=2) as serving:
        found = catch_up(serving, hours)
        with serving.database() as database:
            with database.connect(autocommit=True) as connection:
                wait_until_folded(database)
                first = found.live[0]
                stream = usage_stream(first.machine, first.epoch)
                stored_once(connection, stream, found.bodies)
                covered = connection.execute(
                    "SELECT sum(until - start) FROM machine_coverage WHERE machine_id = %s",
                    [first.machine],
                ).fetchone()
                strange = connection.execute(
                    "SELECT code, sum(until - start) FROM anomalies WHERE machine_id = %s"
                    " GROUP BY code",
                    [first.machine],
                ).fetchall()
            books_equal_a_rebuild(database)
    assert found.backlog == hours * 3_600 // REPORT_SECONDS
    late = found.backlog * REPORT_SECONDS
    assert covered == (late + sum(one.count for one in found.live),)
    assert strange == [("unknown_instance", late * INSTANCES)]
    # The agent goes on to seal while it catches up, a report of a second in every second or so.
    assert len(found.live) >= 4
    assert all(
        one.start + one.count <= after.start for one, after in itertools.pairwise(found.live)
    )
    # In sequence, so a live report waits for the older ones, and then for one request at most.
    assert found.requests_with_room == 0
    assert max(found.turn_delays) <= found.slowest_request + 1.0
    assert found.rss_peak - found.rss_at_start <= _GROWTH_BYTES
    assert statistics.median(found.busy_latencies) < 1.0
