"""The three pictures: the life of an instance, a machine and who held it, what was spent."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

from matplotlib.figure import Figure

from adapters.pictures.canvas import (
    FAINT,
    ITEMS,
    KINDS,
    Lane,
    costs,
    lanes,
    legend,
    paper,
    when,
)
from ledger.domain.money import format_dollars
from ledger.services.questions.timelines import (
    Cost,
    InstanceTimeline,
    MachineTimeline,
    SpendTimeline,
)

_HEARD: Final = "#b8b8b8"
_LABEL_SHARE: Final = 0.03
"""A box narrower than this part of the picture has no room for a number."""


def instance(timeline: InstanceTimeline) -> Figure:
    """Four lanes and the costs below: a GPU second costs where the third and the fourth meet."""
    rows = [
        Lane("exists", timeline.existed, ITEMS["storage_charge"][1]),
        Lane("holds GPUs", timeline.held, ITEMS["reserved_idle_charge"][1]),
        Lane("runs (the server)", timeline.running, ITEMS["gpu_charge"][1]),
        Lane("attested (the host)", timeline.attested, _HEARD),
    ]
    label = "" if timeline.label is None else f" “{timeline.label}”"
    gpus = f"{timeline.gpus} GPU{'s' if timeline.gpus > 1 else ''}"
    figure, (upper, lower) = paper(
        f"Instance {timeline.instance_id}{label}",
        f"{timeline.kind.replace('_', ' ')}, {gpus} · {_span(timeline.start, timeline.until)}"
        f" · ${_total(timeline.costs)}",
        [1.3, 1.9],
        timeline.start,
        timeline.until,
    )
    lanes(upper, rows)
    costs(lower, timeline.costs, timeline.cost_seconds)
    return figure


def machine(timeline: MachineTimeline) -> Figure:
    """One lane per GPU, and below it the seconds that the machine attested."""
    figure, (upper, lower) = paper(
        f"Machine {timeline.machine_id}",
        f"{timeline.gpus} × {timeline.gpu_name} · {_span(timeline.start, timeline.until)}",
        [0.35 + 0.3 * timeline.gpus, 0.35],
        timeline.start,
        timeline.until,
    )
    width = timeline.until - timeline.start
    for one in timeline.held:
        left = when(one.start)
        upper.broken_barh(
            [(left, when(one.until) - left)],
            (one.slot - 0.42, 0.84),
            facecolor=KINDS.get(one.kind, FAINT),
            edgecolor="white",
            linewidth=0.8,
        )
        if one.until - one.start > _LABEL_SHARE * width:
            middle = (left + when(one.until)) / 2
            upper.text(
                middle, one.slot, str(one.instance_id), color="white", size=7, ha="center",
                va="center", clip_on=True,
            )  # fmt: skip
    upper.set_yticks(range(timeline.gpus), [f"GPU {slot}" for slot in range(timeline.gpus)])
    upper.set_ylim(timeline.gpus - 0.4, -0.6)
    upper.tick_params(axis="y", length=0)
    upper.spines["left"].set_visible(False)
    legend(upper, [(kind.replace("_", " "), colour) for kind, colour in KINDS.items()])
    lanes(lower, [Lane("attested", timeline.attested, _HEARD)])
    return figure


def spend(timeline: SpendTimeline) -> Figure:
    """Bars of what was spent, by item."""
    figure, (panel,) = paper(
        f"Account {timeline.account_id}: spent on usage",
        f"{_span(timeline.start, timeline.until)} · ${_total(timeline.costs)}",
        [2.6],
        timeline.start,
        timeline.until,
    )
    costs(panel, timeline.costs, timeline.cost_seconds)
    return figure


def _total(rows: list[Cost]) -> str:
    return format_dollars(sum(one.total for one in rows))


def _span(start: int, until: int) -> str:
    first, last = datetime.fromtimestamp(start, UTC), datetime.fromtimestamp(until, UTC)
    return f"{first:%Y-%m-%d %H:%M:%S} to {last:%Y-%m-%d %H:%M:%S} UTC"
