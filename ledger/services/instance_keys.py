"""The API key that every instance gets: good for itself alone, dead in the second of its end.

The container has it in its environment, so a program in it can stop, label or destroy the instance
that it runs in, and nothing else of the account. Its text lies in the vault until the instance is
destroyed, because the host hands it to the container.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ledger.domain.events import Constraint, Grant, Scope
from ledger.services.api_keys import create_key
from ledger.services.ledger import Unit
from ledger.services.subjects import opened, require_subject
from ledger.store.database import Connection
from ledger.store.vault import Vault

KEY_VARIABLE: Final = "GPULEDGER_API_KEY"
"""Under which name the container finds its key."""
ID_VARIABLE: Final = "GPULEDGER_INSTANCE_ID"
ENDPOINTS: Final[tuple[tuple[Scope, str], ...]] = (
    ("instance_read", "api.instance.show_instance"),
    ("instance_read", "api.instance.ticks"),
    ("instance_read", "api.instance.show_launch"),
    ("instance_read", "api.instance.request_logs"),
    ("instance_write", "api.instance.stop"),
    ("instance_write", "api.instance.destroy"),
    ("instance_write", "api.instance.label"),
    ("instance_write", "api.instance.heartbeat_token"),
)
"""What an instance may do to itself."""


def key_of(unit: Unit, instance_id: int) -> str:
    """The key of an instance; made the first time, and the same one for a repeated create.

    Raises:
        NotFoundError: `no_such_instance`, or `erased`.
    """
    account_id = unit.instance(instance_id).account_id
    subject = require_subject(unit.connection, account_id)
    kept = opened(unit.connection, unit.vault, f"{subject}/{_key_name(instance_id)}")
    if kept is not None:
        return kept.decode()
    itself = Constraint(field="id", comparison="eq", value=instance_id)
    grants = [
        Grant(scope=scope, endpoint=endpoint, constraints=[itself]) for scope, endpoint in ENDPOINTS
    ]
    key = create_key(unit, account_id, "renter", grants=grants, instance_id=instance_id)
    unit.vault.put(unit.connection, subject, _key_name(instance_id), key.encode())
    return key


def environment_for(connection: Connection, vault: Vault, instance_id: int) -> dict[str, str]:
    """What the host adds to the container's environment: the instance's id, and its key."""
    row = connection.execute(
        "SELECT a.subject FROM instances i JOIN accounts a USING (account_id)"
        " WHERE i.instance_id = %s",
        [instance_id],
    ).fetchone()
    assert row is not None
    key = opened(connection, vault, f"{row[0]}/{_key_name(instance_id)}")
    found = {ID_VARIABLE: str(instance_id)}
    return found if key is None else {**found, KEY_VARIABLE: key.decode()}


def connection_name(instance_id: int) -> str:
    """Under which name the addresses of an instance lie."""
    return f"connection-{instance_id}"


def forget_secrets_of(unit: Unit, instance_ids: Sequence[int]) -> None:
    """Destroy what only a living instance needs: the text of its key, its addresses, its logs."""
    if not instance_ids:
        return
    names = [name for one in instance_ids for name in (_key_name(one), connection_name(one))]
    for (subject,) in unit.connection.execute(
        "SELECT DISTINCT a.subject FROM instances i JOIN accounts a USING (account_id)"
        " WHERE i.instance_id = ANY(%s)",
        [list(instance_ids)],
    ).fetchall():
        unit.vault.remove(unit.connection, subject, names)


def _key_name(instance_id: int) -> str:
    return f"instance-key-{instance_id}"
