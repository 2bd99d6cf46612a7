"""Usage invoices: what a closed period consumed, frozen in a fact, numbered without gaps.

`PeriodClosed` cuts the log: usage folded before it is booked in its own period, usage after it in
the next one. So once the usage projection has passed the cut, the rows of a period can change no
more, and its invoice can be written whenever there is time.
"""

from __future__ import annotations

from typing import Final

import msgspec

from ledger.domain.events import InvoiceIssued, InvoiceLine
from ledger.domain.ids import account_stream, next_month_start
from ledger.errors import NotFoundError
from ledger.meters.pricing import METERS
from ledger.projections.runner import position_of
from ledger.services.ledger import Ledger, Unit
from ledger.services.promotions import read_promotions
from ledger.store.database import Connection

SERIES: Final = "USE"
INVOICES_DUE: Final = """
SELECT c.account_id, c.period_from, c.period_until FROM closed_periods c
LEFT JOIN billing b USING (account_id)
WHERE c.number IS NULL AND c.position <= %(folded)s AND (b.zero_invoices OR EXISTS (
    SELECT 1 FROM usage_hours h WHERE h.account_id = c.account_id
    AND h.booked < c.period_until AND h.booked >= CASE WHEN EXISTS (
        SELECT 1 FROM closed_periods p
        WHERE p.account_id = c.account_id AND p.period_from < c.period_from)
        THEN c.period_from ELSE 0 END
    AND h.gpu_charge + h.storage_charge + h.up_charge + h.down_charge
        + h.reserved_idle_charge > 0))
ORDER BY c.period_until, c.account_id
"""
"""Closed periods whose usage can change no more, and that have something to say."""
_BATCH: Final = 200


def issue_due(ledger: Ledger) -> int:
    """Issue the invoices of all closed periods that have lines; returns how many."""
    issued = 0
    while True:
        with ledger.reading() as connection:
            if not connection.execute(
                f"{INVOICES_DUE} LIMIT 1", {"folded": position_of(connection)}
            ).fetchone():
                return issued
        with ledger.unit() as unit:
            due = unit.connection.execute(
                f"{INVOICES_DUE} LIMIT {_BATCH}", {"folded": position_of(unit.connection)}
            ).fetchall()
            for account_id, period_from, period_until in due:
                _issue(unit, account_id, period_from, period_until)
            issued += len(due)


class Preview(msgspec.Struct, frozen=True, kw_only=True):
    """What the invoice of the running period would say if it were issued now."""

    account_id: int
    period_from: int
    period_until: int
    opening: int
    movements: int
    total: int
    closing: int
    lines: list[InvoiceLine]


def preview(connection: Connection, account_id: int, now: int) -> Preview:
    """The invoice of the running period as far as it has come; nothing is issued.

    Raises:
        NotFoundError: `no_such_account`.
    """
    row = connection.execute(
        "SELECT closed_until, (SELECT min(boundary) FROM planned_boundaries p"
        " WHERE p.account_id = a.account_id AND p.boundary > greatest(%s, a.closed_until))"
        " FROM accounts a WHERE account_id = %s",
        [now, account_id],
    ).fetchone()
    if row is None:
        raise NotFoundError("no_such_account", f"there is no account {account_id}")
    period_from, period_until = row[0], row[1] or next_month_start(max(now, row[0]))
    lines = _lines(connection, account_id, period_from, period_until)
    total = sum(line.amount for line in lines)
    opening, movements = _balance(connection, account_id, period_from, period_until)
    return Preview(
        account_id=account_id,
        period_from=period_from,
        period_until=period_until,
        opening=opening,
        movements=movements,
        total=total,
        closing=opening + movements - total,
        lines=lines,
    )


def _issue(unit: Unit, account_id: int, period_from: int, period_until: int) -> None:
    lines = _lines(unit.connection, account_id, period_from, period_until)
    total = sum(line.amount for line in lines)
    opening, movements = _balance(unit.connection, account_id, period_from, period_until)
    closing = opening + movements - total
    uncovered = _uncovered(unit.connection, account_id, period_until, closing, total)
    unit.append(
        account_stream(account_id),
        InvoiceIssued(
            account_id=account_id,
            number=f"{SERIES}-{unit.next_id('invoice'):08d}",
            period_from=period_from,
            period_until=period_until,
            opening=opening,
            movements=movements,
            total=total,
            closing=closing,
            paid=total - uncovered,
            promotional=_promotional(unit.connection, account_id, period_until, total),
            lines=lines,
            issued_at=unit.now,
        ),
    )


def _uncovered(
    connection: Connection, account_id: int, period_until: int, closing: int, total: int
) -> int:
    """What no credit covers of a total, counting what came in after the period as well.

    Documents before this one are paid first.
    """
    row = connection.execute(
        "SELECT (SELECT coalesce(sum(amount), 0) FROM movements WHERE credit = 'renter_credit'"
        "  AND credit_account = %(account)s AND occurred_at >= %(until)s)"
        " - (SELECT coalesce(sum(amount), 0) FROM movements WHERE debit = 'renter_credit'"
        "  AND debit_account = %(account)s AND occurred_at >= %(until)s),"
        " (SELECT coalesce(sum(due), 0) FROM invoices WHERE account_id = %(account)s)",
        {"account": account_id, "until": period_until},
    ).fetchone()
    assert row is not None
    owed = max(0, -(closing + max(0, int(row[0]))))
    return min(total, max(0, owed - int(row[1])))


def _promotional(connection: Connection, account_id: int, period_until: int, total: int) -> int:
    """What grants paid of a total: all they paid for usage, less what earlier documents said.

    Never more than the total: a document is never below zero.
    """
    promotions = read_promotions(connection, [account_id], past=True).get(account_id)
    if promotions is None:
        return 0
    row = connection.execute(
        "SELECT coalesce(sum(promotional), 0) FROM invoices WHERE account_id = %s", [account_id]
    ).fetchone()
    assert row is not None
    paid = promotions.paid_usage(before=period_until) - int(row[0])
    return min(total, max(0, paid))


def _balance(
    connection: Connection, account_id: int, period_from: int, period_until: int
) -> tuple[int, int]:
    """Credit at the start of the period as documents say, and the account's own movements in it."""
    row = connection.execute(
        "SELECT coalesce(sum(amount) FILTER (WHERE occurred_at < %(start)s), 0),"
        " coalesce(sum(amount) FILTER (WHERE occurred_at >= %(start)s), 0) FROM ("
        " SELECT amount, occurred_at FROM movements"
        "  WHERE credit = 'renter_credit' AND credit_account = %(account)s"
        " UNION ALL SELECT -amount, occurred_at FROM movements"
        "  WHERE debit = 'renter_credit' AND debit_account = %(account)s) AS own"
        " WHERE occurred_at < %(end)s",
        {"account": account_id, "start": period_from, "end": period_until},
    ).fetchone()
    billed = connection.execute(
        "SELECT coalesce(sum(total), 0) FROM invoices WHERE account_id = %s AND period_until <= %s",
        [account_id, period_from],
    ).fetchone()
    assert row is not None
    assert billed is not None
    return int(row[0]) - int(billed[0]), int(row[1])


_LINES = """
SELECT h.instance_id, h.terms_no, {own} AS own_period, bool_or(h.first_second < h.booked),
       s.since, s.kind,
       s.gpu_rate, s.storage_rate, s.up_rate, s.down_rate, s.gpu_rate,
       min(h.first_second), max(h.until),
       sum(h.gpu_quantity), sum(h.gpu_charge), sum(h.storage_quantity), sum(h.storage_charge),
       sum(h.up_quantity), sum(h.up_charge), sum(h.down_quantity), sum(h.down_charge),
       sum(h.reserved_idle_quantity), sum(h.reserved_idle_charge)
FROM usage_hours h JOIN rate_segments s USING (instance_id, terms_no)
WHERE h.account_id = %(account)s AND h.booked < %(until)s AND h.booked >= CASE WHEN EXISTS (
    SELECT 1 FROM closed_periods p
    WHERE p.account_id = %(account)s AND p.period_from < %(start)s) THEN %(start)s ELSE 0 END
GROUP BY h.instance_id, h.terms_no, h.first_second < h.booked, own_period,
         s.since, s.kind, s.gpu_rate, s.storage_rate, s.up_rate, s.down_rate
ORDER BY min(h.hour), h.instance_id, h.terms_no
"""
_OWN_MONTH: Final = (
    "extract(epoch FROM date_trunc('month', to_timestamp(h.hour * 3600) AT TIME ZONE 'UTC'))::int8"
)
_OWN_PERIOD: Final = (
    "CASE WHEN h.first_second >= %(start)s THEN %(start)s ELSE coalesce((SELECT max(c.period_from)"
    " FROM closed_periods c WHERE c.account_id = h.account_id"
    " AND c.period_from <= h.first_second), %(start)s) END"
)
"""The period in which usage lies: it may be an earlier one than that in which it is booked."""


def _lines(
    connection: Connection, account_id: int, period_from: int, period_until: int
) -> list[InvoiceLine]:
    """One line per instance, meter and rate segment; late usage apart; no zero lines."""
    lines = []
    chosen = connection.execute(
        "SELECT 1 FROM billing WHERE account_id = %s", [account_id]
    ).fetchone()
    query = _LINES.format(own=_OWN_MONTH if chosen is None else _OWN_PERIOD)
    place = {"account": account_id, "start": period_from, "until": period_until}
    for row in connection.execute(query, place):
        instance_id, _, own_period, late, since, kind = row[:6]
        rates = dict(zip(METERS, row[6:11], strict=True))
        used_from, used_until = row[11], row[12]
        for index, meter in enumerate(METERS):
            quantity, amount = int(row[13 + 2 * index]), int(row[14 + 2 * index])
            if amount == 0:
                continue
            lines.append(
                InvoiceLine(
                    instance_id=instance_id,
                    meter=meter,
                    segment_from=since,
                    kind=kind,
                    rate=int(rates[meter]),
                    quantity=quantity,
                    amount=amount,
                    late=late,
                    period_from=own_period,
                    used_from=used_from,
                    used_until=used_until,
                )
            )
    return lines
