"""An explanation as text that fits on a page."""

from __future__ import annotations

from collections.abc import Sequence

from ledger.domain.ids import rfc3339
from ledger.domain.money import BASIS_POINTS, format_dollars
from ledger.services.explain import Explanation, ReportRef, Span

_SHOWN = 6


def text(explanations: Sequence[Explanation]) -> str:
    """Every explanation, one after the other."""
    return "\n".join(_one(explanation) for explanation in explanations)


def _one(one: Explanation) -> str:
    lines = [
        f"instance {one.instance_id}, {one.meter}: {one.charge.dollars}",
        f"  terms        {one.kind}, rate {format_dollars(one.rate)}, platform fee"
        f" {one.fee_bp * 100 / BASIS_POINTS:g} %, segment {one.segment} since"
        f" {rfc3339(one.segment_from)}",
        f"  life         {_span(one.life)}",
        *_spans("authorised", one.authorised),
        *_spans("attested", one.attested),
        *_spans("not attested", one.gaps),
    ]
    for anomaly in one.anomalies[:_SHOWN]:
        span = Span(start=anomaly.start, until=anomaly.until)
        lines.append(f"  anomaly      {anomaly.code} ({anomaly.severity}) {_span(span)}")
    lines += [
        f"  quantity     {one.quantity:,} {one.unit}",
        f"  formula      {one.charge.formula}",
        f"               = {one.charge.numbers} = {one.charge.nanos:,} nanos"
        f" = ${one.charge.dollars}",
        f"  fee          {one.fee.formula}",
        f"               = {one.fee.numbers} = {one.fee.nanos:,} nanos; the host gets"
        f" ${format_dollars(one.host_share)}",
    ]
    for hour in one.hours[:_SHOWN]:
        lines.append(
            f"  hour         {rfc3339(hour.hour)}  {hour.quantity:>15,} {one.unit}"
            f"  {format_dollars(hour.amount):>16}  from position {hour.position}"
        )
    if len(one.hours) > _SHOWN:
        lines.append(f"               and {len(one.hours) - _SHOWN} more hours (--json shows all)")
    for fact in one.facts[:_SHOWN]:
        lines.append(
            f"  fact         {fact.position:>12}  {fact.topic}  {rfc3339(fact.recorded_at)}"
        )
    if len(one.facts) > _SHOWN:
        lines.append(f"               and {len(one.facts) - _SHOWN} more facts (--json shows all)")
    lines += _reports(one.first_report, one.last_report)
    return "\n".join(lines) + "\n"


def _spans(name: str, spans: Sequence[Span]) -> list[str]:
    shown = [f"  {name:<12} {_span(span)}" for span in spans[:_SHOWN]]
    if len(spans) > _SHOWN:
        shown.append(f"               and {len(spans) - _SHOWN} more (--json shows all)")
    return shown


def _span(span: Span) -> str:
    if span.until is None:
        return f"{rfc3339(span.start)} to now"
    return f"{rfc3339(span.start)} to {rfc3339(span.until)} ({span.until - span.start:,} s)"


def _reports(first: ReportRef | None, last: ReportRef | None) -> list[str]:
    if first is None or last is None:
        return []
    return [
        f"  reports      from {first.stream} seq {first.seq} at position {first.position}",
        f"               to   {last.stream} seq {last.seq} at position {last.position}",
    ]
