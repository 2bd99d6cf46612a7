"""Messages to a mail server: connected once for a batch, one answer for each.

The Message-ID is made from the event and the account, so an attempt that is repeated is the same
message to whoever sees it twice. What servers say in words may name people, so only their codes are
kept.
"""

from __future__ import annotations

import smtplib
import ssl
from collections.abc import Sequence
from datetime import UTC, datetime
from email.message import EmailMessage
from email.utils import format_datetime
from typing import Final

from adapters.mail.settings import SmtpSettings
from ledger.services.mail import Message, Outcome

TIMEOUT_SECONDS: Final = 30.0
_PERMANENT: Final = 500


class SmtpClient:
    """Sends batches to one server."""

    def __init__(
        self,
        settings: SmtpSettings,
        *,
        timeout_seconds: float = TIMEOUT_SECONDS,
        context: ssl.SSLContext | None = None,
    ) -> None:
        """Connect when there is something to send; certificates are checked."""
        self._settings = settings
        self._timeout = timeout_seconds
        self._context = context

    def send(self, messages: Sequence[Message]) -> list[Outcome]:
        """Send each message once; a failure is an outcome, never an exception."""
        try:
            server = self._connected()
        except (OSError, smtplib.SMTPException) as error:
            reason = _why(error)
            return [Outcome(message, taken=False, reason=reason) for message in messages]
        outcomes = []
        try:
            for message in messages:
                outcomes.append(self._sent(server, message))
        finally:
            _quit(server)
        return outcomes

    def _connected(self) -> smtplib.SMTP:
        settings = self._settings
        context = self._context or ssl.create_default_context()
        if settings.security == "tls":
            server: smtplib.SMTP = smtplib.SMTP_SSL(
                settings.host, settings.port, timeout=self._timeout, context=context
            )
        else:
            server = smtplib.SMTP(settings.host, settings.port, timeout=self._timeout)
        try:
            if settings.security == "starttls":
                server.starttls(context=context)
            if settings.user is not None:
                server.login(settings.user, settings.password or "")
        except BaseException:
            server.close()
            raise
        return server

    def _sent(self, server: smtplib.SMTP, message: Message) -> Outcome:
        try:
            server.send_message(self._written(message), self._settings.sender, [message.address])
        except (OSError, smtplib.SMTPException, ValueError) as error:
            return Outcome(message, False, _why(error), final=_is_final(error))
        return Outcome(message, taken=True)

    def _written(self, message: Message) -> EmailMessage:
        written = EmailMessage()
        domain = self._settings.sender.rpartition("@")[2].rstrip(">")
        written["From"] = self._settings.sender
        written["To"] = message.address
        written["Subject"] = message.subject
        written["Date"] = format_datetime(datetime.fromtimestamp(message.issued_at, UTC))
        written["Message-ID"] = f"<{message.event}.{message.account_id}@{domain}>"
        written["Auto-Submitted"] = "auto-generated"
        written.set_content(message.text)
        for document in message.attachments:
            kind, _, subtype = document.media_type.partition("/")
            written.add_attachment(
                document.content, maintype=kind, subtype=subtype, filename=document.name
            )
        return written


def _quit(server: smtplib.SMTP) -> None:
    try:
        server.quit()
    except (OSError, smtplib.SMTPException):
        server.close()


def _code(error: Exception) -> int | None:
    """The server's code for a message that it did not take."""
    if isinstance(error, smtplib.SMTPRecipientsRefused):
        return min((code for code, _ in error.recipients.values()), default=None)
    if isinstance(error, smtplib.SMTPResponseException):
        return int(error.smtp_code)
    return None


def _is_final(error: Exception) -> bool:
    """True when this message will never be taken, by what the server said of it."""
    if isinstance(error, smtplib.SMTPRecipientsRefused | smtplib.SMTPDataError):
        code = _code(error)
        return code is not None and code >= _PERMANENT
    return isinstance(error, ValueError)


def _why(error: Exception) -> str:
    """A stable word for what went wrong."""
    code = _code(error)
    if isinstance(error, smtplib.SMTPAuthenticationError):
        return "login_refused"
    if code is not None:
        return f"smtp_{code}"
    if isinstance(error, ssl.SSLError | smtplib.SMTPNotSupportedError):
        return "tls_failed"
    if isinstance(error, TimeoutError):
        return "timeout"
    if isinstance(error, smtplib.SMTPServerDisconnected):
        return "closed"
    if isinstance(error, OSError):
        return "not_reached"
    return "not_sent"
