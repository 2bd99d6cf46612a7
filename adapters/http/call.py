"""One request: who asks, what they may see, and how commands and questions are run for them."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import partial
from typing import Any, Final, TypeVar

import anyio.to_thread
import msgspec
from litestar import Request, Response
from litestar.datastructures import State
from litestar.di import NamedDependency, Provide

from adapters.http.errors import PROBLEM_JSON, problem_of
from ledger.domain.events import Role
from ledger.errors import AuthError, ForbiddenError, LedgerError, NotFoundError, RejectedError
from ledger.services.accounts import Principal, authenticate
from ledger.services.ledger import Ledger, Unit
from ledger.store.database import Connection

T = TypeVar("T")
_KEY_MAX: Final = 255
_OK: Final = 200
_SEES_ALL: Final = frozenset({"admin", "auditor"})

RENTER: Final[tuple[Role, ...]] = ("renter", "admin")
HOST: Final[tuple[Role, ...]] = ("host", "admin")
ADMIN: Final[tuple[Role, ...]] = ("admin",)
AUDITOR: Final[tuple[Role, ...]] = ("auditor", "admin")
ANYONE: Final[tuple[Role, ...]] = ("renter", "host", "auditor", "admin")
PAYER: Final[tuple[Role, ...]] = ("renter", "host", "admin")


def allowed(*roles: Role) -> dict[str, Any]:
    """The options of a route that these roles may use; the docs show them."""
    return {"roles": roles}


class Call:
    """A request by somebody whose key was checked."""

    def __init__(
        self, ledger: Ledger, principal: Principal, request: Request[Any, Any, State], body: bytes
    ) -> None:
        """Keep what commands and questions need."""
        self.ledger = ledger
        self.principal = principal
        self._request = request
        self._body = body

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

    async def question(self, ask: Callable[[Connection], T]) -> T:
        """Answer a question from the read models, in one view of them."""

        def run() -> T:
            with self.ledger.reading() as connection:
                return ask(connection)

        return await anyio.to_thread.run_sync(run)

    async def command(
        self, do: Callable[[Unit], msgspec.Struct | None], status: int = _OK
    ) -> Response[Any]:
        """Carry out a command in one transaction, under the Idempotency-Key if there is one.

        The first answer to a key is kept for ever, a refusal by a rule too.
        """
        key = self._request.headers.get("idempotency-key")
        if key is None:

            def run() -> bytes:
                with self.ledger.unit() as unit:
                    return msgspec.json.encode(do(unit))

            return _json(status, await anyio.to_thread.run_sync(run))
        if not 1 <= len(key) <= _KEY_MAX:
            message = f"an Idempotency-Key is 1 to {_KEY_MAX} characters"
            raise RejectedError("invalid_args", message, status=400)
        path = self._request.url.path
        digest = hashlib.sha256(
            b"\x00".join((self._request.method.encode(), path.encode(), self._body))
        ).digest()

        def command(unit: Unit) -> tuple[int, bytes]:
            return status, msgspec.json.encode(do(unit))

        answered, body, replayed = await anyio.to_thread.run_sync(
            partial(
                self.ledger.once,
                str(self.principal.account_id),
                key,
                digest,
                command,
                problem_of,
            )
        )
        return _json(answered, body, replayed=replayed)


def _json(status: int, body: bytes, *, replayed: bool = False) -> Response[Any]:
    media_type = "application/json" if status < 400 else PROBLEM_JSON  # noqa: PLR2004 - a status
    headers = {"Idempotency-Replayed": "true"} if replayed else None
    return Response(body, status_code=status, media_type=media_type, headers=headers)


Caller = NamedDependency[Call]
"""How a handler asks for the call."""


async def provide_call(request: Request[Any, Any, State]) -> Call:
    """Check the caller's key and role before anything else happens.

    Raises:
        AuthError: `auth_error` when the key is missing, wrong, expired or revoked.
        ForbiddenError: `not_authorized` when the role may not use this route.
    """
    ledger: Ledger = request.app.state.ledger
    scheme, _, key = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() != "bearer" or not key:
        raise AuthError("auth_error", "send your API key as `Authorization: Bearer glk_…`")

    def check() -> Principal:
        with ledger.reading() as connection:
            return authenticate(connection, key.strip(), ledger.clock())

    principal = await anyio.to_thread.run_sync(check)
    roles = request.route_handler.opt.get("roles", ())
    if principal.role not in roles:
        message = f"a key of role {principal.role} may not do this; it takes {' or '.join(roles)}"
        raise ForbiddenError("not_authorized", message)
    body = await request.body() if request.method != "GET" else b""
    return Call(ledger, principal, request, body)


def mine_or_missing(error: LedgerError, is_mine: bool) -> None:
    """Raise *error* unless the object belongs to the caller."""
    if not is_mine:
        raise error


DEPENDENCIES: Final = {"call": Provide(provide_call)}
