"""How mail leaves: a server and a user there, from the environment; without a host none does."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Final, Literal, NamedTuple, get_args

from ledger.errors import RejectedError

Security = Literal["starttls", "tls", "none"]
PREFIX: Final = "GPULEDGER_SMTP_"
_PORTS: Final[dict[Security, int]] = {"starttls": 587, "tls": 465, "none": 25}
_PORT_MAX: Final = 65_535


class SmtpSettings(NamedTuple):
    """A mail server. `sender` is the address that messages come from."""

    host: str
    port: int
    sender: str
    security: Security = "starttls"
    user: str | None = None
    password: str | None = None

    def __repr__(self) -> str:
        """Everything but the password."""
        return f"SmtpSettings({self.host}:{self.port}, {self.security}, from {self.sender})"


def configured(environment: Mapping[str, str] | None = None) -> SmtpSettings | None:
    """The mail server that the environment names; none when it names none.

    `GPULEDGER_SMTP_HOST`, `_PORT`, `_FROM`, `_SECURITY` (`starttls`, `tls`, `none`), `_USER`,
    `_PASSWORD`.

    Raises:
        RejectedError: `invalid_setting`.
    """
    values = os.environ if environment is None else environment
    host = values.get(f"{PREFIX}HOST", "").strip()
    if not host:
        return None
    security = values.get(f"{PREFIX}SECURITY", "starttls").strip()
    known: tuple[Security, ...] = get_args(Security)
    chosen = next((one for one in known if one == security), None)
    if chosen is None:
        raise _invalid("SECURITY", f"{security!r} is none of {', '.join(known)}")
    port = values.get(f"{PREFIX}PORT", str(_PORTS[chosen])).strip()
    if not port.isdecimal() or not 1 <= int(port) <= _PORT_MAX:
        raise _invalid("PORT", f"{port!r} is no port")
    sender = values.get(f"{PREFIX}FROM", "").strip()
    if "@" not in sender or not sender.isprintable() or " " in sender:
        raise _invalid("FROM", f"{sender!r} is no address that messages can come from")
    user = values.get(f"{PREFIX}USER") or None
    password = values.get(f"{PREFIX}PASSWORD") or None
    if user is not None and chosen == "none":
        raise _invalid("SECURITY", "a password is sent over TLS alone: use starttls or tls")
    return SmtpSettings(host, int(port), sender, chosen, user, password)


def _invalid(name: str, what: str) -> RejectedError:
    return RejectedError("invalid_setting", f"{PREFIX}{name}: {what}")
