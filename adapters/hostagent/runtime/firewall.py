"""The rules by which instances of the process runtime reach the world, and are reached.

All are in a table (nft) or chains (iptables) of the agent's own, and put there as a whole: the same
rules again change nothing, and what nobody needs any more is gone with the next time.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path
from typing import Final, Literal, NamedTuple

LINKS: Final = "gpuledger-"
"""How the host's ends of all links begin."""
_TABLE: Final = "gpuledger"
_CHAINS: Final = (
    ("nat", "PREROUTING", "GPULEDGER-IN"),
    ("nat", "OUTPUT", "GPULEDGER-IN"),
    ("nat", "POSTROUTING", "GPULEDGER-OUT"),
    ("filter", "FORWARD", "GPULEDGER-FWD"),
    ("filter", "INPUT", "GPULEDGER-HOST"),
)
"""Table, the kernel's chain, and the one of ours that it is to call first."""
_LINK_LOCAL: Final = "169.254.0.0/16"
"""Where clouds keep a machine's credentials, not for who rents it; and name servers, which are."""
_LOOPBACK: Final = "127.0.0.0/8"
_FORWARDING: Final = Path("/proc/sys/net/ipv4/ip_forward")
_TIMEOUT_SECONDS: Final = 20.0


class Published(NamedTuple):
    """A port of the host that leads to one of an instance."""

    host_port: int
    protocol: Literal["tcp", "udp"]
    address: IPv4Address
    container_port: int


class FirewallError(Exception):
    """The rules could not be put in place."""


def tool() -> str | None:
    """The program that is used; null where there is none.

    `iptables` first: its rules come before those of others that drop what is forwarded.
    """
    if shutil.which("iptables") and shutil.which("iptables-restore"):
        return "iptables"
    return "nft" if shutil.which("nft") else None


def put(addresses: IPv4Network, ports: Sequence[Published]) -> None:
    """Let instances with these *addresses* reach the world, and the world these *ports*.

    Raises:
        FirewallError: In the tool's own words.
    """
    try:
        if _FORWARDING.read_text().strip() != "1":
            _FORWARDING.write_text("1")
    except OSError as error:
        message = f"the kernel does not forward packets: {error}"
        raise FirewallError(message) from error
    match tool():
        case "iptables":
            _run(["iptables-restore", "-w", "--noflush"], iptables_rules(addresses, ports))
            for table, chain, ours in _CHAINS:
                _call_first(table, chain, ours)
        case "nft":
            _run(["nft", "-f", "-"], nft_rules(addresses, ports))
        case _:
            message = "there is neither iptables nor nft"
            raise FirewallError(message)


def remove() -> None:
    """Take all rules away; none is success."""
    match tool():
        case "iptables":
            for table, chain, ours in _CHAINS:
                while _tried(["iptables", "-w", "-t", table, "-D", chain, "-j", ours]):
                    pass
            for table, ours in dict.fromkeys((table, ours) for table, _, ours in _CHAINS):
                _tried(["iptables", "-w", "-t", table, "-F", ours])
                _tried(["iptables", "-w", "-t", table, "-X", ours])
        case "nft":
            _tried(["nft", "delete", "table", "ip", _TABLE])
        case _:
            return


def nft_rules(addresses: IPv4Network, ports: Sequence[Published]) -> str:
    """One transaction that replaces the whole table."""
    to_ports = "\n".join(
        f"fib daddr type local {one.protocol} dport {one.host_port}"
        f" dnat to {one.address}:{one.container_port}"
        for one in ports
    )
    links = f'"{LINKS}*"'
    return f"""
table ip {_TABLE}
delete table ip {_TABLE}
table ip {_TABLE} {{
chain ports {{
{to_ports}
}}
chain prerouting {{ type nat hook prerouting priority -100; policy accept;
jump ports
}}
chain output {{ type nat hook output priority -100; policy accept;
ip daddr != {_LOOPBACK} jump ports
}}
chain postrouting {{ type nat hook postrouting priority 100; policy accept;
ip saddr {addresses} oifname != {links} masquerade
}}
chain forward {{ type filter hook forward priority 0; policy accept;
iifname {links} ip daddr {_LINK_LOCAL} meta l4proto {{ tcp, udp }} th dport != 53 drop
iifname {links} ct state established,related accept
iifname {links} ct status dnat accept
iifname {links} oifname {links} drop
iifname {links} accept
oifname {links} ct state established,related accept
oifname {links} ct status dnat accept
oifname {links} drop
}}
chain input {{ type filter hook input priority 0; policy accept;
iifname {links} ct state established,related accept
iifname {links} meta l4proto {{ tcp, udp }} th dport 53 accept
iifname {links} icmp type echo-request accept
iifname {links} drop
}}
}}
"""


def iptables_rules(addresses: IPv4Network, ports: Sequence[Published]) -> str:
    """The contents of the agent's chains, as `iptables-restore` replaces them."""
    from_us, to_us = f"-i {LINKS}+", f"-o {LINKS}+"
    known, forwarded = "-m conntrack --ctstate ESTABLISHED,RELATED", "-m conntrack --ctstate DNAT"
    to_ports = [
        f"-A GPULEDGER-IN ! -d {_LOOPBACK} -p {one.protocol} --dport {one.host_port}"
        " -m addrtype --dst-type LOCAL"
        f" -j DNAT --to-destination {one.address}:{one.container_port}"
        for one in ports
    ]
    lines = [
        "*nat",
        ":GPULEDGER-IN -",
        ":GPULEDGER-OUT -",
        *to_ports,
        f"-A GPULEDGER-OUT -s {addresses} ! -o {LINKS}+ -j MASQUERADE",
        "COMMIT",
        "*filter",
        ":GPULEDGER-FWD -",
        ":GPULEDGER-HOST -",
        *(
            f"-A GPULEDGER-FWD {from_us} -d {_LINK_LOCAL} -p {kind} ! --dport 53 -j DROP"
            for kind in ("tcp", "udp")
        ),
        f"-A GPULEDGER-FWD {from_us} {known} -j ACCEPT",
        f"-A GPULEDGER-FWD {from_us} {forwarded} -j ACCEPT",
        f"-A GPULEDGER-FWD {from_us} {to_us} -j DROP",
        f"-A GPULEDGER-FWD {from_us} -j ACCEPT",
        f"-A GPULEDGER-FWD {to_us} {known} -j ACCEPT",
        f"-A GPULEDGER-FWD {to_us} {forwarded} -j ACCEPT",
        f"-A GPULEDGER-FWD {to_us} -j DROP",
        f"-A GPULEDGER-HOST {from_us} {known} -j ACCEPT",
        *(f"-A GPULEDGER-HOST {from_us} -p {kind} --dport 53 -j ACCEPT" for kind in ("tcp", "udp")),
        f"-A GPULEDGER-HOST {from_us} -p icmp --icmp-type echo-request -j ACCEPT",
        f"-A GPULEDGER-HOST {from_us} -j DROP",
        "COMMIT",
    ]
    return "".join(f"{line}\n" for line in lines)


def _call_first(table: str, chain: str, ours: str) -> None:
    base = ["iptables", "-w", "-t", table]
    if not _tried([*base, "-C", chain, "-j", ours]):
        _run([*base, "-I", chain, "1", "-j", ours])


def _run(command: Sequence[str], text: str = "") -> None:
    try:
        subprocess.run(  # noqa: S603 - a fixed program, with rules that were made here
            command,
            input=text,
            check=True,
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_SECONDS,
        )
    except subprocess.CalledProcessError as error:
        message = f"{command[0]}: {' '.join(error.stderr.split())[:200]}"
        raise FirewallError(message) from error
    except (OSError, subprocess.TimeoutExpired) as error:
        message = f"{command[0]}: {error}"
        raise FirewallError(message) from error


def _tried(command: Sequence[str]) -> bool:
    try:
        _run(command)
    except FirewallError:
        return False
    return True
