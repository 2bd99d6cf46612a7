"""The chart of accounts knows every ledger account that money moves on, and no other."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger.domain.chart import CHART, journal_name, ledger_account, parse_journal_name
from ledger.domain.events import AnyFact
from ledger.errors import CorruptHistoryError
from ledger.projections.facts import changes
from ledger.services.questions.postings import POSTINGS
from tests.golden.examples import EXAMPLES

_NO_ACCOUNTS = {"usage", "volume", "reserved", "reservation_end", "replaced"}
"""What else the postings of usage write in quotes."""


def variants(fact: AnyFact) -> Iterator[AnyFact]:
    """A fact, and the same with every word that each of its fields may have instead."""
    yield fact
    info = msgspec.inspect.type_info(type(fact))
    assert isinstance(info, msgspec.inspect.StructType)
    for field in info.fields:
        if isinstance(field.type, msgspec.inspect.LiteralType):
            for word in field.type.values:
                yield msgspec.structs.replace(fact, **{field.name: word})


def sides(fact: AnyFact) -> Iterator[tuple[str, Any]]:
    """Both ledger accounts of every movement that a fact is folded into, and whose they are."""
    for one in variants(fact):
        for change in changes(one, 1):
            if "INTO movements" in change.sql:
                _, _, _, _, debit, debtor, credit, creditor, *_ = change.values
                yield debit, debtor
                yield credit, creditor


@pytest.mark.parametrize("fact", EXAMPLES, ids=lambda fact: type(fact).__name__)
def test_every_movement_of_a_fact_is_on_accounts_of_the_chart(fact: AnyFact) -> None:
    """No fold names an account that is missing, and who it belongs to is as the chart says."""
    for name, person in sides(fact):
        assert ledger_account(name).per_person == (person is not None), name


def test_facts_and_usage_name_the_whole_chart() -> None:
    """Every account of the chart is moved on by some fact or by usage; the postings name no more.

    So an account that a fold gets and the chart does not fails here or above, and one that nothing
    needs any more fails here.
    """
    by_facts = {name for fact in EXAMPLES for name, _ in sides(fact)}
    by_usage = set(re.findall(r"'([a-z_]+)'", POSTINGS)) - _NO_ACCOUNTS
    assert by_usage <= CHART.keys()
    assert by_facts | by_usage == CHART.keys()


def test_a_name_that_is_not_in_the_chart_is_corrupt() -> None:
    """A journal of such a movement is refused, and not written under a kind that is made up."""
    with pytest.raises(CorruptHistoryError, match="'petty_cash'"):
        ledger_account("petty_cash")


@given(st.sampled_from(sorted(CHART)), st.none() | st.integers(1, 10**18))
def test_a_journal_name_says_which_account_and_whose(name: str, person: int | None) -> None:
    """What a journal calls an account is read back as that account, and as nobody else's."""
    assert parse_journal_name(journal_name(name, person)) == (name, person)
