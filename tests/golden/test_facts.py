from __future__ import annotations

import json
from typing import get_args

import pytest

from ledger.domain.events import AnyFact, RetiredFact, topic_of
from ledger.errors import CorruptHistoryError
from ledger.store.codec import decode_fact, encode_fact
from tests.golden.examples import EXAMPLES
from tests.golden.make import stored

STORED = stored()


RETIRED = [str(kind.__struct_config__.tag) for kind in get_args(RetiredFact)]


@pytest.mark.parametrize("topic", sorted(STORED.keys() - set(RETIRED)))
def test_a_stored_fact_is_read_and_written_as_the_same_bytes(topic: str) -> None:
    """What the log has held since this version exists is read today, and written back unchanged."""
    state = STORED[topic].encode()
    assert encode_fact(decode_fact(topic, state)) == state


@pytest.mark.parametrize("topic", RETIRED)
def test_a_retired_shape_is_read_as_what_it_means_today(topic: str) -> None:
    """Old bytes give a fact of the present version that keeps every value they hold."""
    old = json.loads(STORED[topic])
    fact = decode_fact(topic, STORED[topic].encode())
    new = json.loads(encode_fact(fact))
    assert topic_of(fact).rpartition(".")[0] == topic.rpartition(".")[0]
    assert {key: new[key] for key in old if key != "type"} == {
        key: value for key, value in old.items() if key != "type"
    }


@pytest.mark.parametrize("fact", EXAMPLES, ids=topic_of)
def test_a_fact_of_today_is_stored_as_ever(fact: AnyFact) -> None:
    """A field that is renamed, reordered or added without a new version changes stored bytes."""
    assert encode_fact(fact).decode() == STORED[topic_of(fact)]


def test_every_kind_of_fact_has_stored_bytes() -> None:
    """A new fact cannot enter the catalogue without bytes that later versions are held to."""
    assert {topic_of(fact) for fact in EXAMPLES} <= set(STORED)


@pytest.mark.parametrize("topic", ["instance.stopped.v1", "instance.stopped.v2", "x", ""])
def test_a_row_whose_topic_is_not_its_facts_is_corrupt(topic: str) -> None:
    """LEDG-06: a row filed under another topic stops the reader instead of passing as that."""
    state = STORED["instance.destroyed.v1"].encode()
    with pytest.raises(CorruptHistoryError):
        decode_fact(topic, state)


@pytest.mark.parametrize(
    "state",
    [b"", b"{", b"null", b"{}", b'{"type":"instance.exploded.v1"}', b"\xff", b"\x80"],
)
def test_a_row_that_holds_no_fact_is_corrupt(state: bytes) -> None:
    """Bytes that no version of the catalogue wrote stop the reader with their topic named."""
    with pytest.raises(CorruptHistoryError) as corrupt:
        decode_fact("instance.stopped.v1", state)
    assert corrupt.value.detail == {"topic": "instance.stopped.v1"}
