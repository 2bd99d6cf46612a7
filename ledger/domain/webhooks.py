"""What a webhook carries: its event's bytes, their signature, and when a failure is tried again.

An event is one fact of the log, and its id names that fact's position: retries and replays keep it.
Deliveries come in any order and more than once; a receiver knows an event by its id, and the state
of an object by `data.version`, which grows with every fact about it.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Sequence
from typing import Any, Final

import msgspec

SIGNATURE_HEADER: Final = "X-Gpuledger-Signature"
EVENT_HEADER: Final = "X-Gpuledger-Event"
ATTEMPT_HEADER: Final = "X-Gpuledger-Attempt"
TEST_EVENT: Final = "test"
"""The type of an event that only its owner asked for."""
OVERLAP_SECONDS: Final = 86_400
"""How long the secret before the last one signs too."""

TRIES: Final = 12
"""After so many failures in a row a delivery is given up: about 3 days after the first."""
FIRST_PAUSE_SECONDS: Final = 10
LONGEST_PAUSE_SECONDS: Final = 72_000
"""Without its spread; with it a pause is at most 24 hours."""
_GROWTH: Final = 3
_JITTER_PER_MILLE: Final = 200
_EVENT_ID: Final = re.compile(r"evt_([1-9][0-9]{0,17})")


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """One fact, as receivers see it.

    `about` names an object, such as `instance-7`; `at` is RFC 3339.
    """

    id: str
    type: str
    account_id: int
    about: str
    at: str
    data: dict[str, Any]


class _Sent(msgspec.Struct, frozen=True, kw_only=True):
    """The body of one attempt; the order of the fields is that of the bytes."""

    id: str
    type: str
    account_id: int
    about: str
    at: str
    attempt: int
    data: dict[str, Any]


def event_id(position: int) -> str:
    """The id of the event that the fact at *position* is."""
    return f"evt_{position}"


def event_position(text: str) -> int | None:
    """The position that an event id names; none when it is no event id."""
    found = _EVENT_ID.fullmatch(text)
    return None if found is None else int(found[1])


def body_of(event: Event, attempt: int) -> bytes:
    """The bytes of one attempt: the same event and attempt are the same bytes, for ever."""
    sent = _Sent(**msgspec.structs.asdict(event), attempt=attempt)
    return msgspec.json.encode(sent, order="deterministic")


def signature(secret: str, timestamp: int, body: bytes) -> str:
    """HMAC-SHA256 of `<timestamp>.<body>` under the secret's text, in hexadecimal."""
    message = f"{timestamp}.".encode() + body
    return hmac.new(secret.encode(), message, hashlib.sha256).hexdigest()


def signature_header(secrets: Sequence[str], timestamp: int, body: bytes) -> str:
    """The signature header: the instant of the attempt, and a signature per valid secret."""
    signed = [f"v1={signature(secret, timestamp, body)}" for secret in secrets]
    return ",".join([f"t={timestamp}", *signed])


def pause_seconds(tries: int, seed: str) -> int | None:
    """How long to wait after the *tries*-th failure in a row; none when it was the last.

    10 s, 30 s, 90 s … up to 20 h, each up to a fifth shorter or longer: deliveries that failed
    together are not tried again together. The chance is a hash of *seed*, so that it can be tested.
    """
    assert tries >= 1, tries
    if tries >= TRIES:
        return None
    pause: int = min(FIRST_PAUSE_SECONDS * _GROWTH ** (tries - 1), LONGEST_PAUSE_SECONDS)
    digest = hashlib.sha256(f"{seed}/{tries}".encode()).digest()
    spread = int.from_bytes(digest[:8], "big") % (2 * _JITTER_PER_MILLE + 1) - _JITTER_PER_MILLE
    return pause * (1_000 + spread) // 1_000
