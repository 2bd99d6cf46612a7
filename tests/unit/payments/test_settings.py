"""Keys by the environment or by a file, and never shown."""

from __future__ import annotations

from pathlib import Path

import pytest

from adapters.payments.settings import (
    KEY_VARIABLE,
    RETURN_VARIABLE,
    SECRETS_VARIABLE,
    from_environment,
)
from ledger.errors import RejectedError

GIVEN = {
    KEY_VARIABLE: "sk_test_verysecret",
    SECRETS_VARIABLE: "whsec_one, whsec_two",
    RETURN_VARIABLE: "https://market.example/account",
}


def test_without_a_key_nobody_pays_by_card() -> None:
    """No key is no error: there is no processor."""
    assert from_environment({}) is None
    assert from_environment({KEY_VARIABLE: "  "}) is None


def test_keys_are_read_and_never_shown() -> None:
    """The settings hold the key and both secrets, and their text holds none of them."""
    found = from_environment(GIVEN)
    assert found is not None
    assert (found.api_key, found.webhook_secrets) == (
        "sk_test_verysecret",
        ("whsec_one", "whsec_two"),
    )
    assert "secret" not in repr(found)
    assert "whsec" not in repr(found)
    assert not found.is_live


def test_a_file_takes_the_place_of_a_variable(tmp_path: Path) -> None:
    """`…_FILE` names the file that holds the value; the line's end is no part of it."""
    key = tmp_path / "key"
    key.write_text("rk_live_fromfile\n")
    given = {**GIVEN, f"{KEY_VARIABLE}_FILE": str(key)}
    found = from_environment(given)
    assert found is not None
    assert (found.api_key, found.is_live) == ("rk_live_fromfile", True)


@pytest.mark.parametrize(
    "wrong",
    [
        {KEY_VARIABLE: "pk_test_public"},
        {SECRETS_VARIABLE: ""},
        {SECRETS_VARIABLE: "whsec_one,sk_test_verysecret"},
        {RETURN_VARIABLE: ""},
        {RETURN_VARIABLE: "http://market.example"},
        {f"{KEY_VARIABLE}_FILE": "/nowhere/key"},
    ],
)
def test_a_wrong_setting_is_told_without_its_value(wrong: dict[str, str]) -> None:
    """A server does not start with half of what it needs, and the error shows no secret."""
    with pytest.raises(RejectedError) as refused:
        from_environment({**GIVEN, **wrong})
    assert refused.value.code == "invalid_setting"
    assert "verysecret" not in refused.value.message
