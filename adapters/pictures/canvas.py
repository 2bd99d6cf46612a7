"""What all pictures share: paper, colours, the axis of time, lanes, bars, and how they are saved.

Figures are made without `pyplot`, so that several threads can draw at once.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter, date2num
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter

from ledger.domain.money import NANOS_PER_DOLLAR
from ledger.services.questions.timelines import Cost, Stretch

KINDS: Final = {"on_demand": "#0072b2", "interruptible": "#e69f00", "reserved": "#009e73"}
"""Okabe and Ito's colours: told apart by those who do not see all of them, too."""
ITEMS: Final = {
    "gpu_charge": ("GPU", "#0072b2"),
    "reserved_idle_charge": ("reserved, not held", "#56b4e9"),
    "storage_charge": ("storage", "#e69f00"),
    "up_charge": ("upload", "#cc79a7"),
    "down_charge": ("download", "#009e73"),
}
INK: Final = "#222222"
FAINT: Final = "#8a8a8a"
_STYLE: Final[dict[Any, Any]] = {
    # A label with dollar signs is a label, and no formula.
    "text.parse_math": False,
    "font.family": "sans-serif",
    "font.size": 9,
    "svg.fonttype": "none",
    "svg.hashsalt": "gpuledger",
    "axes.edgecolor": FAINT,
    "axes.labelcolor": INK,
    "xtick.color": INK,
    "ytick.color": INK,
}
_WIDTH_INCHES: Final = 10.0

mpl.rcParams.update(_STYLE)  # For the whole process: nothing else in it draws.


class Lane(NamedTuple):
    """One row of boxes under one name."""

    name: str
    stretches: Sequence[Stretch]
    colour: str


def paper(
    title: str, subtitle: str, heights: Sequence[float], start: int, until: int
) -> tuple[Figure, list[Axes]]:
    """A figure with one panel per entry of *heights* (inches), all over `[start, until)`."""
    head = 0.75
    figure = Figure(figsize=(_WIDTH_INCHES, head + sum(heights) + 0.3), layout="constrained")
    figure.get_layout_engine().set(rect=(0, 0, 1, 1 - 0.55 / figure.get_figheight()))  # type: ignore[union-attr, call-arg]
    panels = figure.subplots(
        len(heights), 1, sharex=True, squeeze=False, height_ratios=list(heights)
    )[:, 0]
    top = figure.get_figheight()
    figure.text(0.012, 1 - 0.2 / top, title, size=13, weight="bold", color=INK, va="center")
    figure.text(0.012, 1 - 0.43 / top, subtitle, size=9, color=FAINT, va="center")
    for panel in panels:
        panel.spines[["top", "right"]].set_visible(False)
        panel.set_xlim(when(start), when(until))
    locator = AutoDateLocator(tz=UTC, maxticks=9)  # type: ignore[no-untyped-call]
    panels[-1].xaxis.set_major_locator(locator)
    # The day is in the subtitle.
    formatter = ConciseDateFormatter(  # type: ignore[no-untyped-call]
        locator, tz=UTC, show_offset=False
    )
    panels[-1].xaxis.set_major_formatter(formatter)
    return figure, list(panels)


def when(second: int) -> float:
    """A Unix second as the axis of time counts."""
    return float(date2num(datetime.fromtimestamp(second, UTC)))  # type: ignore[no-untyped-call]


def lanes(panel: Axes, rows: Sequence[Lane]) -> None:
    """Draw *rows* from top to bottom."""
    for number, row in enumerate(rows):
        boxes = [(when(one.start), when(one.until) - when(one.start)) for one in row.stretches]
        panel.broken_barh(boxes, (number - 0.36, 0.72), facecolor=row.colour, linewidth=0)
    panel.set_yticks(range(len(rows)), [row.name for row in rows])
    panel.set_ylim(len(rows) - 0.4, -0.6)
    panel.tick_params(axis="y", length=0)
    panel.spines["left"].set_visible(False)


def costs(panel: Axes, rows: Sequence[Cost], seconds: int) -> None:
    """Draw what each hour or day cost, one item on the other."""
    used = [item for item in ITEMS if any(getattr(one, item) for one in rows)]
    bottom = [0.0] * len(rows)
    width = when(seconds) - when(0)
    for item in used:
        # A picture has no nanos: here, and only here, dollars are floats.
        heights = [getattr(one, item) / NANOS_PER_DOLLAR for one in rows]
        panel.bar(
            [when(one.start) for one in rows],
            heights,
            width=0.94 * width,
            bottom=bottom,
            align="edge",
            color=ITEMS[item][1],
            label=ITEMS[item][0],
        )
        bottom = [low + height for low, height in zip(bottom, heights, strict=True)]
    panel.set_ylabel("per hour" if seconds == 3_600 else "per day")  # noqa: PLR2004
    panel.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"${value:,.4g}"))
    panel.grid(axis="y", color="#e6e6e6", linewidth=0.6)
    panel.set_axisbelow(True)
    if used:
        legend(panel, [(ITEMS[item][0], ITEMS[item][1]) for item in used])


def legend(panel: Axes, entries: Iterable[tuple[str, str]]) -> None:
    """Name colours, above the panel at its right."""
    patches = [Patch(facecolor=colour, label=name) for name, colour in entries]
    panel.legend(
        handles=patches,
        loc="lower right",
        bbox_to_anchor=(1.0, 1.0),
        ncols=len(patches),
        frameon=False,
        fontsize=8,
        handlelength=1.0,
        borderaxespad=0.2,
    )


def saved(figure: Figure, form: str) -> bytes:
    """The drawn figure as bytes; the same timeline gives the same bytes."""
    buffer = io.BytesIO()
    stamp = {"png": {}, "svg": {"Date": None}, "pdf": {"CreationDate": None}}[form]
    figure.savefig(buffer, format=form, dpi=150, facecolor="white", metadata=stamp)
    return buffer.getvalue()
