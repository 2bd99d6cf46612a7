"""What two people must agree on: one says so beforehand, the other then does it.

An approval names its subject in words (`void USE-00000001`, `correct correction-3`,
`file account-7`, `adjust account-7.250.5`), holds for a day, for one command, and never for the one
who gave it.
"""

from __future__ import annotations

import re
from typing import Final

from ledger.domain.events import ApprovalGiven
from ledger.domain.money import SECONDS_PER_DAY
from ledger.errors import RejectedError
from ledger.services.ledger import Unit

VALID_SECONDS: Final = SECONDS_PER_DAY
_SUBJECT: Final = re.compile(r"(void|correct|file|adjust|write-off) [A-Za-z0-9._-]{1,64}")


def approve(unit: Unit, subject: str, actor: str) -> None:
    """Agree to what *subject* names; again within the day changes nothing.

    Raises:
        RejectedError: `invalid_args` for a subject that no command asks for.
    """
    if not _SUBJECT.fullmatch(subject):
        message = (
            "an approval is for `void <invoice>`, `correct <charge>`, `file account-<id>`,"
            " `adjust account-<id>.<dollars>` or `write-off account-<id>`"
        )
        raise RejectedError("invalid_args", message)
    row = unit.connection.execute(
        "SELECT 1 FROM approvals WHERE subject = %s AND actor = %s AND given_at > %s",
        [subject, actor, unit.now - VALID_SECONDS],
    ).fetchone()
    if row is None:
        unit.append(
            "approvals",
            ApprovalGiven(
                subject=subject,
                cause=None,
                policy_version=unit.policy.version,
                actor=actor,
                effective_at=unit.now,
                given_at=unit.now,
            ),
        )


def approval(unit: Unit, subject: str, actor: str, used_until: int) -> str | None:
    """Who else agreed to *subject* today, after position *used_until*; none if nobody did."""
    row = unit.connection.execute(
        "SELECT actor FROM approvals WHERE subject = %s AND actor <> %s AND given_at > %s"
        " AND position > %s ORDER BY position DESC LIMIT 1",
        [subject, actor, unit.now - VALID_SECONDS, used_until],
    ).fetchone()
    return None if row is None else str(row[0])
