"""Money that came to an account or left it outside the meters, as a list with filters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Literal

import msgspec

from ledger.services.questions.conditions import Filters, after, where
from ledger.services.questions.offer_fields import Field
from ledger.services.questions.transfers import RETURNED_DEPOSITS
from ledger.store.database import Connection

MoneyKind = Literal[
    "deposit", "refund", "transfer", "prepaid", "returned", "payout", "credited", "debited"
]


class MoneyRow(msgspec.Struct, frozen=True, kw_only=True):
    """One movement; `amount` in nanos, above zero when the account got it."""

    position: int
    part: int
    kind: MoneyKind
    reference: str
    at: int
    amount: int


class MoneyRows(msgspec.Struct, frozen=True, kw_only=True):
    """A page of movements; `after` is null on the last one."""

    rows: list[MoneyRow]
    total: int
    after: list[Any] | None


FIELDS: Final = {
    "position": Field("r.position", "whole", ""),
    "kind": Field("r.kind", "text", ""),
    "reference": Field("r.reference", "text", ""),
    "at": Field("r.at", "whole", ""),
    "amount": Field("r.amount", "dollars", ""),
    "amount_cents": Field("(abs(r.amount) / 10000000.0)", "number", ""),
    "is_credit": Field("(r.amount > 0)", "flag", ""),
}
_ROWS: Final = f"""
WITH r AS (
    SELECT position, leg::int AS part,
           CASE kind WHEN 'refund' THEN 'refund' WHEN 'transfer' THEN 'transfer'
                     WHEN 'reservation' THEN 'prepaid' ELSE 'debited' END AS kind,
           reference, occurred_at AS at, -amount AS amount
    FROM movements WHERE debit_account = %(account)s AND debit = 'renter_credit'
    UNION ALL
    SELECT position, 100 + leg, CASE kind WHEN 'deposit' THEN 'deposit'
                                          WHEN 'transfer' THEN 'transfer' ELSE 'credited' END,
           reference, occurred_at, amount
    FROM movements WHERE credit_account = %(account)s AND credit = 'renter_credit'
    UNION ALL
    SELECT position, 200 + leg, 'payout', reference, occurred_at, -amount
    FROM movements WHERE debit_account = %(account)s AND debit = 'host_payable'
      AND kind = 'payout'
    UNION ALL
    SELECT ended.position, 300, 'returned', 'instance-' || ended.instance_id, ended.ended_at,
           ended.amount
    FROM ({RETURNED_DEPOSITS}) AS ended WHERE ended.account_id = %(account)s
)
"""  # noqa: S608 - constants


def money_rows(
    connection: Connection,
    account_id: int,
    *,
    filters: Filters | None = None,
    latest_first: bool = False,
    last: Sequence[Any] | None = None,
    limit: int = 100,
) -> MoneyRows:
    """The movements of an account in the order of time.

    Raises:
        RejectedError: `invalid_args` for a column, operator or token that this list does not have.
    """
    values: dict[str, Any] = {"account": account_id, "limit": limit + 1}
    matching = " AND ".join(["r.amount <> 0", *where(FIELDS, filters or {}, values)])
    total = connection.execute(
        f"{_ROWS} SELECT count(*) FROM r WHERE {matching}",  # noqa: S608 - own names
        values,
    ).fetchone()
    way: Literal["asc", "desc"] = "desc" if latest_first else "asc"
    columns = [("r.at", way), ("r.position", way), ("r.part", way)]
    if last is not None:
        matching += " AND " + after(columns, last, values)
    rows = connection.execute(
        f"{_ROWS} SELECT r.position, r.part, r.kind, r.reference, r.at, r.amount FROM r"  # noqa: S608 - own names
        f" WHERE {matching} ORDER BY {', '.join(f'{sql} {way}' for sql, _ in columns)}"
        " LIMIT %(limit)s",
        values,
    ).fetchall()
    assert total is not None
    page = rows[:limit]
    return MoneyRows(
        rows=[
            MoneyRow(
                position=row[0],
                part=row[1],
                kind=row[2],
                reference=row[3],
                at=row[4],
                amount=int(row[5]),
            )
            for row in page
        ],
        total=total[0],
        after=[page[-1][4], page[-1][0], page[-1][1]] if len(rows) > limit else None,
    )
