"""The document that goes with the message of its issue."""

from __future__ import annotations

from typing import Final

from adapters.documents.forms import FORMS
from ledger.domain.webhooks import Event
from ledger.services.mail import Attachment, Attachments
from ledger.services.questions.documents import document
from ledger.store.database import Connection
from ledger.store.vault import Vault

_ISSUED: Final = frozenset({"receipt", "invoice", "credit_note", "self_billing"})


def attachments_from(vault: Vault) -> Attachments:
    """What finds the PDF of a document that was just issued; nothing goes with other news."""

    def attach(connection: Connection, event: Event) -> list[Attachment]:
        if event.type not in _ISSUED:
            return []
        pdf = FORMS["pdf"]
        content = pdf.make(document(connection, vault, event.about))
        return [Attachment(f"{event.about}.pdf", pdf.media_type, content)]

    return attach
