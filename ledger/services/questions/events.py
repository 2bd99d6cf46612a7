"""The log as an auditor reads it: page by page, or stream by stream."""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec

from ledger.domain.events import USAGE_REPORTED
from ledger.domain.usage import as_json, decode_stored
from ledger.store.database import Connection
from ledger.store.log import Stored, read_page, read_stream


class EventView(msgspec.Struct, frozen=True, kw_only=True):
    """An event: where it lies, when it was recorded, what it says, and how it can be verified."""

    position: int
    count: int
    stream: str
    version: int
    topic: str
    recorded_at: int
    state: dict[str, Any]
    sha256: str
    """Of the stored bytes; for a report these are what the host signed."""
    signature: str | None


def events(connection: Connection, *, after: int = 0, limit: int = 100) -> list[EventView]:
    """The whole log from a position onwards."""
    return [_view(stored) for stored in read_page(connection, after, limit)]


def stream_events(
    connection: Connection, stream: str, *, after: int = 0, limit: int = 100
) -> list[EventView]:
    """One stream from a version onwards."""
    return [_view(stored) for stored in read_stream(connection, stream, above=after, limit=limit)]


def _view(stored: Stored) -> EventView:
    if stored.topic == USAGE_REPORTED:
        state = as_json(decode_stored(stored.state))
    else:
        state = msgspec.json.decode(stored.state)
    return EventView(
        position=stored.position,
        count=stored.count,
        stream=stored.stream_id,
        version=stored.version,
        topic=stored.topic,
        recorded_at=stored.recorded_at,
        state=state,
        sha256=hashlib.sha256(stored.state).hexdigest(),
        signature=None if stored.signature is None else stored.signature.hex(),
    )
