"""The books: journals for other programs, balances and lines as of any instant."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from adapters.cli.options import AfterKey, AsJson, Home, Instant, Limit, instant, reading

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ledger.services.questions.balances import TrialBalanceRow
    from ledger.services.questions.books import Statement

AsOf = Annotated[
    Instant,
    Parameter(
        name="--as-of", help="Up to this second, such as 2026-03-31T23:59:59Z; default: all."
    ),
]
Day = Annotated[str | None, Parameter(help="A UTC day such as 2026-03-01, from its first second.")]


def export(
    *,
    format: Annotated[
        Literal["beancount", "hledger"], Parameter(help="Which program reads it.")
    ] = "beancount",
    start: Annotated[Day, Parameter(name="--from")] = None,
    until: Annotated[
        Day, Parameter(help="The day after the last, such as 2026-04-01; default: tomorrow.")
    ] = None,
    roll_up: Annotated[
        Literal["hour", "month"],
        Parameter(help="A transaction per instance and hour, or per account and month."),
    ] = "hour",
    output: Annotated[Path | None, Parameter(help="A new file; default: standard output.")] = None,
    home: Home = None,
) -> None:
    """Write all movements of money as a journal that `bean-check` or `hledger check` proves.

    Amounts have all nine decimals; balances are asserted at the end of each month.

    Example: gpuledger books export --format hledger --from 2026-03-01 --output march.journal
    """
    from adapters.cli.progress import progress
    from adapters.export import write_journal
    from ledger.domain.ids import rfc3339
    from ledger.domain.money import SECONDS_PER_DAY
    from ledger.projections.runner import position_of
    from ledger.services.journal import journal
    from ledger.store.log import head_position

    first, end = _day(start, "--from"), _day(until, "--until")
    with ExitStack() as stack:
        ledger, connection = stack.enter_context(reading(home))
        out = sys.stdout
        if output is not None:
            out = stack.enter_context(output.open("x", encoding="utf-8"))
        if end is None:
            end = (ledger.clock() // SECONDS_PER_DAY + 1) * SECONDS_PER_DAY
        report = stack.enter_context(progress("exporting", "movements"))
        title = (
            f"gpuledger {rfc3339(first or 0)[:10]} to {rfc3339(end)[:10]}, log up to"
            f" {head_position(connection)}, usage up to {position_of(connection)}"
        )
        items = journal(connection, first or 0, end, roll_up, report)
        count = write_journal(out, format, title, items)
    if output is not None:
        sys.stderr.write(f"{output}: {count:,} transactions\n")


def trial_balance(*, as_of: AsOf = None, home: Home = None, json: AsJson = False) -> int:
    """Show debits and credits per ledger account as of an instant; exit 1 unless they are equal.

    Example: gpuledger books trial-balance --as-of 2026-03-31T23:59:59Z
    """
    from ledger.services.questions import books as ask

    second = instant(as_of, "--as-of")
    with reading(home) as (_, connection):
        found = ask.trial_balance_at(connection, ask.FOREVER if second is None else second)
    return print_trial_balance(found, as_json=json)


def print_trial_balance(found: Sequence[TrialBalanceRow], *, as_json: bool) -> int:
    """Print it; returns the exit code, 0 where debits are credits."""
    from adapters.cli.output import print_rows
    from ledger.domain.money import format_dollars

    columns = ["ledger_account", "debit", "credit"]
    print_rows(found, columns, as_json=as_json, title="trial balance", empty="nothing was posted")
    difference = sum(row.debit - row.credit for row in found)
    if not as_json:
        sys.stdout.write(f"difference {format_dollars(difference)}\n")
    return 0 if difference == 0 else 1


def balances(
    *,
    as_of: AsOf = None,
    after: AfterKey = "",
    limit: Limit = 100,
    home: Home = None,
    json: AsJson = False,
) -> None:
    """List what every ledger account of every person stands at: debits minus credits.

    Example: gpuledger books balances --as-of 2026-03-31T23:59:59Z
    """
    from adapters.cli.output import page, print_rows
    from ledger.services.questions import books as ask

    second = instant(as_of, "--as-of")
    with reading(home) as (_, connection):
        found = ask.balances_at(
            connection,
            ask.FOREVER if second is None else second,
            after=after,
            limit=limit + 1,
        )
    shown = page(found, limit, lambda one: f"{one.ledger_account}:{one.account_id or 0}")
    columns = ["journal_account", "ledger_account", "account_id", "balance"]
    print_rows(shown, columns, as_json=json, title="balances", empty="everything is at zero")


def statement(
    account: Annotated[str, Parameter(help="Name or id.")],
    *,
    ledger_account: Annotated[
        str, Parameter(help="Such as renter_credit, host_payable, reserved_deposit.")
    ] = "renter_credit",
    start: Annotated[Instant, Parameter(name="--from")] = None,
    as_of: AsOf = None,
    after: AfterKey = "",
    limit: Limit = 100,
    home: Home = None,
    json: AsJson = False,
) -> None:
    """Show what an account had, what moved it, and what it has as of an instant.

    Example: gpuledger books statement alice --from 2026-03-01T00:00:00Z
    """
    from ledger.services.questions import accounts as people
    from ledger.services.questions import books as ask

    first, last = instant(start, "--from"), instant(as_of, "--as-of")
    with reading(home) as (ledger, connection):
        found = ask.account_statement(
            connection,
            people.find_account(connection, ledger.vault, account),
            ledger_account,
            start=first or 0,
            as_of=ask.FOREVER if last is None else last,
            after=after,
            limit=limit + 1,
        )
    _print(found, limit, as_json=json)


def general_ledger(
    ledger_account: Annotated[str, Parameter(help="Such as platform_fee or bad_debt.")],
    *,
    start: Annotated[Instant, Parameter(name="--from")] = None,
    as_of: AsOf = None,
    after: AfterKey = "",
    limit: Limit = 100,
    home: Home = None,
    json: AsJson = False,
) -> None:
    """Show the lines of one ledger account with its running balance: debits minus credits.

    Example: gpuledger books ledger platform_fee --as-of 2026-03-31T23:59:59Z
    """
    from ledger.services.questions import books as ask

    first, last = instant(start, "--from"), instant(as_of, "--as-of")
    with reading(home) as (_, connection):
        found = ask.general_ledger(
            connection,
            ledger_account,
            start=first or 0,
            as_of=ask.FOREVER if last is None else last,
            after=after,
            limit=limit + 1,
        )
    _print(found, limit, as_json=json)


def _print(found: Statement, limit: int, *, as_json: bool) -> None:
    import msgspec

    from adapters.cli.output import page, plain, print_json, print_rows

    shown = msgspec.structs.replace(found, lines=page(found.lines, limit, lambda one: one.key))
    if as_json:
        print_json(shown)
        return
    sums = plain(msgspec.structs.replace(shown, lines=[]))
    sys.stdout.write(f"opening {sums['opening']}\n")
    columns = ["posted_at", "kind", "reference", "account_id", "other", "amount", "balance"]
    title = f"{found.ledger_account}"
    print_rows(shown.lines, columns, as_json=False, title=title, empty="nothing moved")
    sys.stdout.write(f"closing {sums['closing']}\n")


def _day(text: str | None, option: str) -> int | None:
    return instant(None if text is None else f"{text}T00:00:00Z", option)
