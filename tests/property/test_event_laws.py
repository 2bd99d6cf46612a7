from __future__ import annotations

from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ledger.domain.events import AnyFact, Fact, second_of, topic_of
from ledger.store.codec import decode_fact, encode_fact
from tests.support.examples import examples

KINDS: tuple[type[Fact], ...] = get_args(AnyFact)
PLAIN: dict[Any, st.SearchStrategy[Any]] = {
    int: st.integers(0, 2**63 - 1) | st.integers(-(10**30), 10**30),
    str: st.text(max_size=12),
    bytes: st.binary(max_size=12),
    bool: st.booleans(),
    NoneType: st.none(),
}


def values(hint: Any) -> st.SearchStrategy[Any]:
    """Any value that a field of this type may have."""
    if hint in PLAIN:
        return PLAIN[hint]
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        return structs(hint)
    arguments = get_args(hint)
    origin = get_origin(hint)
    if origin is Annotated:
        return bounded(arguments[0], arguments[1])
    if origin is Literal:
        return st.sampled_from(arguments)
    if origin in {Union, UnionType}:
        return st.one_of([values(one) for one in arguments])
    if origin is list:
        return st.lists(values(arguments[0]), max_size=3)
    assert origin is dict, hint
    return st.dictionaries(values(arguments[0]), values(arguments[1]), max_size=3)


def bounded(hint: Any, limits: msgspec.Meta) -> st.SearchStrategy[Any]:
    """The values of *hint* within *limits*."""
    if limits.ge is None or limits.le is None:
        return values(hint)
    return st.integers(int(limits.ge), int(limits.le))


@cache
def structs(kind: type[msgspec.Struct]) -> st.SearchStrategy[Any]:
    """Any value of a struct, field by field."""
    hints = get_type_hints(kind, include_extras=True)
    return st.builds(kind, **{name: values(hints[name]) for name in kind.__struct_fields__})


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
@given(data=st.data())
@settings(max_examples=examples(15))
def test_any_fact_survives_the_log(kind: type[Fact], data: st.DataObject) -> None:
    """LEDG-03, LEDG-08: decode(encode(fact)) == fact, and the same fact is the same bytes."""
    fact = data.draw(structs(kind))
    state = encode_fact(fact)
    again = decode_fact(topic_of(fact), state)
    assert again == fact
    assert type(again) is kind
    assert encode_fact(again) == state
    assert second_of(again) == second_of(fact)
