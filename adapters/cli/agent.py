"""`gpuledger agent`: the program on a rented-out machine, and how to look at it."""

from __future__ import annotations

import ipaddress
import os
import secrets
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

from cyclopts import Parameter
from cyclopts.validators import Number

from adapters.cli.options import AsJson
from ledger.errors import RejectedError

if TYPE_CHECKING:
    from adapters.hostagent.home import AgentHome

_STATE: Final = "GPULEDGER_AGENT_STATE"
_RANGE_PREFIX_MAX: Final = 24

State = Annotated[
    Path | None,
    Parameter(
        name="--state",
        help="The agent's folder; default: $GPULEDGER_AGENT_STATE, else /var/lib/gpuledger-agent.",
    ),
]
RuntimeOption = Annotated[
    Literal["auto", "docker", "process"],
    Parameter(
        name="--runtime",
        help="What runs instances: Docker, or plain processes; auto takes Docker where it is.",
    ),
]
SuitePython = Annotated[
    str | None,
    Parameter(
        name="--suite-python",
        env_var="GPULEDGER_AGENT_SUITE_PYTHON",
        help="A Python with PyTorch, for challenges and benchmarks; default: the agent's own.",
    ),
]
NetworkOption = Literal["own", "bridge", "host"]
Simulated = Annotated[
    int | None,
    Parameter(
        help="Pretend to have so many GPUs, to try the agent.", validator=Number(gte=1, lte=16)
    ),
]


def enrol(
    *,
    server: Annotated[str, Parameter(help="Where the server is, such as https://gpus.example.")],
    token: Annotated[str, Parameter(help="The one-time token that the machine's owner made.")],
    state: State = None,
    simulated_gpus: Simulated = None,
    gpus_only: Annotated[
        bool,
        Parameter(
            negative="",
            help="Tell of the GPUs and not of the computer around them, to try the agent with GPUs"
            " from a stub (`make fake-gpu`) on a computer that is smaller than it plays.",
        ),
    ] = False,
    json: AsJson = False,
) -> int:
    """Make this machine's key and present it with the token; done once.

    Example: gpuledger agent enrol --server https://gpus.example --token gle_…
    """
    from adapters.cli.output import print_json

    stock = None
    if simulated_gpus is None:
        from adapters.hostagent.acting.machine_senses import take_stock

        stock = take_stock(gpus_only=gpus_only)
        uuids = [one.uuid for one in stock.gpus]
    else:
        uuids = [f"GPU-{secrets.token_hex(8)}" for _ in range(simulated_gpus)]
    if not uuids:
        message = (
            "the driver shows no GPU on this machine: install it, or try the agent with"
            " --simulated-gpus 1"
        )
        raise RejectedError("no_gpus", message)
    done = _home(state).enrol(
        server.rstrip("/"),
        token,
        uuids,
        stock,
        simulated=simulated_gpus is not None,
        gpus_only=gpus_only,
    )
    if json:
        print_json({"machine": done.machine, "key_id": done.key_id, "gpu_uuids": done.gpu_uuids})
    else:
        sys.stdout.write(
            f"machine {done.machine} is enrolled with {len(uuids)} GPUs under key {done.key_id};"
            " start it with `gpuledger agent run`\n"
        )
    return 0


def run(
    *,
    state: State = None,
    runtime: RuntimeOption = "auto",
    report_seconds: Annotated[
        int, Parameter(help="Seconds in a report.", validator=Number(gte=1, lte=60))
    ] = 10,
    metrics_port: Annotated[
        int,
        Parameter(
            help="Port of 127.0.0.1 for Prometheus; 0 serves none.",
            validator=Number(gte=0, lte=65_535),
        ),
    ] = 9477,
    network: Annotated[
        NetworkOption,
        Parameter(
            help="Network of plain processes: alone in one of their own, one with a way out through"
            " this machine's address, or this machine's own (then no bytes are counted)."
        ),
    ] = "own",
    network_range: Annotated[
        str | None,
        Parameter(help="Addresses of instances with --network bridge; default: 10.249.0.0/16."),
    ] = None,
    instance_user: Annotated[
        Literal["own", "agent"],
        Parameter(help="User of plain processes: a number of their own, or the agent's."),
    ] = "own",
    public_ip: Annotated[
        str | None,
        Parameter(
            help="Address by which renters reach this machine; default: its own, if the world can."
        ),
    ] = None,
    suite_python: SuitePython = None,
) -> int:
    """Run the agent until SIGTERM: obey, measure, sign, send. Instances go on without it.

    Example: gpuledger agent run --runtime docker
    """
    from adapters.hostagent.program import Options
    from adapters.hostagent.program import run as work

    options = Options(
        runtime=runtime,
        report_seconds=report_seconds,
        metrics_port=metrics_port or None,
        network=network,
        network_range=None if network_range is None else _range(network_range),
        user=instance_user,
        public_ip=None if public_ip is None else _address(public_ip),
        suite_python=suite_python or sys.executable,
    )
    return work(_home(state), options)


def status(*, state: State = None, json: AsJson = False) -> int:
    """Show what the running agent sees: instances, spool, last answer; exit 1 when none runs.

    Example: gpuledger agent status --json
    """
    from adapters.cli.output import print_json
    from adapters.hostagent.control import call

    found: dict[str, Any] = call(_home(state).socket, "status")
    if json:
        print_json(found)
        return 0
    spool = found["spool"]
    ago = found["last_answer_seconds_ago"]
    write = sys.stdout.write
    write(f"machine {found['machine']}, runtime {found['runtime']}, GPUs {found['gpus']}\n")
    write(f"last answer: {'none yet' if ago is None else f'{ago} s ago'}\n")
    write(
        f"spool: {spool['waiting']} reports wait, sealed {spool['sealed']},"
        f" acknowledged {spool['acknowledged']}, {spool['dead_letters']} dead letters,"
        f" {spool['file_bytes']:,} bytes\n"
    )
    for one in found["instances"]:
        doing = f", {one['step']} under way" if one["step"] else ""
        write(
            f"instance {one['instance']}: {one['state']}, wanted {one['want']}"
            f" (assignment {one['assignment']}){doing}\n"
        )
    for one in found["strangers"]:
        write(f"container {one} carries the platform's label and nobody wants it\n")
    for code, count in sorted(found["alarms"].items()):
        write(f"alarm {code}: {count} times\n")
    return 0


def inventory(*, json: AsJson = False) -> int:
    """Show what the machine is made of, as a report would say it.

    Example: gpuledger agent inventory --json
    """
    import msgspec

    from adapters.cli.output import print_json
    from adapters.hostagent.acting.machine_senses import take_stock

    found: dict[str, Any] = msgspec.to_builtins(take_stock())
    if json:
        print_json(found)
        return 0
    gpus = found.pop("gpus", [])
    measured = found.pop("measured", {})
    for name, value in found.items():
        how = f" ({measured[name]})" if name in measured else ""
        sys.stdout.write(f"{name}: {value}{how}\n")
    for one in gpus:
        sys.stdout.write(
            f"GPU {one['uuid']}: {one.get('name', 'no name')}, {one.get('mib', '?')} MiB\n"
        )
    if not gpus:
        sys.stdout.write("no GPU answers: see `gpuledger agent doctor`\n")
    return 0


def doctor(
    *,
    state: State = None,
    runtime: RuntimeOption = "auto",
    suite_python: SuitePython = None,
    network: Annotated[
        NetworkOption, Parameter(help="As the agent is run with: what that needs is looked at.")
    ] = "own",
    network_range: Annotated[
        str | None, Parameter(help="As the agent is run with; default: 10.249.0.0/16.")
    ] = None,
    json: AsJson = False,
) -> int:
    """Look for what stands in the agent's way, and say what to do; exit 1 when something does.

    Example: gpuledger agent doctor
    """
    from adapters.cli.output import print_json
    from adapters.hostagent.doctor import examine
    from adapters.hostagent.program import Options, make_runtime

    home = _home(state)
    addresses = None if network_range is None else _range(network_range)
    options = Options(runtime=runtime, network=network, network_range=addresses)
    found = examine(home, lambda: make_runtime(home, options), suite_python or sys.executable)
    if json:
        print_json([one._asdict() for one in found])
    else:
        for one in found:
            way_out = f"\n         → {one.way_out}" if one.way_out else ""
            sys.stdout.write(f"{one.level:8} {one.check}: {one.found}{way_out}\n")
    return 1 if any(one.level == "error" for one in found) else 0


def release_nvml(*, state: State = None) -> int:
    """Let the running agent close the driver, for a GPU reset or a MIG change; ticks go on.

    Example: gpuledger agent release-nvml
    """
    from adapters.hostagent.control import call

    call(_home(state).socket, "release_nvml")
    sys.stdout.write("released; `gpuledger agent acquire-nvml` opens the driver again\n")
    return 0


def acquire_nvml(*, state: State = None) -> int:
    """Let the running agent open the driver again.

    Example: gpuledger agent acquire-nvml
    """
    from adapters.hostagent.control import call

    call(_home(state).socket, "acquire_nvml")
    sys.stdout.write("the driver is open again\n")
    return 0


def logs(
    instance: Annotated[int, Parameter(validator=Number(gte=1))],
    /,
    *,
    tail: Annotated[
        int, Parameter(help="Lines at most.", validator=Number(gte=1, lte=1_000))
    ] = 100,
    state: State = None,
) -> int:
    """Show the last lines that an instance wrote, from the machine itself.

    Example: gpuledger agent logs 7 --tail 20
    """
    from adapters.hostagent.control import call

    sys.stdout.write(call(_home(state).socket, "logs", instance=instance, tail=tail))
    return 0


def _address(text: str) -> str:
    """An IP address as it is written.

    Raises:
        RejectedError: `invalid_args`.
    """
    try:
        return str(ipaddress.ip_address(text))
    except ValueError:
        message = f"--public-ip {text}: this is no IP address such as 203.0.113.9"
        raise RejectedError("invalid_args", message) from None


def _range(text: str) -> ipaddress.IPv4Network:
    """A range of addresses as it is written.

    Raises:
        RejectedError: `invalid_args`.
    """
    try:
        found = ipaddress.IPv4Network(text)
    except ValueError:
        found = None
    if found is None or found.prefixlen > _RANGE_PREFIX_MAX:
        message = (
            f"--network-range {text}: this is no range of IPv4 addresses such as 10.249.0.0/16,"
            " with room for at least 64 instances (/24)"
        )
        raise RejectedError("invalid_args", message)
    return found


def _home(state: Path | None) -> AgentHome:
    from adapters.hostagent.home import DEFAULT, AgentHome

    return AgentHome((state or Path(os.environ.get(_STATE) or DEFAULT)).expanduser())
