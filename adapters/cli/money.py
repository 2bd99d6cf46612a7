"""Commands that ask what accounts have now, and what moved it."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from adapters.cli.books import print_trial_balance
from adapters.cli.options import (
    Account,
    AfterKey,
    AsJson,
    Home,
    Limit,
    account_id,
    reading,
)


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
    from ledger.services.questions import balances as ask

    with reading(home) as (_, connection):
        found = ask.trial_balance(connection)
    return print_trial_balance(found, as_json=json)
