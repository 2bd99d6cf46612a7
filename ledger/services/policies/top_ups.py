"""Automatic top-ups that are due, and charges whose end is not known (`marketplace.md` §13.2)."""

from __future__ import annotations

from typing import Final

from ledger.domain.money import SECONDS_PER_DAY
from ledger.errors import UnavailableError
from ledger.services import tax_invoices
from ledger.services.caps import day_start
from ledger.services.credit import GRANTED, LOCKED, lock_credit, read_credit
from ledger.services.ledger import Ledger, read_policy
from ledger.services.payments.gateway import Declined, Outcome, PaymentGateway, Pending
from ledger.services.policies.glance import any_of
from ledger.services.top_up import (
    RETRY_SECONDS,
    Open,
    Standing,
    amount_needed,
    finish,
    open_requests,
    read_standings,
    request,
    room_today,
)
from ledger.store.database import Connection

ASK_SECONDS: Final = 60
"""A charge that is pending for longer than this is asked about once in this time."""

_CANDIDATES: Final = f"""
status = 'on' AND NOT EXISTS (
    SELECT 1 FROM top_ups o WHERE o.account_id = top_up_consents.account_id
    AND o.status = 'requested')
AND (SELECT c.posted - coalesce(u.charged, 0)
     - coalesce((SELECT sum(l.amount) FROM ({LOCKED}) AS l WHERE l.account_id = c.account_id), 0)
     - coalesce((SELECT sum(g.amount) FROM ({GRANTED}) AS g WHERE g.account_id = c.account_id), 0)
     - coalesce((SELECT sum(h.amount) FROM holds h
                 WHERE h.account_id = c.account_id AND h.status = 'pending'), 0)
     - 24 * c.gpu_rate - c.storage_product * 86400 / (1000000000::numeric * 2592000) - 1
     FROM account_credit c LEFT JOIN account_usage u USING (account_id)
     WHERE c.account_id = top_up_consents.account_id) < below
"""  # noqa: S608 - a constant of `credit`
"""Accounts that a day's burn could bring below, and that no charge is on its way to."""
TOP_UPS_DUE: Final = any_of(
    f"SELECT 1 FROM top_up_consents WHERE {_CANDIDATES}",  # noqa: S608 - a constant
    "SELECT 1 FROM top_ups WHERE status = 'requested'",
)
"""Whether anything may have to be charged, or its end be asked for."""


def top_up(ledger: Ledger, gateway: PaymentGateway) -> None:
    """Charge what consents ask for, and finish what an earlier run began.

    No transaction is open while the processor is asked, and a slow processor holds up nothing but
    this: run it beside the other policies.
    """
    _request(ledger)
    for one in _to_ask(ledger):
        outcome = _ask(gateway, one)
        if outcome is None or isinstance(outcome, Pending):
            continue
        with ledger.unit() as unit:
            lock_credit(unit.connection, [one.order.account_id])
            finish(unit, one.order.account_id, one.trigger, outcome)


def _request(ledger: Ledger) -> None:
    with ledger.reading() as connection:
        due = _due(connection, ledger.clock())
    if not due:
        return
    with ledger.unit() as unit:
        lock_credit(unit.connection, [standing.account_id for standing, _ in due])
        for standing, amount in _due(unit.connection, unit.now):
            request(unit, standing, amount)


def _due(connection: Connection, now: int) -> list[tuple[Standing, int]]:
    """Consents that ask for a charge at second *now*, with its amount.

    Where the day has no room for the whole of it, none is made: part of it would not do, and would
    be asked for again in the next second.
    """
    standings = [
        one
        for one in read_standings(connection, _CANDIDATES, [])
        if one.failed_at is None or now >= one.failed_at + RETRY_SECONDS
    ]
    if not standings:
        return []
    policy = read_policy(connection)
    credits = read_credit(connection, [one.account_id for one in standings])
    due = []
    for standing in standings:
        available = credits[standing.account_id].available(now, policy)
        amount = amount_needed(standing.consent, available)
        if amount > 0 and _fits(connection, standing, amount, now):
            due.append((standing, amount))
    return due


def _fits(connection: Connection, standing: Standing, amount: int, now: int) -> bool:
    """True when the day has room for the credit and the tax on it: both are charged."""
    charge = tax_invoices.tax_on(connection, standing.account_id, amount)[0].gross
    return charge <= room_today(connection, standing, now)


def _to_ask(ledger: Ledger) -> list[Open]:
    """Open requests to ask the processor about now: young ones always, old ones once a minute."""
    with ledger.database.pool.connection() as connection:
        requests = open_requests(connection)
        now = ledger.clock()
        old = [one for one in requests if one.requested_at + ASK_SECONDS <= now]
        if not old:
            return requests
        row = connection.execute(
            "SELECT position FROM projection_positions WHERE name = 'top_ups'"
        ).fetchone()
        if row is not None and now < row[0] + ASK_SECONDS:
            return [one for one in requests if one not in old]
        connection.execute(
            "INSERT INTO projection_positions VALUES ('top_ups', 0, %s)"
            " ON CONFLICT (name) DO UPDATE SET position = EXCLUDED.position",
            [now],
        )
        return requests


def _ask(gateway: PaymentGateway, one: Open) -> Outcome | None:
    """What became of a charge; none when the processor did not say."""
    try:
        if one.is_allowed:
            return gateway.charge(one.order)
        # The consent is gone: what was charged before is booked, what was not never will be.
        return gateway.outcome(one.order) or Declined("consent_revoked")
    except UnavailableError:
        return None


def next_due(connection: Connection, now: int) -> int | None:
    """The next second at which a charge begins or may be tried again, if nothing else happens."""
    standings = read_standings(connection, "status = 'on'", [])
    if not standings:
        return None
    policy = read_policy(connection)
    credits = read_credit(connection, [one.account_id for one in standings])
    due = []
    for standing in standings:
        credit = credits[standing.account_id]
        second = credit.dry_second(now, policy, floor=standing.consent.below - 1)
        if second is None:
            continue
        if standing.failed_at is not None:
            second = max(second, standing.failed_at + RETRY_SECONDS)
        if second <= now:
            # It would have begun if the day had room: the next one has.
            second = day_start(now) + SECONDS_PER_DAY
        due.append(second)
    return min((second for second in due if second > now), default=None)


def headroom(connection: Connection, account_ids: list[int], now: int) -> dict[int, int]:
    """The nanos that may still be charged to accounts before a top-up is due."""
    policy = read_policy(connection)
    credits = read_credit(connection, account_ids)
    found = {}
    for standing in read_standings(
        connection, "status = 'on' AND account_id = ANY(%s)", [account_ids]
    ):
        available = credits[standing.account_id].available(now, policy)
        left = available - standing.consent.below + 1
        if left > 0:
            found[standing.account_id] = left
    return found
