"""A progress bar on standard error; nothing where that is no terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def progress(what: str, of: str = "positions") -> Iterator[Callable[[int, int], None]]:
    """A function that takes (done, total); *of* is what is counted."""
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    with Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.completed:>15,.0f} of {task.total:,.0f} " + of),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True, quiet=not sys.stderr.isatty()),
        transient=True,
    ) as bar:
        task = bar.add_task(what, total=1)
        yield lambda done, total: bar.update(task, completed=done, total=max(total, 1))
