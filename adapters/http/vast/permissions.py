"""What keys may do here: exactly what they may do at the native API.

Every endpoint names the native endpoints that do the same (`api.instance.request_logs`). Their
scopes are read from the server's own routes; a name that is no route's is closed to every key with
permissions. Constraints look only at what a handler of this frontend really reads.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import Any, NamedTuple

from adapters.http.scopes import Endpoint
from adapters.http.vast.wire import Json, ids, whole
from ledger.domain.permissions import permits
from ledger.errors import ForbiddenError
from ledger.services.api_keys import Principal


class Sent(NamedTuple):
    """What a request holds: the parts of its path, its query, and its body."""

    path: Mapping[str, Any]
    query: Mapping[str, str]
    body: Json


Needs = Callable[[Json], tuple[str, ...]]
Naming = Callable[[Sent], Sequence[Json]]
"""What a request names, as the native API would be told it: once for each thing it is about."""


def as_path(sent: Sent) -> Sequence[Json]:
    """The parts of the path; `id` is the first of them."""
    found = dict(sent.path)
    return [{**found, "id": next(iter(found.values()))} if found else {}]


def of_body(field: str, name: str) -> Naming:
    """A field of the body, or a list in it, which the native API calls *name* and has in its path.

    Raises:
        RejectedError: `invalid_args` for what is no id.
    """

    def naming(sent: Sent) -> Sequence[Json]:
        return [{name: one, "id": one} for one in ids(sent.body.get(field), field)]

    return naming


def in_body(field: str, name: str) -> Naming:
    """A field of the body that the native API has in its body too, under *name*."""

    def naming(sent: Sent) -> Sequence[Json]:
        value = sent.body.get(field)
        return [{name: whole(value, field)} if isinstance(value, int | Decimal) else {name: value}]

    return naming


def require(
    principal: Principal,
    known: Mapping[str, Endpoint],
    names: Sequence[str],
    naming: Naming,
    sent: Sent,
) -> None:
    """Refuse what the key's permissions do not name.

    Raises:
        ForbiddenError: `not_authorized`, with the scope and the endpoint that it would take.
    """
    if principal.grants is None or not names:
        return
    for values in naming(sent) or ({},):
        for name in names:
            if not may(principal, known, name, values):
                scope = known[name].scope if name in known else None
                message = f"this key's permissions do not let it do this: {scope}, {name}"
                raise ForbiddenError("not_authorized", message, scope=scope, endpoint=name)


def may(
    principal: Principal, known: Mapping[str, Endpoint], name: str, values: Mapping[str, Any]
) -> bool:
    """Whether a key may use a native endpoint for what a request names."""
    if principal.grants is None:
        return True
    endpoint = known.get(name)
    if endpoint is None or endpoint.scope is None:
        return False
    return permits(principal.grants, endpoint.scope, name, values)
