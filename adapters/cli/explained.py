"""An explanation as text: one charge fits on a page, about 50 lines at most."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ledger.domain.ids import rfc3339
from ledger.domain.money import BASIS_POINTS, NANOS_PER_DOLLAR, format_dollars
from ledger.meters.pricing import Meter
from ledger.services.explain import Explanation, ReportRef, Span

_SHOWN: Final = 6
_PER: Final[dict[Meter, str]] = {
    "gpu": "an hour",
    "storage": "a GB-month",
    "up": "a GB",
    "down": "a GB",
}


def text(explanations: Sequence[Explanation]) -> str:
    """Every explanation, one after the other."""
    return "\n".join(_one(explanation) for explanation in explanations)


def _one(one: Explanation) -> str:
    thing = "volume" if one.kind == "volume" else "instance"
    lines = [
        f"{thing} {one.instance_id}, {one.meter}, segment {one.segment}: ${one.charge.dollars}",
        f"  terms        {one.kind}, ${format_dollars(one.rate)} {_PER[one.meter]}, platform fee"
        f" {format_dollars(one.fee_bp * NANOS_PER_DOLLAR * 100 // BASIS_POINTS)} %",
        f"  segment      {_span(Span(start=one.segment_from, until=one.segment_until))}",
        f"  life         {_span(one.life)}",
        *_spans("lost disk", one.lost_disks),
        *_spans("authorised", one.authorised),
        *_spans("attested", one.attested),
        *_spans("not attested", one.gaps),
        f"  seconds      {_seconds(one)}",
    ]
    for anomaly in one.anomalies[:_SHOWN]:
        span = Span(start=anomaly.start, until=anomaly.until)
        lines.append(f"  anomaly      {anomaly.code} ({anomaly.severity}) {_span(span)}")
    if len(one.anomalies) > _SHOWN:
        lines.append(_rest(len(one.anomalies), "anomalies"))
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
        lines.append(_rest(len(one.hours), "hours"))
    for fact in one.facts[:_SHOWN]:
        lines.append(
            f"  fact         {fact.position:>12}  {fact.topic}  {rfc3339(fact.recorded_at)}"
        )
    if len(one.facts) > _SHOWN:
        lines.append(_rest(len(one.facts), "facts"))
    lines += _reports(one.first_report, one.last_report)
    return "\n".join(lines) + "\n"


def _spans(name: str, spans: Sequence[Span]) -> list[str]:
    shown = [f"  {name:<12} {_span(span)}" for span in spans[:_SHOWN]]
    if len(spans) > _SHOWN:
        shown.append(_rest(len(spans), f"spans, in all {_total(spans)}"))
    return shown


def _rest(count: int, what: str) -> str:
    return f"               and {count - _SHOWN} more {what} (--json shows all)"


def _total(spans: Sequence[Span]) -> str:
    if any(span.until is None for span in spans):
        return "without end"
    return f"{sum(span.until - span.start for span in spans if span.until is not None):,} s"


def _seconds(one: Explanation) -> str:
    attested = f"{one.attested_seconds:,} attested"
    if one.not_billed_seconds is not None:
        attested += (
            f", of which {one.not_billed_seconds:,} not billed (state not billable, or too late)"
        )
    return f"{attested}; {one.unattested_seconds:,} authorised and not attested"


def _span(span: Span) -> str:
    if span.until is None:
        return f"{rfc3339(span.start)} to now"
    return f"{rfc3339(span.start)} to {rfc3339(span.until)} ({span.until - span.start:,} s)"


def _reports(first: ReportRef | None, last: ReportRef | None) -> list[str]:
    if first is None or last is None:
        return []
    return [
        f"  {name:<12} {rfc3339(one.second)} in {one.stream} seq {one.seq} at position"
        f" {one.position}"
        for name, one in (("first report", first), ("last report", last))
    ]
