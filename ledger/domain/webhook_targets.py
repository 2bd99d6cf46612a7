"""Where a webhook may lead: `https`, no credentials, and no network that is not everybody's.

A URL is looked at when it is registered, its addresses at every attempt: a name may mean another
address by then. What the operator allows beyond the public internet is a *reach*.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import Final, Literal, NamedTuple, NoReturn
from urllib.parse import urlsplit

from ledger.errors import RejectedError

Reach = Literal["loopback", "private", "link_local"]
"""A kind of address beyond the public ones. `loopback` also allows plain `http`, to itself alone;
`link_local` holds the metadata services of cloud providers."""

URL_CHARACTERS_MAX: Final = 2_048
_URL: Final = re.compile(rf"[\x21-\x7e]{{1,{URL_CHARACTERS_MAX}}}")
_HOST: Final = re.compile(r"(?!-)[a-z0-9_-]{1,63}(?<!-)(\.(?!-)[a-z0-9_-]{1,63}(?<!-))*")
_LIKE_A_NUMBER: Final = re.compile(r"(.*\.)?(0x[0-9a-f]*|[0-9]+)")
_PORTS: Final = {"https": 443, "http": 80}
_SHARED: Final = IPv4Network("100.64.0.0/10")
_NAT64: Final = IPv6Network("64:ff9b::/96")
_MAPPED: Final = IPv6Network("::/96")
_LOCAL: Final = ("localhost", "localhost.localdomain")


class Target(NamedTuple):
    """A URL in the parts that a request needs; the path begins with a slash and has the query."""

    scheme: str
    host: str
    port: int
    path: str

    @property
    def host_header(self) -> str:
        """Whom the request is for, as HTTP says it."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _PORTS[self.scheme] else f"{host}:{self.port}"


def parse_target(url: str, reach: Collection[Reach] = ()) -> Target:
    """The parts of a URL that a webhook may have.

    Raises:
        RejectedError: `invalid_url`; the message says why.
    """
    if not _URL.fullmatch(url) or "\\" in url:
        _refuse(f"it is 1 to {URL_CHARACTERS_MAX} printable ASCII characters")
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError as error:
        _refuse(str(error))
    if parts.scheme not in _PORTS:
        _refuse("it begins with https://")
    if "@" in parts.netloc:
        _refuse("it names no user and no password: every delivery is signed")
    if parts.fragment or url.endswith("#"):
        _refuse("it has no fragment: a fragment is never sent")
    if port == 0:
        _refuse("a port is 1 to 65535")
    address = _literal(host)
    if address is None and (not _HOST.fullmatch(host) or _LIKE_A_NUMBER.fullmatch(host)):
        _refuse("it names no host, or in a form that is not its usual one")
    if address is not None:
        require_reach(str(address), reach)
    is_loopback = host in _LOCAL or (address is not None and kind_of(address) == "loopback")
    if host in _LOCAL and "loopback" not in reach:
        _refuse("it leads to the server itself")
    if parts.scheme == "http" and not is_loopback:
        _refuse("it begins with https://")
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return Target(parts.scheme, host, port or _PORTS[parts.scheme], path)


def require_reach(address: str, reach: Collection[Reach], scheme: str = "https") -> None:
    """Refuse an address that nobody may send to, or only with a setting that is not there.

    Raises:
        RejectedError: `invalid_url`.
    """
    parsed = _literal(address)
    kind = "nowhere" if parsed is None else kind_of(parsed)
    if kind != "public" and kind not in reach:
        _refuse(f"it leads to a {kind} address")
    if scheme == "http" and kind != "loopback":
        _refuse("http is for the server itself alone")


def kind_of(address: IPv4Address | IPv6Address) -> str:
    """`public`, a reach, or `nowhere`: an address that no receiver of a webhook can have."""
    inner = _embedded(address)
    if inner is not None:
        return kind_of(inner)
    if address.is_loopback:
        return "loopback"
    if address.is_link_local:
        return "link_local"
    is_nobody = isinstance(address, IPv4Address) and address.packed[0] == 0
    if is_nobody or address.is_multicast or address.is_unspecified or address.is_reserved:
        return "nowhere"
    is_site_local = isinstance(address, IPv6Address) and address.is_site_local
    if address.is_private or is_site_local or address in _SHARED:
        return "private"
    return "public" if address.is_global else "nowhere"


def _embedded(address: IPv4Address | IPv6Address) -> IPv4Address | None:
    """The IPv4 address that an IPv6 address stands for or leads through."""
    if isinstance(address, IPv4Address):
        return None
    if address.ipv4_mapped is not None:
        return address.ipv4_mapped
    if address.sixtofour is not None:
        return address.sixtofour
    if address.teredo is not None:
        return address.teredo[1]
    if address in _NAT64 or (address in _MAPPED and int(address) > 1):
        return IPv4Address(int(address) & 0xFFFF_FFFF)
    return None


def _literal(host: str) -> IPv4Address | IPv6Address | None:
    if "%" in host:
        return None
    try:
        return ip_address(host)
    except ValueError:
        return None


def _refuse(why: str) -> NoReturn:
    raise RejectedError("invalid_url", f"this is no address for a webhook: {why}")
