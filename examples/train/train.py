"""A training job that survives a kill at any moment, bit for bit.

It follows five rules, and needs nothing but numpy:

1. Checkpoints are written on a wall-clock timer, not every N steps: the work that a kill can cost
   is bounded in seconds, however fast this machine is.
2. A checkpoint holds weights, optimizer state, the state of the random numbers and the position in
   the data. Without any one of them the resumed run is another run.
3. The pointer `LATEST` is written last, and is the commit: a checkpoint whose upload was cut is a
   file that nobody looks at.
4. A checkpoint is verified by its checksum before it is used.
5. At start the job looks for the newest complete checkpoint; it needs to be told nothing.

The store is a folder, and stands for an object store: objects appear while they are uploaded.

    python train.py --store /mnt/store/run-42 --steps 2000 --every-seconds 20
"""

from __future__ import annotations

import argparse
import hashlib
import io
import json
import os
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]

SAMPLES, FEATURES, HIDDEN, BATCH = 512, 16, 32, 16
LEARNING_RATE, BETA_1, BETA_2, EPSILON = 1e-3, 0.9, 0.999, 1e-8
_CHUNK = 4_096
_KEPT = 3


class Batches:
    """The data in a random order, anew in each epoch; `position` is the next sample."""

    def __init__(self, random: np.random.Generator) -> None:
        self._random = random
        self.order = random.permutation(SAMPLES)
        self.position = 0

    def next(self) -> npt.NDArray[np.int64]:
        """The indices of the next batch."""
        if self.position + BATCH > SAMPLES:
            self.order = self._random.permutation(SAMPLES)
            self.position = 0
        batch = self.order[self.position : self.position + BATCH]
        self.position += BATCH
        return batch


class Training:
    """A network of two layers under Adam, with noise on its input; everything that it depends on.

    `state` and `load` are each other's inverse: nothing outside of them decides the next step.
    """

    def __init__(self, seed: int) -> None:
        data = np.random.default_rng(seed)
        self._inputs = data.normal(size=(SAMPLES, FEATURES))
        self._targets = np.sin(self._inputs @ data.normal(size=(FEATURES, 1)))
        self.random = np.random.default_rng(seed + 1)
        self.weights: list[Array] = [
            self.random.normal(size=(FEATURES, HIDDEN)) / FEATURES**0.5,
            self.random.normal(size=(HIDDEN, 1)) / HIDDEN**0.5,
        ]
        self.means = [np.zeros_like(one) for one in self.weights]
        self.squares = [np.zeros_like(one) for one in self.weights]
        self.batches = Batches(self.random)
        self.step = 0

    def advance(self) -> float:
        """One step; returns the loss."""
        batch = self.batches.next()
        inputs = self._inputs[batch] + 0.01 * self.random.normal(size=(BATCH, FEATURES))
        hidden = np.tanh(inputs @ self.weights[0])
        error = hidden @ self.weights[1] - self._targets[batch]
        back = (error @ self.weights[1].T) * (1 - hidden**2)
        gradients = [inputs.T @ back / BATCH, hidden.T @ error / BATCH]
        self.step += 1
        for index, gradient in enumerate(gradients):
            self._adam(index, gradient)
        return float(np.mean(error**2))

    def _adam(self, index: int, gradient: Array) -> None:
        mean, square = self.means[index], self.squares[index]
        mean += (1 - BETA_1) * (gradient - mean)
        square += (1 - BETA_2) * (gradient**2 - square)
        scale = (1 - BETA_2**self.step) ** 0.5 / (1 - BETA_1**self.step)
        self.weights[index] -= LEARNING_RATE * scale * mean / (np.sqrt(square) + EPSILON)

    def state(self) -> bytes:
        """Everything that the next step depends on."""
        arrays: dict[str, Any] = {"order": self.batches.order}
        for index in range(len(self.weights)):
            arrays[f"weight_{index}"] = self.weights[index]
            arrays[f"mean_{index}"] = self.means[index]
            arrays[f"square_{index}"] = self.squares[index]
        rest = {
            "step": self.step,
            "position": self.batches.position,
            "random": self.random.bit_generator.state,
        }
        arrays["rest"] = np.frombuffer(json.dumps(rest, sort_keys=True).encode(), dtype=np.uint8)
        buffer = io.BytesIO()
        np.savez(buffer, **arrays)
        return buffer.getvalue()

    def load(self, state: bytes) -> None:
        """Go on as if the run that wrote *state* had never ended."""
        with np.load(io.BytesIO(state), allow_pickle=False) as arrays:
            for index in range(len(self.weights)):
                self.weights[index] = arrays[f"weight_{index}"]
                self.means[index] = arrays[f"mean_{index}"]
                self.squares[index] = arrays[f"square_{index}"]
            self.batches.order = arrays["order"]
            rest = json.loads(arrays["rest"].tobytes())
        self.step = rest["step"]
        self.batches.position = rest["position"]
        self.random.bit_generator.state = rest["random"]

    def fingerprint(self) -> str:
        """SHA-256 of all numbers: equal only if every bit is."""
        digest = hashlib.sha256()
        for one in (*self.weights, *self.means, *self.squares):
            digest.update(one.tobytes())
        random = json.dumps(self.random.bit_generator.state, sort_keys=True)
        digest.update(f"{self.step} {self.batches.position} {random}".encode())
        return digest.hexdigest()


class Pointer(NamedTuple):
    """What `LATEST` says."""

    step: int
    name: str
    sha256: str


class Store:
    """A folder in the place of an object store, with uploads that take their time."""

    def __init__(self, folder: Path, bytes_per_second: int | None = None) -> None:
        self._folder = folder
        self._bytes_per_second = bytes_per_second
        folder.mkdir(parents=True, exist_ok=True)

    def save(self, step: int, state: bytes) -> None:
        """Upload a checkpoint, then commit it; between the two a kill changes nothing."""
        name = f"checkpoint-{step:08d}.npz"
        self._upload(self._folder / name, state)
        pointer = Pointer(step, name, hashlib.sha256(state).hexdigest())
        new = self._folder / "LATEST.new"
        new.write_text(json.dumps(pointer))
        _to_disk(new)
        new.replace(self._folder / "LATEST")
        for old in sorted(self._folder.glob("checkpoint-*.npz"))[:-_KEPT]:
            if old.name != name:
                old.unlink()

    def latest(self) -> tuple[int, bytes] | None:
        """The newest complete checkpoint; none at the first start.

        Raises:
            ValueError: The object is not what was committed.
        """
        try:
            pointer = Pointer(*json.loads((self._folder / "LATEST").read_text()))
        except FileNotFoundError:
            return None
        state = (self._folder / pointer.name).read_bytes()
        if hashlib.sha256(state).hexdigest() != pointer.sha256:
            message = f"{pointer.name} is not the checkpoint that was committed"
            raise ValueError(message)
        return pointer.step, state

    def _upload(self, path: Path, state: bytes) -> None:
        with path.open("wb") as file:
            for at in range(0, len(state), _CHUNK):
                chunk = state[at : at + _CHUNK]
                file.write(chunk)
                file.flush()
                if self._bytes_per_second is not None:
                    time.sleep(len(chunk) / self._bytes_per_second)
        _to_disk(path)


def _to_disk(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def main() -> None:
    """Train to the end, from wherever the last run was cut."""
    parser = argparse.ArgumentParser(description="Train a small network; survive any kill.")
    parser.add_argument("--store", type=Path, required=True, help="where checkpoints go")
    parser.add_argument("--steps", type=int, default=2_000)
    parser.add_argument("--seed", type=int, default=42)
    parser.add_argument("--every-seconds", type=float, default=1_200.0, help="of the wall clock")
    parser.add_argument("--step-seconds", type=float, default=0.0, help="slow each step down")
    parser.add_argument("--upload-bytes-per-second", type=int, default=None)
    options = parser.parse_args()

    training = Training(options.seed)
    store = Store(options.store, options.upload_bytes_per_second)
    found = store.latest()
    if found is not None:
        training.load(found[1])
    print(f"begin at step {training.step}", flush=True)
    saved_at = time.monotonic()
    loss = float("nan")
    while training.step < options.steps:
        loss = training.advance()
        time.sleep(options.step_seconds)
        if time.monotonic() - saved_at >= options.every_seconds:
            store.save(training.step, training.state())
            saved_at = time.monotonic()
            print(f"step {training.step}: loss {loss:.6f}, saved", flush=True)
    store.save(training.step, training.state())
    done = {"step": training.step, "fingerprint": training.fingerprint(), "loss": loss}
    new = options.store / "final.new"
    new.write_text(json.dumps(done))
    new.replace(options.store / "final.json")
    print(f"done: {done}", flush=True)


if __name__ == "__main__":
    main()
