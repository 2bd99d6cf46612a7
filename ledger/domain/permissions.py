"""What an API key may do: scopes, endpoints, and constraints on what a request names.

A scope with nothing in it means all of its endpoints; one with endpoints in it means these alone.
A key without permissions may do all that its role may.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NoReturn, get_args

from ledger.domain.events import Comparison, Constraint, Grant, Scope
from ledger.errors import RejectedError

_SCOPES: Final[frozenset[str]] = frozenset(get_args(Scope))
_COMPARISONS: Final[frozenset[str]] = frozenset(get_args(Comparison))
_ENDPOINT: Final = re.compile(r"[a-z][a-z0-9_]*(\.[a-z0-9_]+){1,4}")
_FIELD: Final = re.compile(r"[a-z][a-z0-9_]{0,63}")
_GRANTS_MAX: Final = 200
_VALUE_MAX: Final = 2**63 - 1
_TEXT_MAX: Final = 256


def parse_permissions(given: Mapping[str, Any]) -> list[Grant]:
    """The grants that ``{"api": {scope: {endpoint: {"constraints": {field: {"eq": 1}}}}}}`` means.

    Raises:
        RejectedError: `invalid_permissions`; the message says where.
    """
    if set(given) != {"api"}:
        _refuse("they are an object with `api` alone")
    grants = []
    for scope, endpoints in _object(given["api"], "api").items():
        if scope not in _SCOPES:
            _refuse(f"{scope!r} is no scope; there are {', '.join(sorted(_SCOPES))}")
        inner = _object(endpoints, scope)
        if not inner:
            grants.append(Grant(scope=scope, endpoint=None, constraints=[]))  # type: ignore[arg-type]  # checked above
        for endpoint, limits in inner.items():
            if not _ENDPOINT.fullmatch(endpoint):
                _refuse(f"{endpoint!r} is no endpoint such as api.instance.request_logs")
            constraints = _constraints(_object(limits, endpoint), endpoint)
            grants.append(Grant(scope=scope, endpoint=endpoint, constraints=constraints))  # type: ignore[arg-type]  # checked above
    if len(grants) > _GRANTS_MAX:
        _refuse(f"they name at most {_GRANTS_MAX} endpoints")
    return grants


def show_permissions(grants: Iterable[Grant]) -> dict[str, Any]:
    """Grants in the form in which they are given."""
    api: dict[str, Any] = {}
    for grant in grants:
        scope = api.setdefault(grant.scope, {})
        if grant.endpoint is not None:
            fields: dict[str, Any] = {}
            for one in grant.constraints:
                fields.setdefault(one.field, {})[one.comparison] = one.value
            scope[grant.endpoint] = {"constraints": fields} if fields else {}
    return {"api": api}


def permits(grants: Sequence[Grant], scope: str, endpoint: str, values: Mapping[str, Any]) -> bool:
    """True when one of *grants* lets a request to an endpoint pass.

    Args:
        grants: What the key may.
        scope: The scope of the endpoint.
        endpoint: Its name.
        values: What the request names, by field; what it does not name meets no constraint.
    """
    return any(
        grant.scope == scope
        and grant.endpoint in {None, endpoint}
        and all(_meets(one, values.get(one.field)) for one in grant.constraints)
        for grant in grants
    )


def fields_of(grants: Iterable[Grant]) -> set[str]:
    """Every field that constraints look at."""
    return {one.field for grant in grants for one in grant.constraints}


def covers(have: Sequence[Grant] | None, want: Sequence[Grant] | None) -> bool:
    """True when a key with *want* may nothing that one with *have* may not (None: everything)."""
    if have is None:
        return True
    if want is None:
        return False
    return all(any(_is_within(narrow, wide) for wide in have) for narrow in want)


def _is_within(narrow: Grant, wide: Grant) -> bool:
    is_part = narrow.scope == wide.scope and wide.endpoint in {None, narrow.endpoint}
    return is_part and all(
        any(_implies(one, needed) for one in narrow.constraints) for needed in wide.constraints
    )


def _implies(one: Constraint, needed: Constraint) -> bool:
    """True when whatever meets *one* meets *needed*."""
    if one.field != needed.field:
        return False
    if one.comparison == "eq":
        return _meets(needed, one.value)
    return one.comparison == needed.comparison and _meets(needed, one.value)


def _meets(constraint: Constraint, given: Any) -> bool:
    """True when a value meets a constraint; texts of digits count as their number."""
    wanted = constraint.value
    if isinstance(wanted, str):
        return constraint.comparison == "eq" and given == wanted
    number = _number(given)
    if number is None:
        return False
    if constraint.comparison == "eq":
        return number == wanted
    return number <= wanted if constraint.comparison == "lte" else number >= wanted


def _number(given: Any) -> int | float | None:
    if isinstance(given, bool):
        return None
    if isinstance(given, int | float):
        return given
    is_number = isinstance(given, str) and given.isascii() and given.isdecimal()
    return int(given) if is_number and len(given) <= len(str(_VALUE_MAX)) else None


def _constraints(limits: Mapping[str, Any], endpoint: str) -> list[Constraint]:
    if set(limits) - {"constraints"}:
        _refuse(f"{endpoint}: it has `constraints` alone")
    found = []
    for field, comparisons in _object(limits.get("constraints", {}), endpoint).items():
        if not _FIELD.fullmatch(field):
            _refuse(f"{endpoint}: {field!r} is no field")
        inner = _object(comparisons, field)
        if not inner:
            _refuse(f"{endpoint}: {field} is compared with nothing")
        for comparison, value in inner.items():
            if comparison not in _COMPARISONS or not _is_value(comparison, value):
                _refuse(f"{endpoint}: {field}: eq, lte or gte and a whole number, or eq a text")
            found.append(Constraint(field=field, comparison=comparison, value=value))  # type: ignore[arg-type]  # checked above
    return found


def _is_value(comparison: str, value: Any) -> bool:
    if isinstance(value, str):
        return comparison == "eq" and len(value) <= _TEXT_MAX
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) <= _VALUE_MAX


def _object(value: Any, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        _refuse(f"{where}: it is an object")
    return value


def _refuse(why: str) -> NoReturn:
    raise RejectedError("invalid_permissions", f"these are no permissions: {why}")
