"""Reading a cluster's trace: its nodes, and the pods that used GPUs in a window."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from ledger.errors import RejectedError

GPU_HOUR: Final = {
    "P100": "0.20",
    "T4": "0.15",
    "V100M16": "0.30",
    "V100M32": "0.45",
    "A10": "0.35",
    "G2": "0.50",
    "G3": "0.80",
}


class Node(NamedTuple):
    """A machine of the trace."""

    name: str
    gpus: int
    model: str


class Pod(NamedTuple):
    """A task of the trace, clipped to the window; seconds from the start of the trace."""

    name: str
    gpus: int
    qos: str
    original: int
    start: int
    end: int


def read_nodes(path: Path) -> list[Node]:
    """The machines, in file order.

    Raises:
        RejectedError: `invalid_trace`.
    """
    with _rows(path, {"sn", "gpu", "model"}) as rows:
        nodes = [Node(row["sn"], int(row["gpu"]), row["model"]) for row in rows]
    unknown = {node.model for node in nodes} - GPU_HOUR.keys()
    if unknown:
        message = f"{path}: there is no price for the GPU models {', '.join(sorted(unknown))}"
        raise RejectedError("invalid_trace", message)
    return nodes


def read_pods(path: Path, start: int = 0, seconds: int | None = None) -> list[Pod]:
    """The tasks that use GPUs in the window, by (original scheduled second, name).

    Raises:
        RejectedError: `invalid_trace`.
    """
    end = None if seconds is None else start + seconds
    pods = []
    needed = {"name", "num_gpu", "qos", "scheduled_time", "deletion_time"}
    with _rows(path, needed) as rows:
        for row in rows:
            if not row["scheduled_time"] or not row["deletion_time"] or int(row["num_gpu"]) < 1:
                continue
            scheduled = int(row["scheduled_time"].partition(".")[0])
            deleted = int(row["deletion_time"].partition(".")[0])
            first = max(scheduled, start)
            last = deleted if end is None else min(deleted, end)
            if last > first:
                gpus = int(row["num_gpu"])
                pods.append(Pod(row["name"], gpus, row["qos"], scheduled, first, last))
    return sorted(pods, key=lambda pod: (pod.original, pod.name))


@contextmanager
def _rows(path: Path, needed: set[str]) -> Iterator[csv.DictReader[str]]:
    try:
        with path.open(newline="", encoding="utf-8") as file:
            rows = csv.DictReader(file)
            missing = needed - set(rows.fieldnames or ())
            if missing:
                message = f"{path} lacks the columns {', '.join(sorted(missing))}"
                raise RejectedError("invalid_trace", message)
            yield rows
    except (OSError, UnicodeDecodeError, ValueError, csv.Error) as error:
        message = f"{path} cannot be read as a trace: {error}"
        raise RejectedError("invalid_trace", message) from error
