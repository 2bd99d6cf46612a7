"""Money is conserved: every sum that can be added up in two ways is added up in both.

Debits equal credits in every stretch of the log; usage per hour equals usage per rate segment, and
that the formula; what accounts have is the fold of what moved.
"""

from __future__ import annotations

from typing import Final

from ledger.domain.events import FindingUnit
from ledger.meters.pricing import METERS, Meter, charge_of, platform_fee
from ledger.services.ledger import Ledger
from ledger.services.questions.postings import LINES
from ledger.services.reconciliation.difference import Compared, Difference
from ledger.store.database import Connection

RANGE_POSITIONS: Final = 1_000_000
_PER_POSITIONS: Final = f"""
SELECT position / {RANGE_POSITIONS}, sum(greatest(amount, 0)), sum(greatest(-amount, 0))
FROM {LINES} l GROUP BY 1 HAVING sum(amount) <> 0 ORDER BY 1
"""  # noqa: S608 - constants
_MALFORMED: Final = """
SELECT position, leg, amount FROM movements
WHERE amount < 0 OR (debit = credit AND debit_account IS NOT DISTINCT FROM credit_account)
ORDER BY position, leg
"""
_MOVED: Final = """
SELECT person, sum(amount) AS amount FROM (
    SELECT debit AS name, debit_account AS person, -amount AS amount FROM movements
    UNION ALL SELECT credit, credit_account, amount FROM movements) AS lines
WHERE name = ANY(%s) AND person IS NOT NULL GROUP BY person
"""
_CREDIT: Final = f"""
SELECT c.account_id, coalesce(m.amount, 0), c.posted FROM account_credit c
LEFT JOIN ({_MOVED}) AS m ON m.person = c.account_id
WHERE c.posted <> coalesce(m.amount, 0) ORDER BY 1
"""  # noqa: S608 - constants
_PAYABLE: Final = f"""
SELECT c.account_id, coalesce(m.amount, 0), c.payable FROM account_credit c
LEFT JOIN ({_MOVED}) AS m ON m.person = c.account_id
WHERE c.payable <> coalesce(m.amount, 0) ORDER BY 1
"""  # noqa: S608 - constants
_RECEIVABLE: Final = f"""
SELECT coalesce(r.host_id, m.person), -coalesce(m.amount, 0), coalesce(r.amount, 0)
FROM host_receivables r FULL JOIN ({_MOVED}) AS m ON m.person = r.host_id
WHERE coalesce(r.amount, 0) <> -coalesce(m.amount, 0) ORDER BY 1
"""  # noqa: S608 - constants
_CHARGES: Final = " + ".join(f"{meter}_charge" for meter in METERS)
_FEES: Final = " + ".join(f"{meter}_fee" for meter in METERS)
_CHARGED: Final = f"""
WITH hours AS (
    SELECT account_id, host_id, sum({_CHARGES}) AS charge, sum({_FEES}) AS fee
    FROM usage_hours GROUP BY account_id, host_id
), added AS (
    SELECT account_id, sum(charged) AS charged, sum(earned) AS earned, sum(fees) AS fees FROM (
        SELECT account_id, charge AS charged, 0 AS earned, 0 AS fees FROM hours
        UNION ALL SELECT host_id, 0, charge, fee FROM hours) AS sides GROUP BY account_id
)
SELECT coalesce(u.account_id, a.account_id),
       coalesce(a.charged, 0), coalesce(u.charged, 0), coalesce(a.earned, 0), coalesce(u.earned, 0),
       coalesce(a.fees, 0), coalesce(u.fees, 0)
FROM account_usage u FULL JOIN added a ON a.account_id = u.account_id
WHERE (coalesce(u.charged, 0), coalesce(u.earned, 0), coalesce(u.fees, 0))
   <> (coalesce(a.charged, 0), coalesce(a.earned, 0), coalesce(a.fees, 0)) ORDER BY 1
"""  # noqa: S608 - constants
_PARTS: Final = [f"{meter}_{part}" for meter in METERS for part in ("quantity", "charge", "fee")]
_SEGMENTS: Final = f"""
SELECT s.instance_id, s.terms_no, {", ".join(f"s.{one}" for one in _PARTS)},
       {", ".join(f"coalesce(h.{one}, 0)" for one in _PARTS)}
FROM rate_segments s LEFT JOIN (
    SELECT instance_id, terms_no, {", ".join(f"sum({one}) AS {one}" for one in _PARTS)}
    FROM usage_hours GROUP BY instance_id, terms_no) AS h USING (instance_id, terms_no)
WHERE ({", ".join(f"s.{one}" for one in _PARTS)})
   <> ({", ".join(f"coalesce(h.{one}, 0)" for one in _PARTS)}) ORDER BY 1, 2
"""  # noqa: S608 - constants
_PRICED: Final = f"""
SELECT s.instance_id, s.terms_no, s.fee_bp, s.gpu_rate, s.storage_rate, s.up_rate, s.down_rate,
       m.disk_bytes, {", ".join(f"s.{one}" for one in _PARTS)}
FROM rate_segments s JOIN metered_instances m USING (instance_id) ORDER BY 1, 2
"""  # noqa: S608 - constants
_RATE_COLUMN: Final[dict[Meter, int]] = {
    "gpu": 3, "storage": 4, "up": 5, "down": 6, "reserved_idle": 3,
}  # fmt: skip
_FIRST_PART: Final = 8


def compare_money(ledger: Ledger, start: int, until: int) -> Compared:
    """Every sum, over everything there is; the day does not matter."""
    del start, until
    found: list[Difference] = []
    with ledger.reading() as connection:
        found += _ranges(connection)
        found += _balances(connection)
        found += _usage(connection)
        found += _formula(connection)
    return Compared(found)


def _ranges(connection: Connection) -> list[Difference]:
    found = []
    for number, debits, credits in connection.execute(_PER_POSITIONS):
        first = number * RANGE_POSITIONS
        about = f"positions-{first}-{first + RANGE_POSITIONS - 1}"
        found.append(
            Difference(
                "debits_credits", about, int(debits), int(credits), "nanos", "debits, credits"
            )
        )
    for position, leg, amount in connection.execute(_MALFORMED):
        detail = "a movement is of nothing or more, between two accounts"
        found.append(
            Difference("movement", f"position-{position}.{leg}", 0, int(amount), "nanos", detail)
        )
    return found


def _balances(connection: Connection) -> list[Difference]:
    found = []
    for kind, query, names in (
        ("credit", _CREDIT, ["renter_credit", "reserved_deposit"]),
        ("payable", _PAYABLE, ["host_payable"]),
        ("receivable", _RECEIVABLE, ["host_receivable"]),
    ):
        for account_id, moved, stands in connection.execute(query, [names]):
            detail = "the sum of movements, the balance that is kept"
            about = f"account-{account_id}"
            found.append(Difference(kind, about, int(moved), int(stands), "nanos", detail))
    return found


def _usage(connection: Connection) -> list[Difference]:
    found = []
    for account_id, *sums in connection.execute(_CHARGED):
        for at, kind in enumerate(("charged", "earned", "fees")):
            added, stands = int(sums[2 * at]), int(sums[2 * at + 1])
            if added != stands:
                detail = "the sum of hours, the sum that is kept"
                about = f"account-{account_id}"
                found.append(Difference(kind, about, added, stands, "nanos", detail))
    for segment in connection.execute(_SEGMENTS):
        kept, summed = segment[2 : 2 + len(_PARTS)], segment[2 + len(_PARTS) :]
        for name, one, other in zip(_PARTS, kept, summed, strict=True):
            if one != other:
                about = f"instance-{segment[0]}.{segment[1]}.{name}"
                unit: FindingUnit = "rows" if name.endswith("quantity") else "nanos"
                detail = f"{name} of the segment, the sum of its hours"
                found.append(Difference("hours", about, int(one), int(other), unit, detail))
    return found


def _formula(connection: Connection) -> list[Difference]:
    """Segments whose charge, or fee, is not what the formula gives for their quantity."""
    found = []
    with connection.cursor("reconciled_segments") as cursor:
        cursor.execute(_PRICED)
        for row in cursor:
            for at, meter in enumerate(METERS):
                quantity, charge, fee = map(
                    int, row[_FIRST_PART + 3 * at : _FIRST_PART + 3 * at + 3]
                )
                right = charge_of(meter, int(row[_RATE_COLUMN[meter]]), quantity, row[7])
                about = f"instance-{row[0]}.{meter}.{row[1]}"
                if charge != right:
                    detail = "what the formula gives, what was charged"
                    found.append(Difference("formula", about, right, charge, "nanos", detail))
                if fee != platform_fee(row[2], charge):
                    detail = "what the formula gives, the fee that was taken"
                    expected = platform_fee(row[2], charge)
                    found.append(Difference("fee", about, expected, fee, "nanos", detail))
    return found
