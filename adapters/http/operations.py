"""What the reference says of a route beyond its signature: roles, errors, headers, examples."""

from __future__ import annotations

from functools import partial
from typing import Any, Final

from litestar.openapi.datastructures import ResponseSpec
from litestar.openapi.spec import OpenAPIMediaType, OpenAPIType, Operation, Parameter, Schema

from adapters.http.errors import PROBLEM_JSON, Problem
from adapters.http.once import HEADER, KEY_CHARACTERS_MAX
from adapters.http.wire import Body

_ERRORS: Final = {
    400: "The request is not what it should be: `invalid_args`, `undecodable`.",
    401: "The key is missing, wrong, expired or revoked: `auth_error`.",
    402: "There is not enough credit: `insufficient_credit`, `insufficient_balance`.",
    403: "The key's role may not do this: `not_authorized`.",
    404: "There is no such thing, or it is not yours: `no_such_…`.",
    409: "Not now: `no_capacity`, `idempotency_in_flight`.",
    413: "The body is too large: `too_large`.",
    422: "A rule says no, and will again; or the key was used for another request:"
    " `idempotency_conflict`.",
    503: "The database does not answer; nothing was changed. `Retry-After` says when to repeat.",
}
_OF_QUESTIONS: Final = (400, 401, 403, 404, 503)
_REPEATABLE: Final = frozenset({"POST", "PUT", "DELETE"})
_DESCRIPTIONS: Final = {"200": "Done, or the answer.", "201": "Made."}


def document(handler: Any, tag: str) -> Any:
    """Give a route its subject, its roles, its errors, and what `opt` adds.

    `opt` may name the `roles` that may use the route, the `errors` (statuses) that it can answer
    with, and a function `describe` that completes the operation.
    """
    handler.tags = [tag]
    roles = handler.opt.get("roles")
    if roles:
        handler.security = [{"key": list(roles)}]
    asks = handler.http_methods == {"GET"}
    statuses = handler.opt.get("errors", _OF_QUESTIONS if asks else tuple(_ERRORS))
    handler.responses = {
        status: ResponseSpec(
            Problem,
            description=_ERRORS[status],
            generate_examples=False,
            media_type=PROBLEM_JSON,
        )
        for status in statuses
    }
    handler.operation_class = partial(_operation, handler)
    return handler


def _operation(handler: Any, **parts: Any) -> Operation:
    operation = Operation(**parts)
    for status, response in (operation.responses or {}).items():
        if status in _DESCRIPTIONS:
            response.description = _DESCRIPTIONS[status]
    if handler.http_methods & _REPEATABLE and "describe" not in handler.opt:
        operation.parameters = [*(operation.parameters or []), _idempotency_key()]
    data = handler.parsed_fn_signature.parameters.get("data")
    if data is not None and issubclass(data.annotation, Body):
        for media in operation.request_body.content.values():  # type: ignore[union-attr]
            media.example = data.annotation.EXAMPLE
    describe = handler.opt.get("describe")
    if describe is not None:
        describe(operation)
    return operation


def _idempotency_key() -> Parameter:
    return Parameter(
        name=HEADER,
        param_in="header",
        required=False,
        schema=Schema(type=OpenAPIType.STRING, min_length=1, max_length=KEY_CHARACTERS_MAX),
        description="The same key and request again give the first answer again, for ever, with"
        " `Idempotency-Replayed: true`; a refusal by a rule too.",
        example="order-2026-03-01-17",
    )


def msgpack_array(description: str) -> OpenAPIMediaType:
    """A body that OpenAPI cannot spell out: said in words."""
    schema = Schema(
        type=OpenAPIType.STRING,
        content_media_type="application/msgpack",
        description=description,
    )
    return OpenAPIMediaType(schema=schema)
