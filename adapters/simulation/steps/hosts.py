"""Steps that happen to a host."""

from __future__ import annotations

from adapters.hostagent.reports import ReportChain, constant_block
from adapters.simulation.steps.readers import flag, instant, name, whole
from adapters.simulation.steps.registry import Run, Step, Values, step
from ledger.domain.usage import MAX_WINDOW_SECONDS, TickState
from ledger.services.usage import SignedReport


@step("traffic", required={"instance": name}, optional={"up": whole, "down": whole})
def traffic(run: Run, step: Step, values: Values) -> None:
    """Bytes per second from now on, in every second in which it runs."""
    del step
    instance = run.instance(values)
    host = run.world.hosts[run.host_of(instance)]
    host.set_traffic(instance, run.world.now, values.get("up", 0), values.get("down", 0))


@step("util", required={"instance": name, "gpu": whole})
def util(run: Run, step: Step, values: Values) -> None:
    """GPU utilisation from now on."""
    del step
    instance = run.instance(values)
    host = run.world.hosts[run.host_of(instance)]
    host.set_utilisation(instance, run.world.now, values["gpu"])


@step("exit", required={"instance": name})
def exit_(run: Run, step: Step, values: Values) -> None:
    """The container ends by itself."""
    del step
    instance = run.instance(values)
    run.world.hosts[run.host_of(instance)].exit(instance, run.world.now)


@step("confirm", required={"instance": name})
def confirm(run: Run, step: Step, values: Values) -> None:
    """The host confirms that it runs."""
    del step
    instance = run.instance(values)
    run.world.hosts[run.host_of(instance)].confirm(instance, run.world.now)


@step("silence", required={"machine": name})
def silence(run: Run, step: Step, values: Values) -> None:
    """Reports are spooled and not delivered."""
    del step
    run.world.hosts[run.machine(values)].silence(run.world.now)


@step("resume", required={"machine": name})
def resume(run: Run, step: Step, values: Values) -> None:
    """The spool is delivered."""
    del step
    run.world.resume(run.machine(values))


@step("crash", required={"machine": name})
def crash(run: Run, step: Step, values: Values) -> None:
    """The machine is down."""
    del step
    run.world.crash(run.machine(values))


@step("recover", required={"machine": name})
def recover(run: Run, step: Step, values: Values) -> None:
    """It is up again, with a new boot."""
    del step
    machine = run.machine(values)
    run.boots += 1
    run.world.recover(machine, f"boot-{machine}-{run.boots}")


@step("redeliver", required={"machine": name})
def redeliver(run: Run, step: Step, values: Values) -> None:
    """Every report of the machine is sent again."""
    del step
    run.world.redeliver(run.machine(values))


@step(
    "ticks",
    required={"instance": name, "from": instant, "until": instant},
    optional={"running": flag, "up": whole, "down": whole},
)
def ticks(run: Run, step: Step, values: Values) -> None:
    """An extra report under an epoch of its own, received at once."""
    instance = run.instance(values)
    machine = run.host_of(instance)
    host = run.world.hosts[machine]
    chain = ReportChain(
        machine, host.chain.signer, boot_id=host.chain.boot_id, epoch=f"{step.number:032x}"
    )
    state: TickState = "running" if values.get("running", True) else "stopped"
    second, until = values["from"], values["until"]
    while second < until:
        count = min(until - second, MAX_WINDOW_SECONDS)
        block = constant_block(
            instance,
            second,
            count,
            state,
            up=values.get("up", 0),
            down=values.get("down", 0),
            util=100,
        )
        one = chain.seal(second, count, [block])
        run.world.usage.deliver(
            [SignedReport(one.key_id, one.signature, one.body)], [run.world.now]
        )
        second += count
