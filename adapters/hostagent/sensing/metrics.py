"""What a monitoring system may ask the agent: GPUs under DCGM's names, and the agent about itself.

A value that is not known is absent, never 0. There is no gauge of the last XID: it would never
clear; faults are counted.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector as MetricsCollector

from adapters.hostagent.collector.port import CollectorStatus, GpuReading, NvmlState
from adapters.hostagent.collector.protocol import Field
from adapters.hostagent.collector.readings import SECOND_NS

if TYPE_CHECKING:
    from prometheus_client import Metric

    from adapters.hostagent.sensing.senses import Senses

PREFIX: Final = "ledger_agent_"
_MIB: Final = 1 << 20
_PAGE: Final = 4096
_STATES: Final[tuple[NvmlState, ...]] = (
    "down", "starting", "ok", "stale", "released", "reboot_required"
)  # fmt: skip
_GPU: Final[tuple[tuple[str, str, Field, int], ...]] = (
    ("DCGM_FI_DEV_GPU_UTIL", "Utilisation (%).", "util", 1),
    ("DCGM_FI_DEV_FB_USED", "Memory in use without the driver's reserve (MiB).", "mem_used", _MIB),
    ("DCGM_FI_DEV_FB_RESERVED", "Memory that the driver keeps (MiB).", "mem_reserved", _MIB),
    ("DCGM_FI_DEV_POWER_USAGE", "Power (W).", "power_mw", 1000),
    ("DCGM_FI_DEV_GPU_TEMP", "Temperature (C).", "temp_c", 1),
    ("DCGM_FI_DEV_PCIE_REPLAY_COUNTER", "PCIe retries.", "pcie_replays", 1),
    ("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", "Since the driver was loaded (mJ).", "energy_mj", 1),
)


class SensesMetrics(MetricsCollector):
    """What `Senses` knows, at the moment of the question."""

    def __init__(self, senses: Senses) -> None:
        """Tell of *senses*."""
        self._senses = senses

    def collect(self) -> Iterable[Metric]:
        """All families; without a number, a family is empty."""
        now_ns = time.monotonic_ns()
        yield from self._gpus(now_ns)
        yield from self._nvml(self._senses.collector.status(), now_ns)
        yield from self._self()

    def _gpus(self, now_ns: int) -> Iterator[Metric]:
        senses = self._senses
        slots = {one.uuid: str(one.slot) for one in senses.collector.identities()}
        readings = senses.collector.reading(now_ns).gpus
        labels = {
            uuid: (slots.get(uuid, ""), uuid, _label(senses.news_book.holder(uuid)))
            for uuid in readings
        }
        for name, text, field, unit in _GPU:
            family = GaugeMetricFamily(name, text, labels=("gpu", "UUID", "instance"))
            for uuid, gpu in readings.items():
                if field in gpu.values:
                    family.add_metric(labels[uuid], gpu.values[field] / unit)
            yield family
        free = GaugeMetricFamily(
            "DCGM_FI_DEV_FB_FREE", "Free memory (MiB).", labels=("gpu", "UUID", "instance")
        )
        for uuid, gpu in readings.items():
            found = _free_mib(gpu)
            if found is not None:
                free.add_metric(labels[uuid], found)
        yield free
        used = CounterMetricFamily(
            f"{PREFIX}energy_millijoules", "Used since the agent began.", labels=("UUID",)
        )
        for uuid, energy in senses.energy.used_mj.items():
            used.add_metric((uuid,), energy)
        yield used

    def _nvml(self, status: CollectorStatus, now_ns: int) -> Iterator[Metric]:
        yield GaugeMetricFamily(
            f"{PREFIX}nvml_generation", "Successful initialisations.", value=status.generation
        )
        state = GaugeMetricFamily(f"{PREFIX}nvml_state", "1 for the state.", labels=("state",))
        for one in _STATES:
            state.add_metric((one,), one == status.state)
        yield state
        yield GaugeMetricFamily(
            f"{PREFIX}abandoned_children",
            "Collectors that hang in the driver.",
            value=status.abandoned_children,
        )
        if status.last_good_sweep_ns is not None:
            yield GaugeMetricFamily(
                f"{PREFIX}last_good_sweep_age_seconds",
                "Since GPUs were last read.",
                value=(now_ns - status.last_good_sweep_ns) / SECOND_NS,
            )
        sweeps = GaugeMetricFamily(
            f"{PREFIX}sweep_seconds", "Duration of the last sweep.", labels=("cadence",)
        )
        for cadence, seconds in status.sweep_seconds.items():
            sweeps.add_metric((str(cadence),), seconds)
        yield sweeps
        fds = GaugeMetricFamily(f"{PREFIX}open_fds", "Open descriptors.", labels=("process",))
        rss = GaugeMetricFamily(f"{PREFIX}rss_bytes", "Resident memory.", labels=("process",))
        fds.add_metric(("main",), len(list(Path("/proc/self/fd").iterdir())))
        rss.add_metric(("main",), int(Path("/proc/self/statm").read_text().split()[1]) * _PAGE)
        if status.child_pid is not None and status.child_rss_bytes:
            fds.add_metric(("collector",), status.child_fds)
            rss.add_metric(("collector",), status.child_rss_bytes)
        yield fds
        yield rss

    def _self(self) -> Iterator[Metric]:
        senses = self._senses
        yield CounterMetricFamily(
            f"{PREFIX}ticks", "Seconds of instances attested.", value=senses.ticks_total
        )
        yield CounterMetricFamily(
            f"{PREFIX}missed_seconds",
            "Seconds that nobody looked into.",
            value=senses.missed_seconds_total,
        )
        yield CounterMetricFamily(
            f"{PREFIX}counter_resets",
            "Byte counters that fell.",
            value=senses.news_book.counter_resets,
        )
        if senses.time.offset_ms is not None:
            yield GaugeMetricFamily(
                f"{PREFIX}clock_offset_ms",
                "Wall clock ahead of the server.",
                value=senses.time.offset_ms,
            )
        xids = CounterMetricFamily(f"{PREFIX}xid", "GPU faults.", labels=("code",))
        for code, count in senses.news_book.faults.counts.items():
            xids.add_metric((code,), count)
        yield xids


def _label(instance: int | None) -> str:
    return "" if instance is None else str(instance)


def _free_mib(gpu: GpuReading) -> float | None:
    total, used = gpu.values.get("mem_total"), gpu.values.get("mem_used")
    if total is None or used is None:
        return None
    return (total - used - gpu.values.get("mem_reserved", 0)) / _MIB


def registry(senses: Senses, *others: MetricsCollector) -> CollectorRegistry:
    """All metrics of the agent: those of its senses, and what else it has to tell."""
    found = CollectorRegistry()
    for one in (SensesMetrics(senses), *others):
        found.register(one)
    return found


def render(metrics: CollectorRegistry) -> bytes:
    """Prometheus' text format."""
    return generate_latest(metrics)
