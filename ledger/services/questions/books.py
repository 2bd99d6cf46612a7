"""The books as of any instant: balances per ledger account, and the lines that lead to them.

"As of" an instant includes what posts in that second (`postings`). Amounts of lines and balances
are debits minus credits, as accountants read them; an account statement turns the sign round, so
that what its owner has is above zero.
"""

from __future__ import annotations

import re
from typing import Final

import msgspec

from ledger.domain.chart import CHART, journal_name, ledger_account
from ledger.errors import NotFoundError, RejectedError
from ledger.services.accounts import require_account
from ledger.services.questions.balances import TrialBalanceRow
from ledger.services.questions.postings import LINES, POSTINGS
from ledger.store.database import Connection

FOREVER: Final = 2**62
_KEY: Final = re.compile(r"[0-9]{1,18}(:[0-9]{1,18}){7}")
_FIELDS: Final = "posted_at, position, instance_id, hour, terms_no, booked, part, no"


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """One line of a ledger account: an amount, what it was for, and the balance after it.

    `key` orders the lines and pages them. `other` is the ledger account on the other side.
    """

    key: str
    posted_at: int
    kind: str
    reference: str
    ledger_account: str
    account_id: int | None
    other: str
    other_account: int | None
    amount: int
    balance: int
    position: int


class Statement(msgspec.Struct, frozen=True, kw_only=True):
    """The lines of a ledger account in a window. opening + Σ amounts of all pages = closing."""

    ledger_account: str
    account_id: int | None
    opening: int
    closing: int
    lines: list[Line]


class AccountBalance(msgspec.Struct, frozen=True, kw_only=True):
    """What one ledger account of one person (or of the platform, none) stands at."""

    journal_account: str
    ledger_account: str
    account_id: int | None
    balance: int


def trial_balance_at(connection: Connection, as_of: int) -> list[TrialBalanceRow]:
    """Debits and credits per ledger account, of everything that posts up to second *as_of*."""
    rows = connection.execute(
        "SELECT name, sum(greatest(amount, 0)), sum(greatest(-amount, 0))"  # noqa: S608 - a constant
        f" FROM {LINES} l WHERE posted_at <= %s GROUP BY name ORDER BY name",
        [as_of],
    )
    return [
        TrialBalanceRow(ledger_account=name, debit=int(debit), credit=int(credit))
        for name, debit, credit in rows
    ]


def balances_at(
    connection: Connection, as_of: int, *, after: str = "", limit: int = 1_000
) -> list[AccountBalance]:
    """Balances (debits minus credits) of every ledger account and person that is not at zero.

    Ordered by (ledger account, person); *after* is `name:person` of the last row.
    """
    name, _, person = after.partition(":")
    if after and not person.isdecimal():
        raise RejectedError("invalid_args", f"{after!r} is no key of a balance")
    rows = connection.execute(
        "SELECT name, person, sum(amount) FROM"  # noqa: S608 - a constant
        f" {LINES} l WHERE posted_at <= %s AND (name, coalesce(person, 0)) > (%s, %s)"
        " GROUP BY name, person HAVING sum(amount) <> 0"
        " ORDER BY name, coalesce(person, 0) LIMIT %s",
        [as_of, name, int(person) if after else -1, limit],
    )
    return [
        AccountBalance(
            journal_account=journal_name(row[0], row[1]),
            ledger_account=row[0],
            account_id=row[1],
            balance=int(row[2]),
        )
        for row in rows
    ]


def general_ledger(
    connection: Connection,
    name: str,
    *,
    account_id: int | None = None,
    start: int = 0,
    as_of: int = FOREVER,
    after: str = "",
    limit: int = 100,
) -> Statement:
    """The lines of one ledger account that post in `[start, as_of]`, with running balances.

    Args:
        connection: One view of the books.
        name: A ledger account such as `renter_credit`.
        account_id: Only one person's part of it; all of it by default.
        start: First second of the lines; what came before is the opening balance.
        as_of: Last second of the lines.
        after: Key of the last line of the page before.
        limit: Lines of this page.

    Raises:
        NotFoundError: `no_such_ledger_account`.
        RejectedError: `invalid_args` for a key that this list never gave.
    """
    _require(name)
    if after and not _KEY.fullmatch(after):
        raise RejectedError("invalid_args", f"{after!r} is no key of a line: take it from a page")
    key = [int(part) for part in after.split(":")] if after else [-1] * 8
    values = {"name": name, "person": account_id, "start": start, "until": as_of}
    sums = connection.execute(
        "SELECT coalesce(sum(amount) FILTER (WHERE posted_at < %(start)s), 0),"  # noqa: S608 - constants
        " coalesce(sum(amount), 0), coalesce(sum(amount) FILTER (WHERE posted_at < %(start)s"
        f" OR ({_FIELDS}) <= (%(k0)s, %(k1)s, %(k2)s, %(k3)s, %(k4)s, %(k5)s, %(k6)s, %(k7)s)), 0)"
        f" FROM {LINES} l WHERE name = %(name)s AND posted_at <= %(until)s"
        " AND (%(person)s::bigint IS NULL OR person = %(person)s)",
        {**values, **{f"k{at}": part for at, part in enumerate(key)}},
    ).fetchone()
    assert sums is not None
    rows = connection.execute(
        f"SELECT {_FIELDS}, kind, reference, name, person, other, other_person, amount"  # noqa: S608 - constants
        f" FROM {LINES} l WHERE name = %(name)s AND posted_at >= %(start)s"
        " AND posted_at <= %(until)s AND (%(person)s::bigint IS NULL OR person = %(person)s)"
        f" AND ({_FIELDS}) > (%(k0)s, %(k1)s, %(k2)s, %(k3)s, %(k4)s, %(k5)s, %(k6)s, %(k7)s)"
        f" ORDER BY {_FIELDS} LIMIT %(limit)s",
        {**values, "limit": limit, **{f"k{at}": part for at, part in enumerate(key)}},
    ).fetchall()
    balance = int(sums[2])
    lines = []
    for row in rows:
        balance += int(row[14])
        lines.append(
            Line(
                key=":".join(map(str, row[:8])),
                posted_at=row[0],
                position=row[1],
                kind=row[8],
                reference=row[9],
                ledger_account=row[10],
                account_id=row[11],
                other=row[12],
                other_account=row[13],
                amount=int(row[14]),
                balance=balance,
            )
        )
    return Statement(
        ledger_account=name,
        account_id=account_id,
        opening=int(sums[0]),
        closing=int(sums[1]),
        lines=lines,
    )


def account_statement(
    connection: Connection,
    account_id: int,
    name: str = "renter_credit",
    *,
    start: int = 0,
    as_of: int = FOREVER,
    after: str = "",
    limit: int = 100,
) -> Statement:
    """What one account had and how that changed: the general ledger seen by its owner.

    Balances of what the platform owes are turned round, so that credit is above zero.

    Raises:
        NotFoundError: `no_such_account`; `no_such_ledger_account` also for one that no person has.
    """
    require_account(connection, account_id)
    _require(name)
    if not ledger_account(name).per_person:
        message = f"{name} is the platform's own; people have renter_credit, host_payable and more"
        raise NotFoundError("no_such_ledger_account", message)
    found = general_ledger(
        connection, name, account_id=account_id, start=start, as_of=as_of, after=after, limit=limit
    )
    if ledger_account(name).kind != "Liabilities":
        return found
    return Statement(
        ledger_account=name,
        account_id=account_id,
        opening=-found.opening,
        closing=-found.closing,
        lines=[
            msgspec.structs.replace(line, amount=-line.amount, balance=-line.balance)
            for line in found.lines
        ],
    )


def posting_count(connection: Connection, start: int, until: int) -> int:
    """Movements that post in `[start, until)`."""
    row = connection.execute(
        f"SELECT count(*) FROM {POSTINGS} p WHERE posted_at >= %s AND posted_at < %s",  # noqa: S608 - a constant
        [start, until],
    ).fetchone()
    assert row is not None
    return int(row[0])


def _require(name: str) -> None:
    if name not in CHART:
        shown = ", ".join(sorted(CHART))
        message = f"there is no ledger account {name!r}; there are {shown}"
        raise NotFoundError("no_such_ledger_account", message)
