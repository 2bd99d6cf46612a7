"""The tree over the lines of a usage statement, and the proof that one line is in it (§15.1).

SHA-256; a leaf is H(0x00 ‖ line bytes), a node H(0x01 ‖ left ‖ right), and an odd node moves up
unchanged. The two prefixes keep a node from being passed off as a line. The shape, and so every
root and proof, is that of RFC 6962, whose vectors the tests use.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Final

_LEAF: Final = b"\x00"
_NODE: Final = b"\x01"
HASH_BYTES: Final = 32


def leaf_hash(line: bytes) -> bytes:
    """The hash of one line."""
    return hashlib.sha256(_LEAF + line).digest()


def node_hash(left: bytes, right: bytes) -> bytes:
    """The hash of two neighbouring hashes."""
    return hashlib.sha256(_NODE + left + right).digest()


class HashTree:
    """All levels of a tree over hashes of lines, for whoever asks for more than one path."""

    def __init__(self, leaves: Sequence[bytes]) -> None:
        """Build it over *leaves* (each a `leaf_hash`), at least one."""
        assert leaves, "a tree over nothing has no levels"
        self._levels = [list(leaves)]
        while len(self._levels[-1]) > 1:
            self._levels.append(_parents(self._levels[-1]))

    @property
    def root(self) -> bytes:
        """The hash over all of them."""
        return self._levels[-1][0]

    def path(self, index: int) -> list[bytes]:
        """The hashes that lead from leaf number *index* (from 0) to the root, lowest first.

        A level on which the node has no neighbour adds none.
        """
        assert 0 <= index < len(self._levels[0]), (index, len(self._levels[0]))
        path = []
        for level in self._levels[:-1]:
            neighbour = index ^ 1
            if neighbour < len(level):
                path.append(level[neighbour])
            index //= 2
        return path


def merkle_root(lines: Sequence[bytes]) -> bytes:
    """The root over *lines* in their order; of no lines, the hash of nothing."""
    if not lines:
        return hashlib.sha256(b"").digest()
    return HashTree([leaf_hash(line) for line in lines]).root


def inclusion_proof(lines: Sequence[bytes], index: int) -> list[bytes]:
    """The path from line number *index* (from 0) to the root over *lines* (`HashTree.path`)."""
    return HashTree([leaf_hash(line) for line in lines]).path(index)


def verify_inclusion(
    root: bytes, line: bytes, index: int, count: int, path: Sequence[bytes]
) -> bool:
    """True when *path* proves that *line* is number *index* of the *count* lines under *root*.

    Needs nothing but its arguments, so that who holds a root can check a line without the ledger.
    """
    if not 0 <= index < count or any(len(one) != HASH_BYTES for one in path):
        return False
    hashes = iter(path)
    found = leaf_hash(line)
    last = count - 1
    while last > 0:
        if index % 2 or index < last:
            neighbour = next(hashes, None)
            if neighbour is None:
                return False
            found = node_hash(neighbour, found) if index % 2 else node_hash(found, neighbour)
        index //= 2
        last //= 2
    return next(hashes, None) is None and found == root


def _parents(level: list[bytes]) -> list[bytes]:
    above = [node_hash(level[first], level[first + 1]) for first in range(0, len(level) - 1, 2)]
    if len(level) % 2:
        above.append(level[-1])
    return above
