"""One request: who asks, what was sent, and how commands and questions are run."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any, Final, TypeVar

import anyio.to_thread
from litestar import Request, Response, route
from litestar.datastructures import State
from litestar.di import NamedDependency, Provide
from litestar.handlers import HTTPRouteHandler

from adapters.http.access import CALLED, AccessWriter, entry_of
from adapters.http.scopes import Endpoint
from adapters.http.vast.permissions import Naming, Needs, Sent, as_path, may, require
from adapters.http.vast.turns import turn
from adapters.http.vast.wire import JSON_TYPE, Json, answer, decode, mapping
from ledger.domain.events import Role
from ledger.domain.launch import LaunchConfig
from ledger.errors import AuthError, ForbiddenError, RejectedError
from ledger.services.api_keys import Principal, authenticate, note_use
from ledger.services.images import Resolved
from ledger.services.ledger import Ledger, Unit
from ledger.store.database import Connection

T = TypeVar("T")
RENTER: Final[tuple[Role, ...]] = ("renter", "admin")
HOST: Final[tuple[Role, ...]] = ("host", "admin")
ANYONE: Final[tuple[Role, ...]] = ("renter", "host", "auditor", "admin")
_NOBODY: Final = "open"


class Call:
    """A request; `principal` is none where no key is needed and none was sent."""

    def __init__(
        self,
        ledger: Ledger,
        principal: Principal | None,
        request: Request[Any, Any, State],
        body: Json,
    ) -> None:
        """Keep what commands and questions need."""
        self.ledger = ledger
        self.principal = principal
        self.body = body
        self._request = request

    @property
    def account_id(self) -> int:
        """Whose key it is."""
        assert self.principal is not None, "this endpoint takes requests without a key"
        return self.principal.account_id

    @property
    def role(self) -> Role:
        """What the key may do."""
        assert self.principal is not None, "this endpoint takes requests without a key"
        return self.principal.role

    def may(self, name: str, instance_id: int | None = None) -> bool:
        """Whether the key may also use an endpoint of the native API, on this instance."""
        assert self.principal is not None, "this endpoint takes requests without a key"
        values = {} if instance_id is None else {"id": instance_id, "instance_id": instance_id}
        return may(self.principal, self._request.app.state.endpoints, name, values)

    def knows(self, name: str) -> bool:
        """Whether the native API has an endpoint of this name."""
        return name in self._request.app.state.endpoints

    @cached_property
    def now(self) -> int:
        """The second of a question."""
        return self.ledger.clock()

    def query(self, name: str) -> Any:
        """A query parameter: the value of its JSON, or its text where it is none; none if absent.

        Raises:
            RejectedError: `invalid_args` for an object or list that is cut off.
        """
        shown = self._request.query_params.get(name)
        if shown is None:
            return None
        try:
            return decode(shown)
        except RejectedError:
            if shown[:1] in {"{", "["}:
                raise
            return shown

    def query_text(self, name: str) -> str | None:
        """A query parameter as it was sent; none if absent or empty."""
        return self._request.query_params.get(name) or None

    @property
    def base_url(self) -> str:
        """Where this server is reached, as the client called it; without a slash at its end."""
        return str(self._request.base_url).rstrip("/")

    async def written(self) -> None:
        """Let this process's own entries of the access log be there, the last ones too."""
        writer: AccessWriter = self._request.app.state.access
        await anyio.to_thread.run_sync(writer.flush)

    async def resolved(self, config: LaunchConfig | None) -> Resolved:
        """What an image's registry says of it now; asked before any transaction."""
        images = self._request.app.state.images
        return await anyio.to_thread.run_sync(Resolved.asked, images, config)

    async def question(self, ask: Callable[[Connection], T]) -> T:
        """Answer a question from the read models, in one view of them."""

        def run() -> T:
            with self.ledger.reading() as connection:
                return ask(connection)

        return await turn(self._request.app.state.readers, run)

    async def carry_out(self, do: Callable[[Unit], T]) -> T:
        """Carry out a command in one transaction."""

        def run() -> T:
            with self.ledger.unit() as unit:
                return do(unit)

        return await turn(self._request.app.state.writers, run)

    async def command(self, do: Callable[[Unit], Any]) -> Response[Any]:
        """Carry out a command and answer what it gives."""
        return answer(await self.carry_out(do))


Caller = NamedDependency[Call]
"""How a handler asks for the call."""


async def provide_call(request: Request[Any, Any, State]) -> Call:
    """Check the caller's key, role and permissions, and read the body, before anything happens.

    Where no key is needed, one that may not do this is taken for none.

    Raises:
        AuthError: `auth_error` when the key is missing, wrong, expired or revoked.
        ForbiddenError: `not_authorized` when the key's role or its permissions do not let it.
        RejectedError: `invalid_args` for a body that is no JSON object.
    """
    state, options = request.app.state, request.route_handler.opt
    ledger: Ledger = state.ledger
    roles, needs = options["roles"], options["needs"]
    is_open = _NOBODY in roles
    principal = await _principal(ledger, request, is_open=is_open)
    if principal is not None:
        _note(request, principal, needs({}))
    if principal is not None and not is_open and principal.role not in roles:
        message = f"a key of role {principal.role} may not do this; it takes {' or '.join(roles)}"
        raise ForbiddenError("not_authorized", message)
    sent = await request.body()
    body = mapping(decode(sent), "body") if sent.strip() else {}
    if principal is not None:
        names = needs(body)
        _note(request, principal, names)
        named = Sent(dict(request.path_params), request.query_params, body)
        try:
            require(principal, state.endpoints, names, options["naming"], named)
        except ForbiddenError:
            if not is_open:
                raise
            principal = None
    return Call(ledger, principal, request, body)


def _note(request: Request[Any, Any, State], principal: Principal, names: tuple[str, ...]) -> None:
    """Keep the call for the access log, as the native API keeps its own."""
    endpoint = Endpoint(names[0] if names else "api.misc.unsupported", None)
    entry = entry_of(request, principal, endpoint, request.app.state.ledger.clock())
    if entry is not None:
        entry = entry._replace(path=f"/api{entry.path}")
    request.scope["state"][CALLED] = entry


async def _principal(
    ledger: Ledger, request: Request[Any, Any, State], *, is_open: bool
) -> Principal | None:
    given = request.headers.get("authorization")
    if given is None and is_open:
        return None
    scheme, _, key = (given or "").partition(" ")
    key = key.strip()
    if scheme.lower() != "bearer" or not key:
        message = "this needs an API key: `vastai set api-key glk_…` or VAST_API_KEY"
        raise AuthError("auth_error", message)

    def check() -> Principal:
        now = ledger.clock()
        with ledger.reading() as connection:
            principal = authenticate(connection, key, now)
        note_use(ledger, principal, now)
        return principal

    return await turn(request.app.state.readers, check)


def endpoint(
    method: str,
    *paths: str,
    roles: tuple[Role, ...] | None,
    needs: str | tuple[str, ...] | Needs,
    naming: Naming = as_path,
) -> Callable[[Callable[..., Any]], HTTPRouteHandler]:
    """A handler that answers 200 at *paths*, with and without a slash at their end.

    Args:
        method: Of HTTP.
        paths: Where, below `/api`.
        roles: Who may use it; none: everybody, also without a key.
        needs: The endpoints of the native API that a key with permissions must be let use, or a
            function of the body that gives them.
        naming: What the request names, for the constraints of permissions.
    """
    asked = (needs,) if isinstance(needs, str) else needs
    return route(
        list(paths),
        http_method=[method],  # type: ignore[list-item]  # the names of methods are ours
        status_code=200,
        media_type=JSON_TYPE,
        opt={
            "roles": (_NOBODY,) if roles is None else roles,
            "needs": asked if callable(asked) else lambda _body: asked,
            "naming": naming,
        },
    )


DEPENDENCIES: Final = {"call": Provide(provide_call)}
