"""Every error as these clients read it: an object with `error` for programs and `msg` for people.

The table translates codes of the core; what is not in it keeps its code, with its kind's status.
"""

from __future__ import annotations

from typing import Any, Final

import structlog
from litestar import Request, Response
from litestar.exceptions import HTTPException

from adapters.http.vast.wire import answer
from ledger.errors import (
    AuthError,
    ConflictError,
    CorruptHistoryError,
    DeclinedError,
    ForbiddenError,
    IdempotencyError,
    LedgerError,
    NotFoundError,
    RejectedError,
    UnavailableError,
)

_STATUS: Final[dict[type[LedgerError], int]] = {
    RejectedError: 400,
    DeclinedError: 400,
    IdempotencyError: 400,
    ConflictError: 409,
    NotFoundError: 404,
    AuthError: 401,
    ForbiddenError: 403,
    UnavailableError: 503,
    CorruptHistoryError: 500,
}
_TABLE: Final[dict[str, tuple[int, str]]] = {
    "no_capacity": (410, "no_such_ask"),
    "no_such_ask": (404, "invalid_args"),
    "no_such_offer": (404, "invalid_args"),
    "invalid_amount": (400, "invalid_args"),
    "amount_too_small": (400, "invalid_args"),
    "no_such_account": (404, "not_found"),
    "no_such_key": (404, "not_found"),
    "no_such_resource": (404, "not_found"),
}
_SHOWN_DETAILS: Final = frozenset({"min_bid", "floor", "needed", "available", "free_disk_gb"})
_HTTP: Final = {
    400: "invalid_args",
    401: "auth_error",
    403: "not_authorized",
    404: "not_found",
    405: "method_not_allowed",
    413: "too_large",
    422: "invalid_args",
}
_INTERNAL: Final = 500

log = structlog.get_logger("gpuledger.http.vast")


class Refusal(Exception):  # noqa: N818 - an answer, not a mistake
    """An answer of this frontend that no code of the core stands for."""

    def __init__(self, status: int, error: str, msg: str, **more: Any) -> None:
        """Keep what is answered."""
        super().__init__(msg)
        self.status = status
        self.error = error
        self.msg = msg
        self.more = more


def unsupported(msg: str) -> Refusal:
    """What has no meaning here; *msg* says what to use instead."""
    return Refusal(400, "unsupported", msg)


def refused(status: int, error: str, msg: str, **more: Any) -> Response[Any]:
    """The error object, with nothing that these clients would stumble over."""
    return answer({"success": False, "error": error, "msg": msg, **more}, status)


def translated(error: LedgerError) -> tuple[int, str, str, dict[str, Any]]:
    """Status, code, text and details of one of the core's errors."""
    status, code = _TABLE.get(error.code, (_STATUS[type(error)], error.code))
    more = {name: value for name, value in error.detail.items() if name in _SHOWN_DETAILS}
    return status, code, error.message, more


def on_ledger_error(_request: Request[Any, Any, Any], error: LedgerError) -> Response[Any]:
    """Answer an error of the core."""
    status, code, msg, more = translated(error)
    found = refused(status, code, msg, **more)
    if isinstance(error, UnavailableError):
        found.headers["Retry-After"] = "1"
    if isinstance(error, AuthError):
        found.headers["WWW-Authenticate"] = "Bearer"
    if status >= _INTERNAL:
        log.error("request failed", code=error.code, reason=error.message)
    return found


def on_refusal(_request: Request[Any, Any, Any], error: Refusal) -> Response[Any]:
    """Answer a refusal of this frontend."""
    return refused(error.status, error.error, error.msg, **error.more)


def on_http_error(request: Request[Any, Any, Any], error: HTTPException) -> Response[Any]:
    """Answer a path, a method or a body that there is not."""
    status = error.status_code
    path = f"{request.method} /api{request.scope['path']}"
    msg = {
        404: f"{path}: there is no such endpoint here",
        405: f"{path}: this endpoint has no such method",
    }.get(status, error.detail)
    return refused(status, _HTTP.get(status, "http_error"), msg)


def on_deep_body(_request: Request[Any, Any, Any], _error: RecursionError) -> Response[Any]:
    """Answer a body that is nested more deeply than anything these endpoints take."""
    return refused(400, "invalid_args", "the body is nested too deeply")


def on_any_error(request: Request[Any, Any, Any], error: Exception) -> Response[Any]:
    """Answer a defect of ours without telling its inside; the log has it."""
    log.error("unexpected error", path=request.scope["path"], exc_info=error)
    return refused(_INTERNAL, "internal_error", "the server failed; the log says why")
