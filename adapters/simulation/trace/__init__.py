"""Billing a real cluster's trace: every pod a rental, every second of it a signed tick.

Nodes become machines, pods rentals. Placement is the trace's own (first node in file order with
enough free GPUs), or the auction's on a cluster cut small enough that displacement happens.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import msgspec
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from adapters.simulation.trace.auction import add_auction, print_auction
from adapters.simulation.trace.reading import read_nodes, read_pods
from adapters.simulation.trace.replay import ORIGIN, AuctionReplay, Replay
from adapters.simulation.trace.result import print_result, result_of
from adapters.simulation.world import World
from ledger.domain.usage import MAX_WINDOW_SECONDS
from ledger.errors import RejectedError
from ledger.services.ledger import Policy

_POLICY = Policy(
    version=1,
    fee_bp=1_500,
    late_usage_seconds=259_200,
    admission=True,
    offline_after_seconds=None,
)


def run(
    nodes_path: Path,
    pods_path: Path,
    *,
    start: int = 0,
    seconds: int | None = None,
    as_json: bool = False,
    keep: Path | None = None,
    interruptible: bool = False,
    first_nodes: int | None = None,
    min_gpus: int = 1,
) -> int:
    """Bill a trace and print what came of it; returns the exit code.

    With *interruptible* the cluster is cut to its *first_nodes* with at least *min_gpus* GPUs,
    best-effort pods bid, and the auction decides who runs.

    Raises:
        RejectedError: `invalid_trace`.
    """
    nodes = [node for node in read_nodes(nodes_path) if node.gpus >= min_gpus][:first_nodes]
    if not nodes:
        raise RejectedError("invalid_trace", f"no node has {min_gpus} GPUs or more")
    pods = read_pods(pods_path, start, seconds)
    began = time.monotonic()
    policy = replace(_POLICY, admit_waiting_bids=interruptible)
    world = World(ORIGIN + start, policy, home=keep, report_seconds=MAX_WINDOW_SECONDS)
    with world:
        world.keeps_delivered = False
        with _progress(quiet=as_json) as progress:
            kind = AuctionReplay if interruptible else Replay
            rentals_ = kind(world, nodes, pods, start, progress).run()
        billed = time.monotonic() - began
        result = result_of(world, nodes, rentals_)
        if interruptible:
            add_auction(world, result)
        if as_json:
            sys.stdout.write(msgspec.json.encode(result).decode() + "\n")
        else:
            print_result(nodes, rentals_, result, billed)
            if interruptible:
                print_auction(result)
            if keep is not None:
                sys.stdout.write(f"kept in {keep}: try gpuledger rebuild --check --home {keep}\n")
    return 0


@contextmanager
def _progress(*, quiet: bool) -> Iterator[Progress]:
    console = Console(stderr=True, quiet=quiet and not sys.stderr.isatty())
    with Progress(
        TextColumn("[progress.description]{task.description}"),
        BarColumn(),
        TextColumn("{task.percentage:>5.1f} %  {task.fields[ticks]} ticks"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        console=console,
    ) as progress:
        yield progress
