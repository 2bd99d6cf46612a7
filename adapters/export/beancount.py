"""A journal for beancount; `bean-check` proves it.

By default beancount forgives half of the last digit that it sees; the option at the top takes that
away, so that one nano too much is refused.
"""

from __future__ import annotations

from adapters.export.amounts import amount, day, one_line, positions
from ledger.services.journal import BalanceAssertion, Opened, Transaction


class Beancount:
    """Writes items of a journal as beancount's directives."""

    def head(self, title: str) -> str:
        """The options that make it exact."""
        return (
            f'option "title" "{one_line(title, chr(34) + chr(92))}"\n'
            'option "operating_currency" "USD"\n'
            'option "tolerance_multiplier" "0"\n\n'
        )

    def opened(self, one: Opened) -> str:
        """An `open` directive."""
        return f"{day(one.at)} open {one.account} USD\n"

    def transaction(self, one: Transaction) -> str:
        """A transaction with the places in the log that it comes from."""
        about = one_line(one.about, '"\\')
        lines = [f'\n{day(one.at)} * "{one_line(one.kind, chr(34) + chr(92))}" "{about}"\n']
        if one.last_position:
            lines.append(f'  positions: "{positions(one.first_position, one.last_position)}"\n')
        lines += [f"  {line.account}  {amount(line.amount)}\n" for line in one.lines]
        return "".join(lines)

    def assertion(self, one: BalanceAssertion) -> str:
        """A `balance` directive: it holds at the beginning of its day."""
        return f"\n{day(one.at)} balance {one.account}  {amount(one.balance)}\n"
