"""How much credit an account has at a given second, to the nano, and when it runs dry.

Available = own movements − usage folded so far − holds − accrued − locked deposits − lapsed
promotions. Accrued are the
floored charges of authorised seconds that the usage projection has not folded yet
(`marketplace.md` §2), so the answer does not wait for ticks. The account's row is locked first; the
projection takes the same lock, and cannot move in between.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from ledger.domain.money import SECONDS_PER_DAY, SECONDS_PER_HOUR
from ledger.meters.intervals import Range, overlap
from ledger.meters.pricing import STORAGE_DIVISOR, gpu_charge, storage_charge
from ledger.projections.contracts import CONTRACTS
from ledger.projections.facts.change import FAR_FUTURE
from ledger.services.promotions import Promotions, read_promotions
from ledger.store.database import Connection

if TYPE_CHECKING:
    from ledger.services.ledger import Policy

_BURN_SCALE = STORAGE_DIVISOR // SECONDS_PER_HOUR


class Priced(NamedTuple):
    """Terms of an instance for seconds `[since, until)`, and what was charged under them so far.

    `locked` is true while a reservation's deposit pays the GPU seconds.
    """

    since: int
    until: int
    gpu_rate: int
    storage_rate: int
    locked: bool
    gpu_seconds: int
    gpu_charged: int
    storage_seconds: int
    storage_charged: int


@dataclass(slots=True)
class Accrual:
    """What one instance or volume still owes for seconds not yet folded."""

    instance_id: int
    disk_bytes: int
    created_at: int
    destroyed_at: int | None
    disk_lost_at: int | None
    gpu_covered_until: int
    machine_covered_until: int
    last_contact: int
    terms: list[Priced] = field(default_factory=list)
    spans: list[Range] = field(default_factory=list)
    """GPU intervals that may hold seconds not yet folded; an open one ends in the far future."""

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
        kept_until = cap
        for limit in (self.destroyed_at, self.disk_lost_at):
            if limit is not None:
                kept_until = min(kept_until, limit)
        nanos = 0
        for terms in self.terms:
            first = max(terms.since, self.gpu_covered_until)
            last = min(terms.until, cap)
            if not terms.locked and first < last:
                ran = sum(end - start for start, end in overlap(self.spans, first, last))
                if ran:
                    total = gpu_charge(terms.gpu_rate, terms.gpu_seconds + ran)
                    nanos += total - terms.gpu_charged
            first = max(terms.since, self.created_at, self.machine_covered_until)
            kept = min(terms.until, kept_until) - first
            if kept > 0:
                total = storage_charge(
                    terms.storage_rate, self.disk_bytes, terms.storage_seconds + kept
                )
                nanos += total - terms.storage_charged
        return nanos

    def burn(self, at: int) -> int:
        """Rate at second *at* in nanos per second, times `STORAGE_DIVISOR`."""
        if self.destroyed_at is not None:
            return 0
        runs = bool(self.spans) and self.spans[-1].end >= FAR_FUTURE
        return max(
            (
                (terms.gpu_rate * _BURN_SCALE if runs and not terms.locked else 0)
                + terms.storage_rate * self.disk_bytes
                for terms in self.terms
                if terms.since <= at < terms.until
            ),
            default=0,
        )


@dataclass(slots=True)
class Credit:
    """An account's credit, as exact as the second it is asked for."""

    account_id: int
    posted: int = 0
    charged: int = 0
    locked: int = 0
    """Nanos that running reservations still hold."""
    holds: list[tuple[int, int]] = field(default_factory=list)
    """Pending holds: (amount, second at which it expires)."""
    accruals: list[Accrual] = field(default_factory=list)
    promotions: Promotions | None = None
    """What was granted to it, and spent since; none for an account without promotional credit."""

    def held(self, at: int) -> int:
        """Nanos set aside at second *at*; an expired hold counts for nobody."""
        return sum(amount for amount, expires_at in self.holds if expires_at > at)

    def accrued(self, at: int, policy: Policy) -> int:
        """Nanos owed at second *at* and not folded yet."""
        return self._due(at, policy, at)

    def available(self, at: int, policy: Policy) -> int:
        """Nanos that can be spent at second *at*."""
        lapsed = self.lapsed(at, policy)
        return self.settled - self.held(at) - self.accrued(at, policy) - lapsed

    def promotional(self, at: int, policy: Policy) -> int:
        """Nanos of promotional credit that are unspent and can be spent at second *at*."""
        return self._unspent(at, policy, at)[0]

    def lapsed(self, at: int, policy: Policy) -> int:
        """Nanos of grants that ended and were not given back yet: nobody can spend them."""
        return self._unspent(at, policy, at)[1]

    def own(self, at: int, policy: Policy) -> int:
        """Nanos that can be refunded or transferred: what is available without promotions.

        Holds and deposits are taken to be of the account's own money until they are spent, so that
        a promotion that ends leaves none of them uncovered.
        """
        return self.available(at, policy) - self.promotional(at, policy)

    def _due(self, at: int, policy: Policy, present: int) -> int:
        silence = policy.offline_after_seconds
        return sum(one.due(at, silence, present=present) for one in self.accruals)

    def _unspent(self, at: int, policy: Policy, present: int) -> tuple[int, int]:
        """What grants have left at second *at*: of those in force, and of those that ended."""
        if self.promotions is None:
            return 0, 0
        return self.promotions.unspent(at, lambda second: self._due(second, policy, present))

    @property
    def settled(self) -> int:
        """Nanos of credit after everything folded so far and what reservations lock."""
        return self.posted - self.charged - self.locked

    def burn_per_hour(self, at: int) -> tuple[int, int]:
        """The burn at second *at* as an exact fraction of nanos per hour."""
        return sum(one.burn(at) for one in self.accruals) * SECONDS_PER_HOUR, STORAGE_DIVISOR

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
            due = self._due(at, policy, now)
            lapsed = self._unspent(at, policy, now)[1]
            return self.settled - self.held(at) - due - lapsed - floor

        if left(now) <= 0:
            return now
        high = self._burnt_by(now, floor)
        if high is None and self.promotions is not None:
            high = self.promotions.last_end(now)  # credit may also run dry by lapsing
        if high is None:
            return None
        if horizon_seconds is not None:
            high = min(high, now + horizon_seconds)
        # Between two expiries of holds what is left only falls, so each stretch can be halved.
        starts = [now, *sorted({at for _, at in self.holds if now < at <= high}), high + 1]
        for start, end in pairwise(starts):
            found = _first(left, start, end)
            if found is not None:
                return found
        return None

    def _burnt_by(self, now: int, floor: int) -> int | None:
        """A second by which everything is burnt, even what expiring holds will free; none if never.

        Where agreed terms will cost less than the present ones, theirs is the time that it takes.
        """
        changes = {terms.since for one in self.accruals for terms in one.terms if terms.since > now}
        high = None
        for second in (now, *changes):
            burn = sum(one.burn(second) for one in self.accruals)
            if burn == 0:
                continue
            by = max(now, second) + (self.settled - floor) * STORAGE_DIVISOR // burn + 2
            high = by if high is None else max(high, by)
        return high

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
    """The credit of *account_ids* as this transaction sees it, in seven queries."""
    ids = list(account_ids)
    found = {
        account_id: Credit(account_id, int(posted), int(charged), int(locked))
        for account_id, posted, charged, locked in connection.execute(_CREDIT, [ids])
    }
    for account_id, amount, expires_at in connection.execute(
        "SELECT account_id, amount, expires_at FROM holds"
        " WHERE account_id = ANY(%s) AND status = 'pending'",
        [ids],
    ):
        found[account_id].holds.append((int(amount), expires_at))
    for account_id, promotions in read_promotions(connection, ids).items():
        found[account_id].promotions = promotions
    accruals: dict[int, Accrual] = {}
    for instance_id, account_id, *row in connection.execute(_ACCRUALS, [ids]):
        accruals[instance_id] = Accrual(instance_id, *row)
        found[account_id].accruals.append(accruals[instance_id])
    if accruals:
        instances = list(accruals)
        horizons = [
            min(one.gpu_covered_until, one.machine_covered_until) for one in accruals.values()
        ]
        for instance_id, *priced in connection.execute(_TERMS, [instances, horizons]):
            since, until, gpu_rate, storage_rate, locked, *sums = priced
            accruals[instance_id].terms.append(
                Priced(since, until, int(gpu_rate), int(storage_rate), locked, *map(int, sums))
            )
        covered = [one.gpu_covered_until for one in accruals.values()]
        for instance_id, start, until in connection.execute(_SPANS, [instances, covered]):
            accruals[instance_id].spans.append(Range(start, until))
    return found


LOCKED = """
SELECT r.account_id, r.instance_id,
       r.deposit - coalesce(s.gpu_charge + s.reserved_idle_charge, 0) AS amount
FROM reservations r LEFT JOIN rate_segments s
  ON s.instance_id = r.instance_id AND s.terms_no = r.terms_no
WHERE r.ended_at IS NULL
"""
"""What each running reservation still holds."""

GRANTED = "SELECT account_id, amount FROM grants WHERE closed_at IS NULL"
"""Promotional credit that is there now and may lapse."""

_CREDIT = f"""
SELECT c.account_id, c.posted, coalesce(u.charged, 0),
       coalesce((SELECT sum(l.amount) FROM ({LOCKED}) AS l WHERE l.account_id = c.account_id), 0)
FROM account_credit c LEFT JOIN account_usage u USING (account_id)
WHERE c.account_id = ANY(%s)
"""  # noqa: S608 - constants

_ACCRUALS = f"""
SELECT i.instance_id, i.account_id, i.disk_bytes, i.created_at, i.destroyed_at, i.disk_lost_at,
       coalesce(covered.until, 0), coalesce(attested.until, 0),
       coalesce(contact.at, machine.enrolled_at, i.created_at)
FROM {CONTRACTS} i
JOIN machines machine ON machine.machine_id = i.machine_id
LEFT JOIN LATERAL (SELECT until FROM coverage c WHERE c.instance_id = i.instance_id
                   ORDER BY c.start DESC LIMIT 1) covered ON true
LEFT JOIN LATERAL (SELECT until FROM machine_coverage c WHERE c.machine_id = i.machine_id
                   ORDER BY c.start DESC LIMIT 1) attested ON true
LEFT JOIN LATERAL (SELECT max(h.recorded_at) AS at FROM stream_heads h
                   WHERE h.machine_id = i.machine_id) contact ON true
WHERE i.account_id = ANY(%s)
  AND (i.destroyed_at IS NULL OR i.destroyed_at > coalesce(attested.until, 0))
"""  # noqa: S608 - a constant

_TERMS = """
SELECT t.instance_id, t.since, t.until, t.gpu_rate, t.storage_rate,
       t.kind = 'reserved' AND EXISTS (
           SELECT 1 FROM reservations r WHERE r.instance_id = t.instance_id
           AND r.terms_no = t.terms_no AND r.ended_at IS NULL),
       coalesce(s.gpu_quantity, 0), coalesce(s.gpu_charge, 0),
       coalesce(s.storage_quantity, 0), coalesce(s.storage_charge, 0)
FROM unnest(%s::int8[], %s::int8[]) AS asked (instance_id, horizon)
JOIN instance_terms t ON t.instance_id = asked.instance_id AND t.until > asked.horizon
                     AND t.until > t.since
LEFT JOIN rate_segments s ON s.instance_id = t.instance_id AND s.terms_no = t.terms_no
ORDER BY t.instance_id, t.since
"""

_SPANS = """
SELECT g.instance_id, g.start, g.until
FROM unnest(%s::int8[], %s::int8[]) AS asked (instance_id, covered)
JOIN gpu_spans g ON g.instance_id = asked.instance_id AND g.until > asked.covered
ORDER BY g.instance_id, g.start
"""
