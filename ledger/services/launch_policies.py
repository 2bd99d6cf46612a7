"""What an account demands of the machines it rents (`marketplace.md` §20)."""

from __future__ import annotations

from ledger.domain.events import LaunchPolicySet
from ledger.domain.ids import account_stream
from ledger.services.ledger import Unit
from ledger.services.subjects import require_subject
from ledger.store.database import Connection


def set_policy(unit: Unit, account_id: int, *, secure_only: bool) -> None:
    """Demand the secure tier, or not; what runs elsewhere goes on.

    Raises:
        NotFoundError: `no_such_account`, or `erased`.
    """
    require_subject(unit.connection, account_id)
    if secure_only != demands_secure(unit.connection, account_id):
        unit.append(
            account_stream(account_id),
            LaunchPolicySet(account_id=account_id, secure_only=secure_only, set_at=unit.now),
        )


def demands_secure(connection: Connection, account_id: int) -> bool:
    """True when an account rents in the secure tier only; nobody does at first."""
    row = connection.execute(
        "SELECT secure_only FROM launch_policies WHERE account_id = %s", [account_id]
    ).fetchone()
    return row is not None and bool(row[0])
