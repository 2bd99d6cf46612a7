"""Heartbeats: a container may say every 30 s that it lives (`marketplace.md` §18).

They are kept as spans in a table of operation, until no tick that they could contradict is late;
the log is not touched. A renter that sends none loses nothing by it.
"""

from __future__ import annotations

import hmac
from typing import Final

from ledger.domain.money import SECONDS_PER_HOUR
from ledger.domain.witness import MINUTE_SECONDS, RenterWord
from ledger.errors import AuthError
from ledger.services.ledger import Ledger, Unit
from ledger.store.database import Connection, translating
from ledger.store.vault import Vault

GRACE_SECONDS: Final = 120
"""How long after a minute its ticks and heartbeats are waited for."""
_GAP_SECONDS: Final = MINUTE_SECONDS
"""Beats this close make one span: every minute inside it then holds a beat."""
_PREFIX: Final = "gli"


def heartbeat_token(vault: Vault, instance_id: int) -> str:
    """The token with which one container says that it lives; nothing is kept of it.

    It is derived from the vault's key, good for this instance only, and dead once it is destroyed.
    """
    return f"{_PREFIX}_{instance_id}_{vault.keyed_hash(f'heartbeat/{instance_id}')}"


def heartbeat(ledger: Ledger, token: str) -> int:
    """Note that a container lives now; returns its instance. The log is not touched.

    Raises:
        AuthError: `auth_error` for a token that is wrong, or of an instance that is no more.
    """
    instance_id = _instance_of(ledger.vault, token)
    now = ledger.clock()
    with translating(), ledger.database.pool.connection() as connection:
        row = connection.execute(
            "SELECT 1 FROM instances WHERE instance_id = %s AND destroyed_at IS NULL", [instance_id]
        ).fetchone()
        if row is None:
            raise AuthError("auth_error", "the heartbeat token is not valid")
        # A crash may lose the last beats: the next one is 30 s away.
        connection.execute("SET LOCAL synchronous_commit = off")
        longer = connection.execute(
            "UPDATE heartbeat_spans SET until = greatest(until, %(now)s)"
            " WHERE instance_id = %(id)s AND start <= %(now)s AND until >= %(now)s - %(gap)s",
            {"id": instance_id, "now": now, "gap": _GAP_SECONDS},
        )
        if not longer.rowcount:
            connection.execute(
                "INSERT INTO heartbeat_spans VALUES (%s, %s, %s) ON CONFLICT DO NOTHING",
                [instance_id, now, now],
            )
    return instance_id


def _instance_of(vault: Vault, token: str) -> int:
    prefix, _, rest = token.partition("_")
    number, _, _ = rest.partition("_")
    if prefix == _PREFIX and number.isdecimal() and len(number) <= 18:  # noqa: PLR2004 - a bigint
        instance_id = int(number)
        expected = heartbeat_token(vault, instance_id)
        if hmac.compare_digest(token.encode(), expected.encode()):
            return instance_id
    raise AuthError("auth_error", "the heartbeat token is not valid")


def renter_word(connection: Connection, instance_id: int, start: int, until: int) -> RenterWord:
    """What the heartbeats of an instance say of `[start, until)`."""
    row = connection.execute(
        "SELECT bool_or(start < %s AND until >= %s) FROM heartbeat_spans WHERE instance_id = %s",
        [until, start, instance_id],
    ).fetchone()
    assert row is not None
    if row[0] is None:
        return "not_installed"
    return "alive" if row[0] else "silent"


def horizon(unit: Unit) -> int:
    """Before this second nothing can change any more: no tick of it would be in time."""
    return unit.now - unit.policy.late_usage_seconds - SECONDS_PER_HOUR - GRACE_SECONDS


def forget(unit: Unit) -> None:
    """Drop the spans that no late tick needs; the last one says that a heartbeat is installed."""
    unit.connection.execute(
        "DELETE FROM heartbeat_spans old WHERE until < %s AND ("
        "EXISTS (SELECT 1 FROM heartbeat_spans later WHERE later.instance_id = old.instance_id"
        "  AND later.start > old.start)"
        " OR EXISTS (SELECT 1 FROM instances i WHERE i.instance_id = old.instance_id"
        "  AND i.destroyed_at < %s))",
        [horizon(unit), horizon(unit)],
    )
