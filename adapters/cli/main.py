"""`gpuledger`: every command, with its help; each imports what it needs when it runs."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import App, CycloptsError, Parameter

from ledger.errors import CorruptHistoryError, LedgerError, RejectedError, UnavailableError

if TYPE_CHECKING:
    from ledger.services.ledger import Ledger

app = App(
    name="gpuledger",
    help="Billing and ledger core of a GPU rental marketplace: per-second metering, double entry,"
    " provable replay.\n\nStart with `gpuledger demo`, or `gpuledger serve`.",
    version_flags=["--version"],
)
keys_app = App(name="keys", help="API keys: create, list, revoke.")
scenario_app = App(name="scenario", help="Scenarios: the business as text.")
app.command(keys_app)
app.command(scenario_app)

DEFAULT_HOME = Path(os.environ.get("GPULEDGER_HOME", "~/.gpuledger")).expanduser()
Home = Annotated[
    Path, Parameter(name="--home", help="The ledger's folder (default: $GPULEDGER_HOME).")
]
AsJson = Annotated[bool, Parameter(name="--json", negative="", help="Print JSON for programs.")]
Limit = Annotated[int, Parameter(name="--limit", help="Rows at most.")]
After = Annotated[int, Parameter(name="--after", help="Go on after this id or position.")]
Account = Annotated[str | None, Parameter(name="--account", help="An account, by name or id.")]


def main() -> None:
    """Run a command; mistakes end in one line, never in a traceback."""
    try:
        result = app(exit_on_error=False, print_error=False, result_action="return_value")
        sys.stdout.flush()
    except CycloptsError as error:
        _fail(f"{_first_line(error)} (see `gpuledger --help`)", 2)
    except RejectedError as error:
        _fail(error.message, 2 if error.code.startswith("invalid") else 1)
    except CorruptHistoryError as error:
        _fail(f"the books contradict each other: {error.message}", 1)
    except UnavailableError as error:
        _fail(error.message, 1)
    except LedgerError as error:
        _fail(error.message, 1)
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    sys.exit(result if isinstance(result, int) else 0)


def _first_line(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__


def _fail(message: str, code: int) -> None:
    sys.stderr.write(f"error: {message}\n")
    sys.exit(code)


@contextmanager
def opened(home: Path, *, create: bool = False) -> Iterator[Ledger]:
    """The ledger in *home*, or on `GPULEDGER_DATABASE_URL`."""
    from ledger.services.ledger import Ledger

    external = "GPULEDGER_DATABASE_URL" in os.environ
    if not create and not external and not (home / "postgres").exists():
        message = f"there is no ledger in {home}; start one with `gpuledger serve --home {home}`"
        raise RejectedError("no_ledger", message)
    ledger = Ledger.open(home)
    try:
        yield ledger
    finally:
        ledger.close()


# --- running -------------------------------------------------------------------------------------


@app.command
def serve(
    *,
    home: Home = DEFAULT_HOME,
    host: str = "127.0.0.1",
    port: int = 8080,
    only: Literal["api", "projections", "jobs"] | None = None,
) -> int:
    """Run API, projections and jobs on the embedded database; the first start prints an admin key.

    Example: gpuledger serve --home ./books --port 8080
    """
    from adapters.main import serve as run

    return run(home, host, port, only)


@app.command
def demo(
    *,
    seconds: int = 30,
    serve: Annotated[bool, Parameter(negative="", help="Keep it running afterwards.")] = False,
) -> int:
    """Watch the product work: a real server, three hosts, renters, invoices, a rebuild.

    Example: gpuledger demo --seconds 20
    """
    from adapters.demo import run

    return run(seconds=seconds, keep_serving=serve)


@scenario_app.command(name="run")
def scenario_run(
    files: Annotated[list[Path], Parameter(help="Scenario files (YAML).")],
    *,
    json: AsJson = False,
    keep: Annotated[Path | None, Parameter(help="Keep the ledger in this new folder.")] = None,
) -> int:
    """Run scenario files, each on a fresh ledger; exit 0 when all hold, 1 if not, 2 if invalid.

    Example: gpuledger scenario run tests/scenarios/examples/*.yaml
    """
    from adapters.simulation.scenario import run_files

    return run_files(list(files), as_json=json, keep=keep)


@app.command
def trace(
    nodes: Path,
    pods: Path,
    *,
    start: Annotated[int, Parameter(help="First second of the window.")] = 0,
    seconds: Annotated[int | None, Parameter(help="Length of the window.")] = None,
    json: AsJson = False,
    keep: Annotated[Path | None, Parameter(help="Keep the ledger in this new folder.")] = None,
) -> int:
    """Bill a cluster's trace second by second, as fast as it can.

    Example: gpuledger trace nodes.csv pods.csv --start 12000000 --seconds 86400
    """
    from adapters.simulation.trace import run

    if start < 0 or (seconds is not None and seconds <= 0):
        raise RejectedError("invalid_args", "--start is at least 0 and --seconds at least 1")
    return run(nodes, pods, start=start, seconds=seconds, as_json=json, keep=keep)


@app.command
def rebuild(
    *,
    check: Annotated[
        bool, Parameter(negative="", help="Compare with the live tables; change nothing.")
    ] = False,
    home: Home = DEFAULT_HOME,
    json: AsJson = False,
) -> int:
    """Rebuild every read model from position 0; with --check, prove that the live ones are equal.

    Example: gpuledger rebuild --check --home ./books
    """
    from adapters.cli.output import print_json, print_rows
    from adapters.cli.progress import progress
    from ledger.projections.rebuild import check as compare
    from ledger.projections.rebuild import swap

    with opened(home) as ledger, progress("rebuilding") as report:
        result = (compare if check else swap)(ledger.database, report)
    if json:
        print_json({
            "equal": result.equal,
            "tables": [
                {"name": one.name, "group": one.group, "rows": one.rows, "sha256": one.live_sha256,
                 "rebuilt_sha256": one.rebuilt_sha256, "first_difference": one.first_difference}
                for one in result.tables
            ],
            "facts_position": result.facts_position,
            "usage_position": result.usage_position,
            "ticks": result.ticks,
            "seconds": round(result.seconds, 3),
        })  # fmt: skip
        return 0 if result.equal else 1
    if check:
        columns = ["name", "group", "rows", "live_sha256", "equal"]
        print_rows(result.tables, columns, as_json=False, title="rebuild", empty="no tables")
        for one in result.tables:
            if not one.equal:
                sys.stdout.write(f"{one.name}: {one.first_difference}\n")
    speed = result.ticks / max(result.seconds, 1e-9)
    verdict = "" if not check else "equal: " if result.equal else "NOT EQUAL: "
    sys.stdout.write(
        f"{verdict}{result.ticks:,} ticks rebuilt in {result.seconds:.1f} s ({speed:,.0f}/s)\n"
    )
    return 0 if result.equal else 1


# --- keys and money ------------------------------------------------------------------------------


@keys_app.command(name="create")
def keys_create(
    *,
    account: Annotated[str, Parameter(help="Name of the account; opened if it does not exist.")],
    role: Literal["renter", "host", "auditor", "admin"],
    expires: Annotated[str | None, Parameter(help="RFC 3339.")] = None,
    home: Home = DEFAULT_HOME,
    json: AsJson = False,
) -> None:
    """Make an API key; it is shown this once.

    Example: gpuledger keys create --account alice --role renter
    """
    from adapters.cli.output import print_json
    from ledger.domain.ids import parse_rfc3339
    from ledger.services import accounts as use_cases

    try:
        expires_at = None if expires is None else parse_rfc3339(expires)
    except ValueError as error:
        raise RejectedError("invalid_args", f"--expires: {error}") from None
    with opened(home, create=True) as ledger:
        ledger.adopt_policy()
        with ledger.unit() as unit:
            account_id = use_cases.ensure_account(unit, account)
            key = use_cases.create_key(unit, account_id, role, expires_at=expires_at)
    if json:
        print_json({"key": key, "account_id": account_id, "role": role})
    else:
        sys.stdout.write(f"{key}\n")


@keys_app.command(name="list")
def keys_list(account: str, *, home: Home = DEFAULT_HOME, json: AsJson = False) -> None:
    """List the keys of an account, without secrets.

    Example: gpuledger keys list alice
    """
    from adapters.cli.output import print_rows
    from ledger.services.questions import accounts as ask

    with opened(home) as ledger, ledger.reading() as connection:
        found = ask.api_keys(connection, ask.find_account(connection, ledger.vault, account))
    columns = ["key_id", "role", "created_at", "expires_at", "revoked_at", "last_used_at"]
    print_rows(found, columns, as_json=json, title="API keys", empty="no keys")


@keys_app.command(name="revoke")
def keys_revoke(account: str, key_id: str, *, home: Home = DEFAULT_HOME) -> None:
    """End a key at once.

    Example: gpuledger keys revoke alice 5532fdd278ee16eb
    """
    from ledger.services import accounts as use_cases
    from ledger.services.questions import accounts as ask

    with opened(home) as ledger:
        with ledger.reading() as connection:
            account_id = ask.find_account(connection, ledger.vault, account)
        with ledger.unit() as unit:
            use_cases.revoke_key(unit, account_id, key_id)
    sys.stdout.write(f"key {key_id} is revoked\n")


@app.command
def deposit(
    account: str,
    amount: str,
    *,
    id: Annotated[str, Parameter(name="--id", help="The same id again is the same payment.")],
    home: Home = DEFAULT_HOME,
) -> None:
    """Book a settled payment as credit.

    Example: gpuledger deposit alice 100 --id bank-2026-03-01-17
    """
    from ledger.domain.money import format_dollars, parse_amount
    from ledger.services import accounts as use_cases
    from ledger.services.questions import accounts as ask

    nanos = parse_amount(amount)
    with opened(home) as ledger:
        with ledger.reading() as connection:
            account_id = ask.find_account(connection, ledger.vault, account)
        with ledger.unit() as unit:
            use_cases.deposit(unit, account_id, nanos, id)
    sys.stdout.write(f"{format_dollars(nanos)} booked for {account}\n")


# --- questions -----------------------------------------------------------------------------------


@app.command
def accounts(
    *, home: Home = DEFAULT_HOME, after: After = 0, limit: Limit = 100, json: AsJson = False
) -> None:
    """List accounts.

    Example: gpuledger accounts --json
    """
    from adapters.cli.output import print_rows
    from ledger.services.questions import accounts as ask

    with opened(home) as ledger, ledger.reading() as connection:
        found = ask.accounts(connection, ledger.vault, after=after, limit=limit)
    columns = ["account_id", "name", "opened_at", "erased_at"]
    print_rows(found, columns, as_json=json, title="accounts", empty="no accounts")


@app.command
def machines(
    *, home: Home = DEFAULT_HOME, after: After = 0, limit: Limit = 100, json: AsJson = False
) -> None:
    """List machines, how they are, and what is free on them.

    Example: gpuledger machines
    """
    from adapters.cli.output import print_rows
    from ledger.services.questions import machines as ask

    with opened(home) as ledger, ledger.reading() as connection:
        found = ask.machines(connection, ledger.clock(), after=after, limit=limit)
    columns = [
        "machine_id", "host_id", "gpus", "gpu_name", "free_gpus", "online", "last_report_at",
        "enrolled_at",
    ]  # fmt: skip
    print_rows(found, columns, as_json=json, title="machines", empty="no machines")


@app.command
def instances(
    *,
    home: Home = DEFAULT_HOME,
    account: Account = None,
    status: str | None = None,
    after: After = 0,
    limit: Limit = 100,
    json: AsJson = False,
) -> None:
    """List instances with their state and what they cost so far.

    Example: gpuledger instances --account alice --status running
    """
    from adapters.cli.output import print_rows
    from ledger.services.questions import accounts as people
    from ledger.services.questions import instances as ask

    with opened(home) as ledger, ledger.reading() as connection:
        owner = account and people.find_account(connection, ledger.vault, account)
        found = ask.instances(
            connection, account_id=owner or None, status=status, after=after, limit=limit
        )
    columns = [
        "instance_id", "account_id", "machine_id", "status", "reason", "gpus", "gpu_rate",
        "gpu_seconds", "gpu_charge", "storage_seconds", "storage_charge", "label",
    ]  # fmt: skip
    print_rows(found, columns, as_json=json, title="instances", empty="no instances")


@app.command
def ticks(
    instance: int,
    *,
    start: Annotated[str | None, Parameter(name="--from", help="RFC 3339.")] = None,
    until: Annotated[str | None, Parameter(help="RFC 3339.")] = None,
    limit: Limit = 60,
    home: Home = DEFAULT_HOME,
    json: AsJson = False,
) -> None:
    """List the attested seconds of an instance one by one, each with its address in the log.

    Example: gpuledger ticks 7 --from 2026-03-01T10:00:00Z --limit 10
    """
    from adapters.cli.output import print_rows
    from ledger.services.questions import usage as ask

    first, end = _instant(start, "--from"), _instant(until, "--until")
    with opened(home) as ledger, ledger.reading() as connection:
        found = ask.ticks(connection, instance, start=first or 0, until=end, limit=limit)
    columns = [
        "second",
        "state",
        "up_bytes",
        "down_bytes",
        "utilisation",
        "position",
        "seq",
        "first",
    ]
    print_rows(
        found, columns, as_json=json, title=f"ticks of instance {instance}", empty="no ticks"
    )


@app.command
def charges(
    *,
    instance: int | None = None,
    account: Account = None,
    by: Literal["segment", "hour"] = "segment",
    limit: Limit = 100,
    home: Home = DEFAULT_HOME,
    json: AsJson = False,
) -> None:
    """List what instances consumed and what it cost.

    Example: gpuledger charges --account alice --by hour
    """
    from adapters.cli.output import print_rows
    from ledger.services.questions import accounts as people
    from ledger.services.questions import usage as ask

    with opened(home) as ledger, ledger.reading() as connection:
        owner = account and people.find_account(connection, ledger.vault, account)
        found = ask.charges(
            connection,
            instance_id=instance,
            account_id=owner or None,
            by_hour=by == "hour",
            limit=limit,
        )
    columns = [
        "instance_id",
        "item",
        "kind",
        "rate",
        "quantity",
        "amount",
        "used_from",
        "used_until",
    ]
    print_rows(found, columns, as_json=json, title="charges", empty="no charges")


@app.command
def invoice(
    number: str | None = None,
    *,
    account: Account = None,
    limit: Limit = 100,
    home: Home = DEFAULT_HOME,
    json: AsJson = False,
) -> None:
    """Show one usage invoice, or list those of an account.

    Example: gpuledger invoice USE-00000001
    """
    from adapters.cli.output import plain, print_json, print_rows
    from ledger.services.questions import accounts as people
    from ledger.services.questions import invoices as ask

    with opened(home) as ledger, ledger.reading() as connection:
        if number is None:
            owner = account and people.find_account(connection, ledger.vault, account)
            listed = ask.invoices(connection, account_id=owner or None, limit=limit)
            columns = ["number", "account_id", "period_from", "period_until", "total", "status"]
            print_rows(listed, columns, as_json=json, title="invoices", empty="no invoices")
            return
        found = ask.invoice(connection, number)
    if json:
        print_json(found)
        return
    shown = plain(found)
    sys.stdout.write(
        f"{found.number}  account {found.account_id}  {found.status}\n"
        f"{shown['period_from']} to {shown['period_until']}\n\n"
    )
    columns = ["line", "instance_id", "meter", "quantity", "rate", "amount", "cents", "late"]
    print_rows(found.lines, columns, as_json=False, title="lines", empty="no lines")
    for name in ("opening", "movements", "total", "closing", "paid"):
        sys.stdout.write(f"{name:>10}  {shown[name]}\n")


@app.command
def balance(account: str, *, home: Home = DEFAULT_HOME, json: AsJson = False) -> None:
    """Show an account's credit, what burns, and how long that lasts.

    Example: gpuledger balance alice
    """
    from adapters.cli.output import print_facts
    from ledger.services.questions import accounts as people
    from ledger.services.questions import balances as ask

    with opened(home) as ledger, ledger.reading() as connection:
        owner = people.find_account(connection, ledger.vault, account)
        found = ask.balance(connection, owner, ledger.clock())
    print_facts(found, as_json=json)


@app.command
def transfers(
    *, account: Account = None, limit: Limit = 100, home: Home = DEFAULT_HOME, json: AsJson = False
) -> None:
    """List every movement of money, usage included: debit, credit, amount.

    Example: gpuledger transfers --account bob
    """
    from adapters.cli.output import print_rows
    from ledger.services.questions import accounts as people
    from ledger.services.questions import transfers as ask

    with opened(home) as ledger, ledger.reading() as connection:
        owner = account and people.find_account(connection, ledger.vault, account)
        found = ask.transfers(connection, account_id=owner or None, limit=limit)
    columns = [
        "occurred_at", "kind", "reference", "debit", "debit_account", "credit", "credit_account",
        "amount", "position",
    ]  # fmt: skip
    print_rows(found, columns, as_json=json, title="transfers", empty="no transfers")


@app.command(name="trial-balance")
def trial_balance(*, home: Home = DEFAULT_HOME, json: AsJson = False) -> int:
    """Show debits and credits per ledger account; exit 1 unless they are equal.

    Example: gpuledger trial-balance
    """
    from adapters.cli.output import print_rows
    from ledger.services.questions import balances as ask

    with opened(home) as ledger, ledger.reading() as connection:
        found = ask.trial_balance(connection)
    columns = ["ledger_account", "debit", "credit"]
    print_rows(found, columns, as_json=json, title="trial balance", empty="nothing was posted")
    return 0 if sum(row.debit - row.credit for row in found) == 0 else 1


@app.command
def anomalies(
    *,
    instance: int | None = None,
    machine: int | None = None,
    limit: Limit = 100,
    home: Home = DEFAULT_HOME,
    json: AsJson = False,
) -> None:
    """List what was attested, stored and not billed, and why.

    Example: gpuledger anomalies --instance 7
    """
    from adapters.cli.output import print_rows
    from ledger.services.questions import usage as ask

    with opened(home) as ledger, ledger.reading() as connection:
        found = ask.anomalies(connection, instance_id=instance, machine_id=machine, limit=limit)
    columns = ["machine_id", "instance_id", "code", "severity", "start", "until", "position"]
    print_rows(found, columns, as_json=json, title="anomalies", empty="no anomalies")


@app.command
def events(
    *,
    stream: Annotated[str | None, Parameter(help="One stream, such as instance-7.")] = None,
    after: After = 0,
    limit: Limit = 20,
    home: Home = DEFAULT_HOME,
    json: AsJson = False,
) -> None:
    """Read the log, or one stream of it, in order.

    Example: gpuledger events --stream instance-7 --json
    """
    from adapters.cli.output import print_rows
    from ledger.services.questions import events as ask

    with opened(home) as ledger, ledger.reading() as connection:
        if stream is None:
            found = ask.events(connection, after=after, limit=limit)
        else:
            found = ask.stream_events(connection, stream, after=after, limit=limit)
    columns = ["position", "count", "recorded_at", "stream", "version", "topic", "sha256"]
    print_rows(found, columns, as_json=json, title="events", empty="no events")


@app.command
def explain(
    instance: int,
    *,
    meter: Literal["gpu", "storage", "up", "down"] | None = None,
    home: Home = DEFAULT_HOME,
    json: AsJson = False,
) -> None:
    """Explain the charges of an instance in full: terms, seconds, gaps, formula, places in the log.

    Example: gpuledger explain 7 --meter gpu
    """
    from adapters.cli.explained import text
    from adapters.cli.output import print_json
    from ledger.services.explain import explain as ask

    with opened(home) as ledger, ledger.reading() as connection:
        found = ask(connection, instance, meter)
    if json:
        print_json(found)
    else:
        sys.stdout.write(text(found))


def _instant(given: str | None, name: str) -> int | None:
    from ledger.domain.ids import parse_rfc3339

    try:
        return None if given is None else parse_rfc3339(given)
    except ValueError as error:
        raise RejectedError("invalid_args", f"{name}: {error}") from None


if __name__ == "__main__":
    main()
