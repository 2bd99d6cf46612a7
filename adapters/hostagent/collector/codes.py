"""NVML's return codes as far as they are told apart here; the agent knows them without NVML."""

from __future__ import annotations

from typing import Final

SET_CHANGED: Final = -1
"""In place of a code: other GPUs are there, so the handles are not to be trusted."""
NO_GPUS: Final = -2
"""In place of a code: NVML works and finds none, though some are registered."""

INVALID_ARGUMENT: Final = 2
UNINITIALISED: Final = 1
NOT_SUPPORTED: Final = 3
NO_PERMISSION: Final = 4
NOT_FOUND: Final = 6
DRIVER_NOT_LOADED: Final = 9
TIMEOUT: Final = 10
FUNCTION_MISSING: Final = 13
GPU_LOST: Final = 15
VERSION_MISMATCH: Final = 18
GPU_NOT_FOUND: Final = 28

ENDING: Final = frozenset({UNINITIALISED, DRIVER_NOT_LOADED, VERSION_MISMATCH})
"""Codes after which no handle of the generation is good."""
LOSING: Final = frozenset({GPU_LOST, GPU_NOT_FOUND})
"""Codes that mean one GPU first; the generation ends after the sweep."""

UNKNOWN_XID: Final = 999
"""What NVML itself says when a fault has no number."""
