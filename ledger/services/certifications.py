"""Papers of hosts, and the secure tier that follows from them (`marketplace.md` §11.3).

A paper is recorded by an admin who has seen it. The tier is judged level by level: whatever has
changed, a paper that begins or ends, a machine more, another rule, `tiers_due` finds it.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Final, NamedTuple

from ledger.domain.events import (
    CertificationRecorded,
    CertificationWithdrawn,
    Fact,
    SecureTierChanged,
)
from ledger.domain.ids import account_stream
from ledger.domain.verification import (
    MIN_SECURE_MACHINES,
    Certification,
    CertificationKind,
    is_secure,
)
from ledger.errors import NotFoundError, RejectedError
from ledger.projections.contracts import CONTRACTS
from ledger.services.accounts import require_account
from ledger.services.ledger import Unit
from ledger.services.notices import notice
from ledger.services.verification import check_reason
from ledger.store.database import Connection

_TEXT: Final = re.compile(r"[^\x00-\x1f\x7f]{1,128}")
_HASH: Final = re.compile(r"[0-9a-f]{64}")


class Paper(NamedTuple):
    """A certification as an admin records it; valid in `[valid_from, valid_to)`."""

    kind: CertificationKind
    number: str
    issuer: str
    valid_from: int
    valid_to: int | None
    evidence_hash: str


def record(unit: Unit, host_id: int, paper: Paper) -> int:
    """Record a paper of a host, judge its tier, and return the paper's number at this host.

    Raises:
        NotFoundError: `no_such_account`.
        RejectedError: `invalid_args`.
    """
    require_account(unit.connection, host_id)
    _check(paper)
    row = unit.connection.execute(
        "SELECT coalesce(max(certification_no), 0) + 1 FROM certifications WHERE host_id = %s",
        [host_id],
    ).fetchone()
    assert row is not None
    unit.append(
        account_stream(host_id),
        CertificationRecorded(
            host_id=host_id,
            certification_no=row[0],
            kind=paper.kind,
            number=paper.number,
            issuer=paper.issuer,
            valid_from=paper.valid_from,
            valid_to=paper.valid_to,
            evidence_hash=paper.evidence_hash,
            recorded_at=unit.now,
        ),
    )
    judge_tier(unit, host_id)
    return int(row[0])


def withdraw(unit: Unit, host_id: int, certification_no: int, reason: str) -> None:
    """Let a paper count no more, and judge the host's tier; again changes nothing.

    Raises:
        NotFoundError: `no_such_certification`.
        RejectedError: `invalid_args` without a reason.
    """
    check_reason(reason)
    row = unit.connection.execute(
        "SELECT withdrawn_at FROM certifications WHERE host_id = %s AND certification_no = %s",
        [host_id, certification_no],
    ).fetchone()
    if row is None:
        message = f"host {host_id} has no certification {certification_no}"
        raise NotFoundError("no_such_certification", message)
    if row[0] is not None:
        return
    unit.append(
        account_stream(host_id),
        CertificationWithdrawn(
            host_id=host_id,
            certification_no=certification_no,
            reason=reason,
            withdrawn_at=unit.now,
        ),
    )
    judge_tier(unit, host_id)


def judge_tier(unit: Unit, host_id: int) -> None:
    """Put a host's machines in the secure tier, or take them out, as its papers say now.

    A lapse is told to the host and to whoever has an instance on its machines; contracts go on.
    """
    machines: dict[int, bool] = dict(
        unit.connection.execute(
            "SELECT m.machine_id, s.secure FROM machines m JOIN machine_standing s"
            " USING (machine_id) WHERE m.host_id = %s AND m.enrolled_at IS NOT NULL"
            " ORDER BY m.machine_id",
            [host_id],
        ).fetchall()
    )
    tier = is_secure(
        papers(unit.connection, host_id),
        len(machines),
        unit.now,
        requires_iso=unit.policy.secure_requires_iso,
    )
    changed = [machine_id for machine_id, secure in machines.items() if secure != tier.holds]
    if not changed:
        return
    fact = SecureTierChanged(
        host_id=host_id, machine_ids=changed, secure=tier.holds, changed_at=unit.now
    )
    told = [] if tier.holds else _lapse(unit, host_id, changed)
    unit.append_all([(account_stream(host_id), fact), *told])


def papers(connection: Connection, host_id: int) -> list[Certification]:
    """What a host's papers say, one that was withdrawn up to then."""
    rows = connection.execute(
        "SELECT kind, valid_from, least(valid_to, withdrawn_at) FROM certifications"
        " WHERE host_id = %s ORDER BY certification_no",
        [host_id],
    )
    return [Certification(*row) for row in rows]


def tiers_due(connection: Connection, now: int, *, requires_iso: bool) -> list[int]:
    """Hosts of which a machine is not in the tier in which their papers put it."""
    return [row[0] for row in connection.execute(TIERS_DUE, {"now": now, "iso": requires_iso})]


def next_paper_due(connection: Connection, now: int) -> int | None:
    """The next second at which a paper begins or ends."""
    row = connection.execute(
        "SELECT least(min(valid_from) FILTER (WHERE valid_from > %s),"
        " min(valid_to) FILTER (WHERE valid_to > %s)) FROM certifications"
        " WHERE withdrawn_at IS NULL",
        [now, now],
    ).fetchone()
    return None if row is None else row[0]


TIERS_DUE: Final = f"""
WITH hosts AS (
    SELECT host_id,
           coalesce(bool_or(kind = 'iso27001' OR kind IN ('tier3', 'tier4') AND NOT %(iso)s),
                    false)
           AND count(DISTINCT kind) FILTER (WHERE kind IN
               ('business_registration', 'identity_check', 'agreement')) = 3 AS certified
    FROM certifications
    WHERE valid_from <= %(now)s AND (valid_to IS NULL OR valid_to > %(now)s)
        AND withdrawn_at IS NULL
    GROUP BY host_id
), concerned AS (
    SELECT host_id FROM hosts WHERE certified UNION
    SELECT m.host_id FROM machine_standing s JOIN machines m USING (machine_id) WHERE s.secure
)
SELECT c.host_id FROM concerned c LEFT JOIN hosts h USING (host_id)
JOIN machines m ON m.host_id = c.host_id AND m.enrolled_at IS NOT NULL
JOIN machine_standing s USING (machine_id)
GROUP BY c.host_id, h.certified
HAVING CASE WHEN coalesce(h.certified, false) AND count(*) >= {MIN_SECURE_MACHINES}
    THEN NOT bool_and(s.secure) ELSE bool_or(s.secure) END
ORDER BY c.host_id
"""  # noqa: S608 - a constant


def _lapse(unit: Unit, host_id: int, machine_ids: Collection[int]) -> list[tuple[str, Fact]]:
    told = [notice(unit, host_id, "secure_lapsed", f"account-{host_id}")]
    rows = unit.connection.execute(
        "SELECT account_id, CASE WHEN is_volume THEN 'volume-' ELSE 'instance-' END || instance_id"  # noqa: S608 - a constant
        f" FROM {CONTRACTS} c WHERE machine_id = ANY(%s) AND destroyed_at IS NULL"
        " ORDER BY instance_id",
        [list(machine_ids)],
    )
    told += [
        notice(unit, account_id, "secure_lapsed", about) for account_id, about in rows.fetchall()
    ]
    return told


def _check(paper: Paper) -> None:
    if not _TEXT.fullmatch(paper.number) or not _TEXT.fullmatch(paper.issuer):
        message = "number and issuer are 1 to 128 printable characters"
        raise RejectedError("invalid_args", message)
    if not _HASH.fullmatch(paper.evidence_hash):
        message = "the evidence is named by its SHA-256, 64 hexadecimal digits in lower case"
        raise RejectedError("invalid_args", message)
    if paper.valid_to is not None and paper.valid_to <= paper.valid_from:
        raise RejectedError("invalid_args", "a certification is valid for a second at least")
