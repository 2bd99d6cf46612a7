"""Logs of containers: asked for here, uploaded by the machine's host, fetched without a key."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec
from litestar import Response
from litestar.params import FromPath

from adapters.http.vast.call import RENTER, Caller, endpoint
from adapters.http.vast.wire import Json, flag, text, whole
from ledger.errors import RejectedError
from ledger.services import rentals
from ledger.services.container_logs import KEEP_SECONDS, Options, ask_for_logs
from ledger.services.ledger import Unit

_TAIL: Final = 1_000


@endpoint(
    "PUT",
    "/v0/instances/request_logs/{instance_id:int}",
    roles=RENTER,
    needs="api.instance.request_logs",
)
async def request_logs(call: Caller, instance_id: FromPath[int]) -> Response[Any]:
    """Ask for a log; the answer says where its text will be, for an hour and whoever knows it."""
    options, base = _options(call.body), call.base_url

    def do(unit: Unit) -> Json:
        rentals.owned(unit, instance_id, call.account_id)
        token = ask_for_logs(unit, instance_id, options)
        return {
            "success": True,
            "result_url": f"{base}/v1/logs/{token}",
            "expires_at": unit.now + KEEP_SECONDS,
            "msg": "the machine's host was asked for it",
        }

    return await call.command(do)


def _options(body: Json) -> Options:
    """What of the log is wanted; numbers and flags come as texts.

    Raises:
        RejectedError: `invalid_args`.
    """
    given = {
        "tail": _TAIL if body.get("tail") is None else whole(body["tail"], "tail"),
        "filter": text(body.get("filter"), "filter") or None,
        "daemon": flag(body.get("daemon_logs") or False, "daemon_logs"),
    }
    try:
        return msgspec.convert(given, Options)
    except msgspec.ValidationError as error:
        raise RejectedError("invalid_args", f"logs: {error}") from None


ENDPOINTS: Sequence[Any] = [request_logs]
