"""Requests that a machine signs with the key that it enrolled: who may ask in its name."""

from __future__ import annotations

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from ledger.domain.machine_call import SKEW_SECONDS, Credential, signed_bytes
from ledger.errors import AuthError
from ledger.store.database import Connection


def authenticate_machine(
    connection: Connection,
    credential: Credential,
    method: str,
    target: str,
    now: int,
    body: bytes = b"",
) -> int:
    """The account of the host whose machine signed this request.

    Args:
        connection: A view of the read models.
        credential: What the request brought.
        method: HTTP method in capitals.
        target: Path and query as they were sent.
        now: The present second.
        body: The request's body.

    Raises:
        AuthError: `auth_error`, the key is unknown or revoked, or it did not sign this;
            `clock_skew`, it was signed at another time.
    """
    row = connection.execute(
        "SELECT m.host_id, k.public_key FROM machine_keys k JOIN machines m USING (machine_id)"
        " WHERE k.machine_id = %s AND k.key_id = %s AND k.revoked_at IS NULL",
        [credential.machine, credential.key_id],
    ).fetchone()
    if row is None:
        raise AuthError("auth_error", "the machine has no such key, or it was revoked")
    signed = signed_bytes(credential.machine, credential.second, method, target, body)
    try:
        Ed25519PublicKey.from_public_bytes(bytes(row[1])).verify(credential.signature, signed)
    except InvalidSignature:
        raise AuthError("auth_error", "the machine's key did not sign this request") from None
    if abs(credential.second - now) > SKEW_SECONDS:
        message = f"signed at {credential.second}, and it is {now} here: set the machine's clock"
        raise AuthError("clock_skew", message, server_time=now)
    return int(row[0])
