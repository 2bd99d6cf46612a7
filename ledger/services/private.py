"""Tables of operation that hold what is private, and what erasing an account takes out of them.

Everything in them is sealed under the account's subject already; erasing its key closes it for
good, and what could still be counted or guessed goes with it.
"""

from __future__ import annotations

from ledger.services.ledger import Unit


def forget_account(unit: Unit, account_id: int) -> None:
    """Destroy an account's addresses, and the container logs that wait for it."""
    unit.connection.execute("DELETE FROM log_requests WHERE account_id = %s", [account_id])
    unit.connection.execute(
        "UPDATE access_log SET address_id = NULL WHERE account_id = %s", [account_id]
    )
    unit.connection.execute("DELETE FROM access_addresses WHERE account_id = %s", [account_id])
