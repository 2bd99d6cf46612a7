"""What became of the market: auctions decided, reservations bought, price increases proposed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from ledger.domain import reserved
from ledger.domain.events import AllocatedGpus, AllocationDecided, SmallestBid
from ledger.domain.ids import machine_stream
from ledger.store.codec import decode_fact
from ledger.store.database import Connection

ALLOCATION_DECIDED: Final = str(AllocationDecided.__struct_config__.tag)


# --- auctions -------------------------------------------------------------------------------------


class AllocationView(msgspec.Struct, frozen=True, kw_only=True):
    """One decision of a machine's auction, and where it lies in the log.

    `min_bids` names the slices whose smallest bid changed; null: no bid would run there.
    """

    position: int
    decided_at: int
    displaced: list[int]
    granted: list[AllocatedGpus]
    min_bids: list[SmallestBid]
    policy_version: int


def allocations(
    connection: Connection, machine_id: int, *, after: int = 0, limit: int = 100
) -> list[AllocationView]:
    """The decisions of a machine's auction from a position of the log onwards, in order."""
    stream = machine_stream(machine_id)
    rows = connection.execute(
        "SELECT position, topic, state FROM events WHERE stream_id = %s AND topic = %s"
        " AND version > %s AND position > %s ORDER BY version LIMIT %s",
        [stream, ALLOCATION_DECIDED, _version_at(connection, stream, after), after, limit],
    ).fetchall()
    return [_allocation(*row) for row in rows]


def _version_at(connection: Connection, stream: str, position: int) -> int:
    """The version that a position of the stream has: where its index goes on; 0 where unknown."""
    row = connection.execute(
        "SELECT version FROM events WHERE position = %s AND stream_id = %s", [position, stream]
    ).fetchone()
    return 0 if row is None else int(row[0])


def _allocation(position: int, topic: str, state: bytes) -> AllocationView:
    fact = decode_fact(topic, bytes(state))
    assert isinstance(fact, AllocationDecided), topic
    return AllocationView(
        position=position,
        decided_at=fact.decided_at,
        displaced=fact.displaced,
        granted=fact.granted,
        min_bids=fact.min_bids,
        policy_version=fact.policy_version,
    )


# --- reservations ---------------------------------------------------------------------------------


class ReservationView(msgspec.Struct, frozen=True, kw_only=True):
    """A reservation, as far as its seconds are metered. Amounts in nanos, rates for the slice.

    `refund` is what went back to credit, or, while it runs, what cancelling would give back now; a
    reservation that another one replaced gave all it had left to that one.
    """

    reservation_no: int
    status: str
    """`running`, or why it ended: `term`, `cancelled`, `destroyed`, `expired`, `no_penalty`,
    `replaced`."""
    base_rate: int
    rate: int
    discount: float
    """0.2 is a fifth less than on demand."""
    added: int
    deposit: int
    term_from: int
    term_until: int
    ran_seconds: int
    idle_seconds: int
    """Seconds of the term that passed while the instance held no GPUs."""
    consumed: int
    remaining: int
    discount_received: int
    kept: int
    refund: int
    ended_at: int | None


_RESERVATIONS: Final = """
SELECT r.reservation_no, r.base_rate, r.rate, r.added, r.deposit, r.term_from, r.term_until,
       coalesce(s.gpu_quantity, 0), coalesce(s.reserved_idle_quantity, 0),
       coalesce(s.gpu_charge + s.reserved_idle_charge, 0), r.kept, r.ended_at, r.reason
FROM reservations r LEFT JOIN rate_segments s USING (instance_id, terms_no)
WHERE r.instance_id = %s ORDER BY r.reservation_no
"""


def reservations(connection: Connection, instance_id: int) -> list[ReservationView]:
    """All reservations that an instance ever had, oldest first."""
    found: list[ReservationView] = []
    received_before = 0  # of the reservations that the present one replaced: no discount is lost
    for row in connection.execute(_RESERVATIONS, [instance_id]).fetchall():
        view = _reservation(row, received_before)
        is_replaced = view.status == "replaced"
        received_before = received_before + view.discount_received if is_replaced else 0
        found.append(view)
    return found


def deposits_left(connection: Connection, instance_ids: Sequence[int]) -> dict[int, int]:
    """What the running reservations of many instances have left, in nanos."""
    rows = connection.execute(
        "SELECT r.instance_id, r.deposit - coalesce(s.gpu_charge + s.reserved_idle_charge, 0)"
        " FROM reservations r LEFT JOIN rate_segments s USING (instance_id, terms_no)"
        " WHERE r.instance_id = ANY(%s) AND r.ended_at IS NULL",
        [list(instance_ids)],
    )
    return {row[0]: max(int(row[1]), 0) for row in rows}


def _reservation(row: Sequence[Any], received_before: int) -> ReservationView:
    base_rate, rate, deposit, kept = int(row[1]), int(row[2]), int(row[4]), int(row[10])
    ran, idle, consumed = int(row[7]), int(row[8]), int(row[9])
    remaining = max(deposit - consumed, 0)
    received = reserved.discount_received(base_rate, rate, ran + idle)
    status = "running" if row[11] is None else str(row[12])
    if status == "running":
        refund = reserved.refund(remaining, received_before + received)
    else:
        refund = 0 if status == "replaced" else remaining - kept
    return ReservationView(
        reservation_no=row[0],
        status=status,
        base_rate=base_rate,
        rate=rate,
        discount=1 - rate / base_rate,
        added=int(row[3]),
        deposit=deposit,
        term_from=row[5],
        term_until=row[6],
        ran_seconds=ran,
        idle_seconds=idle,
        consumed=consumed,
        remaining=remaining,
        discount_received=received,
        kept=kept,
        refund=refund,
        ended_at=row[11],
    )


# --- price increases ------------------------------------------------------------------------------


class PriceIncreaseView(msgspec.Struct, frozen=True, kw_only=True):
    """Higher rates that a host offers for a later end; nanos, for the slice.

    The present rates hold to the present end in every case.
    """

    instance_id: int
    proposal_no: int
    account_id: int
    machine_id: int
    status: str
    """`pending`, `accepted`, `rejected`, `replaced`, or `lapsed`: its contract ended unanswered."""
    gpu_rate_now: int
    gpu_rate: int
    storage_rate_now: int
    storage_rate: int
    up_rate_now: int
    up_rate: int
    down_rate_now: int
    down_rate: int
    until_now: int | None
    until: int | None
    proposed_at: int
    answered_at: int | None


_INCREASES: Final = """
SELECT p.instance_id, p.proposal_no, p.account_id, i.machine_id,
       CASE WHEN p.status = 'pending' AND (i.destroyed_at IS NOT NULL OR i.until <= %(now)s)
            THEN 'lapsed' ELSE p.status END AS status,
       i.gpu_rate, p.gpu_rate, i.storage_rate, p.storage_rate, i.up_rate, p.up_rate, i.down_rate,
       p.down_rate, i.until, p.until, p.proposed_at, p.answered_at
FROM price_increases p JOIN instances i USING (instance_id)
WHERE (p.instance_id, p.proposal_no) > (%(instance)s, %(number)s)
  AND (%(account)s::bigint IS NULL OR p.account_id = %(account)s)
  AND (%(host)s::bigint IS NULL OR i.host_id = %(host)s)
  AND (%(only)s::bigint IS NULL OR p.instance_id = %(only)s)
  AND (NOT %(pending)s OR p.status = 'pending' AND i.destroyed_at IS NULL
       AND (i.until IS NULL OR i.until > %(now)s))
ORDER BY p.instance_id, p.proposal_no LIMIT %(limit)s
"""


def price_increases(
    connection: Connection,
    now: int,
    *,
    account_id: int | None = None,
    host_id: int | None = None,
    instance_id: int | None = None,
    pending: bool = False,
    after: tuple[int, int] = (0, 0),
    limit: int = 100,
) -> list[PriceIncreaseView]:
    """Price increases by instance and number; with *pending* those that wait for an answer."""
    rows = connection.execute(
        _INCREASES,
        {
            "now": now,
            "instance": after[0],
            "number": after[1],
            "account": account_id,
            "host": host_id,
            "only": instance_id,
            "pending": pending,
            "limit": limit,
        },
    ).fetchall()
    return [
        PriceIncreaseView(
            instance_id=row[0],
            proposal_no=row[1],
            account_id=row[2],
            machine_id=row[3],
            status=row[4],
            gpu_rate_now=int(row[5]),
            gpu_rate=int(row[6]),
            storage_rate_now=int(row[7]),
            storage_rate=int(row[8]),
            up_rate_now=int(row[9]),
            up_rate=int(row[10]),
            down_rate_now=int(row[11]),
            down_rate=int(row[12]),
            until_now=row[13],
            until=row[14],
            proposed_at=row[15],
            answered_at=row[16],
        )
        for row in rows
    ]
