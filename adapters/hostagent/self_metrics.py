"""The acting half's metrics, as Prometheus reads them (`host-agent.md` §14)."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping

from adapters.hostagent.spool import SpoolFacts

_PREFIX = "ledger_agent_"


def render(
    facts: SpoolFacts, *, alarms: Mapping[str, int], instances: int, contact_age: float | None
) -> bytes:
    """One text of gauges and counters; what is not known is absent, never 0."""
    return "".join(_lines(facts, alarms, instances, contact_age)).encode()


def _lines(
    facts: SpoolFacts, alarms: Mapping[str, int], instances: int, contact_age: float | None
) -> Iterator[str]:
    yield _one("reports_sealed_total", "counter", facts.sealed)
    yield _one("reports_rejected_total", "counter", facts.dead_letters)
    yield _one("spool_reports", "gauge", facts.waiting)
    yield _one("spool_bytes", "gauge", facts.file_bytes)
    if facts.oldest_sealed_at is not None:
        age = max(0, int(time.time()) - facts.oldest_sealed_at)
        yield _one("spool_oldest_age_seconds", "gauge", age)
    yield _one("acked_seq", "gauge", facts.acknowledged)
    yield _one("instances", "gauge", instances)
    if contact_age is not None:
        yield _one("ack_lag_seconds", "gauge", round(contact_age, 3))
    yield f"# TYPE {_PREFIX}alarms_total counter\n"
    for code, count in sorted(alarms.items()):
        yield f'{_PREFIX}alarms_total{{code="{code}"}} {count}\n'


def _one(name: str, kind: str, value: float) -> str:
    return f"# TYPE {_PREFIX}{name} {kind}\n{_PREFIX}{name} {value}\n"
