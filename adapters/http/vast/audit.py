"""Who called what in one's name, and from where."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from litestar import Response

from adapters.http.vast.call import ANYONE, Caller, endpoint
from adapters.http.vast.wire import answer
from ledger.domain.events import Role
from ledger.services import access_log

_PAYER: Final[tuple[Role, ...]] = ("renter", "host", "admin")
_ROWS: Final = 1_000


@endpoint("GET", "/v0/audit_logs", roles=ANYONE, needs="api.user.list_calls")
async def calls(call: Caller) -> Response[Any]:
    """The last thousand calls in one's name, the newest first; bodies are kept nowhere."""
    await call.written()
    vault, account = call.ledger.vault, call.account_id
    found = await call.question(
        lambda connection: access_log.audit_log(connection, vault, account, limit=_ROWS)
    )
    return answer(
        [
            {
                "ip_address": one.address or "",
                "api_key_id": int(one.key_id, 16),
                "key_id": one.key_id,
                "created_at": one.at,
                "api_route": f"{one.method} {one.path}",
                "endpoint": one.endpoint,
                "status": one.status,
                "args": {},
            }
            for one in found
        ]
    )


@endpoint("GET", "/v0/users/me/ipaddrs", roles=_PAYER, needs="api.user.list_addresses")
async def addresses(call: Caller) -> Response[Any]:
    """The addresses from which one's account was used in the last 90 days."""
    await call.written()
    vault, account = call.ledger.vault, call.account_id
    found = await call.question(
        lambda connection: access_log.addresses(connection, vault, account, limit=_ROWS)
    )
    return answer(
        {
            "results": [
                {
                    "ip": one.address or "",
                    "first_seen": one.first_seen,
                    "last_seen": one.last_seen,
                    "first_location": "",
                }
                for one in found
            ]
        }
    )


ENDPOINTS: Sequence[Any] = [calls, addresses]
