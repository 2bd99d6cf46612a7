"""Self-billing (`SB-`): what hosts delivered in a UTC month, billed by the platform for them.

It is written when no late usage of the month can arrive any more and all that did is folded, so
its lines are what the meters say of the month's own hours, whenever they were reported.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Final

from ledger.domain.events import SelfBillingIssued, SelfBillingLine
from ledger.domain.ids import account_stream
from ledger.domain.money import SECONDS_PER_HOUR
from ledger.meters.pricing import METERS
from ledger.services.ledger import Unit
from ledger.store.database import Connection

SERIES: Final = "SB"

Delivered = dict[int, list[SelfBillingLine]]
"""Per host, what each of its machines earned."""


def delivered(connection: Connection, start: int, until: int) -> Delivered:
    """What machines earned in the hours of `[start, until)`, by host; no zero lines."""
    sums = ", ".join(
        f"sum(h.{meter}_quantity), sum(h.{meter}_charge), sum(h.{meter}_fee)" for meter in METERS
    )
    found: Delivered = defaultdict(list)
    for host_id, machine_id, *amounts in connection.execute(
        f"SELECT h.host_id, m.machine_id, {sums} FROM usage_hours h"  # noqa: S608 - own names
        " JOIN metered_instances m USING (instance_id) WHERE h.hour >= %s AND h.hour < %s"
        " AND m.account_id <> h.host_id GROUP BY h.host_id, m.machine_id"
        " ORDER BY h.host_id, m.machine_id",
        [start // SECONDS_PER_HOUR, until // SECONDS_PER_HOUR],
    ):
        for index, meter in enumerate(METERS):
            quantity, charged, fee = (int(one) for one in amounts[3 * index : 3 * index + 3])
            if charged:
                found[host_id].append(
                    SelfBillingLine(
                        machine_id=machine_id,
                        meter=meter,
                        quantity=quantity,
                        charged=charged,
                        fee=fee,
                        amount=charged - fee,
                    )
                )
    return found


def adjusted(connection: Connection, start: int, until: int) -> dict[int, int]:
    """Per host, what moved to it (or from it) in `[start, until)` outside the meters.

    What was paid out is no delivery.
    """
    rows = connection.execute(
        "SELECT host, sum(amount) FROM ("
        " SELECT credit_account AS host, amount FROM movements WHERE credit = 'host_payable'"
        "  AND occurred_at >= %(start)s AND occurred_at < %(until)s AND kind NOT LIKE 'payout%%'"
        " UNION ALL SELECT debit_account, -amount FROM movements WHERE debit = 'host_payable'"
        "  AND occurred_at >= %(start)s AND occurred_at < %(until)s AND kind NOT LIKE 'payout%%'"
        ") AS moved GROUP BY host HAVING sum(amount) <> 0",
        {"start": start, "until": until},
    )
    return {host_id: int(amount) for host_id, amount in rows}


def issue(unit: Unit, start: int, until: int, lines: Delivered, moved: dict[int, int]) -> int:
    """Issue the documents of a month for hosts that have none of it yet; how many."""
    done = {
        row[0]
        for row in unit.connection.execute(
            "SELECT account_id FROM self_billings WHERE period_from = %s", [start]
        )
    }
    hosts = sorted((lines.keys() | moved.keys()) - done)
    number = unit.next_id("self_billing")
    new = []
    for place, host_id in enumerate(hosts):
        own, adjustments = lines.get(host_id, []), moved.get(host_id, 0)
        fact = SelfBillingIssued(
            account_id=host_id,
            number=f"{SERIES}-{number + place:08d}",
            period_from=start,
            period_until=until,
            adjustments=adjustments,
            total=sum(line.amount for line in own) + adjustments,
            lines=own,
            issued_at=unit.now,
        )
        new.append((account_stream(host_id), fact))
    unit.append_all([*new])
    return len(new)
