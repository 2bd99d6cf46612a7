"""What a receiver of webhooks does first; copy this file, it needs nothing but Python.

    event = verify(secret, request.headers, request.body, int(time.time()))
    if seen_before(event["id"]):   # keep ids: an event comes at least once, and may come twice
        return 204
    ...                            # events come in any order: compare event["data"]["version"]

The body is verified as it arrived, byte by byte: verify first, parse afterwards.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Mapping
from typing import Any

TOLERANCE_SECONDS = 300
"""How far the sender's clock and the receiver's may be apart, and how old a delivery may be."""


class InvalidDeliveryError(Exception):
    """This did not come from gpuledger now: answer 400 and do nothing."""


def verify(secret: str, headers: Mapping[str, str], body: bytes, now: int) -> dict[str, Any]:
    """The event in *body*, if it was signed with *secret* within five minutes of *now*.

    While a secret is being rotated a delivery carries two signatures, and either will do.

    Args:
        secret: As it was shown when the webhook was made: `whsec_…`.
        headers: Of the request; the case of their names does not matter.
        body: The request's body, exactly as it arrived.
        now: The present Unix second.

    Raises:
        InvalidDeliveryError: The header is missing or malformed, the time is off, or no signature
            fits.
    """
    given = {name.lower(): value for name, value in headers.items()}
    timestamp, signatures = _parsed(given.get("x-gpuledger-signature", ""))
    if abs(now - timestamp) > TOLERANCE_SECONDS:
        message = "it was signed more than five minutes ago, or ahead"
        raise InvalidDeliveryError(message)
    signed = f"{timestamp}.".encode() + body
    expected = hmac.new(secret.encode(), signed, hashlib.sha256).hexdigest().encode()
    # Every signature is compared, and each in constant time: an answer tells nothing by its pace.
    if not any([hmac.compare_digest(expected, one.encode()) for one in signatures]):  # noqa: C419
        message = "no signature fits"
        raise InvalidDeliveryError(message)
    event: dict[str, Any] = json.loads(body)
    return event


def _parsed(header: str) -> tuple[int, list[str]]:
    """The timestamp and the signatures of `t=1772359200,v1=…,v1=…`; other versions are ignored."""
    parts = [part.partition("=") for part in header.split(",")]
    times = [value for name, _, value in parts if name.strip() == "t"]
    signatures = [value.strip() for name, _, value in parts if name.strip() == "v1"]
    if len(times) != 1 or not signatures or not (times[0].isascii() and times[0].isdecimal()):
        message = "there is no X-Gpuledger-Signature of the form t=…,v1=…"
        raise InvalidDeliveryError(message)
    return int(times[0]), signatures
