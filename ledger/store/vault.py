"""The encrypted, erasable store for what must never be in the log: names, addresses, secrets.

Every subject has a data key of its own, wrapped by the master key; destroying the wrapped key
erases the subject for good, also in every backup made later. The log holds only the subject's
reference and keyed hashes (`marketplace.md` §20).
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
from collections.abc import Sequence
from pathlib import Path

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from ledger.errors import NotFoundError, UnavailableError
from ledger.store.database import Connection

_KEY_BYTES = 32
_NONCE_BYTES = 12
_VARIABLE = "GPULEDGER_VAULT_KEY"


def open_vault(connection: Connection, home: Path | None) -> Vault:
    """The vault under its master key; locked when it holds something and the key is gone.

    The key is what `GPULEDGER_VAULT_KEY` says, else `<home>/vault.key`, which is made for a vault
    that is empty. A new key never takes the place of a lost one.
    """
    held = connection.execute("SELECT 1 FROM vault_subjects LIMIT 1").fetchone() is not None
    missing = home is None or not (home / "vault.key").exists()
    if held and missing and _VARIABLE not in os.environ:
        return LockedVault()
    return Vault(load_master_key(home))


def load_master_key(home: Path | None) -> bytes:
    """The key in `GPULEDGER_VAULT_KEY` (64 hex digits), else in `<home>/vault.key`, made if absent.

    Raises:
        UnavailableError: The key is malformed, or there is no place to keep one.
    """
    given = os.environ.get(_VARIABLE)
    if given is None and home is not None:
        path = home / "vault.key"
        try:
            descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
        except FileExistsError:
            given = path.read_text().strip()
        else:
            given = secrets.token_hex(_KEY_BYTES)
            with os.fdopen(descriptor, "w") as file:
                file.write(given + "\n")
                file.flush()
                os.fsync(file.fileno())
    try:
        key = bytes.fromhex(given or "")
    except ValueError:
        key = b""
    if len(key) != _KEY_BYTES:
        message = f"the vault's master key must be 64 hex digits: set {_VARIABLE} or give a home"
        raise UnavailableError("vault_key_missing", message)
    return key


class Vault:
    """Seals and opens values in the transaction of the connection that it is handed."""

    def __init__(self, master_key: bytes) -> None:
        """Derive the wrapping key and the key of keyed hashes from *master_key*."""
        self._wrap = AESGCM(_derived(master_key, b"wrap"))
        self._hash_key = _derived(master_key, b"hash")

    def keyed_hash(self, text: str) -> str:
        """A hash by which an equal text is found and no text is told; 64 hex digits."""
        return hmac.new(self._hash_key, text.encode(), hashlib.sha256).hexdigest()

    def new_subject(self, connection: Connection) -> str:
        """Make a subject with a data key of its own and return its reference."""
        subject = secrets.token_hex(16)
        wrapped = _seal(self._wrap, secrets.token_bytes(_KEY_BYTES), subject)
        connection.execute("INSERT INTO vault_subjects VALUES (%s, %s)", [subject, wrapped])
        return subject

    def put(self, connection: Connection, subject: str, name: str, value: bytes) -> None:
        """Keep *value* under a name; an earlier value of that name is replaced."""
        cipher = AESGCM(self._data_key(connection, subject))
        connection.execute(
            "INSERT INTO vault_items VALUES (%s, %s, %s)"
            " ON CONFLICT (subject, name) DO UPDATE SET sealed = EXCLUDED.sealed",
            [subject, name, _seal(cipher, value, f"{subject}/{name}")],
        )

    def get(self, connection: Connection, subject: str, name: str) -> bytes:
        """The value of a name.

        Raises:
            NotFoundError: `erased` when the subject's key was destroyed, `no_such_item` otherwise.
        """
        cipher = AESGCM(self._data_key(connection, subject))
        row = connection.execute(
            "SELECT sealed FROM vault_items WHERE subject = %s AND name = %s", [subject, name]
        ).fetchone()
        if row is None:
            raise NotFoundError("no_such_item", f"nothing is kept under {name!r}")
        return _open(cipher, row[0], f"{subject}/{name}")

    def names(self, connection: Connection, subjects: list[str]) -> dict[str, str]:
        """The sealed `name` of each subject that still has one."""
        rows = connection.execute(
            "SELECT s.subject, s.wrapped_key, i.sealed FROM vault_subjects s"
            " JOIN vault_items i ON i.subject = s.subject AND i.name = 'name'"
            " WHERE s.subject = ANY(%s)",
            [subjects],
        )
        return {
            subject: _open(
                AESGCM(_open(self._wrap, wrapped, subject)), sealed, f"{subject}/name"
            ).decode()
            for subject, wrapped, sealed in rows
        }

    def seal(self, connection: Connection, subject: str, context: str, value: bytes) -> bytes:
        """*value* closed under the subject's key, to be kept elsewhere; erasing closes it for good.

        *context* says what it is: it opens under the same words only.
        """
        return _seal(AESGCM(self._data_key(connection, subject)), value, f"{subject}//{context}")

    def unseal(self, connection: Connection, subject: str, context: str, sealed: bytes) -> bytes:
        """What `seal` closed.

        Raises:
            NotFoundError: `erased`.
        """
        cipher = AESGCM(self._data_key(connection, subject))
        return _open(cipher, sealed, f"{subject}//{context}")

    def open_all(
        self, connection: Connection, items: Sequence[tuple[str, str]]
    ) -> dict[tuple[str, str], bytes]:
        """The values of many (subject, name) at once; those that were erased are left out."""
        rows = connection.execute(
            "SELECT s.subject, s.wrapped_key, i.name, i.sealed FROM vault_items i"
            " JOIN vault_subjects s USING (subject) WHERE (i.subject, i.name) IN"
            " (SELECT * FROM unnest(%s::text[], %s::text[]))",
            [[subject for subject, _ in items], [name for _, name in items]],
        ).fetchall()
        keys = {row[0]: AESGCM(_open(self._wrap, row[1], row[0])) for row in rows}
        return {
            (subject, name): _open(keys[subject], sealed, f"{subject}/{name}")
            for subject, _, name, sealed in rows
        }

    def remove(self, connection: Connection, subject: str, names: list[str]) -> None:
        """Destroy what is kept under these names; names without anything are no matter."""
        connection.execute(
            "DELETE FROM vault_items WHERE subject = %s AND name = ANY(%s)", [subject, names]
        )

    def erase(self, connection: Connection, subject: str) -> None:
        """Destroy the subject's key and everything under it."""
        connection.execute("DELETE FROM vault_subjects WHERE subject = %s", [subject])

    def _data_key(self, connection: Connection, subject: str) -> bytes:
        row = connection.execute(
            "SELECT wrapped_key FROM vault_subjects WHERE subject = %s", [subject]
        ).fetchone()
        if row is None:
            raise NotFoundError("erased", "this data was erased")
        return _open(self._wrap, row[0], subject)


class LockedVault(Vault):
    """A vault whose master key is gone: the books can be read, names and launch texts cannot."""

    def __init__(self) -> None:
        """Hold no key."""

    def keyed_hash(self, text: str) -> str:
        """Say which key is needed."""
        raise _locked()

    def new_subject(self, connection: Connection) -> str:
        """Say which key is needed."""
        raise _locked()

    def put(self, connection: Connection, subject: str, name: str, value: bytes) -> None:
        """Say which key is needed."""
        raise _locked()

    def get(self, connection: Connection, subject: str, name: str) -> bytes:
        """Say which key is needed."""
        raise _locked()

    def seal(self, connection: Connection, subject: str, context: str, value: bytes) -> bytes:
        """Say which key is needed."""
        raise _locked()

    def unseal(self, connection: Connection, subject: str, context: str, sealed: bytes) -> bytes:
        """Say which key is needed."""
        raise _locked()

    def names(self, connection: Connection, subjects: list[str]) -> dict[str, str]:
        """No name can be read."""
        return {}

    def open_all(
        self, connection: Connection, items: Sequence[tuple[str, str]]
    ) -> dict[tuple[str, str], bytes]:
        """Nothing can be read."""
        return {}


def _locked() -> UnavailableError:
    message = f"vault.key is missing: put it back into the ledger's home, or set {_VARIABLE}"
    return UnavailableError("vault_key_missing", message)


def _derived(master_key: bytes, purpose: bytes) -> bytes:
    return hmac.new(master_key, b"gpuledger.vault.v1/" + purpose, hashlib.sha256).digest()


def _seal(cipher: AESGCM, value: bytes, context: str) -> bytes:
    nonce = secrets.token_bytes(_NONCE_BYTES)
    return nonce + cipher.encrypt(nonce, value, context.encode())


def _open(cipher: AESGCM, sealed: bytes, context: str) -> bytes:
    try:
        return cipher.decrypt(sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:], context.encode())
    except InvalidTag:
        message = "the vault's master key does not open this database's vault"
        raise UnavailableError("vault_key_wrong", message) from None
