"""Logs of containers on demand: asked for by the renter, uploaded by the host, fetched by a URL."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

import anyio.to_thread
import msgspec
from litestar import MediaType, Request, Response, get, post, put
from litestar.datastructures import State
from litestar.params import FromPath, JSONBody
from msgspec import Meta

from adapters.http.call import HOST, RENTER, Caller, allowed
from adapters.http.native.own import own_machine, require_own
from adapters.http.wire import Body, Instant
from ledger.domain.ids import rfc3339
from ledger.services import container_logs as use_cases
from ledger.services.ledger import Ledger, Unit
from ledger.store.database import Connection


class NewLogRequest(Body):
    """What of the log is wanted: its last lines, those with a text in them, or the daemon's."""

    EXAMPLE: ClassVar[dict[str, Any]] = {"tail": 100, "filter": "error", "daemon": False}

    tail: Annotated[int, Meta(ge=1, le=10_000)] = 1_000
    filter: Annotated[str, Meta(max_length=256, pattern=r"^[^\x00]*\Z")] | None = None
    daemon: bool = False


class LogPromise(msgspec.Struct, frozen=True, kw_only=True):
    """Where the text will be, without a key: 404 until it is there, and an hour after now."""

    instance_id: int
    result_url: str
    expires_at: Instant


class LogRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request that waits; upload the text to `/v1/log-requests/{token}`."""

    token: str
    instance_id: int
    tail: int
    filter: str | None
    daemon: bool
    asked_at: Instant


class LogRequests(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that waits, the oldest first."""

    items: list[LogRequest]


class NewLog(Body):
    """The text; of a longer one the last 100,000 characters are kept."""

    EXAMPLE: ClassVar[dict[str, Any]] = {"text": "epoch 1\nepoch 2\n"}

    text: str


class LogKept(msgspec.Struct, frozen=True, kw_only=True):
    """The text is there for who asked."""

    characters: int


@post(
    "/v1/instances/{instance_id:int}/log-requests",
    opt=allowed(*RENTER),
    summary="Ask for a container's log",
)
async def request_logs(
    request: Request[Any, Any, State],
    call: Caller,
    instance_id: FromPath[int],
    data: JSONBody[NewLogRequest],
) -> Response[LogPromise]:
    """Ask the machine's host for a log; the answer says where it will be, for whoever knows it."""
    options = use_cases.Options(tail=data.tail, filter=data.filter, daemon=data.daemon)
    base = str(request.base_url).rstrip("/")

    def do(unit: Unit) -> LogPromise:
        require_own(call, unit, instance_id)
        token = use_cases.ask_for_logs(unit, instance_id, options)
        return LogPromise(
            instance_id=instance_id,
            result_url=f"{base}/v1/logs/{token}",
            expires_at=rfc3339(unit.now + use_cases.KEEP_SECONDS),
        )

    return await call.command(do, 201, secret=True)


@get(
    "/v1/machines/{machine_id:int}/log-requests",
    opt=allowed(*HOST, machine=True),
    summary="List a machine's log requests",
)
async def list_log_requests(call: Caller, machine_id: FromPath[int]) -> LogRequests:
    """List the logs that renters of one's machine wait for."""
    ledger, now = call.ledger, call.ledger.clock()

    def run(connection: Connection) -> list[use_cases.LogRequest]:
        own_machine(call, connection, machine_id)
        return use_cases.open_requests(connection, ledger.vault, machine_id, now)

    found = await call.question(run)
    return LogRequests(
        items=[
            LogRequest(
                token=one.token,
                instance_id=one.instance_id,
                tail=one.options.tail,
                filter=one.options.filter,
                daemon=one.options.daemon,
                asked_at=rfc3339(one.asked_at),
            )
            for one in found
        ]
    )


@put(
    "/v1/log-requests/{token:str}",
    opt=allowed(*HOST, machine=True),
    summary="Upload a container's log",
)
async def upload_log(
    call: Caller, token: FromPath[str], data: JSONBody[NewLog]
) -> Response[LogKept]:
    """Give the text that somebody asked for; the first one stands, again changes nothing."""
    host = None if call.is_admin else call.principal.account_id

    def do(unit: Unit) -> LogKept:
        use_cases.upload(unit, host, token, data.text, machine_id=call.machine_id)
        return LogKept(characters=len(data.text))

    return await call.command(do)


@get(
    "/v1/logs/{token:str}",
    dependencies={},
    media_type=MediaType.TEXT,
    security=[{}],
    summary="Fetch a container's log",
    opt={"errors": (400, 404, 503)},
)
async def fetch_log(request: Request[Any, Any, State], token: FromPath[str]) -> Response[str]:
    """Show the text behind an address that only who asked knows: 404 until it is there."""
    ledger: Ledger = request.app.state.ledger

    def run() -> str:
        with ledger.reading() as connection:
            return use_cases.read_log(connection, ledger.vault, token, ledger.clock())

    text = await anyio.to_thread.run_sync(run)
    headers = {
        "Cache-Control": "no-store",
        "X-Content-Type-Options": "nosniff",
        "Referrer-Policy": "no-referrer",
    }
    return Response(text, media_type=MediaType.TEXT, headers=headers)


HANDLERS = [request_logs, list_log_requests, upload_log, fetch_log]
