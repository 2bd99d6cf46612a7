"""How to reach Stripe: keys and secrets from the environment or from files, never shown."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from ledger.errors import RejectedError

KEY_VARIABLE: Final = "GPULEDGER_STRIPE_API_KEY"
SECRETS_VARIABLE: Final = "GPULEDGER_STRIPE_WEBHOOK_SECRETS"
RETURN_VARIABLE: Final = "GPULEDGER_PAYMENTS_RETURN_URL"
URL_VARIABLE: Final = "GPULEDGER_STRIPE_URL"
STRIPE_URL: Final = "https://api.stripe.com"


@dataclass(frozen=True)
class StripeSettings:
    """What the gateway needs; the key and the secrets are not in its `repr`."""

    api_key: str = field(repr=False)
    webhook_secrets: tuple[str, ...] = field(repr=False)
    return_url: str
    """Where a payer's browser goes when it leaves a page; `?status=…` is added."""
    url: str = STRIPE_URL

    @property
    def is_live(self) -> bool:
        """True when real money moves."""
        return "_live_" in self.api_key


def from_environment(environment: Mapping[str, str] | None = None) -> StripeSettings | None:
    """The settings, or none where no key is given: then nobody pays by card.

    A variable whose name ends in `_FILE` names a file that holds the value.

    Raises:
        RejectedError: `invalid_setting`, without the value.
    """
    given = os.environ if environment is None else environment
    key = _secret(given, KEY_VARIABLE)
    if key is None:
        return None
    if not key.startswith(("sk_", "rk_")):
        message = f"{KEY_VARIABLE} is no secret or restricted key of Stripe (sk_… or rk_…)"
        raise RejectedError("invalid_setting", message)
    secrets = (_secret(given, SECRETS_VARIABLE) or "").replace(",", " ").split()
    if not secrets or not all(one.startswith("whsec_") for one in secrets):
        message = (
            f"{SECRETS_VARIABLE} holds the signing secrets of the webhook endpoints (whsec_…),"
            " several separated by commas while one takes the place of another"
        )
        raise RejectedError("invalid_setting", message)
    back = given.get(RETURN_VARIABLE, "")
    if not back.startswith(("https://", "http://localhost", "http://127.0.0.1")):
        message = f"{RETURN_VARIABLE} is the https address that payers come back to"
        raise RejectedError("invalid_setting", message)
    return StripeSettings(key, tuple(secrets), back, given.get(URL_VARIABLE, STRIPE_URL))


def _secret(given: Mapping[str, str], name: str) -> str | None:
    path = given.get(f"{name}_FILE")
    if path is None:
        return given.get(name, "").strip() or None
    try:
        return Path(path).read_text(encoding="utf-8").strip() or None
    except OSError as error:
        message = f"{name}_FILE: {path} cannot be read: {error.strerror}"
        raise RejectedError("invalid_setting", message) from error
