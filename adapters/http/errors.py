"""The one place that knows HTTP statuses: every error as a problem document (RFC 9457)."""

from __future__ import annotations

from typing import Any, Final

import msgspec
import structlog
from litestar import Request, Response
from litestar.exceptions import HTTPException, ValidationException

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

PROBLEM_JSON: Final = "application/problem+json"
_STATUS: Final[dict[type[LedgerError], int]] = {
    RejectedError: 422,
    DeclinedError: 409,
    ConflictError: 409,
    NotFoundError: 404,
    IdempotencyError: 422,
    UnavailableError: 503,
    AuthError: 401,
    ForbiddenError: 403,
    CorruptHistoryError: 500,
}
_CREDIT: Final = frozenset({"insufficient_credit", "insufficient_balance"})
_PAYMENT_REQUIRED: Final = 402
_HTTP_CODES: Final = {
    400: "invalid_args",
    401: "auth_error",
    403: "not_authorized",
    404: "no_such_resource",
    405: "method_not_allowed",
    413: "too_large",
    415: "unsupported_media_type",
    422: "invalid_args",
}
_INTERNAL_ERROR: Final = 500

log = structlog.get_logger("gpuledger.http")


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """What went wrong. `code` is stable; further members carry the numbers behind the sentence."""

    type: str
    title: str
    status: int
    detail: str
    code: str


def status_of(error: LedgerError) -> int:
    """The HTTP status of an error raised on purpose."""
    if error.code in _CREDIT:
        return _PAYMENT_REQUIRED
    given = error.detail.get("status")
    return given if isinstance(given, int) else _STATUS[type(error)]


def problem(status: int, code: str, detail: str, /, **more: Any) -> bytes:
    """A problem document as JSON."""
    more.pop("status", None)
    return msgspec.json.encode(
        {
            "type": f"urn:gpuledger:error:{code}",
            "title": code.replace("_", " "),
            "status": status,
            "detail": detail,
            "code": code,
            **more,
        }
    )


def problem_of(error: LedgerError) -> tuple[int, bytes]:
    """Status and document of an error raised on purpose."""
    status = status_of(error)
    return status, problem(status, error.code, error.message, **error.detail)


def _answer(status: int, body: bytes, headers: dict[str, str] | None = None) -> Response[bytes]:
    return Response(body, status_code=status, media_type=PROBLEM_JSON, headers=headers)


def on_ledger_error(_request: Request[Any, Any, Any], error: LedgerError) -> Response[bytes]:
    """Answer an error raised on purpose."""
    status, body = problem_of(error)
    headers = {}
    if isinstance(error, UnavailableError):
        headers["Retry-After"] = "1"
    if isinstance(error, AuthError):
        headers["WWW-Authenticate"] = "Bearer"
    if status >= _INTERNAL_ERROR:
        log.error("request failed", code=error.code, reason=error.message)
    return _answer(status, body, headers)


def on_http_error(_request: Request[Any, Any, Any], error: HTTPException) -> Response[bytes]:
    """Answer what the framework refused: a path, a method, a body that is not what it should be."""
    status = error.status_code
    detail = error.detail
    if isinstance(error, ValidationException) and error.extra:
        first = error.extra[0] if isinstance(error.extra, list) else error.extra
        if isinstance(first, dict):
            detail = f"{first.get('key', 'body')}: {first.get('message', detail)}"
    code = _HTTP_CODES.get(status, "http_error")
    headers = {"WWW-Authenticate": "Bearer"} if status == 401 else None  # noqa: PLR2004 - a status
    return _answer(status, problem(status, code, detail), headers)


def on_deep_body(_request: Request[Any, Any, Any], _error: RecursionError) -> Response[bytes]:
    """Answer a body that is nested more deeply than anything this API takes."""
    return _answer(400, problem(400, "invalid_args", "the body is nested too deeply"))


def on_any_error(request: Request[Any, Any, Any], error: Exception) -> Response[bytes]:
    """Answer a defect of ours without telling its inside; the log has it."""
    log.error("unexpected error", path=request.url.path, exc_info=error)
    detail = "the server failed; nothing was changed unless a repeat with the same key says so"
    return _answer(_INTERNAL_ERROR, problem(_INTERNAL_ERROR, "internal_error", detail))
