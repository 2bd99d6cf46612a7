"""Read-only, on a machine that has a GPU: NVML and the kernel driver name the same cards."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.fake_nvml import FAST, collecting, has_swept, read, until

INFORMATION = Path("/proc/driver/nvidia/gpus")


@pytest.mark.skipif(not INFORMATION.exists(), reason="this machine has no NVIDIA driver")
def test_the_driver_and_the_collector_see_the_same_gpus() -> None:
    """Every UUID that the kernel driver shows is read, with memory and power."""
    shown = {
        line.partition(":")[2].strip()
        for path in INFORMATION.glob("*/information")
        for line in path.read_text().splitlines()
        if line.startswith("GPU UUID")
    }
    with collecting(pace=FAST._replace(second=1.0, deadline=5.0)) as collector:
        until(lambda: has_swept(collector), 60)
        gpus = read(collector).gpus
    assert set(gpus) == shown
    assert all(gpu.values["mem_total"] > 0 and gpu.values["power_mw"] > 0 for gpu in gpus.values())
