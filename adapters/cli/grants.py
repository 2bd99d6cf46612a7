"""Promotional credit: given, revoked, and what is left of it."""

from __future__ import annotations

import sys
from typing import Annotated

from cyclopts import Parameter

from adapters.cli.options import (
    Account,
    AfterPosition,
    AsJson,
    Home,
    Limit,
    account_id,
    instant,
    opened,
    reading,
)


def grant(
    account: Annotated[str, Parameter(help="Name or id.")],
    amount: Annotated[str, Parameter(help="Dollars, with up to 9 decimals.")],
    *,
    until: Annotated[str, Parameter(help="When it expires, such as 2030-01-01T00:00:00Z.")],
    id: Annotated[str, Parameter(name="--id", help="The same id again is the same grant.")],
    reason: Annotated[str, Parameter(help="Why it is given.")] = "promotion",
    revoke: Annotated[bool, Parameter(negative="", help="End this grant now instead.")] = False,
    home: Home = None,
    json: AsJson = False,
) -> None:
    """Give promotional credit: spent first, never refunded or transferred; or revoke it.

    Example: gpuledger grant alice 5 --until 2030-01-01T00:00:00Z --id welcome-alice
    """
    from adapters.cli.output import print_json
    from ledger.domain.money import format_dollars, parse_amount
    from ledger.services import grants as use_cases
    from ledger.services.questions import accounts as ask

    nanos = parse_amount(amount)
    expires_at = instant(until, "--until")
    assert expires_at is not None
    with opened(home) as ledger, ledger.unit() as unit:
        owner = ask.find_account(unit.connection, ledger.vault, account)
        if revoke:
            use_cases.revoke(unit, owner, id, reason)
        else:
            use_cases.grant(unit, owner, nanos, expires_at, id, reason)
    done = "revoked" if revoke else "granted"
    if json:
        print_json({"account_id": owner, "id": id, "amount": format_dollars(nanos), "done": done})
    else:
        sys.stdout.write(f"{format_dollars(nanos)} {done} for {account} as {id}\n")


def grants(
    *,
    account: Account = None,
    after: AfterPosition = 0,
    limit: Limit = 100,
    home: Home = None,
    json: AsJson = False,
) -> None:
    """List promotional credit, and what of it is unspent.

    Example: gpuledger grants --account alice
    """
    from adapters.cli.output import page, print_rows
    from ledger.services import grants as ask

    with reading(home) as (ledger, connection):
        owner = account_id(ledger, connection, account)
        found = ask.grants(
            connection, ledger.clock(), account_id=owner, after=after, limit=limit + 1
        )
    shown = page(found, limit, lambda one: one.position)
    columns = [
        "account_id", "grant_id", "amount", "spent", "unspent", "status", "expires_at", "position",
    ]  # fmt: skip
    print_rows(shown, columns, as_json=json, title="grants", empty="no grants")
