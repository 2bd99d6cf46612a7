"""Facts to bytes and back, under wire names.

The log keeps JSON that an auditor can read in a row of the database, field order as declared, so
that the same fact is always the same bytes. A usage report is the one exception: its state is the
signed body itself.
"""

from __future__ import annotations

from typing import Any, cast
from uuid import UUID

import msgspec
from eventsourcing.persistence import Mapper, MapperDeserialisationError, StoredEvent

from ledger.domain.events import USAGE_REPORTED, AnyFact, Fact, RetiredFact, topic_of
from ledger.errors import CorruptHistoryError

_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(AnyFact | RetiredFact)


def encode_fact(fact: Fact) -> bytes:
    """The state of *fact* as it is stored."""
    return _encoder.encode(fact)


def decode_fact(topic: str, state: bytes) -> AnyFact:
    """The fact that *state* holds, in today's shape.

    Raises:
        CorruptHistoryError: The bytes are not a fact of this catalogue, or not of this topic.
    """
    try:
        fact = _decoder.decode(state)
    except msgspec.DecodeError as error:
        message = f"a stored {topic} cannot be read: {error}"
        raise CorruptHistoryError("corrupt_history", message, topic=topic) from error
    if topic_of(fact) != topic:
        message = f"a row with topic {topic} holds a {topic_of(fact)}"
        raise CorruptHistoryError("corrupt_history", message, topic=topic)
    return fact.upcast() if isinstance(fact, RetiredFact) else fact


class RecordedFact(msgspec.Struct, frozen=True, kw_only=True):
    """A fact with its address, in the shape that the `eventsourcing` library hands around."""

    originator_id: str
    originator_version: int
    fact: AnyFact | bytes
    """The fact, or the signed body where it is a usage report."""


class FactMapper(Mapper[UUID]):
    """The library's mapper seam over msgspec: topics are wire names, never class paths."""

    def to_stored_event(self, domain_event: Any) -> StoredEvent:
        """One row of the log for a `RecordedFact`."""
        recorded = cast("RecordedFact", domain_event)
        fact = recorded.fact
        return StoredEvent(
            originator_id=recorded.originator_id,
            originator_version=recorded.originator_version,
            topic=USAGE_REPORTED if isinstance(fact, bytes) else topic_of(fact),
            state=fact if isinstance(fact, bytes) else encode_fact(fact),
        )

    def to_domain_event(self, stored_event: StoredEvent) -> Any:
        """The `RecordedFact` of a row."""
        state = bytes(stored_event.state)
        try:
            is_usage = stored_event.topic == USAGE_REPORTED
            fact = state if is_usage else decode_fact(stored_event.topic, state)
        except CorruptHistoryError as error:
            raise MapperDeserialisationError(str(error)) from error
        return RecordedFact(
            originator_id=str(stored_event.originator_id),
            originator_version=stored_event.originator_version,
            fact=fact,
        )
