"""Lists page by page: no row twice, none missing, while rows are being added (API-08)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ledger.services import holds, invoicing, policies, rentals
from tests.http.conftest import Api
from tests.http.test_access import paths
from tests.support.market import START

Row = dict[str, Any]
ROUNDS_MAX = 200


def walk(
    api: Api, person: str, path: str, limit: int, between: Callable[[int], None] | None = None
) -> list[list[Row]]:
    """Every page of a list, with something happening after each of the first three."""
    pages: list[list[Row]] = []
    cursor = None
    for number in range(ROUNDS_MAX):
        joint = "&" if "?" in path else "?"
        query = f"{joint}limit={limit}" + (f"&cursor={cursor}" if cursor else "")
        answer = api(person, "GET", path + query)
        assert answer.status_code == 200, answer.text
        shown = answer.json()
        pages.append(shown["items"])
        cursor = shown["next_cursor"]
        if cursor is None:
            return pages
        if between is not None and number < 3:
            between(number)
    raise AssertionError(path)


def check(pages: list[list[Row]], limit: int, key: Callable[[Row], Any]) -> list[Any]:
    """The keys of all rows, after a look at the pages themselves."""
    for one in pages[:-1]:
        assert len(one) == limit
    assert 0 < len(pages[-1]) <= limit
    keys = [key(row) for one in pages for row in one]
    assert len(set(keys)) == len(keys), "a row was shown twice"
    return keys


@pytest.fixture
def busy(api: Api) -> tuple[int, list[int]]:
    """A machine with eight GPUs and six instances that ran for ten minutes."""
    market = api.market
    machine = market.machine(host="bob", gpus=8)
    instances = [market.rent(api.accounts["alice"], machine, gpus=1, disk_gb=10) for _ in range(6)]
    for one in instances:
        market.confirm(machine, one)
    market.run(machine, instances, 600, up=1_000_000, down=1_000_000)
    market.project()
    return machine, instances


def test_accounts(api: Api) -> None:
    """Every account is shown once by id, those that are opened meanwhile too."""
    for number in range(4):
        api.market.account(f"early-{number}")
    pages = walk(
        api, "audrey", "/v1/accounts", 3, lambda number: void(api.market.account(f"late-{number}"))
    )
    keys = check(pages, 3, lambda row: row["account_id"])
    assert keys == list(range(1, len(api.accounts) + 4 + 3 + 1))


def void(_: object) -> None:
    """Forget a result."""


def test_instances(api: Api, busy: tuple[int, list[int]]) -> None:
    """Rentals that begin and end between pages neither repeat nor hide an instance (API-03)."""
    machine, instances = busy
    market = api.market
    later: list[int] = []

    def between(number: int) -> None:
        with market.ledger.unit() as unit:
            rentals.destroy(unit, instances[number])
            later.append(
                rentals.rent(unit, api.accounts["alice"], machine, gpus=1, disk_gb=10, wait=True)
            )

    pages = walk(api, "alice", "/v1/instances", 2, between)
    assert check(pages, 2, lambda row: row["instance_id"]) == instances + later
    hosts = walk(api, "bob", f"/v1/instances?machine_id={machine}", 4)
    assert check(hosts, 4, lambda row: row["instance_id"]) == instances + later
    gone = walk(api, "alice", "/v1/instances?status=destroyed", 1)
    assert check(gone, 1, lambda row: row["instance_id"]) == instances[:3]


def test_machines(api: Api) -> None:
    """Machines come once by id, for their host, for a renter and for an admin."""
    made = [api.market.machine(host="bob") for _ in range(5)]

    def between(_number: int) -> None:
        made.append(api.market.machine(host="bob"))

    keys = check(walk(api, "bob", "/v1/machines", 2, between), 2, lambda row: row["machine_id"])
    assert keys == made
    for person in ("alice", "root"):
        pages = walk(api, person, "/v1/machines", 3)
        assert check(pages, 3, lambda row: row["machine_id"]) == made


def test_the_log(api: Api, busy: tuple[int, list[int]]) -> None:
    """The log read in pages of 7 while it grows is the log itself: every position, no gap."""
    machine, instances = busy
    market = api.market
    pages = walk(
        api,
        "audrey",
        "/v1/events",
        7,
        lambda _: void(market.run(machine, instances, 60)),
    )
    check(pages, 7, lambda row: row["position"])
    rows = [row for one in pages for row in one]
    expected = 1
    for row in rows:
        assert row["position"] == expected
        expected += row["count"]
    assert expected == market.head() + 1


def test_one_stream(api: Api, busy: tuple[int, list[int]]) -> None:
    """A stream's versions come in order without a gap while reports arrive."""
    machine, instances = busy
    market = api.market
    path = f"/v1/events/usage-{machine}-{market.chains[machine].epoch}"
    pages = walk(api, "audrey", path, 3, lambda _: void(market.run(machine, instances, 60)))
    keys = check(pages, 3, lambda row: row["version"])
    assert keys == list(range(1, market.chains[machine].next_seq))


def test_transfers(api: Api, busy: tuple[int, list[int]]) -> None:
    """Every movement and every usage row that is not being written comes once, in log order."""
    machine, instances = busy
    market = api.market

    def between(number: int) -> None:
        body = {"to_account_id": api.accounts["carol"], "amount": "1", "id": f"t{number}"}
        assert api("alice", "POST", "/v1/transfers", body).status_code == 201
        market.run(machine, instances, 60)
        market.project()

    pages = walk(api, "alice", "/v1/transfers", 3, between)
    keys = check(
        pages,
        3,
        lambda row: (row["position"], row["reference"], row["credit"], row["occurred_at"]),
    )
    assert [key[0] for key in keys] == sorted(key[0] for key in keys)
    references = [key[1] for key in keys]
    assert {"t0", "t1", "t2"} <= set(references)
    assert {f"instance-{one}" for one in instances} <= set(references)
    whole = api("alice", "GET", "/v1/transfers?limit=1000").json()["items"]
    assert references == [one["reference"] for one in whole]


def test_ticks(api: Api, busy: tuple[int, list[int]]) -> None:
    """Every attested second of an instance comes once and in order while more are attested."""
    machine, instances = busy
    market = api.market
    path = f"/v1/instances/{instances[2]}/ticks"
    pages = walk(api, "alice", path, 97, lambda _: void(market.run(machine, instances, 60)))
    keys = check(pages, 97, lambda row: (row["second"], row["position"]))
    assert keys == sorted(keys)
    assert len(keys) == 600 + 3 * 60
    assert [row["first"] for one in pages for row in one] == [True] * len(keys)


def test_ticks_of_a_window(api: Api, busy: tuple[int, list[int]]) -> None:
    """`from` and `until` bound the list as [from, until), on every page."""
    _, instances = busy
    path = f"/v1/instances/{instances[0]}/ticks?from=2026-03-01T10:01:40Z"
    pages = walk(api, "alice", f"{path}&until=2026-03-01T10:03:20Z", 30)
    seconds = check(pages, 30, lambda row: row["second"])
    assert len(seconds) == 100
    assert (seconds[0], seconds[-1]) == ("2026-03-01T10:01:40Z", "2026-03-01T10:03:19Z")


@pytest.mark.parametrize("by", ["segment", "hour"])
def test_charges(api: Api, busy: tuple[int, list[int]], by: str) -> None:
    """No item of any instance is charged twice or left out while charges grow."""
    machine, instances = busy
    market = api.market

    def between(_number: int) -> None:
        market.run(machine, instances, 600, up=1_000_000, down=1_000_000)
        market.project()

    pages = walk(api, "alice", f"/v1/charges?by={by}", 2, between)
    keys = [
        (row["instance_id"], row["segment_from"], row["hour"], row["item"])
        for one in pages
        for row in one
    ]
    assert len(keys) == len(set(keys))
    assert {(key[0], key[3]) for key in keys} == {
        (one, item) for one in instances for item in ("gpu", "disk", "bwu", "bwd")
    }
    assert all(len(one) == 2 for one in pages[:-1])


def test_holds(api: Api) -> None:
    """Holds come once by id, also when one is placed behind the cursor and one before it."""
    for number in range(6):
        api("alice", "POST", "/v1/holds", {"amount": "1", "id": f"h{number}"})

    def between(number: int) -> None:
        api("alice", "POST", "/v1/holds", {"amount": "1", "id": f"z{number}"})
        api("alice", "POST", "/v1/holds", {"amount": "1", "id": f"a{number}"})
        api("alice", "POST", f"/v1/holds/h{number}/release")

    pages = walk(api, "alice", "/v1/holds", 2, between)
    keys = check(pages, 2, lambda row: row["hold_id"])
    assert keys == [f"h{number}" for number in range(6)] + ["z0", "z1", "z2"]


def test_invoices(api: Api) -> None:
    """Invoices come once in the order of issue, while a new month is invoiced."""
    market = api.market
    machine = market.machine(host="bob", gpus=8)
    instances = [
        market.rent(market.account(f"renter-{number}", 10**12), machine, gpus=1, disk_gb=10)
        for number in range(4)
    ]
    for one in instances:
        market.confirm(machine, one)
    months = iter((32, 62, 93, 123))

    def close(_number: int = 0) -> None:
        market.run(machine, instances, 60)
        market.clock.move_to(START + next(months) * 86_400)
        market.project()
        policies.run_due(market.ledger)
        market.project()
        invoicing.issue_due(market.ledger)
        market.project()

    close()
    pages = walk(api, "audrey", "/v1/invoices", 1, close)
    keys = check(pages, 1, lambda row: row["number"])
    assert len(keys) == 16
    whole = api("audrey", "GET", "/v1/invoices?limit=1000").json()["items"]
    assert keys == [one["number"] for one in whole]


def test_anomalies(api: Api, busy: tuple[int, list[int]]) -> None:
    """Seconds that were not billed come once, while others are recorded."""
    machine, instances = busy
    market = api.market
    with market.ledger.unit() as unit:
        for one in instances:
            rentals.stop(unit, one)
    market.run(machine, instances, 60)
    market.project()

    def between(_number: int) -> None:
        market.run(machine, instances, 60)
        market.project()

    pages = walk(api, "alice", "/v1/anomalies", 2, between)
    keys = check(
        pages, 2, lambda row: (row["machine_id"], row["instance_id"], row["code"], row["start"])
    )
    assert {key[1] for key in keys} == set(instances)


_BOOK = {"ledger_account", "account_id", "opening", "closing"}
HEADS = {"/v1/account-statement": _BOOK, "/v1/general-ledger/{ledger_account}": _BOOK}
"""What stands above a list, of those that have a head."""


def test_every_list_pages(api: Api) -> None:
    """Each list with a cursor takes a limit of 1 to 1,000 and has items and next_cursor."""
    api.market.machine(host="bob")
    assert api("root", "POST", "/v1/webhooks", {"url": "https://hooks.example/"}).is_success
    lists = 0
    for path, methods in paths().items():
        names = {one["name"] for one in methods.get("get", {}).get("parameters", [])}
        assert ("cursor" in names) == ("limit" in names), path
        if "cursor" not in names or "instance_id" in path:
            continue
        lists += 1
        shown_path = path.replace("{stream}", "machine-1").replace("{webhook_id}", "1")
        shown_path = shown_path.replace("{machine_id}", "1").replace("{ledger_account}", "bank")
        shown_path = shown_path.replace("{host_id}", str(api.accounts["bob"]))
        for limit in (1, 1_000):
            shown = api("root", "GET", f"{shown_path}?limit={limit}").json()
            assert set(shown) == {"items", "next_cursor"} | HEADS.get(path, set()), path
            assert len(shown["items"]) <= limit
    assert lists >= 9


def test_a_cursor_of_the_last_page_is_null(api: Api) -> None:
    """A list that ends exactly with a page has no cursor to an empty one."""
    total = len(api("root", "GET", "/v1/accounts?limit=1000").json()["items"])
    shown = api("root", "GET", f"/v1/accounts?limit={total}").json()
    assert shown["next_cursor"] is None
    shown = api("root", "GET", f"/v1/accounts?limit={total - 1}").json()
    assert shown["next_cursor"] is not None


def test_a_cursor_does_not_open_what_is_not_yours(api: Api) -> None:
    """A cursor that alice got shows carol only carol's holds."""
    with api.market.ledger.unit() as unit:
        for person in ("alice", "carol"):
            for number in range(3):
                holds.place_hold(unit, api.accounts[person], 10**9, f"{person}-{number}")
    cursor = api("alice", "GET", "/v1/holds?limit=1").json()["next_cursor"]
    shown = api("carol", "GET", f"/v1/holds?cursor={cursor}").json()["items"]
    assert {one["hold_id"].partition("-")[0] for one in shown} == {"carol"}
