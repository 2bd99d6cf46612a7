"""Machines as the search knows them: every column of an offer can be given a value."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from adapters.hostagent.reports import constant_block
from ledger.projections.facts.market import refresh
from ledger.store.database import Database
from tests.support.market import Market

_STANDING = frozenset(
    {"verification", "secure", "reliability", "checks", "lower_bound", "score", "country"}
)


def describe(market: Market, machine: int, **known: Any) -> None:
    """Write what is thought and measured of a machine straight into the tables of the search.

    For questions only: no fact says these things, and a rebuild would not find them.
    """
    describe_in(market.ledger.database, machine, **known)


def describe_in(database: Database, machine: int, **known: Any) -> None:
    """The same in a database that a server of its own may be using."""
    with database.connect() as connection:
        connection.execute(
            "INSERT INTO machine_details (machine_id) VALUES (%s) ON CONFLICT DO NOTHING", [machine]
        )
        for name, value in known.items():
            table = "machine_standing" if name in _STANDING else "machine_details"
            connection.execute(
                f"UPDATE {table} SET {name} = %s WHERE machine_id = %s",  # noqa: S608 - our names
                [value, machine],
            )
        refresh(connection, [machine], [])
        connection.commit()


def verify(market: Market, machine: int) -> None:
    """Let the search take a machine for verified."""
    describe(market, machine, verification="verified")


_REPORT_SECONDS: Final = 300
_DELIVERY_SECONDS: Final = 2 * 86_400


def run_long(market: Market, machine: int, instances: Sequence[int], seconds: int) -> None:
    """Let days pass in which these instances run; reports arrive many at a time, in time."""
    while seconds > 0:
        chunk = min(seconds, _DELIVERY_SECONDS)
        start = market.clock()
        reports = []
        for first in range(start, start + chunk, _REPORT_SECONDS):
            count = min(_REPORT_SECONDS, start + chunk - first)
            blocks = [
                constant_block(one, first, count, "running", up=0, down=0, util=90)
                for one in instances
            ]
            reports.append(market.seal(machine, first, count, blocks))
        market.clock.move_to(start + chunk)
        for batch in range(0, len(reports), 200):
            answers = market.deliver(*reports[batch : batch + 200])
            assert {one.status for one in answers} == {"accepted"}
        seconds -= chunk
