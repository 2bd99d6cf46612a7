"""The table of commands in docs/vast.md, the client's own list, and what the tests drive."""

from __future__ import annotations

from typing import Final

import pytest

import tests.vast.test_client
import tests.vast.test_client_account
import tests.vast.test_client_contracts
import tests.vast.test_client_hosts
import tests.vast.test_client_refusals
import tests.vast.test_client_surroundings  # noqa: F401 - each says which commands it drives
from tests.vast.conftest import Person
from tests.vast.drives import documented, driven, require_driven

ASKING: Final = frozenset({"works", "partly", "refused"})
SILENT: Final = frozenset({"local", "elsewhere"})
"""What the table says of commands that send this server nothing."""
NAMES: Final = """
import contextlib, io, json, sys
import vastai.cli.main as client
sys.argv = ["vastai", "--version"]
with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):
    client.main()
choices = client.parser.subparsers().choices
print(json.dumps(sorted({one.command_name for one in choices.values()})))
"""


def test_every_command_of_the_table_is_driven() -> None:
    """C30: what asks this server stands in the table and is run by the real client in a test."""
    table = documented()
    assert set(table.values()) <= ASKING | SILENT
    asking = {command for command, kind in table.items() if kind in ASKING}
    assert asking - driven() == set(), "no test drives these"
    assert driven() - set(table) == set(), "the table does not have these"


def test_the_table_has_every_command_of_the_client(person: Person) -> None:
    """The client has no command of which the table says nothing, and the table none besides."""
    assert person("alice", "renter").python(NAMES).json() == sorted(documented())


def test_a_command_that_was_not_run_is_noticed(person: Person) -> None:
    """A test that is said to drive a command, and does not, fails at its end."""

    def claims() -> None:
        """Say more than is done."""

    claims.__dict__["drives"] = ("show instance", "logs")
    alice = person("alice", "renter")
    alice.ran.append(("show", "instances", "--raw"))
    alice.ran.append(("logs", "7"))
    with pytest.raises(AssertionError, match=r"drives none of \['show instance'\]"):
        require_driven(claims, [alice])
