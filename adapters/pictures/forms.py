"""The forms in which a timeline can be had as a picture; the plotting library is loaded then."""

from __future__ import annotations

from typing import Final

from ledger.services.questions.timelines import InstanceTimeline, MachineTimeline, SpendTimeline

Timeline = InstanceTimeline | MachineTimeline | SpendTimeline

MEDIA_TYPES: Final = {"svg": "image/svg+xml", "png": "image/png", "pdf": "application/pdf"}


def picture(timeline: Timeline, form: str) -> bytes:
    """Draw *timeline*; *form* is one of `MEDIA_TYPES`."""
    from adapters.pictures import canvas, drawings  # noqa: PLC0415 - 40 MB that only a picture needs

    assert form in MEDIA_TYPES, form
    match timeline:
        case InstanceTimeline():
            figure = drawings.instance(timeline)
        case MachineTimeline():
            figure = drawings.machine(timeline)
        case SpendTimeline():
            figure = drawings.spend(timeline)
    return canvas.saved(figure, form)
