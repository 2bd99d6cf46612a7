"""What operators watch, in the Prometheus format."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from ledger.projections.runner import position_of
from ledger.store.log import head_position

if TYPE_CHECKING:
    from ledger.domain.acknowledgement import UsageAnswer
    from ledger.services.ledger import Ledger


class Metrics:
    """The counters of one API process."""

    def __init__(self) -> None:
        """Begin at zero."""
        self.registry = CollectorRegistry()
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
