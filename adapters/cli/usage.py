"""Commands that ask what was attested, what of it was billed, and why."""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING, Annotated, Final, Literal

from cyclopts import Parameter

from adapters.cli.options import (
    Account,
    AfterKey,
    AsJson,
    Home,
    Id,
    Instant,
    Limit,
    account_id,
    instant,
    reading,
)
from ledger.errors import RejectedError

if TYPE_CHECKING:
    from ledger.services.questions.usage import AnomalyView

_ANOMALY_KEY: Final = re.compile(r"([0-9]{1,18}):([0-9]{1,18}):([a-z_]{1,64}):(-?[0-9]{1,18})")


def ticks(
    instance: Id,
    *,
    start: Annotated[Instant, Parameter(name="--from")] = None,
    until: Instant = None,
    limit: Limit = 60,
    home: Home = None,
    json: AsJson = False,
) -> None:
    """List the attested seconds of an instance one by one, each with its address in the log.

    Example: gpuledger ticks 7 --from 2026-03-01T10:00:00Z --limit 10
    """
    from adapters.cli.output import more, print_rows
    from ledger.domain.ids import rfc3339
    from ledger.services.questions import usage as ask

    first, end = instant(start, "--from"), instant(until, "--until")
    with reading(home) as (_, connection):
        found = ask.ticks(connection, instance, start=first or 0, until=end, limit=limit + 1)
    if len(found) > limit:
        more(f"--from {rfc3339(found[limit].second)}")
    columns = [
        "second", "state", "up_bytes", "down_bytes", "utilisation", "position", "seq", "first",
    ]  # fmt: skip
    title = f"ticks of instance {instance}"
    print_rows(found[:limit], columns, as_json=json, title=title, empty="no ticks")


def charges(
    *,
    instance: Id | None = None,
    account: Account = None,
    by: Annotated[
        Literal["segment", "hour"], Parameter(help="One set of lines per rate segment or UTC hour.")
    ] = "segment",
    after: AfterKey = "",
    limit: Limit = 100,
    home: Home = None,
    json: AsJson = False,
) -> None:
    """List what instances consumed and what it cost; lines that cost nothing are left out.

    Example: gpuledger charges --account alice --by hour
    """
    from adapters.cli.output import more, print_rows
    from ledger.services.questions import usage as ask

    with reading(home) as (ledger, connection):
        found = ask.charges(
            connection,
            instance_id=instance,
            account_id=account_id(ledger, connection, account),
            by_hour=by == "hour",
            after=after,
            limit=limit + 1,
        )
    keys = list(dict.fromkeys(line.key for line in found))
    if len(keys) > limit:
        more(f"--after {keys[limit - 1]}")
        found = [line for line in found if line.key != keys[limit]]
    when = ["hour"] if by == "hour" else ["used_from", "used_until"]
    columns = ["instance_id", "item", "kind", "rate", "quantity", "amount", "fee", *when]
    print_rows(found, columns, as_json=json, title="charges", empty="no charges")


def anomalies(
    *,
    instance: Id | None = None,
    machine: Id | None = None,
    after: AfterKey = "",
    limit: Limit = 100,
    home: Home = None,
    json: AsJson = False,
) -> None:
    """List what was attested, stored and not billed, and why.

    Example: gpuledger anomalies --instance 7
    """
    from adapters.cli.output import page, print_rows
    from ledger.services.questions import usage as ask

    last = (0, -1, "", 0)
    if after:
        given = _ANOMALY_KEY.fullmatch(after)
        if given is None:
            message = (
                f"--after: {after!r} is no key of an anomaly such as 4:7:after_stop:1772359200"
            )
            raise RejectedError("invalid_args", message)
        last = (int(given[1]), int(given[2]), given[3], int(given[4]))
    with reading(home) as (_, connection):
        found = ask.anomalies(
            connection, instance_id=instance, machine_id=machine, after=last, limit=limit + 1
        )
    shown = page(found, limit, _anomaly_key)
    columns = ["machine_id", "instance_id", "code", "severity", "start", "until", "position"]
    print_rows(shown, columns, as_json=json, title="anomalies", empty="no anomalies")


def _anomaly_key(one: AnomalyView) -> str:
    return f"{one.machine_id}:{one.instance_id or 0}:{one.code}:{one.start}"


def explain(
    instance: Id,
    *,
    meter: Annotated[
        Literal["gpu", "storage", "up", "down", "reserved_idle"] | None,
        Parameter(help="Only this meter."),
    ] = None,
    segment: Annotated[
        Id | None, Parameter(help="Only the rate segment with this number, from 1.")
    ] = None,
    home: Home = None,
    json: AsJson = False,
) -> None:
    """Explain the charges of an instance or a volume: terms, seconds, gaps, formula, log places.

    Exits 1 when what is stored is not what the formula and the hours give.

    Example: gpuledger explain 7 --meter gpu
    """
    from adapters.cli.explained import text
    from adapters.cli.output import print_json
    from ledger.services import explain as ask

    with reading(home) as (_, connection):
        name = ask.contract(connection, instance).name
        found = ask.explain(connection, instance, meter, segment)
    if json:
        print_json(found)
    elif found:
        sys.stdout.write(text(found))
    else:
        sys.stdout.write(f"{name} has consumed nothing that was folded yet\n")
