"""Filing a dispute: what is claimed, and the host's share of it set aside (`marketplace.md` §15).

A charge can be disputed within seven days of the statement that names it, and has one open dispute
of its renter. Opening moves the host's share into `disputed_hold`; the renter's balance does not
move yet. What witnesses hold (`ledger.services.witnesses`) stands beside it, about other seconds.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal, NamedTuple, get_args

from ledger.domain import dispute as rules
from ledger.domain.dispute import PLATFORM, Authority
from ledger.domain.events import (
    DisputeClaim,
    DisputedSeconds,
    DisputeOpened,
    DisputeReason,
    EarningsHeld,
)
from ledger.domain.ids import account_stream
from ledger.domain.money import SECONDS_PER_DAY
from ledger.errors import DeclinedError, NotFoundError, RejectedError
from ledger.projections.contracts import CONTRACTS
from ledger.services.approvals import approval
from ledger.services.claims import disputed
from ledger.services.corrections import take_from_host
from ledger.services.disputes import (
    Words,
    account_actor,
    check_words,
    dispute_stream,
    keep_words,
)
from ledger.services.ledger import Unit
from ledger.services.notices import notify
from ledger.services.settlement import rejected_lately
from ledger.services.statements import due_at, is_folded, stated_at
from ledger.store.database import Connection
from ledger.store.log import head_position

REASONS: Final[tuple[str, ...]] = get_args(DisputeReason)


class Rented(NamedTuple):
    """Whose an instance or volume is, and where it lives."""

    instance_id: int
    account_id: int
    host_id: int
    machine_id: int


def open_dispute(
    unit: Unit,
    instance_id: int,
    start: int,
    until: int,
    reason: str,
    *,
    actor: int,
    by_admin: bool = False,
    words: Words = Words(),  # noqa: B008 - an empty tuple of words
) -> int:
    """Dispute what was billed for seconds `[start, until)` of an instance; returns the id.

    Args:
        unit: The command's transaction.
        instance_id: Which instance or volume; that it is the renter's own is checked by the caller.
        start: First second.
        until: The second after the last, at most now.
        reason: One of `REASONS`; it says which meters are in question.
        actor: The account that acts: the renter, or an admin for it.
        by_admin: An admin acts.
        words: Evidence, fixed at filing.

    Raises:
        NotFoundError: `no_such_instance`.
        RejectedError: `invalid_args`, `dispute_window_closed`, `filing_restricted`,
            `already_disputed`, `over_reversal` where all of it went back before, `no_such_charge`
            where nothing was charged.
        DeclinedError: `usage_pending` while reports of these seconds wait to be metered.
    """
    known = next((one for one in get_args(DisputeReason) if one == reason), None)
    if known is None:
        raise RejectedError("invalid_args", f"a reason is one of {', '.join(REASONS)}")
    rented = _rented(unit.connection, instance_id)
    if not 0 <= start < until <= unit.now:
        message = "disputed seconds lie in the past, the first before the last"
        raise RejectedError("invalid_args", message)
    check_words(words)
    _check_window(unit, instance_id, start, until)
    if not by_admin:
        _check_filing(unit, rented.account_id)
    if not is_folded(unit.connection, until):
        raise DeclinedError("usage_pending", "reports of these seconds wait to be metered")
    seconds = [DisputedSeconds(start=start, until=until)]
    found = disputed(unit.connection, instance_id, seconds, rules.meters_of(known))
    if not found.claims:
        raise _nothing_left(found.open_elsewhere, found.gone_back)
    _check_undisputed(unit.connection, found.claims)
    cause = _statement_of(unit.connection, rented.account_id, start)
    by = Authority(account_actor(actor), unit.policy.version, cause)
    return _open(unit, rented, known, seconds, found.claims, by, words)


def open_for_witnesses(
    unit: Unit, instance_id: int, seconds: Sequence[DisputedSeconds], cause: int
) -> int | None:
    """Hold what was billed for seconds in which the witnesses say that it did not run.

    None when nothing was billed for them.
    """
    rented = _rented(unit.connection, instance_id)
    found = disputed(unit.connection, instance_id, seconds, rules.meters_of("not_running"))
    if not found.claims:
        return None
    by = Authority(PLATFORM, unit.policy.version, cause)
    return _open(unit, rented, "not_running", seconds, found.claims, by, Words())


def _open(
    unit: Unit,
    rented: Rented,
    reason: DisputeReason,
    seconds: Sequence[DisputedSeconds],
    claims: list[DisputeClaim],
    by: Authority,
    words: Words,
) -> int:
    dispute_id = unit.next_id("dispute")
    author: Literal["renter", "platform"] = "platform" if by.actor == PLATFORM else "renter"
    statement, digest = keep_words(unit, rented.account_id, dispute_id, "filing", words.statement)
    effective_at = seconds[0].start
    (position,) = unit.append(
        dispute_stream(dispute_id),
        DisputeOpened(
            dispute_id=dispute_id,
            account_id=rented.account_id,
            host_id=rented.host_id,
            instance_id=rented.instance_id,
            machine_id=rented.machine_id,
            by=author,
            reason=reason,
            seconds=list(seconds),
            claims=claims,
            claimed=sum(claim.amount for claim in claims),
            evidence=list(words.evidence),
            statement=statement,
            statement_hash=digest,
            as_of=head_position(unit.connection),
            answer_due_at=unit.now + rules.HOST_ANSWER_SECONDS,
            cause=by.cause,
            policy_version=by.policy_version,
            actor=by.actor,
            effective_at=effective_at,
            opened_at=unit.now,
        ),
    )
    share = sum(claim.amount - claim.fee for claim in claims)
    if share:
        from_payable, from_receivable = take_from_host(unit.connection, rented.host_id, share)
        unit.append(
            account_stream(rented.host_id),
            EarningsHeld(
                dispute_id=dispute_id,
                host_id=rented.host_id,
                from_payable=from_payable,
                from_receivable=from_receivable,
                cause=position,
                policy_version=by.policy_version,
                actor=by.actor,
                effective_at=effective_at,
                held_at=unit.now,
            ),
        )
    notify(unit, rented.host_id, "disputed", f"dispute-{dispute_id}")
    if author == "platform":
        notify(unit, rented.account_id, "disputed", f"dispute-{dispute_id}")
    return dispute_id


def require_own(unit: Unit, instance_id: int, account_id: int) -> None:
    """Refuse somebody else's instance or volume.

    Raises:
        NotFoundError: `no_such_instance`.
    """
    if _rented(unit.connection, instance_id).account_id != account_id:
        raise NotFoundError("no_such_instance", f"there is no instance {instance_id}")


# --- what must hold before -----------------------------------------------------------------------


def _rented(connection: Connection, instance_id: int) -> Rented:
    row = connection.execute(
        f"SELECT instance_id, account_id, host_id, machine_id FROM {CONTRACTS} c"  # noqa: S608 - a constant
        " WHERE instance_id = %s",
        [instance_id],
    ).fetchone()
    if row is None:
        raise NotFoundError("no_such_instance", f"there is no instance {instance_id}")
    return Rented(*row)


def _check_window(unit: Unit, instance_id: int, start: int, until: int) -> None:
    """Every day has to be within seven days of the last statement that names its usage."""
    for day in range(start // SECONDS_PER_DAY, (until - 1) // SECONDS_PER_DAY + 1):
        stated = stated_at(unit.connection, instance_id, day)
        closes = (due_at(day) if stated is None else stated) + rules.FILING_SECONDS
        if unit.now > closes:
            message = "a charge can be disputed within 7 days of its statement"
            raise RejectedError("dispute_window_closed", message, closed_at=closes)


def _check_filing(unit: Unit, account_id: int) -> None:
    if not rules.is_restricted(rejected_lately(unit.connection, account_id, unit.now)):
        return
    row = unit.connection.execute(
        "SELECT coalesce(max(position), 0) FROM disputes WHERE account_id = %s", [account_id]
    ).fetchone()
    assert row is not None
    actor = account_actor(account_id)
    if approval(unit, f"file {actor}", actor, row[0]) is None:
        message = "too many disputes were rejected in 30 days: an admin has to approve `file`"
        raise RejectedError("filing_restricted", f"{message} {actor}")


def _check_undisputed(connection: Connection, claims: Sequence[DisputeClaim]) -> None:
    row = connection.execute(
        "SELECT d.dispute_id FROM disputes d JOIN dispute_claims c USING (dispute_id)"
        " WHERE c.charge = ANY(%s) AND d.filed_by = 'renter' AND d.resolved_at IS NULL LIMIT 1",
        [[claim.charge for claim in claims]],
    ).fetchone()
    if row is not None:
        message = f"dispute {row[0]} about this charge is still open"
        raise RejectedError("already_disputed", message, dispute_id=row[0])


def _nothing_left(open_elsewhere: bool, gone_back: bool) -> RejectedError:
    """Why there is nothing to claim."""
    if open_elsewhere:
        return RejectedError("already_disputed", "these seconds are in dispute already")
    if gone_back:
        return RejectedError("over_reversal", "what these seconds cost went back already")
    return RejectedError("no_such_charge", "nothing was charged for these seconds")


def _statement_of(connection: Connection, account_id: int, start: int) -> int | None:
    """The place of the statement that a dispute is about: its cause, once it was issued."""
    row = connection.execute(
        "SELECT position FROM statements WHERE account_id = %s AND day = %s",
        [account_id, start // SECONDS_PER_DAY * SECONDS_PER_DAY],
    ).fetchone()
    return None if row is None else int(row[0])
