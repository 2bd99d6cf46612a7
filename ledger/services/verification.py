"""Verification: unverified → verified → deverified → unverified (`marketplace.md` §11.1).

`review` draws the conclusion from checks and comparisons (`ledger.domain.verification.next_state`);
an admin may verify, deverify and reset by hand, always with a reason.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Final, NamedTuple

from ledger.domain.events import (
    Fact,
    JudgedBy,
    MachineDeverified,
    MachineVerified,
    VerificationReset,
)
from ledger.domain.ids import machine_stream
from ledger.domain.reliability import SLOT_SECONDS, slot_of
from ledger.domain.verification import (
    Difference,
    Shortfall,
    Verification,
    next_state,
)
from ledger.errors import RejectedError
from ledger.projections.contracts import CONTRACTS
from ledger.services.comparisons import Comparison, as_text, compare, last_comparison
from ledger.services.ledger import Unit
from ledger.services.machines import require_machine
from ledger.services.notices import notice
from ledger.store.database import Connection

_REASON: Final = re.compile(r"[^\x00-\x1f\x7f]{1,256}")
_REASON_MAX: Final = 256


class Standing(NamedTuple):
    """What a conclusion is drawn from."""

    machine_id: int
    host_id: int
    state: Verification
    checks: int
    lower_bound: float
    vouched: bool
    judged_by: JudgedBy
    has_inventory: bool
    compared_at: int | None
    fault_since: int | None
    """Since when it differs or misses a bar to verify; null: it does not."""
    fault_until: int | None


def review(unit: Unit, machine_ids: Collection[int]) -> None:
    """Let each machine take the step that follows from its checks and comparisons, if any.

    What an admin took back stays so until an admin says otherwise.
    """
    for one in _standings(unit.connection, machine_ids):
        standing = one
        if one.has_inventory and one.compared_at is None:
            compare(unit, one.machine_id)
            (standing,) = _standings(unit.connection, [one.machine_id])
        _step(unit, standing)


def _step(unit: Unit, standing: Standing) -> None:
    if standing.state == "deverified" and standing.judged_by == "admin":
        return
    found = None
    if standing.fault_since is not None:
        found = last_comparison(unit.connection, standing.machine_id)
    by_hand = standing.vouched and standing.state == "verified"
    clean = 1
    if standing.state == "deverified" or (found is not None and not by_hand):
        clean = clean_slots(unit.connection, standing, unit.now)
    state = next_state(
        standing.state,
        differences=_differences(found),
        shortfalls=_shortfalls(standing, found),
        clean_slots=clean,
        lower_bound=standing.lower_bound,
        n=standing.checks,
        by_admin=by_hand,
    )
    if state != standing.state:
        reason = _reason(standing, state, found)
        _move(unit, standing.machine_id, standing.host_id, state, "platform", reason)


def _reason(standing: Standing, state: Verification, found: Comparison | None) -> str:
    if state == "deverified" and found is not None:
        return as_text([*found.differences, *found.missed_to_verify])[:_REASON_MAX]
    return f"{standing.checks} checks, lower bound {standing.lower_bound:.6f}"


def clean_slots(connection: Connection, standing: Standing, now: int) -> int:
    """Checked slots in a row, up to the last that ended, without a failure and without a fault.

    0 while a fault lasts with which a slot has ended. Slots without a conclusive check count
    neither way.
    """
    current = slot_of(now)
    fault = standing.fault_since
    if fault is not None and slot_of(fault) < current:
        return 0
    clean_from = 0 if standing.fault_until is None else slot_of(standing.fault_until)
    row = connection.execute(
        "SELECT count(*) FROM (SELECT 1 FROM rated_slots WHERE machine_id = %(machine)s"
        " AND slot < %(current)s AND slot >= greatest(%(from)s, coalesce((SELECT slot + 1"
        "  FROM rated_slots WHERE machine_id = %(machine)s AND NOT passed AND slot < %(current)s"
        "  ORDER BY slot DESC LIMIT 1), 0)) ORDER BY slot DESC LIMIT 100) AS clean",
        {"machine": standing.machine_id, "current": current, "from": clean_from},
    ).fetchone()
    assert row is not None
    # A fault of this very slot has not ended a slot yet.
    return max(int(row[0]), 1) if fault is not None else int(row[0])


def faults_due(connection: Connection, now: int) -> list[int]:
    """Verified machines with a fault with which a slot has ended."""
    return [row[0] for row in connection.execute(FAULTS_DUE, {"now": now})]


def next_fault_due(connection: Connection) -> int | None:
    """The end of the first slot in which a verified machine began to be at fault."""
    row = connection.execute(
        f"SELECT min(fault_since) FROM ({_FAULTY}) AS faulty"  # noqa: S608 - a constant
    ).fetchone()
    if row is None or row[0] is None:
        return None
    return (slot_of(row[0]) + 1) * SLOT_SECONDS


_FAULTY: Final = (
    "SELECT t.machine_id, t.fault_since FROM machine_trust t"
    " JOIN machine_standing s USING (machine_id)"
    " WHERE t.fault_since IS NOT NULL AND s.verification = 'verified' AND NOT t.vouched"
)
FAULTS_DUE: Final = (
    f"{_FAULTY} AND t.fault_since < %(now)s / {SLOT_SECONDS} * {SLOT_SECONDS} ORDER BY t.machine_id"
)


# --- by hand --------------------------------------------------------------------------------------


def verify_by_hand(unit: Unit, machine_id: int, reason: str) -> None:
    """An admin vouches for a machine; again changes nothing.

    Raises:
        NotFoundError: `no_such_machine`.
        RejectedError: `invalid_args` without a reason; `not_as_stated` when GPUs or memory are
            missing: nobody can vouch for those.
    """
    check_reason(reason)
    host_id = require_machine(unit.connection, machine_id).host_id
    (standing,) = _standings(unit.connection, [machine_id])
    if standing.vouched:
        return
    found = compare(unit, machine_id)
    different = [] if found is None else found.differences
    missing = [one for one in different if one.severity == "deverify_at_once"]
    if missing:
        message = f"the machine is not what was stated: {as_text(missing)}"
        raise RejectedError("not_as_stated", message)
    _move(unit, machine_id, host_id, "verified", "admin", reason)


def deverify_by_hand(unit: Unit, machine_id: int, reason: str) -> None:
    """An admin takes the verification back, until an admin says otherwise; again changes nothing.

    Raises:
        NotFoundError: `no_such_machine`.
        RejectedError: `invalid_args` without a reason.
    """
    _by_hand(unit, machine_id, "deverified", reason)


def reset_by_hand(unit: Unit, machine_id: int, reason: str) -> None:
    """An admin lets a machine earn its verification (again).

    Raises:
        NotFoundError: `no_such_machine`.
        RejectedError: `invalid_args` without a reason.
    """
    _by_hand(unit, machine_id, "unverified", reason)


def _by_hand(unit: Unit, machine_id: int, state: Verification, reason: str) -> None:
    check_reason(reason)
    host_id = require_machine(unit.connection, machine_id).host_id
    (standing,) = _standings(unit.connection, [machine_id])
    if standing.state == state and (standing.judged_by == "admin" or state == "unverified"):
        return
    _move(unit, machine_id, host_id, state, "admin", reason)


def deverify_for(unit: Unit, machine_id: int, reason: str) -> None:
    """A verified machine is verified no more, for something that only the platform sees."""
    host_id = require_machine(unit.connection, machine_id).host_id
    (standing,) = _standings(unit.connection, [machine_id])
    if standing.state == "verified":
        _move(unit, machine_id, host_id, "deverified", "platform", reason)


def check_reason(reason: str) -> None:
    """Refuse a reason that says nothing.

    Raises:
        RejectedError: `invalid_args`.
    """
    if not _REASON.fullmatch(reason) or not reason.strip():
        raise RejectedError("invalid_args", "give a reason of 1 to 256 printable characters")


# --- what is written ------------------------------------------------------------------------------


def _move(
    unit: Unit,
    machine_id: int,
    host_id: int,
    state: Verification,
    by: JudgedBy,
    reason: str,
) -> None:
    fact: Fact
    about = f"machine-{machine_id}"
    notices: list[tuple[str, Fact]] = []
    if state == "verified":
        fact = MachineVerified(machine_id=machine_id, by=by, reason=reason, verified_at=unit.now)
        notices.append(notice(unit, host_id, "verified", about))
    elif state == "deverified":
        fact = MachineDeverified(
            machine_id=machine_id, by=by, reason=reason, deverified_at=unit.now
        )
        # Renters may now leave a reservation without a penalty, so they have to know.
        people = dict.fromkeys([host_id, *_renters(unit.connection, machine_id)])
        notices += [notice(unit, account_id, "deverified", about) for account_id in people]
    else:
        fact = VerificationReset(machine_id=machine_id, by=by, reason=reason, reset_at=unit.now)
    unit.append_all([(machine_stream(machine_id), fact), *notices])


def _renters(connection: Connection, machine_id: int) -> list[int]:
    rows = connection.execute(
        f"SELECT DISTINCT account_id FROM {CONTRACTS} c WHERE machine_id = %s"  # noqa: S608 - a constant
        " AND destroyed_at IS NULL ORDER BY account_id",
        [machine_id],
    )
    return [row[0] for row in rows]


def _standings(connection: Connection, machine_ids: Collection[int]) -> list[Standing]:
    rows = connection.execute(
        "SELECT s.machine_id, m.host_id, s.verification, s.checks, s.lower_bound,"
        " coalesce(t.vouched, false), coalesce(t.judged_by, 'platform'),"
        " t.inventory IS NOT NULL, t.compared_at, t.fault_since, t.fault_until"
        " FROM machine_standing s JOIN machines m USING (machine_id)"
        " LEFT JOIN machine_trust t USING (machine_id) WHERE s.machine_id = ANY(%s)"
        " ORDER BY s.machine_id",
        [list(machine_ids)],
    )
    return [Standing(*row) for row in rows]


def _differences(found: Comparison | None) -> list[Difference]:
    stated = [] if found is None else found.differences
    return [Difference(one.field, one.stated, one.found, one.severity) for one in stated]


def _shortfalls(standing: Standing, found: Comparison | None) -> list[Shortfall]:
    if not standing.has_inventory:
        return [Shortfall("inventory", "a report of it", None)]
    missed = [] if found is None else found.missed_to_verify
    return [Shortfall(one.bar, one.needed, one.found) for one in missed]
