"""Steps about volumes."""

from __future__ import annotations

from adapters.simulation.steps.readers import instant, money, name, whole
from adapters.simulation.steps.registry import Run, Step, Values, step
from ledger.errors import RejectedError
from ledger.services import volume_offers, volumes
from ledger.services.ledger import Unit
from ledger.services.machines import require_machine
from ledger.services.offers import require_listing


@step(
    "offer-volume",
    required={"machine": name, "gb": whole, "gb_month": money},
    optional={"until": instant},
)
def offer_volume(run: Run, step: Step, values: Values) -> None:
    """The host gives so much of its disk to volumes, at this rate."""
    del step
    machine = run.machine(values)
    with run.world.ledger.unit() as unit:
        volume_offers.offer(
            unit,
            machine,
            disk_gb=values["gb"],
            storage_rate=values["gb_month"],
            until=values.get("until"),
        )


@step(
    "volume",
    required={"as": name, "account": name, "machine": name, "gb": whole},
)
def volume(run: Run, step: Step, values: Values) -> None:
    """A volume, from the machine's volume offer; without one, at its listing's storage rate."""
    del step
    run.take_name(values["as"])
    account, machine = run.account(values["account"]), run.machine(values)
    with run.world.ledger.unit() as unit:
        offered = volume_offers.open_offer_of(unit, machine)
        offer = _as_listed(unit, machine, values["gb"]) if offered is None else offered[0]
        made = volumes.create(unit, account, volumes.NewVolume(offer, values["gb"]))
        if offered is None:
            volume_offers.withdraw(unit, machine)
    run.volumes[values["as"]] = made


def _as_listed(unit: Unit, machine_id: int, disk_gb: int) -> int:
    """An offer of just what the volume needs beside those that exist, as the machine is listed."""
    listing = require_listing(unit, require_machine(unit.connection, machine_id))
    return volume_offers.offer(
        unit,
        machine_id,
        disk_gb=volume_offers.kept_gb(unit, machine_id, "volumes") + disk_gb,
        storage_rate=listing.storage_rate,
        until=listing.until,
    )


@step(
    "clone-volume", required={"as": name, "volume": name, "machine": name}, optional={"gb": whole}
)
def clone_volume(run: Run, step: Step, values: Values) -> None:
    """A volume with another's contents, from the volume offer of a machine."""
    del step
    run.take_name(values["as"])
    source, machine = run.volume(values["volume"]), run.machine(values)
    with run.world.ledger.unit() as unit:
        offered = volume_offers.open_offer_of(unit, machine)
        if offered is None:
            raise RejectedError("no_such_ask", f"machine {machine} offers no volumes")
        made = volumes.clone(unit, source, offered.volume_offer_id, disk_gb=values.get("gb"))
    run.volumes[values["as"]] = made


@step("delete-volume", required={"volume": name})
def delete_volume(run: Run, step: Step, values: Values) -> None:
    """The renter ends the meter of a volume."""
    del step
    one = run.volume(values["volume"])
    with run.world.ledger.unit() as unit:
        volumes.delete(unit, one)
