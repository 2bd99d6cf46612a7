"""Which of the client's commands a test drives: said beside the test, and checked when it ends.

So the commands that `docs/vast.md` lists can be compared with those that are tested, and nobody can
say that a test drives what it does not.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final, TypeVar

from tests.vast.client import Client

DOCUMENT: Final = Path(__file__).parents[2] / "docs" / "vast.md"
_ROW: Final = re.compile(r"\| (?P<commands>`[^|]*) \| (?P<kind>\w+) \|")
_CODE: Final = re.compile(r"`([^`]*)`")

_Test = TypeVar("_Test", bound=Callable[..., None])
_DRIVEN: dict[str, list[str]] = {}


def drives(*commands: str) -> Callable[[_Test], _Test]:
    """Say that a test runs these commands with the real client, and looks at what came of them."""

    def mark(test: _Test) -> _Test:
        test.__dict__["drives"] = commands
        for one in commands:
            _DRIVEN.setdefault(one, []).append(test.__name__)
        return test

    return mark


def require_driven(test: Callable[..., Any], clients: Iterable[Client]) -> None:
    """Assert that the clients of a test ran every command that it is said to drive."""
    lines = [f"{' '.join(words)} " for client in clients for words in client.ran]
    missing = [
        command
        for command in test.__dict__.get("drives", ())
        if not any(line.startswith(f"{command} ") for line in lines)
    ]
    assert not missing, f"{test.__name__} drives none of {missing}"


def driven() -> frozenset[str]:
    """Every command that the tests imported so far drive."""
    return frozenset(_DRIVEN)


def documented() -> dict[str, str]:
    """Every command of the table, with what the table says of it in one word."""
    found: dict[str, str] = {}
    for row in _ROW.finditer(DOCUMENT.read_text()):
        for shown in _CODE.findall(row["commands"]):
            assert shown not in found, f"`{shown}` stands in the table twice"
            found[shown] = row["kind"]
    return found
