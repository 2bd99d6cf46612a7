"""Public ssh keys as people paste them: type, base64, and perhaps a comment."""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from typing import Final, NamedTuple, NoReturn

from ledger.errors import RejectedError

LINE_CHARACTERS_MAX: Final = 16_384
_TYPES: Final = frozenset({
    "ssh-ed25519", "ssh-rsa", "ecdsa-sha2-nistp256", "ecdsa-sha2-nistp384", "ecdsa-sha2-nistp521",
    "sk-ssh-ed25519@openssh.com", "sk-ecdsa-sha2-nistp256@openssh.com",
})  # fmt: skip
_LINE: Final = re.compile(r"[\x20-\x7e\x80-\U0010ffff]+")
_LENGTH_BYTES: Final = 4
_ED25519_BYTES: Final = 32
_RSA_BITS_MIN: Final = 2_048


class PublicKey(NamedTuple):
    """A public key. `blob` is the key itself, without its comment."""

    kind: str
    blob: bytes
    comment: str

    @property
    def line(self) -> str:
        """The key as a line of `authorized_keys`."""
        key = f"{self.kind} {base64.b64encode(self.blob).decode()}"
        return f"{key} {self.comment}" if self.comment else key

    @property
    def fingerprint(self) -> str:
        """The hash by which people recognise it: ``SHA256:…``."""
        digest = base64.b64encode(hashlib.sha256(self.blob).digest()).decode()
        return f"SHA256:{digest.rstrip('=')}"


def parse_public_key(text: str) -> PublicKey:
    """The key of one line.

    Raises:
        RejectedError: `invalid_ssh_key`; a private key is named as what it is.
    """
    line = text.strip()
    if "PRIVATE KEY" in line:
        message = (
            "this is a private key: keep it, and send the public one (the file ending in .pub)"
        )
        raise RejectedError("invalid_ssh_key", message)
    if not line or len(line) > LINE_CHARACTERS_MAX or not _LINE.fullmatch(line):
        _refuse("it is one line, such as ssh-ed25519 AAAA… me@home")
    kind, _, rest = line.partition(" ")
    encoded, _, comment = rest.strip().partition(" ")
    if kind not in _TYPES:
        _refuse(f"its type is one of {', '.join(sorted(_TYPES))}")
    try:
        blob = base64.b64decode(encoded, validate=True)
    except (binascii.Error, ValueError):
        _refuse("its second word is base64")
    parts = _parts(blob)
    if parts is None or len(parts) < 2 or parts[0] != kind.encode():  # noqa: PLR2004 - type and key
        _refuse("its base64 does not hold a key of its type")
    if kind == "ssh-ed25519" and (len(parts), len(parts[1])) != (2, _ED25519_BYTES):
        _refuse("an ed25519 key holds 32 bytes")
    if kind == "ssh-rsa" and int.from_bytes(parts[-1], "big").bit_length() < _RSA_BITS_MIN:
        _refuse(f"an RSA key has at least {_RSA_BITS_MIN} bits")
    return PublicKey(kind, blob, comment.strip())


def _parts(blob: bytes) -> list[bytes] | None:
    """The length-prefixed parts of a key; None when they do not fill it exactly."""
    found = []
    while blob:
        length = int.from_bytes(blob[:_LENGTH_BYTES], "big")
        part = blob[_LENGTH_BYTES : _LENGTH_BYTES + length]
        if len(blob) < _LENGTH_BYTES or len(part) < length:
            return None
        found.append(part)
        blob = blob[_LENGTH_BYTES + length :]
    return found


def _refuse(why: str) -> NoReturn:
    raise RejectedError("invalid_ssh_key", f"this is no public ssh key: {why}")
