"""`POST /v1/usage`: the way in for every tick of the platform."""

from __future__ import annotations

import asyncio
import time
from typing import Any, Final

import msgspec
from litestar import Request, Response, post
from litestar.datastructures import State
from litestar.openapi.spec import OpenAPIResponse, Operation, RequestBody

from adapters.http.metrics import Metrics
from adapters.http.operations import msgpack_array
from ledger.domain.acknowledgement import UsageAnswer
from ledger.domain.usage import MAX_BODY_BYTES, MAX_REPORTS_PER_REQUEST
from ledger.errors import AuthError, RejectedError
from ledger.services.usage import SignedReport, UsageService

MSGPACK: Final = "application/msgpack"
MAX_REQUEST_BYTES: Final = MAX_BODY_BYTES + 65_536
"""A report of the largest size fits with its signature, key id and framing."""

_decoder = msgspec.msgpack.Decoder(list[tuple[str, bytes, bytes]])
_msgpack = msgspec.msgpack.Encoder()
_json = msgspec.json.Encoder()


def _describe(operation: Operation) -> None:
    content = msgpack_array(
        f"An array of 1 to {MAX_REPORTS_PER_REQUEST} reports, each `[key id (str), Ed25519"
        " signature (bin, 64 bytes), body (bin)]`. The signature is over"
        " `ledger.usage-report.v1`, a zero"
        f" byte, and the body: a map of columns, at most {MAX_BODY_BYTES:,} bytes."
    )
    operation.request_body = RequestBody(content={MSGPACK: content}, required=True)
    answer = (operation.responses or {})["200"]
    assert isinstance(answer, OpenAPIResponse)
    assert answer.content is not None
    answer.content[MSGPACK] = msgpack_array("The same as msgpack, if `Accept` asks for it.")


@post(
    "/v1/usage",
    dependencies={},
    status_code=200,
    request_max_body_size=MAX_REQUEST_BYTES,
    summary="Hand in usage reports",
    security=[{}],
    opt={"errors": (400, 401, 404, 413, 503), "describe": _describe},
)
async def usage(request: Request[Any, Any, State]) -> Response[UsageAnswer]:
    """Take 1 to 100 signed reports, as a msgpack array of `[key id, signature, body]`.

    The signatures are the credential. The answer comes after the reports are durable: one status
    per report, and per machine everything up to which it may forget. A repeat is harmless.
    """
    began = time.perf_counter()
    raw = await request.body()
    try:
        parts = _decoder.decode(raw)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        message = f"not a msgpack array of [key id, signature, body]: {error}"
        raise RejectedError("undecodable", message, status=400) from None
    if not 1 <= len(parts) <= MAX_REPORTS_PER_REQUEST:
        message = f"a request holds 1 to {MAX_REPORTS_PER_REQUEST} reports"
        raise RejectedError("invalid_args", message, status=400)
    if any(len(body) > MAX_BODY_BYTES for _, _, body in parts):
        message = f"a report is at most {MAX_BODY_BYTES} bytes"
        raise RejectedError("too_large", message, status=413)
    service: UsageService = request.app.state.usage
    # No key id has a NUL, and the database cannot look for one: it is unknown like any other.
    reports = [
        SignedReport(key_id.replace("\0", "\ufffd"), signature, body)
        for key_id, signature, body in parts
    ]
    answer = await asyncio.wrap_future(service.submit(reports))
    metrics: Metrics = request.app.state.metrics
    metrics.usage(answer, time.perf_counter() - began)
    if all(one.status == "unauthorized" for one in answer.reports):
        message = "no signature in this request is that of an enrolled machine"
        raise AuthError("auth_error", message)
    if all(one.status == "undecodable" for one in answer.reports):
        message = answer.reports[0].reason or "no report in this request can be read"
        raise RejectedError("undecodable", message, status=400)
    if MSGPACK in request.headers.get("accept", ""):
        return Response(_msgpack.encode(answer), media_type=MSGPACK)  # type: ignore[arg-type]
    return Response(_json.encode(answer), media_type="application/json")  # type: ignore[arg-type]


HANDLERS = [usage]
