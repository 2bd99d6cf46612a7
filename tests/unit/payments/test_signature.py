"""Who signed a message, and when: the only credential of the processor's messages."""

from __future__ import annotations

import pytest

from adapters.payments.signature import TOLERANCE_SECONDS, check
from ledger.errors import AuthError
from tests.support.stripe.messages import sign

NOW = 1_772_323_200
BODY = b'{"id": "evt_1"}'
SECRETS = ("whsec_new", "whsec_old")


@pytest.mark.parametrize("secret", SECRETS)
@pytest.mark.parametrize("seconds", [-TOLERANCE_SECONDS, -1, 0, 1, TOLERANCE_SECONDS])
def test_a_message_of_now_under_any_secret_in_force_is_taken(secret: str, seconds: int) -> None:
    """Up to five minutes either way, under the old secret as well as under the new one."""
    check(BODY, sign(BODY, NOW + seconds, secret), SECRETS, NOW)


@pytest.mark.parametrize(
    "seconds", [-TOLERANCE_SECONDS - 1, TOLERANCE_SECONDS + 1, 10**9, -(10**9)]
)
def test_a_message_of_another_time_is_refused(seconds: int) -> None:
    """Too old is refused, and from the future as well, which Stripe's own library takes."""
    with pytest.raises(AuthError):
        check(BODY, sign(BODY, NOW + seconds, SECRETS[0]), SECRETS, NOW)


@pytest.mark.parametrize(
    "header",
    [
        "",
        "t=,v1=",
        f"t={NOW}",
        "v1=" + "0" * 64,
        f"t={NOW},v1=" + "0" * 64,
        f"t={NOW},v0=" + "0" * 64,
        sign(BODY, NOW, "whsec_other"),
        sign(b"{}", NOW, SECRETS[0]),
        sign(BODY, NOW, SECRETS[0]).replace(f"t={NOW}", f"t={NOW + 1}"),
        f"t={NOW}," + sign(BODY, NOW, SECRETS[0]),
        "t=-5,v1=00",
        "t=\u0661,v1=\u00e9",
        "x" * 100_000,
    ],
)
def test_what_nobody_signed_is_refused(header: str) -> None:
    """No, a wrong, a moved or a doubled signature, or no header at all: `auth_error`."""
    with pytest.raises(AuthError) as refused:
        check(BODY, header, SECRETS, NOW)
    assert refused.value.code == "auth_error"
    assert "whsec" not in str(refused.value)


def test_one_good_signature_among_several_is_enough() -> None:
    """While a secret is being replaced the processor signs with both."""
    good = sign(BODY, NOW, SECRETS[1])
    check(BODY, f"{good},v1={'0' * 64}", SECRETS[1:], NOW)


def test_no_secret_takes_no_message() -> None:
    """Without secrets nothing is taken, whatever signs it."""
    with pytest.raises(AuthError):
        check(BODY, sign(BODY, NOW, ""), (), NOW)
