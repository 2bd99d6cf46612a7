"""What tests of maintenance, outages and compensation do again and again."""

from __future__ import annotations

from collections.abc import Sequence

from ledger.domain.events import OutageDetected, OutageEnded
from ledger.domain.ids import machine_stream
from ledger.services import outages, policies
from ledger.services.ledger import DEFAULT_POLICY, Policy
from ledger.services.outages import ProbeResult
from tests.support.market import Market

HOUR = 3_600
DAY = 86_400
SLA_1 = Policy(**{**DEFAULT_POLICY.__dict__, "compensation": "sla-1"})


def at(market: Market, second: int, *machines: int) -> None:
    """Move to a second; these machines report; fold, and let the platform do what is due."""
    market.clock.move_to(second)
    for machine in machines:
        heard(market, machine)
    for _ in range(2):
        market.project()
        policies.run_due(market.ledger)


def heard(market: Market, machine: int) -> None:
    """The machine reports without attesting any second: it is online."""
    start = max(market.clock(), market.chains[machine].sealed_until)
    assert market.deliver(market.seal(machine, start, 0))[0].status == "accepted"


def topics(market: Market, prefix: str) -> list[tuple[str, int]]:
    """Facts of a kind in order, with the second at which each was recorded."""
    rows = market.connection.execute(
        "SELECT topic, recorded_at FROM events WHERE topic LIKE %s ORDER BY position",
        [f"{prefix}%"],
    ).fetchall()
    return [(topic.removesuffix(".v1"), second) for topic, second in rows]


def told(market: Market, account: int) -> list[tuple[str, int]]:
    """What an account was told about maintenance, and when."""
    return [
        (about, second)
        for about, second in market.connection.execute(
            "SELECT about, issued_at FROM notices WHERE account_id = %s AND code = 'maintenance'"
            " ORDER BY position",
            [account],
        ).fetchall()
    ]


def locations(market: Market, count: int) -> list[str]:
    """So many probe locations."""
    names = [f"p{number}" for number in range(1, count + 1)]
    with market.ledger.unit() as unit:
        for name in names:
            outages.register_location(unit, name, "somewhere")
    return names


def say(market: Market, names: Sequence[str], machine: int, result: ProbeResult) -> None:
    """These locations saw this of a machine just now."""
    for name in names:
        with market.ledger.unit() as unit:
            outages.report(unit, name, {machine: result})


def was_down(market: Market, machine: int, start: int, until: int) -> int:
    """An outage of `[start, until)` that is over now, by the word of four witnesses."""
    market.clock.move_to(max(start, market.clock()))
    with market.ledger.unit() as unit:
        outage = unit.next_id("outage")
        unit.append(
            machine_stream(machine),
            OutageDetected(
                outage_id=outage,
                machine_id=machine,
                witnesses=["p1", "p2", "p3", "p4"],
                detected_at=start,
            ),
        )
    market.clock.move_to(until)
    with market.ledger.unit() as unit:
        unit.append(
            machine_stream(machine),
            OutageEnded(outage_id=outage, machine_id=machine, ended_at=until),
        )
    return outage
