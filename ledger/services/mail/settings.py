"""Where an account gets its notices by mail, and which of them; the address lies in the vault."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, NamedTuple, get_args

from ledger.domain.events import MailSettingsSet, MailStopped, NoticeCode
from ledger.domain.ids import account_stream
from ledger.errors import NotFoundError, RejectedError
from ledger.services.ledger import Unit
from ledger.services.mail.queue import begin_queue, enqueue
from ledger.services.subjects import require_subject
from ledger.store.database import Connection
from ledger.store.vault import Vault

ADDRESS: Final = "mail-address"
"""The address's name in the vault, under its account's subject."""
_LONGEST: Final = 254
_VALID: Final = re.compile(
    r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+(\.[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+)*"
    r"@([A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?\.)*[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
)
_CODES: Final = frozenset(get_args(NoticeCode))


class MailSettings(NamedTuple):
    """An account's choice; `address` is none for who may not see it, `codes` none for all."""

    account_id: int
    address: str | None
    codes: list[str] | None
    set_at: int


def set_settings(
    unit: Unit, account_id: int, address: str, codes: Sequence[str] | None = None
) -> None:
    """Send an account's notices, those of *codes* or all, to *address* from here on.

    An empty list of codes is to unsubscribe and to keep the address.

    Raises:
        NotFoundError: `no_such_account`, or `erased`.
        RejectedError: `invalid_address`; `invalid_args` for a code that there is not.
    """
    if len(address) > _LONGEST or not _VALID.fullmatch(address):
        message = f"{address[:_LONGEST]!r} is no mail address such as alice@example.com"
        raise RejectedError("invalid_address", message)
    wanted = _checked(codes)
    subject = require_subject(unit.connection, account_id)
    address_hash = unit.vault.keyed_hash(address)
    known = unit.connection.execute(
        "SELECT address_hash, codes FROM mail_settings WHERE account_id = %s", [account_id]
    ).fetchone()
    if known == (address_hash, wanted):
        return
    if known is not None:
        enqueue(unit.connection, unit.now, everything=True)  # By the choice that stood so far.
    unit.vault.put(unit.connection, subject, ADDRESS, address.encode())
    (position,) = unit.append(
        account_stream(account_id),
        MailSettingsSet(
            account_id=account_id,
            address=f"{subject}/{ADDRESS}",
            address_hash=address_hash,
            codes=wanted,
            set_at=unit.now,
        ),
    )
    begin_queue(unit.connection, position)


def stop(unit: Unit, account_id: int) -> None:
    """Send nothing any more, what waits included, and forget the address; again changes nothing."""
    row = unit.connection.execute(
        "SELECT address FROM mail_settings WHERE account_id = %s", [account_id]
    ).fetchone()
    if row is None:
        return
    unit.vault.remove(unit.connection, row[0].partition("/")[0], [ADDRESS])
    unit.connection.execute(
        "DELETE FROM mail_messages WHERE account_id = %s AND state = 'pending'", [account_id]
    )
    unit.append(account_stream(account_id), MailStopped(account_id=account_id, stopped_at=unit.now))


def read_settings(
    connection: Connection, vault: Vault | None, account_id: int
) -> MailSettings | None:
    """An account's choice; none when it gets no mail. Without a *vault* no address is read."""
    row = connection.execute(
        "SELECT address, codes, set_at FROM mail_settings WHERE account_id = %s", [account_id]
    ).fetchone()
    if row is None:
        return None
    address = None
    if vault is not None:
        subject, _, name = row[0].partition("/")
        try:
            address = vault.get(connection, subject, name).decode()
        except NotFoundError:
            return None  # Erased with the account's personal data.
    return MailSettings(account_id, address, row[1], row[2])


def _checked(codes: Sequence[str] | None) -> list[NoticeCode] | None:
    if codes is None:
        return None
    unknown = sorted(set(codes) - _CODES)
    if unknown:
        shown = ", ".join(sorted(_CODES))
        raise RejectedError(
            "invalid_args", f"codes: {unknown[0]!r} is no notice; there are {shown}"
        )
    return [code for code in get_args(NoticeCode) if code in codes]
