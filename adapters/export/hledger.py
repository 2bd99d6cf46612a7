"""A journal for hledger; `hledger check --strict` proves it.

The commodity is declared with nine decimals: hledger balances transactions to the decimals that it
shows.
"""

from __future__ import annotations

from typing import Final

from adapters.export.amounts import amount, day, one_line, positions
from ledger.services.journal import BalanceAssertion, Opened, Transaction

_TYPES: Final = {
    "Assets": "A",
    "Liabilities": "L",
    "Equity": "E",
    "Income": "R",
    "Expenses": "X",
}


class Hledger:
    """Writes items of a journal as hledger's directives and entries."""

    def head(self, title: str) -> str:
        """The commodity with its decimals."""
        return f"; {one_line(title, '')}\ncommodity 1000.000000000 USD\n\n"

    def opened(self, one: Opened) -> str:
        """An `account` directive with its type."""
        return f"account {one.account}  ; type:{_TYPES[one.account.partition(':')[0]]}\n"

    def transaction(self, one: Transaction) -> str:
        """An entry whose code names the places in the log that it comes from."""
        code = f"({positions(one.first_position, one.last_position)}) " if one.last_position else ""
        text = one_line(f"{one.kind} | {one.about}", ";")
        lines = [f"\n{day(one.at)} * {code}{text}\n"]
        lines += [f"    {line.account}  {amount(line.amount)}\n" for line in one.lines]
        return "".join(lines)

    def assertion(self, one: BalanceAssertion) -> str:
        """An entry of nothing on the day before, with what the account has to stand at."""
        return (
            f"\n{day(one.at - 1)} * balance\n"
            f"    {one.account}  {amount(0)} = {amount(one.balance)}\n"
        )
