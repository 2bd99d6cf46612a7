"""Commands that ask: each prints one answer of `ledger.services.questions`."""

from __future__ import annotations

from typing import Annotated, Literal

from cyclopts import Parameter

from adapters.cli.options import (
    Account,
    After,
    AfterPosition,
    AsJson,
    Home,
    Id,
    Limit,
    account_id,
    reading,
)

Status = Literal["scheduling", "loading", "running", "stopped", "expired", "destroyed"]

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
