"""How a host comes to be paid: an account at the payment processor, which asks who it is.

Who a host is and where its bank is, only the processor learns.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from ledger.domain.events import PayoutAccountOpened, PayoutAccountOrdered
from ledger.domain.ids import account_stream
from ledger.errors import DeclinedError, RejectedError
from ledger.services.accounts import require_account
from ledger.services.ledger import Unit
from ledger.store.database import Connection

_COUNTRY: Final = re.compile(r"[A-Z]{2}")


class PayoutAccount(NamedTuple):
    """A host's account at the processor; `payout_account` is none until the processor made it."""

    account_id: int
    country: str
    payout_account: str | None
    is_enabled: bool
    ordered_at: int
    enabled_at: int | None


def order_payout_account(unit: Unit, account_id: int, country: str) -> None:
    """A host wants to be paid; again changes nothing.

    Raises:
        RejectedError: `invalid_args` for what is no country, or another one than before.
        NotFoundError: `no_such_account`.
    """
    if not _COUNTRY.fullmatch(country):
        message = "country is the two capital letters of ISO 3166, such as US"
        raise RejectedError("invalid_args", message)
    require_account(unit.connection, account_id)
    before = find_payout_account(unit.connection, account_id)
    if before is not None:
        if before.country != country:
            message = f"the payout account is in {before.country}, and a country is for good"
            raise RejectedError("invalid_args", message)
        return
    fact = PayoutAccountOrdered(account_id=account_id, country=country, ordered_at=unit.now)
    unit.append(account_stream(account_id), fact)


def note_payout_account(unit: Unit, account_id: int, payout_account: str) -> None:
    """Note the processor's name of a host's account, the first one."""
    before = find_payout_account(unit.connection, account_id)
    assert before is not None, account_id
    if before.payout_account is None:
        fact = PayoutAccountOpened(
            account_id=account_id, payout_account=payout_account, opened_at=unit.now
        )
        unit.append(account_stream(account_id), fact)


def find_payout_account(connection: Connection, account_id: int) -> PayoutAccount | None:
    """A host's account at the processor; none if it never asked for one."""
    row = connection.execute(
        "SELECT account_id, country, payout_account, is_enabled, ordered_at, enabled_at"
        " FROM payout_accounts WHERE account_id = %s",
        [account_id],
    ).fetchone()
    return None if row is None else PayoutAccount(*row)


def require_payout_account(connection: Connection, account_id: int) -> PayoutAccount:
    """A host's account at the processor.

    Raises:
        DeclinedError: `payout_method_missing`.
    """
    found = find_payout_account(connection, account_id)
    if found is None:
        message = "there is no payout account: open one first with POST /v1/payout-account"
        raise DeclinedError("payout_method_missing", message)
    return found


def open_orders(connection: Connection) -> list[PayoutAccount]:
    """Accounts that the processor did not make yet, oldest first."""
    rows = connection.execute(
        "SELECT account_id, country, payout_account, is_enabled, ordered_at, enabled_at"
        " FROM payout_accounts WHERE payout_account IS NULL ORDER BY ordered_at, account_id"
    )
    return [PayoutAccount(*row) for row in rows]
