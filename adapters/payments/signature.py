"""Is a message Stripe's, and is it from now? HMAC-SHA256 over ``timestamp.body``.

Stripe's library refuses what is too old and takes what is from the future; here both are refused,
and every secret in force is tried, so that one can take the place of another.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Sequence
from typing import Final

from ledger.errors import AuthError

TOLERANCE_SECONDS: Final = 300
_TIMESTAMP: Final = re.compile(r"[0-9]{1,12}")
_HEADER_MAX: Final = 4_096


def check(body: bytes, header: str, secrets: Sequence[str], now: int) -> None:
    """Refuse a message that nobody signed with one of *secrets*, or not now.

    Raises:
        AuthError: `auth_error`; the sentence names the reason and no secret.
    """
    timestamp, given = _parts(header)
    expected = [
        hmac.new(secret.encode(), f"{timestamp}.".encode() + body, hashlib.sha256).hexdigest()
        for secret in secrets
    ]
    matches = [hmac.compare_digest(one, other) for one in expected for other in given]
    if not any(matches):
        raise AuthError("auth_error", "no signature of this message is the processor's")
    if abs(now - timestamp) > TOLERANCE_SECONDS:
        side = "old" if timestamp < now else "far in the future"
        message = f"this message is too {side}: it was signed {abs(now - timestamp)} s from now"
        raise AuthError("auth_error", message)


def _parts(header: str) -> tuple[int, list[str]]:
    timestamps, signatures = [], []
    for part in header[:_HEADER_MAX].split(","):
        name, _, value = part.strip().partition("=")
        if name == "t" and _TIMESTAMP.fullmatch(value):
            timestamps.append(int(value))
        elif name == "v1" and value.isascii():
            signatures.append(value)
    if len(timestamps) != 1 or not signatures:
        message = "the header Stripe-Signature is missing, or is not t=…,v1=…"
        raise AuthError("auth_error", message)
    return timestamps[0], signatures
