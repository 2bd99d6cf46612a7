"""Addresses, ports and name servers of instances with a link of their own, without a kernel."""

from __future__ import annotations

import socket
from ipaddress import IPv4Network
from pathlib import Path

import pytest

from adapters.hostagent.runtime import bridge, firewall
from adapters.hostagent.runtime.bridge import Bridge
from adapters.hostagent.runtime.port import LaunchError, PortWish

RANGE = IPv4Network("10.249.0.0/29")
"""Room for two instances."""


def test_each_instance_has_four_addresses_of_its_own() -> None:
    """The host's end and the instance's are the usable two of a range that no other one has."""
    links = [Bridge().link(slot) for slot in (0, 1, 16_383)]
    assert [(str(one.host), str(one.guest)) for one in links] == [
        ("10.249.0.1", "10.249.0.2"),
        ("10.249.0.5", "10.249.0.6"),
        ("10.249.255.253", "10.249.255.254"),
    ]
    assert all(len(one.name) <= 15 for one in links), "the kernel's limit for a name"


def test_what_an_instance_had_it_keeps_and_what_another_has_it_does_not_get() -> None:
    """A restart keeps slot and ports; the next instance has the next slot and another port."""
    one = Bridge(RANGE)
    with socket.socket() as probe:
        probe.bind(("0.0.0.0", 0))  # noqa: S104 - to learn of a port that is free
        wished = probe.getsockname()[1]
    first = one.place({}, [PortWish(80, "tcp", wished)], [])
    assert first == {"slot": 0, "ports": [[80, "tcp", wished]]}
    assert one.place(first, [PortWish(80), PortWish(53, "udp")], [])["ports"][0] == [
        80,
        "tcp",
        wished,
    ]
    second = one.place({}, [PortWish(80, "tcp", wished)], [first])
    assert second["slot"] == 1
    assert second["ports"][0][2] != wished
    with pytest.raises(LaunchError, match="no address is left"):
        one.place({}, [], [first, second])


def test_a_port_that_somebody_listens_on_and_low_ports_are_not_given() -> None:
    """A wish is one of free ports from 1024 on; else it is any other."""
    with socket.socket() as taken:
        taken.bind(("0.0.0.0", 0))  # noqa: S104 - a service of the host
        taken.listen()
        number = taken.getsockname()[1]
        for wish in (PortWish(80, "tcp", number), PortWish(80, "tcp", 80)):
            ((_, _, host),) = Bridge().place({}, [wish], [])["ports"]
            assert host not in {number, 80}
            assert host >= 32_768


@pytest.mark.parametrize(
    ("files", "found"),
    [
        (["nameserver 10.0.0.53\nsearch x\nnameserver 10.0.0.54\n"], ["10.0.0.53", "10.0.0.54"]),
        (["nameserver 127.0.0.53\n", "nameserver 192.0.2.1\n"], ["192.0.2.1"]),
        (["nameserver 127.0.0.1\nnameserver ::1\n"], ["1.1.1.1", "8.8.8.8"]),
        ([], ["1.1.1.1", "8.8.8.8"]),
    ],
)
def test_name_servers_are_those_that_can_be_reached_from_inside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: list[str], found: list[str]
) -> None:
    """A server on the host's loopback is none; the one behind it, or a public one, is."""
    paths = [tmp_path / "resolv.conf", tmp_path / "behind"]
    for path, text in zip(paths, files, strict=False):
        path.write_text(text)
    monkeypatch.setattr(bridge, "_RESOLV", paths)
    assert bridge.name_servers() == found


def test_a_range_that_the_host_routes_elsewhere_is_a_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Addresses of the host's own networks clash; its default route and our links do not."""
    heading = "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\n"
    routes = tmp_path / "route"
    routes.write_text(
        heading
        + "eth0\t00000000\t0100000A\t0003\t0\t0\t0\t00000000\n"
        + f"{firewall.LINKS}0\t0000F90A\t00000000\t0001\t0\t0\t0\tFCFFFFFF\n"
    )
    monkeypatch.setattr(bridge, "_ROUTES", routes)
    assert not [one for one in Bridge().faults() if "clash" in one.what]
    routes.write_text(heading + "eth0\t0000F90A\t00000000\t0001\t0\t0\t0\t00FFFFFF\n")
    (fault,) = [one for one in Bridge().faults() if "clash" in one.what]
    assert "10.249.0.0/24" in fault.what
    assert "--network-range" in fault.way_out


@pytest.mark.parametrize("rules", [firewall.nft_rules, firewall.iptables_rules])
def test_the_same_ports_are_in_the_rules_of_both_tools(rules: object) -> None:
    """Each published port is named with where it leads, and no rule speaks of the loopback."""
    assert callable(rules)
    ports = [firewall.Published(18_080, "tcp", Bridge().link(1).guest, 80)]
    text = rules(bridge.ADDRESSES, ports)
    assert "10.249.0.6:80" in text
    assert "18080" in text
    assert "18080" not in rules(bridge.ADDRESSES, [])
