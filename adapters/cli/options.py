"""What many commands share: their options, and how they open a ledger."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

from cyclopts import Parameter
from cyclopts.validators import Number

from ledger.errors import NotFoundError, RejectedError

if TYPE_CHECKING:
    from ledger.services.ledger import Ledger
    from ledger.store.database import Connection

_BIGGEST: Final = 2**63 - 1
_HOME: Final = "GPULEDGER_HOME"
_URL: Final = "GPULEDGER_DATABASE_URL"
_VAULT_KEY: Final = "GPULEDGER_VAULT_KEY"

Home = Annotated[
    Path | None,
    Parameter(
        name="--home", help="The ledger's folder; default: $GPULEDGER_HOME, else ~/.gpuledger."
    ),
]
AsJson = Annotated[
    bool, Parameter(name="--json", negative="", help="Print one JSON document, for programs.")
]
Limit = Annotated[
    int,
    Parameter(name="--limit", help="Rows at most.", validator=Number(gte=1, lte=1_000_000)),
]
After = Annotated[
    int,
    Parameter(
        name="--after",
        help="Go on after the row with this id.",
        validator=Number(gte=0, lte=_BIGGEST),
    ),
]
AfterPosition = Annotated[
    int,
    Parameter(
        name="--after",
        help="Go on after this position in the log.",
        validator=Number(gte=0, lte=_BIGGEST),
    ),
]
AfterKey = Annotated[
    str, Parameter(name="--after", help="Go on after this key, as the page before named it.")
]
Account = Annotated[str | None, Parameter(name="--account", help="An account, by name or id.")]
Id = Annotated[int, Parameter(validator=Number(gte=1, lte=_BIGGEST))]
Instant = Annotated[str | None, Parameter(help="A time such as 2026-03-01T10:00:00Z.")]


def home_folder(home: Path | None) -> Path:
    """The folder that was given, or named by the environment, or the usual one."""
    return (home or Path(os.environ.get(_HOME) or "~/.gpuledger")).expanduser()


@contextmanager
def opened(
    home: Path | None, *, create: bool = False, any_generation: bool = False
) -> Iterator[Ledger]:
    """The ledger in *home*, or on `GPULEDGER_DATABASE_URL`; made only when *create* says so.

    With *any_generation* also one whose read models an older program has left.

    Raises:
        NotFoundError: `no_ledger`, there is none to read.
    """
    folder = home_folder(home)
    if not create:
        _require(folder)
    from ledger.services.ledger import Ledger

    ledger = Ledger.open(folder, any_generation=any_generation)
    try:
        yield ledger
    finally:
        ledger.close()


def _require(folder: Path) -> None:
    if os.environ.get(_URL):
        if not os.environ.get(_VAULT_KEY) and not (folder / "vault.key").is_file():
            message = (
                f"there is no vault.key in {folder}, and names cannot be read without it:"
                f" give the --home of the server, or set {_VAULT_KEY}"
            )
            raise NotFoundError("no_ledger", message)
    elif not (folder / "postgres").is_dir():
        message = (
            f"there is no ledger in {folder}; start one with `gpuledger serve --home {folder}`"
        )
        raise NotFoundError("no_ledger", message)


@contextmanager
def reading(home: Path | None) -> Iterator[tuple[Ledger, Connection]]:
    """One consistent view of an existing ledger, for a question."""
    with opened(home) as ledger, ledger.reading() as connection:
        yield ledger, connection


def account_id(ledger: Ledger, connection: Connection, account: str | None) -> int | None:
    """The id of an account that was named, or none when none was.

    Raises:
        NotFoundError: `no_such_account`.
    """
    from ledger.services.questions import accounts

    return None if account is None else accounts.find_account(connection, ledger.vault, account)


def instant(text: str | None, option: str) -> int | None:
    """The Unix second of an RFC 3339 time that was given to *option*.

    Raises:
        RejectedError: `invalid_args`.
    """
    from ledger.domain.ids import parse_rfc3339

    try:
        return None if text is None else parse_rfc3339(text)
    except ValueError:
        message = f"{option}: {text!r} is not a time such as 2026-03-01T10:00:00Z"
        raise RejectedError("invalid_args", message) from None
