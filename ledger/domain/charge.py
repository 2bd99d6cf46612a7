"""The names of charges: what a statement, a dispute and a correction point at.

A metered charge is what one instance was charged on one meter in one rate segment
(`instance-7.gpu.2`: instance, meter, number of the terms). A replacement is a charge of its own
(`correction-3`).
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple, cast, get_args

from ledger.domain.events import MeterName
from ledger.errors import NotFoundError

METERS: Final[tuple[MeterName, ...]] = get_args(MeterName)
_METERED: Final = re.compile(r"instance-([1-9][0-9]{0,17})\.([a-z_]+)\.([1-9][0-9]{0,8})")
_CORRECTION: Final = re.compile(r"correction-([1-9][0-9]{0,17})")


class Metered(NamedTuple):
    """One rate segment of one meter of an instance."""

    instance_id: int
    meter: MeterName
    terms_no: int

    def __str__(self) -> str:
        return f"instance-{self.instance_id}.{self.meter}.{self.terms_no}"


class Replacement(NamedTuple):
    """A charge that was posted as a correction."""

    correction_id: int

    def __str__(self) -> str:
        return f"correction-{self.correction_id}"


ChargeName = Metered | Replacement


def parse_charge(text: str) -> ChargeName:
    """The charge that *text* names.

    Raises:
        NotFoundError: `no_such_charge` for a name that no charge can have.
    """
    found = _CORRECTION.fullmatch(text)
    if found is not None:
        return Replacement(int(found[1]))
    found = _METERED.fullmatch(text)
    if found is None or found[2] not in METERS:
        raise NotFoundError("no_such_charge", f"there is no charge {text[:64]!r}")
    return Metered(int(found[1]), cast("MeterName", found[2]), int(found[3]))
