from __future__ import annotations

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from ledger.domain.usage import (
    SIGNING_PREFIX,
    body_hash,
    decode_header,
    decode_report,
    decode_stored,
    encode_report,
    key_id_of,
)
from tests.golden.make import REPORT, stored_report

STORED = stored_report()
BODY = bytes.fromhex(STORED["body"])
PUBLIC_KEY = bytes.fromhex(STORED["public_key"])


def test_a_stored_report_is_read_and_written_as_the_same_bytes() -> None:
    """The body that the log has held since this version exists is read today, byte for byte."""
    assert decode_report(BODY) == decode_stored(BODY) == REPORT
    assert encode_report(decode_stored(BODY)) == BODY
    assert (decode_header(BODY).machine, decode_header(BODY).seq) == (4001, 184)


def test_a_stored_signature_verifies_for_ever() -> None:
    """What a host signed once is proof today: over the same prefix and the stored bytes."""
    signature = bytes.fromhex(STORED["signature"])
    Ed25519PublicKey.from_public_bytes(PUBLIC_KEY).verify(signature, SIGNING_PREFIX + BODY)


def test_the_names_of_a_stored_report_and_its_key_never_change() -> None:
    """The chain hash of the body and the id of the key are what they were when it was stored."""
    assert (
        body_hash(BODY).hex() == "713421cab5a53319713d08f3febdb399ff1ece64f7d3e8cf212678b9ee973b1f"
    )
    assert key_id_of(PUBLIC_KEY) == "56475aa75463474c"
