"""Which facts are noticed, to whom, and how often.

LIFE-13, C35, and the list at the end of `marketplace.md` §19.
"""

from __future__ import annotations

import pytest

from ledger.domain.usage import Observation, ObservedState
from ledger.errors import NotFoundError
from ledger.services import listings, policies, rentals
from ledger.services.ledger import Policy
from ledger.services.policies import expiring
from ledger.services.policies.expiring import NOTICE_SECONDS
from tests.support.market import DOLLAR, START, Market

DAY = 86_400
ALWAYS_ONLINE = Policy(2, 1_500, 259_200, admission=True, offline_after_seconds=None)
"""So that a test may let days pass without a report."""


@pytest.fixture
def alice(market: Market) -> int:
    """A renter."""
    return market.account("alice", 100 * DOLLAR)


def told(market: Market, account: int, about: str | None = None) -> list[str]:
    """The codes of an account's notices, in order; receipts left out."""
    rows = market.connection.execute(
        "SELECT code, about FROM notices WHERE account_id = %s AND code <> 'receipt'"
        " ORDER BY position",
        [account],
    ).fetchall()
    return [code for code, object_ in rows if about in {None, object_}]


def observe(market: Market, machine: int, instance: int, state: ObservedState) -> None:
    """The host reports that something happened to the container."""
    seen = Observation(instance=instance, assignment=1, state=state, at=market.clock())
    chain = market.chains[machine]
    report = chain.seal(max(market.clock(), chain.sealed_until), 0, [], [seen])
    assert market.deliver(report)[0].status == "accepted"


def test_life_13_started_is_told_once_and_resumed_whenever_it_leaves_scheduling(
    market: Market, alice: int
) -> None:
    """LIFE-13, C35: `started` comes with the first run alone, `resumed` with every later grant."""
    machine = market.machine()
    instance = market.rent(alice, machine)
    market.confirm(machine, instance)
    for assignment in (2, 3):
        market.clock.move_to(market.clock() + 60)
        with market.ledger.unit() as unit:
            rentals.stop(unit, instance)
            rentals.start(unit, instance)
        market.confirm(machine, instance, assignment)
    assert told(market, alice, f"instance-{instance}") == [
        "created",
        "started",
        *("stopped", "resumed"),
        *("stopped", "resumed"),
    ]
    assert market.rebuild().equal


def test_c35_an_instance_that_waited_from_the_start_resumes_and_starts(
    market: Market, alice: int
) -> None:
    """C35: leaving `scheduling` is `resumed` for a new instance too, its first run `started`."""
    carol = market.account("carol", 100 * DOLLAR)
    machine = market.machine()
    first = market.rent(alice, machine)
    waiting = market.rent(carol, machine, wait=True)
    market.clock.move_to(START + 60)
    with market.ledger.unit() as unit:
        rentals.destroy(unit, first)
    market.confirm(machine, waiting)
    assert told(market, carol) == ["created", "resumed", "started"]
    assert told(market, alice) == ["created", "destroyed"]


@pytest.mark.parametrize(
    ("state", "codes"),
    [
        ("exited", ["stopped"]),
        ("gpu_lost", ["error"]),
        ("disk_gone", ["lost_disk"]),
    ],
)
def test_what_a_host_saw_is_told_once(
    market: Market, alice: int, state: ObservedState, codes: list[str]
) -> None:
    """An exit is `stopped`, a lost GPU `error`, a lost disk `lost_disk`: once, if seen twice."""
    machine = market.machine()
    instance = market.rent(alice, machine)
    market.confirm(machine, instance)
    market.clock.move_to(START + 60)
    for _ in range(2):
        observe(market, machine, instance, state)
    assert told(market, alice) == ["created", "started", *codes]
    assert market.rebuild().equal


def test_a_launch_that_fails_is_an_error(market: Market, alice: int) -> None:
    """A failed launch is told as `error`, whether the host says so or half an hour passes."""
    failing, silent = market.machine(), market.machine()
    first, second = market.rent(alice, failing), market.rent(alice, silent)
    observe(market, failing, first, "launch_failed")
    assert told(market, alice, f"instance-{first}") == ["created", "error"]
    market.clock.move_to(START + 1_800)
    policies.run_due(market.ledger)
    policies.run_due(market.ledger)
    assert told(market, alice, f"instance-{second}") == ["created", "error"]


def test_a_confirmation_that_came_too_late_is_still_the_first_run(
    market: Market, alice: int
) -> None:
    """A container that ran before its stop was heard of has started: told once, after the stop."""
    machine = market.machine()
    instance = market.rent(alice, machine)
    market.clock.move_to(START + 60)
    with market.ledger.unit() as unit:
        rentals.stop(unit, instance)
    seen = Observation(instance=instance, assignment=1, state="running", at=START + 10)
    chain = market.chains[machine]
    assert market.deliver(chain.seal(START, 0, [], [seen]))[0].status == "accepted"
    assert told(market, alice) == ["created", "stopped", "started"]


def test_a_notice_lies_in_the_transaction_of_its_cause(market: Market, alice: int) -> None:
    """A command that fails after its facts leaves neither them nor their notices."""
    machine = market.machine()
    head = market.head()
    with pytest.raises(NotFoundError), market.ledger.unit() as unit:
        rentals.stop(unit, rentals.rent(unit, alice, machine, disk_gb=10) + 1)
    assert market.head() == head
    assert told(market, alice) == []


def test_everything_that_stops_for_want_of_credit_is_told(market: Market) -> None:
    """Each instance that exhaustion stops is told of, and the account of the exhaustion."""
    poor = market.account("poor", 2 * DOLLAR)
    machine = market.machine(gpus=2, gpu_hour=400_000_000)
    market.ledger.adopt_policy(ALWAYS_ONLINE)
    for _ in range(2):
        market.confirm(machine, market.rent(poor, machine, gpus=1))
    market.clock.move_to(START + 8_600)
    policies.run_due(market.ledger)
    assert told(market, poor) == [
        *("created", "started", "created", "started"),
        *("stopped", "stopped", "exhausted"),
    ]


# --- contracts that end ---------------------------------------------------------------------------


def list_until(market: Market, machine: int, until: int | None) -> None:
    """List a machine up to a second."""
    with market.ledger.unit() as unit:
        listings.list_machine(
            unit, machine, listings.Prices(360_000_000, 150_000_000, 0, 0), until=until
        )


def ticking(market: Market, *seconds: int) -> None:
    """Let the policies act at these seconds."""
    for second in seconds:
        market.clock.move_to(second)
        policies.run_due(market.ledger)


def test_the_end_of_a_contract_is_told_a_day_before_it_once(market: Market, alice: int) -> None:
    """`expiring` comes 24 h before the end, in that second and once; then `expired` at the end."""
    market.ledger.adopt_policy(ALWAYS_ONLINE)
    machine = market.machine()
    list_until(market, machine, START + 3 * DAY)
    instance = market.rent(alice, machine)
    market.confirm(machine, instance)
    with market.ledger.reading() as connection:
        assert expiring.next_due(connection, START + DAY) == START + 2 * DAY
        assert expiring.next_due(connection, START + 2 * DAY) is None
    ticking(market, START + 2 * DAY - 1)
    assert "expiring" not in told(market, alice)
    ticking(market, START + 2 * DAY, START + 2 * DAY, START + 2 * DAY + 5)
    assert told(market, alice).count("expiring") == 1
    (issued,) = market.connection.execute(
        "SELECT issued_at FROM notices WHERE code = 'expiring'"
    ).fetchall()[0]
    assert issued == START + 3 * DAY - NOTICE_SECONDS
    ticking(market, START + 3 * DAY, START + 3 * DAY + 1)
    assert told(market, alice)[-2:] == ["expiring", "expired"]
    assert market.rebuild().equal


def test_an_end_that_moved_is_told_again_when_it_is_near(market: Market, alice: int) -> None:
    """After an extension the new end is told a day before it, and the old one not any more."""
    market.ledger.adopt_policy(ALWAYS_ONLINE)
    machine = market.machine()
    list_until(market, machine, START + 2 * DAY)
    market.rent(alice, machine)
    ticking(market, START + DAY)
    list_until(market, machine, START + 5 * DAY)
    ticking(market, START + 2 * DAY, START + 4 * DAY - 1)
    assert told(market, alice).count("expiring") == 1
    ticking(market, START + 4 * DAY, START + 4 * DAY + 1)
    assert told(market, alice).count("expiring") == 2
    assert "expired" not in told(market, alice)


def test_a_contract_of_less_than_a_day_is_told_at_once(market: Market, alice: int) -> None:
    """A warning that can come no earlier comes now; a destroyed or endless contract gets none."""
    market.ledger.adopt_policy(ALWAYS_ONLINE)
    short, gone, endless = market.machine(), market.machine(), market.machine()
    list_until(market, short, START + 3_600)
    list_until(market, gone, START + 3_600)
    market.rent(alice, short)
    destroyed = market.rent(alice, gone)
    market.rent(alice, endless)
    with market.ledger.unit() as unit:
        rentals.destroy(unit, destroyed)
    ticking(market, START + 1)
    assert told(market, alice).count("expiring") == 1
    assert told(market, alice, f"instance-{destroyed}") == ["created", "destroyed"]
