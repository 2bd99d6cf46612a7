from __future__ import annotations

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger.domain.merkle import (
    inclusion_proof,
    leaf_hash,
    merkle_root,
    node_hash,
    verify_inclusion,
)

INPUTS = [
    bytes.fromhex(text)
    for text in (
        "",
        "00",
        "10",
        "2021",
        "3031",
        "40414243",
        "5051525354555657",
        "606162636465666768696a6b6c6d6e6f",
    )
]
ROOTS = [
    "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
    "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
    "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
    "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
    "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
    "4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4",
    "76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef",
    "ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c",
    "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
]
"""Roots over the first 0 … 8 inputs, the vectors of certificate transparency (RFC 6962)."""

LINES = st.lists(st.binary(max_size=12), min_size=1, max_size=40)


@pytest.mark.parametrize("count", range(9))
def test_the_root_is_that_of_the_known_vectors(count: int) -> None:
    """The root over the first lines is the published one, so any RFC 6962 program agrees."""
    assert merkle_root(INPUTS[:count]).hex() == ROOTS[count]


def test_no_lines_have_the_hash_of_nothing() -> None:
    """An empty statement has the root H(), which no line can have."""
    assert merkle_root([]) == hashlib.sha256().digest()


def test_leaf_and_node_are_prefixed() -> None:
    """A leaf is H(0x00 line), a node H(0x01 left right): neither can stand for the other."""
    assert leaf_hash(b"ab") == hashlib.sha256(b"\x00ab").digest()
    assert (
        node_hash(b"a" * 32, b"b" * 32) == hashlib.sha256(b"\x01" + b"a" * 32 + b"b" * 32).digest()
    )


def test_an_odd_node_moves_up_unchanged() -> None:
    """Of three lines the third is hashed with the pair of the first two, and never with itself."""
    a, b, c = (leaf_hash(line) for line in (b"a", b"b", b"c"))
    assert merkle_root([b"a", b"b", b"c"]) == node_hash(node_hash(a, b), c)


@given(LINES, st.data())
def test_every_line_is_proven_and_no_other(lines: list[bytes], data: st.DataObject) -> None:
    """The proof of a line verifies for that line at that place, and for nothing else."""
    index = data.draw(st.integers(0, len(lines) - 1))
    root, path = merkle_root(lines), inclusion_proof(lines, index)
    assert verify_inclusion(root, lines[index], index, len(lines), path)
    assert not verify_inclusion(root, lines[index] + b"x", index, len(lines), path)
    assert not verify_inclusion(root, lines[index], index, len(lines), [*path, root])
    assert not verify_inclusion(root, lines[index], len(lines), len(lines), path)
    if path:
        assert not verify_inclusion(root, lines[index], index, len(lines), path[:-1])
        bent = [bytes(32), *path[1:]]
        assert not verify_inclusion(root, lines[index], index, len(lines), bent)


@given(LINES, st.data())
def test_a_changed_line_changes_the_root(lines: list[bytes], data: st.DataObject) -> None:
    """Whatever line is altered after issue, the root that was issued no longer fits."""
    index = data.draw(st.integers(0, len(lines) - 1))
    altered = [*lines]
    altered[index] += b"!"
    assert merkle_root(altered) != merkle_root(lines)


def test_a_proof_of_short_hashes_is_none() -> None:
    """A path of anything but 32-byte hashes is refused, not hashed."""
    lines = [b"a", b"b"]
    assert not verify_inclusion(merkle_root(lines), b"a", 0, 2, [leaf_hash(b"b")[:31]])


def test_a_node_cannot_be_passed_off_as_a_line() -> None:
    """The bytes of two hashes, handed in as a line of a shorter tree, do not verify."""
    lines = [b"a", b"b"]
    forged = leaf_hash(b"a") + leaf_hash(b"b")
    assert not verify_inclusion(merkle_root(lines), forged, 0, 1, [])
