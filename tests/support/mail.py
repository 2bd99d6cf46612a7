"""A mail server on the loopback interface, and a sender that tests drive turn by turn."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable, Sequence
from email import message_from_bytes, policy
from email.message import EmailMessage
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

from aiosmtpd.controller import Controller
from aiosmtpd.smtp import SMTP, AuthResult, Envelope, LoginPassword

from adapters.mail.sender import Sender
from adapters.mail.settings import Security, SmtpSettings
from adapters.mail.smtp import SmtpClient
from ledger.services import mail
from ledger.services.ledger import Ledger
from ledger.services.mail import Attachments, no_attachments


class Got(NamedTuple):
    """A message as it arrived."""

    sender: str
    to: list[str]
    message: EmailMessage

    @property
    def text(self) -> str:
        """Its plain text."""
        part = self.message.get_body(("plain",))
        assert part is not None
        content: str = part.get_content()
        return content


class MailServer:
    """An SMTP server that keeps what arrives; `script` says what it answers to messages, in turn.

    An answer is a line such as `451 later`; when the script has ended everything is taken.
    """

    def __init__(
        self,
        *script: str | Callable[[], str],
        tls: Path | None = None,
        login: tuple[str, str] | None = None,
    ) -> None:
        """Listen on a free port; with *tls*, a file of key and certificate, offer STARTTLS."""
        self.script = list(script)
        self.got: list[Got] = []
        self.logins: list[str] = []
        self.security: Security = "none" if tls is None else "starttls"
        self.login = login
        context = None
        self.client_context: ssl.SSLContext | None = None
        if tls is not None:
            context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
            context.load_cert_chain(tls)
            self.client_context = ssl.create_default_context(cafile=str(tls))
        server = self

        class Server(Controller):
            def factory(self) -> SMTP:
                """The server's side of one connection."""
                return SMTP(
                    server,
                    hostname="localhost",
                    tls_context=context,
                    require_starttls=context is not None,
                    auth_required=server.login is not None,
                    authenticator=server._check,
                )

        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port: int = free.getsockname()[1]
        self._controller = Server(server, hostname="127.0.0.1", port=self.port)

    async def handle_DATA(self, _server: Any, _session: Any, envelope: Envelope) -> str:  # noqa: N802 - the server's name for it
        """Keep a message, or answer what the script says."""
        if self.script:
            word = self.script.pop(0)
            answer = word() if callable(word) else word
            if not answer.startswith("2"):
                return answer
        content = envelope.content
        assert isinstance(content, bytes)
        parsed = message_from_bytes(content, policy=policy.default)
        assert isinstance(parsed, EmailMessage)
        self.got.append(Got(str(envelope.mail_from), list(envelope.rcpt_tos), parsed))
        return "250 OK"

    def _check(
        self, _server: Any, _session: Any, _envelope: Any, _mechanism: Any, data: Any
    ) -> AuthResult:
        assert isinstance(data, LoginPassword)
        given = (data.login.decode(), data.password.decode())
        self.logins.append(given[0])
        return AuthResult(success=given == self.login)

    def __enter__(self) -> Self:
        self._controller.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._controller.stop(no_assert=True)

    def settings(self, **more: Any) -> SmtpSettings:
        """How to reach it."""
        user, password = self.login or (None, None)
        values: dict[str, Any] = {
            "host": "localhost" if self.security == "starttls" else "127.0.0.1",
            "port": self.port,
            "sender": "billing@gpu.example",
            "security": self.security,
            "user": user,
            "password": password,
        }
        return SmtpSettings(**{**values, **more})


def sender(
    ledger: Ledger,
    server: MailServer,
    attachments: Attachments = no_attachments,
    **settings: Any,
) -> Sender:
    """A sender to that server, for tests to drive."""
    client = SmtpClient(
        server.settings(**settings), timeout_seconds=5, context=server.client_context
    )
    return Sender(ledger, client, attachments)


def choose(
    ledger: Ledger,
    account: int,
    codes: Sequence[str] | None = None,
    address: str = "a@mail.example",
) -> None:
    """An account's choice of mail."""
    with ledger.unit() as unit:
        mail.set_settings(unit, account, address, codes)
