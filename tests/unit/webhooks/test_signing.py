"""The bytes of an event and their signature, as receivers have relied on them ever since."""

from __future__ import annotations

import hashlib
import hmac

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.webhooks.verify import TOLERANCE_SECONDS, InvalidDeliveryError, verify
from ledger.domain.webhooks import (
    SIGNATURE_HEADER,
    Event,
    body_of,
    event_id,
    event_position,
    signature,
    signature_header,
)

T = 1_772_359_200
SECRET = "whsec_golden"
EVENT = Event(
    id="evt_42",
    type="outbid",
    account_id=7,
    about="instance-9",
    at="2026-03-01T10:00:00Z",
    data={"version": 5, "instance_id": 9, "label": "train ☃", "status": "scheduling"},
)
BODY = (
    b'{"id":"evt_42","type":"outbid","account_id":7,"about":"instance-9",'
    b'"at":"2026-03-01T10:00:00Z","attempt":1,"data":{"instance_id":9,'
    b'"label":"train \xe2\x98\x83","status":"scheduling","version":5}}'
)
GOLDEN = "9f8b183660cee2c44f5fb9936c5efe16e926da3c925caf2aff53e10982a2f772"
"""By `openssl dgst -sha256 -hmac whsec_golden` over `1772359200.` and the body."""
GOLDEN_BEFORE = "e5ca87bef88276c5c8dccccbfc387b42eb88d98c6dab822698483c92979011b4"
"""The same with the key `whsec_before`."""
GOLDEN_EMPTY = "6b4a4b8b3c40f1e8f53a3d36682e5f99f7ad2ac1df1c93dfe336f329167641e7"
"""`printf 0. | openssl dgst -sha256 -hmac k`."""


def headers(*secrets: str, at: int = T, body: bytes = BODY) -> dict[str, str]:
    """What a delivery carries."""
    return {SIGNATURE_HEADER: signature_header(secrets or [SECRET], at, body)}


def test_an_event_has_these_bytes() -> None:
    """Fields stand in one order and the keys of the data sorted, whatever order they came in."""
    assert body_of(EVENT, 1) == BODY
    assert body_of(EVENT, 12) == BODY.replace(b'"attempt":1', b'"attempt":12')


def test_a_signature_has_these_digits() -> None:
    """The signature is what openssl computes, so that a receiver in any language can check it."""
    assert signature(SECRET, T, BODY) == GOLDEN
    assert signature("k", 0, b"") == GOLDEN_EMPTY
    assert signature_header([SECRET], T, BODY) == f"t={T},v1={GOLDEN}"


def test_two_secrets_sign_side_by_side() -> None:
    """During a rotation the header carries both signatures, the new one first."""
    both = signature_header([SECRET, "whsec_before"], T, BODY)
    assert both == f"t={T},v1={GOLDEN},v1={GOLDEN_BEFORE}"
    given = {"x-gpuledger-signature": both}
    for secret in (SECRET, "whsec_before"):
        assert verify(secret, given, BODY, T)["id"] == "evt_42"
    with pytest.raises(InvalidDeliveryError, match="no signature fits"):
        verify("whsec_older", given, BODY, T)


@given(
    secret=st.text(st.characters(exclude_categories=["Cs"]), min_size=1),
    at=st.integers(0, 2**40),
    body=st.binary(),
)
def test_a_signature_is_hmac_over_timestamp_and_body(secret: str, at: int, body: bytes) -> None:
    """For any secret, instant and bytes: HMAC-SHA256 of the decimal timestamp, a dot, the body."""
    plain = hmac.new(secret.encode(), b"%d." % at + body, hashlib.sha256).hexdigest()
    assert signature(secret, at, body) == plain


@pytest.mark.parametrize("off", [0, 1, -1, TOLERANCE_SECONDS, -TOLERANCE_SECONDS])
def test_five_minutes_either_way_are_taken(off: int) -> None:
    """A delivery is believed up to five minutes after its timestamp, or before it."""
    assert verify(SECRET, headers(), BODY, T + off)["type"] == "outbid"


@pytest.mark.parametrize("off", [TOLERANCE_SECONDS + 1, -TOLERANCE_SECONDS - 1, 10**9])
def test_more_than_five_minutes_either_way_are_refused(off: int) -> None:
    """A recorded delivery cannot be played again later, nor one signed ahead of its time."""
    with pytest.raises(InvalidDeliveryError, match="five minutes"):
        verify(SECRET, headers(), BODY, T + off)


def test_a_timestamp_cannot_be_changed() -> None:
    """The timestamp is signed with the body: an old delivery under a new one does not verify."""
    fresh = {SIGNATURE_HEADER: f"t={T + 900},v1={GOLDEN}"}
    with pytest.raises(InvalidDeliveryError, match="no signature fits"):
        verify(SECRET, fresh, BODY, T + 900)


@given(st.integers(0, len(BODY) - 1), st.integers(1, 255))
def test_a_changed_byte_is_noticed(index: int, flip: int) -> None:
    """Any other byte anywhere in the body makes the signature wrong."""
    spoiled = BODY[:index] + bytes([BODY[index] ^ flip]) + BODY[index + 1 :]
    with pytest.raises(InvalidDeliveryError, match="no signature fits"):
        verify(SECRET, headers(), spoiled, T)


@pytest.mark.parametrize(
    "header",
    [
        None,
        "",
        "t=",
        f"v1={GOLDEN}",
        f"t={T}",
        f"t={T},v0={GOLDEN}",
        f"t=x,v1={GOLDEN}",
        f"t=-{T},v1={GOLDEN}",
        f"t=²,v1={GOLDEN}",
        f"t={T},t={T},v1={GOLDEN}",
        GOLDEN,
    ],
)
def test_a_header_that_is_none_is_refused(header: str | None) -> None:
    """A missing or malformed header is refused as such, never taken for an unsigned delivery."""
    given = {} if header is None else {SIGNATURE_HEADER: header}
    with pytest.raises(InvalidDeliveryError, match="there is no X-Gpuledger-Signature"):
        verify(SECRET, given, BODY, T)


def test_a_later_version_beside_ours_is_ignored() -> None:
    """A receiver goes on working when a second kind of signature is added."""
    given = {SIGNATURE_HEADER: f"t={T}, v2=abc, v1={GOLDEN}"}
    assert verify(SECRET, given, BODY, T)["attempt"] == 1


def test_an_event_id_is_a_position_and_nothing_else_is() -> None:
    """An id names one place in the log; what only looks like one names none."""
    assert event_id(42) == "evt_42"
    assert event_position("evt_42") == 42
    for text in (
        "evt_0",
        "evt_042",
        "evt_",
        "evt_-1",
        "42",
        "EVT_42",
        "evt_42 ",
        "evt_" + "9" * 19,
    ):
        assert event_position(text) is None, text
