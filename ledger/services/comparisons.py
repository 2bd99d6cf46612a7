"""What is stated of a machine beside what was found of it, and beside the market's minimum bars.

`compare` writes a fact where the outcome is news (`ledger.domain.verification`); what follows for
the machine's verification is `ledger.services.verification`'s.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final, Literal, NamedTuple, TypeVar

import msgspec

from ledger.domain.events import FoundDifference, MachineCompared, MissedBar
from ledger.domain.hardware import Inventory
from ledger.domain.ids import machine_stream
from ledger.domain.verification import Probed, Shortfall, Stated, bars, differences
from ledger.errors import NotFoundError, RejectedError
from ledger.services.ledger import Unit
from ledger.store.database import Connection

_UNPRINTABLE: Final = re.compile(r"[\x00-\x1f\x7f]")

T = TypeVar("T")


class Comparison(NamedTuple):
    """What a machine lacks: to be what it says, to be listed, to be verified."""

    differences: list[FoundDifference]
    missed_to_list: list[MissedBar]
    missed_to_verify: list[MissedBar]


def compare(unit: Unit, machine_id: int) -> Comparison | None:
    """Lay what is stated beside what was found; a fact where the outcome is news.

    None before the machine's agent has sent an inventory: there is nothing to compare.
    """
    row = unit.connection.execute(
        "SELECT inventory, up_mbps, down_mbps, open_ports, country, under_load, differences,"
        " missed_to_list, missed_to_verify, compared_at FROM machine_trust"
        " WHERE machine_id = %s AND inventory IS NOT NULL",
        [machine_id],
    ).fetchone()
    if row is None:
        return None
    probed = Probed(
        up_mbps=row[1], down_mbps=row[2], open_ports=row[3], region=row[4], under_load=row[5]
    )
    found = _compared(unit.connection, machine_id, decoded(row[0], Inventory), probed)
    if row[9] is not None and found == _stored(*row[6:9]):
        return found
    unit.append(
        machine_stream(machine_id),
        MachineCompared(
            machine_id=machine_id,
            differences=found.differences,
            missed_to_list=found.missed_to_list,
            missed_to_verify=found.missed_to_verify,
            compared_at=unit.now,
        ),
    )
    return found


def last_comparison(connection: Connection, machine_id: int) -> Comparison | None:
    """The last comparison of a machine; None before its first inventory."""
    row = connection.execute(
        "SELECT differences, missed_to_list, missed_to_verify FROM machine_trust"
        " WHERE machine_id = %s AND compared_at IS NOT NULL",
        [machine_id],
    ).fetchone()
    return None if row is None else _stored(*row)


def require_listable(unit: Unit, machine_id: int) -> None:
    """Refuse to offer a machine that is known to miss a minimum of this market (§11.1).

    Raises:
        RejectedError: `below_bars`; the detail names each bar, what it needs and what was found.
    """
    found = compare(unit, machine_id)
    if found is None or not found.missed_to_list:
        return
    missed = msgspec.to_builtins(found.missed_to_list)
    message = f"the machine is below the minimum: {as_text(found.missed_to_list)}"
    raise RejectedError("below_bars", message, missed=missed)


def as_text(reasons: Iterable[FoundDifference | MissedBar]) -> str:
    """Differences and missed bars as a reason that people read, without what cannot be shown."""
    shown = []
    for one in reasons:
        if isinstance(one, FoundDifference):
            shown.append(f"{one.field}: {one.found}, not {one.stated}")
        else:
            shown.append(f"{one.bar}: {one.found or 'unknown'}, not {one.needed}")
    return _UNPRINTABLE.sub("", "; ".join(shown))


def decoded(text: str, kind: type[T]) -> T:
    """A value as a fold keeps it: the JSON of the fact."""
    return msgspec.json.decode(text, type=kind)


_STATED: Final = (
    "gpus", "gpu_name", "gpu_ram_gb", "cpu_cores", "ram_gb", "disk_gb", "up_mbps", "down_mbps",
    "region",
)  # fmt: skip


def _compared(
    connection: Connection, machine_id: int, inventory: Inventory, probed: Probed
) -> Comparison:
    row = connection.execute(
        "SELECT m.gpus, m.gpu_name, m.gpu_ram_gb, m.cpu_cores, m.ram_gb, m.disk_gb, m.up_mbps,"
        " m.down_mbps, s.country FROM machines m JOIN machine_standing s USING (machine_id)"
        " WHERE m.machine_id = %s",
        [machine_id],
    ).fetchone()
    if row is None:
        raise NotFoundError("no_such_machine", f"there is no machine {machine_id}")
    stated = Stated(**dict(zip(_STATED, row, strict=True)))
    uuids = connection.execute(
        "SELECT gpu_uuid FROM gpus WHERE machine_id = %s ORDER BY slot", [machine_id]
    ).fetchall()
    different = [
        FoundDifference(
            field=one.field, stated=str(one.stated), found=str(one.found), severity=one.severity
        )
        for one in differences(stated, inventory, [uuid for (uuid,) in uuids], probed)
    ]
    # What is not known yet cannot keep a machine from the market, only from being verified.
    to_list = [one for one in _missed("list", inventory, probed) if one.found is not None]
    return Comparison(different, to_list, _missed("verify", inventory, probed))


def _missed(
    purpose: Literal["list", "verify"], inventory: Inventory, probed: Probed
) -> list[MissedBar]:
    return [_bar(one) for one in bars(purpose, inventory, probed)]


def _bar(one: Shortfall) -> MissedBar:
    found = None if one.found is None else str(one.found)
    return MissedBar(bar=one.bar, needed=str(one.needed), found=found)


def _stored(different: str, to_list: str, to_verify: str) -> Comparison:
    return Comparison(
        decoded(different, list[FoundDifference]),
        decoded(to_list, list[MissedBar]),
        decoded(to_verify, list[MissedBar]),
    )
