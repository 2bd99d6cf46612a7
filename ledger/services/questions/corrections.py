"""What was charged, as documents said it and as it is known: two times, both from facts alone.

A correction has the second it was made (`corrected_at`) and the second since when it applies
(`effective_at`). What was known at a second is what statements and corrections had been recorded by
then; no balance of the past is kept anywhere that a correction could leave stale.
"""

from __future__ import annotations

from typing import Any

import msgspec

from ledger.domain.charge import METERS, Metered
from ledger.domain.money import SECONDS_PER_DAY, SECONDS_PER_HOUR
from ledger.store.database import Connection


class CorrectionView(msgspec.Struct, frozen=True, kw_only=True):
    """A reversal of `charge`, or a replacement (`kind` charge) that corrects it."""

    correction_id: int
    kind: str
    charge: str
    account_id: int
    host_id: int
    instance_id: int
    meter: str
    quantity: int
    amount: int
    fee: int
    depth: int
    dispute_id: int | None
    reason: str
    period_from: int
    actor: str
    approved_by: str | None
    cause: int | None
    policy_version: int
    effective_at: int
    corrected_at: int
    position: int


class ChargeAsSeen(msgspec.Struct, frozen=True, kw_only=True):
    """One charge in a window. amount = charged - reversed + posted."""

    charge: str
    instance_id: int
    meter: str
    segment_from: int
    quantity: int
    charged: int
    reversed: int
    posted: int
    amount: int
    documents: list[str]


_CORRECTION = ", ".join(f"c.{name}" for name in CorrectionView.__struct_fields__)
_NUMBERS = frozenset({"quantity", "amount", "fee"})


def corrections(
    connection: Connection,
    *,
    account_id: int | None = None,
    host_id: int | None = None,
    instance_id: int | None = None,
    charge: str | None = None,
    after: int = 0,
    limit: int = 100,
) -> list[CorrectionView]:
    """Reversals and replacements by id."""
    rows = connection.execute(
        f"SELECT {_CORRECTION} FROM corrections c WHERE c.correction_id > %(after)s"  # noqa: S608 - a constant
        " AND (%(account)s::bigint IS NULL OR c.account_id = %(account)s)"
        " AND (%(host)s::bigint IS NULL OR c.host_id = %(host)s)"
        " AND (%(instance)s::bigint IS NULL OR c.instance_id = %(instance)s)"
        " AND (%(charge)s::text IS NULL OR c.charge = %(charge)s)"
        " ORDER BY c.correction_id LIMIT %(limit)s",
        {
            "after": after,
            "account": account_id,
            "host": host_id,
            "instance": instance_id,
            "charge": charge,
            "limit": limit,
        },
    )
    return [_correction(row) for row in rows]


def _correction(row: tuple[Any, ...]) -> CorrectionView:
    fields: dict[str, Any] = dict(zip(CorrectionView.__struct_fields__, row, strict=True))
    for name in _NUMBERS:
        fields[name] = int(fields[name])
    return CorrectionView(**fields)


# --- two times -----------------------------------------------------------------------------------

_INVOICED = """
SELECT l.instance_id, l.meter, l.segment_from, sum(l.quantity), sum(l.amount),
       array_agg(DISTINCT l.number), 0
FROM invoice_lines l JOIN invoices i USING (number)
WHERE (%(account)s::bigint IS NULL OR i.account_id = %(account)s)
  AND (%(instance)s::bigint IS NULL OR l.instance_id = %(instance)s)
  AND l.used_from < %(until)s AND l.used_until > %(start)s AND i.issued_at <= %(known_at)s
GROUP BY 1, 2, 3
"""
_STATED = """
SELECT instance_id, meter, segment_from, sum(quantity), sum(amount), ARRAY[]::text[], charge
FROM statement_lines
WHERE (%(account)s::bigint IS NULL OR account_id = %(account)s)
  AND (%(instance)s::bigint IS NULL OR instance_id = %(instance)s)
  AND used_day >= %(first_day)s AND used_day < %(until)s AND issued_at <= %(known_at)s
GROUP BY 1, 2, 3, 7
"""
_METERED = " UNION ALL ".join(
    f"SELECT h.instance_id, '{meter}' AS meter, s.since, sum(h.{meter}_quantity),"  # noqa: S608 - constants
    f" sum(h.{meter}_charge), ARRAY[]::text[], h.terms_no::text"
    " FROM usage_hours h JOIN rate_segments s USING (instance_id, terms_no)"
    " WHERE (%(account)s::bigint IS NULL OR h.account_id = %(account)s)"
    "  AND (%(instance)s::bigint IS NULL OR h.instance_id = %(instance)s)"
    "  AND h.hour >= %(first_hour)s AND h.hour < %(end_hour)s"
    f" GROUP BY 1, 3, 7 HAVING sum(h.{meter}_charge) > 0"
    for meter in METERS
)
_CORRECTED = """
SELECT charge, kind, sum(amount) FROM corrections
WHERE (%(account)s::bigint IS NULL OR account_id = %(account)s)
  AND (%(instance)s::bigint IS NULL OR instance_id = %(instance)s)
  AND effective_at >= %(start)s AND effective_at < %(until)s AND corrected_at <= %(known_at)s
GROUP BY charge, kind ORDER BY charge, kind
"""


def as_invoiced(
    connection: Connection,
    *,
    start: int,
    until: int,
    account_id: int | None = None,
    instance_id: int | None = None,
    known_at: int | None = None,
) -> list[ChargeAsSeen]:
    """Charges as usage invoices said them when they were issued: lines that touch the window.

    Corrections change nothing here; a document stays as it was.
    """
    values = _values(start, until, account_id, instance_id, known_at)
    found = []
    for instance, meter, since, quantity, amount, documents, _ in connection.execute(
        _INVOICED, values
    ):
        found.append(
            ChargeAsSeen(
                charge=f"instance-{instance}.{meter}@{since}",
                instance_id=instance,
                meter=meter,
                segment_from=since,
                quantity=int(quantity),
                charged=int(amount),
                reversed=0,
                posted=0,
                amount=int(amount),
                documents=sorted(documents),
            )
        )
    return sorted(found, key=_order)


def as_known(
    connection: Connection,
    *,
    start: int,
    until: int,
    account_id: int | None = None,
    instance_id: int | None = None,
    known_at: int | None = None,
) -> list[ChargeAsSeen]:
    """Charges of a window as they are known: what was consumed, less reversals, plus replacements.

    Now, consumption is what the meters booked in the hours of the window. With *known_at* it is
    what the statements of its days said by that second, and corrections count if they had been made
    by then: whoever asks again later about the same second gets the same answer.
    """
    values = _values(start, until, account_id, instance_id, known_at)
    seen: dict[str, ChargeAsSeen] = {}
    for instance, meter, since, quantity, amount, documents, name in connection.execute(
        _METERED if known_at is None else _STATED, values
    ):
        charge = str(Metered(instance, meter, int(name))) if known_at is None else name
        seen[charge] = ChargeAsSeen(
            charge=charge,
            instance_id=instance,
            meter=meter,
            segment_from=since,
            quantity=int(quantity),
            charged=int(amount),
            reversed=0,
            posted=0,
            amount=int(amount),
            documents=documents,
        )
    _correct(connection, seen, values)
    return sorted(seen.values(), key=_order)


def _correct(
    connection: Connection, seen: dict[str, ChargeAsSeen], values: dict[str, int | None]
) -> None:
    """Book every correction on the metered charge at the root of its chain."""
    for charge, kind, amount in connection.execute(_CORRECTED, values).fetchall():
        root, instance_id, meter = _root(connection, charge)
        one = seen.get(root) or ChargeAsSeen(
            charge=root,
            instance_id=instance_id,
            meter=meter,
            segment_from=0,
            quantity=0,
            charged=0,
            reversed=0,
            posted=0,
            amount=0,
            documents=[],
        )
        back = one.reversed + (int(amount) if kind == "reversal" else 0)
        more = one.posted + (int(amount) if kind == "charge" else 0)
        seen[root] = msgspec.structs.replace(
            one, reversed=back, posted=more, amount=one.charged - back + more
        )


def _root(connection: Connection, charge: str) -> tuple[str, int, str]:
    """The metered charge that a chain of corrections began with."""
    row = connection.execute(
        "WITH RECURSIVE chain AS ("
        " SELECT correction_id, charge, instance_id, meter FROM corrections WHERE charge = %s"
        " UNION SELECT c.correction_id, c.charge, c.instance_id, c.meter FROM chain"
        " JOIN corrections c ON chain.charge = 'correction-' || c.correction_id)"
        " SELECT charge, instance_id, meter FROM chain WHERE charge LIKE 'instance-%%' LIMIT 1",
        [charge],
    ).fetchone()
    assert row is not None, charge
    return row[0], row[1], row[2]


def _values(
    start: int, until: int, account_id: int | None, instance_id: int | None, known_at: int | None
) -> dict[str, int | None]:
    return {
        "account": account_id,
        "instance": instance_id,
        "start": start,
        "until": until,
        "first_day": start // SECONDS_PER_DAY * SECONDS_PER_DAY,
        "first_hour": start // SECONDS_PER_HOUR,
        "end_hour": -(-until // SECONDS_PER_HOUR),
        "known_at": 2**62 if known_at is None else known_at,
    }


def _order(one: ChargeAsSeen) -> tuple[int, int, str]:
    return one.instance_id, one.segment_from, one.meter
