"""Commands that write: API keys and deposits."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from adapters.cli.options import AsJson, Home, account_id, instant, opened, reading

if TYPE_CHECKING:
    from ledger.services.ledger import Ledger, Unit


def create(
    *,
    account: Annotated[str, Parameter(help="Name or id; a new name opens an account.")],
    role: Literal["renter", "host", "auditor", "admin"],
    expires: Annotated[
        str | None, Parameter(help="When it ends, such as 2027-01-01T00:00:00Z; default: never.")
    ] = None,
    home: Home = None,
    json: AsJson = False,
) -> None:
    """Make an API key; it is shown this once.

    Example: gpuledger keys create --account alice --role renter
    """
    from adapters.cli.output import print_json
    from ledger.domain.ids import rfc3339
    from ledger.services import api_keys as use_cases

    expires_at = instant(expires, "--expires")
    with opened(home, create=True) as ledger:
        ledger.adopt_policy()
        with ledger.unit() as unit:
            owner = _owner(ledger, unit, account)
            key = use_cases.create_key(unit, owner, role, expires_at=expires_at)
    if json:
        ends = None if expires_at is None else rfc3339(expires_at)
        print_json({"key": key, "account_id": owner, "role": role, "expires_at": ends})
    else:
        sys.stdout.write(f"{key}\n")


def _owner(ledger: Ledger, unit: Unit, account: str) -> int:
    """The account with this id or name; a name that nobody has opens one, a number never does."""
    from ledger.services import accounts as use_cases
    from ledger.services.questions import accounts as ask

    if account.isdecimal():
        return ask.find_account(unit.connection, ledger.vault, account)
    return use_cases.ensure_account(unit, account)


def listed(
    account: Annotated[str | None, Parameter(help="Name or id; without it, all accounts.")] = None,
    *,
    home: Home = None,
    json: AsJson = False,
) -> None:
    """List API keys, without their secrets.

    Example: gpuledger keys list alice
    """
    from adapters.cli.output import print_rows
    from ledger.services.questions import accounts as ask

    with reading(home) as (ledger, connection):
        found = ask.api_keys(connection, account_id(ledger, connection, account))
    columns = [
        "key_id", "account_id", "role", "created_at", "expires_at", "revoked_at", "last_used_at",
    ]  # fmt: skip
    print_rows(found, columns, as_json=json, title="API keys", empty="no keys")


def revoke(
    account: Annotated[str, Parameter(help="Name or id.")],
    key_id: Annotated[str, Parameter(help="The key's id: its part between the two `_`.")],
    *,
    home: Home = None,
) -> None:
    """End a key at once; ending it again changes nothing.

    Example: gpuledger keys revoke alice 5532fdd278ee16eb
    """
    from ledger.services import api_keys as use_cases
    from ledger.services.questions import accounts as ask

    with opened(home) as ledger, ledger.unit() as unit:
        owner = ask.find_account(unit.connection, ledger.vault, account)
        use_cases.revoke_key(unit, owner, key_id)
    sys.stdout.write(f"key {key_id} is revoked\n")


def deposit(
    account: Annotated[str, Parameter(help="Name or id.")],
    amount: Annotated[str, Parameter(help="Dollars, with up to 9 decimals.")],
    *,
    id: Annotated[str, Parameter(name="--id", help="The same id again is the same payment.")],
    home: Home = None,
    json: AsJson = False,
) -> None:
    """Book a settled payment as credit.

    Example: gpuledger deposit alice 100 --id bank-2026-03-01-17
    """
    from adapters.cli.output import print_json
    from ledger.domain.money import format_dollars, parse_amount
    from ledger.services import deposits as use_cases
    from ledger.services.questions import accounts as ask

    nanos = parse_amount(amount)
    with opened(home) as ledger, ledger.unit() as unit:
        owner = ask.find_account(unit.connection, ledger.vault, account)
        use_cases.deposit(unit, owner, nanos, id)
    if json:
        print_json({"account_id": owner, "id": id, "amount": format_dollars(nanos)})
    else:
        sys.stdout.write(f"{format_dollars(nanos)} booked for {account} as {id}\n")
