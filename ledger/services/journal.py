"""The books as a journal: accounts, opening balances, transactions, balances at month ends.

Everything comes out of cursors in the order of dates, so a journal of any length takes the memory
of one transaction. The balances are added up by the database, month by month, apart from the
transactions, so whoever checks the journal checks one against the other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any, Final, Literal, NamedTuple

from ledger.domain.chart import OPENING, journal_name
from ledger.domain.ids import month_start, next_month_start, rfc3339
from ledger.domain.money import SECONDS_PER_DAY
from ledger.errors import RejectedError
from ledger.services.questions.books import posting_count
from ledger.services.questions.postings import LINES, POSTINGS
from ledger.store.database import Connection

RollUp = Literal["hour", "month"]
"""`hour`: a transaction per instance and hour, and one for every other movement. `month`: one per
month, kind and pair of accounts."""
Progress = Callable[[int, int], None]
"""Called with (movements done, movements in all)."""
_PAGE_ROWS: Final = 2_000
_STEP: Final = 1_000


class Opened(NamedTuple):
    """An account that the journal uses, and the second of its first line."""

    account: str
    at: int


class JournalLine(NamedTuple):
    """Nanos on an account: debits above zero."""

    account: str
    amount: int


class Transaction(NamedTuple):
    """Lines that add up to zero, dated by the second *at*."""

    at: int
    kind: str
    about: str
    first_position: int
    last_position: int
    lines: list[JournalLine]


class BalanceAssertion(NamedTuple):
    """What an account stands at before second *at*, the start of a day."""

    at: int
    account: str
    balance: int


Item = Opened | Transaction | BalanceAssertion

# Month and boundary of what posts in the window; what posts before it is its opening balance.
_BALANCES: Final = f"""
SELECT boundary, name, person, sum(sum(amount)) OVER (PARTITION BY name, person ORDER BY boundary)
FROM (
    SELECT CASE WHEN posted_at < %(start)s THEN %(start)s::bigint ELSE
               least(extract(epoch FROM (date_trunc('month', to_timestamp(posted_at)
                     AT TIME ZONE 'UTC') + interval '1 month') AT TIME ZONE 'UTC')::bigint,
                     %(until)s::bigint) END AS boundary, name, person, amount
    FROM {LINES} l WHERE posted_at < %(until)s
) AS dated
GROUP BY boundary, name, person ORDER BY boundary, name, person
"""  # noqa: S608 - constants
_ACCOUNTS: Final = f"""
SELECT name, person, greatest(min(posted_at), %(start)s) FROM {LINES} l
WHERE posted_at < %(until)s GROUP BY name, person ORDER BY name, person
"""  # noqa: S608 - constants
_BY_HOUR: Final = f"""
SELECT posted_at, CASE WHEN kind = 'usage' THEN 0 ELSE position END AS entry, kind, reference,
       name, person, sum(amount), min(position), max(position), count(*)
FROM {LINES} l WHERE posted_at >= %(start)s AND posted_at < %(until)s
GROUP BY 1, 2, 3, 4, 5, 6 ORDER BY 1, 2, 3, 4, 5, 6
"""  # noqa: S608 - constants
_BY_MONTH: Final = f"""
SELECT extract(epoch FROM (date_trunc('month', to_timestamp(posted_at) AT TIME ZONE 'UTC'))
               AT TIME ZONE 'UTC')::bigint AS month,
       kind, debit, debit_account, credit, credit_account, sum(amount), min(position),
       max(position), count(*)
FROM {POSTINGS} p WHERE posted_at >= %(start)s AND posted_at < %(until)s
GROUP BY 1, 2, 3, 4, 5, 6 ORDER BY 1, 2, 3, 4, 5, 6
"""  # noqa: S608 - constants


def journal(
    connection: Connection,
    start: int,
    until: int,
    roll_up: RollUp = "hour",
    progress: Progress | None = None,
) -> Iterator[Item]:
    """The books of `[start, until)`: accounts first, then everything in the order of dates.

    Args:
        connection: One view of the books; it is used until the last item was taken.
        start: First second, the start of a UTC day; what came before is in opening balances.
        until: The start of a UTC day.
        roll_up: What makes one transaction.
        progress: Told how far it is.

    Raises:
        RejectedError: `invalid_args` unless both are starts of days, in this order.
    """
    if start % SECONDS_PER_DAY or until % SECONDS_PER_DAY or until <= start:
        message = "a journal is of whole UTC days: from the start of one to that of a later one"
        raise RejectedError("invalid_args", message)
    window = {"start": start, "until": until}
    with ExitStack() as stack:

        def rows(name: str, query: str) -> Iterator[tuple[Any, ...]]:
            cursor = stack.enter_context(connection.cursor(f"journal_{name}"))
            cursor.itersize = _PAGE_ROWS
            cursor.execute(query, window)
            return iter(cursor)

        opening = False
        for name, person, first in rows("accounts", _ACCOUNTS):
            opening = opening or first == start
            yield Opened(journal_name(name, person), first)
        if opening:
            yield Opened(OPENING, start)
        total = posting_count(connection, start, until) if progress else 0
        balances = _assertions(rows("balances", _BALANCES))
        waiting = next(balances, None)
        while waiting is not None and waiting.at == start:
            if waiting.balance:
                yield _opening(waiting)
            waiting = next(balances, None)
        if roll_up == "hour":
            transactions = _by_hour(rows("entries", _BY_HOUR))
        else:
            transactions = _by_month(rows("entries", _BY_MONTH), until)
        done, told = 0, 0
        for transaction, count in transactions:
            while waiting is not None and waiting.at <= transaction.at:
                yield waiting
                waiting = next(balances, None)
            if transaction.lines:
                yield transaction
            done += count
            if progress and done >= told + _STEP:
                progress(done, total)
                told = done
        while waiting is not None:
            yield waiting
            waiting = next(balances, None)
        if progress:
            progress(total, total)


def _assertions(rows: Iterator[tuple[Any, ...]]) -> Iterator[BalanceAssertion]:
    for boundary, name, person, balance in rows:
        yield BalanceAssertion(boundary, journal_name(name, person), int(balance))


def _opening(balance: BalanceAssertion) -> Transaction:
    lines = [
        JournalLine(balance.account, balance.balance),
        JournalLine(OPENING, -balance.balance),
    ]
    return Transaction(balance.at, "opening", f"balance of {balance.account}", 0, 0, lines)


def _by_hour(rows: Iterator[tuple[Any, ...]]) -> Iterator[tuple[Transaction, int]]:
    """Neighbouring lines of one transaction, put together; with how many movements it has."""
    key: tuple[Any, ...] | None = None
    lines: list[JournalLine] = []
    first = last = count = 0
    for row in rows:
        if row[:4] != key:
            if key is not None:
                yield _hour(key, lines, first, last), count // 2
            key, lines, count = row[:4], [], 0
            first, last = row[7], row[8]
        if row[6]:
            lines.append(JournalLine(journal_name(row[4], row[5]), int(row[6])))
        first, last, count = min(first, row[7]), max(last, row[8]), count + row[9]
    if key is not None:
        yield _hour(key, lines, first, last), count // 2


def _hour(key: tuple[Any, ...], lines: list[JournalLine], first: int, last: int) -> Transaction:
    at, _, kind, reference = key
    about = f"{reference}, posted {rfc3339(at)}"
    return Transaction(at, kind, about, first, last, lines)


def _by_month(rows: Iterator[tuple[Any, ...]], until: int) -> Iterator[tuple[Transaction, int]]:
    for month, kind, debit, debtor, credit, creditor, amount, first, last, count in rows:
        at = min(next_month_start(month), until) - 1
        nanos = int(amount)
        sides = (journal_name(debit, debtor), journal_name(credit, creditor))
        lines = [JournalLine(sides[0], nanos), JournalLine(sides[1], -nanos)]
        if sides[0] == sides[1] or not nanos:
            lines = []
        about = f"{count} movements of {rfc3339(month_start(month))[:7]}"
        yield Transaction(at, kind, about, first, last, lines), count
