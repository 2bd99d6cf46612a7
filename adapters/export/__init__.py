"""The books in the words of other programs: beancount and hledger.

A journal is written item by item, as `ledger.services.journal` gives them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Literal, Protocol, TextIO

from adapters.export.beancount import Beancount
from adapters.export.hledger import Hledger
from ledger.services.journal import BalanceAssertion, Item, Opened, Transaction

JournalFormat = Literal["beancount", "hledger"]


class Writer(Protocol):
    """How one program writes a journal; every method returns whole lines."""

    def head(self, title: str) -> str:
        """What stands before everything else."""

    def opened(self, one: Opened) -> str:
        """An account that is used below."""

    def transaction(self, one: Transaction) -> str:
        """Lines that add up to zero."""

    def assertion(self, one: BalanceAssertion) -> str:
        """What an account has to stand at."""


_WRITERS: Final[dict[JournalFormat, Writer]] = {"beancount": Beancount(), "hledger": Hledger()}


def write_journal(out: TextIO, how: JournalFormat, title: str, items: Iterable[Item]) -> int:
    """Write a journal to *out*; returns how many transactions there were."""
    writer = _WRITERS[how]
    out.write(writer.head(title))
    transactions = 0
    for item in items:
        match item:
            case Opened():
                out.write(writer.opened(item))
            case Transaction():
                out.write(writer.transaction(item))
                transactions += 1
            case BalanceAssertion():
                out.write(writer.assertion(item))
    return transactions
