"""`gpuledger supervise`: keep one rented job alive on a server, within a price and a budget."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

from cyclopts import Parameter
from cyclopts.validators import Number

from adapters.cli.offers import Order, Unverified
from ledger.errors import RejectedError

if TYPE_CHECKING:
    from adapters.supervise import Job

KEY_VARIABLE: Final = "GPULEDGER_API_KEY"
_PERCENT: Final = 100
_SECONDS: Final = 60.0


def supervise(
    *conditions: Annotated[
        str,
        Parameter(help="Which offers will do, such as 'gpu_name=RTX_4090 reliability>0.98'."),
    ],
    server: Annotated[str, Parameter(help="Where the server is, such as https://gpus.example.")],
    label: Annotated[
        str,
        Parameter(help="The job's name: all that is rented under it is taken for this job's."),
    ],
    max_price: Annotated[
        str, Parameter(help="Dollars per hour in all, the disk included; never more.")
    ],
    kind: Annotated[
        Literal["interruptible", "on_demand"], Parameter(help="Bid, or rent on demand.")
    ] = "interruptible",
    disk: Annotated[
        int, Parameter(help="GB of disk to rent.", validator=Number(gte=1, lte=10**9))
    ] = 10,
    order: Order = None,
    bid: Annotated[
        str | None,
        Parameter(help="Dollars per hour to bid for the slice; default: by --bid-margin."),
    ] = None,
    bid_margin: Annotated[
        float,
        Parameter(
            help="Percent to bid above the smallest that runs.", validator=Number(gte=0, lte=10_000)
        ),
    ] = 10.0,
    budget: Annotated[
        str | None, Parameter(help="Dollars after which the job ends, over all its instances.")
    ] = None,
    stuck_minutes: Annotated[
        float,
        Parameter(
            help="How long the job may wait for GPUs before another offer is rented.",
            validator=Number(gte=0, lte=100_000),
        ),
    ] = 10.0,
    image: Annotated[str | None, Parameter(help="Container image to start.")] = None,
    onstart: Annotated[str | None, Parameter(help="Command that the container starts.")] = None,
    env: Annotated[
        list[str] | None,
        Parameter(
            help="NAME=VALUE, or NAME alone to take it from here; repeat it.", negative_iterable=""
        ),
    ] = None,
    launch: Annotated[
        Path | None, Parameter(help="JSON file with a whole launch configuration.")
    ] = None,
    keep_disk: Annotated[
        bool, Parameter(negative="", help="Stop an instance that was left; do not destroy it.")
    ] = False,
    destroy_on_exit: Annotated[
        bool, Parameter(negative="", help="Destroy the instance when asked to end.")
    ] = False,
    unverified: Unverified = False,
    poll_seconds: Annotated[
        float, Parameter(help="Seconds between two looks.", validator=Number(gte=0.2, lte=3_600))
    ] = 15.0,
    once: Annotated[
        bool, Parameter(negative="", help="Look and act once, as for cron; then exit.")
    ] = False,
    json: Annotated[
        bool, Parameter(negative="", help="Print one JSON object per action, for programs.")
    ] = False,
) -> int:
    """Keep one job alive: rent the best offer, watch, and move on when it waits too long.

    The key of the renter's account is read from GPULEDGER_API_KEY. An instance that waits for GPUs,
    or whose machine is silent, longer than --stuck-minutes is replaced by the next best offer on
    another machine and destroyed. SIGINT and SIGTERM end the supervisor and leave the job as it is.
    Started again with the same label, it goes on where it was.

    Exit codes: 0 asked to end, the job ended by itself, or with --once it runs; 1 refused; 2 wrong
    usage; 3 the budget or the credit is used up; 4 with --once: nothing runs; 5 somebody else
    stopped or destroyed the instance.

    Example: gpuledger supervise 'gpu_name=RTX_4090 num_gpus=1' --server http://127.0.0.1:8080
    --label run-42 --max-price 0.35 --disk 100 --image pytorch/pytorch:2.9
    """
    from adapters.supervise import Journal, Pace
    from adapters.supervise import supervise as run

    key = os.environ.get(KEY_VARIABLE, "")
    if not key:
        raise RejectedError("invalid_args", f"set {KEY_VARIABLE} to the API key of a renter")
    if not server.startswith(("http://", "https://")):
        message = f"--server: {server!r} is no address such as https://gpus.example"
        raise RejectedError("invalid_args", message)
    job = _job(
        conditions, label, max_price, kind=kind, disk_gb=disk, bid=bid, budget=budget, order=order,
        margin_bp=round(bid_margin * _PERCENT), stuck_seconds=stuck_minutes * _SECONDS,
        keep_disk=keep_disk, verified_only=not unverified,
        launch=_launch(launch, image, onstart, env or []),
    )  # fmt: skip
    pace = Pace(poll_seconds=poll_seconds, once=once, destroy_on_exit=destroy_on_exit)
    journal = Journal(sys.stdout, as_json=json)
    return run(job, server, key, journal, _stopping(), pace=pace)


def _job(
    conditions: Sequence[str],
    label: str,
    max_price: str,
    *,
    bid: str | None,
    budget: str | None,
    order: str | None,
    **options: Any,
) -> Job:
    """The job as it was typed.

    Raises:
        RejectedError: `invalid_args`, `invalid_price` or `invalid_amount`.
    """
    from adapters.supervise import Job
    from ledger.domain.money import parse_amount, parse_dollars
    from ledger.services.questions.offer_words import parse_filters, parse_order

    if not label.strip():
        raise RejectedError("invalid_args", "--label: give the job a name")
    if bid is not None and options["kind"] != "interruptible":
        raise RejectedError("invalid_args", "--bid goes with --kind interruptible only")
    return Job(
        label=label,
        filters=parse_filters(conditions),
        order=() if order is None else tuple(parse_order(order)),
        max_price=parse_amount(max_price),
        bid=None if bid is None else parse_dollars(bid),
        budget=None if budget is None else parse_amount(budget),
        **options,
    )


def _launch(
    file: Path | None, image: str | None, onstart: str | None, env: Sequence[str]
) -> dict[str, Any]:
    """The launch configuration: the file's, with what was typed over it.

    Raises:
        RejectedError: `invalid_args` for a file that holds no JSON object, an unset variable, or
            what is no launch configuration.
    """
    import msgspec

    from ledger.domain.launch import parse_launch

    launch: dict[str, Any] = {}
    if file is not None:
        try:
            launch = msgspec.json.decode(file.read_bytes(), type=dict[str, Any])
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise RejectedError("invalid_args", f"--launch {file}: {error}") from None
        if not isinstance(launch.get("env", {}), dict):
            raise RejectedError("invalid_args", f"--launch {file}: `env` is not names and values")
    if image is not None:
        launch["image"] = image
    if onstart is not None:
        launch["onstart"] = onstart
    for one in env:
        name, is_given, value = one.partition("=")
        if not is_given:
            if name not in os.environ:
                raise RejectedError("invalid_args", f"--env {name}: it is not set here")
            value = os.environ[name]
        launch["env"] = {**launch.get("env", {}), name: value}
    try:
        parse_launch(launch)
    except RejectedError as error:
        where = f"--launch {file}: " if file is not None else ""
        raise RejectedError("invalid_args", f"{where}{error.message}") from None
    return launch


def _stopping() -> threading.Event:
    """An event that the first SIGINT or SIGTERM sets; the second one ends the program at once."""
    stop = threading.Event()

    def ask(number: int, _frame: object) -> None:
        stop.set()
        again = signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL
        signal.signal(number, again)

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, ask)
    return stop
