"""What operators watch, in the Prometheus format."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, SummaryMetricFamily
from prometheus_client.registry import Collector

from ledger.projections.runner import position_of
from ledger.store.log import head_position

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from prometheus_client import Metric

    from ledger.domain.acknowledgement import UsageAnswer
    from ledger.services.ledger import Ledger
    from ledger.services.usage import UsageService


class _Commits(Collector):
    """What the group commit of this process stored."""

    def __init__(self, service: UsageService) -> None:
        self._service = service

    def describe(self) -> Iterable[Metric]:
        return []

    def collect(self) -> Iterator[Metric]:
        commits = self._service.commits
        yield CounterMetricFamily("gpuledger_ticks", "Ticks stored", value=commits.ticks)
        yield SummaryMetricFamily(
            "gpuledger_commit_seconds",
            "From the lock of the log to the commit of a group of reports",
            count_value=commits.groups,
            sum_value=commits.seconds,
        )


class Metrics:
    """The counters of one API process."""

    def __init__(self, service: UsageService) -> None:
        """Begin at zero; what *service* stored is read when it is asked for."""
        self.registry = CollectorRegistry()
        self.registry.register(_Commits(service))
        self._reports = Counter(
            "gpuledger_reports", "Usage reports by what became of them", ["status"],
            registry=self.registry,
        )  # fmt: skip
        self._usage_seconds = Histogram(
            "gpuledger_usage_request_seconds", "From a usage request to its durable answer",
            registry=self.registry,
            buckets=(0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5),
        )  # fmt: skip
        self._requests = Counter(
            "gpuledger_requests", "Requests by status", ["status"], registry=self.registry
        )
        self._head = Gauge(
            "gpuledger_log_position", "Last position of the log", registry=self.registry
        )
        self._folded = Gauge(
            "gpuledger_usage_position", "Position up to which usage is folded",
            registry=self.registry,
        )  # fmt: skip
        self._lag = Gauge(
            "gpuledger_usage_lag", "Positions of the log not folded yet", registry=self.registry
        )

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
        with ledger.reading() as connection:
            head, folded = head_position(connection), position_of(connection)
            last = connection.execute("SELECT coalesce(max(position), 0) FROM events").fetchone()
        assert last is not None
        self._head.set(head)
        self._folded.set(folded)
        self._lag.set(max(0, last[0] - folded))
        return generate_latest(self.registry)
