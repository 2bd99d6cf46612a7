"""A way out for plain processes: real links and rules, in namespaces of the test's own."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest

from adapters.hostagent.runtime import bridge, firewall
from adapters.hostagent.runtime.port import LaunchError, LaunchSpec, PortWish
from adapters.hostagent.runtime.process import ProcessRuntime
from adapters.hostagent.sensing.netdev import read_network
from tests.support.street import HOST, WORLD, Street, ip, street

PAYLOAD: Final = 5_000_000
_SERVES: Final = f"""
import socket
server = socket.create_server(("{WORLD}", 5201))
print("ready", flush=True)
while True:
    peer, place = server.accept()
    with peer:
        peer.sendall(place[0].encode() + b"\\n" + bytes({PAYLOAD}))
"""
_DOWNLOADS: Final = f"""
import socket, sys, time
with socket.create_connection(("{WORLD}", 5201), timeout=10) as peer:
    first, total = b"", 0
    while data := peer.recv(1 << 18):
        first, total = first or data, total + len(data)
mine = socket.create_server(("127.0.0.1", 5202))
own = socket.create_connection(("127.0.0.1", 5202))
own.sendall(bytes(1 << 16)); mine.accept()[0].recv(1 << 16)
print(first.split(b"\\n")[0].decode(), total, flush=True)
time.sleep(1000)
"""
_LISTENS: Final = """
import socket
server = socket.create_server(("0.0.0.0", 80))
print("listens", flush=True)
while True:
    peer, place = server.accept()
    with peer:
        peer.sendall(f"instance of {place[0]}".encode())
"""


def _tries(address: str, port: int) -> str:
    """A program that says whether a connection can be had."""
    return f"""
import socket
try:
    with socket.create_connection(("{address}", {port}), timeout=0.7) as peer:
        print("reached", peer.recv(100).decode())
except OSError as error:
    print("not reached")
"""


@pytest.fixture(params=["iptables", "nft"])
def road(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Street]:
    """A world and a host whose firewall is set by one tool or the other."""
    if os.geteuid() != 0:
        pytest.skip("links are made by root only")
    if shutil.which(request.param) is None:
        pytest.skip(f"there is no {request.param} here")
    monkeypatch.setattr(firewall, "tool", lambda: request.param)
    with street() as names:
        try:
            firewall.put(bridge.ADDRESSES, [])
        except firewall.FirewallError as error:
            pytest.skip(f"the kernel takes no rules of {request.param}: {error}")
        firewall.remove()
        yield names


@pytest.fixture
def root(road: Street) -> Iterator[Path]:
    """Where instances are; what a test leaves running is ended."""
    folder = Path(tempfile.mkdtemp(prefix="gl-br-"))
    folder.chmod(0o711)
    yield folder / "instances"
    for one in runtime_at(folder / "instances").list():
        runtime_at(folder / "instances").remove(one.id)
    shutil.rmtree(folder, ignore_errors=True)


def runtime_at(root: Path) -> ProcessRuntime:
    """As an agent makes it; as the agent's user, who may read the interpreter of the tests."""
    return ProcessRuntime(root, network="bridge", user="agent")


def spec(instance: int, code: str, *ports: PortWish, assignment: int = 1) -> LaunchSpec:
    """An instance that runs *code*."""
    args = (sys.executable, "-I", "-S", "-c", code)
    return LaunchSpec(
        instance=instance, assignment=assignment, gpu_uuids=(), args=args, ports=ports
    )


def said(runtime: ProcessRuntime, instance: int) -> str:
    """The first line that an instance writes."""
    deadline = time.monotonic() + 20
    while not (text := runtime.logs(str(instance), None)):
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)
    return text.decode().splitlines()[0]


def until(condition: Callable[[], object]) -> None:
    """Wait until *condition* holds."""
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)


def links() -> list[str]:
    """Of this host, those that lead to instances."""
    names = [line.split()[0].partition("@")[0] for line in ip("-br", "link").splitlines()]
    return [one for one in names if one.startswith(firewall.LINKS)]


def rules() -> str:
    """All rules of this host."""
    commands = {"iptables": ["iptables-save"], "nft": ["nft", "list", "ruleset"]}
    tool = firewall.tool()
    assert tool is not None
    done = subprocess.run(commands[tool], capture_output=True, text=True, check=True)
    return done.stdout.lower()


def test_a_download_is_counted_as_down_and_comes_from_the_hosts_address(
    road: Street, root: Path
) -> None:
    """The world sees the host; the instance's interface shows the payload as received, no more."""
    runtime = runtime_at(root)
    with road.world_runs(_SERVES):
        started = runtime.start(spec(7, _DOWNLOADS))
        address, total = said(runtime, 7).split()
    assert (address, int(total)) == (HOST, len(HOST) + 1 + PAYLOAD)
    assert started.pid is not None
    network = read_network(started.pid)
    assert network is not None
    (eth0,) = network.interfaces
    assert eth0.name == "eth0"
    assert PAYLOAD < eth0.down < PAYLOAD * 105 // 100
    assert 0 < eth0.up < PAYLOAD // 10


def test_before_it_does_anything_an_instance_has_carried_no_byte(road: Street, root: Path) -> None:
    """What the kernel says for itself when a link comes up is not the renter's."""
    runtime = runtime_at(root)
    started = runtime.start(spec(7, "import time; print('up', flush=True); time.sleep(1000)"))
    assert said(runtime, 7) == "up"
    time.sleep(1.5)
    assert started.pid is not None
    network = read_network(started.pid)
    assert network is not None
    assert [(one.up, one.down) for one in network.interfaces] == [(0, 0)]


def test_ports_lead_to_their_instances(road: Street, root: Path) -> None:
    """Two instances wish the host's port 18080: the second gets another, and both are reached."""
    runtime = runtime_at(root)
    wish = PortWish(80, "tcp", 18_080)
    for instance in (7, 8):
        runtime.start(spec(instance, _LISTENS, wish))
        assert said(runtime, instance) == "listens"
    told = [runtime.connection(str(instance)).ports for instance in (7, 8)]
    assert [[(one.container_port, one.protocol) for one in ports] for ports in told] == [
        [(80, "tcp")]
    ] * 2
    (first,), (second,) = told
    assert first.host_port == 18_080 != second.host_port
    for one in (first, second):
        assert road.world_says(_tries(HOST, one.host_port)) == f"reached instance of {WORLD}\n"
    runtime.remove("7")
    assert road.world_says(_tries(HOST, first.host_port)) == "not reached\n"
    assert road.world_says(_tries(HOST, second.host_port)) == f"reached instance of {WORLD}\n"


def test_instances_do_not_reach_each_other_nor_the_host(road: Street, root: Path) -> None:
    """Only what is published is reached: no address of another instance, no service of the host."""
    runtime = runtime_at(root)
    runtime.start(spec(7, _LISTENS, PortWish(80, "tcp", 18_080)))
    assert said(runtime, 7) == "listens"
    inside = bridge.Bridge().link(0)
    with subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", _LISTENS.replace(", 80)", ", 9477)")],
        stdout=subprocess.PIPE,
    ) as service:
        assert service.stdout is not None
        assert service.stdout.readline() == b"listens\n"
        for number, (address, port, answer) in enumerate(
            [
                (str(inside.guest), 80, "not reached"),
                (str(inside.host), 9477, "not reached"),
                (HOST, 9477, "not reached"),
                (HOST, 18_080, "reached instance of "),
            ],
            start=20,
        ):
            runtime.start(spec(number, _tries(address, port)))
            assert said(runtime, number).startswith(answer), (address, port)
        service.kill()


def test_nothing_is_left_of_a_removed_instance(road: Street, root: Path) -> None:
    """No link and no rule, whatever ran before; a removal of nothing changes nothing."""
    before = rules()
    runtime = runtime_at(root)
    for instance in (7, 8):
        runtime.start(spec(instance, _LISTENS, PortWish(80)))
    assert links() == [f"{firewall.LINKS}0", f"{firewall.LINKS}1"]
    runtime.stop("7", 0)
    until(lambda: links() == [f"{firewall.LINKS}1"])
    again = runtime.start(spec(7, _LISTENS, PortWish(80), assignment=2))
    assert again.is_alive
    for container in ("7", "8", "9"):
        runtime.remove(container)
    until(lambda: links() == [])
    assert "gpuledger" not in rules()
    assert _without_counters(rules()) == _without_counters(before)


def _without_counters(text: str) -> list[str]:
    """Tables that a tool makes at its first use stay, empty."""
    lines = [line.partition("[")[0] for line in text.splitlines() if not line.startswith("#")]
    return [line for line in lines if line.startswith("-")]


_AGENT: Final = """
import sys
from pathlib import Path
from adapters.hostagent.runtime import firewall
from adapters.hostagent.runtime.process import ProcessRuntime
from tests.contract.test_bridge import _LISTENS, spec, PortWish
firewall.tool = lambda: sys.argv[2]
runtime = ProcessRuntime(Path(sys.argv[1]), network="bridge", user="agent")
runtime.start(spec(7, _LISTENS, PortWish(80, "tcp", 18_080)))
print("started", flush=True)
sys.stdin.read()
"""


def test_a_killed_agent_leaves_a_network_that_works_and_ends_with_the_instance(
    road: Street, root: Path
) -> None:
    """The next agent finds the same ports; when the processes are killed, the kernel cleans up."""
    tool = firewall.tool()
    assert tool is not None
    with subprocess.Popen(
        [sys.executable, "-c", _AGENT, str(root), tool],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    ) as agent:
        assert agent.stdout is not None
        assert agent.stdout.readline() == b"started\n"
        agent.kill()
    runtime = runtime_at(root)
    (found,) = runtime.list()
    assert said(runtime, 7) == "listens"
    (port,) = runtime.connection("7").ports
    assert road.world_says(_tries(HOST, port.host_port)) == f"reached instance of {WORLD}\n"
    # Another instance is given another slot, though this agent placed none yet.
    runtime.start(spec(8, _LISTENS, PortWish(80, "tcp", 18_080)))
    assert links() == [f"{firewall.LINKS}0", f"{firewall.LINKS}1"]
    assert found.pid is not None
    os.kill(found.pid, signal.SIGKILL)
    until(lambda: links() == [f"{firewall.LINKS}1"])


def test_flushed_rules_are_put_back(
    road: Street, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody restarts the host's firewall: within a minute instances are reached again."""
    runtime = runtime_at(root)
    runtime.start(spec(7, _LISTENS, PortWish(80, "tcp", 18_080)))
    assert said(runtime, 7) == "listens"
    firewall.remove()
    runtime.list()
    assert "gpuledger" not in rules()
    monkeypatch.setattr(bridge, "_MEND_SECONDS", 0.0)
    runtime.list()
    assert road.world_says(_tries(HOST, 18_080)) == f"reached instance of {WORLD}\n"


def test_a_renter_without_rights_has_the_same_way_out(road: Street, root: Path) -> None:
    """Under a number of its own an instance has its own name servers and the default route."""
    runtime = ProcessRuntime(root, network="bridge")
    args = ("/bin/sh", "-c", "cat /etc/resolv.conf /proc/net/route; exec sleep 1000")
    runtime.start(LaunchSpec(instance=7, assignment=1, gpu_uuids=(), args=args))
    until(lambda: b"\teth0" in runtime.logs("7", None) or b"eth0\t" in runtime.logs("7", None))
    text = runtime.logs("7", None).decode()
    if "mount" in runtime.isolation(7) and Path("/etc/resolv.conf").exists():
        assert [line for line in text.splitlines() if line.startswith("nameserver")] == [
            f"nameserver {one}" for one in bridge.name_servers()
        ]
    assert "net" in runtime.isolation(7)


def test_without_a_tool_for_rules_nothing_starts_and_the_doctor_says_what_to_do(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A launch is refused as the host's fault, and the fault names what to install."""
    runtime = runtime_at(root)
    monkeypatch.setattr(firewall, "tool", lambda: None)
    with pytest.raises(LaunchError) as refused:
        runtime.start(spec(7, _LISTENS))
    assert refused.value.reason == "runtime_failed"
    assert not any(one.is_alive for one in runtime.list())
    ways = [one.way_out for one in runtime.faults() if "neither iptables nor nft" in one.what]
    assert ways == ["install nftables, or run with --network own"]
