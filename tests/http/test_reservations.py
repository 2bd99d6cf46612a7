"""Reservations and price increases over HTTP: what is locked, what comes back, who answers."""

from __future__ import annotations

from typing import Any

import pytest

from ledger.services import deposits, listings, machines, policies, rentals
from tests.http.conftest import Api
from tests.http.test_paging import check, walk
from tests.support.market import DOLLAR, START
from tests.support.offers import run_long

CENT = DOLLAR // 100
DAY = 86_400
MONTH = 30 * DAY


class Contract:
    """Alice rents bob's only GPU at $1 an hour; storage is free, so that amounts are the GPU's."""

    def __init__(self, api: Api) -> None:
        """Credit for months, a disk of 1 GB, and a machine that reports once in 300 s."""
        self.api = api
        self.market = api.market
        self.alice = api.accounts["alice"]
        with self.market.ledger.unit() as unit:
            deposits.deposit(unit, self.alice, 10_000 * DOLLAR, "more")
        self.machine = self.market.machine(host="bob", gpu_hour=DOLLAR, storage=0, up=0, down=0)
        self.instance = self.market.rent(self.alice, self.machine, disk_gb=1)
        self.market.confirm(self.machine, self.instance)

    @property
    def path(self) -> str:
        """Where the instance lies."""
        return f"/v1/instances/{self.instance}"

    def ask(self, method: str, what: str, body: Any = None, **headers: str) -> Any:
        """A request of alice's about her instance."""
        return self.api("alice", method, f"{self.path}/{what}", body, **headers)

    def available(self) -> str:
        """Alice's credit."""
        found: str = self.api("alice", "GET", "/v1/balance").json()["available"]
        return found

    def run(self, seconds: int) -> None:
        """The instance runs."""
        run_long(self.market, self.machine, [self.instance], seconds)
        self.market.project()
        policies.run_due(self.market.ledger)


@pytest.fixture
def contract(api: Api) -> Contract:
    """A running instance on demand."""
    return Contract(api)


# --- buying and cancelling ------------------------------------------------------------------------


@pytest.mark.parametrize("term", [{"months": 1}, {"seconds": MONTH}, {"amount": "576"}])
def test_a_month_at_20_percent_off_costs_576(contract: Contract, term: dict[str, Any]) -> None:
    """§9: $1/h for a month is $576 at $0.80; by months, seconds or the amount it is the same."""
    answer = contract.ask("POST", "reservation", term)
    assert answer.status_code == 201, answer.text
    shown = answer.json()
    assert (shown["deposit"], shown["added"], shown["rate"]) == ("576", "576", "0.8")
    assert (shown["base_rate"], shown["discount"]) == ("1", pytest.approx(0.2))
    assert shown["term_until"] == "2026-03-31T10:00:00Z"
    assert shown["discount_fell"] is False
    assert "20.0 % below 1" in shown["note"]
    assert contract.available() == str(10_100 - 576)
    seen = contract.api("alice", "GET", contract.path).json()
    assert (seen["kind"], seen["gpu_rate"]) == ("reserved", "0.8")
    assert seen["reservation"] == {
        "reservation_no": 1,
        "base_rate": "1",
        "rate": "0.8",
        "deposit": "576",
        "term_from": "2026-03-01T10:00:00Z",
        "term_until": "2026-03-31T10:00:00Z",
    }
    assert [(one["kind"], one["gpu_rate"], one["effective_at"]) for one in seen["coming"]] == [
        ("on_demand", "1", "2026-03-31T10:00:00Z")
    ]


@pytest.mark.parametrize(
    ("days", "remaining", "received", "refund"),
    [(0, "576", "0", "576"), (1, "556.8", "4.8", "551.76"), (15, "288", "72", "212.4")],
)
def test_what_cancelling_gives_back(
    contract: Contract, days: int, remaining: str, received: str, refund: str
) -> None:
    """C33, INV-02: remaining − 1.05 × the discount received; listed before, answered after."""
    contract.ask("POST", "reservation", {"months": 1})
    if days:
        contract.run(days * DAY)
    (before,) = contract.ask("GET", "reservations").json()["reservations"]
    assert (before["status"], before["refund"], before["remaining"]) == (
        "running",
        refund,
        remaining,
    )
    assert before["ran_seconds"] == days * DAY
    credit = contract.available()
    answer = contract.ask("DELETE", "reservation", Idempotency_Key="k")
    assert answer.status_code == 200, answer.text
    shown = answer.json()
    assert {name: shown[name] for name in ("remaining", "discount_received", "refund")} == {
        "remaining": remaining,
        "discount_received": received,
        "refund": refund,
    }
    assert shown["reason"] == "cancelled"
    assert _nanos(shown["kept"]) == _nanos(remaining) - _nanos(refund)
    assert _nanos(contract.available()) == _nanos(credit) + _nanos(refund)
    again = contract.ask("DELETE", "reservation", Idempotency_Key="k")
    assert again.json() == shown
    (after,) = contract.ask("GET", "reservations").json()["reservations"]
    assert (after["status"], after["refund"], after["kept"]) == (
        "cancelled",
        refund,
        shown["kept"],
    )
    gone = contract.ask("DELETE", "reservation")
    assert (gone.status_code, gone.json()["code"]) == (422, "not_reserved")
    seen = contract.api("alice", "GET", contract.path).json()
    assert (seen["kind"], seen["gpu_rate"], seen["reservation"]) == ("on_demand", "1", None)
    assert contract.market.rebuild().equal


def _nanos(dollars: str) -> int:
    whole, _, fraction = dollars.partition(".")
    return int(whole) * DOLLAR + int(fraction.ljust(9, "0") or 0)


def test_adding_credit_may_lower_the_discount_and_says_so(contract: Contract) -> None:
    """§9: three months at 0.30; after two, $552 more make two months at 0.266667."""
    contract.ask("POST", "reservation", {"months": 3})
    (bought,) = contract.ask("GET", "reservations").json()["reservations"]
    assert bought["deposit"] == "1512"
    contract.run(2 * MONTH)
    shown = contract.ask("POST", "reservation", {"amount": "552"}).json()
    assert (shown["deposit"], shown["added"], shown["rate"]) == ("1056", "552", "0.733333333")
    assert shown["discount_fell"] is True
    assert "The discount fell" in shown["note"]
    first, second = contract.ask("GET", "reservations").json()["reservations"]
    assert (first["status"], first["refund"], second["status"]) == ("replaced", "0", "running")
    # What the first term was worth is not forgotten: 1,440 h at 0.30 off.
    assert second["refund"] == f"{1056 - 1.05 * 1_440 * 0.3:g}"


def test_a_term_runs_while_the_instance_is_stopped(contract: Contract) -> None:
    """§9: idle seconds consume the deposit and are listed as such."""
    contract.ask("POST", "reservation", {"seconds": 7_200})
    contract.run(1_800)
    with contract.market.ledger.unit() as unit:
        rentals.stop(unit, contract.instance)
    contract.market.run(contract.machine, [contract.instance], 1_800, state="stopped")
    contract.market.project()
    (shown,) = contract.ask("GET", "reservations").json()["reservations"]
    assert (shown["ran_seconds"], shown["idle_seconds"]) == (1_800, 1_800)
    assert _nanos(shown["consumed"]) + _nanos(shown["remaining"]) == _nanos(shown["deposit"])


REFUSED: list[tuple[Any, int, str]] = [
    ({}, 400, "invalid_args"),
    ({"amount": "1", "months": 1}, 400, "invalid_args"),
    ({"amount": "0"}, 422, "amount_too_small"),
    ({"amount": "0.0000000001"}, 422, "invalid_amount"),
    ({"amount": "100000"}, 402, "insufficient_credit"),
    ({"months": 0}, 400, "invalid_args"),
]


@pytest.mark.parametrize(("body", "status", "code"), REFUSED)
def test_what_cannot_be_prepaid(contract: Contract, body: Any, status: int, code: str) -> None:
    """A refusal locks nothing and leaves the instance on demand."""
    head = contract.market.head()
    answer = contract.ask("POST", "reservation", body)
    assert (answer.status_code, answer.json()["code"]) == (status, code), answer.text
    assert contract.market.head() == head
    assert contract.available() == "10100"


def test_a_bid_cannot_be_prepaid_and_a_term_ends_with_its_contract(api: Api) -> None:
    """`not_on_demand` for a bid; `beyond_end_date` past the contract's end."""
    market = api.market
    machine = market.machine(gpus=2, floor=CENT, until=START + DAY)
    bid = market.rent(api.accounts["alice"], machine, gpus=1, bid=5 * CENT, disk_gb=1)
    fixed = market.rent(api.accounts["alice"], machine, gpus=1, disk_gb=1)
    for number, body, code in (
        (bid, {"amount": "1"}, "not_on_demand"),
        (fixed, {"seconds": DAY + 1}, "beyond_end_date"),
    ):
        answer = api("alice", "POST", f"/v1/instances/{number}/reservation", body)
        assert (answer.status_code, answer.json()["code"]) == (422, code)
    body = {"seconds": DAY}
    assert api("alice", "POST", f"/v1/instances/{fixed}/reservation", body).status_code == 201


def test_a_repeat_locks_once(contract: Contract) -> None:
    """IDEM-03: the same reservation under one key is one reservation."""
    first = contract.ask("POST", "reservation", {"amount": "50"}, Idempotency_Key="k")
    again = contract.ask("POST", "reservation", {"amount": "50"}, Idempotency_Key="k")
    assert (first.status_code, again.content) == (201, first.content)
    assert contract.available() == "10050"
    assert first.json()["rate"] == "0.973362622"


def test_the_host_sees_the_terms_of_its_machine(contract: Contract) -> None:
    """The reservation is the host's contract too; other hosts and renters do not see it."""
    contract.ask("POST", "reservation", {"months": 1})
    path = f"{contract.path}/reservations"
    for person, status in (("bob", 200), ("audrey", 200), ("eve", 404), ("carol", 404)):
        assert contract.api(person, "GET", path).status_code == status, person


# --- price increases ------------------------------------------------------------------------------


class Extension:
    """Bob's contracts with alice end in a day; he offers a later end at a higher price."""

    def __init__(self, api: Api, instances: int = 1) -> None:
        """A machine listed until tomorrow, and *instances* of one GPU each."""
        self.api = api
        self.market = api.market
        self.machine = self.market.machine(
            host="bob", gpus=4, gpu_hour=40 * CENT, until=START + DAY
        )
        self.instances = [
            self.market.rent(api.accounts["alice"], self.machine, gpus=1, disk_gb=1)
            for _ in range(instances)
        ]

    def propose(self, gpu_hour: int, until: int = START + 30 * DAY) -> None:
        """List the machine again."""
        self.market.list_again(self.machine, gpu_hour=gpu_hour, until=until)

    def answer(self, what: str, number: int = 0, person: str = "alice") -> Any:
        """Accept or reject."""
        path = f"/v1/instances/{self.instances[number]}/price-increase/{what}"
        return self.api(person, "POST", path)

    def listed(self, person: str = "alice", query: str = "") -> list[dict[str, Any]]:
        """What that person is shown."""
        found: list[dict[str, Any]] = self.api(person, "GET", f"/v1/price-increases{query}").json()[
            "items"
        ]
        return found


def test_an_increase_is_accepted_once(api: Api) -> None:
    """C31, PRICE-09: one pending row; the second answer is 404; the old rate to the old end."""
    extension = Extension(api)
    extension.propose(50 * CENT)
    (row,) = extension.listed()
    assert (row["status"], row["gpu_rate_now"], row["gpu_rate"]) == ("pending", "0.4", "0.5")
    assert (row["until_now"], row["until"]) == ("2026-03-02T10:00:00Z", "2026-03-31T10:00:00Z")
    accepted = extension.answer("accept")
    assert accepted.status_code == 200, accepted.text
    shown = accepted.json()
    assert (shown["gpu_rate"], shown["until"]) == ("0.4", "2026-03-31T10:00:00Z")
    assert [(one["effective_at"], one["gpu_rate"]) for one in shown["coming"]] == [
        ("2026-03-02T10:00:00Z", "0.5")
    ]
    for what in ("accept", "reject"):
        again = extension.answer(what)
        assert (again.status_code, again.json()["code"]) == (404, "no_pending_price_increase")
    (row,) = extension.listed()
    assert (row["status"], row["answered_at"]) == ("accepted", "2026-03-01T10:00:00Z")
    assert extension.listed(query="?pending=true") == []


def test_a_rejected_increase_is_closed_for_good(api: Api) -> None:
    """The contract ends when it did; a new proposal is another one."""
    extension = Extension(api)
    extension.propose(50 * CENT)
    assert extension.answer("reject").json()["until"] == "2026-03-02T10:00:00Z"
    assert extension.answer("accept").status_code == 404
    extension.propose(45 * CENT)
    assert [(one["proposal_no"], one["status"]) for one in extension.listed()] == [
        (1, "rejected"),
        (2, "pending"),
    ]


def test_a_new_proposal_replaces_the_pending_one(api: Api) -> None:
    """Never two pending for one contract, and what is accepted is the newest."""
    extension = Extension(api)
    extension.propose(50 * CENT)
    extension.propose(60 * CENT)
    assert [(one["status"], one["gpu_rate"]) for one in extension.listed()] == [
        ("replaced", "0.5"),
        ("pending", "0.6"),
    ]
    assert extension.answer("accept").json()["coming"][0]["gpu_rate"] == "0.6"


def test_after_the_end_nothing_can_be_answered(api: Api) -> None:
    """A proposal lapses with its contract, and the list says so."""
    extension = Extension(api)
    extension.propose(50 * CENT)
    extension.market.clock.move_to(START + DAY)
    (row,) = extension.listed()
    assert row["status"] == "lapsed"
    assert extension.listed(query="?pending=true") == []
    answer = extension.answer("accept")
    assert (answer.status_code, answer.json()["code"]) == (404, "no_pending_price_increase")


def test_equal_or_lower_prices_extend_without_asking(api: Api) -> None:
    """Nothing is pending: the contract ends later at the offered rates."""
    extension = Extension(api)
    extension.propose(39 * CENT)
    assert extension.listed() == []
    shown = api("alice", "GET", f"/v1/instances/{extension.instances[0]}").json()
    assert (shown["until"], shown["coming"][0]["gpu_rate"]) == ("2026-03-31T10:00:00Z", "0.39")


def test_who_sees_and_answers_an_increase(api: Api) -> None:
    """The renter and the host see it, nobody else does; only the renter (or an admin) answers."""
    extension = Extension(api)
    extension.propose(50 * CENT)
    for person, rows in (("alice", 1), ("bob", 1), ("audrey", 1), ("carol", 0), ("eve", 0)):
        assert len(extension.listed(person)) == rows, person
    assert extension.answer("accept", person="carol").status_code == 404
    assert extension.answer("accept", person="bob").status_code == 403
    only = extension.instances[0]
    assert len(extension.listed(query=f"?instance_id={only}")) == 1
    assert extension.listed(query=f"?instance_id={only + 1}") == []


def test_increases_are_paged(api: Api) -> None:
    """API-08: every increase once by instance and number, while others are proposed."""
    extension = Extension(api, instances=4)
    extension.propose(50 * CENT)
    prices = iter((60, 70, 80))
    pages = walk(
        api, "alice", "/v1/price-increases", 1, lambda _: extension.propose(next(prices) * CENT)
    )
    keys = check(pages, 1, lambda row: (row["instance_id"], row["proposal_no"]))
    assert keys == sorted(keys)
    assert {(one, 1) for one in extension.instances} <= set(keys)


def test_a_lost_listing_gives_no_later_end(api: Api) -> None:
    """An increase stands whatever becomes of the listing: what was offered can be accepted."""
    extension = Extension(api)
    extension.propose(50 * CENT)
    with extension.market.ledger.unit() as unit:
        listings.unlist_machine(unit, extension.machine)
        assert machines.require_machine(unit.connection, extension.machine).listing_id is None
    assert extension.answer("accept").status_code == 200
