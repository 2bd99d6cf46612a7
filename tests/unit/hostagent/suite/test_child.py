"""The suite's process: what comes of it when it answers, and when it does not."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from adapters.hostagent.suite.child import ChildSuite
from adapters.hostagent.suite.port import Measured

UUIDS = ["GPU-a", "GPU-b"]


def python(folder: Path, script: str) -> str:
    """A Python that does what the shell's *script* does."""
    file = folder / "python"
    file.write_text(f"#!/bin/sh\nread request\n{script}\n")
    file.chmod(0o700)
    return str(file)


@pytest.mark.skipif(importlib.util.find_spec("torch") is not None, reason="PyTorch is installed")
def test_a_python_without_a_framework_is_not_able() -> None:
    """The real process starts, finds nothing to compute with, and says so."""
    found = ChildSuite(UUIDS).run("challenge", "ab", 30)
    assert found == Measured("inconclusive", {"reason": "no_framework"})


def test_its_answer_is_taken_and_its_gpus_are_those_of_the_machine(tmp_path: Path) -> None:
    """The process sees the registered GPUs by UUID, in their order, and no other."""
    program = 'printf \'{"result": "passed", "measures": {"seen": "%s"}}\\n\' $CUDA_VISIBLE_DEVICES'
    suite = ChildSuite(UUIDS, python(tmp_path, program))
    assert suite.run("benchmark", "ab", 10) == Measured("passed", {"seen": "GPU-a,GPU-b"})
    assert suite.pids() == frozenset()


@pytest.mark.parametrize("program", ["exit 3", "kill -SEGV $$"])
def test_a_process_that_ends_without_a_word_is_no_result(tmp_path: Path, program: str) -> None:
    """A crash of the framework is no proof of a fault of the GPU."""
    found = ChildSuite(UUIDS, python(tmp_path, program)).run("challenge", "ab", 10)
    assert found == Measured("inconclusive", {"reason": "suite_ended"})


def test_a_python_that_is_not_there_is_not_able(tmp_path: Path) -> None:
    """A path with a slip of the pen stops no agent."""
    found = ChildSuite(UUIDS, str(tmp_path / "python")).run("challenge", "ab", 10)
    assert found == Measured("inconclusive", {"reason": "no_framework"})


def test_what_takes_too_long_has_failed_and_is_ended(tmp_path: Path) -> None:
    """A GPU that does not finish in its time has not done its work."""
    suite = ChildSuite(UUIDS, python(tmp_path, "exec sleep 60"))
    assert suite.run("challenge", "ab", 0.3) == Measured("failed", {"reason": "too_slow"})
    assert suite.pids() == frozenset()


def test_who_rents_the_machine_gets_its_gpus_at_once(tmp_path: Path) -> None:
    """The check is given up, within a second, and no check begins while somebody rents."""
    mark = tmp_path / "began"
    suite = ChildSuite(
        UUIDS, python(tmp_path, f"touch {mark}; exec sleep 60"), is_rented=mark.exists
    )
    began = time.monotonic()
    assert suite.run("challenge", "ab", 60) == Measured("inconclusive", {"reason": "rented"})
    assert suite.pids() == frozenset()
    assert suite.run("challenge", "ab", 60) == Measured("inconclusive", {"reason": "rented"})
    assert time.monotonic() - began < 5


def test_a_process_that_a_driver_holds_is_left_behind_and_never_killed(tmp_path: Path) -> None:
    """While it is there, its pid is the platform's own and no other check begins."""
    ready = tmp_path / "ready"
    program = f"trap '' TERM; touch {ready}; while [ -e {ready} ]; do sleep 0.05; done"
    suite = ChildSuite(UUIDS, python(tmp_path, program), grace_seconds=0.1)
    assert suite.run("challenge", "ab", 1).measures == {"reason": "too_slow"}
    (pid,) = suite.pids()
    assert Path(f"/proc/{pid}").exists()
    assert suite.run("challenge", "cd", 1) == Measured("failed", {"reason": "gpu_hangs"})
    ready.unlink()
    deadline = time.monotonic() + 10
    while suite.pids():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_the_process_ends_with_its_agent() -> None:
    """An agent that was killed leaves no full GPUs behind: standard input has ended."""
    code = (
        "import sys, time; sys.modules['torch'] = None;"
        " import adapters.hostagent.suite.__main__ as suite;"
        " suite.answer = lambda request: time.sleep(60); suite.main()"
    )
    child = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, env=os.environ)
    assert child.stdin is not None
    child.stdin.write(b'{"kind": "challenge"}\n')
    child.stdin.flush()
    time.sleep(0.2)
    child.stdin.close()
    assert child.wait(20) == 1
