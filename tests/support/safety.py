"""What the tests about a renter's safety share: notices, ticks of idle GPUs, unmetered time."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from adapters.hostagent.reports import constant_block
from ledger.domain.usage import GpuSample, TickState
from ledger.services import policies
from ledger.services.ledger import DEFAULT_POLICY, Policy
from ledger.services.payments.gateway import PaymentGateway
from ledger.services.policies import (
    alerts,
    cleanup,
    contracts,
    debt,
    idle,
    limits,
    terms,
    top_ups,
)
from tests.support.market import Market

_DUE = [one.next_due for one in (terms, contracts, debt, limits, idle, top_ups, alerts, cleanup)]
UNWATCHED = Policy(
    **{**vars(DEFAULT_POLICY), "version": 2, "admission": False, "offline_after_seconds": None}
)
"""No machine is ever taken for silent: time passes without reports, and accrues all the same."""


def notices(market: Market, account: int, *codes: str) -> list[tuple[str, int]]:
    """The notices of an account with these codes (all about balances by default), with seconds."""
    wanted = codes or (
        "low_balance_24h", "low_balance_4h", "low_balance_1h", "top_up_soon", "top_up_failed",
        "top_up_off", "exhausted", "spend_cap", "idle", "cleanup_soon",
    )  # fmt: skip
    rows = market.connection.execute(
        "SELECT code, issued_at FROM notices WHERE account_id = %s AND code = ANY(%s)"
        " ORDER BY position",
        [account, list(wanted)],
    ).fetchall()
    market.connection.commit()
    return [(row[0], row[1]) for row in rows]


def topics(market: Market, topic: str) -> int:
    """How many facts of one kind the log holds."""
    row = market.connection.execute(
        "SELECT count(*) FROM events WHERE topic = %s", [topic]
    ).fetchone()
    market.connection.commit()
    assert row is not None
    return int(row[0])


def status(market: Market, instance: int) -> tuple[str, str]:
    """State and reason of an instance."""
    row = market.connection.execute(
        "SELECT status, reason FROM instances WHERE instance_id = %s", [instance]
    ).fetchone()
    market.connection.commit()
    assert row is not None
    return row[0], row[1]


def next_due(market: Market) -> int | None:
    """Where a simulated clock would stop next."""
    with market.ledger.reading() as connection:
        return policies.next_due(connection, market.clock())


def act(market: Market, second: int | None = None, gateway: PaymentGateway | None = None) -> None:
    """Go to *second* and do what is due there."""
    if second is not None:
        market.clock.move_to(second)
    policies.run_due(market.ledger, gateway)


def act_until(market: Market, until: int, gateway: PaymentGateway | None = None) -> None:
    """Go on from one due second to the next, as a simulated clock does, to *until*.

    Only what concerns a renter's credit and rentals is waited for; weeks pass quickly.
    """
    policies.run_due(market.ledger, gateway)
    while market.clock() < until:
        with market.ledger.reading() as connection:
            found = [ask(connection, market.clock()) for ask in _DUE]
        due = [second for second in found if second is not None]
        act(market, min([until, *due]), gateway)


def started(market: Market, account: int, machine: int, **options: int) -> int:
    """An instance that runs since this second."""
    instance = market.rent(account, machine, **options)
    market.confirm(machine, instance)
    return instance


def ticks(
    market: Market,
    machine: int,
    instance: int,
    seconds: int,
    util: int | Sequence[int],
    *,
    state: TickState = "running",
    samples: Sequence[GpuSample] = (),
    window: int = 300,
) -> None:
    """Let time pass with reported ticks of one utilisation, or of one a second; -1 is unknown.

    Samples travel in the report whose window holds their second.
    """
    until = market.clock() + seconds
    first = market.clock()
    while market.clock() < until:
        now = market.clock()
        count = min(until - now, window)
        block = constant_block(instance, now, count, state, up=0, down=0, util=0)
        wanted = (
            [util] * count if isinstance(util, int) else util[now - first : now - first + count]
        )
        column = bytes([255 if one < 0 else one for one in wanted])
        block = msgspec.structs.replace(block, util=column)
        market.clock.move_to(now + count)
        report = market.chains[machine].seal(
            now, count, [block], gpus=[one for one in samples if now <= one.at < now + count]
        )
        assert market.deliver(report)[0].status == "accepted"


def idle_run(market: Market, instance: int) -> tuple[int, int] | None:
    """The present idle run of an instance, as the meters have it."""
    market.project()
    row = market.connection.execute(
        "SELECT start, until FROM idle_spans WHERE instance_id = %s", [instance]
    ).fetchone()
    market.connection.commit()
    return None if row is None else (row[0], row[1])
