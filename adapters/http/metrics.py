"""What operators watch, in the Prometheus format."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Counter, Histogram, Summary, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.registry import Collector

from ledger.projections.runner import position_of
from ledger.store.log import head_position

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from prometheus_client import Metric

    from ledger.domain.acknowledgement import UsageAnswer
    from ledger.services.ledger import Ledger
    from ledger.services.usage import UsageService

_SHARED = "PROMETHEUS_MULTIPROC_DIR"
"""Where the workers of one server keep their counters, so that each of them can show all."""


class _Positions(Collector):
    """How far the log is, and how far it is folded."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    def describe(self) -> Iterable[Metric]:
        return []

    def collect(self) -> Iterator[Metric]:
        with self._ledger.reading() as connection:
            head, folded = head_position(connection), position_of(connection)
            last = connection.execute("SELECT coalesce(max(position), 0) FROM events").fetchone()
        assert last is not None
        lag = max(0, last[0] - folded)
        yield GaugeMetricFamily("gpuledger_log_position", "Last position of the log", head)
        yield GaugeMetricFamily(
            "gpuledger_usage_position", "Position up to which usage is folded", folded
        )
        yield GaugeMetricFamily("gpuledger_usage_lag", "Positions of the log not folded yet", lag)


class Metrics:
    """The counters of one API process, shared with its fellow workers where there are any."""

    def __init__(self, service: UsageService) -> None:
        """Begin at zero and watch what *service* commits."""
        self._registry = CollectorRegistry()
        self._reports = Counter(
            "gpuledger_reports",
            "Usage reports by what became of them",
            ["status"],
            registry=self._registry,
        )
        self._ticks = Counter("gpuledger_ticks", "Ticks stored", registry=self._registry)
        self._commit_seconds = Summary(
            "gpuledger_commit_seconds",
            "From the lock of the log to the commit of a group of reports",
            registry=self._registry,
        )
        self._usage_seconds = Histogram(
            "gpuledger_usage_request_seconds",
            "From a usage request to its durable answer",
            registry=self._registry,
            buckets=(0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5),
        )
        self._requests = Counter(
            "gpuledger_requests", "Requests by status", ["status"], registry=self._registry
        )
        if service is not None:
            service.on_commit = self.commit

    def commit(self, ticks: int, seconds: float) -> None:
        """Count one group of reports."""
        self._ticks.inc(ticks)
        self._commit_seconds.observe(seconds)

    def usage(self, answer: UsageAnswer, seconds: float) -> None:
        """Count the reports of one request."""
        self._usage_seconds.observe(seconds)
        for report in answer.reports:
            self._reports.labels(report.status).inc()

    def request(self, status: int) -> None:
        """Count a request."""
        self._requests.labels(str(status)).inc()

    def text(self, ledger: Ledger) -> bytes:
        """Everything, as Prometheus reads it."""
        registry = self._registry
        if _SHARED in os.environ:
            registry = CollectorRegistry()
            MultiProcessCollector(registry)  # type: ignore[no-untyped-call]  # it has no types
        positions = CollectorRegistry()
        positions.register(_Positions(ledger))
        return generate_latest(registry) + generate_latest(positions)
