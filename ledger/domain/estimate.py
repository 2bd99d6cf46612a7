"""What the calculators share: inputs that are checked once, in their own units.

Estimates are floats, and nothing here ever posts money (`marketplace.md` §17). The bounds of the
inputs are wide enough for any rental, and narrow enough that no sum or product overflows.
"""

from __future__ import annotations

from functools import cache
from typing import Annotated, Any, Final, dataclass_transform, get_type_hints

import msgspec
from msgspec import Meta

from ledger.errors import RejectedError

LEAST: Final = 1e-9
LIMIT: Final = 1e12
Amount = Annotated[float, Meta(ge=0, le=LIMIT)]
Positive = Annotated[float, Meta(ge=LEAST, le=LIMIT)]
Share = Annotated[float, Meta(ge=0, le=1)]
Bytes = Annotated[int, Meta(ge=0, le=10**18)]

MINUTES_PER_HOUR: Final = 60.0
SECONDS_PER_HOUR: Final = 3_600.0
HOURS_PER_RATE_MONTH: Final = 720.0
BYTES_PER_GB: Final = 1e9
BYTES_PER_GIB: Final = 2.0**30


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(msgspec.field,))
class Inputs(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What an estimate is made from; none exists with a number that is out of range.

    Raises:
        RejectedError: `invalid_args`, which names the field.
    """

    def __post_init__(self) -> None:
        for name, hint in _hints(type(self)):
            value = getattr(self, name)
            try:
                msgspec.convert(value, hint)
            except msgspec.ValidationError as error:
                message = f"{name}: {value!r:.40} will not do: {error}"
                raise RejectedError("invalid_args", message, status=400) from None


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(msgspec.field,))
class Result(msgspec.Struct, frozen=True, kw_only=True):
    """What an estimate says, with the formula and the inputs that it was made with."""


@cache
def _hints(kind: type[Inputs]) -> list[tuple[str, Any]]:
    hints = get_type_hints(kind, include_extras=True)
    return [(name, hints[name]) for name in kind.__struct_fields__]


def storage_dollars_per_hour(dollars_per_gb_month: float, disk_gb: float) -> float:
    """What a disk costs an hour; a month in a rate is 720 h."""
    return dollars_per_gb_month * disk_gb / HOURS_PER_RATE_MONTH
