"""Steps of renters."""

from __future__ import annotations

from collections.abc import Callable

from adapters.simulation.steps.readers import boot, flag, money, name, names, whole
from adapters.simulation.steps.registry import Run, Step, Values, step
from ledger.services import contracts, rentals
from ledger.services.ledger import Unit
from ledger.services.volumes import Mount


@step(
    "rent",
    required={"as": name, "account": name, "machine": name, "disk_gb": whole},
    optional={
        "gpus": whole,
        "bid": money,
        "boot": boot,
        "label": name,
        "wait": flag,
        "volumes": names,
    },
)
def rent(run: Run, step: Step, values: Values) -> None:
    """A rental; without `wait` a full machine refuses."""
    del step
    name = values["as"]
    run.take_name(name)
    mounts = [Mount(path, run.volume(one)) for one, path in values.get("volumes", {}).items()]
    account, machine = run.account(values["account"]), run.machine(values)
    with run.world.ledger.unit() as unit:
        instance = rentals.rent(
            unit,
            account,
            machine,
            gpus=values.get("gpus"),
            disk_gb=values["disk_gb"],
            bid=values.get("bid"),
            label=values.get("label"),
            wait=values.get("wait", False),
            mounts=mounts,
        )
    run.instances[name] = instance
    if "boot" in values:
        run.world.hosts[machine].set_boot(instance, values["boot"])


@step("start", required={"instance": name})
def start(run: Run, step: Step, values: Values) -> None:
    """The renter wants it to run."""
    del step
    _rental(run, values, rentals.start)


@step("stop", required={"instance": name})
def stop(run: Run, step: Step, values: Values) -> None:
    """The renter ends the GPU meter."""
    del step
    _rental(run, values, rentals.stop)


@step("destroy", required={"instance": name})
def destroy(run: Run, step: Step, values: Values) -> None:
    """The renter ends every meter."""
    del step
    _rental(run, values, rentals.destroy)


@step("bid", required={"instance": name, "price": money})
def bid(run: Run, step: Step, values: Values) -> None:
    """The renter bids another amount for the slice."""
    del step
    instance = run.instance(values)
    with run.world.ledger.unit() as unit:
        rentals.change_bid(unit, instance, values["price"])


@step("reserve", required={"instance": name}, optional={"amount": money, "months": whole})
def reserve(run: Run, step: Step, values: Values) -> None:
    """The renter prepays, by amount or by term."""
    del step
    instance = run.instance(values)
    months = values.get("months")
    with run.world.ledger.unit() as unit:
        contracts.reserve(
            unit,
            instance,
            amount=values.get("amount"),
            seconds=None if months is None else months * contracts.SECONDS_PER_MONTH,
        )


@step("unreserve", required={"instance": name})
def unreserve(run: Run, step: Step, values: Values) -> None:
    """The renter cancels a reservation."""
    del step
    _rental(run, values, contracts.unreserve)


@step("accept-price", required={"instance": name})
def accept_price(run: Run, step: Step, values: Values) -> None:
    """The renter accepts the pending price increase."""
    del step
    with run.world.ledger.unit() as unit:
        contracts.answer_price_increase(unit, run.instance(values), accept=True)


@step("reject-price", required={"instance": name})
def reject_price(run: Run, step: Step, values: Values) -> None:
    """The renter rejects the pending price increase."""
    del step
    with run.world.ledger.unit() as unit:
        contracts.answer_price_increase(unit, run.instance(values), accept=False)


@step("reboot", required={"instance": name})
def reboot(run: Run, step: Step, values: Values) -> None:
    """A restart in place, with `boot` ticks of `rebooting`."""
    del step
    _rental(run, values, rentals.reboot)
    instance = run.instance(values)
    host = run.world.hosts[run.host_of(instance)]
    seconds = host.loads[instance].boot_seconds or 0
    host.reboot(instance, run.world.now, seconds)


def _rental(run: Run, values: Values, do: Callable[[Unit, int], object]) -> None:
    instance = run.instance(values)
    with run.world.ledger.unit() as unit:
        do(unit, instance)
