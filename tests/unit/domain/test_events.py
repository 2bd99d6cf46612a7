from __future__ import annotations

import re
from typing import get_args

import msgspec
import pytest

from ledger.domain.events import (
    USAGE_REPORTED,
    AnyFact,
    Fact,
    InvoiceLine,
    MachineSpec,
    Terms,
    second_of,
    topic_of,
)
from ledger.projections.facts import GROUPS
from tests.golden.examples import EXAMPLES

KINDS: tuple[type[Fact], ...] = get_args(AnyFact)
TOPICS = [str(kind.__struct_config__.tag) for kind in KINDS]


def test_the_catalogue_lists_every_fact_there_is() -> None:
    """A fact that is declared but not in the catalogue could be written and never read."""
    assert set(Fact.__subclasses__()) == set(KINDS)
    assert len(KINDS) == len(set(KINDS))


def test_every_fact_has_an_example() -> None:
    """The tests below look at one fact of every kind, so none is left out."""
    assert sorted(map(topic_of, EXAMPLES)) == sorted(TOPICS)


def test_every_fact_belongs_to_one_part_of_the_business() -> None:
    """The groups divide the catalogue: together everything, and nothing twice."""
    kinds = [kind for group, _ in GROUPS for kind in (get_args(group) or (group,))]
    assert len(kinds) == len(set(kinds)) == len(KINDS)


def test_wire_names_are_unique() -> None:
    """No two facts share a topic, and none has the topic of a signed report."""
    assert len({*TOPICS, USAGE_REPORTED}) == len(TOPICS) + 1


@pytest.mark.parametrize("topic", [*TOPICS, USAGE_REPORTED])
def test_a_wire_name_is_a_name_with_a_version_never_a_class_path(topic: str) -> None:
    """A topic is lower-case words, dots and a version, so that a class can be renamed or moved."""
    assert re.fullmatch(r"[a-z_]+(\.[a-z_]+)?\.v[1-9]\d*", topic)


@pytest.mark.parametrize("fact", EXAMPLES, ids=topic_of)
def test_a_fact_comes_back_from_json_as_it_was(fact: AnyFact) -> None:
    """LEDG-03: writing a fact and reading it under the whole catalogue gives an equal fact."""
    state = msgspec.json.encode(fact)
    assert msgspec.json.decode(state, type=AnyFact) == fact
    assert msgspec.json.decode(state)["type"] == topic_of(fact)


@pytest.mark.parametrize("fact", EXAMPLES, ids=topic_of)
def test_an_unknown_field_is_refused(fact: AnyFact) -> None:
    """Replay drops no data in silence: a field that this version does not know is an error."""
    fields = msgspec.to_builtins(fact) | {"surprise": 1}
    with pytest.raises(msgspec.ValidationError, match="surprise"):
        msgspec.json.decode(msgspec.json.encode(fields), type=AnyFact)


@pytest.mark.parametrize("fact", EXAMPLES, ids=topic_of)
def test_a_missing_field_is_refused(fact: AnyFact) -> None:
    """No field has a default: a fact always says everything that it is about."""
    for name in fact.__struct_fields__:
        fields = msgspec.to_builtins(fact)
        del fields[name]
        with pytest.raises(msgspec.ValidationError, match=f"`{name}`"):
            msgspec.json.decode(msgspec.json.encode(fields), type=AnyFact)


@pytest.mark.parametrize("fact", EXAMPLES, ids=topic_of)
def test_the_last_field_is_the_second_in_which_it_happened(fact: AnyFact) -> None:
    """The instant of every fact is its last field, a whole second named after what happened."""
    last = fact.__struct_fields__[-1]
    assert last.endswith("_at")
    assert type(fact).__annotations__[last] == "int"
    assert second_of(fact) == getattr(fact, last)
    assert second_of(msgspec.structs.replace(fact, **{last: 5})) == 5


@pytest.mark.parametrize("kind", [*KINDS, Terms, InvoiceLine, MachineSpec])
def test_no_fact_holds_a_float(kind: type[msgspec.Struct]) -> None:
    """PRICE-14: no amount, rate, quantity or instant in the log can be a float."""
    for name, annotation in kind.__annotations__.items():
        assert "float" not in annotation, name


@pytest.mark.parametrize("fact", EXAMPLES, ids=topic_of)
def test_a_float_where_a_whole_number_belongs_is_refused(fact: AnyFact) -> None:
    """PRICE-14: a stored instant of half a second is an error, never cut to a whole one."""
    fields = msgspec.to_builtins(fact) | {fact.__struct_fields__[-1]: 1.5}
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(msgspec.json.encode(fields), type=AnyFact)


@pytest.mark.parametrize("fact", EXAMPLES, ids=topic_of)
def test_what_happened_cannot_be_changed(fact: AnyFact) -> None:
    """A fact is immutable: no field can be set once it exists."""
    with pytest.raises(AttributeError):
        setattr(fact, fact.__struct_fields__[0], 0)


@pytest.mark.parametrize("amount", [2**63, 2**64, 10**30, -(10**30)])
def test_an_amount_may_be_larger_than_any_machine_integer(amount: int) -> None:
    """LEDG-08: sums in facts are kept to the last digit, whatever their size."""
    fact = next(one for one in EXAMPLES if topic_of(one) == "account.exhausted.v1")
    large = msgspec.structs.replace(fact, available=amount)
    assert msgspec.json.decode(msgspec.json.encode(large), type=AnyFact) == large
