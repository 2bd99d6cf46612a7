"""The one place that wires everything: which process runs what, on which ledger.

`gpuledger serve` is a small tree. The parent starts the embedded database and the HTTP server's
worker; a second child folds usage and runs the policies. Each can run alone with `--only`.
"""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Final

import structlog

from ledger.services import accounts
from ledger.services.ledger import Ledger

if TYPE_CHECKING:
    from litestar import Litestar

HOME_VARIABLE: Final = "GPULEDGER_HOME"
PARTS: Final = ("api", "projections", "jobs")
_STOP_SECONDS: Final = 15


def serve(home: Path, host: str, port: int, only: str | None = None) -> int:
    """Run the product, or one part of it, until SIGINT or SIGTERM; returns the exit code."""
    configure_logging()
    os.environ[HOME_VARIABLE] = str(home)
    with_api = only in (None, "api")
    ledger = Ledger.open(home)
    try:
        ledger.adopt_policy()
        _print_first_key(ledger)
        if not with_api:
            assert only is not None
            return work(ledger, {only})
        background = None if only == "api" else _start_background(home)
        try:
            sys.stdout.write(f"gpuledger listens on http://{host}:{port} (docs at /docs)\n")
            sys.stdout.flush()
            _serve_api(host, port)
        finally:
            if background is not None:
                _end(background)
    finally:
        ledger.close()
    return 0


def work(ledger: Ledger, parts: set[str]) -> int:
    """Run projections, jobs or both in this process until it is told to stop."""
    from adapters.jobs import run_projections, start_jobs, watch_parent

    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    watch_parent(stop)
    scheduler = start_jobs(ledger) if "jobs" in parts else None
    if "projections" in parts:
        run_projections(ledger, stop)
    stop.wait()
    if scheduler is not None:
        scheduler.shutdown(wait=True)
    return 0


def create_app() -> Litestar:
    """The HTTP application of one API worker, on the ledger that the environment names."""
    from adapters.http.app import create_app as build
    from ledger.services.usage import UsageService

    configure_logging()
    ledger = Ledger.open(Path(os.environ[HOME_VARIABLE]))
    usage = UsageService(ledger)
    app = build(ledger, usage)

    def close() -> None:
        usage.close()
        ledger.close()

    app.on_shutdown.append(close)
    return app


def _serve_api(host: str, port: int) -> None:
    from granian import Granian
    from granian.constants import HTTPModes, Interfaces
    from granian.log import LogLevels

    server = Granian(
        "adapters.main:create_app",
        factory=True,
        address=host,
        port=port,
        interface=Interfaces.ASGI,
        http=HTTPModes.http1,
        workers=1,
        respawn_failed_workers=True,
        log_level=LogLevels.warning,
        workers_kill_timeout=_STOP_SECONDS,
    )
    server.serve()


def _start_background(home: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen(  # noqa: S603 - this program itself
        [sys.executable, "-m", "adapters.main", str(home)],
        start_new_session=True,
    )


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(_STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _print_first_key(ledger: Ledger) -> None:
    """On the first start, make the admin's key and show it once."""
    with ledger.reading() as connection:
        known = connection.execute("SELECT 1 FROM api_keys WHERE role = 'admin' LIMIT 1").fetchone()
    if known is not None:
        return
    with ledger.unit() as unit:
        key = accounts.create_key(unit, accounts.ensure_account(unit, "admin"), "admin")
    sys.stdout.write(f"admin key (shown once, keep it): {key}\n")
    sys.stdout.flush()


def configure_logging() -> None:
    """Readable lines on a terminal, JSON lines elsewhere; on standard error."""
    renderer: structlog.types.Processor = structlog.processors.JSONRenderer()
    if sys.stderr.isatty():
        renderer = structlog.dev.ConsoleRenderer()
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            renderer,
        ],
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
    logging.getLogger("apscheduler").setLevel(logging.WARNING)


def _background() -> int:
    configure_logging()
    ledger = Ledger.open(Path(sys.argv[1]))
    try:
        return work(ledger, {"projections", "jobs"})
    finally:
        ledger.close()


if __name__ == "__main__":
    sys.exit(_background())
