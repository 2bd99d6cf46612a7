"""Time zones from the pinned package, never from the machine: the same rules wherever it runs."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from zoneinfo import ZoneInfo

from ledger.errors import RejectedError


@cache
def zone_names() -> frozenset[str]:
    """Every IANA name there is."""
    text = files("tzdata").joinpath("zones").read_text(encoding="ascii")
    return frozenset(text.split())


@cache
def zone(name: str) -> ZoneInfo:
    """The zone with an IANA name.

    Raises:
        RejectedError: `invalid_args` for a name that is none.
    """
    if name not in zone_names():
        message = f"{name!r} is no IANA time zone; write one such as Europe/Berlin or UTC"
        raise RejectedError("invalid_args", message)
    place = files("tzdata").joinpath("zoneinfo", *name.split("/"))
    with place.open("rb") as file:
        return ZoneInfo.from_file(file, key=name)
