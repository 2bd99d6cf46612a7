"""The check of the stand-in against Stripe's description finds every kind of difference."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.stripe.spec import Description

SCHEMAS = {
    "part": {"type": "object", "required": ["n"], "properties": {"n": {"type": "integer"}}},
    "whole": {
        "type": "object",
        "required": ["id", "paid"],
        "properties": {
            "id": {"type": "string"},
            "paid": {"type": "boolean"},
            "kind": {"type": "string", "enum": ["a", "b"]},
            "parts": {"type": "array", "items": {"$ref": "#/components/schemas/part"}},
            "owner": {"anyOf": [{"type": "string"}, {"$ref": "#/components/schemas/part"}]},
            "note": {"type": "string", "nullable": True},
        },
    },
}
GOOD = {"id": "x", "paid": True, "kind": "a", "parts": [{"n": 1}], "owner": "y", "note": None}


def differences(value: Any) -> list[str]:
    """How a value is not a whole."""
    description = Description({"components": {"schemas": SCHEMAS}})
    return list(description.differences(value, description.named("whole"), "whole"))


def test_what_is_as_described_has_no_difference() -> None:
    """An object with every field, one of them null where it may be, passes."""
    assert differences(GOOD) == []
    assert differences({**GOOD, "owner": {"n": 2}}) == []


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"id": 5}, "whole.id is int and not string"),
        ({"paid": 1}, "whole.paid is int and not boolean"),
        ({"id": None}, "whole.id is null"),
        ({"kind": "c"}, "whole.kind is 'c', and not one of ['a', 'b']"),
        ({"parts": [{"n": 1}, {}]}, "whole.parts[1].n is missing"),
        ({"parts": [{"n": True}]}, "whole.parts[0].n is bool and not integer"),
        ({"owner": {"n": "z"}}, "whole.owner is dict and not string"),
        ({"more": 1}, "whole.more is described by nobody"),
    ],
)
def test_each_kind_of_difference_is_told(change: dict[str, Any], told: str) -> None:
    """A wrong type, null, enumeration, nested field or unknown field is one finding."""
    assert differences({**GOOD, **change}) == [told]


def test_a_missing_field_is_told() -> None:
    """A required field that is not there is one finding."""
    assert differences({"id": "x"}) == ["whole.paid is missing"]
