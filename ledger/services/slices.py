"""How a machine is cut: slice sizes, and a slice's share of the rest of the machine."""

from __future__ import annotations


def slice_sizes(gpus: int, min_gpus: int) -> list[int]:
    """The slices a machine is cut into: m, 2m, 4m, … and the whole machine."""
    sizes = []
    size = min_gpus
    while size < gpus:
        sizes.append(size)
        size *= 2
    return [*sizes, gpus]


def share(whole: int, gpus: int, machine_gpus: int) -> int:
    """What a slice of *gpus* gets of something the machine has *whole* of, rounded down."""
    return whole * gpus // machine_gpus
