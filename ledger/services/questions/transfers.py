"""Every movement of money as a balanced transfer: debit, credit, one amount."""

from __future__ import annotations

import re

import msgspec

from ledger.domain.events import USAGE_REPORTED
from ledger.errors import RejectedError
from ledger.projections.runner import position_of
from ledger.store.database import Connection


class TransferView(msgspec.Struct, frozen=True, kw_only=True):
    """One transfer. Usage is shown per instance and UTC hour: one row to the host, one for the fee.

    `key` orders the list and pages it: position, instance, hour, terms, booked, part, joined by
    colons; all but the position and the part are 0 for a movement outside the meters.
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


RETURNED_DEPOSITS = """
SELECT e.position, e.instance_id, e.account_id, e.ended_at,
       sum(r.added - r.kept - coalesce(s.gpu_charge + s.reserved_idle_charge, 0)) AS amount
FROM reservations e
JOIN reservations r ON r.instance_id = e.instance_id AND r.reservation_no <= e.reservation_no
    AND r.reservation_no > coalesce((
        SELECT max(b.reservation_no) FROM reservations b WHERE b.instance_id = e.instance_id
        AND b.reservation_no < e.reservation_no AND b.reason <> 'replaced'), 0)
LEFT JOIN rate_segments s ON s.instance_id = r.instance_id AND s.terms_no = r.terms_no
WHERE e.ended_at IS NOT NULL AND e.reason <> 'replaced'
GROUP BY e.position, e.instance_id, e.account_id, e.ended_at
"""
"""What went back to credit of each reservation that is over, late ticks of its term included: a
view like the transfers of usage, so that the deposit is empty whatever arrives later."""

# Which usage rows exist never depends on an amount, which grows, but on terms, which stand.
_QUERY = f"""
WITH settled AS (
    SELECT coalesce((SELECT position FROM events WHERE position > %(folded)s AND topic = %(usage)s
                     ORDER BY position LIMIT 1), 9223372036854775807) AS until
), moved AS (
    SELECT position, 0::bigint AS instance_id, 0::bigint AS hour, 0 AS terms_no,
           0::bigint AS booked, leg::int AS part, kind, reference, debit, debit_account, credit,
           credit_account, amount, occurred_at
    FROM movements, settled
    WHERE position >= %(position)s AND position < settled.until
      AND (position, 0, 0, 0, 0, leg) > (%(position)s, %(instance)s, %(hour)s, %(terms)s,
                                         %(booked)s, %(part)s)
      AND (%(account)s::bigint IS NULL OR debit_account = %(account)s
           OR credit_account = %(account)s)
    ORDER BY position, leg LIMIT %(limit)s
), returned AS (
    SELECT ended.position, 0::bigint, 0::bigint, 0, 0::bigint, 9, 'reservation_end',
           'instance-' || ended.instance_id, 'reserved_deposit', ended.account_id,
           'renter_credit', ended.account_id, ended.amount, ended.ended_at
    FROM ({RETURNED_DEPOSITS}) AS ended, settled
    WHERE ended.position >= %(position)s AND ended.position < settled.until
      AND (ended.position, 0, 0, 0, 0, 9) > (%(position)s, %(instance)s, %(hour)s, %(terms)s,
                                             %(booked)s, %(part)s)
      AND (%(account)s::bigint IS NULL OR ended.account_id = %(account)s)
), used AS (
    SELECT h.position, h.instance_id, h.hour, h.terms_no, h.booked, part.no AS part, 'usage',
           CASE s.kind WHEN 'volume' THEN 'volume-' ELSE 'instance-' END || h.instance_id,
           part.payer, h.account_id, part.name,
           CASE WHEN part.no IN (1, 3) THEN h.host_id END, part.amount, h.hour * 3600
    FROM usage_hours h JOIN rate_segments s USING (instance_id, terms_no)
    CROSS JOIN LATERAL (VALUES
        (1, 'renter_credit', 'host_payable',
         (CASE WHEN s.kind = 'reserved' THEN 0 ELSE h.gpu_charge - h.gpu_fee END
          + h.storage_charge + h.up_charge + h.down_charge
          - h.storage_fee - h.up_fee - h.down_fee)::numeric, s.fee_bp < 10000),
        (2, 'renter_credit', 'platform_fee',
         (CASE WHEN s.kind = 'reserved' THEN 0 ELSE h.gpu_fee END
          + h.storage_fee + h.up_fee + h.down_fee)::numeric, s.fee_bp > 0),
        (3, 'reserved_deposit', 'host_payable',
         (h.gpu_charge - h.gpu_fee + h.reserved_idle_charge - h.reserved_idle_fee)::numeric,
         s.fee_bp < 10000 AND s.kind = 'reserved'),
        (4, 'reserved_deposit', 'platform_fee', (h.gpu_fee + h.reserved_idle_fee)::numeric,
         s.fee_bp > 0 AND s.kind = 'reserved')
    ) AS part (no, payer, name, amount, applies), settled
    WHERE part.applies AND s.gpu_rate + s.storage_rate + s.up_rate + s.down_rate > 0
      AND h.position >= %(position)s AND h.position < settled.until
      AND (h.position, h.instance_id, h.hour, h.terms_no, h.booked, part.no) >
          (%(position)s, %(instance)s, %(hour)s, %(terms)s, %(booked)s, %(part)s)
      AND (%(account)s::bigint IS NULL OR h.account_id = %(account)s
           OR (h.host_id = %(account)s AND part.no IN (1, 3)))
    ORDER BY h.position, h.instance_id, h.hour, h.terms_no, h.booked, part.no LIMIT %(limit)s
)
SELECT * FROM moved UNION ALL SELECT * FROM returned UNION ALL SELECT * FROM used
ORDER BY 1, 2, 3, 4, 5, 6 LIMIT %(limit)s
"""  # noqa: S608 - a constant of this module
_KEY_FIELDS = ("position", "instance", "hour", "terms", "booked", "part")
_KEY = re.compile(r"[0-9]{1,18}(:[0-9]{1,18}){5}")


def transfers(
    connection: Connection, *, account_id: int | None = None, after: str = "", limit: int = 100
) -> list[TransferView]:
    """Transfers in the order of the log; those of one account, or all.

    The list ends before the first usage report that is not folded yet, so that a page never has to
    be read again for a row that came into its middle.

    Raises:
        RejectedError: `invalid_args` for a key that this list never gave.
    """
    if after and not _KEY.fullmatch(after):
        message = f"{after!r} is no key of a transfer: take it from the last line of a page"
        raise RejectedError("invalid_args", message)
    key = [int(part) for part in after.split(":")] if after else [0] * len(_KEY_FIELDS)
    rows = connection.execute(
        _QUERY,
        {
            **dict(zip(_KEY_FIELDS, key, strict=True)),
            "folded": position_of(connection),
            "usage": USAGE_REPORTED,
            "account": account_id,
            "limit": limit,
        },
    ).fetchall()
    return [
        TransferView(
            key=":".join(map(str, row[:6])),
            kind=row[6],
            reference=row[7],
            debit=row[8],
            debit_account=row[9],
            credit=row[10],
            credit_account=row[11],
            amount=int(row[12]),
            occurred_at=row[13],
            position=row[0],
        )
        for row in rows
    ]
