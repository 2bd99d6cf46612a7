"""Steps about machines and listings."""

from __future__ import annotations

from adapters.simulation.steps.readers import instant, money, name, whole
from adapters.simulation.steps.registry import Run, Step, Values, step
from ledger.domain.events import MachineSpec
from ledger.domain.money import parse_fee
from ledger.services import listings, verification


@step(
    "machine",
    required={"machine": name, "host": name, "gpus": whole, "gpu_name": name},
    optional={
        "gpu_ram_gb": whole,
        "cpu_cores": whole,
        "ram_gb": whole,
        "disk_gb": whole,
        "up_mbps": whole,
        "down_mbps": whole,
    },
)
def machine(run: Run, step: Step, values: Values) -> None:
    """A machine, registered, enrolled, online and verified."""
    del step
    name, gpus = values["machine"], values["gpus"]
    if name in run.machines:
        message = f"the machine `{name}` exists already"
        raise run.fail(message)
    host = run.account(values["host"])
    spec = MachineSpec(
        gpus=gpus,
        gpu_name=values["gpu_name"],
        gpu_ram_gb=values.get("gpu_ram_gb", 24),
        cpu_cores=values.get("cpu_cores", 8 * gpus),
        ram_gb=values.get("ram_gb", 64 * gpus),
        disk_gb=values.get("disk_gb", 2_000 * gpus),
        up_mbps=values.get("up_mbps", 10_000),
        down_mbps=values.get("down_mbps", 10_000),
    )
    with run.world.ledger.unit() as unit:
        machine = run.world.add_machine(unit, host, spec)
        verification.verify_by_hand(unit, machine, "a scenario's machine")
    run.machines[name] = machine


@step(
    "list",
    required={"machine": name, "gpu_hour": money, "storage_gb_month": money},
    optional={
        "up_gb": money,
        "down_gb": money,
        "min_bid": money,
        "min_gpus": whole,
        "until": instant,
        "reserved_discount_max": name,
    },
)
def list_(run: Run, step: Step, values: Values) -> None:
    """A listing; again on a listed machine is a new one."""
    del step
    machine = run.machine(values)
    discount = values.get("reserved_discount_max")
    with run.world.ledger.unit() as unit:
        listings.list_machine(
            unit,
            machine,
            listings.Prices(
                values["gpu_hour"],
                values["storage_gb_month"],
                values.get("up_gb", 0),
                values.get("down_gb", 0),
                values.get("min_bid"),
            ),
            min_gpus=values.get("min_gpus", 1),
            until=values.get("until"),
            reserved_discount_max_bp=4_000 if discount is None else parse_fee(discount),
        )


@step("unlist", required={"machine": name})
def unlist(run: Run, step: Step, values: Values) -> None:
    """No new rentals."""
    del step
    machine = run.machine(values)
    with run.world.ledger.unit() as unit:
        listings.unlist_machine(unit, machine)
