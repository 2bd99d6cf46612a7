"""Every movement of money as the books date it, as SQL for a FROM clause.

A movement posts in its own second. Usage of an hour posts in the hour's last second, or, when its
period was closed before it arrived, in the first second of the period in which it was booked: so
no question about a closed month changes its answer. What a reservation left posts when it ended.
"""

from __future__ import annotations

from typing import Final

from ledger.services.questions.transfers import RETURNED_DEPOSITS

POSTINGS: Final = f"""(
    SELECT occurred_at AS posted_at, position, 0::bigint AS instance_id, 0::bigint AS hour,
           0 AS terms_no, 0::bigint AS booked, leg::int AS part, kind, reference, debit,
           debit_account, credit, credit_account, amount
    FROM movements
    UNION ALL
    SELECT ended_at, position, 0, 0, 0, 0, 9, 'reservation_end', 'instance-' || instance_id,
           'reserved_deposit', account_id, 'renter_credit', account_id, amount
    FROM ({RETURNED_DEPOSITS}) AS ended WHERE amount <> 0
    UNION ALL
    SELECT greatest(h.hour * 3600 + 3599, h.booked), h.position, h.instance_id, h.hour, h.terms_no,
           h.booked, part.no, 'usage',
           CASE s.kind WHEN 'volume' THEN 'volume-' ELSE 'instance-' END || h.instance_id,
           part.payer, h.account_id, part.name,
           CASE WHEN part.no IN (1, 3) THEN h.host_id END, part.amount
    FROM usage_hours h JOIN rate_segments s USING (instance_id, terms_no)
    CROSS JOIN LATERAL (VALUES
        (1, 'renter_credit', 'host_payable',
         (CASE WHEN s.kind = 'reserved' THEN 0 ELSE h.gpu_charge - h.gpu_fee END
          + h.storage_charge + h.up_charge + h.down_charge
          - h.storage_fee - h.up_fee - h.down_fee)::numeric),
        (2, 'renter_credit', 'platform_fee',
         (CASE WHEN s.kind = 'reserved' THEN 0 ELSE h.gpu_fee END
          + h.storage_fee + h.up_fee + h.down_fee)::numeric),
        (3, 'reserved_deposit', 'host_payable',
         (CASE WHEN s.kind = 'reserved' THEN h.gpu_charge - h.gpu_fee ELSE 0 END
          + h.reserved_idle_charge - h.reserved_idle_fee)::numeric),
        (4, 'reserved_deposit', 'platform_fee',
         (CASE WHEN s.kind = 'reserved' THEN h.gpu_fee ELSE 0 END
          + h.reserved_idle_fee)::numeric)
    ) AS part (no, payer, name, amount)
    WHERE part.amount <> 0
)"""  # noqa: S608 - constants
"""Balanced rows (`debit`, `credit`, `amount` > 0), with the key that orders what posts at once."""

LINES: Final = f"""(
    SELECT p.posted_at, p.position, p.instance_id, p.hour, p.terms_no, p.booked, p.part, side.no,
           p.kind, p.reference, side.name, side.person, side.other, side.other_person,
           side.sign * p.amount AS amount
    FROM {POSTINGS} p CROSS JOIN LATERAL (VALUES
        (1, p.debit, p.debit_account, p.credit, p.credit_account, 1),
        (2, p.credit, p.credit_account, p.debit, p.debit_account, -1)
    ) AS side (no, name, person, other, other_person, sign)
)"""  # noqa: S608 - constants
"""The same as lines of single ledger accounts: two per posting, debits above zero."""
