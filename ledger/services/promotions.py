"""Promotional credit as decisions about credit see it: what was granted, and what paid for what."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from itertools import pairwise

from ledger.domain.promotion import Grant, Spent, boundaries, drawn, payments
from ledger.projections.facts.change import FAR_FUTURE
from ledger.store.database import Connection


@dataclass(slots=True)
class Promotions:
    """All grants of one account, and what it spent while they were good."""

    grants: list[Grant] = field(default_factory=list)
    closed: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Grants that can pay for nothing more: what went back of each, and its place in the log."""
    usage: dict[int, int] = field(default_factory=dict)
    """Nanos charged for usage (and corrected since) per stretch, by its first second."""
    movements: list[Spent] = field(default_factory=list)

    def unspent(self, at: int, accrued: Callable[[int], int]) -> tuple[int, int]:
        """Nanos left at second *at*: of grants in force; of those that ended and are not closed.

        *accrued* says what is owed, and not folded yet, for the seconds before a second.
        """
        open_ = [one for one in self.grants if one.grant_id not in self.closed]
        if not open_:
            return 0, 0
        paid = drawn(self.grants, self._spending(at, accrued))
        left = [(one.ends_at > at, one.amount - paid[one.grant_id]) for one in open_]
        in_force = sum(nanos for is_good, nanos in left if is_good)
        return in_force, sum(nanos for is_good, nanos in left if not is_good)

    def paid_usage(self, *, before: int) -> int:
        """Nanos of usage, of seconds before *before*, that grants have paid so far."""
        found = payments(self.grants, self._spending(0, lambda _: 0, before))
        return sum(one.amount for one in found if one.spent.position is None)

    def paid(self, *, before: int = FAR_FUTURE) -> dict[str, int]:
        """Nanos that each grant has paid for what is folded, of seconds before *before*."""
        return drawn(self.grants, self._spending(0, lambda _: 0, before))

    def last_end(self, after: int) -> int | None:
        """The last second after *after* at which a grant ends; none if none does."""
        return max((one.ends_at for one in self.grants if one.ends_at > after), default=None)

    def _spending(
        self, at: int, accrued: Callable[[int], int], before: int = FAR_FUTURE
    ) -> list[Spent]:
        bounds = boundaries(self.grants)
        stretches = dict.fromkeys(bounds, 0)
        for since, charged in self.usage.items():
            if bounds[0] <= since < before:
                stretches[bounds[bisect_right(bounds, since) - 1]] += charged
        for start, end in pairwise([*bounds, FAR_FUTURE]):
            if start < at:
                stretches[start] += accrued(min(end, at)) - accrued(start)
        spending = [Spent(since, max(nanos, 0)) for since, nanos in stretches.items()]
        return [*spending, *(one for one in self.movements if one.second < before)]


def read_promotions(
    connection: Connection, account_ids: Collection[int], *, past: bool = False
) -> dict[int, Promotions]:
    """The promotions of those of *account_ids* that were ever given any.

    What was spent is read where a grant is open, or with *past* also where none is.
    """
    found: dict[int, Promotions] = {}
    for account_id, closed_position, unspent, *row in connection.execute(
        _GRANTS, [list(account_ids)]
    ):
        one = found.setdefault(account_id, Promotions())
        grant = Grant(row[0], int(row[1]), *row[2:])
        one.grants.append(grant)
        if closed_position is not None:
            one.closed[grant.grant_id] = (int(unspent), closed_position)
    if not past and not any(len(one.closed) < len(one.grants) for one in found.values()):
        return found
    ids = list(found)
    for account_id, since, charged in connection.execute(
        "SELECT account_id, since, charged FROM promotion_usage WHERE account_id = ANY(%s)", [ids]
    ):
        found[account_id].usage[since] = int(charged)
    for account_id, second, position, amount in connection.execute(
        "SELECT debit_account, occurred_at, position, amount FROM movements"
        " WHERE debit_account = ANY(%s) AND kind = 'capture' AND debit = 'renter_credit'",
        [ids],
    ):
        found[account_id].movements.append(Spent(second, int(amount), position))
    _correct(connection, found)
    return found


def _correct(connection: Connection, found: dict[int, Promotions]) -> None:
    """Count what was corrected in the stretch to which it belongs.

    A correction of seconds that a closed grant had paid for is the account's own: what went back of
    that grant is said for good.
    """
    changed: dict[tuple[int, int], int] = defaultdict(int)
    for account_id, kind, second, position, amount in connection.execute(
        "SELECT account_id, kind, effective_at, position, amount FROM corrections"
        " WHERE account_id = ANY(%s)",
        [list(found)],
    ):
        one = found[account_id]
        bounds = boundaries(one.grants)
        if second < bounds[0] or any(
            grant.granted_at <= second < grant.ends_at
            and grant.grant_id in one.closed
            and one.closed[grant.grant_id][1] < position
            for grant in one.grants
        ):
            continue
        since = bounds[bisect_right(bounds, second) - 1]
        changed[account_id, since] += int(amount) if kind == "charge" else -int(amount)
    for (account_id, since), nanos in changed.items():
        usage = found[account_id].usage
        usage[since] = usage.get(since, 0) + nanos


_GRANTS = """
SELECT account_id, closed_position, unspent, grant_id, amount, granted_at, expires_at, position,
       revoked_at, revoked_position
FROM grants WHERE account_id = ANY(%s) ORDER BY account_id, position
"""
