"""What witnesses say: minutes that contradict each other, and heartbeats from inside."""

from __future__ import annotations

from typing import Any

import anyio.to_thread
import msgspec
from litestar import Request, Response, get, post
from litestar.datastructures import State
from litestar.openapi.spec import Operation
from litestar.params import FromPath, FromQuery

from adapters.http.call import ANYONE, RENTER, Caller, allowed
from adapters.http.native.accounts import AccountFilter, Cursor, Limit
from adapters.http.wire import Instant, Page, decode_cursor, page
from ledger.domain.ids import rfc3339
from ledger.errors import AuthError
from ledger.services import heartbeats, rentals
from ledger.services.ledger import Unit
from ledger.services.questions import disputes as ask


class Witness(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds `[start, until)` in which host, renter and probes do not say the same.

    `hold`: billed into a hold; `no_network`: billed, and held against the machine; `anomaly`: seen
    alive where the host attests nothing.
    """

    instance_id: int
    machine_id: int
    start: Instant
    until: Instant
    renter: str
    probe: str
    probes_up: int
    probes_down: int
    verdict: str
    dispute_id: int | None
    recorded_at: Instant


class HeartbeatToken(msgspec.Struct, frozen=True, kw_only=True):
    """Send it as `Authorization: Bearer …` to `/v1/heartbeats` every 30 s, from inside."""

    instance_id: int
    token: str


class Alive(msgspec.Struct, frozen=True, kw_only=True):
    """The heartbeat was noted."""

    instance_id: int
    at: Instant


@get("/v1/witnesses", opt=allowed(*ANYONE), summary="List contradictions")
async def list_witnesses(
    call: Caller,
    account_id: AccountFilter = None,
    instance_id: FromQuery[int | None] = None,
    limit: Limit = 100,
    cursor: Cursor = None,
) -> Page[Witness]:
    """List minutes in which host, renter and probes contradict each other; usual ones are not."""
    account, host = call.sides(account_id)
    after = decode_cursor(cursor, int, 0)
    found = await call.question(
        lambda connection: ask.witnesses(
            connection,
            instance_id=instance_id,
            account_id=account,
            host_id=host,
            after=after,
            limit=limit + 1,
        )
    )
    return page(Witness, found, limit, lambda one: one.position)


@post(
    "/v1/instances/{instance_id:int}/heartbeat-token",
    opt=allowed(*RENTER),
    status_code=200,
    summary="Get a heartbeat token",
)
async def heartbeat_token(call: Caller, instance_id: FromPath[int]) -> Response[HeartbeatToken]:
    """Give the token with which this instance says that it lives; it dies with the instance."""

    def do(unit: Unit) -> HeartbeatToken:
        if not call.is_admin:
            rentals.owned(unit, instance_id, call.principal.account_id)
        unit.instance(instance_id)
        token = heartbeats.heartbeat_token(unit.vault, instance_id)
        return HeartbeatToken(instance_id=instance_id, token=token)

    return await call.command(do, secret=True)


def _describe(operation: Operation) -> None:
    """A heartbeat has no Idempotency-Key: again is another sign of life."""
    del operation


@post(
    "/v1/heartbeats",
    dependencies={},
    status_code=200,
    security=[{}],
    summary="Say that a container lives",
    opt={"errors": (400, 401, 503), "describe": _describe},
)
async def heartbeat(request: Request[Any, Any, State]) -> Alive:
    """Note that the container of a heartbeat token lives now; the token is the credential.

    It needs no `Idempotency-Key`: again is another sign of life.
    """
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() != "bearer":
        message = "send the heartbeat token as `Authorization: Bearer gli_…`"
        raise AuthError("auth_error", message)
    ledger = request.app.state.ledger
    instance_id = await anyio.to_thread.run_sync(heartbeats.heartbeat, ledger, token.strip())
    return Alive(instance_id=instance_id, at=rfc3339(ledger.clock()))


HANDLERS = [list_witnesses, heartbeat_token, heartbeat]
