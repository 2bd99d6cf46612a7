"""Bytes against a real transfer between network namespaces, and the readings behind them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec
import pytest

from adapters.hostagent.sensing.clock_source import read_clocks
from adapters.hostagent.sensing.meter import Meter, MeterState, Oddity
from adapters.hostagent.sensing.netdev import read_network, uses_host_network
from adapters.hostagent.sensing.seconds import Bytes, Course
from tests.support.senses import SECOND_NS, FakeProc, MachineClock

PAYLOAD: Final = 20_000_000
LINK: Final = 10_000_000_000
FRAME: Final = 1_514
"""An Ethernet frame: the most that one segment takes."""
_RECEIVER: Final = """
import socket, sys
server = socket.create_server(("10.99.7.2", 5201))
print("ready", flush=True)
peer, _ = server.accept()
total = 0
while data := peer.recv(1 << 18):
    total += len(data)
local = socket.create_server(("127.0.0.1", 5202))
mine = socket.create_connection(("127.0.0.1", 5202))
mine.sendall(bytes(1 << 20)); local.accept()[0].recv(1 << 20)
print(total, flush=True)
sys.stdin.read()
"""
_SENDER: Final = f"""
import socket, sys
print("ready", flush=True)
sys.stdin.readline()
with socket.create_connection(("10.99.7.2", 5201)) as peer:
    for _ in range({PAYLOAD} // 100_000):
        peer.sendall(bytes(100_000))
print("sent", flush=True)
sys.stdin.read()
"""


def ip(*arguments: str) -> str:
    """What iproute2 says."""
    done = subprocess.run(["ip", *arguments], capture_output=True, text=True, check=True)  # noqa: S607
    return done.stdout


@dataclass
class Pair:
    """Two network namespaces with a link between them."""

    sender: str
    receiver: str

    @contextmanager
    def running(self, name: str, code: str) -> Iterator[subprocess.Popen[str]]:
        """A program in one of them, once it is ready; it ends with its input."""
        with subprocess.Popen(
            ["ip", "netns", "exec", name, sys.executable, "-I", "-S", "-c", code],  # noqa: S607
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        ) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            yield process


@pytest.fixture
def pair() -> Iterator[Pair]:
    """Skipped where the kernel or the user forbids namespaces."""
    names = [f"lg{os.getpid()}{side}" for side in "ab"]
    made: list[str] = []
    try:
        for name in names:
            ip("netns", "add", name)
            made.append(name)
        link = ["type", "veth", "peer", "name", "eth0", "netns", names[1]]
        ip("-n", names[0], "link", "add", "eth0", *link)
        for name, address in zip(names, ("10.99.7.1/24", "10.99.7.2/24"), strict=True):
            ip("-n", name, "address", "add", address, "dev", "eth0")
            ip("-n", name, "link", "set", "eth0", "up")
            ip("-n", name, "link", "set", "lo", "up")
    except (OSError, subprocess.CalledProcessError) as error:
        for name in made:
            ip("netns", "delete", name)
        pytest.skip(f"no network namespaces here: {error}")
    yield Pair(*names)
    for name in names:
        ip("netns", "delete", name)


def sent_again(pid: int) -> int:
    """Bytes that TCP of a process's namespace sent more than once, at most: they cross the link."""
    lines = Path(f"/proc/{pid}/net/snmp").read_text(encoding="ascii").splitlines()
    names, values = (line.split()[1:] for line in lines if line.startswith("Tcp:"))
    return int(dict(zip(names, values, strict=True))["RetransSegs"]) * FRAME


def test_a_real_transfer_is_measured_within_a_fifth_of_a_percent(pair: Pair) -> None:
    """What one side sends and the other receives is the payload and little more, no loopback."""
    meter = Meter(None, read_clocks(), LINK)
    with (
        pair.running(pair.receiver, _RECEIVER) as receiver,
        pair.running(pair.sender, _SENDER) as sender,
    ):
        assert sender.stdin is not None
        assert receiver.stdout is not None
        for instance, process in ((1, sender), (2, receiver)):
            assert meter.read(instance, process.pid, read_clocks())
            meter.cut(instance, time.monotonic_ns())
        sender.stdin.write("go\n")
        sender.stdin.flush()
        assert receiver.stdout.readline() == f"{PAYLOAD}\n"
        for instance, process in ((1, sender), (2, receiver)):
            assert meter.read(instance, process.pid, read_clocks())
        sent = meter.cut(1, time.monotonic_ns())
        received = meter.cut(2, time.monotonic_ns())
        assert not uses_host_network(sender.pid)
        # A busy receiver makes the sender's kernel send parts twice; both are on the link.
        again = sent_again(sender.pid)
    assert PAYLOAD <= sent.up <= PAYLOAD * 1.002 + again
    assert PAYLOAD <= received.down <= PAYLOAD * 1.002 + again
    assert sent.down < PAYLOAD * 0.02
    assert received.up < PAYLOAD * 0.02


def test_a_recreated_interface_is_another_counter(pair: Pair) -> None:
    """The index is read without entering the namespace, and a new interface has a new one."""
    with pair.running(pair.sender, "print('ready', flush=True); input()") as process:
        found = read_network(process.pid)
        assert found is not None
        (first,) = found.interfaces
        assert [first.ifindex] == [
            one["ifindex"]
            for one in json.loads(ip("-j", "-n", pair.sender, "link", "show", "eth0"))
        ]
        ip("-n", pair.sender, "link", "delete", "eth0")
        assert read_network(process.pid) == found._replace(interfaces=[])
        ip("-n", pair.sender, "link", "add", "eth0", "type", "veth", "peer", "name", "far")
        ip("-n", pair.sender, "link", "set", "eth0", "up")
        again = read_network(process.pid)
        assert again is not None
        (fresh,) = [one for one in again.interfaces if one.name == "eth0"]
        assert fresh.ifindex not in {0, first.ifindex}
        assert process.stdin is not None
        process.stdin.write("\n")


def test_the_hosts_own_network_is_no_containers() -> None:
    """A process in the host's namespace has no numbers of its own."""
    assert read_network(os.getpid()) is None
    assert uses_host_network(os.getpid())
    assert read_network(4_194_000) is None


@pytest.fixture
def machine(tmp_path: Path) -> tuple[FakeProc, MachineClock]:
    """A machine with a process 50, which is a container."""
    proc, clock = FakeProc(tmp_path), MachineClock()
    return proc, clock


Machine = tuple[FakeProc, MachineClock]


def test_a_new_container_counts_from_its_start(machine: Machine) -> None:
    """The first reading of a container that started under our eyes is carried, and told as new."""
    proc, clock = machine
    meter = Meter(None, clock(), LINK, proc=proc.folder)
    clock.pass_seconds(10)
    proc.start(50, clock)
    clock.pass_seconds(1)
    proc.count(50, {"eth0": (9, 700, 70), "eth1": (11, 300, 30)})
    assert meter.read(1, 50, clock())
    assert meter.take_oddities() == [Oddity(1, "new_key"), Oddity(1, "new_key")]
    assert meter.cut(1, clock.mono_ns) == Bytes(1000, 100)


def test_interfaces_whose_names_are_no_text_are_counted_apart(machine: Machine) -> None:
    """A renter who names interfaces in odd bytes hides no byte, and the state can be kept."""
    proc, clock = machine
    meter = Meter(None, clock(), LINK, proc=proc.folder)
    proc.start(50, clock)
    clock.pass_seconds(1)
    names = [os.fsdecode(name) for name in (b"a\xff", b"a\xfe", b"a\xe2\x80\xa8b", b"a\xc2\x85")]
    for carried in (100, 300):
        proc.count(50, {name: (9 + at, carried, carried) for at, name in enumerate(names)})
        assert meter.read(1, 50, clock())
        clock.pass_seconds(1)
    assert meter.cut(1, clock.mono_ns) == Bytes(1_200, 1_200)
    kept = msgspec.msgpack.decode(
        msgspec.msgpack.encode(meter.state(clock())), type=MeterState
    ).instances[1]
    assert sorted(one.key.ifindex for one in kept.interfaces.values()) == [9, 10, 11, 12]


def test_a_container_older_than_our_state_is_a_baseline(machine: Machine) -> None:
    """5 GB carried before we lost our state are nobody's; what comes after is counted."""
    proc, clock = machine
    proc.start(50, clock)
    clock.pass_seconds(100)
    meter = Meter(None, clock(), LINK, proc=proc.folder)
    proc.count(50, {"eth0": (9, 5_000_000_000, 1)})
    assert meter.read(1, 50, clock())
    clock.pass_seconds(1)
    proc.count(50, {"eth0": (9, 5_000_000_060, 1)})
    assert meter.read(1, 50, clock())
    assert meter.take_oddities() == [Oddity(1, "baseline_lost")]
    assert meter.cut(1, clock.mono_ns) == Bytes(60, 0)


def test_a_restarted_agent_goes_on_where_it_committed(machine: Machine) -> None:
    """Bytes read after the commit and before the crash are counted once, by the next agent."""
    proc, clock = machine
    first = Meter(None, clock(), LINK, proc=proc.folder)
    clock.pass_seconds(5)
    proc.start(50, clock)
    clock.pass_seconds(0.5)
    proc.count(50, {"eth0": (9, 1000, 0)})
    first.read(1, 50, clock())
    sealed = first.cut(1, clock.mono_ns)
    committed = _through_bytes(first.state(clock()))
    clock.pass_seconds(1)
    proc.count(50, {"eth0": (9, 1400, 0)})
    first.read(1, 50, clock())
    second = Meter(committed, clock(), LINK, proc=proc.folder)
    proc.count(50, {"eth0": (9, 1500, 0)})
    second.read(1, 50, clock())
    assert sealed.plus(second.cut(1, clock.mono_ns)) == Bytes(1500, 0)
    assert second.take_oddities() == []


def test_a_long_absence_of_the_agent_is_a_gap_and_not_a_peak(machine: Machine) -> None:
    """Bytes carried while nobody looked belong to no second: they are told and not billed."""
    proc, clock = machine
    meter = Meter(None, clock(), LINK, proc=proc.folder)
    clock.pass_seconds(5)
    proc.start(50, clock)
    clock.pass_seconds(0.5)
    meter.read(1, 50, clock())
    clock.pass_seconds(60)
    proc.count(50, {"eth0": (9, 9_000, 50)})
    meter.read(1, 50, clock())
    assert meter.cut(1, clock.mono_ns) == Bytes(0, 0)
    assert meter.take_lost() == {1: Bytes(9_000, 50)}
    assert meter.take_lost() == {}


def test_a_restarted_container_begins_at_zero(machine: Machine) -> None:
    """Another process with another namespace is a new counter; what the old one carried stays."""
    proc, clock = machine
    meter = Meter(None, clock(), LINK, proc=proc.folder)
    clock.pass_seconds(5)
    proc.start(50, clock)
    clock.pass_seconds(1)
    proc.count(50, {"eth0": (9, 800, 0)})
    meter.read(1, 50, clock())
    proc.end(50)
    assert not meter.read(1, 50, clock())
    proc.start(51, clock, namespace=3)
    clock.pass_seconds(1)
    proc.count(51, {"eth0": (9, 50, 0)})
    meter.read(1, 51, clock())
    assert meter.cut(1, clock.mono_ns) == Bytes(850, 0)


def test_a_reboot_gives_no_second_the_old_counters(machine: Machine) -> None:
    """What was read and in no report when the machine went down is told as a gap of bytes."""
    proc, clock = machine
    meter = Meter(None, clock(), LINK, proc=proc.folder)
    clock.pass_seconds(5)
    proc.start(50, clock)
    clock.pass_seconds(1)
    proc.count(50, {"eth0": (9, 800, 0)})
    meter.read(1, 50, clock())
    committed = _through_bytes(meter.state(clock()))
    clock.reboot(60)
    clock.pass_seconds(3)
    proc.start(50, clock, namespace=2)
    clock.pass_seconds(1)
    proc.count(50, {"eth0": (9, 900, 0)})
    after = Meter(committed, clock(), LINK, proc=proc.folder)
    after.read(1, 50, clock())
    assert after.take_lost() == {1: Bytes(800, 0)}
    assert after.cut(1, clock.mono_ns) == Bytes(900, 0)


def test_the_example_of_the_specification() -> None:
    """0 at 10.5 s, 1,000 at 11.5 s and 3,000 at 12.5 s make 1,500 in second 11."""
    course = Course()
    course.begin(10 * SECOND_NS + SECOND_NS // 2)
    course.add(11 * SECOND_NS + SECOND_NS // 2, Bytes(1000, 0))
    course.add(12 * SECOND_NS + SECOND_NS // 2, Bytes(2000, 0))
    assert course.cut(11 * SECOND_NS).up == 500
    assert course.cut(12 * SECOND_NS).up == 1500


def _through_bytes(state: MeterState) -> MeterState:
    """As it comes back from a spool."""
    return msgspec.msgpack.decode(msgspec.msgpack.encode(state), type=MeterState)
