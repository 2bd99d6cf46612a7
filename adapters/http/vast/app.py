"""The endpoints under `/api/`, as an application of their own inside the server's.

So a path, a method or a body that there is not is answered in these clients' form under `/api/` and
in the native one everywhere else.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import certifi
from anyio import CapacityLimiter
from litestar import Litestar, MediaType, Response, asgi, get
from litestar.datastructures import State
from litestar.exceptions import HTTPException
from litestar.types import Receive, Scope, Send

from adapters.http.scopes import endpoints_of
from adapters.http.vast import (
    account,
    asks,
    audit,
    charges,
    control,
    earnings,
    elsewhere,
    hosts,
    increases,
    instances,
    jobs,
    logs,
    maintenance,
    market,
    movements,
    offers,
    old_invoices,
    renting,
    secrets,
    ssh_keys,
    templates,
    transfers,
    volume_offers,
    volumes,
)
from adapters.http.vast.call import DEPENDENCIES
from adapters.http.vast.errors import (
    Refusal,
    on_any_error,
    on_deep_body,
    on_http_error,
    on_ledger_error,
    on_refusal,
)
from adapters.http.vast.turns import READERS, WRITERS
from ledger.errors import LedgerError

MAX_BODY_BYTES: Final = 131_072
_SHARED: Final = ("ledger", "images", "access")
"""What of the server's state the frontend uses."""
_MODULES: Final = (
    offers,
    renting,
    control,
    instances,
    increases,
    charges,
    movements,
    old_invoices,
    earnings,
    transfers,
    account,
    hosts,
    asks,
    maintenance,
    market,
    volume_offers,
    volumes,
    templates,
    secrets,
    ssh_keys,
    logs,
    jobs,
    audit,
    elsewhere,
)


def frontend() -> list[Any]:
    """What the server adds to its own routes to serve these clients."""
    inner = Litestar(
        route_handlers=[one for module in _MODULES for one in module.ENDPOINTS],
        dependencies=DEPENDENCIES,
        exception_handlers={
            LedgerError: on_ledger_error,
            Refusal: on_refusal,
            HTTPException: on_http_error,
            RecursionError: on_deep_body,
            Exception: on_any_error,
        },
        request_max_body_size=MAX_BODY_BYTES,
        state=State(
            {
                "readers": CapacityLimiter(READERS),
                "writers": CapacityLimiter(WRITERS),
                "endpoints": {},
            }
        ),
        openapi_config=None,
        logging_config=None,
    )

    @asgi("/api", is_mount=True, copy_scope=True)
    async def mounted(scope: Scope, receive: Receive, send: Send) -> None:
        server = scope["litestar_app"]
        for name in _SHARED:
            setattr(inner.state, name, getattr(server.state, name))
        if not inner.state.endpoints:
            inner.state.endpoints = endpoints_of(
                handler for one in server.routes for handler in getattr(one, "route_handlers", ())
            )
        await inner(scope, receive, send)

    return [mounted, root_certificates]


@get(
    "/static/jvastai_root.cer",
    dependencies={},
    media_type=MediaType.TEXT,
    include_in_schema=False,
)
async def root_certificates() -> Response[bytes]:
    """The certificates that `AsyncClient` asks for before its first call."""
    return Response(Path(certifi.where()).read_bytes(), media_type="application/x-pem-file")
