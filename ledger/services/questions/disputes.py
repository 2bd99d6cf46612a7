"""Disputes with their claims, and the minutes in which witnesses contradict each other."""

from __future__ import annotations

from typing import Any

import msgspec

from ledger.domain.events import (
    DisputeAnswered,
    DisputeOpened,
    DisputeQuestioned,
    second_of,
)
from ledger.errors import NotFoundError
from ledger.services.disputes import dispute_stream
from ledger.store.codec import decode_fact
from ledger.store.database import Connection
from ledger.store.log import read_stream
from ledger.store.vault import Vault


class ClaimView(msgspec.Struct, frozen=True, kw_only=True):
    """The disputed part of one charge."""

    charge: str
    meter: str
    quantity: int
    amount: int
    fee: int
    charged: int


class DisputeView(msgspec.Struct, frozen=True, kw_only=True):
    """A dispute. `status` is open, answered, questioned, or how it ended; `held` is set aside."""

    dispute_id: int
    account_id: int
    host_id: int
    instance_id: int
    machine_id: int
    by: str
    reason: str
    status: str
    seconds_from: int
    seconds_until: int
    claimed: int
    held: int
    amount: int
    """What went back to the renter."""
    evidence: list[str]
    statement: str | None
    """Reference into the vault, never the text."""
    as_of: int
    host_due_at: int | None
    question_due_at: int | None
    rule_id: str | None
    decided_by: str | None
    opened_at: int
    answered_at: int | None
    resolved_at: int | None
    claims: list[ClaimView] = []


class WordsView(msgspec.Struct, frozen=True, kw_only=True):
    """What somebody brought forward; the text is None where the reader may not see it."""

    by: str
    actor: str
    evidence: list[str]
    text: str | None
    said_at: int


class WitnessView(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds `[start, until)` in which host, renter and probes do not say the same."""

    instance_id: int
    machine_id: int
    start: int
    until: int
    renter: str
    probe: str
    probes_up: int
    probes_down: int
    verdict: str
    dispute_id: int | None
    recorded_at: int
    position: int


_COLUMNS = (
    "d.dispute_id, d.account_id, d.host_id, d.instance_id, d.machine_id, d.filed_by, d.reason,"
    " d.status, d.seconds_from, d.seconds_until, d.claimed, d.held_payable + d.held_receivable,"
    " d.amount, d.evidence, d.statement, d.as_of, d.host_due_at, d.question_due_at, d.rule_id,"
    " d.decided_by, d.opened_at, d.answered_at, d.resolved_at"
)
_FIELDS = DisputeView.__struct_fields__[:-1]
_MONEY = frozenset({"claimed", "held", "amount"})


def disputes(
    connection: Connection,
    *,
    account_id: int | None = None,
    host_id: int | None = None,
    instance_id: int | None = None,
    status: str | None = None,
    after: int = 0,
    limit: int = 100,
) -> list[DisputeView]:
    """Disputes by id, without their claims."""
    rows = connection.execute(
        f"SELECT {_COLUMNS} FROM disputes d WHERE d.dispute_id > %(after)s"  # noqa: S608 - a constant
        " AND (%(account)s::bigint IS NULL OR d.account_id = %(account)s)"
        " AND (%(host)s::bigint IS NULL OR d.host_id = %(host)s)"
        " AND (%(instance)s::bigint IS NULL OR d.instance_id = %(instance)s)"
        " AND (%(status)s::text IS NULL OR d.status = %(status)s)"
        " ORDER BY d.dispute_id LIMIT %(limit)s",
        {
            "after": after,
            "account": account_id,
            "host": host_id,
            "instance": instance_id,
            "status": status,
            "limit": limit,
        },
    )
    return [_view(row) for row in rows]


def dispute(connection: Connection, dispute_id: int) -> DisputeView:
    """One dispute with its claims.

    Raises:
        NotFoundError: `no_such_dispute`.
    """
    found = disputes(connection, after=dispute_id - 1, limit=1)
    if not found or found[0].dispute_id != dispute_id:
        raise NotFoundError("no_such_dispute", f"there is no dispute {dispute_id}")
    rows = connection.execute(
        "SELECT charge, meter, quantity, amount, fee, charged FROM dispute_claims"
        " WHERE dispute_id = %s ORDER BY charge",
        [dispute_id],
    )
    claims = [
        ClaimView(
            charge=row[0],
            meter=row[1],
            quantity=int(row[2]),
            amount=int(row[3]),
            fee=int(row[4]),
            charged=int(row[5]),
        )
        for row in rows
    ]
    return msgspec.structs.replace(found[0], claims=claims)


def words(
    connection: Connection, vault: Vault, dispute_id: int, *, readable: bool
) -> list[WordsView]:
    """Everything that was said in a dispute, in order; texts only for who may read them."""
    found = []
    for stored in read_stream(connection, dispute_stream(dispute_id)):
        fact = decode_fact(stored.topic, stored.state)
        if not isinstance(fact, DisputeOpened | DisputeAnswered | DisputeQuestioned):
            continue
        by, evidence = (
            ("platform", [])
            if isinstance(fact, DisputeQuestioned)
            else (str(fact.by), fact.evidence)
        )
        found.append(
            WordsView(
                by=by,
                actor=fact.actor,
                evidence=evidence,
                text=_text(connection, vault, fact.statement) if readable else None,
                said_at=second_of(fact),
            )
        )
    return found


def _text(connection: Connection, vault: Vault, reference: str | None) -> str | None:
    """What lies in the vault under a reference; None once it was erased."""
    if reference is None:
        return None
    subject, _, name = reference.partition("/")
    try:
        return vault.get(connection, subject, name).decode()
    except NotFoundError:
        return None


def _view(row: tuple[Any, ...]) -> DisputeView:
    fields: dict[str, Any] = dict(zip(_FIELDS, row, strict=True))
    for name in _MONEY:
        fields[name] = int(fields[name])
    return DisputeView(**fields)


def witnesses(
    connection: Connection,
    *,
    instance_id: int | None = None,
    account_id: int | None = None,
    host_id: int | None = None,
    after: int = 0,
    limit: int = 100,
) -> list[WitnessView]:
    """Contradictions in the order in which they were recorded; *after* is a position."""
    rows = connection.execute(
        "SELECT w.instance_id, w.machine_id, w.start, w.until, w.renter, w.probe, w.probes_up,"
        " w.probes_down, w.verdict, w.dispute_id, w.recorded_at, w.position FROM witnesses w"
        " JOIN machines m USING (machine_id) WHERE w.position > %(after)s"
        " AND (%(instance)s::bigint IS NULL OR w.instance_id = %(instance)s)"
        " AND (%(account)s::bigint IS NULL OR w.account_id = %(account)s)"
        " AND (%(host)s::bigint IS NULL OR m.host_id = %(host)s)"
        " ORDER BY w.position LIMIT %(limit)s",
        {
            "after": after,
            "instance": instance_id,
            "account": account_id,
            "host": host_id,
            "limit": limit,
        },
    )
    return [
        WitnessView(**dict(zip(WitnessView.__struct_fields__, row, strict=True))) for row in rows
    ]
