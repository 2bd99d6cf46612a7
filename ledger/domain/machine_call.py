"""What a machine signs when it asks for something: the same key that signs its reports.

The signature covers who asks, when, and for what, so that no request serves for another one. It
travels as `Authorization: Machine <machine>:<key id>:<second>:<signature in hex>`.
"""

from __future__ import annotations

import hashlib
from typing import Final, NamedTuple

CALL_PREFIX: Final = b"ledger.machine-call.v1\x00"
SCHEME: Final = "Machine"
SKEW_SECONDS: Final = 300
"""How far a machine's clock may be off; within it, the same request may be repeated."""

_PARTS: Final = 4
_SIGNATURE_BYTES: Final = 64
_DIGITS_MAX: Final = 19


class Credential(NamedTuple):
    """A signed request's proof, not verified yet."""

    machine: int
    key_id: str
    second: int
    signature: bytes


def signed_bytes(machine: int, second: int, method: str, target: str, body: bytes = b"") -> bytes:
    """What is signed.

    Args:
        machine: Who asks.
        second: Unix second of the request.
        method: HTTP method in capitals.
        target: Path and query as they are sent.
        body: The request's body.
    """
    digest = hashlib.sha256(body).hexdigest()
    return CALL_PREFIX + f"{machine}\n{second}\n{method}\n{target}\n{digest}".encode()


def write_credential(credential: Credential) -> str:
    """The value of the `Authorization` header."""
    machine, key_id, second, signature = credential
    return f"{SCHEME} {machine}:{key_id}:{second}:{signature.hex()}"


def read_credential(text: str) -> Credential | None:
    """The credential in what follows the scheme; null when it is none."""
    parts = text.split(":")
    if len(parts) != _PARTS:
        return None
    machine, key_id, second, signature = parts
    for number in (machine, second):
        if not (number.isascii() and number.isdigit() and len(number) < _DIGITS_MAX):
            return None
    try:
        raw = bytes.fromhex(signature)
    except ValueError:
        return None
    if len(raw) != _SIGNATURE_BYTES or not key_id.isalnum():
        return None
    return Credential(int(machine), key_id, int(second), raw)
