"""Logs of containers on demand: a renter asks, the machine's host uploads, a URL shows the text.

What is in them is private and nobody's business later: an expiring table of operation, sealed under
the renter's subject, neither the log nor a read model. The address of a result is made of the
vault's key, so that who reads the database cannot tell it.
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Collection
from typing import Annotated, Final, NamedTuple

import msgspec
from msgspec import Meta

from ledger.domain.instance.contract import require_alive
from ledger.errors import DeclinedError, NotFoundError
from ledger.services.ledger import Unit
from ledger.services.subjects import require_subject
from ledger.store.database import Connection
from ledger.store.vault import Vault

KEEP_SECONDS: Final = 3_600
"""How long a request waits, and its text is shown, from the second in which it was asked."""
OPEN_MAX: Final = 10
"""Requests of one instance that live at once."""
TEXT_CHARACTERS_MAX: Final = 100_000
_NONCE_BYTES: Final = 16
_ID_DIGITS_MAX: Final = 18


class Options(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What of the log is wanted: its last lines, those with a text in them, or the daemon's."""

    tail: Annotated[int, Meta(ge=1, le=10_000)] = 1_000
    filter: Annotated[str, Meta(max_length=256, pattern=r"^[^\x00]*\Z")] | None = None
    daemon: bool = False


class LogRequest(NamedTuple):
    """A request that waits for the machine's host."""

    request_id: int
    token: str
    instance_id: int
    options: Options
    asked_at: int


def ask_for_logs(unit: Unit, instance_id: int, options: Options) -> str:
    """Ask for an instance's log; returns the token under which the text will be found.

    Raises:
        NotFoundError: `no_such_instance`, also for one that was destroyed, or `erased`.
        DeclinedError: `too_many_log_requests`.
    """
    instance = unit.instance(instance_id)
    require_alive(instance)
    subject = require_subject(unit.connection, instance.account_id)
    unit.connection.execute("DELETE FROM log_requests WHERE expires_at <= %s", [unit.now])
    count = unit.connection.execute(
        "SELECT count(*) FROM log_requests WHERE instance_id = %s", [instance_id]
    ).fetchone()
    assert count is not None
    if count[0] >= OPEN_MAX:
        message = f"{OPEN_MAX} logs of this instance were asked for within the hour: fetch those"
        raise DeclinedError("too_many_log_requests", message)
    nonce = secrets.token_bytes(_NONCE_BYTES)
    sealed = unit.vault.seal(
        unit.connection, subject, _context(nonce, "options"), msgspec.json.encode(options)
    )
    row = unit.connection.execute(
        "INSERT INTO log_requests (nonce, account_id, instance_id, machine_id, options, asked_at,"
        " expires_at) VALUES (%s, %s, %s, %s, %s, %s, %s) RETURNING request_id",
        [
            nonce,
            instance.account_id,
            instance_id,
            instance.machine_id,
            sealed,
            unit.now,
            unit.now + KEEP_SECONDS,
        ],
    ).fetchone()
    assert row is not None
    return _token(unit.vault, row[0], nonce)


def open_requests(
    connection: Connection, vault: Vault, machine_id: int, now: int
) -> list[LogRequest]:
    """What a machine's host is to upload, the oldest first."""
    rows = connection.execute(
        "SELECT r.request_id, r.nonce, r.instance_id, r.options, r.asked_at, a.subject"
        " FROM log_requests r JOIN accounts a USING (account_id)"
        " WHERE r.machine_id = %s AND r.text IS NULL AND r.expires_at > %s ORDER BY r.request_id",
        [machine_id, now],
    ).fetchall()
    found = []
    for request_id, nonce, instance_id, sealed, asked_at, subject in rows:
        context = _context(bytes(nonce), "options")
        options = msgspec.json.decode(
            vault.unseal(connection, subject, context, bytes(sealed)), type=Options
        )
        token = _token(vault, request_id, bytes(nonce))
        found.append(LogRequest(request_id, token, instance_id, options, asked_at))
    return found


def newest_requests(
    connection: Connection, machine_ids: Collection[int], now: int
) -> dict[int, int]:
    """Machine → the number of the newest request that waits there; nothing where none waits."""
    return dict(
        connection.execute(
            "SELECT machine_id, max(request_id) FROM log_requests WHERE machine_id = ANY(%s)"
            " AND text IS NULL AND expires_at > %s GROUP BY machine_id",
            [list(machine_ids), now],
        ).fetchall()
    )


def newest_request(connection: Connection) -> int:
    """The number of the newest request of all; 0 when there is none."""
    row = connection.execute("SELECT max(request_id) FROM log_requests").fetchone()
    return 0 if row is None or row[0] is None else int(row[0])


def upload(
    unit: Unit, host_id: int | None, token: str, text: str, *, machine_id: int | None = None
) -> None:
    """Keep the text that a request asked for; the first one stands, again changes nothing.

    Args:
        unit: The command's transaction.
        host_id: Whose machine it must be; none: anybody's.
        token: Which request.
        text: The log, of which the end is kept where it is too long.
        machine_id: Which machine it must be; none: any of the host's.

    Raises:
        NotFoundError: `no_such_log_request`, also for one of another host's machine.
    """
    row = _find(unit.connection, unit.vault, token, unit.now)
    if row is not None and machine_id not in {None, row.machine_id}:
        row = None
    if row is not None and host_id is not None:
        owner = unit.connection.execute(
            "SELECT 1 FROM machines WHERE machine_id = %s AND host_id = %s",
            [row.machine_id, host_id],
        ).fetchone()
        row = row if owner is not None else None
    if row is None:
        raise NotFoundError("no_such_log_request", "nobody asked for this log, or not any more")
    if row.text is None:
        kept = text[-TEXT_CHARACTERS_MAX:].encode(errors="replace")
        sealed = unit.vault.seal(unit.connection, row.subject, _context(row.nonce, "text"), kept)
        unit.connection.execute(
            "UPDATE log_requests SET text = %s, uploaded_at = %s WHERE request_id = %s",
            [sealed, unit.now, row.request_id],
        )


def read_log(connection: Connection, vault: Vault, token: str, now: int) -> str:
    """The text of a log by its token, for an hour after it was asked for.

    Raises:
        NotFoundError: `no_such_log` while it is not there, when it is no more, or never was.
    """
    row = _find(connection, vault, token, now)
    if row is None or row.text is None:
        raise NotFoundError("no_such_log", "there is no such log, or not yet, or not any more")
    context = _context(row.nonce, "text")
    return vault.unseal(connection, row.subject, context, row.text).decode()


class _Row(NamedTuple):
    request_id: int
    nonce: bytes
    machine_id: int
    text: bytes | None
    subject: str


def _find(connection: Connection, vault: Vault, token: str, now: int) -> _Row | None:
    """The request that a token stands for; none for what is no token, or has expired."""
    number, _, _ = token.partition("-")
    if not (number.isascii() and number.isdecimal() and len(number) <= _ID_DIGITS_MAX):
        return None
    row = connection.execute(
        "SELECT r.nonce, r.machine_id, r.text, a.subject FROM log_requests r"
        " JOIN accounts a USING (account_id) WHERE r.request_id = %s AND r.expires_at > %s",
        [int(number), now],
    ).fetchone()
    if row is None:
        return None
    nonce = bytes(row[0])
    expected = _token(vault, int(number), nonce)
    if not hmac.compare_digest(token.encode(errors="replace"), expected.encode()):
        return None
    return _Row(int(number), nonce, row[1], None if row[2] is None else bytes(row[2]), row[3])


def _token(vault: Vault, request_id: int, nonce: bytes) -> str:
    return f"{request_id}-{vault.keyed_hash(f'log-request/{request_id}/{nonce.hex()}')}"


def _context(nonce: bytes, part: str) -> str:
    return f"log-request/{nonce.hex()}/{part}"
