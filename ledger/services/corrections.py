"""Corrections: what was charged goes back, is replaced, and is credited where it was invoiced.

Nothing is edited. A correction is a movement of its own that points at what it corrects; it posts
now and says since when it applies.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import msgspec

from ledger.domain.charge import ChargeName, Metered, Replacement, parse_charge
from ledger.domain.dispute import Authority
from ledger.domain.events import ChargePosted, ChargeReversed, MeterName
from ledger.domain.ids import account_stream, month_start
from ledger.domain.money import MAX_POSTING_NANOS
from ledger.domain.reversal import Charged, require_second_person
from ledger.domain.reversal import reverse as split_reversal
from ledger.errors import NotFoundError, RejectedError
from ledger.services.approvals import approval
from ledger.services.ledger import Unit
from ledger.store.database import Connection

REASON_MAX: Final = 200


class Charge(NamedTuple):
    """A charge as it stands now, with what went back of it."""

    name: ChargeName
    account_id: int
    host_id: int
    instance_id: int
    meter: MeterName
    segment_from: int
    charged: Charged
    depth: int
    """0 for what the meters charged, one more for each correction of a correction."""


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """Why and since when something is corrected, and by whom."""

    reason: str
    by: Authority
    effective_at: int
    dispute_id: int | None = None


class Done(NamedTuple):
    """A reversal that was made."""

    correction_id: int
    position: int
    charge: Charge
    amount: int


def load_charge(connection: Connection, text: str) -> Charge:
    """The charge that *text* names (`instance-7.gpu.2` or `correction-3`).

    Raises:
        NotFoundError: `no_such_charge`.
    """
    name = parse_charge(text)
    back = connection.execute(
        "SELECT coalesce(sum(amount), 0), coalesce(sum(fee), 0) FROM corrections"
        " WHERE kind = 'reversal' AND charge = %s",
        [str(name)],
    ).fetchone()
    assert back is not None
    gone = (int(back[0]), int(back[1]))
    match name:
        case Metered():
            row = connection.execute(
                f"SELECT m.account_id, m.host_id, s.since, s.{name.meter}_charge,"  # noqa: S608 - a literal of `MeterName`
                f" s.{name.meter}_fee FROM rate_segments s JOIN metered_instances m"
                " USING (instance_id) WHERE instance_id = %s AND terms_no = %s",
                [name.instance_id, name.terms_no],
            ).fetchone()
            if row is not None and row[3] > 0:
                charged = Charged(int(row[3]), int(row[4]), *gone)
                return Charge(
                    name, row[0], row[1], name.instance_id, name.meter, row[2], charged, 0
                )
        case Replacement():
            row = connection.execute(
                "SELECT account_id, host_id, instance_id, meter, effective_at, amount, fee, depth"
                " FROM corrections WHERE correction_id = %s AND kind = 'charge'",
                [name.correction_id],
            ).fetchone()
            if row is not None:
                charged = Charged(int(row[5]), int(row[6]), *gone)
                return Charge(name, row[0], row[1], row[2], row[3], row[4], charged, row[7])
    raise NotFoundError("no_such_charge", f"there is no charge {text!r}")


def host_payable(connection: Connection, host_id: int) -> int:
    """What a host is owed now; below zero when more was taken than it earned."""
    row = connection.execute(
        "SELECT c.payable + coalesce(u.earned - u.fees, 0) FROM account_credit c"
        " LEFT JOIN account_usage u USING (account_id) WHERE c.account_id = %s",
        [host_id],
    ).fetchone()
    return 0 if row is None else int(row[0])


def take_from_host(connection: Connection, host_id: int, share: int) -> tuple[int, int]:
    """Divide *share* into what the host is still owed and what was paid out already."""
    from_payable = min(share, max(host_payable(connection, host_id), 0))
    return from_payable, share - from_payable


def reverse(unit: Unit, charge: Charge, amount: int, order: Order, *, quantity: int = 0) -> Done:
    """Let *amount* of a charge go back to the renter, now.

    The platform's part of it comes from its fees, the rest from what the host is owed, and as far
    as that was paid out, from what the host owes from here on.

    Raises:
        RejectedError: `over_reversal`, `invalid_amount`, `second_approval_required`.
    """
    depth = charge.depth + 1
    approved_by = _approval(unit, charge, depth, order.by.actor)
    back = split_reversal(charge.charged, amount)
    from_payable, from_receivable = take_from_host(unit.connection, charge.host_id, back.host)
    correction_id = unit.next_id("correction")
    (position,) = unit.append(
        account_stream(charge.account_id),
        ChargeReversed(
            correction_id=correction_id,
            reverses=str(charge.name),
            account_id=charge.account_id,
            host_id=charge.host_id,
            instance_id=charge.instance_id,
            meter=charge.meter,
            quantity=quantity,
            amount=back.amount,
            fee=back.fee,
            from_payable=from_payable,
            from_receivable=from_receivable,
            charged=charge.charged.amount,
            charged_fee=charge.charged.fee,
            depth=depth,
            dispute_id=order.dispute_id,
            reason=order.reason,
            period_from=period_of(unit.connection, charge.account_id, order.effective_at),
            approved_by=approved_by,
            cause=order.by.cause,
            policy_version=order.by.policy_version,
            actor=order.by.actor,
            effective_at=order.effective_at,
            reversed_at=unit.now,
        ),
    )
    return Done(correction_id, position, charge, amount)


def replace(unit: Unit, charge: Charge, amount: int, order: Order) -> tuple[Done | None, int]:
    """Put another amount in the place of a charge: what is left of it goes back, then it is posted.

    Returns:
        The reversal, if anything was left, and the id of the replacement: a charge of its own.

    Raises:
        RejectedError: `invalid_amount`, `second_approval_required`.
    """
    if not 1 <= amount <= MAX_POSTING_NANOS:
        message = "a replacement is at least one nano; reverse a charge that should not exist"
        raise RejectedError("invalid_amount", message)
    depth = charge.depth + 1
    approved_by = _approval(unit, charge, depth, order.by.actor)
    left = charge.charged.remaining
    done = reverse(unit, charge, left, order) if left else None
    correction_id = unit.next_id("correction")
    unit.append(
        account_stream(charge.account_id),
        ChargePosted(
            correction_id=correction_id,
            corrects=str(charge.name),
            account_id=charge.account_id,
            host_id=charge.host_id,
            instance_id=charge.instance_id,
            meter=charge.meter,
            amount=amount,
            fee=charge.charged.fee * amount // charge.charged.amount,
            depth=depth,
            reason=order.reason,
            period_from=period_of(unit.connection, charge.account_id, order.effective_at),
            approved_by=approved_by,
            cause=order.by.cause if done is None else done.position,
            policy_version=order.by.policy_version,
            actor=order.by.actor,
            effective_at=order.effective_at,
            posted_at=unit.now,
        ),
    )
    return done, correction_id


def check_reason(reason: str) -> None:
    """A reason is a short text of a person of the platform, never personal data.

    Raises:
        RejectedError: `invalid_args`.
    """
    if not reason.strip() or len(reason) > REASON_MAX or not reason.isprintable():
        message = f"a reason is 1 to {REASON_MAX} printable characters"
        raise RejectedError("invalid_args", message)


def _approval(unit: Unit, charge: Charge, depth: int, actor: str) -> str | None:
    """Who agreed, where a correction this deep needs a second person."""
    row = unit.connection.execute(
        "SELECT coalesce(max(position), 0) FROM corrections WHERE charge = %s", [str(charge.name)]
    ).fetchone()
    assert row is not None
    approved_by = approval(unit, f"correct {charge.name}", actor, row[0])
    require_second_person(depth, actor, approved_by)
    return approved_by


def period_of(connection: Connection, account_id: int, second: int) -> int:
    """First second of the usage period that holds *second*: the old one that a correction names."""
    row = connection.execute(
        "SELECT period_from FROM closed_periods WHERE account_id = %s AND period_from <= %s"
        " AND period_until > %s",
        [account_id, second, second],
    ).fetchone()
    return month_start(second) if row is None else int(row[0])
