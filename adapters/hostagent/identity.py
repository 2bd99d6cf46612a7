"""The host's Ed25519 key: made on the host at enrolment, and never leaving it."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Self

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from ledger.domain.usage import SIGNING_PREFIX, key_id_of
from ledger.errors import ConflictError, RejectedError


class HostIdentity:
    """A key pair that signs usage reports."""

    def __init__(self, private_key: Ed25519PrivateKey) -> None:
        """Sign with *private_key*."""
        self._private_key = private_key
        self.public_key = private_key.public_key().public_bytes_raw()
        self.key_id = key_id_of(self.public_key)

    @classmethod
    def generate(cls) -> Self:
        """A new key that nobody else knows."""
        return cls(Ed25519PrivateKey.generate())

    @classmethod
    def from_seed(cls, seed: bytes) -> Self:
        """The key of a 32-byte *seed*: the same one every time, for simulated hosts."""
        return cls(Ed25519PrivateKey.from_private_bytes(seed))

    @classmethod
    def load(cls, path: Path) -> Self:
        """The key kept in *path*.

        Raises:
            RejectedError: ``key_not_private`` when others may read the file, ``bad_key`` when it
                holds no Ed25519 key.
        """
        with path.open("rb") as file:
            mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
            if mode & 0o077:
                message = f"{path} has mode {mode:04o}; a host key is readable by its owner only"
                raise RejectedError("key_not_private", message)
            pem = file.read()
        try:
            key = load_pem_private_key(pem, password=None)
        except (ValueError, TypeError, UnsupportedAlgorithm):
            key = None
        if not isinstance(key, Ed25519PrivateKey):
            message = f"{path} does not hold an Ed25519 private key"
            raise RejectedError("bad_key", message)
        return cls(key)

    def save(self, path: Path) -> None:
        """Write the key to *path* with mode 0600; on disk when this returns.

        Raises:
            ConflictError: ``key_exists``; an existing key is never overwritten, because spooled
                reports are signed with it.
        """
        pem = self._private_key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        except FileExistsError:
            message = f"{path} exists already and is kept"
            raise ConflictError("key_exists", message) from None
        with os.fdopen(descriptor, "wb") as file:
            file.write(pem)
            file.flush()
            os.fsync(descriptor)

    @property
    def public_key_hex(self) -> str:
        """The 32 raw public bytes as an enrolment presents them."""
        return self.public_key.hex()

    def sign(self, body: bytes) -> bytes:
        """The signature of a report's *body*."""
        return self._private_key.sign(SIGNING_PREFIX + body)

    def sign_call(self, message: bytes) -> bytes:
        """The signature of a request, of what `ledger.domain.machine_call.signed_bytes` says."""
        return self._private_key.sign(message)
