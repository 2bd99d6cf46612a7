"""The life of a dispute after its filing: answers, questions, and how it ends (§15).

People decide until a deadline has passed, and then silence does (`let_pass`). What an end moves is
in `ledger.services.settlement`, the filing in `ledger.services.filing`.
"""

from __future__ import annotations

import re
from typing import Final, Literal, NamedTuple, get_args

from ledger.domain import dispute as rules
from ledger.domain.dispute import PLATFORM, Authority, Dispute, DisputeCommand
from ledger.domain.events import (
    DisputeFact,
    DisputeResolved,
)
from ledger.errors import NotFoundError, RejectedError
from ledger.services.ledger import Unit
from ledger.services.settlement import reversible, settle
from ledger.store.codec import decode_fact
from ledger.store.database import Connection
from ledger.store.log import read_stream

EVIDENCE_MAX: Final = 32
STATEMENT_BYTES_MAX: Final = 8_192
_SHA256: Final = re.compile(r"[0-9a-f]{64}")


class Words(NamedTuple):
    """What somebody brings forward: hashes of evidence, and a text that goes into the vault."""

    evidence: tuple[str, ...] = ()
    statement: str | None = None


def dispute_stream(dispute_id: int) -> str:
    """Name of the stream of a dispute's life."""
    return f"dispute-{dispute_id}"


def account_actor(account_id: int) -> str:
    """How facts name the account that acted."""
    return f"account-{account_id}"


def load(connection: Connection, dispute_id: int) -> Dispute:
    """The state of a dispute, from its facts.

    Raises:
        NotFoundError: `no_such_dispute`.
    """
    stored = read_stream(connection, dispute_stream(dispute_id))
    history = [decode_fact(one.topic, one.state) for one in stored]
    facts = [fact for fact in history if isinstance(fact, DisputeFact)]
    if not facts:
        raise NotFoundError("no_such_dispute", f"there is no dispute {dispute_id}")
    return rules.fold(facts)


# --- answers and ends ----------------------------------------------------------------------------


def answer(
    unit: Unit, dispute_id: int, who: Literal["host", "renter"], actor: int, words: Words
) -> None:
    """Explain what happened (host), or answer what was asked (renter).

    Raises:
        NotFoundError: `no_such_dispute`.
        RejectedError: `dispute_closed`, `no_open_question`, `invalid_args`.
    """
    dispute = load(unit.connection, dispute_id)
    check_words(words)
    if who == "host" and dispute.outcome is None and dispute.host_due_at is None:
        return  # It answered before, and the first explanation stands.
    keeper = dispute.host_id if who == "host" else dispute.account_id
    statement, digest = keep_words(unit, keeper, dispute_id, who, words.statement)
    command = rules.Answer(who, words.evidence, statement, digest)
    _decide(unit, dispute, command, account_actor(actor))


def question(unit: Unit, dispute_id: int, actor: int, statement: str | None) -> None:
    """Ask the renter something; without an answer in seven days the dispute expires.

    Raises:
        NotFoundError: `no_such_dispute`.
        RejectedError: `dispute_closed`, `invalid_args`.
    """
    dispute = load(unit.connection, dispute_id)
    check_words(Words((), statement))
    reference, digest = keep_words(unit, dispute.account_id, dispute_id, "question", statement)
    _decide(unit, dispute, rules.Question(reference, digest), account_actor(actor))


def withdraw(unit: Unit, dispute_id: int, actor: int) -> None:
    """Let a dispute of one's own be; again changes nothing.

    Raises:
        NotFoundError: `no_such_dispute`.
        RejectedError: `dispute_closed`, or `not_withdrawable` for what the platform holds.
    """
    dispute = load(unit.connection, dispute_id)
    if dispute.by == "platform":
        message = "the platform holds this on the word of witnesses"
        raise RejectedError("not_withdrawable", message)
    _decide(unit, dispute, rules.Withdraw(), account_actor(actor))


def resolve(
    unit: Unit,
    dispute_id: int,
    outcome: str,
    *,
    actor: str,
    amount: int | None = None,
    rule_id: str = "admin",
) -> int:
    """Decide a dispute; returns what goes back to the renter. The same again changes nothing.

    Args:
        unit: The command's transaction.
        dispute_id: Which dispute.
        outcome: `upheld` (all of the claim unless *amount* says less), `partial` or `rejected`.
        actor: Who decides.
        amount: Nanos that go back.
        rule_id: By which rule.

    Raises:
        NotFoundError: `no_such_dispute`.
        RejectedError: `dispute_closed`, `invalid_amount`, `over_reversal`, `invalid_args`.
    """
    dispute = load(unit.connection, dispute_id)
    known = next((one for one in get_args(rules.Decided) if one == outcome), None)
    if known is None:
        message = "an outcome is upheld, partial or rejected; a renter withdraws, time expires"
        raise RejectedError("invalid_args", message)
    limit = sum(part.amount for part in reversible(unit.connection, dispute))
    command = rules.Resolve(known, amount, rule_id, limit)
    _decide(unit, dispute, command, actor)
    return load(unit.connection, dispute_id).amount


DUE: Final = (
    "SELECT dispute_id FROM disputes WHERE host_due_at <= %(now)s OR question_due_at <= %(now)s"
    " ORDER BY dispute_id"
)


def let_pass(unit: Unit) -> int:
    """Let silence decide where its time has come; returns in how many disputes."""
    due = unit.connection.execute(DUE, {"now": unit.now}).fetchall()
    for (dispute_id,) in due:
        dispute = load(unit.connection, dispute_id)
        limit = sum(part.amount for part in reversible(unit.connection, dispute))
        _decide(unit, dispute, rules.LetPass(limit), PLATFORM)
    return len(due)


def _decide(unit: Unit, dispute: Dispute, command: DisputeCommand, actor: str) -> None:
    row = unit.connection.execute(
        "SELECT position FROM events WHERE stream_id = %s ORDER BY version DESC LIMIT 1",
        [dispute_stream(dispute.dispute_id)],
    ).fetchone()
    assert row is not None
    by = Authority(actor, unit.policy.version, row[0])
    for fact in rules.decide(dispute, command, by, unit.now):
        (position,) = unit.append(dispute_stream(dispute.dispute_id), fact)
        if isinstance(fact, DisputeResolved):
            settle(unit, dispute, fact, position)


def check_words(words: Words) -> None:
    """Refuse what is no evidence, or too long.

    Raises:
        RejectedError: `invalid_args`.
    """
    if len(words.evidence) > EVIDENCE_MAX or not all(map(_SHA256.fullmatch, words.evidence)):
        message = f"evidence is up to {EVIDENCE_MAX} SHA-256 hashes of 64 hex digits"
        raise RejectedError("invalid_args", message)
    if words.statement is not None and len(words.statement.encode()) > STATEMENT_BYTES_MAX:
        message = f"a statement is at most {STATEMENT_BYTES_MAX} bytes"
        raise RejectedError("invalid_args", message)


def keep_words(
    unit: Unit, account_id: int, dispute_id: int, what: str, text: str | None
) -> tuple[str | None, str | None]:
    """Put what a person wrote into the vault of that person: its reference and keyed hash."""
    if text is None:
        return None, None
    row = unit.connection.execute(
        "SELECT subject FROM accounts WHERE account_id = %s", [account_id]
    ).fetchone()
    assert row is not None
    name = f"dispute-{dispute_id}-{what}-{unit.now}"
    unit.vault.put(unit.connection, row[0], name, text.encode())
    return f"{row[0]}/{name}", unit.vault.keyed_hash(text)
