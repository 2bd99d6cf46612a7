"""What the host agent costs: 8 simulated GPUs under the real binding, 8 instances, every second."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final

from adapters.hostagent.nvml.build import NoCompilerError, build
from tests.bench.row import Row
from tests.bench.running_agent import cost

GPUS: Final = 8
INSTANCES: Final = 8
SECONDS: Final = 65
QUICK_SECONDS: Final = 10
WARM_UP_SECONDS: Final = 4
CPU_PERCENT: Final = 2
RSS_MB: Final = 120


def rows(*, quick: bool = False) -> list[Row]:
    """CPU, memory and sweeps of both processes; no row on a machine without a compiler."""
    with tempfile.TemporaryDirectory(prefix="gpuledger-bench-") as name:
        folder = Path(name)
        try:
            build(folder, "full")
        except NoCompilerError:
            return []
        control = folder / "gpus.txt"
        control.write_text(_gpus())
        driver = {"LD_LIBRARY_PATH": name, "FAKE_NVML_CONTROL": str(control)}
        seconds = QUICK_SECONDS if quick else SECONDS
        return [*_senses(driver, seconds), *_whole(driver, seconds)]


def _senses(driver: dict[str, str], seconds: int) -> list[Row]:
    done = subprocess.run(
        [sys.executable, "-m", "tests.bench.agent", str(seconds)],
        env={**os.environ, **driver},
        stdout=subprocess.PIPE,
        check=True,
        text=True,
    )
    found = json.loads(done.stdout)
    sweeps = found["sweeps"]
    load = f"{GPUS} GPUs, {found['instances']} instances, every second for {seconds} s"
    return [
        Row(
            f"the host agent's senses, both processes together: {load}",
            f"{found['cpu_percent']:.2f} % of one core",
            f"≤ {CPU_PERCENT} %",
            f"parent {found['parent_percent']:.2f} %, collector {found['child_percent']:.2f} %",
        ),
        Row(
            f"sweeps of {GPUS} GPUs: 1 s, 5 s, 60 s",
            ", ".join(f"{sweeps[cadence] * 1e3:.1f} ms" for cadence in ("1", "5", "60")),
            "≤ 50 ms, ≤ 50 ms, ≤ 400 ms",
            "the last one samples PCIe 20 ms per direction and GPU: 320 ms of it",
        ),
    ]


def _whole(driver: dict[str, str], seconds: int) -> list[Row]:
    found = cost(driver, GPUS, INSTANCES, seconds, WARM_UP_SECONDS)
    parent, collector = (
        100 * cpu / found.seconds for cpu in (found.parent_cpu, found.collector_cpu)
    )
    load = f"{GPUS} GPUs, {INSTANCES} instances as processes, a report every 10 s, for {seconds} s"
    return [
        Row(
            f"the whole running agent, both processes together: {load}",
            f"{parent + collector:.2f} % of one core",
            f"≤ {CPU_PERCENT} %",
            f"parent {parent:.2f} %, collector {collector:.2f} %; {found.threads} threads, woken"
            f" {found.wake_ups / found.seconds:.0f} times a second; {found.reports} reports",
        ),
        Row(
            f"memory of both: {load}",
            f"{(found.parent_bytes + found.collector_bytes) / 1e6:.0f} MB resident",
            f"≤ {RSS_MB} MB",
            f"parent {found.parent_bytes / 1e6:.0f} MB, collector"
            f" {found.collector_bytes / 1e6:.0f} MB",
        ),
    ]


def _gpus() -> str:
    """A data-centre card of each; its samples are new at every sweep."""
    lines = [f"gpus={GPUS}", "event_poll_ms=1000"]
    for number in range(GPUS):
        lines += [
            f"gpu{number}.util={90 + number}",
            f"gpu{number}.procs={os.getpid()}:4294967296",
            f"gpu{number}.energy_mj=1",
            f"gpu{number}.ecc=0",
            f"gpu{number}.sample_ts=now",
        ]
    return "\n".join(lines) + "\n"


def _measure(seconds: int) -> dict[str, Any]:
    """Run the agent's senses in this process and say what they took."""
    from adapters.hostagent.collector.supervisor import NvmlCollector
    from adapters.hostagent.sensing.senses import Senses
    from adapters.hostagent.sensing.watched import Watched

    collector = NvmlCollector()
    senses = Senses(collector)
    senses.start()
    containers = [_container() for _ in range(INSTANCES)]
    senses.contact(time.monotonic_ns(), time.monotonic_ns(), time.time_ns() // 10**6)

    def live(until: float) -> None:
        while time.monotonic() < until:
            now_ns = time.monotonic_ns()
            time.sleep((senses.next_look_ns(now_ns) - now_ns) / 1e9)
            gpus = [gpu.uuid for gpu in collector.identities()]
            senses.look(
                [
                    Watched(1 + number, "running", one.pid, tuple(gpus[number : number + 1]))
                    for number, one in enumerate(containers)
                ]
            )
            while senses.attest(10) is not None:
                pass

    try:
        live(time.monotonic() + WARM_UP_SECONDS)
        began, child_began, parent_began = _moment(collector.status().child_cpu_ns)
        live(time.monotonic() + seconds)
        ended, child_ended, parent_ended = _moment(collector.status().child_cpu_ns)
        status = collector.status()
    finally:
        senses.stop()
        for one in containers:
            one.terminate()
            one.wait()
    wall = ended - began
    child, parent = (child_ended - child_began) / 1e9, parent_ended - parent_began
    return {
        "instances": len(containers),
        "cpu_percent": (child + parent) / wall * 100,
        "parent_percent": parent / wall * 100,
        "child_percent": child / wall * 100,
        "sweeps": {str(cadence): took for cadence, took in status.sweep_seconds.items()},
    }


def _moment(child_cpu_ns: int) -> tuple[float, int, float]:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return time.monotonic(), child_cpu_ns, used.ru_utime + used.ru_stime


def _container() -> subprocess.Popen[bytes]:
    """A process with a network of its own where the kernel lets us, else one without."""
    command = ["unshare", "--net", "sleep", "600"]
    if subprocess.run(["unshare", "--net", "true"], check=False).returncode:  # noqa: S607
        command = command[2:]
    return subprocess.Popen(command)


if __name__ == "__main__":
    sys.stdout.write(json.dumps(_measure(int(sys.argv[1]))))
