"""Mail: every notice also as a message to the address that an account named.

`settings` is what accounts choose (to choose nothing is to unsubscribe). A message's way: `queue`
holds it once per notice and hands it out for an attempt, `messages` writes it from `texts`, and
`outcomes` says whether it was taken, is tried again or was given up. Sending is `adapters.mail`.
"""

from __future__ import annotations

from ledger.services.mail.messages import Attachment, Attachments, Message, no_attachments
from ledger.services.mail.outcomes import Outcome, record
from ledger.services.mail.queue import claim, enqueue, release, requeue, tidy
from ledger.services.mail.settings import MailSettings, read_settings, set_settings, stop

__all__ = [
    "Attachment",
    "Attachments",
    "MailSettings",
    "Message",
    "Outcome",
    "claim",
    "enqueue",
    "no_attachments",
    "read_settings",
    "record",
    "release",
    "requeue",
    "set_settings",
    "stop",
    "tidy",
]
