"""One request: who asks, what they may see, and how commands and questions are run for them."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, Final, TypeVar

import anyio.to_thread
import msgspec
from litestar import Request, Response
from litestar.datastructures import State
from litestar.di import NamedDependency, Provide
from litestar.handlers import BaseRouteHandler
from litestar.params import QueryParameter

from adapters.http.access import CALLED, entry_of
from adapters.http.once import HEADER, carry_out
from adapters.http.scopes import endpoint_of, require_permission
from ledger.domain.events import Role
from ledger.domain.machine_call import SCHEME, read_credential
from ledger.errors import AuthError, ForbiddenError, NotFoundError, RejectedError
from ledger.services.api_keys import Principal, authenticate, note_use
from ledger.services.ledger import Ledger, Unit
from ledger.services.machine_calls import authenticate_machine
from ledger.store.database import Connection

T = TypeVar("T")
_OK: Final = 200
_SEES_ALL: Final = frozenset({"admin", "auditor"})

RENTER: Final[tuple[Role, ...]] = ("renter", "admin")
HOST: Final[tuple[Role, ...]] = ("host", "admin")
ADMIN: Final[tuple[Role, ...]] = ("admin",)
AUDITOR: Final[tuple[Role, ...]] = ("auditor", "admin")
ANYONE: Final[tuple[Role, ...]] = ("renter", "host", "auditor", "admin")
PAYER: Final[tuple[Role, ...]] = ("renter", "host", "admin")


def allowed(*roles: Role, machine: bool = False) -> dict[str, Any]:
    """The options of a route that these roles may use; the docs show them.

    *machine*: so may the machine that its path names, with a request signed by its own key.
    """
    return {"roles": roles, "machine": machine}


class Call:
    """A request by somebody whose key was checked."""

    def __init__(
        self,
        ledger: Ledger,
        principal: Principal,
        request: Request[Any, Any, State],
        key: str,
        machine_id: int | None = None,
    ) -> None:
        """Keep what commands and questions need; *machine_id* is set when a machine asks."""
        self.machine_id = machine_id
        self.ledger = ledger
        self.principal = principal
        self._request = request
        self._key = key

    @property
    def sees_all(self) -> bool:
        """True for auditors and admins."""
        return self.principal.role in _SEES_ALL

    @property
    def is_admin(self) -> bool:
        """True for admins."""
        return self.principal.role == "admin"

    def account(self, asked: int | None) -> int:
        """The account a command is about: one's own, or the one an admin names.

        Raises:
            NotFoundError: `no_such_account` for somebody else's.
        """
        if asked is None or asked == self.principal.account_id:
            return self.principal.account_id
        if not self.is_admin:
            raise NotFoundError("no_such_account", f"there is no account {asked}")
        return asked

    def view(self, asked: int | None) -> int | None:
        """The account a list is about; none means all, for those who see all.

        Raises:
            NotFoundError: `no_such_account` for somebody else's.
        """
        if self.sees_all:
            return asked
        if asked is not None and asked != self.principal.account_id:
            raise NotFoundError("no_such_account", f"there is no account {asked}")
        return self.principal.account_id

    def sides(self, asked: int | None) -> tuple[int | None, int | None]:
        """Whose things a list is about, as (renter, host): a host's key sees those of its machines.

        Raises:
            NotFoundError: `no_such_account` for somebody else's.
        """
        account = self.view(asked)
        if self.principal.role == "host":
            return None, self.principal.account_id
        return account, None

    async def question(self, ask: Callable[[Connection], T]) -> T:
        """Answer a question from the read models, in one view of them."""

        def run() -> T:
            with self.ledger.reading() as connection:
                return ask(connection)

        return await anyio.to_thread.run_sync(run)

    async def command(
        self, do: Callable[[Unit], msgspec.Struct], status: int = _OK, *, secret: bool = False
    ) -> Response[Any]:
        """Carry out a command in one transaction, under the Idempotency-Key if there is one.

        The first answer to a key is kept for ever, a refusal by a rule too; one that shows a
        *secret* is kept so that only the caller's API key opens it.
        """
        return await carry_out(
            self.ledger,
            self._request,
            do,
            status,
            scope=str(self.principal.account_id),
            seal_with=self._key if secret else None,
        )


Caller = NamedDependency[Call]
"""How a handler asks for the call."""


async def provide_call(request: Request[Any, Any, State]) -> Call:
    """Check the caller's key and role before anything else happens.

    Raises:
        AuthError: `auth_error` when the key is missing, wrong, expired or revoked.
        ForbiddenError: `not_authorized` when the role may not use this route.
        RejectedError: `invalid_args` for a query parameter that the route does not have.
    """
    ledger: Ledger = request.app.state.ledger
    scheme, _, key = request.headers.get("authorization", "").partition(" ")
    key = key.strip()
    if scheme.lower() == SCHEME.lower() and request.route_handler.opt.get("machine"):
        return await _machine_call(ledger, request, key)
    if scheme.lower() != "bearer" or not key:
        raise AuthError("auth_error", "send your API key as `Authorization: Bearer glk_…`")

    def check() -> Principal:
        now = ledger.clock()
        with ledger.reading() as connection:
            principal = authenticate(connection, key, now)
        note_use(ledger, principal, now)
        return principal

    principal = await anyio.to_thread.run_sync(check)
    handler = request.route_handler
    endpoint = endpoint_of(handler)
    request.scope["state"][CALLED] = entry_of(request, principal, endpoint, ledger.clock())
    roles = handler.opt.get("roles", ())
    if principal.role not in roles:
        message = f"a key of role {principal.role} may not do this; it takes {' or '.join(roles)}"
        raise ForbiddenError("not_authorized", message)
    await require_permission(request, principal, endpoint)
    _check_query(request, _query_names(handler))
    return Call(ledger, principal, request, key)


async def _machine_call(ledger: Ledger, request: Request[Any, Any, State], text: str) -> Call:
    """The call of a machine that signed it, in the name of its host and about itself only."""
    credential = read_credential(text)
    if credential is None:
        message = f"send `Authorization: {SCHEME} <machine>:<key id>:<second>:<signature>`"
        raise AuthError("auth_error", message)
    if request.path_params.get("machine_id", credential.machine) != credential.machine:
        message = f"there is no machine {request.path_params['machine_id']}"
        raise NotFoundError("no_such_machine", message)
    if HEADER in request.headers:
        message = f"a machine's requests can be repeated as they are: send no {HEADER}"
        raise RejectedError("invalid_args", message, status=400)
    body = await request.body()
    query = request.scope.get("query_string", b"").decode("latin-1")
    target = request.scope["path"] + (f"?{query}" if query else "")
    proof = credential

    def check() -> int:
        now = ledger.clock()
        with ledger.reading() as connection:
            return authenticate_machine(connection, proof, request.method, target, now, body)

    host_id = await anyio.to_thread.run_sync(check)
    _check_query(request, _query_names(request.route_handler))
    principal = Principal(host_id, "host", proof.key_id, None)
    return Call(ledger, principal, request, "", proof.machine)


def _check_query(request: Request[Any, Any, State], known: frozenset[str]) -> None:
    for name in request.query_params:
        if name not in known:
            shown = ", ".join(sorted(known)) or "none"
            message = f"{name}: there is no such query parameter; this route has: {shown}"
            raise RejectedError("invalid_args", message, status=400)


@cache
def _query_names(handler: BaseRouteHandler) -> frozenset[str]:
    return frozenset(
        field.kwarg_definition.name or name
        for name, field in handler.parsed_fn_signature.parameters.items()
        if isinstance(field.kwarg_definition, QueryParameter)
    )


DEPENDENCIES: Final = {"call": Provide(provide_call)}
