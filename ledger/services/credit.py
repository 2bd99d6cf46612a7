"""How much credit an account has at a given second, to the nano, and when it runs dry.

Available = own movements − usage folded so far − holds − accrued. Accrued are the floored charges
of authorised seconds that the usage projection has not folded yet (`marketplace.md` §2), so the
answer does not wait for ticks. The account's row is locked first; the projection takes the same
lock, and cannot move in between.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING

from ledger.domain.money import SECONDS_PER_DAY, SECONDS_PER_HOUR
from ledger.meters.pricing import STORAGE_DIVISOR, gpu_charge, storage_charge
from ledger.store.database import Connection

if TYPE_CHECKING:
    from ledger.services.ledger import Policy

_BURN_SCALE = STORAGE_DIVISOR // SECONDS_PER_HOUR


@dataclass(slots=True)
class Accrual:
    """What one instance still owes for seconds not yet folded."""

    gpu_rate: int
    storage_rate: int
    disk_bytes: int
    created_at: int
    destroyed_at: int | None
    disk_lost_at: int | None
    gpu_from: int | None
    gpu_until: int | None
    gpu_covered_until: int
    machine_covered_until: int
    last_contact: int
    gpu_seconds: int
    gpu_charged: int
    storage_seconds: int
    storage_charged: int

    def due(self, at: int, silence_seconds: int | None, *, present: int | None = None) -> int:
        """Nanos accrued up to second *at*, not yet charged.

        A machine that is silent at *present* (by default *at* itself) for longer than
        *silence_seconds* adds only the seconds up to its last contact plus that time.
        """
        cap = at
        if silence_seconds is not None:
            silent_from = self.last_contact + silence_seconds
            if (at if present is None else present) > silent_from:
                cap = min(cap, silent_from)
        nanos = 0
        if self.gpu_from is not None:
            end = cap if self.gpu_until is None else min(cap, self.gpu_until)
            seconds = end - max(self.gpu_from, self.gpu_covered_until)
            if seconds > 0:
                nanos += gpu_charge(self.gpu_rate, self.gpu_seconds + seconds) - self.gpu_charged
        end = cap
        for limit in (self.destroyed_at, self.disk_lost_at):
            if limit is not None:
                end = min(end, limit)
        seconds = end - max(self.created_at, self.machine_covered_until)
        if seconds > 0:
            total = storage_charge(
                self.storage_rate, self.disk_bytes, self.storage_seconds + seconds
            )
            nanos += total - self.storage_charged
        return nanos

    @property
    def burn(self) -> int:
        """Present rate in nanos per second, times `STORAGE_DIVISOR`."""
        gpu = self.gpu_rate if self.gpu_from is not None and self.gpu_until is None else 0
        disk = 0 if self.destroyed_at is not None else self.storage_rate * self.disk_bytes
        return gpu * _BURN_SCALE + disk


@dataclass(slots=True)
class Credit:
    """An account's credit, as exact as the second it is asked for."""

    account_id: int
    posted: int = 0
    charged: int = 0
    holds: list[tuple[int, int]] = field(default_factory=list)
    """Pending holds: (amount, second at which it expires)."""
    accruals: list[Accrual] = field(default_factory=list)

    def held(self, at: int) -> int:
        """Nanos set aside at second *at*; an expired hold counts for nobody."""
        return sum(amount for amount, expires_at in self.holds if expires_at > at)

    def accrued(self, at: int, policy: Policy) -> int:
        """Nanos owed at second *at* and not folded yet."""
        silence = policy.offline_after_seconds
        return sum(accrual.due(at, silence) for accrual in self.accruals)

    def available(self, at: int, policy: Policy) -> int:
        """Nanos that can be spent at second *at*."""
        return self.posted - self.charged - self.held(at) - self.accrued(at, policy)

    def burn_per_hour(self) -> tuple[int, int]:
        """The present burn as an exact fraction of nanos per hour."""
        return sum(one.burn for one in self.accruals) * SECONDS_PER_HOUR, STORAGE_DIVISOR

    def dry_second(
        self,
        now: int,
        policy: Policy,
        *,
        floor: int = 0,
        horizon_seconds: int | None = None,
    ) -> int | None:
        """The first second from *now* at which available ≤ *floor* if nothing else happens.

        Machines that report now are taken to go on reporting. None when that second never comes,
        or not within *horizon_seconds*.
        """

        def left(at: int) -> int:
            silence = policy.offline_after_seconds
            due = sum(one.due(at, silence, present=now) for one in self.accruals)
            return self.posted - self.charged - self.held(at) - due - floor

        if left(now) <= 0:
            return now
        burn = sum(one.burn for one in self.accruals)
        if burn == 0:
            return None
        # Beyond this second even the credit that expiring holds will free is burnt.
        high = now + (self.posted - self.charged - floor) * STORAGE_DIVISOR // burn + 2
        if horizon_seconds is not None:
            high = min(high, now + horizon_seconds)
        # Between two expiries of holds what is left only falls, so each stretch can be halved.
        starts = [now, *sorted({at for _, at in self.holds if now < at <= high}), high + 1]
        for start, end in pairwise(starts):
            found = _first(left, start, end)
            if found is not None:
                return found
        return None

    def dry_between(self, after: int, now: int, policy: Policy) -> int:
        """The first second in `(after, now]` with available ≤ 0, given that it is so at *now*."""
        found = _first(lambda at: self.available(at, policy), after + 1, now + 1)
        return now if found is None else found


def _first(left: Callable[[int], int], start: int, end: int) -> int | None:
    """The first second of `[start, end)` with ``left ≤ 0``, where *left* only falls."""
    if start >= end or left(end - 1) > 0:
        return None
    low, high = start - 1, end - 1
    while high - low > 1:
        middle = (low + high) // 2
        if left(middle) <= 0:
            high = middle
        else:
            low = middle
    return high


def admission_cost(gpu_rate: int, storage_rate: int, disk_bytes: int) -> int:
    """What must be available to start: one hour of GPUs and a day of storage (§13.1)."""
    return gpu_charge(gpu_rate, SECONDS_PER_HOUR) + storage_charge(
        storage_rate, disk_bytes, SECONDS_PER_DAY
    )


def lock_credit(connection: Connection, account_ids: Collection[int]) -> dict[int, Credit]:
    """The credit of *account_ids*, their rows locked in ascending order."""
    ids = sorted(set(account_ids))
    connection.execute(
        "SELECT 1 FROM account_credit WHERE account_id = ANY(%s) ORDER BY account_id"
        " FOR NO KEY UPDATE",
        [ids],
    )
    return read_credit(connection, ids)


def read_credit(connection: Connection, account_ids: Collection[int]) -> dict[int, Credit]:
    """The credit of *account_ids* as this transaction sees it, in three queries."""
    ids = list(account_ids)
    found = {
        account_id: Credit(account_id, int(posted), int(charged))
        for account_id, posted, charged in connection.execute(
            "SELECT c.account_id, c.posted, coalesce(u.charged, 0)"
            " FROM account_credit c LEFT JOIN account_usage u USING (account_id)"
            " WHERE c.account_id = ANY(%s)",
            [ids],
        )
    }
    for account_id, amount, expires_at in connection.execute(
        "SELECT account_id, amount, expires_at FROM holds"
        " WHERE account_id = ANY(%s) AND status = 'pending'",
        [ids],
    ):
        found[account_id].holds.append((int(amount), expires_at))
    for account_id, *row in connection.execute(_ACCRUALS, [ids]):
        found[account_id].accruals.append(
            Accrual(*[None if one is None else int(one) for one in row])  # type: ignore[arg-type]
        )
    return found


_ACCRUALS = """
SELECT i.account_id, i.gpu_rate, i.storage_rate, i.disk_bytes, i.created_at, i.destroyed_at,
       i.disk_lost_at, i.gpu_from, i.gpu_until,
       coalesce(covered.until, 0), coalesce(attested.until, 0),
       coalesce(contact.at, machine.enrolled_at, i.created_at),
       coalesce(s.gpu_quantity, 0), coalesce(s.gpu_charge, 0),
       coalesce(s.storage_quantity, 0), coalesce(s.storage_charge, 0)
FROM instances i
JOIN machines machine ON machine.machine_id = i.machine_id
LEFT JOIN LATERAL (SELECT until FROM coverage c WHERE c.instance_id = i.instance_id
                   ORDER BY c.start DESC LIMIT 1) covered ON true
LEFT JOIN LATERAL (SELECT until FROM machine_coverage c WHERE c.machine_id = i.machine_id
                   ORDER BY c.start DESC LIMIT 1) attested ON true
LEFT JOIN LATERAL (SELECT max(h.recorded_at) AS at FROM stream_heads h
                   WHERE h.machine_id = i.machine_id) contact ON true
LEFT JOIN LATERAL (SELECT * FROM rate_segments r WHERE r.instance_id = i.instance_id
                   ORDER BY r.terms_no DESC LIMIT 1) s ON true
WHERE i.account_id = ANY(%s)
  AND (i.destroyed_at IS NULL OR i.destroyed_at > coalesce(attested.until, 0))
"""
