"""Each return code of NVML that the specification names, and what it ends (`host-agent.md` §5)."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from adapters.hostagent.collector.protocol import (
    BrokenFrameError,
    Frames,
    Open,
    Refused,
    Swept,
    Xid,
    frame,
)
from adapters.hostagent.collector.session import Session
from adapters.hostagent.nvml import build
from tests.support.fake_nvml import FakeGpus, InProcess, Libraries, collecting, until, uuid

Load = Callable[..., InProcess]


def here() -> FakeGpus:
    """The control file of this test."""
    return FakeGpus(Path(os.environ["FAKE_NVML_CONTROL"]).parent)


@pytest.mark.parametrize("code", [1, 9, 18])
def test_codes_of_the_driver_end_the_generation_at_once(in_process: Load, code: int) -> None:
    """Uninitialised, not loaded and mismatched: nothing more is asked in this generation."""
    session, _ = in_process().open()
    here().set({"gpus": 3, "fail.nvmlDeviceGetPowerUsage": code})
    swept = session.sweep(5)
    assert (swept.ended, swept.rows, swept.lost) == (code, [], [])


@pytest.mark.parametrize("code", [15, 28])
def test_codes_of_one_gpu_end_the_generation_after_the_sweep(in_process: Load, code: int) -> None:
    """Lost and not found: this GPU is marked, the others are read to the end of the sweep."""
    here().set(gpus=3)
    session, _ = in_process().open()
    here().set({"gpus": 3, "gpu1.fail.nvmlDeviceGetPowerUsage": code})
    swept = session.sweep(5)
    assert [row.uuid for row in swept.rows] == [uuid(0), uuid(2)]
    assert (swept.lost, swept.ended) == ([uuid(1)], 15)


@pytest.mark.parametrize(
    ("code", "status"),
    [(3, "not_supported"), (4, "no_permission"), (6, "not_supported"), (13, "function_missing")],
)
def test_codes_of_a_field_are_asked_once(in_process: Load, code: int, status: str) -> None:
    """What a card cannot do stays so for the generation, even if the driver changes its mind."""
    here().set({"fail.nvmlDeviceGetTemperature": code})
    loaded = in_process()
    session, _ = loaded.open()
    assert session.sweep(5).rows[0].missing["temp_c"] == status
    here().set()
    assert session.sweep(5).rows[0].missing["temp_c"] == status
    assert sum("nvmlDeviceGetTemperature" in line for line in loaded.logged) == 1
    assert loaded.sweep(5).rows[0].values["temp_c"] == 40


@pytest.mark.parametrize("code", [2, 20, 25, 999])
def test_any_other_code_is_an_error_of_this_sweep(in_process: Load, code: int) -> None:
    """The field has no number now, and has one again in the next sweep."""
    here().set({"fail.nvmlDeviceGetTemperature": code})
    session, _ = in_process().open()
    swept = session.sweep(5)
    assert swept.ended is None
    assert swept.rows[0].missing["temp_c"] == "error"
    here().set()
    assert session.sweep(5).rows[0].values["temp_c"] == 40


@pytest.mark.parametrize("code", [1, 9, 12, 16, 18, 999])
def test_codes_at_the_start_refuse_a_generation(in_process: Load, code: int) -> None:
    """Whatever `nvmlInit` answers but success, there is no generation, and the code is told."""
    in_process()
    here().set({"fail.nvmlInitWithFlags": code})
    assert Session(lambda _: None, lambda _: None).open() == Refused(code)


def test_no_gpu_where_some_are_registered_is_a_failure(child_driver: FakeGpus) -> None:
    """An empty machine that should have a GPU is `nvml_unavailable`, and no generation begins."""
    child_driver.set(gpus=0)
    with collecting([uuid(0)]) as collector:
        until(lambda: collector.status().state == "down" and collector.take_findings())
        assert collector.status().generation == 0


def test_every_fault_is_told_once(in_process: Load) -> None:
    """An XID event arrives with its GPU; the same one is not told again."""
    here().set(gpus=2)
    loaded = in_process()
    loaded.open()
    here().set({"gpus": 2, "xid": "1:31:once"})
    until(lambda: loaded.told)
    found = loaded.told[0]
    assert isinstance(found, Xid)
    assert (found.code, found.uuid) == (31, uuid(1))
    loaded.close()
    assert len(loaded.told) == 1


def test_data_centre_cards_tell_more(in_process: Load) -> None:
    """Retired pages, remapped rows, links, clocks and limits are read where they exist."""
    here().set(
        {
            "gpu0.pages_single": 2,
            "gpu0.pages_double": 1,
            "gpu0.rows_uncorrected": 3,
            "gpu0.rows_pending": 1,
            "gpu0.ecc": 12,
            "gpu0.util": 90,
            "gpu0.sample_ts": 100,
        }
    )
    session, opened = in_process("full").open()
    slow = session.sweep(60).rows[0].values
    assert (slow["pages_retired_single"], slow["pages_retired_double"]) == (2, 1)
    assert (slow["rows_remapped_uncorrected"], slow["rows_pending"]) == (3, 1)
    assert (slow["nvlinks"], slow["ecc_uncorrected_volatile"]) == (18, 12)
    five = session.sweep(5).rows[0].values
    assert (five["power_limit_mw"], five["sm_mhz"], five["mem_mhz"]) == (700_000, 1980, 2619)
    identity = opened.gpus[0]
    assert (identity.compute_capability, identity.power_limit_mw) == ("9.0", 700_000)
    assert identity.memory_bandwidth_mb_s == 5120 * 2619 * 2 // 8


def test_utilisation_is_the_mean_of_the_drivers_samples(in_process: Load) -> None:
    """After the first sweep the samples since the last one are averaged; none is used twice."""
    here().set({"gpu0.util": 50, "gpu0.sample_ts": 100})
    session, _ = in_process("full").open()
    assert session.sweep(1).rows[0].values["util"] == 50
    here().set({"gpu0.util": 80, "gpu0.sample_ts": 103})
    assert session.sweep(1).rows[0].values["util"] == (79 + 80 + 81) // 3
    here().set({"gpu0.util": 20, "gpu0.sample_ts": 103})
    assert session.sweep(1).rows[0].values["util"] == 20


def test_the_stub_has_the_symbols_it_should(libraries: Libraries) -> None:
    """New and old differ by what old drivers lack; everything else ends as function missing."""

    def symbols(variant: str) -> set[str]:
        listing = subprocess.run(
            ["nm", "-D", "--defined-only", str(libraries.path(variant))],  # noqa: S607 - of the compiler
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        return set(re.findall(r"\bnvml\w+", listing))

    new, old = symbols("new"), symbols("old")
    assert new - old == {
        "nvmlDeviceGetComputeRunningProcesses_v3",
        "nvmlDeviceGetGraphicsRunningProcesses_v3",
        "nvmlDeviceGetMemoryInfo_v2",
        "nvmlDeviceGetCurrentClocksEventReasons",
    }
    assert old - new == {
        "nvmlDeviceGetComputeRunningProcesses_v2",
        "nvmlDeviceGetGraphicsRunningProcesses_v2",
    }
    assert len(new) == 37
    assert "nvmlDeviceGetFanSpeed" not in new


def test_the_stub_is_built_by_hand_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The command behind `make fake-gpu` says how to use what it built, or refuses."""
    assert build.main([str(tmp_path / "fake")]) == 0
    assert f"LD_LIBRARY_PATH={tmp_path / 'fake'}" in capsys.readouterr().out
    assert build.main([str(tmp_path), "newest"]) == 2
    assert build.main([]) == 2


@pytest.mark.parametrize(
    ("module", "never"),
    [
        ("adapters.hostagent.collector.child", ("sqlalchemy", "httpx", "cryptography", "ledger")),
        ("adapters.hostagent.sensing.senses", ("sqlalchemy", "pynvml", "litestar", "psycopg")),
    ],
)
def test_each_process_imports_only_what_it_runs(module: str, never: tuple[str, ...]) -> None:
    """The child knows nothing of the ledger, and the agent nothing of NVML: memory is a limit."""
    code = f"import sys, {module}; print(*(set(sys.modules) & {set(never)!r}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


def test_frames_survive_any_cut() -> None:
    """A message arrives whole however its bytes are split; garbage is refused, not guessed."""
    message = Swept(
        cadence=1, began_ns=1, ended_ns=2, rows=[], lost=["x"], open_fds=3, rss_bytes=4, cpu_ns=5
    )
    data = frame(message) + frame(message)
    for size in (1, 3, 7, len(data)):
        frames = Frames()
        found = [
            one for at in range(0, len(data), size) for one in frames.answers(data[at : at + size])
        ]
        assert found == [message, message]
    with pytest.raises(BrokenFrameError):
        Frames().answers(b"\xff\xff\xff\xff")
    with pytest.raises(BrokenFrameError):
        Frames().answers(frame(Open()))
