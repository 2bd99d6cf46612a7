"""What a challenge computes, and what the platform takes for a proof that it was computed."""

from __future__ import annotations

import hashlib
from functools import cache

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger.domain.challenge import (
    LAYERS,
    PRIME,
    ROWS_MAX,
    ROWS_MIN,
    WIDTH,
    is_proven,
    proof,
)
from ledger.domain.merkle import HashTree
from ledger.domain.usage import CheckAnswer
from tests.support.suite import NumpyGpu, leaves, proven

NONCE = "9f2c" * 8


@cache
def good(gpus: int = 1, rows: int = ROWS_MIN) -> dict[str, int | str]:
    """A proof that is right, made once."""
    return proven(NONCE, gpus, rows)


def naive_row(nonce: str, gpu: int, row: int) -> bytes:
    """One finished row in the whole numbers of Python, from the description alone."""

    def entry(name: str, number: int) -> int:
        text = f"ledger.challenge.v1\0{nonce}\0{name}".encode()
        word = number * 0x9E3779B1 + int.from_bytes(hashlib.sha256(text).digest()[:4], "big")
        word %= 2**32
        word = (word ^ word >> 16) * 0x85EBCA6B % 2**32
        word = (word ^ word >> 13) * 0xC2B2AE35 % 2**32
        return (word ^ word >> 16) % PRIME

    columns = [
        [entry("matrix", upper * WIDTH + column) for upper in range(WIDTH)]
        for column in range(WIDTH)
    ]
    numbers = [entry(f"gpu {gpu}", row * WIDTH + column) for column in range(WIDTH)]
    for layer in range(LAYERS):
        squares = [(number * number + layer) % PRIME for number in numbers]
        numbers = [sum(map(int.__mul__, squares, factors)) % PRIME for factors in columns]
    return bytes(numbers)


def test_a_row_is_what_whole_numbers_say() -> None:
    """Products in 32-bit floating point lose no digit of it."""
    found = NumpyGpu().finished_rows(NONCE, 3, 17, 1)
    assert found == naive_row(NONCE, 3, 17)
    assert (PRIME - 1) ** 2 * WIDTH < 2**24


@pytest.mark.parametrize("gpus", [1, 3, 8, 16])
def test_work_that_was_done_is_proven(gpus: int) -> None:
    """For each GPU, and every text of the proof fits into a measure of a report."""
    found = good(gpus)
    assert is_proven(NONCE, gpus, found)
    answer = CheckAnswer(slot=1, at=1, result="passed", measures=dict(found))
    sent = msgspec.msgpack.encode(answer)
    assert msgspec.msgpack.decode(sent, type=CheckAnswer) == answer


def test_a_proof_is_of_one_nonce_and_so_many_gpus() -> None:
    """It proves nothing for another check, nor that one GPU is two."""
    assert not is_proven("0" * 32, 1, good())
    assert not is_proven(NONCE, 2, good())
    twice = {**good(), "root.1": good()["root.0"]}
    twice |= {
        name.replace("path.0.", "path.1."): text
        for name, text in good().items()
        if name.startswith("path.")
    }
    assert not is_proven(NONCE, 2, twice)


@given(
    st.sampled_from(sorted(good())), st.sampled_from([None, 0, -1, 3, "", "00", "zz", "~" * 240])
)
def test_a_proof_with_anything_else_in_it_is_none(name: str, other: int | str | None) -> None:
    """Whatever is missing, cut or replaced; and no error comes of it."""
    changed = {**good(), name: other}
    read = name == "rows" or name.startswith(("root.", "path."))
    assert is_proven(NONCE, 1, changed) is not read


@pytest.mark.parametrize("rows", [0, 1, ROWS_MIN // 2, ROWS_MIN + 1, 2 * ROWS_MAX, True])
def test_rows_are_a_power_of_two_in_their_bounds(rows: int) -> None:
    """Too few prove too little, and so many that nobody computes them are not looked at."""
    assert not is_proven(NONCE, 1, {**good(), "rows": rows})


def test_more_rows_have_longer_paths_and_are_proven_alike() -> None:
    """A fast GPU shows that it did more."""
    assert is_proven(NONCE, 1, good(rows=4 * ROWS_MIN))
    assert not is_proven(NONCE, 1, {**good(rows=4 * ROWS_MIN), "rows": ROWS_MIN})


def test_an_eighth_of_the_work_is_no_proof() -> None:
    """Rows that were made up are chosen sooner or later, and all that are shown must be right."""
    few = ROWS_MIN // 8
    made_up = [hashlib.sha256(b"%d" % row).digest() for row in range(ROWS_MIN - few)]
    done = leaves(NumpyGpu().finished_rows(NONCE, 0, 0, few))
    measures = proof(NONCE, ROWS_MIN, [HashTree(done + made_up)])
    assert not is_proven(NONCE, 1, measures)
