"""Usage reports that tests start from: small, complete and valid."""

from __future__ import annotations

from typing import Any, Final

import msgspec
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from ledger.domain.usage import (
    GENESIS_HASH,
    SIGNING_PREFIX,
    InstanceBlock,
    UsageReport,
    encode_report,
)

NEW_YEAR_2027: Final = 1_798_761_600
EPOCH: Final = "9f2c" * 8
KEY: Final = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))

BLOCK: Final = InstanceBlock(
    instance=1001,
    start=NEW_YEAR_2027 + 4,
    count=6,
    state=[("loading", 4), ("running", 2)],
    up=[0, 0, 0, 0, 1500, 66],
    down=[[0, 4], [900, 1], [66, 1]],
    util=bytes([255, 255, 255, 255, 0, 97]),
)
REPORT: Final = UsageReport(
    v=1,
    machine=4001,
    epoch=EPOCH,
    seq=1,
    prev=GENESIS_HASH,
    boot_id="b1",
    agent="0.1.0",
    start=NEW_YEAR_2027,
    count=10,
    instances=[BLOCK],
)


def fields_of(report: UsageReport) -> dict[str, Any]:
    """The report as the map that travels, for a test to spoil."""
    fields: dict[str, Any] = msgspec.msgpack.decode(encode_report(report))
    return fields


def body_of(fields: dict[str, Any]) -> bytes:
    """The bytes of a map that may be no report at all."""
    return msgspec.msgpack.encode(fields)


def sign(body: bytes) -> bytes:
    """The signature of a host over *body*, as `host-agent.md` §11.3 says."""
    return KEY.sign(b"ledger.usage-report.v1\x00" + body)


def verifies(signature: bytes, body: bytes) -> bool:
    """True when the server would take *body* for the host's."""
    try:
        KEY.public_key().verify(signature, SIGNING_PREFIX + body)
    except InvalidSignature:
        return False
    return True
