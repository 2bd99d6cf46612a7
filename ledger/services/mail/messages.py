"""What a message says: what happened, what it costs, what to do; from the plain texts of `texts`.

What it says of an object is the object as of the notice, folded from the log; what it says of
credit is of the second of the attempt, and it says so.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from string import Template
from typing import Any, Final, NamedTuple

from ledger.domain.ids import rfc3339
from ledger.domain.money import format_dollars
from ledger.domain.webhooks import Event, event_id
from ledger.errors import NotFoundError
from ledger.services.mail.texts import DEFAULT, FOOTER, TEXTS
from ledger.services.questions.balances import balance
from ledger.services.webhooks.events import event_at
from ledger.store.database import Connection
from ledger.store.vault import Vault

_OBJECT: Final = re.compile(r"([a-z]+)-(.+)")


class Attachment(NamedTuple):
    """A document that goes with a message."""

    name: str
    media_type: str
    content: bytes


Attachments = Callable[[Connection, Event], list[Attachment]]
"""The documents that go with the message of a notice."""


def no_attachments(connection: Connection, event: Event) -> list[Attachment]:
    """Nothing goes with any message."""
    del connection, event
    return []


class Message(NamedTuple):
    """One attempt, ready to be sent; `event` names the notice for receivers and repeats."""

    account_id: int
    position: int
    attempt: int
    tries: int
    address: str
    event: str
    subject: str
    text: str
    issued_at: int
    attachments: list[Attachment]


def compose(
    connection: Connection,
    vault: Vault,
    account_id: int,
    position: int,
    attempt: int,
    tries: int,
    now: int,
    attachments: Attachments,
) -> Message | None:
    """The message of the notice at *position*; none when its address is gone.

    Raises:
        UnavailableError: `vault_key_missing`.
    """
    row = connection.execute(
        "SELECT m.address, n.issued_at FROM mail_settings m"
        " JOIN notices n ON n.account_id = m.account_id AND n.position = %s"
        " WHERE m.account_id = %s",
        [position, account_id],
    ).fetchone()
    if row is None:
        return None
    subject, _, name = row[0].partition("/")
    try:
        address = vault.get(connection, subject, name).decode()
    except NotFoundError:
        return None
    event = event_at(connection, position)
    title, text = write(event, _credit(connection, account_id, now))
    return Message(
        account_id=account_id,
        position=position,
        attempt=attempt,
        tries=tries,
        address=address,
        event=event_id(position),
        subject=title,
        text=text,
        issued_at=row[1],
        attachments=attachments(connection, event),
    )


def write(event: Event, credit: dict[str, str]) -> tuple[str, str]:
    """The subject and the text of an event's message."""
    text = TEXTS.get(event.type, DEFAULT)
    words = {
        **credit,
        "code": event.type,
        "at": event.at,
        "event": event.id,
        "account": str(event.account_id),
        "object": _named(event.about),
        **{name: _shown(value) for name, value in event.data.items()},
        "label": _label(event.data),
    }
    parts = [text.happened, text.costs, text.do, FOOTER]
    written = "\n\n".join(Template(part).safe_substitute(words) for part in parts) + "\n"
    return Template(text.subject).safe_substitute(words), written


def _named(about: str) -> str:
    found = _OBJECT.fullmatch(about)
    return about if found is None else f"{found[1]} {found[2]}"


def _label(data: dict[str, Any]) -> str:
    label = data.get("label") or data.get("name")
    return f' ("{label}")' if label else ""


def _shown(value: Any) -> str:
    return "-" if value is None else str(value)


def _credit(connection: Connection, account_id: int, now: int) -> dict[str, str]:
    found = balance(connection, account_id, now)
    runway = found.runway_seconds
    return {
        "available": format_dollars(found.available),
        "burn": format_dollars(found.burn_per_hour),
        "runway": "nothing burns" if runway is None else f"enough until {rfc3339(now + runway)}",
        "now": rfc3339(now),
    }
