"""The event that a fact of the log is: the same for every receiver, attempt and replay.

What it says of an object is the object's state as of that fact, folded from the log, so it can be
made again at any time. `version` is the number of facts about the object so far: of two events
about one object, the one with the greater version is the later, whatever order they came in.
"""

from __future__ import annotations

import re
from typing import Any, Final

from ledger.domain import volume as volumes
from ledger.domain.events import (
    ChargebackOpened,
    CreditNoteIssued,
    InstanceFact,
    InvoiceIssued,
    NoticeIssued,
    PaymentFailed,
    PayoutFailed,
    PayoutPaid,
    SelfBillingIssued,
    TaxInvoiceCredited,
    TaxInvoiceIssued,
    VolumeLifeFact,
    WebhookTested,
)
from ledger.domain.ids import instance_stream, machine_stream, rfc3339, volume_stream
from ledger.domain.instance import fold
from ledger.domain.money import BYTES_PER_GB, format_dollars
from ledger.domain.webhooks import TEST_EVENT, Event, event_id
from ledger.errors import CorruptHistoryError
from ledger.store.codec import decode_fact
from ledger.store.database import Connection
from ledger.store.log import read_stream

_ABOUT: Final = re.compile(r"(instance|machine|volume)-([0-9]{1,18})")


def event_at(connection: Connection, position: int) -> Event:
    """The event of the notice, or of the test, at *position*.

    Raises:
        CorruptHistoryError: `corrupt_history`: there lies no such fact.
    """
    row = connection.execute(
        "SELECT topic, state FROM events WHERE position = %s", [position]
    ).fetchone()
    fact = None if row is None else decode_fact(row[0], row[1])
    match fact:
        case NoticeIssued():
            return Event(
                id=event_id(position),
                type=fact.code,
                account_id=fact.account_id,
                about=fact.about,
                at=rfc3339(fact.issued_at),
                data=_state_of(connection, fact.about, position),
            )
        case WebhookTested():
            return Event(
                id=event_id(position),
                type=TEST_EVENT,
                account_id=fact.account_id,
                about=f"webhook-{fact.webhook_id}",
                at=rfc3339(fact.tested_at),
                data={"webhook_id": fact.webhook_id},
            )
        case (
            TaxInvoiceIssued()
            | InvoiceIssued()
            | TaxInvoiceCredited()
            | CreditNoteIssued()
            | SelfBillingIssued()
        ):
            return _document(fact, position)
        case PaymentFailed() | ChargebackOpened() | PayoutPaid() | PayoutFailed():
            return _money(connection, fact, position)
        case _:
            message = f"the fact at position {position} is no event for a webhook"
            raise CorruptHistoryError("corrupt_history", message)


_Document = (
    TaxInvoiceIssued | InvoiceIssued | TaxInvoiceCredited | CreditNoteIssued | SelfBillingIssued
)


def _document(fact: _Document, position: int) -> Event:
    """A document is news when it is issued; what it says never changes."""
    data: dict[str, Any] = {"number": fact.number}
    match fact:
        case TaxInvoiceIssued():
            code = "receipt"
            total = fact.net + fact.tax
            data |= {"net": format_dollars(fact.net), "tax": format_dollars(fact.tax)}
        case InvoiceIssued():
            code, total = "invoice", fact.total
            data |= {"due": format_dollars(fact.total - fact.paid)}
        case TaxInvoiceCredited():
            code, total = "credit_note", fact.net + fact.tax
            data |= {"document": fact.document, "reason": fact.reason}
        case CreditNoteIssued():
            code, total = "credit_note", fact.total
            data |= {"document": fact.document, "reason": fact.reason}
        case SelfBillingIssued():
            code, total = "self_billing", fact.total
    return Event(
        id=event_id(position),
        type=code,
        account_id=fact.account_id,
        about=fact.number,
        at=rfc3339(fact.issued_at),
        data={**data, "total": format_dollars(total), "version": 1},
    )


def _money(
    connection: Connection,
    fact: PaymentFailed | ChargebackOpened | PayoutPaid | PayoutFailed,
    position: int,
) -> Event:
    """What became of money on its way in or out."""
    match fact:
        case PaymentFailed():
            found = ("payment_failed", fact.account_id, fact.payment_id, fact.failed_at)
            data: dict[str, Any] = {"payment_id": fact.payment_id, "reason": fact.reason}
        case ChargebackOpened():
            found = ("chargeback", fact.account_id, fact.payment_id, fact.opened_at)
            claimed = format_dollars(fact.claimed)
            data = {"payment_id": fact.payment_id, "reason": fact.reason, "amount": claimed}
        case PayoutPaid():
            row = connection.execute(
                "SELECT amount FROM payouts WHERE payout_id = %s", [fact.payout_id]
            ).fetchone()
            assert row is not None
            found = ("payout_paid", fact.host_id, f"payout-{fact.payout_id}", fact.paid_at)
            data = {"payout_id": fact.payout_id, "amount": format_dollars(int(row[0]))}
        case PayoutFailed():
            found = ("payout_failed", fact.host_id, f"payout-{fact.payout_id}", fact.failed_at)
            amount = format_dollars(fact.amount)
            data = {"payout_id": fact.payout_id, "reason": fact.reason, "amount": amount}
    code, account_id, about, at = found
    row = connection.execute(
        "SELECT count(*) FROM notices WHERE about = %s AND account_id = %s AND position <= %s",
        [about, account_id, position],
    ).fetchone()
    assert row is not None
    data["version"] = row[0]
    return Event(
        id=event_id(position),
        type=code,
        account_id=account_id,
        about=about,
        at=rfc3339(at),
        data=data,
    )


def _state_of(connection: Connection, about: str, position: int) -> dict[str, Any]:
    """What *about* names, as it was at *position*; nothing where it names no object."""
    found = _ABOUT.fullmatch(about)
    if found is None:
        return {}
    number = int(found[2])
    if found[1] == "instance":
        return _instance(connection, number, position)
    if found[1] == "volume":
        return _volume(connection, number, position)
    row = connection.execute(
        "SELECT max(version) FROM events WHERE stream_id = %s AND position < %s",
        [machine_stream(number), position],
    ).fetchone()
    assert row is not None
    return {"machine_id": number, "version": row[0] or 0}


def _instance(connection: Connection, instance_id: int, position: int) -> dict[str, Any]:
    history: list[InstanceFact] = []
    for stored in read_stream(connection, instance_stream(instance_id)):
        if stored.position > position:
            break
        fact = decode_fact(stored.topic, stored.state)
        history.append(fact)  # type: ignore[arg-type]  # an instance's stream holds its facts
    if not history:
        return {"instance_id": instance_id, "version": 0}
    instance = fold(history)
    return {
        "instance_id": instance_id,
        "machine_id": instance.machine_id,
        "label": instance.label,
        "gpus": instance.gpus,
        "kind": instance.terms.kind,
        "status": instance.status,
        "reason": instance.reason or None,
        "until": None if instance.until is None else rfc3339(instance.until),
        "version": len(history),
    }


def _volume(connection: Connection, volume_id: int, position: int) -> dict[str, Any]:
    history: list[VolumeLifeFact] = []
    for stored in read_stream(connection, volume_stream(volume_id)):
        if stored.position > position:
            break
        fact = decode_fact(stored.topic, stored.state)
        history.append(fact)  # type: ignore[arg-type]  # a volume's stream holds its facts
    if not history:
        return {"volume_id": volume_id, "version": 0}
    volume = volumes.fold(history)
    return {
        "volume_id": volume_id,
        "machine_id": volume.machine_id,
        "name": volume.name,
        "disk_gb": volume.disk_bytes // BYTES_PER_GB,
        "status": volume.status,
        "until": None if volume.until is None else rfc3339(volume.until),
        "version": len(history),
    }
