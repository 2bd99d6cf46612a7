"""What is destroyed when the personal data of an account are erased, and what stays.

Everything private is sealed under the account's subject: destroying its key closes it for good.
What could still be counted or guessed in tables of operation goes with it; the books stay.
"""

from __future__ import annotations

from ledger.domain.events import SubjectErased
from ledger.domain.ids import account_stream
from ledger.errors import NotFoundError
from ledger.services.billing import erase_customer
from ledger.services.ledger import Unit


def erase_subject(unit: Unit, account_id: int) -> None:
    """Destroy the key of an account's personal data; its books stay as they are."""
    row = unit.connection.execute(
        "SELECT subject, erased_at FROM accounts WHERE account_id = %s", [account_id]
    ).fetchone()
    if row is None:
        raise NotFoundError("no_such_account", f"there is no account {account_id}")
    if row[1] is not None:
        return
    erase_customer(unit, account_id)
    unit.vault.erase(unit.connection, row[0])
    _forget(unit, account_id)
    unit.append(
        account_stream(account_id),
        SubjectErased(account_id=account_id, subject=row[0], erased_at=unit.now),
    )


def _forget(unit: Unit, account_id: int) -> None:
    """Destroy an account's addresses, and the container logs that wait for it."""
    unit.connection.execute("DELETE FROM log_requests WHERE account_id = %s", [account_id])
    unit.connection.execute(
        "UPDATE access_log SET address_id = NULL WHERE account_id = %s", [account_id]
    )
    unit.connection.execute("DELETE FROM access_addresses WHERE account_id = %s", [account_id])
