"""`gpuledger agent run`: the parts put together, from start to SIGTERM."""

from __future__ import annotations

import logging
import os
import signal
import sys
import time
from collections.abc import Callable, Collection
from functools import partial
from ipaddress import IPv4Network
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

import structlog

from adapters.hostagent import self_metrics
from adapters.hostagent.acting.agent import Agent
from adapters.hostagent.acting.answers import Answerer
from adapters.hostagent.acting.calls import SignedCalls
from adapters.hostagent.acting.hints import Hints
from adapters.hostagent.acting.keyring import KeyRing
from adapters.hostagent.acting.link import Link
from adapters.hostagent.acting.scribe import Scribe
from adapters.hostagent.acting.senses import Senses
from adapters.hostagent.acting.simulated_senses import SimulatedSenses
from adapters.hostagent.acting.volumes import Volumes
from adapters.hostagent.acting.ways_in import WaysIn, public_address
from adapters.hostagent.client import UsageClient
from adapters.hostagent.control import ControlSocket, MetricsServer
from adapters.hostagent.delivery import Delivery
from adapters.hostagent.home import AgentHome, Enrolled
from adapters.hostagent.identity import HostIdentity
from adapters.hostagent.reports import SealedReport
from adapters.hostagent.runtime.port import Found, Runtime
from adapters.hostagent.spool import SqliteSpool
from adapters.hostagent.suite.child import ChildSuite
from adapters.hostagent.suite.port import NoSuite, Suite
from ledger.domain.acknowledgement import Desired

METRICS_PORT: Final = 9477
RuntimeName = Literal["auto", "docker", "process"]
_LOGS_TAIL: Final = 1_000


class Options(NamedTuple):
    """How an agent is run."""

    runtime: RuntimeName = "auto"
    report_seconds: int = 10
    metrics_port: int | None = METRICS_PORT
    network: Literal["own", "bridge", "host"] = "own"
    network_range: IPv4Network | None = None
    """Addresses of instances of the process runtime; null: the usual ones."""
    user: Literal["own", "agent"] = "own"
    public_ip: str | None = None
    """Where renters reach this machine; null: found out, where it is not translated."""
    suite_python: str = sys.executable
    """The Python whose framework computes for the platform's checks."""


def run(home: AgentHome, options: Options) -> int:
    """Run the agent in *home* until SIGINT or SIGTERM; returns the exit code.

    Args:
        home: Its folder.
        options: How it is run.

    Raises:
        NotFoundError: `not_enrolled`.
        ConflictError: `agent_running`.
    """
    configure_logging()
    enrolled = home.enrolled()
    with home.alone():
        identity = HostIdentity.load(home.key_file)
        spool = SqliteSpool(home.spool_file, enrolled.machine)
        try:
            runtime = make_runtime(home, options)
            senses = make_senses(spool, enrolled)
            _work(home, enrolled, identity, spool, runtime, senses, options)
        finally:
            spool.close()
    return 0


def make_runtime(home: AgentHome, options: Options) -> Runtime:
    """The runtime that was asked for; `auto` takes Docker where its socket is, or DOCKER_HOST."""
    from adapters.hostagent.runtime.process import ProcessRuntime  # noqa: PLC0415 - only one is used

    name = options.runtime
    engine = os.environ.get("DOCKER_HOST")
    if name == "auto":
        name = "docker" if engine or Path("/var/run/docker.sock").exists() else "process"
    if name == "process":
        return ProcessRuntime(
            home.instances,
            network=options.network,
            user=options.user,
            addresses=options.network_range,
        )
    # The engine's client is an extra (`gpuledger[agent]`), and 20 MB of memory.
    from adapters.hostagent.runtime.docker_engine import (  # noqa: PLC0415
        DEFAULT_SOCKET,
        DockerRuntime,
    )

    return DockerRuntime(engine or DEFAULT_SOCKET)


def make_senses(spool: SqliteSpool, enrolled: Enrolled) -> Senses:
    """The sensing half, or its simulation where the machine was enrolled with one."""
    if enrolled.simulated:
        return SimulatedSenses(enrolled.gpu_uuids, sealed_until=spool.sealed_until)
    # The binding of NVML is an extra (`gpuledger[agent]`).
    from adapters.hostagent.acting.machine_senses import MachineSenses  # noqa: PLC0415

    return MachineSenses(
        enrolled.gpu_uuids,
        state=spool.load("senses"),
        sealed_until=spool.sealed_until,
        gpus_only=enrolled.gpus_only,
    )


def _work(
    home: AgentHome,
    enrolled: Enrolled,
    identity: HostIdentity,
    spool: SqliteSpool,
    runtime: Runtime,
    senses: Senses,
    options: Options,
) -> None:
    def second() -> int:
        return senses.second or int(time.time())

    def stand_in(first: SealedReport, seq: int) -> SealedReport | None:
        return spool.stand_in(identity, senses.boot_id, first, seq)

    server = enrolled.server
    client = UsageClient(server)
    suite: Suite = NoSuite()
    if not enrolled.simulated:
        suite = ChildSuite(
            enrolled.gpu_uuids, options.suite_python, is_rented=lambda: agent.wanted.is_rented
        )
        senses.spare(suite.pids)
    answerer = Answerer(senses.gpu_count, lambda: senses.second, suite)
    agent = Agent(
        runtime=runtime,
        senses=senses,
        spool=spool,
        signer=identity,
        answerer=answerer,
        report_seconds=options.report_seconds,
    )
    delivery = Delivery(client, spool, on_heard=agent.hear, stand_in=stand_in)
    agent.sealer.on_sealed = delivery.wake
    calls = SignedCalls(server, spool.machine, identity, second=second)
    scribe = Scribe(calls, runtime, agent.diary)
    ways_in = WaysIn(calls, runtime, options.public_ip or public_address(server))
    keyring = KeyRing(runtime, lambda instance, text: agent.diary.note(instance, second(), text))

    def running(found: Collection[Found]) -> None:
        ways_in.running(found)
        keyring.running(found)

    agent.running.on_running = running
    hints = Hints(runtime, agent.hint)
    volumes = Volumes(runtime)

    def hear(desired: Desired, sent_ns: int, received_ns: int) -> None:
        agent.want(desired, sent_ns, received_ns)
        scribe.notice(desired.log_request)
        volumes.take(desired.volumes)
        keyring.take(desired)

    link = Link(calls, hear)
    control = ControlSocket(home.socket, _commands(agent, spool, delivery, runtime, senses))
    metrics = _metrics(agent, spool, delivery, senses, options.metrics_port)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: agent.end())
    beside = (delivery, link, scribe, ways_in, keyring, hints)
    for one in beside:
        one.start()
    try:
        agent.run()
    finally:
        for one in (link, scribe, ways_in, keyring, hints, delivery):
            one.close()
        control.close()
        if metrics is not None:
            metrics.close()
        client.close()


def _commands(
    agent: Agent, spool: SqliteSpool, delivery: Delivery, runtime: Runtime, senses: Senses
) -> dict[str, Callable[[Any], Any]]:
    def status(_: Any) -> Any:
        return {
            **agent.status(),
            "spool": spool.facts()._asdict(),
            "alarms": delivery.alarms,
            "refused": delivery.is_refused,
        }

    def logs(request: Any) -> Any:
        tail = min(int(request.get("tail", 100)), _LOGS_TAIL)
        for one in runtime.list():
            if one.instance == request["instance"]:
                return runtime.logs(one.id, tail).decode(errors="replace")
        return ""

    commands: dict[str, Callable[[Any], Any]] = {"status": status, "logs": logs}
    for name in ("release_nvml", "acquire_nvml"):
        found = getattr(senses, name, None)
        if found is not None:
            commands[name] = partial(_without_request, found)
    return commands


def _without_request(command: Callable[[], Any], _: Any) -> Any:
    return command()


def _metrics(
    agent: Agent, spool: SqliteSpool, delivery: Delivery, senses: Senses, port: int | None
) -> MetricsServer | None:
    if port is None:
        return None

    def text() -> bytes:
        heard = delivery.heard_at
        own = self_metrics.render(
            spool.facts(),
            alarms=delivery.alarms,
            instances=agent.instances,
            contact_age=None if heard is None else time.monotonic() - heard,
        )
        return senses.metrics() + own

    return MetricsServer(port, text)


def configure_logging() -> None:
    """One line of JSON per event on standard error; never a secret in it."""
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
