"""Alerts while there is time: credit that lasts less than a day, 4 hours, 1 hour (§13.2).

An alert is given once when its threshold is crossed downwards. It may come again when credit was
seen above the threshold since, and a day has passed since its last notice: a balance that hovers
sends no stream of mails. An account that burns nothing has no runway, and is above every threshold.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from ledger.domain.events import BalanceAlert, BalanceAlertCleared, BalanceAlertRaised, Fact
from ledger.domain.ids import account_stream
from ledger.domain.money import SECONDS_PER_DAY
from ledger.services.credit import GRANTED, LOCKED, Credit, lock_credit, read_credit
from ledger.services.ledger import Ledger, Policy, read_policy
from ledger.services.notices import notice
from ledger.store.database import Connection

RUNWAYS: Final[dict[BalanceAlert, int]] = {
    "low_balance_24h": 24,
    "low_balance_4h": 4,
    "low_balance_1h": 1,
}
"""Hours of burn below which each alert is given."""
SOON: Final[BalanceAlert] = "top_up_soon"
REARM_SECONDS: Final = SECONDS_PER_DAY

WATCHED: Final = f"""
SELECT c.account_id FROM account_credit c LEFT JOIN account_usage u USING (account_id)
LEFT JOIN top_up_consents t ON t.account_id = c.account_id AND t.status = 'on'
WHERE EXISTS (SELECT 1 FROM balance_alerts a
              WHERE a.account_id = c.account_id AND a.cleared_at IS NULL)
   OR c.exhausted_at IS NULL AND (c.gpu_rate > 0 OR c.storage_product > 0 OR t.below > 0)
  AND c.posted - coalesce(u.charged, 0)
    - coalesce((SELECT sum(l.amount) FROM ({LOCKED}) AS l WHERE l.account_id = c.account_id), 0)
    - coalesce((SELECT sum(g.amount) FROM ({GRANTED}) AS g WHERE g.account_id = c.account_id), 0)
    - coalesce((SELECT sum(h.amount) FROM holds h
                WHERE h.account_id = c.account_id AND h.status = 'pending'), 0)
    <= 48 * c.gpu_rate + c.storage_product * 172800 / (1000000000::numeric * 2592000)
       + coalesce(t.below, 0) + 1
ORDER BY c.account_id
"""  # noqa: S608 - a constant of `credit`
"""Accounts that two days' burn may bring below a threshold: a day more than the longest runway, for
what the meters have not folded yet; and those whose credit may be above one again."""


class _Watch(NamedTuple):
    """One alert of one account: below `limit` nanos of available credit it is given.

    Without a limit nothing is below it. `armed_at` is the second from which on it may be given;
    none while it is open, which is from its notice until credit is seen above the limit.
    """

    account_id: int
    alert: BalanceAlert
    limit: int | None
    armed_at: int | None
    is_open: bool

    def is_below(self, available: int) -> bool:
        """True when so much credit is below the threshold."""
        return self.limit is not None and available < self.limit


def watch_balances(ledger: Ledger) -> None:
    """Give every alert whose threshold was crossed, and take note where credit is above again."""
    with ledger.reading() as connection:
        policy = read_policy(connection)
        accounts = [row[0] for row in connection.execute(WATCHED)]
        due = _changes(connection, accounts, ledger.clock(), policy)
    if not due:
        return
    with ledger.unit() as unit:
        ids = [watch.account_id for watch, _ in due]
        lock_credit(unit.connection, ids)
        new: list[tuple[str, Fact]] = []
        for watch, available in _changes(unit.connection, ids, unit.now, unit.policy):
            stream = account_stream(watch.account_id)
            if watch.is_open:
                cleared = BalanceAlertCleared(
                    account_id=watch.account_id, alert=watch.alert, cleared_at=unit.now
                )
                new.append((stream, cleared))
                continue
            assert watch.limit is not None
            raised = BalanceAlertRaised(
                account_id=watch.account_id,
                alert=watch.alert,
                available=available,
                limit=watch.limit,
                raised_at=unit.now,
            )
            about = f"account-{watch.account_id}"
            new += [(stream, raised), notice(unit, watch.account_id, watch.alert, about)]
        unit.append_all(new)


def _changes(
    connection: Connection, account_ids: list[int], now: int, policy: Policy
) -> list[tuple[_Watch, int]]:
    """Alerts to give or to clear at second *now*, each with the credit that is available."""
    if not account_ids:
        return []
    credits = read_credit(connection, account_ids)
    found = []
    for watch in _watches(connection, credits, now):
        available = credits[watch.account_id].available(now, policy)
        is_armed = watch.armed_at is not None and watch.armed_at <= now
        if (watch.is_open or is_armed) and watch.is_open != watch.is_below(available):
            found.append((watch, available))
    return found


def _watches(connection: Connection, credits: dict[int, Credit], now: int) -> list[_Watch]:
    """Every alert that these accounts may be given or may have open."""
    ids = list(credits)
    last = {
        (account_id, alert): (raised_at, cleared_at)
        for account_id, alert, raised_at, cleared_at in connection.execute(
            "SELECT account_id, alert, raised_at, cleared_at FROM balance_alerts"
            " WHERE account_id = ANY(%s)",
            [ids],
        )
    }
    below = {
        account_id: int(nanos)
        for account_id, nanos in connection.execute(
            "SELECT account_id, below FROM top_up_consents"
            " WHERE account_id = ANY(%s) AND status = 'on'",
            [ids],
        )
    }
    exhausted = {
        row[0]
        for row in connection.execute(
            "SELECT account_id FROM account_credit"
            " WHERE account_id = ANY(%s) AND exhausted_at IS NOT NULL",
            [ids],
        )
    }
    watches = []
    for account_id, credit in credits.items():
        limits = _limits(credit, now, below.get(account_id))
        for alert, limit in limits.items():
            raised_at, cleared_at = last.get((account_id, alert), (None, None))
            is_open = raised_at is not None and cleared_at is None
            if limit is None and not is_open:
                continue
            armed_at: int | None = None
            if account_id not in exhausted and not is_open:
                armed_at = now if raised_at is None else raised_at + REARM_SECONDS
            watches.append(_Watch(account_id, alert, limit, armed_at, is_open))
    return watches


def _limits(credit: Credit, now: int, below: int | None) -> dict[BalanceAlert, int | None]:
    """The credit below which each alert is given.

    A runway is a fraction; what it costs is rounded up, so that "below" is exact.
    """
    burn, scale = credit.burn_per_hour(now)
    limits: dict[BalanceAlert, int | None] = {
        alert: -(-burn * hours // scale) if burn else None for alert, hours in RUNWAYS.items()
    }
    # At three quarters of what should have been topped up already: the payment is late, or failed.
    limits[SOON] = None if below is None else -(-below * 3 // 4)
    return limits


def next_due(connection: Connection, now: int) -> int | None:
    """The next second at which a threshold is crossed, or may be told again, if nothing changes."""
    ids = [
        row[0]
        for row in connection.execute(
            "SELECT account_id FROM account_credit c LEFT JOIN top_up_consents t USING (account_id)"
            " WHERE c.exhausted_at IS NULL"
            " AND (c.gpu_rate > 0 OR c.storage_product > 0 OR t.status = 'on')"
        )
    ]
    if not ids:
        return None
    policy = read_policy(connection)
    credits = read_credit(connection, ids)
    due = []
    done: set[int] = set()
    # Credit falls to the highest limit first: where that may be told then, no other comes before.
    for watch in sorted(_watches(connection, credits, now), key=lambda one: -(one.limit or 0)):
        if watch.armed_at is None or watch.limit is None or watch.account_id in done:
            continue
        crossed = credits[watch.account_id].dry_second(now, policy, floor=watch.limit - 1)
        if crossed is None:
            continue
        due.append(max(crossed, watch.armed_at))
        if crossed > max(now, watch.armed_at - 1):
            done.add(watch.account_id)
    return min((second for second in due if second > now), default=None)


def headroom(connection: Connection, account_ids: list[int], now: int) -> dict[int, int]:
    """The nanos that may still be charged to accounts before an alert is due."""
    policy = read_policy(connection)
    credits = read_credit(connection, account_ids)
    found: dict[int, int] = {}
    for watch in _watches(connection, credits, now):
        if watch.armed_at is None or watch.limit is None:
            continue
        left = credits[watch.account_id].available(now, policy) - watch.limit + 1
        if left > 0:
            found[watch.account_id] = min(left, found.get(watch.account_id, left))
    return found
