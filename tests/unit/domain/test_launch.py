"""Launch configurations: what they may hold, how they are merged, what is odd in them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger.domain.launch import (
    LaunchChange,
    LaunchConfig,
    decode_launch,
    encode_launch,
    is_like_a_key,
    overlaid,
    parse_launch,
    warnings_of,
)
from ledger.errors import RejectedError

DIGEST = "sha256:" + "5e" * 32


@pytest.mark.parametrize(
    "given",
    [
        {"image": "a b"},
        {"image": ""},
        {"image": "UPPER/case"},
        {"image": "x:tag:tag"},
        {"image": "x@sha256:short"},
        {"env": {"1A": "x"}},
        {"env": {"A=B": "x"}},
        {"env": {"A": 1}},
        {"env": {"A": "\x00"}},
        {"env": {f"A{n}": "" for n in range(513)}},
        {"ports": ["0"]},
        {"ports": ["65536"]},
        {"ports": ["8080/icmp"]},
        {"ports": ["1:2:3"]},
        {"ports": ["x"]},
        {"args": "-c"},
        {"runtype": "ssh\n"},
        {"price": 1},
        {"image_login": {"username": "u"}},
        {"image_login": {"username": "u", "password": "p", "email": "e"}},
        {"onstart": "x" * 70_000},
    ],
)
def test_what_is_no_launch_configuration(given: dict[str, Any]) -> None:
    """A wrong value, an unknown key or too much of either is `invalid_args`."""
    with pytest.raises(RejectedError) as error:
        parse_launch(given)
    assert error.value.code == "invalid_args"


def test_what_is_one() -> None:
    """Every field is taken as it was given, and what is not set is not kept."""
    given = {
        "image": "ghcr.io/a/b:1@" + DIGEST,
        "env": {"A": "1", "B_2": ""},
        "ports": ["8080", "8080/udp", "18080:8080", "18080:8080/tcp"],
        "onstart": "cd /workspace\npython train.py",
        "args": ["-c", "echo hi"],
        "runtype": "ssh_direc ssh_proxy",
        "image_login": {"username": "u", "password": "p"},
        "user": "root",
        "python_utf8": True,
        "jupyter_dir": "/",
    }
    config = parse_launch(given)
    assert decode_launch(encode_launch(config)) == config
    assert b"hostname" not in encode_launch(config)
    assert parse_launch(None) == LaunchConfig()


def test_old_texts_are_read_as_far_as_they_go() -> None:
    """What was sealed before there were fields opens: known fields stay, the rest is dropped."""
    assert decode_launch(b'{"image":"x","n":1}') == LaunchConfig(image="x")
    assert decode_launch(b'{"image":"x","env":"y"}') == LaunchConfig(image="x")
    assert decode_launch(b'{"env":"y"}') == LaunchConfig()


_ENV = st.dictionaries(st.sampled_from("ABC"), st.text("xyz", max_size=2))


@given(first=_ENV, second=_ENV, third=_ENV)
def test_laying_over_is_associative_and_the_last_wins(
    first: dict[str, str], second: dict[str, str], third: dict[str, str]
) -> None:
    """Secrets, template and own values may be merged in any grouping; every own value survives."""
    one, two, three = (LaunchConfig(env=env) for env in (first, second, third))
    whole = overlaid(overlaid(one, two), three)
    assert whole == overlaid(one, overlaid(two, three))
    assert whole.env == {**first, **second, **third}


def test_an_unset_value_overlays_nothing() -> None:
    """A create that names no image keeps that of its template, and one that does replaces it."""
    template = LaunchConfig(image="a", onstart="x", python_utf8=True)
    assert overlaid(template, LaunchConfig(args=["-v"])) == LaunchConfig(
        image="a", onstart="x", python_utf8=True, args=["-v"]
    )
    assert overlaid(template, LaunchConfig(image="b")).image == "b"


def test_a_change_sets_what_it_names() -> None:
    """Image, environment, start text and arguments change alone; everything else stays."""
    before = LaunchConfig(image="a", env={"A": "1"}, ports=["80"], user="root")
    assert LaunchChange(image="b").of(before).env == {"A": "1"}
    after = LaunchChange(env={}, onstart=None, args=["x"]).of(before)
    assert after == LaunchConfig(image="a", ports=["80"], user="root", args=["x"])


LIKE_KEYS = [
    ("X", "AKIA" + "ABCDEFGHIJKLMNOP"),
    ("X", "-----BEGIN OPENSSH PRIVATE KEY-----\nx"),
    ("X", "ghp_" + "a1B2" * 9),
    ("X", "hf_" + "aB3" * 12),
    ("X", "sk-proj-" + "aB3_" * 8),
    ("X", "glk_0123456789abcdef_" + "a" * 43),
    ("AWS_SECRET_ACCESS_KEY_TOKEN", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYzEXAMPLEKEY"),
]


@pytest.mark.parametrize(("name", "value"), LIKE_KEYS)
def test_what_looks_like_a_key(name: str, value: str) -> None:
    """Known shapes under any name, and random texts under a name that says so."""
    assert is_like_a_key(name, value)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("BATCH", "64"),
        ("TOKEN", "changeme"),
        ("API_KEY", "x" * 64),
        ("DATA", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYzEXAMPLEKEY"),
        ("MODEL", "sk-short"),
        ("PUBLIC", "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAAB me@home"),
    ],
)
def test_what_does_not(name: str, value: str) -> None:
    """Short values, repeated letters, and random texts under harmless names are no keys."""
    assert not is_like_a_key(name, value)


def test_warnings_name_what_is_odd_and_the_way_out() -> None:
    """A tag, and a key on a community machine; in the secure tier the key is nobody's business."""
    config = LaunchConfig(image="pytorch/pytorch:2.9", env={"K": LIKE_KEYS[0][1], "OK": "1"})
    image, key = warnings_of(config, secure=False, digest=DIGEST)
    assert (image.code, key.code) == ("image_not_pinned", "key_on_community_machine")
    assert DIGEST in image.message
    assert "pytorch/pytorch@sha256:" in image.message
    assert key.message.startswith("K: ")
    assert LIKE_KEYS[0][1] not in key.message
    assert [one.code for one in warnings_of(config, secure=True, digest=None)] == [
        "image_not_pinned"
    ]
    assert warnings_of(LaunchConfig(image="a@" + DIGEST), secure=False, digest=None) == []
    assert warnings_of(LaunchConfig(), secure=False, digest=None) == []
