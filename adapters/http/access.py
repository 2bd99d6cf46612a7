"""The access log's writer: entries wait in memory, and are written in batches behind the answers.

Nothing waits for it. When the database does not take them, or more come than can be kept, the
oldest are lost, and their number is told.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from typing import Any, Final

import structlog
from litestar import Request
from litestar.datastructures import State

from adapters.http.scopes import Endpoint
from ledger.errors import LedgerError
from ledger.services.access_log import Entry, prune, write
from ledger.services.api_keys import Principal
from ledger.services.ledger import Ledger

CALLED: Final = "gpuledger_called"
"""Under which name a request's state keeps its entry until its status is known."""
WAITING_MAX: Final = 10_000
_BATCH_SECONDS: Final = 0.5
_BATCH_MAX: Final = 2_000
_PRUNE_SECONDS: Final = 3_600.0
_WATCHED: Final = frozenset({"auditor", "admin"})
"""Of whom readings are kept too: they see what is not their own (§20)."""

log = structlog.get_logger("gpuledger.http")


def entry_of(
    request: Request[Any, Any, State], principal: Principal, endpoint: Endpoint, now: int
) -> Entry | None:
    """What is kept of a request, but for its status; None for a reading of one's own."""
    if request.method == "GET" and principal.role not in _WATCHED:
        return None
    client = request.client
    return Entry(
        at=now,
        account_id=principal.account_id,
        key_id=principal.key_id,
        role=principal.role,
        endpoint=endpoint.name,
        method=request.method,
        path=_path(request),
        status=0,
        address=None if client is None else client.host,
    )


def _path(request: Request[Any, Any, State]) -> str:
    """The path with its numbers; texts in it may be tokens or names, and stay away."""
    path = str(next(iter(request.route_handler.paths)))
    for name, value in request.path_params.items():
        shown = str(value) if isinstance(value, int) else f"{{{name}}}"
        kind = "int" if isinstance(value, int) else "str"
        path = path.replace(f"{{{name}:{kind}}}", shown)
    return path


class AccessWriter:
    """Keeps entries and writes them from a thread of its own, which starts with the first one."""

    def __init__(self, ledger: Ledger) -> None:
        """Write to this ledger's table."""
        self._ledger = ledger
        self._waiting: deque[Entry] = deque()
        self._lost = 0
        self._lock = threading.Lock()
        self._writing = threading.Lock()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._pruned = 0.0

    def note(self, entry: Entry) -> None:
        """Keep an entry; never waits for the database."""
        with self._lock:
            if len(self._waiting) >= WAITING_MAX:
                self._waiting.popleft()
                self._lost += 1
            self._waiting.append(entry)
            if self._thread is None and not self._stop.is_set():
                self._thread = threading.Thread(target=self._run, name="access-log", daemon=True)
                self._thread.start()

    def flush(self) -> None:
        """Write what waits; what the database does not take now waits on."""
        with self._writing:
            while batch := self._take():
                try:
                    write(self._ledger, batch)
                except LedgerError as error:
                    with self._lock:
                        self._waiting.extendleft(reversed(batch))
                    log.warning("access log waits", code=error.code)
                    return

    def close(self) -> None:
        """Write what waits, and end."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
        self.flush()

    def _take(self) -> list[Entry]:
        with self._lock:
            count = min(len(self._waiting), _BATCH_MAX)
            batch = [self._waiting.popleft() for _ in range(count)]
            lost, self._lost = self._lost, 0
        if lost:
            log.warning("access log entries lost", count=lost)
        return batch

    def _run(self) -> None:
        while not self._stop.wait(_BATCH_SECONDS):
            self.flush()
            if time.monotonic() - self._pruned > _PRUNE_SECONDS:
                self._pruned = time.monotonic()
                try:
                    prune(self._ledger)
                except LedgerError as error:
                    log.warning("access log not pruned", code=error.code)
