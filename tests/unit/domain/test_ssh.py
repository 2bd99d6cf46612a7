"""Public ssh keys: what is one, and what only looks like one."""

from __future__ import annotations

import base64

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

from ledger.domain.ssh import parse_public_key
from ledger.errors import RejectedError


def line_of(key: ed25519.Ed25519PrivateKey | ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey) -> str:
    """The line of a key's public half, as ssh-keygen writes it."""
    raw = key.public_key().public_bytes(
        serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH
    )
    return raw.decode()


ED25519 = line_of(ed25519.Ed25519PrivateKey.from_private_bytes(bytes(range(32))))
RSA = line_of(rsa.generate_private_key(public_exponent=65_537, key_size=2_048))
ECDSA = line_of(ec.generate_private_key(ec.SECP256R1()))


@pytest.mark.parametrize("line", [ED25519, RSA, ECDSA])
def test_real_keys_are_taken(line: str) -> None:
    """Keys of three types are read, with and without comment, and written back as they were."""
    assert parse_public_key(line).line == line
    named = parse_public_key(f"  {line} Ada's laptop  \n")
    assert (named.comment, named.line) == ("Ada's laptop", f"{line} Ada's laptop")
    assert named.fingerprint == parse_public_key(line).fingerprint
    assert named.fingerprint.startswith("SHA256:")


def test_the_fingerprint_is_the_usual_one() -> None:
    """The fingerprint is what `ssh-keygen -l` shows for the same line."""
    line = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f"
    shown = "SHA256:ZkAslGjFiUHdGf/WUL8rQvkib4PTvQatUV0OUQSncCA"
    assert parse_public_key(line).fingerprint == shown


def blob(*parts: bytes) -> str:
    """Length-prefixed parts in base64."""
    return base64.b64encode(b"".join(len(one).to_bytes(4, "big") + one for one in parts)).decode()


@pytest.mark.parametrize(
    "line",
    [
        "",
        "x",
        "ssh-ed25519",
        "ssh-ed25519 !!!!",
        "ssh-dss " + blob(b"ssh-dss", b"x"),
        "ssh-ed25519 " + blob(b"ssh-rsa", b"x" * 32),
        "ssh-ed25519 " + blob(b"ssh-ed25519", b"x" * 31),
        "ssh-ed25519 " + blob(b"ssh-ed25519", b"x" * 32, b"more"),
        "ssh-ed25519 " + blob(b"ssh-ed25519", b"x" * 32)[:-4],
        "ssh-rsa " + blob(b"ssh-rsa", b"\x01\x00\x01", b"\x7f" * 128),
        ED25519 + "\n" + ED25519,
        'command="rm" ' + ED25519,
        ED25519 + " " + "x" * 20_000,
        "-----BEGIN OPENSSH PRIVATE KEY-----\nx\n-----END OPENSSH PRIVATE KEY-----",
    ],
)
def test_what_is_no_public_key(line: str) -> None:
    """Another type, cut or longer bytes, a weak or a private key, options before it: refused."""
    with pytest.raises(RejectedError) as error:
        parse_public_key(line)
    assert error.value.code == "invalid_ssh_key"
    assert ("private" in error.value.message) == ("PRIVATE" in line)
