"""LIFE-03: a training job on an interruptible instance is outbid, resumes, and is bit-equal."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.hostagents import HostAgent, until
from tests.e2e.serving import ROOT, Serving

TRAIN = ROOT / "examples" / "train" / "train.py"
STEPS = 400
ENVIRONMENT = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that users of no rights can write to, as an object store is."""
    one = Path(tempfile.mkdtemp(prefix="gl-store-"))
    one.chmod(0o777)
    yield one
    shutil.rmtree(one)


def command(store: Path, *options: str) -> list[str]:
    """The command line of a run into *store*."""
    return [sys.executable, str(TRAIN), "--store", str(store), "--steps", str(STEPS), *options]


def final(store: Path) -> dict[str, Any]:
    """What a finished run came to."""
    found: dict[str, Any] = json.loads((store / "final.json").read_text())
    return found


@pytest.fixture
def uninterrupted(folder: Path) -> dict[str, Any]:
    """The same run without any interruption."""
    store = folder / "whole"
    subprocess.run(
        command(store), check=True, env={**os.environ, **ENVIRONMENT}, capture_output=True
    )
    return final(store)


def test_an_outbid_training_run_ends_bit_equal_to_an_uninterrupted_one(
    folder: Path, uninterrupted: dict[str, Any]
) -> None:
    """The job is killed by a higher bid in its middle, resumes, and no bit of it differs."""
    # Fetched by the job's own user, as from a repository: it may not read this checkout.
    program = folder / "train.py"
    program.write_bytes(TRAIN.read_bytes())
    program.chmod(0o644)
    store = folder / "rented"
    pace = ["--every-seconds", "0.5", "--step-seconds", "0.02"]
    launch = {
        "args": [sys.executable, str(program), *command(store, *pace)[2:]],
        "env": ENVIRONMENT,
    }
    with Serving(workers=1) as serving:
        host = serving.person("hannah", "host")
        rita, otto = (serving.person(name, "renter", "100") for name in ("rita", "otto"))
        machine = serving.machine(host)
        agent = HostAgent(serving.url, machine.token)
        try:
            agent.start()
            path = f"/v1/machines/{machine.machine}"
            prices = {"gpu_hour": "3.60", "storage_gb_month": "0.15", "min_bid": "0.10"}
            serving.call("PUT", f"{path}/listing", prices, key=host)
            until(lambda: agent.status()["last_answer_seconds_ago"] is not None, "an answer")
            wish = {"machine_id": machine.machine, "disk_gb": 10}
            job = serving.call(
                "POST", "/v1/instances", {**wish, "bid": "0.20", "launch": launch}, key=rita
            )["instance_id"]
            until((store / "LATEST").exists, f"a checkpoint:\n{agent.log()}")
            other = serving.call(
                "POST",
                "/v1/instances",
                {**wish, "bid": "0.50", "launch": {"args": ["sleep", "1000"]}},
                key=otto,
            )["instance_id"]
            until(lambda: agent.state(other) == "running", "the higher bid to run")
            reached = json.loads((store / "LATEST").read_text())[0]
            assert 0 < reached < STEPS
            assert not (store / "final.json").exists()
            serving.call("DELETE", f"/v1/instances/{other}", key=otto)
            until((store / "final.json").exists, "the end of the training", 60)
            until(
                lambda: serving.call("GET", f"/v1/instances/{job}")["status"] == "stopped",
                "the end to be known",
            )
            said = agent.runtime().logs(str(job), 100).decode()
        finally:
            agent.close()
    assert said.count("begin at step") == 2
    assert f"begin at step {reached}" in said
    assert final(store) == uninterrupted


def test_a_checkpoint_whose_upload_was_cut_is_never_the_latest(
    folder: Path, uninterrupted: dict[str, Any]
) -> None:
    """A kill -9 in the middle of an upload leaves the pointer at the last complete checkpoint."""
    store = folder / "cut"
    pace = ["--every-seconds", "0.2", "--step-seconds", "0.005"]
    slow = [*pace, "--upload-bytes-per-second", "60000"]
    cut = 0
    for _ in range(3):
        process = subprocess.Popen(
            command(store, *slow), env={**os.environ, **ENVIRONMENT}, stdout=subprocess.DEVNULL
        )
        try:
            partial = wait_for_upload(store, process)
        finally:
            process.send_signal(signal.SIGKILL)
            process.wait()
        if partial is not None:
            cut += 1
            latest = json.loads((store / "LATEST").read_text())
            assert latest[1] != partial.name
    assert cut
    subprocess.run(
        command(store, *pace), check=True, env={**os.environ, **ENVIRONMENT}, capture_output=True
    )
    assert final(store) == uninterrupted


def wait_for_upload(store: Path, process: subprocess.Popen[bytes]) -> Path | None:
    """The object that is being uploaded right after a committed one; none when the run ended."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline and process.poll() is None:
        objects = sorted(store.glob("checkpoint-*.npz"))
        if (store / "LATEST").exists() and objects:
            latest = json.loads((store / "LATEST").read_text())[1]
            if objects[-1].name > latest and objects[-1].stat().st_size:
                return objects[-1]
        time.sleep(0.005)
    return None


def test_a_changed_checkpoint_is_refused(folder: Path) -> None:
    """A checkpoint that is not what was committed stops the job instead of training on it."""
    store = folder / "changed"
    environment = {**os.environ, **ENVIRONMENT}
    subprocess.run(
        command(store, "--steps", "10"), check=True, env=environment, capture_output=True
    )
    (found,) = store.glob("checkpoint-*.npz")
    raw = bytearray(found.read_bytes())
    raw[len(raw) // 2] ^= 1
    found.write_bytes(raw)
    again = subprocess.run(command(store), check=False, env=environment, capture_output=True)
    assert again.returncode != 0
    assert b"is not the checkpoint that was committed" in again.stderr
