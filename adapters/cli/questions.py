"""Commands that ask: each prints one answer of `ledger.services.questions`."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Literal

from cyclopts import Parameter

from adapters.cli.options import (
    Account,
    After,
    AfterKey,
    AfterPosition,
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
    from ledger.services.questions.documents import Document
    from ledger.services.questions.usage import AnomalyView

Status = Literal["scheduling", "loading", "running", "stopped", "expired", "destroyed"]
_ANOMALY_KEY: Final = re.compile(r"([0-9]{1,18}):([0-9]{1,18}):([a-z_]{1,64}):(-?[0-9]{1,18})")

# --- who and what --------------------------------------------------------------------------------


def accounts(
    *, home: Home = None, after: After = 0, limit: Limit = 100, json: AsJson = False
) -> None:
    """List accounts.

    Example: gpuledger accounts --json
    """
    from adapters.cli.output import page, print_rows
    from ledger.services.questions import accounts as ask

    with reading(home) as (ledger, connection):
        found = ask.accounts(connection, ledger.vault, after=after, limit=limit + 1)
    shown = page(found, limit, lambda one: one.account_id)
    columns = ["account_id", "name", "opened_at", "erased_at"]
    print_rows(shown, columns, as_json=json, title="accounts", empty="no accounts")


def machines(
    *,
    account: Annotated[
        str | None, Parameter(name="--account", help="Only this host's, by name or id.")
    ] = None,
    home: Home = None,
    after: After = 0,
    limit: Limit = 100,
    json: AsJson = False,
) -> None:
    """List machines, how they are, and what is free on them.

    Example: gpuledger machines --account bob
    """
    from adapters.cli.output import page, print_rows
    from ledger.services.questions import machines as ask

    with reading(home) as (ledger, connection):
        host = account_id(ledger, connection, account)
        found = ask.machines(connection, ledger.clock(), host_id=host, after=after, limit=limit + 1)
    shown = page(found, limit, lambda one: one.machine_id)
    columns = [
        "machine_id", "host_id", "gpus", "gpu_name", "free_gpus", "online", "last_report_at",
        "enrolled_at",
    ]  # fmt: skip
    print_rows(shown, columns, as_json=json, title="machines", empty="no machines")


def instances(
    *,
    account: Account = None,
    status: Annotated[Status | None, Parameter(help="Only those in this state.")] = None,
    home: Home = None,
    after: After = 0,
    limit: Limit = 100,
    json: AsJson = False,
) -> None:
    """List instances with their state and what they cost so far.

    Example: gpuledger instances --account alice --status running
    """
    from adapters.cli.output import page, print_rows
    from ledger.services.questions import instances as ask

    with reading(home) as (ledger, connection):
        owner = account_id(ledger, connection, account)
        found = ask.instances(
            connection, account_id=owner, status=status, after=after, limit=limit + 1
        )
    shown = page(found, limit, lambda one: one.instance_id)
    columns = [
        "instance_id", "account_id", "machine_id", "status", "reason", "gpus", "gpu_rate",
        "gpu_seconds", "gpu_charge", "storage_seconds", "storage_charge", "label",
    ]  # fmt: skip
    print_rows(shown, columns, as_json=json, title="instances", empty="no instances")


def volumes(
    *,
    account: Account = None,
    machine: Annotated[
        Id | None, Parameter(name="--machine", help="Only those on this machine.")
    ] = None,
    status: Annotated[
        Literal["active", "expired", "destroyed"] | None,
        Parameter(help="Only those in this state."),
    ] = None,
    home: Home = None,
    after: After = 0,
    limit: Limit = 100,
    json: AsJson = False,
) -> None:
    """List volumes, which instances have them, and what they cost so far.

    Example: gpuledger volumes --account alice --status active
    """
    from adapters.cli.output import page, print_rows
    from ledger.services.questions import volumes as ask

    with reading(home) as (ledger, connection):
        owner = account_id(ledger, connection, account)
        found = ask.volumes(
            connection,
            account_id=owner,
            machine_id=machine,
            status=status,
            after=after,
            limit=limit + 1,
        )
    shown = page(found, limit, lambda one: one.volume_id)
    columns = [
        "volume_id", "account_id", "machine_id", "name", "status", "disk_bytes", "storage_rate",
        "until", "instances", "storage_seconds", "storage_charge",
    ]  # fmt: skip
    print_rows(shown, columns, as_json=json, title="volumes", empty="no volumes")


# --- usage ---------------------------------------------------------------------------------------


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


# --- money ---------------------------------------------------------------------------------------


def invoice(
    number: Annotated[str | None, Parameter(help="Without it, documents are listed.")] = None,
    *,
    pdf: Annotated[Path | None, Parameter(help="Write it as PDF to this file.")] = None,
    html: Annotated[Path | None, Parameter(help="Write it as a page to this file.")] = None,
    csv: Annotated[Path | None, Parameter(help="Write its lines as CSV to this file.")] = None,
    xml: Annotated[Path | None, Parameter(help="Write its EN 16931 e-invoice.")] = None,
    account: Account = None,
    after: AfterPosition = 0,
    limit: Limit = 100,
    home: Home = None,
    json: AsJson = False,
) -> None:
    """Show a document (INV-, USE-, CN-, SB-) with its lines, write it to files, or list all.

    Example: gpuledger invoice USE-00000001
    """
    from adapters.cli.output import page, print_rows
    from ledger.services.questions import documents as ask

    files = {"pdf": pdf, "html": html, "csv": csv, "xml": xml}
    wanted = {form: file for form, file in files.items() if file is not None}
    if number is None and wanted:
        message = "name the document that is to be written, such as USE-00000001"
        raise RejectedError("invalid_args", message)
    with reading(home) as (ledger, connection):
        if number is not None:
            found = ask.document(connection, ledger.vault, number)
        else:
            owner = account_id(ledger, connection, account)
            listed = ask.documents(connection, account_id=owner, after=after, limit=limit + 1)
    if number is None:
        columns = ["number", "kind", "account_id", "net", "tax", "issued_at", "position"]
        shown = page(listed, limit, lambda one: one.position)
        print_rows(shown, columns, as_json=json, title="documents", empty="no documents")
        return
    _write_document(found, wanted)
    if json:
        from adapters.documents.forms import as_json

        sys.stdout.write(as_json(found).decode())
    elif not wanted:
        _print_document(found)


def _write_document(found: Document, wanted: dict[str, Path]) -> None:
    """Make every form before any file is written, so that a refusal leaves none."""
    from adapters.documents.forms import FORMS

    made = {file: FORMS[form].make(found) for form, file in wanted.items()}
    for file, content in made.items():
        file.write_bytes(content)
        sys.stderr.write(f"{found.number} written to {file}\n")


def _print_document(found: Document) -> None:
    from adapters.cli.output import print_rows
    from adapters.documents.sheet import sheet

    shown = sheet(found)
    sys.stdout.write(f"{shown.number}  account {found.account_id}  {found.status}\n")
    for label, value in shown.facts[1:]:
        sys.stdout.write(f"{label:<12}  {value}\n")
    sys.stdout.write("\n")
    columns = ["line", "description", "quantity", "unit", "rate", "amount", "cents", "late"]
    print_rows(found.lines, columns, as_json=False, title="lines", empty="no lines")
    width = max(len(total.value) for total in shown.totals)
    for total in shown.totals:
        sys.stdout.write(f"{total.label:<26}  {total.value:>{width}}\n")


def balance(
    account: Annotated[str, Parameter(help="Name or id.")],
    *,
    home: Home = None,
    json: AsJson = False,
) -> None:
    """Show an account's credit, what burns, and how long that lasts.

    Example: gpuledger balance alice
    """
    from adapters.cli.output import print_facts
    from ledger.services.questions import accounts as people
    from ledger.services.questions import balances as ask

    with reading(home) as (ledger, connection):
        owner = people.find_account(connection, ledger.vault, account)
        found = ask.balance(connection, owner, ledger.clock())
    print_facts(found, as_json=json)


def transfers(
    *,
    account: Account = None,
    after: AfterKey = "",
    limit: Limit = 100,
    home: Home = None,
    json: AsJson = False,
) -> None:
    """List every movement of money, usage included: debit, credit, amount.

    Example: gpuledger transfers --account bob
    """
    from adapters.cli.output import page, print_rows
    from ledger.services.questions import transfers as ask

    with reading(home) as (ledger, connection):
        owner = account_id(ledger, connection, account)
        found = ask.transfers(connection, account_id=owner, after=after, limit=limit + 1)
    shown = page(found, limit, lambda one: one.key)
    columns = [
        "occurred_at", "kind", "reference", "debit", "debit_account", "credit", "credit_account",
        "amount", "position",
    ]  # fmt: skip
    print_rows(shown, columns, as_json=json, title="transfers", empty="no transfers")


def trial_balance(*, home: Home = None, json: AsJson = False) -> int:
    """Show debits and credits per ledger account; exit 1 unless they are equal.

    Example: gpuledger trial-balance
    """
    from adapters.cli.output import print_rows
    from ledger.domain.money import format_dollars
    from ledger.services.questions import balances as ask

    with reading(home) as (_, connection):
        found = ask.trial_balance(connection)
    columns = ["ledger_account", "debit", "credit"]
    print_rows(found, columns, as_json=json, title="trial balance", empty="nothing was posted")
    difference = sum(row.debit - row.credit for row in found)
    if not json:
        sys.stdout.write(f"difference {format_dollars(difference)}\n")
    return 0 if difference == 0 else 1


# --- the log and the rules -----------------------------------------------------------------------


def events(
    *,
    stream: Annotated[str | None, Parameter(help="One stream, such as instance-7.")] = None,
    after: Annotated[
        AfterPosition,
        Parameter(help="Go on after this position, or with --stream after this version."),
    ] = 0,
    limit: Limit = 20,
    home: Home = None,
    json: AsJson = False,
) -> None:
    """Read the log, or one stream of it, in order; --json shows what each event says.

    Example: gpuledger events --stream instance-7 --json
    """
    from adapters.cli.output import page, print_rows
    from ledger.services.questions import events as ask

    with reading(home) as (_, connection):
        if stream is None:
            found = ask.events(connection, after=after, limit=limit + 1)
        else:
            found = ask.stream_events(connection, stream, after=after, limit=limit + 1)
    shown = page(found, limit, lambda one: one.position if stream is None else one.version)
    columns = ["position", "count", "recorded_at", "stream", "version", "topic", "sha256"]
    print_rows(shown, columns, as_json=json, title="events", empty="no events")


def policy(*, home: Home = None, json: AsJson = False) -> None:
    """Show the platform's rules in force.

    Example: gpuledger policy
    """
    from adapters.cli.output import print_facts
    from ledger.services.ledger import read_policy

    with reading(home) as (_, connection):
        found = read_policy(connection)
    print_facts(found, as_json=json)


def templates(
    account: Annotated[str | None, Parameter(help="Name or id; without it, all accounts.")] = None,
    *,
    search: Annotated[
        str | None, Parameter(help="A part of a name, or a version's hash id.")
    ] = None,
    home: Home = None,
    json: AsJson = False,
) -> None:
    """List templates of launches, with the public ones of others.

    Example: gpuledger templates alice --search train
    """
    from adapters.cli.output import print_rows
    from ledger.services import templates as ask

    with reading(home) as (ledger, connection):
        owner = account_id(ledger, connection, account)
        found = ask.templates(connection, ledger.vault, owner, search=search, limit=1_000)
    columns = ["template_id", "account_id", "name", "version", "hash_id", "public", "changed_at"]
    print_rows(found, columns, as_json=json, title="Templates", empty="no templates")
