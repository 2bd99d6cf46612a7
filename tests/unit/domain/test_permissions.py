"""What keys may do: permissions as they are written, and what follows from them."""

from __future__ import annotations

from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger.domain.events import Comparison, Constraint, Grant, Scope
from ledger.domain.permissions import covers, parse_permissions, permits, show_permissions
from ledger.errors import RejectedError

LOGS = "api.instance.request_logs"
ONE_LOG = {"api": {"instance_read": {LOGS: {"constraints": {"id": {"eq": 1227}}}}}}


def test_permissions_are_shown_as_they_were_given() -> None:
    """Whole scopes, endpoints, and constraints with several comparisons come back unchanged."""
    given: dict[str, Any] = {
        "api": {
            "misc": {},
            "user_read": {},
            "instance_read": {
                LOGS: {"constraints": {"id": {"gte": 1, "lte": 9}, "label": {"eq": "x"}}},
                "api.instance.show_instance": {},
            },
        }
    }
    assert show_permissions(parse_permissions(given)) == given
    assert show_permissions(parse_permissions({"api": {}})) == {"api": {}}


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"api": {}, "more": {}},
        {"api": []},
        {"api": {"everything": {}}},
        {"api": {"misc": None}},
        {"api": {"misc": {"search": {}}}},
        {"api": {"misc": {LOGS: []}}},
        {"api": {"misc": {LOGS: {"limits": {}}}}},
        {"api": {"misc": {LOGS: {"constraints": {"id": {}}}}}},
        {"api": {"misc": {LOGS: {"constraints": {"id": {"ne": 1}}}}}},
        {"api": {"misc": {LOGS: {"constraints": {"id": {"eq": None}}}}}},
        {"api": {"misc": {LOGS: {"constraints": {"id": {"eq": True}}}}}},
        {"api": {"misc": {LOGS: {"constraints": {"id": {"eq": 1.5}}}}}},
        {"api": {"misc": {LOGS: {"constraints": {"id": {"lte": "9"}}}}}},
        {"api": {"misc": {LOGS: {"constraints": {"id": {"eq": 10**20}}}}}},
        {"api": {"misc": {LOGS: {"constraints": {"ID": {"eq": 1}}}}}},
    ],
)
def test_what_are_no_permissions(given: dict[str, Any]) -> None:
    """A typo never widens: what is not understood is `invalid_permissions`."""
    with pytest.raises(RejectedError) as error:
        parse_permissions(given)
    assert error.value.code == "invalid_permissions"


@pytest.mark.parametrize(
    ("scope", "endpoint", "values", "passes"),
    [
        ("instance_read", LOGS, {"id": "1227"}, True),
        ("instance_read", LOGS, {"id": 1227}, True),
        ("instance_read", LOGS, {"id": "1228"}, False),
        ("instance_read", LOGS, {"id": "01227x"}, False),
        ("instance_read", LOGS, {"id": True}, False),
        ("instance_read", LOGS, {}, False),
        ("instance_read", "api.instance.ticks", {"id": "1227"}, False),
        ("instance_write", LOGS, {"id": "1227"}, False),
    ],
)
def test_a_constraint_lets_its_value_pass_alone(
    scope: str, endpoint: str, values: dict[str, Any], passes: bool
) -> None:
    """The log of instance 1227, nothing else of it, and no other instance's."""
    assert permits(parse_permissions(ONE_LOG), scope, endpoint, values) is passes


def test_no_grants_are_no_rights() -> None:
    """A key with empty permissions may nothing; a key without any is not judged here."""
    assert not permits([], "misc", LOGS, {"id": 1})
    assert covers(None, None)
    assert covers(None, [])
    assert not covers([], None)


_CONSTRAINTS = st.builds(
    Constraint,
    field=st.sampled_from(["id", "gpus"]),
    comparison=st.sampled_from(get_args(Comparison)),
    value=st.integers(0, 3),
)
_GRANTS = st.lists(
    st.builds(
        Grant,
        scope=st.sampled_from(get_args(Scope)[:2]),
        endpoint=st.none() | st.sampled_from(["api.a.b", "api.a.c"]),
        constraints=st.lists(_CONSTRAINTS, max_size=2),
    ),
    max_size=2,
)


@given(
    have=_GRANTS,
    want=_GRANTS,
    scope=st.sampled_from(get_args(Scope)[:2]),
    endpoint=st.sampled_from(["api.a.b", "api.a.c"]),
    values=st.dictionaries(st.sampled_from(["id", "gpus"]), st.integers(0, 3)),
)
def test_what_is_covered_never_may_more(
    have: list[Grant], want: list[Grant], scope: str, endpoint: str, values: dict[str, int]
) -> None:
    """Whatever a covered key may, the one that made it may as well: no key climbs."""
    if covers(have, want) and permits(want, scope, endpoint, values):
        assert permits(have, scope, endpoint, values)
    assert covers(have, have)
    assert covers(have, [])
