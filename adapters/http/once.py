"""Commands that are carried out once: the Idempotency-Key and its first answer, kept for ever.

An answer that shows a secret is kept sealed under the API key of the caller, which the server does
not have: who reads the database learns nothing, and who repeats the request gets the same answer.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from collections.abc import Callable
from typing import Any, Final

import anyio.to_thread
import msgspec
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from litestar import Request, Response
from litestar.datastructures import State

from adapters.http.errors import PROBLEM_JSON, problem_of
from ledger.errors import IdempotencyError, RejectedError
from ledger.services.ledger import Ledger, Unit

HEADER: Final = "Idempotency-Key"
KEY_CHARACTERS_MAX: Final = 255
_KEY: Final = re.compile(rf"[\x20-\x7e]{{1,{KEY_CHARACTERS_MAX}}}")
_NONCE_BYTES: Final = 12
_FIRST_ERROR: Final = 400


async def carry_out(
    ledger: Ledger,
    request: Request[Any, Any, State],
    do: Callable[[Unit], msgspec.Struct],
    status: int,
    *,
    scope: str,
    seal_with: str | None = None,
) -> Response[Any]:
    """Carry out a command in one transaction, under the request's Idempotency-Key if it has one.

    Args:
        ledger: The open ledger.
        request: What the client sent.
        do: The command; returns the body of the answer.
        status: The HTTP status of success.
        scope: Whose key it is: the same text of somebody else is another key.
        seal_with: The caller's API key, when the answer shows a secret.

    Raises:
        RejectedError: `invalid_args` for a key that is none.
        IdempotencyError: `idempotency_conflict` when the key stands for another request.
        ConflictError: `idempotency_in_flight`.
    """
    key = request.headers.get(HEADER)
    if key is None:

        def run() -> bytes:
            with ledger.unit() as unit:
                return msgspec.json.encode(do(unit))

        return _json(status, await anyio.to_thread.run_sync(run))
    if not _KEY.fullmatch(key):
        message = f"an {HEADER} is 1 to {KEY_CHARACTERS_MAX} printable ASCII characters"
        raise RejectedError("invalid_args", message, status=400)
    digest = _digest(request, await request.body())
    seal = None if seal_with is None else _Seal(seal_with, f"{scope}/{key}")

    def command(unit: Unit) -> tuple[int, bytes]:
        body = msgspec.json.encode(do(unit))
        return status, body if seal is None else seal.close(body)

    def run_once() -> tuple[int, bytes, bool]:
        return ledger.once(scope, key, digest, command, problem_of)

    answered, body, replayed = await anyio.to_thread.run_sync(run_once)
    if seal is not None and answered < _FIRST_ERROR:
        body = seal.open(body)
    return _json(answered, body, replayed=replayed)


def _digest(request: Request[Any, Any, State], body: bytes) -> bytes:
    """A hash of all that the client asked for, and of nothing that the server added."""
    asked = (
        request.method.encode(),
        request.scope["path"].encode(),
        request.scope.get("query_string", b""),
        body,
    )
    return hashlib.sha256(b"\x00".join(asked)).digest()


class _Seal:
    """Closes and opens an answer with a key that is made from the caller's own."""

    def __init__(self, api_key: str, context: str) -> None:
        derived = hmac.new(api_key.encode(), b"gpuledger.idempotency.v1", hashlib.sha256).digest()
        self._cipher = AESGCM(derived)
        self._context = context.encode()

    def close(self, body: bytes) -> bytes:
        nonce = secrets.token_bytes(_NONCE_BYTES)
        return nonce + self._cipher.encrypt(nonce, body, self._context)

    def open(self, sealed: bytes) -> bytes:
        try:
            return self._cipher.decrypt(sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:], self._context)
        except InvalidTag:
            message = (
                "the first answer holds a secret, and only the API key that asked for it reads it"
            )
            raise IdempotencyError("idempotency_conflict", message) from None


def _json(status: int, body: bytes, *, replayed: bool = False) -> Response[Any]:
    media_type = "application/json" if status < _FIRST_ERROR else PROBLEM_JSON
    headers = {"Idempotency-Replayed": "true"} if replayed else None
    return Response(body, status_code=status, media_type=media_type, headers=headers)
