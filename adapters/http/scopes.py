"""Which scope a key needs for which route: one table, by the subject of the route.

An endpoint is named `api.<word>.<handler>`, such as `api.instance.request_logs`; that name, and the
scope, are what the permissions of a key speak of (`ledger.domain.permissions`). A subject that is
not here, or a route without a subject, is closed to every key with permissions.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

import msgspec
from litestar import Request
from litestar.datastructures import State

from ledger.domain.events import Scope
from ledger.domain.permissions import fields_of, permits
from ledger.errors import ForbiddenError
from ledger.services.api_keys import Principal


class Subject(NamedTuple):
    """How a subject is called in endpoints, and what reading and writing it takes."""

    word: str
    read: Scope
    write: Scope


_INSTANCE: Final = Subject("instance", "instance_read", "instance_write")
_MACHINE: Final = Subject("machine", "machine_read", "machine_write")
_USER: Final = Subject("user", "user_read", "user_write")
_BILLING: Final = Subject("billing", "billing_read", "billing_write")
_MISC: Final = Subject("misc", "misc", "misc")
SUBJECTS: Final[Mapping[str, Subject]] = {
    "accounts": _USER,
    "money": _BILLING,
    "machines": _MACHINE,
    "offers": _MISC,
    "instances": _INSTANCE,
    "volumes": Subject("volume", "instance_read", "instance_write"),
    "contracts": _INSTANCE,
    "launches": _INSTANCE,
    "connections": _INSTANCE,
    "logs": _INSTANCE,
    "jobs": _INSTANCE,
    "templates": Subject("template", "misc", "misc"),
    "secrets": _USER,
    "ssh-keys": _USER,
    "safety": _BILLING,
    "top-ups": _BILLING,
    "payments": _BILLING,
    "payouts": _BILLING,
    "usage": _MACHINE,
    "records": _BILLING,
    "trust": _MACHINE,
    "operations": _MACHINE,
    "outages": _MACHINE,
    "notices": _USER,
    "webhooks": _USER,
    "statements": _BILLING,
    "disputes": _BILLING,
    "witnesses": _INSTANCE,
    "corrections": _BILLING,
    "calculators": _MISC,
    "audit": _USER,
    "grants": _BILLING,
    "billing": _BILLING,
    "documents": _BILLING,
    "timelines": Subject("timeline", "instance_read", "instance_write"),
    "books": _BILLING,
    "adjustments": _BILLING,
    "findings": _BILLING,
    "labels": _BILLING,
    "mail": Subject("mail", "user_read", "user_write"),
}
EXCEPTIONS: Final[Mapping[str, Scope]] = {
    "api.user.show_balance": "billing_read",
    "api.user.show_trial_balance": "billing_read",
    "api.billing.show_lease": "instance_read",
    "api.billing.set_lease": "instance_write",
    "api.volume.offer_volumes": "machine_write",
    "api.volume.withdraw_volumes": "machine_write",
    "api.volume.search_volume_offers": "misc",
    "api.instance.request_logs": "instance_read",
    "api.instance.list_log_requests": "machine_read",
    "api.instance.upload_log": "machine_write",
    "api.instance.publish_connection": "machine_write",
    "api.timeline.show_machine_timeline": "machine_read",
    "api.timeline.show_spend_timeline": "billing_read",
    "api.user.attach_ssh_key": "instance_write",
    "api.user.detach_ssh_key": "instance_write",
    "api.user.list_instance_ssh_keys": "instance_read",
}
"""Endpoints whose scope is not that of their subject."""


class Endpoint(NamedTuple):
    """The name of a route, and the scope that it takes; no scope: closed to restricted keys."""

    name: str
    scope: Scope | None


def endpoint_of(handler: Any) -> Endpoint:
    """What the permissions of keys call this route."""
    tags = handler.tags or [""]
    subject = SUBJECTS.get(next(iter(tags)))
    function = handler.fn.__name__
    if subject is None:
        return Endpoint(f"api.{function}", None)
    name = f"api.{subject.word}.{function}"
    reads = handler.http_methods == {"GET"}
    return Endpoint(name, EXCEPTIONS.get(name, subject.read if reads else subject.write))


def endpoints_of(handlers: Iterable[Any]) -> dict[str, Endpoint]:
    """The endpoints of routes that take a key, by their names: what frontends are measured by."""
    found = [endpoint_of(one) for one in handlers if getattr(one, "tags", None)]
    return {one.name: one for one in found}


async def require_permission(
    request: Request[Any, Any, State], principal: Principal, endpoint: Endpoint
) -> None:
    """Refuse what the key's permissions do not name.

    Raises:
        ForbiddenError: `not_authorized`, with the scope and the endpoint that it would take.
    """
    if principal.grants is None:
        return
    values = await _values(request, fields_of(principal.grants))
    if endpoint.scope is None or not permits(
        principal.grants, endpoint.scope, endpoint.name, values
    ):
        message = f"this key's permissions do not let it do this: it takes {endpoint.scope}"
        raise ForbiddenError(
            "not_authorized", message, scope=endpoint.scope, endpoint=endpoint.name
        )


async def _values(request: Request[Any, Any, State], fields: set[str]) -> dict[str, Any]:
    """What the request names: of its path, `id` is the first part; then its query, and its body."""
    path = {name: str(value) for name, value in request.path_params.items()}
    if path:
        path["id"] = next(iter(path.values()))
    values: dict[str, Any] = {**request.query_params, **path}
    if fields - values.keys():
        try:
            body = msgspec.json.decode(await request.body())
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            body = None
        if isinstance(body, dict):
            values = {**body, **values}
    return values
