"""Papers of hosts, the secure tier, and its lapse by itself."""

from __future__ import annotations

import pytest

from ledger.domain.events import SecureTierChanged
from ledger.domain.verification import CertificationKind
from ledger.errors import LedgerError
from ledger.services import certifications, policies
from ledger.services.certifications import Paper
from ledger.services.ledger import Policy
from ledger.services.questions import trust
from tests.support.market import DOLLAR, START, Market
from tests.support.trust import standing

HASH = "ab" * 32
DAY = 86_400
ORGANISATION: list[CertificationKind] = ["business_registration", "identity_check", "agreement"]


def record(
    market: Market,
    kind: CertificationKind,
    valid_to: int | None = None,
    valid_from: int = START,
    host: str = "bob",
) -> int:
    """A paper of a host, as an admin records it."""
    paper = Paper(kind, f"no-{kind}", "somebody", valid_from, valid_to, HASH)
    account = market.account(host)
    with market.ledger.unit() as unit:
        return certifications.record(unit, account, paper)


def secure_host(market: Market, machines: int = 5, until: int | None = START + DAY) -> list[int]:
    """A host with so many machines and every paper; ISO/IEC 27001 up to *until*."""
    found = [market.machine(host="bob") for _ in range(machines)]
    for kind in ORGANISATION:
        record(market, kind)
    record(market, "iso27001", until)
    return found


def secure(market: Market, machines: list[int]) -> list[bool]:
    """Which of these machines are in the tier."""
    return [standing(market, machine)["secure"] for machine in machines]


def test_the_last_paper_puts_all_machines_of_the_host_into_the_tier(market: Market) -> None:
    """In the transaction in which it is recorded, in the offers too; of nobody else's machines."""
    other = market.machine(host="eve")
    machines = secure_host(market)
    assert secure(market, machines) == [True] * 5
    assert secure(market, [other]) == [False]
    shown = market.connection.execute("SELECT machine_id FROM open_offers WHERE secure").fetchall()
    assert sorted(row[0] for row in shown) == machines
    (fact,) = [one for one in market.facts() if isinstance(one, SecureTierChanged)]
    assert (fact.machine_ids, fact.secure) == (machines, True)


def test_four_machines_are_not_enough_and_the_fifth_is(market: Market) -> None:
    """A machine that is enrolled later brings its host into the tier by itself."""
    machines = secure_host(market, 4)
    policies.run_due(market.ledger)
    assert secure(market, machines) == [False] * 4
    machines.append(market.machine(host="bob"))
    policies.run_due(market.ledger)
    assert secure(market, machines) == [True] * 5
    machines.append(market.machine(host="bob"))
    policies.run_due(market.ledger)
    assert secure(market, machines) == [True] * 6


def test_the_tier_lapses_by_itself_at_the_breaking_end(market: Market) -> None:
    """At that very second, with a notice to the host and to its renters; contracts go on."""
    machines, alice = secure_host(market), market.account("alice", 100 * DOLLAR)
    instance = market.rent(alice, machines[0])
    market.confirm(machines[0], instance)
    with market.ledger.reading() as connection:
        assert trust.certifications(connection, market.account("bob"), START)[-1].counts
        assert certifications.next_paper_due(connection, START) == START + DAY
    market.run(machines[0], [instance], 10)
    market.clock.move_to(START + DAY - 1)
    policies.run_due(market.ledger)
    assert secure(market, machines) == [True] * 5
    market.clock.move_to(START + DAY)
    policies.run_due(market.ledger)
    assert secure(market, machines) == [False] * 5
    told = market.connection.execute(
        "SELECT account_id, about FROM notices WHERE code = 'secure_lapsed' ORDER BY position"
    ).fetchall()
    assert told == [
        (market.account("bob"), f"account-{market.account('bob')}"),
        (alice, f"instance-{instance}"),
    ]
    assert market.status(instance) == "running"
    policies.run_due(market.ledger)
    assert len([one for one in market.facts() if isinstance(one, SecureTierChanged)]) == 2
    assert market.rebuild().equal


def test_a_paper_renewed_in_time_breaks_nothing(market: Market) -> None:
    """The new one begins at the second at which the old one ends."""
    machines = secure_host(market)
    record(market, "iso27001", START + 3 * DAY, valid_from=START + DAY)
    market.clock.move_to(START + DAY)
    policies.run_due(market.ledger)
    assert secure(market, machines) == [True] * 5
    assert len([one for one in market.facts() if isinstance(one, SecureTierChanged)]) == 1


def test_a_paper_that_begins_later_counts_from_then_on(market: Market) -> None:
    """Recorded today, valid from tomorrow: the tier begins tomorrow."""
    machines = [market.machine(host="bob") for _ in range(5)]
    for kind in ORGANISATION:
        record(market, kind)
    record(market, "tier4", None, valid_from=START + DAY)
    assert secure(market, machines) == [False] * 5
    with market.ledger.reading() as connection:
        assert policies.next_due(connection, START) == START + DAY
    market.clock.move_to(START + DAY)
    policies.run_due(market.ledger)
    assert secure(market, machines) == [True] * 5


def test_a_withdrawn_paper_counts_no_more(market: Market) -> None:
    """At once, for good, and a second withdrawal changes nothing."""
    machines = secure_host(market)
    bob = market.account("bob")
    for _ in range(2):
        with market.ledger.unit() as unit:
            certifications.withdraw(unit, bob, 4, "revoked by its issuer")
    assert secure(market, machines) == [False] * 5
    with market.ledger.reading() as connection:
        last = trust.certifications(connection, bob, START)[-1]
    assert (last.counts, last.withdrawn_at) == (False, START)


def test_a_rule_that_makes_iso_mandatory_ends_the_tier_of_who_has_none(market: Market) -> None:
    """Policy `secure_requires_iso`: a Tier 3 facility alone is not enough any more."""
    machines = [market.machine(host="bob") for _ in range(5)]
    for kind in ORGANISATION:
        record(market, kind)
    record(market, "tier3")
    assert secure(market, machines) == [True] * 5
    strict = Policy(
        2, 1500, 259_200, admission=True, offline_after_seconds=60, secure_requires_iso=True
    )
    market.ledger.adopt_policy(strict)
    policies.run_due(market.ledger)
    assert secure(market, machines) == [False] * 5


@pytest.mark.parametrize(
    "paper",
    [
        Paper("iso27001", "", "BSI", START, None, HASH),
        Paper("iso27001", "1", "a\x00b", START, None, HASH),
        Paper("iso27001", "1", "BSI", START, START, HASH),
        Paper("iso27001", "1", "BSI", START, None, "AB" * 32),
        Paper("iso27001", "1", "BSI", START, None, "ab" * 31),
    ],
    ids=["no-number", "unprintable", "empty-span", "capitals", "short-hash"],
)
def test_a_paper_that_cannot_be_is_refused(market: Market, paper: Paper) -> None:
    """Nothing is recorded of it."""
    bob = market.account("bob")
    head = market.head()
    with pytest.raises(LedgerError) as refused, market.ledger.unit() as unit:
        certifications.record(unit, bob, paper)
    assert refused.value.code == "invalid_args"
    assert market.head() == head


def test_papers_are_of_accounts_and_numbers_that_exist(market: Market) -> None:
    """No paper of nobody, and no withdrawal of a paper that was never recorded."""
    paper = Paper("iso27001", "1", "BSI", START, None, HASH)
    with pytest.raises(LedgerError, match="no account 99"), market.ledger.unit() as unit:
        certifications.record(unit, 99, paper)
    bob = market.account("bob")
    with pytest.raises(LedgerError) as refused, market.ledger.unit() as unit:
        certifications.withdraw(unit, bob, 1, "why not")
    assert refused.value.code == "no_such_certification"
