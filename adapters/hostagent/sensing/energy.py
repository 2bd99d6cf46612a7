"""Energy that GPUs used: differences of a counter inside one generation, else power times time."""

from __future__ import annotations

from typing import Final, NamedTuple

from adapters.hostagent.collector.port import Reading

MAX_INTEGRATION_NS: Final = 15_000_000_000
"""Power that was not read for so long is not guessed."""
_MW_NS_PER_MJ: Final = 1_000_000_000
"""One milliwatt for one second is one millijoule."""


class _Last(NamedTuple):
    generation: int
    at_ns: int
    energy_mj: int | None
    power_mw: int | None


class EnergyMeter:
    """Millijoules per GPU since the agent began; a counter that fell adds nothing."""

    def __init__(self) -> None:
        """Begin at zero."""
        self.used_mj: dict[str, int] = {}
        self._last: dict[str, _Last] = {}

    def look(self, reading: Reading, now_ns: int) -> None:
        """Add what was used since the last look; call at least every few seconds."""
        for uuid, gpu in reading.gpus.items():
            now = _Last(
                reading.generation, now_ns, gpu.values.get("energy_mj"), gpu.values.get("power_mw")
            )
            used = self._between(self._last.get(uuid), now)
            if used is not None:
                self.used_mj[uuid] = self.used_mj.get(uuid, 0) + used
            self._last[uuid] = now

    def _between(self, last: _Last | None, now: _Last) -> int | None:
        if last is None or last.generation != now.generation:
            return None
        if now.energy_mj is not None and last.energy_mj is not None:
            return max(0, now.energy_mj - last.energy_mj)
        passed_ns = now.at_ns - last.at_ns
        if now.energy_mj is not None or now.power_mw is None or passed_ns > MAX_INTEGRATION_NS:
            return None
        return now.power_mw * passed_ns // _MW_NS_PER_MJ
