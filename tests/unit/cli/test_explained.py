"""An explanation as text."""

from __future__ import annotations

import msgspec

from adapters.cli.explained import text
from ledger.meters.pricing import explain_charge, explain_fee
from ledger.services.explain import Explanation, FactRef, HourRow, ReportRef, Span
from ledger.services.questions.usage import AnomalyView

START = 1_772_359_200


def explanation(spans: int = 2) -> Explanation:
    """Ten minutes on a GPU at $0.36 an hour, cut into so many spans."""
    pieces = [Span(start=START + 60 * i, until=START + 60 * i + 30) for i in range(spans)]
    hours = [
        HourRow(hour=START + 3_600 * i, booked=START, quantity=1, amount=1, fee=0, position=i)
        for i in range(spans)
    ]
    report = ReportRef(second=START, stream="usage-1-ab", seq=1, position=40)
    return Explanation(
        instance_id=7,
        meter="gpu",
        kind="on_demand",
        segment=1,
        segment_from=START,
        segment_until=None,
        rate=360_000_000,
        fee_bp=1_525,
        life=Span(start=START, until=None),
        authorised=pieces,
        lost_disks=pieces,
        attested=pieces,
        attested_seconds=600,
        not_billed_seconds=0,
        gaps=pieces,
        unattested_seconds=30 * spans,
        anomalies=[
            AnomalyView(
                machine_id=1,
                instance_id=7,
                code="after_stop",
                severity="info",
                start=START + i,
                until=START + i + 1,
                amount=0,
                position=i,
            )
            for i in range(spans)
        ],
        quantity=600,
        unit="seconds",
        allocated_bytes=10**11,
        charge=explain_charge("gpu", 360_000_000, 600, 10**11),
        fee=explain_fee(1_525, 60_000_000),
        host_share=50_850_000,
        hours=hours,
        facts=[
            FactRef(position=i, topic="instance.running.v1", recorded_at=START)
            for i in range(spans)
        ],
        first_report=report,
        last_report=report,
    )


def test_the_formula_is_shown_with_its_numbers() -> None:
    """The text names the pricing code's own formula, numbers and result."""
    shown = text([explanation()])
    assert "= 360000000 · 600 // 3600 = 60,000,000 nanos = $0.06" in shown
    assert "platform fee 15.25 %" in shown
    assert "the host gets $0.05085" in shown


def test_one_charge_fits_on_a_page_however_long_its_history() -> None:
    """A thousand gaps, hours and anomalies are counted, not listed."""
    shown = text([explanation(1_000)])
    assert len(shown.splitlines()) <= 65
    assert "and 994 more spans, in all 30,000 s (--json shows all)" in shown
    assert "and 994 more anomalies" in shown


def test_an_open_end_is_now() -> None:
    """A life that goes on has no end and no length."""
    assert "life         2026-03-01T10:00:00Z to now\n" in text([explanation()])


def test_without_reports_none_are_named() -> None:
    """A charge that nobody attested yet names no report."""
    bare = msgspec.structs.replace(explanation(), first_report=None, last_report=None)
    assert "report" not in text([bare])
