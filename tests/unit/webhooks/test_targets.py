"""Where a webhook may lead, and where never."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address, ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger.domain.webhook_targets import Reach, kind_of, parse_target, require_reach
from ledger.errors import RejectedError
from ledger.services.webhooks import REACH_VARIABLE, configured_reach

REACHES: list[Reach] = ["loopback", "private", "link_local"]


@pytest.mark.parametrize(
    ("url", "host", "port", "path", "header"),
    [
        ("https://hooks.example", "hooks.example", 443, "/", "hooks.example"),
        ("https://Hooks.Example:443/a/b", "hooks.example", 443, "/a/b", "hooks.example"),
        ("https://hooks.example:8443/a?b=c", "hooks.example", 8443, "/a?b=c", "hooks.example:8443"),
        ("https://hooks.example?b=c", "hooks.example", 443, "/?b=c", "hooks.example"),
        ("https://93.184.216.34/x", "93.184.216.34", 443, "/x", "93.184.216.34"),
        ("https://[2606:4700::1111]:444/", "2606:4700::1111", 444, "/", "[2606:4700::1111]:444"),
        ("HTTPS://xn--bcher-kva.example/", "xn--bcher-kva.example", 443, "/", None),
    ],
)
def test_a_public_https_address_is_taken_apart(
    url: str, host: str, port: int, path: str, header: str | None
) -> None:
    """Host, port and path are those of the URL, and the Host header names what it names."""
    target = parse_target(url)
    assert target == ("https", host, port, path)
    assert target.host_header == (header or host)


@pytest.mark.parametrize(
    "url",
    [
        "",
        "hooks.example",
        "//hooks.example/",
        "http://hooks.example/",
        "ftp://hooks.example/",
        "file:///etc/passwd",
        "javascript:alert(1)",
        "https://",
        "https:///path",
        "https://:443/",
        "https://user@hooks.example/",
        "https://user:password@hooks.example/",
        "https://@hooks.example/",
        "https://hooks.example@10.0.0.1/",
        "https://hooks.example/#part",
        "https://hooks.example/#",
        "https://hooks.example:0/",
        "https://hooks.example:65536/",
        "https://hooks.example:x/",
        "https://hooks..example/",
        "https://-hooks.example/",
        "https://hooks.example./",
        "https://hooks example/",
        "https://hooks.example/a b",
        "https://hooks.example/\n",
        "https://hooks.exa\tmple/",
        "https://hooks.example\\@evil.example/",
        "https://bücher.example/",
        "https://hooks.example/" + "a" * 2_048,
        "https://0x7f.1/",
        "https://127.1/",
        "https://2130706433/",
        "https://0x7f000001/",
        "https://0177.0.0.1/",
        "https://hooks.example.1/",
        "https://[::1",
        "https://[fe80::1%25eth0]/",
        "https://[::ffff:10.0.0.1]/",
    ],
)
def test_what_is_no_such_address_is_refused(url: str) -> None:
    """Other schemes, credentials, odd spellings and malformed hosts are `invalid_url`."""
    with pytest.raises(RejectedError) as refused:
        parse_target(url)
    assert refused.value.code == "invalid_url"


@pytest.mark.parametrize(
    ("address", "kind"),
    [
        ("8.8.8.8", "public"),
        ("2606:4700::1111", "public"),
        ("127.0.0.1", "loopback"),
        ("127.255.255.254", "loopback"),
        ("::1", "loopback"),
        ("10.1.2.3", "private"),
        ("172.16.0.1", "private"),
        ("172.31.255.255", "private"),
        ("192.168.1.1", "private"),
        ("100.64.0.1", "private"),
        ("100.127.255.255", "private"),
        ("198.18.0.1", "private"),
        ("fd12:3456::1", "private"),
        ("fec0::1", "private"),
        ("169.254.169.254", "link_local"),
        ("169.254.170.2", "link_local"),
        ("fe80::1", "link_local"),
        ("0.0.0.0", "nowhere"),  # noqa: S104 - nobody listens here
        ("0.1.2.3", "nowhere"),
        ("::", "nowhere"),
        ("224.0.0.1", "nowhere"),
        ("ff02::1", "nowhere"),
        ("240.0.0.1", "nowhere"),
        ("255.255.255.255", "nowhere"),
        ("::ffff:169.254.169.254", "link_local"),
        ("::ffff:127.0.0.1", "loopback"),
        ("::127.0.0.1", "loopback"),
        ("64:ff9b::10.0.0.1", "private"),
        ("64:ff9b::8.8.8.8", "public"),
        ("2002:a9fe:a9fe::1", "link_local"),
        ("2002:0808:0808::1", "public"),
    ],
)
def test_an_address_is_of_one_kind(address: str, kind: str) -> None:
    """Loopback, private, link-local and metadata addresses are known in every disguise."""
    assert kind_of(ip_address(address)) == kind


@pytest.mark.parametrize("reach", REACHES)
def test_each_reach_opens_its_own_kind_alone(reach: Reach) -> None:
    """A setting for one kind of address allows that kind, and no other beside the public ones."""
    inside = {"loopback": "127.0.0.1", "private": "10.0.0.1", "link_local": "169.254.169.254"}
    require_reach("8.8.8.8", [reach])
    for kind, address in inside.items():
        if kind == reach:
            require_reach(address, [reach])
            assert parse_target(f"https://{address}/", [reach]).host == address
        else:
            with pytest.raises(RejectedError):
                require_reach(address, [reach])
            with pytest.raises(RejectedError):
                parse_target(f"https://{address}/", [reach])
    with pytest.raises(RejectedError):
        require_reach("0.0.0.0", REACHES)  # noqa: S104 - nobody listens here


@given(st.integers(0, 2**32 - 1))
def test_no_inner_address_is_public_in_disguise(number: int) -> None:
    """For any IPv4 address, its IPv6 forms are of its own kind: none opens what it closes."""
    plain = IPv4Address(number)
    mapped = IPv6Address((0xFFFF << 32) | number)
    nat64 = IPv6Address((0x64FF9B << 96) | number)
    sixtofour = IPv6Address((0x2002 << 112) | (number << 80) | 1)
    assert {kind_of(one) for one in (mapped, nat64, sixtofour)} == {kind_of(plain)}


def test_plain_http_is_for_the_server_itself_when_that_is_allowed() -> None:
    """`http` leads to loopback alone, and only with the setting; to a private address never."""
    for url in ("http://127.0.0.1:8080/x", "http://localhost/x", "http://[::1]/x"):
        assert parse_target(url, ["loopback"]).scheme == "http"
        with pytest.raises(RejectedError):
            parse_target(url)
    for url in ("http://10.0.0.1/", "http://hooks.example/"):
        with pytest.raises(RejectedError):
            parse_target(url, REACHES)
    with pytest.raises(RejectedError):
        require_reach("10.0.0.1", REACHES, "http")
    with pytest.raises(RejectedError):
        parse_target("https://localhost/", ["private"])


def test_the_setting_names_what_is_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment's words are read as they are meant, and a word that is none is refused."""
    for text, expected in {
        "": set(),
        "loopback": {"loopback"},
        " private , loopback,": {"private", "loopback"},
    }.items():
        monkeypatch.setenv(REACH_VARIABLE, text)
        assert configured_reach() == expected
    monkeypatch.delenv(REACH_VARIABLE)
    assert configured_reach() == set()
    monkeypatch.setenv(REACH_VARIABLE, "everything")
    with pytest.raises(RejectedError, match="everything") as refused:
        configured_reach()
    assert refused.value.code == "invalid_setting"
