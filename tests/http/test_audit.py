"""Who called what: written behind the answers, private, bounded, erased with its account."""

from __future__ import annotations

from typing import Any

import pytest

from adapters.http import access
from adapters.http.access import AccessWriter
from ledger.errors import UnavailableError
from ledger.services import access_log, erasure
from ledger.services.access_log import Entry
from tests.contract.test_vault import everything
from tests.http.conftest import Api
from tests.support.market import START, Market


def calls(api: Api, person: str, query: str = "") -> list[dict[str, Any]]:
    """What somebody sees, the newest first."""
    items: list[dict[str, Any]] = api(person, "GET", f"/v1/audit-log{query}").json()["items"]
    return items


def entry(account: int, number: int = 0, address: str | None = "203.0.113.5") -> Entry:
    """A call of an account."""
    return Entry(START + number, account, "k", "renter", "api.x.y", "POST", "/v1/x", 200, address)


def test_commands_are_kept_with_key_path_status_and_address(api: Api) -> None:
    """Each command of an account is there, refused ones too, with numbers and without texts."""
    machine = api.market.machine(host="bob")
    made = api("alice", "POST", "/v1/instances", {"machine_id": machine, "disk_gb": 1}).json()
    api("alice", "POST", f"/v1/instances/{made['instance_id']}/stop")
    api("alice", "DELETE", "/v1/secrets/PRIVATE_NAME")
    api("alice", "POST", "/v1/machines", {})
    api("alice", "GET", "/v1/balance")
    found = calls(api, "alice")
    assert [(one["method"], one["path"], one["status"]) for one in found] == [
        ("POST", "/v1/machines", 403),
        ("DELETE", "/v1/secrets/{name}", 404),
        ("POST", f"/v1/instances/{made['instance_id']}/stop", 200),
        ("POST", "/v1/instances", 201),
    ]
    assert found[2]["endpoint"] == "api.instance.stop"
    assert {one["key_id"] for one in found} == {api.keys["alice"].split("_")[1]}
    assert {one["address"] for one in found} == {"testclient"}
    assert found[0]["at"] == "2026-03-01T10:00:00Z"


def test_readings_of_auditors_and_admins_are_kept(api: Api) -> None:
    """What those who see all read is there too (§20); a renter's own reading is not."""
    for person in ("audrey", "root", "alice", "bob"):
        api(person, "GET", f"/v1/balance?account_id={api.accounts[person]}")
    found = calls(api, "root")
    assert [(one["account_id"], one["path"]) for one in found] == [
        (api.accounts["root"], "/v1/balance"),
        (api.accounts["audrey"], "/v1/balance"),
    ]


def test_everybody_sees_what_was_called_in_ones_own_name(api: Api) -> None:
    """A renter sees its own, an admin all with addresses, an auditor all without them."""
    for person in ("alice", "carol"):
        api(person, "PUT", "/v1/spend-caps", {"per_hour": "1", "per_day": "1"})
    assert {one["account_id"] for one in calls(api, "alice")} == {api.accounts["alice"]}
    mine = f"?account_id={api.accounts['alice']}"
    assert api("carol", "GET", f"/v1/audit-log{mine}").status_code == 404
    assert [one["address"] for one in calls(api, "root", mine)] == ["testclient"]
    assert [one["address"] for one in calls(api, "audrey", mine)] == [None]
    assert len(calls(api, "root")) >= 2
    (seen,) = api("alice", "GET", "/v1/addresses").json()["items"]
    assert (seen["address"], seen["account_id"]) == ("testclient", api.accounts["alice"])
    assert api("carol", "GET", f"/v1/addresses{mine}").status_code == 404
    assert api("audrey", "GET", "/v1/addresses").status_code == 403
    assert len(api("root", "GET", "/v1/addresses").json()["items"]) >= 3


def test_the_list_is_paged_from_the_newest(api: Api) -> None:
    """No call comes twice and none is missing, while new ones are added (API-08)."""
    caps = {"per_hour": "1", "per_day": "1"}
    for _ in range(5):
        api("alice", "PUT", "/v1/spend-caps", caps)
    first = api("alice", "GET", "/v1/audit-log?limit=3").json()
    api("alice", "PUT", "/v1/spend-caps", caps)
    cursor = first["next_cursor"]
    second = api("alice", "GET", f"/v1/audit-log?limit=3&cursor={cursor}").json()
    ids = [one["entry_id"] for one in first["items"] + second["items"]]
    assert len(ids) == len(set(ids)) == 5
    assert ids == sorted(ids, reverse=True)
    assert second["next_cursor"] is None


def test_no_body_no_secret_and_no_address_is_kept_in_clear(api: Api) -> None:
    """Neither what was sent nor from where is in any row; the log has none of it at all."""
    head = api.market.head()
    api("alice", "POST", "/v1/accounts", {"name": "a-private-name"})
    calls(api, "alice")
    stored = everything(api.market)
    for text in (b"a-private-name", b"testclient", api.keys["alice"].split("_", 2)[2].encode()):
        assert text not in stored
    assert api.market.head() == head


def test_an_erased_account_has_no_addresses(market: Market) -> None:
    """The calls stay, the addresses are gone, and none is kept of it any more."""
    alice = market.account("alice")
    access_log.write(market.ledger, [entry(alice)])
    with market.ledger.unit() as unit:
        erasure.erase_subject(unit, alice)
    access_log.write(market.ledger, [entry(alice, 1)])
    with market.ledger.reading() as connection:
        found = access_log.audit_log(connection, market.ledger.vault, alice)
        assert [one.address for one in found] == [None, None]
        assert access_log.addresses(connection, market.ledger.vault, alice) == []


def test_old_entries_are_dropped(market: Market) -> None:
    """After 90 days an entry and an address that nobody used since are gone, younger ones stay."""
    alice = market.account("alice")
    access_log.write(market.ledger, [entry(alice, 0, "a"), entry(alice, 10, "b")])
    market.clock.move_to(START + access_log.KEEP_SECONDS + 10)
    access_log.prune(market.ledger)
    with market.ledger.reading() as connection:
        found = access_log.audit_log(connection, market.ledger.vault, None)
        assert [one.at for one in found] == [START + 10]
        seen = access_log.addresses(connection, market.ledger.vault, None)
        assert [one.address for one in seen] == ["b"]


def test_an_address_is_one_row_however_often_it_is_seen(market: Market) -> None:
    """First and last use are kept; another account's use of it is another row."""
    alice, carol = market.account("alice"), market.account("carol")
    access_log.write(market.ledger, [entry(alice, 5), entry(alice, 1), entry(carol, 2)])
    access_log.write(market.ledger, [entry(alice, 9), entry(alice, 3, None)])
    with market.ledger.reading() as connection:
        (one,) = access_log.addresses(connection, market.ledger.vault, alice)
        assert (one.first_seen, one.last_seen) == (START + 5, START + 9)
        assert len(access_log.addresses(connection, market.ledger.vault, None)) == 2


def test_entries_wait_for_a_database_that_is_away(
    market: Market, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A write that fails loses nothing: in order, once, when it is back."""
    alice = market.account("alice")
    writer = AccessWriter(market.ledger)
    real, away = access_log.write, [True]

    def write(ledger: Any, entries: Any) -> None:
        if away:
            raise UnavailableError("database_unavailable", "gone")
        real(ledger, entries)

    monkeypatch.setattr(access, "write", write)
    for number in range(3):
        writer.note(entry(alice, number))
    writer.flush()
    away.clear()
    writer.close()
    with market.ledger.reading() as connection:
        found = access_log.audit_log(connection, market.ledger.vault, alice)
    assert [one.at - START for one in found] == [2, 1, 0]


def test_what_waits_is_bounded(market: Market, monkeypatch: pytest.MonkeyPatch) -> None:
    """When more come than can be kept the oldest are lost, and the server goes on."""
    alice = market.account("alice")
    monkeypatch.setattr(access, "WAITING_MAX", 3)
    monkeypatch.setattr(access, "_BATCH_SECONDS", 3_600.0)
    writer = AccessWriter(market.ledger)
    for number in range(5):
        writer.note(entry(alice, number))
    writer.close()
    with market.ledger.reading() as connection:
        found = access_log.audit_log(connection, market.ledger.vault, alice)
    assert [one.at - START for one in found] == [4, 3, 2]
