"""The demo, whole: it is the first thing that anybody runs."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.serving import ROOT

SECONDS = 300


@pytest.mark.soak
def test_the_demo_ends_with_proven_books_and_leaves_no_process() -> None:
    """Real agents run renters' commands; the trial balance is 0, the rebuild equal, all is gone."""
    done = subprocess.run(
        [sys.executable, "-m", "adapters.cli.main", "demo", "--seconds", "12"],
        cwd=ROOT,
        env={**os.environ, "GPULEDGER_SHARED_BUFFERS": "128MB"},
        check=False,
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "the real agent" in done.stdout
    assert re.search(r"difference\s*│\s*│\s*0 │", done.stdout), done.stdout
    assert re.search(r"in \d+\.\d s: equal", done.stdout)
    (home,) = set(re.findall(r"--home (\S+)", done.stdout))
    assert not [one for one in Path("/proc").glob("[0-9]*") if home.encode() in _command(one)]


def _command(process: Path) -> bytes:
    try:
        return (process / "cmdline").read_bytes()
    except OSError:
        return b""
