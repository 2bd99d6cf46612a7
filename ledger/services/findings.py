"""What was found of a machine: by its agent, by probes from outside, by its host's own word.

Everything is a claim with its evidence level (`marketplace.md` §11.2); a fact is written where a
claim is news, and the machine's verification is reviewed.
"""

from __future__ import annotations

import re
from typing import Final

import msgspec

from ledger.domain.events import InventoryReported, MachineLocated, MachineProbed
from ledger.domain.hardware import Inventory
from ledger.domain.ids import machine_stream
from ledger.errors import RejectedError
from ledger.services.comparisons import compare, decoded
from ledger.services.ledger import Unit
from ledger.services.machines import require_machine
from ledger.services.verification import review

_COUNTRY: Final = re.compile(r"[A-Z]{2}")
_MBPS_MAX: Final = 10_000_000
_PORTS_MAX: Final = 65_536


class Probe(msgspec.Struct, frozen=True, kw_only=True):
    """What the platform's probes measured from outside; null: not this time.

    `under_load`: the machine's last inventory was taken while its GPUs worked.
    """

    up_mbps: int | None = None
    down_mbps: int | None = None
    open_ports: int | None = None
    country: str | None = None
    under_load: bool = False


def take_inventory(unit: Unit, machine_id: int, inventory: Inventory) -> None:
    """Keep what an agent says its machine is made of, if that is news."""
    lasting = msgspec.structs.replace(inventory, uplink_tx_bytes=None, uplink_rx_bytes=None)
    row = unit.connection.execute(
        "SELECT inventory FROM machine_trust WHERE machine_id = %s AND inventory IS NOT NULL",
        [machine_id],
    ).fetchone()
    if row is not None and decoded(row[0], Inventory) == lasting:
        return
    unit.append(
        machine_stream(machine_id),
        InventoryReported(
            machine_id=machine_id,
            inventory=lasting,
            evidence="agent_reported",
            reported_at=unit.now,
        ),
    )
    _judge(unit, machine_id)


def take_probe(unit: Unit, machine_id: int, probe: Probe) -> None:
    """Keep what probes found of a machine; what they did not measure this time stays as it was.

    Raises:
        NotFoundError: `no_such_machine`.
        RejectedError: `invalid_args`.
    """
    require_machine(unit.connection, machine_id)
    links = [one for one in (probe.up_mbps, probe.down_mbps) if one is not None]
    if any(not 0 <= one <= _MBPS_MAX for one in links):
        raise RejectedError("invalid_args", "a link has 0 to 10,000,000 Mbit/s")
    if probe.open_ports is not None and not 0 <= probe.open_ports <= _PORTS_MAX:
        raise RejectedError("invalid_args", "a machine has 0 to 65,536 open ports")
    if probe.country is not None:
        _check_country(probe.country)
    unit.append(
        machine_stream(machine_id),
        MachineProbed(
            machine_id=machine_id,
            up_mbps=probe.up_mbps,
            down_mbps=probe.down_mbps,
            open_ports=probe.open_ports,
            country=probe.country,
            under_load=probe.under_load,
            evidence="platform_challenged",
            probed_at=unit.now,
        ),
    )
    _judge(unit, machine_id)


def locate(unit: Unit, machine_id: int, country: str) -> None:
    """Keep in which country its host says a machine stands; the same again changes nothing.

    Raises:
        NotFoundError: `no_such_machine`.
        RejectedError: `invalid_args`.
    """
    require_machine(unit.connection, machine_id)
    _check_country(country)
    row = unit.connection.execute(
        "SELECT country FROM machine_standing WHERE machine_id = %s", [machine_id]
    ).fetchone()
    if row is not None and row[0] == country:
        return
    unit.append(
        machine_stream(machine_id),
        MachineLocated(
            machine_id=machine_id,
            country=country,
            evidence="self_reported",
            located_at=unit.now,
        ),
    )
    _judge(unit, machine_id)


def _judge(unit: Unit, machine_id: int) -> None:
    compare(unit, machine_id)
    review(unit, [machine_id])


def _check_country(country: str) -> None:
    if not _COUNTRY.fullmatch(country):
        raise RejectedError("invalid_args", "a country is two capital letters, as in ISO 3166-1")
