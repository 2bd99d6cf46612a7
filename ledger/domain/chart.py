"""The chart of accounts (`marketplace.md` §14): what kind each ledger account is, and its name.

Every movement names two of these. An account that holds one person's money is kept per person in
journals (`Liabilities:RenterCredit:Account7`).
"""

from __future__ import annotations

import re
from typing import Final, Literal, NamedTuple

from ledger.errors import CorruptHistoryError

Kind = Literal["Assets", "Liabilities", "Income", "Expenses", "Equity"]
OPENING: Final = "Equity:OpeningBalances"
"""Where a journal that does not begin at the beginning gets its balances from."""


class LedgerAccount(NamedTuple):
    """One account of the chart. `per_person`: it is the sum of one account a person."""

    name: str
    kind: Kind
    per_person: bool

    @property
    def title(self) -> str:
        """Its name as journals write it, such as `RenterCredit`."""
        return "".join(word.capitalize() for word in self.name.split("_"))


def _chart(*rows: LedgerAccount) -> dict[str, LedgerAccount]:
    return {row.name: row for row in rows}


CHART: Final = _chart(
    LedgerAccount("bank", "Assets", per_person=False),
    LedgerAccount("payment_clearing", "Assets", per_person=False),
    LedgerAccount("payout_clearing", "Assets", per_person=False),
    LedgerAccount("processor_balance", "Assets", per_person=False),
    LedgerAccount("processor_suspense", "Assets", per_person=False),
    LedgerAccount("host_receivable", "Assets", per_person=True),
    LedgerAccount("renter_credit", "Liabilities", per_person=True),
    LedgerAccount("reserved_deposit", "Liabilities", per_person=True),
    LedgerAccount("host_payable", "Liabilities", per_person=True),
    LedgerAccount("disputed_hold", "Liabilities", per_person=True),
    LedgerAccount("tax_payable", "Liabilities", per_person=False),
    LedgerAccount("platform_fee", "Income", per_person=False),
    LedgerAccount("platform_revenue", "Income", per_person=False),
    LedgerAccount("processor_fees", "Expenses", per_person=False),
    LedgerAccount("chargeback_difference", "Expenses", per_person=False),
    LedgerAccount("bad_debt", "Expenses", per_person=False),
    LedgerAccount("promo_expense", "Expenses", per_person=False),
    LedgerAccount("compensation", "Expenses", per_person=False),
)
_PERSON: Final = re.compile(r"([A-Za-z]+):([A-Za-z]+)(?::Account([1-9][0-9]*))?")


def ledger_account(name: str) -> LedgerAccount:
    """The account of the chart that a movement names.

    Raises:
        CorruptHistoryError: `corrupt_history` for a name that is not in the chart.
    """
    found = CHART.get(name)
    if found is None:
        message = f"money moved on {name!r}, which is not in the chart of accounts"
        raise CorruptHistoryError("corrupt_history", message)
    return found


def journal_name(name: str, person: int | None) -> str:
    """How journals write a ledger account, and whose it is: `Liabilities:RenterCredit:Account7`."""
    account = ledger_account(name)
    whole = f"{account.kind}:{account.title}"
    return whole if person is None else f"{whole}:Account{person}"


def parse_journal_name(text: str) -> tuple[str, int | None] | None:
    """The ledger account and the person that a journal's name means; none for any other text."""
    found = _PERSON.fullmatch(text)
    if found is None:
        return None
    for account in CHART.values():
        if (account.kind, account.title) == (found[1], found[2]):
            return account.name, None if found[3] is None else int(found[3])
    return None
