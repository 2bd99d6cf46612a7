"""Volumes in a test's market."""

from __future__ import annotations

from ledger.services import volume_offers, volumes
from ledger.services.questions import volumes as ask
from tests.support.market import Market

RATE = 150_000_000
"""$0.15 a GB-month."""


def offer(
    market: Market, machine: int, gb: int = 500, rate: int = RATE, until: int | None = None
) -> int:
    """The machine's host gives *gb* of its disk to volumes; returns the offer's id."""
    with market.ledger.unit() as unit:
        return volume_offers.offer(unit, machine, disk_gb=gb, storage_rate=rate, until=until)


def create(market: Market, account: int, offer_id: int, gb: int = 100) -> int:
    """A volume of an account."""
    with market.ledger.unit() as unit:
        return volumes.create(unit, account, volumes.NewVolume(offer_id, gb))


def delete(market: Market, volume: int) -> None:
    """Its renter ends the meter."""
    with market.ledger.unit() as unit:
        volumes.delete(unit, volume)


def shown(market: Market, volume: int) -> ask.VolumeView:
    """The volume as questions show it, everything folded."""
    market.project()
    with market.ledger.reading() as connection:
        return ask.volume(connection, volume)


def left(market: Market, offer_id: int) -> int:
    """GB that an offer has left."""
    row = market.connection.execute(
        "SELECT left_gb FROM volume_offers WHERE volume_offer_id = %s", [offer_id]
    ).fetchone()
    assert row is not None
    return int(row[0])
