"""What an XID of the NVIDIA driver means: data with a version (`host-agent.md` §6)."""

from __future__ import annotations

from typing import Final, Literal

XID_POLICY_VERSION: Final = 1

XidClass = Literal["application", "degraded", "fatal", "suspect"]

_CLASSES: Final[dict[XidClass, frozenset[int]]] = {
    "application": frozenset({13, 31, 43, 45, 68, 109}),
    "degraded": frozenset({63, 92, 94}),
    "fatal": frozenset({48, 62, 64, 74, 79, 95, 119, 120}),
}
"""`application`: a renter's program did it. `degraded`: counts against the host, and the GPU is not
rented anew before a challenge passes. `fatal`: the same, and the GPU is lost to whoever has it."""


def xid_class(code: int | None) -> XidClass:
    """The class of a code; an unknown one makes the GPU `suspect` without counting against it."""
    return next((name for name, codes in _CLASSES.items() if code in codes), "suspect")
