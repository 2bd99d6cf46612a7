"""The one place that wires everything: which process runs what, on which ledger.

`gpuledger serve` is a small tree. The parent starts the embedded database and the HTTP server's
worker; a second child folds usage, runs the policies and starts the embedded database again when
it died. Each can run alone with `--only`. The parent starts a child that died again, and a child
whose parent died ends.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import gc
import importlib.util
import logging
import multiprocessing
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

import structlog

from adapters.mail.settings import configured as configured_mail
from ledger.errors import RejectedError
from ledger.services import accounts, api_keys
from ledger.services.ledger import Ledger
from ledger.services.listings import open_missing_offers
from ledger.services.webhooks import configured_reach

if TYPE_CHECKING:
    from collections.abc import Callable

    from litestar import Litestar

    from adapters.payments.settings import StripeSettings
    from adapters.payments.stripe_gateway import StripeGateway
    from adapters.registry.client import RegistryClient

HOME_VARIABLE: Final = "GPULEDGER_HOME"
RESOLVE_VARIABLE: Final = "GPULEDGER_RESOLVE_IMAGES"
"""Set to resolve the tags of images to digests when instances are created."""
PARTS: Final = ("api", "projections", "jobs")
_PARENT_VARIABLE: Final = "GPULEDGER_PARENT"
_STOP_SECONDS: Final = 15
_RESTART_SECONDS: Final = 1.0
_WORKERS: Final = 2
"""API processes unless told otherwise, one a core at most: signatures are what takes time."""
_WATCH_SECONDS: Final = 0.5
_PORT_SECONDS: Final = 3.0
"""How long a port may still be held by a worker whose parent was killed."""


def serve(
    home: Path,
    host: str,
    port: int,
    only: str | None = None,
    workers: int | None = None,
    *,
    resolve_images: bool = False,
) -> int:
    """Run the product, or one part of it, until SIGINT or SIGTERM; returns the exit code.

    Args:
        home: Folder of the ledger.
        host: Address to listen on.
        port: Port to listen on.
        only: `api`, `projections` or `jobs`; everything by default.
        workers: API processes.
        resolve_images: Ask registries what the tags of images mean at a create.

    Raises:
        RejectedError: `port_in_use`, or `invalid_setting`.
    """
    configure_logging()
    os.environ[HOME_VARIABLE] = str(home)
    os.environ[_PARENT_VARIABLE] = str(os.getpid())
    if resolve_images:
        os.environ[RESOLVE_VARIABLE] = "1"
    with_api = only in (None, "api")
    configured_reach()
    _payment_settings()
    configured_mail()
    if with_api:
        _require_port(host, port)
    ledger = Ledger.open(home)
    try:
        ledger.adopt_policy()
        with ledger.unit() as unit:
            open_missing_offers(unit)
        _print_first_key(ledger)
        if not with_api:
            assert only is not None
            return work(ledger, {only})
        with contextlib.nullcontext() if only == "api" else _Background(home):
            sys.stdout.write(f"gpuledger listens on http://{host}:{port} (docs at /docs)\n")
            sys.stdout.flush()
            with tempfile.TemporaryDirectory(prefix="gpuledger-metrics-") as counters:
                os.environ["PROMETHEUS_MULTIPROC_DIR"] = counters
                _serve_api(host, port, workers or min(_WORKERS, os.cpu_count() or 1))
    finally:
        ledger.close()
    return 0


def work(ledger: Ledger, parts: set[str], parent: int | None = None) -> int:
    """Run projections, jobs or both in this process until it is told to stop.

    Args:
        ledger: What to work on; its embedded database is started again whenever it died.
        parts: `projections`, `jobs` or both.
        parent: The process whose end is the end of this one; none when nobody's.
    """
    from adapters.jobs import keep_database, run_projections, start_jobs
    from ledger.services.payments.reconcile import comparison_with

    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    if parent is not None:
        _watch_parent(parent, stop.set)
    keeper = threading.Thread(target=keep_database, args=[ledger, stop], name="database-keeper")
    keeper.start()
    gateway = payment_gateway(ledger) if "jobs" in parts else None
    processor = None if gateway is None else comparison_with(gateway)
    scheduler = start_jobs(ledger, processor) if "jobs" in parts else None
    sending = _start_webhooks(ledger, stop) if "jobs" in parts else None
    paying = None if gateway is None else _start_payments(ledger, gateway, stop)
    mailing = _start_mail(ledger, stop) if "jobs" in parts else None
    if "projections" in parts:
        run_projections(ledger, stop)
    stop.wait()
    if scheduler is not None:
        scheduler.shutdown(wait=True)
    for thread in (sending, paying, mailing):
        if thread is not None:
            thread.join()
    keeper.join()
    return 0


def _start_webhooks(ledger: Ledger, stop: threading.Event) -> threading.Thread:
    """Send what accounts asked to be told, in a thread of its own, as long as this process leads.

    Raises:
        RejectedError: `invalid_setting`.
    """
    from adapters.jobs import WEBHOOKS_LOCK
    from adapters.webhooks.sender import run_webhooks
    from ledger.services.leadership import Leadership

    leadership = Leadership(ledger, WEBHOOKS_LOCK)
    args = [ledger, leadership, stop, configured_reach()]
    thread = threading.Thread(target=run_webhooks, args=args, name="webhooks")
    thread.start()
    return thread


def _payment_settings() -> StripeSettings | None:
    """How to reach the payment processor; none where nobody pays by card.

    Raises:
        RejectedError: `invalid_setting`, or `missing_extra` without its library.
    """
    from adapters.payments.settings import from_environment

    settings = from_environment()
    if settings is not None and importlib.util.find_spec("stripe") is None:
        message = "payments need Stripe's library: install gpuledger[payments]"
        raise RejectedError("missing_extra", message)
    return settings


def payment_gateway(ledger: Ledger) -> StripeGateway | None:
    """The payment processor that the environment names; none where nobody pays by card.

    Raises:
        RejectedError: `invalid_setting`, or `missing_extra` without its library.
    """
    settings = _payment_settings()
    if settings is None:
        return None
    from adapters.payments.stripe_gateway import StripeGateway

    # Other ledgers may use the same account: what this one made there is told by its vault's key.
    name = ledger.vault.keyed_hash("payment-processor")[:16]
    return StripeGateway(settings, name, ledger.clock)


def _start_mail(ledger: Ledger, stop: threading.Event) -> threading.Thread | None:
    """Send notices by mail, in a thread of its own; none where no mail server is configured.

    Raises:
        RejectedError: `invalid_setting`.
    """
    from adapters.documents.attachments import attachments_from
    from adapters.jobs import MAIL_LOCK
    from adapters.mail.sender import run_mail
    from adapters.mail.smtp import SmtpClient
    from ledger.services.leadership import Leadership

    settings = configured_mail()
    if settings is None:
        return None
    leadership = Leadership(ledger, MAIL_LOCK)
    args = [ledger, leadership, stop, SmtpClient(settings), attachments_from(ledger.vault)]
    thread = threading.Thread(target=run_mail, args=args, name="mail")
    thread.start()
    return thread


def _start_payments(
    ledger: Ledger, gateway: StripeGateway, stop: threading.Event
) -> threading.Thread:
    """Ask the payment processor for what is open, in a thread of its own."""
    from adapters.jobs import run_payments

    thread = threading.Thread(target=run_payments, args=[ledger, gateway, stop], name="payments")
    thread.start()
    return thread


@functools.cache
def _routes() -> Litestar:
    """Every route, on no ledger yet."""
    from adapters.http.app import build_app

    return build_app()


def create_app() -> Litestar:
    """The HTTP application of one API worker, on the ledger that the environment names."""
    from adapters.http.app import attach
    from ledger.services.usage import UsageService

    configure_logging()
    # Nobody starts, stops or counts an orphan, and it would share the port with the next server.
    # What it answered is durable; what it did not answer is sent again.
    if (parent := os.environ.get(_PARENT_VARIABLE)) is not None:
        _watch_parent(int(parent), lambda: os._exit(1))
    ledger = Ledger.open(Path(os.environ[HOME_VARIABLE]))
    usage = UsageService(ledger)
    images = _image_resolver()
    app = _routes()
    attach(app, ledger, usage, payment_gateway(ledger), images)

    def close() -> None:
        if images is not None:
            images.close()
        usage.close()
        ledger.close()

    app.on_shutdown.append(close)
    return app


def _image_resolver() -> RegistryClient | None:
    """Who asks registries what tags mean; nobody unless `GPULEDGER_RESOLVE_IMAGES` is set."""
    if os.environ.get(RESOLVE_VARIABLE, "") in {"", "0"}:
        return None
    from adapters.registry.client import RegistryClient

    return RegistryClient(configured_reach())


def _serve_api(host: str, port: int, workers: int) -> None:
    """Answer requests until a signal; whatever happens to the worker, there is another."""
    from granian import Granian
    from granian.constants import HTTPModes, Interfaces
    from granian.log import LogLevels

    if multiprocessing.get_start_method() == "fork":
        # Made once for all workers, and in memory that they share; one that is started again
        # answers at once. It takes longer than all the rest of a start.
        _routes()
        gc.freeze()  # A collection that looks at shared memory would take a copy of it.
    while True:
        server = Granian(
            "adapters.main:create_app",
            factory=True,
            address=host,
            port=port,
            interface=Interfaces.ASGI,
            http=HTTPModes.http1,
            workers=workers,
            respawn_failed_workers=True,
            log_level=LogLevels.warning,
            workers_kill_timeout=_STOP_SECONDS,
        )
        # It gives up, and exits, when a worker dies twice in 5 s: as while the database is away.
        with contextlib.suppress(SystemExit):
            server.serve()
        if server.interrupt_signal:
            return
        time.sleep(_RESTART_SECONDS)
        if server.interrupt_signal:
            return


def _require_port(host: str, port: int) -> None:
    """Refuse a port on which somebody listens: the server itself would share it without a word."""
    began = time.monotonic()
    while True:
        try:
            (family, *_, address), *_ = socket.getaddrinfo(
                host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
            )
            with socket.socket(family) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind(address)
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                message = f"cannot listen on {host}:{port}: {error.strerror}"
                raise RejectedError("cannot_listen", message) from error
            if time.monotonic() - began > _PORT_SECONDS:
                message = f"something listens on {host}:{port} already: choose another --port"
                raise RejectedError("port_in_use", message) from error
            time.sleep(0.1)
        else:
            return


class _Background:
    """The process beside the API; started again when it ends before it was told to.

    Its thread writes no log: a worker forked meanwhile would inherit the log's lock.
    """

    def __init__(self, home: Path) -> None:
        self._home = home
        self._ending = threading.Event()
        self._process = self._start(starts=0)
        self._thread = threading.Thread(target=self._keep, name="background-keeper", daemon=True)
        self._thread.start()

    def __enter__(self) -> None:
        return None

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        self._thread.join()
        _end(self._process)

    def _start(self, starts: int) -> subprocess.Popen[bytes]:
        return subprocess.Popen(  # noqa: S603 - this program itself
            [
                *(sys.executable, "-m", "adapters.main"),
                *(str(self._home), str(os.getpid()), str(starts)),
            ],
            start_new_session=True,
        )

    def _keep(self) -> None:
        starts = 0
        while not self._ending.wait(_RESTART_SECONDS):
            if self._process.poll() is not None:
                starts += 1
                self._process = self._start(starts)


def _watch_parent(parent: int, on_gone: Callable[[], None]) -> None:
    """Call *on_gone* once the process *parent* is no longer the one that started this one."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(_WATCH_SECONDS)
        on_gone()

    threading.Thread(target=watch, name="parent-watch", daemon=True).start()


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
        key = api_keys.create_key(unit, accounts.ensure_account(unit, "admin"), "admin")
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
    home, parent, starts = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    if starts:
        structlog.get_logger("gpuledger").warning("background process started again", times=starts)
    ledger = Ledger.open(home)
    try:
        return work(ledger, {"projections", "jobs"}, parent)
    finally:
        ledger.close()


if __name__ == "__main__":
    sys.exit(_background())
