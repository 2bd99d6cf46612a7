"""Every movement of money as a balanced transfer: debit, credit, one amount."""

from __future__ import annotations

import msgspec

from ledger.store.database import Connection


class TransferView(msgspec.Struct, frozen=True, kw_only=True):
    """One transfer. Usage is shown per instance and UTC hour: one row to the host, one for the fee.

    `key` orders the list and pages it.
    """

    key: str
    kind: str
    reference: str
    debit: str
    debit_account: int | None
    credit: str
    credit_account: int | None
    amount: int
    occurred_at: int
    position: int


# A key is the position (19 digits), what it is, and for usage the row it comes from.
_QUERY = """
SELECT * FROM (
    SELECT lpad(position::text, 19, '0') || ':m' AS key, kind, reference, debit, debit_account,
           credit, credit_account, amount, occurred_at, position
    FROM movements
    WHERE %(account)s::bigint IS NULL OR debit_account = %(account)s OR credit_account = %(account)s
  UNION ALL
    SELECT lpad(h.position::text, 19, '0') || ':u:' || lpad(h.instance_id::text, 19, '0') || ':'
             || lpad(h.hour::text, 10, '0') || ':' || h.terms_no || ':' || h.booked || ':'
             || part.name,
           'usage', 'instance-' || h.instance_id, 'renter_credit', h.account_id,
           part.name, CASE WHEN part.name = 'host_payable' THEN h.host_id END,
           part.amount, h.hour * 3600, h.position
    FROM usage_hours h CROSS JOIN LATERAL (VALUES
        ('host_payable', (h.gpu_charge + h.storage_charge + h.up_charge + h.down_charge
                          - h.gpu_fee - h.storage_fee - h.up_fee - h.down_fee)::numeric),
        ('platform_fee', (h.gpu_fee + h.storage_fee + h.up_fee + h.down_fee)::numeric)
    ) AS part (name, amount)
    WHERE part.amount <> 0
      AND (%(account)s::bigint IS NULL OR h.account_id = %(account)s
           OR (h.host_id = %(account)s AND part.name = 'host_payable'))
) AS transfers WHERE key > %(after)s ORDER BY key LIMIT %(limit)s
"""


def transfers(
    connection: Connection, *, account_id: int | None = None, after: str = "", limit: int = 100
) -> list[TransferView]:
    """Transfers in the order of the log; those of one account, or all."""
    rows = connection.execute(
        _QUERY, {"account": account_id, "after": after, "limit": limit}
    ).fetchall()
    return [
        TransferView(
            key=row[0],
            kind=row[1],
            reference=row[2],
            debit=row[3],
            debit_account=row[4],
            credit=row[5],
            credit_account=row[6],
            amount=int(row[7]),
            occurred_at=row[8],
            position=row[9],
        )
        for row in rows
    ]
