"""The native API: access, bad input, idempotency, paging, and one rental from end to end."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from adapters.hostagent.reports import ReportChain, SealedReport
from adapters.http.app import create_app
from ledger.services import accounts, rentals
from tests.http.conftest import Api
from tests.support.market import START

OPEN = {"/healthz", "/readyz", "/metrics", "/v1/enrolments", "/v1/usage"}


def _routes() -> list[tuple[str, str, list[str]]]:
    """Every route of the schema with the roles it names."""
    schema = create_app(None, None).openapi_schema.to_schema()  # type: ignore[arg-type]
    return [
        (method.upper(), path, [role for need in one["security"] for role in need.get("key", [])])
        for path, methods in schema["paths"].items()
        for method, one in methods.items()
    ]


ROUTES = _routes()


@pytest.mark.parametrize(("method", "path", "roles"), ROUTES)
def test_every_route_states_its_roles_and_keeps_others_out(
    api: Api, method: str, path: str, roles: list[str]
) -> None:
    """A key of another role gets 403, no key 401, and a route without roles is meant to be open."""
    concrete = path
    for part in ("account_id", "machine_id", "instance_id"):
        concrete = concrete.replace(f"{{{part}}}", "1")
    for part in ("key_id", "hold_id", "number", "stream"):
        concrete = concrete.replace(f"{{{part}}}", "x")
    if not roles:
        assert path in OPEN
        return
    head = api.market.head()
    assert api(None, method, concrete, {}).status_code == 401
    answer = api("glk_0000000000000000_nothing", method, concrete, {})
    assert (answer.status_code, answer.json()["code"]) == (401, "auth_error")
    assert answer.headers["www-authenticate"] == "Bearer"
    names = {"renter": "alice", "host": "bob", "auditor": "audrey", "admin": "root"}
    for role, name in names.items():
        status = api(name, method, concrete, {}).status_code
        assert (status == 403) == (role not in roles), (role, status)
        assert status < 500
    assert api.market.head() >= head


def test_expired_and_revoked_keys_are_dead_at_once(api: Api) -> None:
    """A key ends at its second, or with its revocation, whatever it could do before."""
    market, alice = api.market, api.accounts["alice"]
    with market.ledger.unit() as unit:
        api.keys["short"] = accounts.create_key(unit, alice, "renter", expires_at=START + 10)
    assert api("short", "GET", "/v1/me").status_code == 200
    made = api("alice", "POST", "/v1/keys", {"role": "renter"}).json()
    api.keys["made"] = made["key"]
    assert api("made", "GET", "/v1/me").json()["account_id"] == alice
    key_id = made["key"].split("_")[1]
    assert api("alice", "DELETE", f"/v1/keys/{key_id}").status_code == 200
    assert api("made", "GET", "/v1/me").status_code == 401
    assert api("carol", "DELETE", f"/v1/keys/{key_id}").status_code == 404
    market.clock.move_to(START + 10)
    assert api("short", "GET", "/v1/me").status_code == 401
    assert api("alice", "POST", "/v1/keys", {"role": "admin"}).status_code == 403


def test_other_people_s_things_are_not_found(api: Api) -> None:
    """Instances, machines, accounts and charges of others do not exist for renters and hosts."""
    machine = api.market.machine(host="bob")
    one = api("alice", "POST", "/v1/instances", {"machine_id": machine, "disk_gb": 10}).json()
    number = one["instance_id"]
    for who in ("carol", "eve"):
        for path in (f"/v1/instances/{number}", f"/v1/instances/{number}/ticks"):
            assert api(who, "GET", path).json()["code"] == "no_such_instance"
    for verb in ("start", "stop", "reboot"):
        assert api("carol", "POST", f"/v1/instances/{number}/{verb}").status_code == 404
    assert api("carol", "DELETE", f"/v1/instances/{number}").status_code == 404
    assert api("eve", "DELETE", f"/v1/machines/{machine}/listing").status_code == 404
    assert api("carol", "GET", f"/v1/balance?account_id={api.accounts['alice']}").status_code == 404
    assert api("carol", "GET", "/v1/instances").json()["items"] == []
    assert api("bob", "GET", f"/v1/instances/{number}").status_code == 200
    assert api("audrey", "GET", f"/v1/instances/{number}").status_code == 200
    assert api("audrey", "DELETE", f"/v1/instances/{number}").status_code == 403


BAD: list[tuple[str, str, Any]] = [
    ("POST", "/v1/accounts", b'{"name": NaN}'),
    ("POST", "/v1/accounts", b""),
    ("POST", "/v1/accounts", b"[" * 10_000),
    ("POST", "/v1/accounts", b"{" + b'"a":{' * 10_000),
    ("POST", "/v1/accounts", {"name": "x", "colour": "red"}),
    ("POST", "/v1/accounts", {"name": ""}),
    ("POST", "/v1/accounts", {"name": "a\x00b"}),
    ("POST", "/v1/accounts", {"name": "x", "currency": "EUR"}),
    ("POST", "/v1/deposits", {"account_id": 1, "amount": "1.0000000001", "id": "a"}),
    ("POST", "/v1/deposits", {"account_id": 1, "amount": "-1", "id": "a"}),
    ("POST", "/v1/deposits", {"account_id": 1, "amount": "NaN", "id": "a"}),
    ("POST", "/v1/deposits", {"account_id": 1, "amount": "1e400", "id": "a"}),
    ("POST", "/v1/deposits", {"account_id": 1, "amount": 1, "id": "a"}),
    ("POST", "/v1/deposits", {"account_id": 1, "amount": "1", "id": "'; DROP TABLE events; --"}),
    ("POST", "/v1/deposits", {"account_id": 2**70, "amount": "1", "id": "a"}),
    ("POST", "/v1/deposits", {"account_id": 999, "amount": "1", "id": "a"}),
    ("POST", "/v1/instances", {"machine_id": 999, "disk_gb": 10}),
    ("POST", "/v1/instances", {"machine_id": 1, "disk_gb": 0}),
    ("POST", "/v1/instances", {"machine_id": -1, "disk_gb": 10}),
    ("POST", "/v1/keys", {"role": "king"}),
    ("POST", "/v1/keys", {"role": "renter", "expires_at": "tomorrow"}),
    ("POST", "/v1/enrolments", {"token": "x", "public_key": "y", "gpu_uuids": ["z"]}),
    ("POST", "/v1/holds", {"amount": "1", "id": "h", "seconds": 0}),
    ("GET", "/v1/accounts?cursor=forged", None),
    ("GET", "/v1/accounts?limit=0", None),
    ("GET", "/v1/accounts?limit=1001", None),
    ("GET", "/v1/instances/99999999999999999999", None),
    ("GET", "/v1/accounts/x", None),
    ("PATCH", "/v1/accounts", None),
]


@pytest.mark.parametrize(("method", "path", "body"), BAD)
def test_bad_input_is_told_and_changes_nothing(api: Api, method: str, path: str, body: Any) -> None:
    """Every mistake is a problem document with a code, never a 500, and the log stands still."""
    head = api.market.head()
    answer = api("root", method, path, body)
    assert 400 <= answer.status_code < 500, answer.text
    assert answer.headers["content-type"].startswith("application/problem+json")
    assert answer.json()["code"]
    assert api.market.head() == head


def test_sql_in_a_name_is_just_a_name(api: Api) -> None:
    """A name that looks like SQL is kept and given back as it is."""
    name = "Robert'); DROP TABLE events; --"
    made = api("root", "POST", "/v1/accounts", {"name": name})
    assert made.status_code == 201
    shown = api("root", "GET", f"/v1/accounts/{made.json()['account_id']}").json()
    assert shown["name"] == name


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner),
    max_leaves=6,
)
_POSTS = [(method, path) for method, path, _ in ROUTES if method in {"POST", "PUT", "DELETE"}]


@settings(
    max_examples=60,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(route=st.sampled_from(_POSTS), number=st.integers(-5, 2**70), body=_JSON)
def test_no_body_whatever_is_a_500(
    api: Api, route: tuple[str, str], number: int, body: Any
) -> None:
    """Random JSON to any writing route is refused or accepted, and never breaks the server."""
    method, path = route
    for part in ("account_id", "machine_id", "instance_id", "key_id", "hold_id"):
        path = path.replace(f"{{{part}}}", str(number))
    assert api("root", method, path, body).status_code < 500


# --- usage ---------------------------------------------------------------------------------------


def test_a_mixed_batch_has_a_result_per_item(api: Api) -> None:
    """Good reports of a batch are stored beside duplicates, gaps and refusals (ING-01, ING-03)."""
    market = api.market
    machine, other = market.machine(host="bob"), market.machine(host="eve")
    market.clock.move_to(START + 100)
    first = market.seal(machine, START, 10)
    second = market.seal(machine, START + 10, 10)
    chain = market.chains[other]
    future = chain.seal(START + 5_000, 10)
    after = ReportChain(
        other, chain.signer, boot_id="boot-1", epoch=chain.epoch, next_seq=2, prev=chain.prev
    ).seal(START + 20, 10)
    gap = market.seal(machine, START + 20, 10), market.seal(machine, START + 30, 10)
    answer = api.usage(first, second, first, gap[1], future, after)
    assert answer.status_code == 200
    shown = answer.json()["reports"]
    assert [one["status"] for one in shown] == [
        "accepted",
        "accepted",
        "duplicate",
        "sequence_gap",
        "rejected",
        "accepted",
    ]
    assert shown[3]["expected"] == 3
    assert shown[4]["code"] == "future"
    acks = {one["machine"]: one for one in answer.json()["acks"]}
    assert acks[machine]["acked_through"] == 2
    assert acks[other]["acked_through"] == 2
    assert acks[other]["rejected"][0]["seq"] == 1
    events = api("audrey", "GET", f"/v1/events/usage-{machine}-{market.chains[machine].epoch}")
    stored = events.json()["items"]
    assert [one["sha256"] for one in stored] == [one["hash"] for one in shown[:2]]
    assert [one["position"] for one in stored] == [one["position"] for one in shown[:2]]


def test_another_body_under_a_known_number_is_equivocation(api: Api) -> None:
    """The first body stands, the second is kept once as evidence, and both are conflicts."""
    market = api.market
    machine = market.machine(host="bob")
    market.clock.move_to(START + 100)
    chain = market.chains[machine]
    twin = ReportChain(machine, chain.signer, boot_id="boot-1", epoch=chain.epoch)
    api.usage(chain.seal(START, 10))
    second = twin.seal(START, 20)
    for _ in range(2):
        answer = api.usage(second).json()["reports"][0]
        assert (answer["status"], answer["code"]) == ("conflict", "equivocation")
    rows = market.connection.execute(
        "SELECT count(*) FROM events WHERE topic = 'agent.equivocated.v1'"
    ).fetchone()
    assert rows == (1,)


def test_a_forked_chain_is_stored_flagged_and_not_billed(api: Api) -> None:
    """A report whose prev is not its predecessor's hash takes its place and bills nothing."""
    market = api.market
    machine = market.machine(host="bob")
    market.clock.move_to(START + 100)
    chain = market.chains[machine]
    api.usage(chain.seal(START, 10))
    forked = ReportChain(
        machine, chain.signer, boot_id="boot-1", epoch=chain.epoch, next_seq=2, prev="ab" * 32
    ).seal(START + 10, 10)
    answer = api.usage(forked).json()["reports"][0]
    assert answer["status"] == "chain_fork"
    assert answer["position"] is not None


def _flip(report: SealedReport) -> SealedReport:
    return report._replace(signature=bytes([report.signature[0] ^ 1]) + report.signature[1:])


@pytest.mark.parametrize(
    ("raw", "status"),
    [
        (b"", 400),
        (b"\xc1", 400),
        (b"\x91" * 5_000, 400),
        (b"\x90", 400),
        (b'{"not": "msgpack"}', 400),
        (b"\x91\x93\xa1x\xc4\x01x\xc4\x02\x80\x80", 400),
    ],
)
def test_unreadable_requests_are_refused_whole(api: Api, raw: bytes, status: int) -> None:
    """What is no array of reports is refused with its reason and stores nothing."""
    head = api.market.head()
    answer = api.client.post("/v1/usage", content=raw)
    assert answer.status_code == status
    assert answer.json()["code"]
    assert api.market.head() == head


def test_bad_signatures_and_unknown_machines_store_nothing(api: Api) -> None:
    """A wrong signature, a foreign key and an unknown machine are 401 and leave the log alone."""
    market = api.market
    machine, other = market.machine(host="bob"), market.machine(host="eve")
    market.clock.move_to(START + 100)
    report = market.seal(machine, START, 10)
    foreign = ReportChain(machine, market.chains[other].signer, boot_id="b").seal(START, 10)
    nobody = ReportChain(777, market.chains[other].signer, boot_id="b").seal(START, 10)
    head = market.head()
    for one in (_flip(report), foreign, nobody):
        answer = api.usage(one)
        assert (answer.status_code, answer.json()["code"]) == (401, "auth_error")
    assert api.usage(*[report] * 101).status_code == 400
    huge = report._replace(body=b"\x00" * 1_100_000)
    assert api.usage(huge).status_code == 413
    assert market.head() == head
    early = market.chains[machine]
    market.deliver(report)
    soon = early.seal(START + 95, 7)
    assert api.usage(soon).json()["reports"][0]["status"] == "too_early"


# --- idempotency ---------------------------------------------------------------------------------


def test_a_key_repeats_its_first_answer_for_ever(api: Api) -> None:
    """The same key and body give the same answer and one charge, a refusal too (IDEM-01, -04)."""
    machine = api.market.machine(host="bob")
    order = {"machine_id": machine, "disk_gb": 10}
    first = api("alice", "POST", "/v1/instances", order, idempotency_key="k1")
    head = api.market.head()
    again = api("alice", "POST", "/v1/instances", order, idempotency_key="k1")
    assert (again.status_code, again.json()) == (201, first.json())
    assert again.headers["idempotency-replayed"] == "true"
    assert api.market.head() == head
    other = api("alice", "POST", "/v1/instances", {**order, "disk_gb": 11}, idempotency_key="k1")
    assert (other.status_code, other.json()["code"]) == (422, "idempotency_conflict")
    refused = api("carol", "POST", "/v1/instances", order, idempotency_key="k1")
    assert (refused.status_code, refused.json()["code"]) == (409, "no_capacity")
    with api.market.ledger.unit() as unit:
        rentals.destroy(unit, first.json()["instance_id"])
    still = api("carol", "POST", "/v1/instances", order, idempotency_key="k1")
    assert (still.status_code, still.json()["code"]) == (409, "no_capacity")
    assert api("carol", "POST", "/v1/instances", order, idempotency_key="k2").status_code == 201


def test_a_repeat_in_flight_is_told_to_wait(api: Api) -> None:
    """While the first request with a key runs, a second one gets 409 and does nothing."""
    with api.market.ledger.database.connect(autocommit=True) as connection:
        connection.execute(
            "SELECT pg_advisory_lock(hashtextextended(%s, 7))", [f"{api.accounts['alice']}/k9"]
        )
        body = {"to_account_id": api.accounts["carol"], "amount": "1", "id": "t"}
        answer = api("alice", "POST", "/v1/transfers", body, idempotency_key="k9")
    assert (answer.status_code, answer.json()["code"]) == (409, "idempotency_in_flight")
    assert api("alice", "POST", "/v1/transfers", body, idempotency_key="k9").status_code == 201


# --- lists and one rental ------------------------------------------------------------------------


def test_cursors_neither_repeat_nor_skip_while_rows_are_added(api: Api) -> None:
    """Every account shows once, in pages of the size asked for (API-03, API-08)."""
    for number in range(7):
        api.market.account(f"p{number}")
    seen: list[int] = []
    cursor = ""
    while True:
        shown = api("root", "GET", f"/v1/accounts?limit=3{cursor}").json()
        seen += [one["account_id"] for one in shown["items"]]
        if len(seen) < 10:
            api.market.account(f"late-{len(seen)}")
        if shown["next_cursor"] is None:
            break
        assert len(shown["items"]) == 3
        cursor = f"&cursor={shown['next_cursor']}"
    assert seen == sorted(set(seen))
    row = api.market.connection.execute("SELECT count(*) FROM accounts").fetchone()
    assert row == (len(seen),)


def test_one_rental_from_end_to_end(api: Api) -> None:
    """What the API says of a rental is what the ledger holds, to the nano."""
    market = api.market
    machine = market.machine(host="bob")
    order = {
        "machine_id": machine,
        "disk_gb": 100,
        "label": "job",
        "launch": {"env": {"A": "s3cret"}},
    }
    made = api("alice", "POST", "/v1/instances", order).json()
    number = made["instance_id"]
    assert (made["kind"], made["gpu_rate"], made["storage_rate"]) == ("on_demand", "0.36", "0.15")
    assert made["status"] == "loading"
    market.confirm(machine, number)
    market.run(machine, [number], 600, down=1_000)
    stopped = api("alice", "POST", f"/v1/instances/{number}/stop").json()
    assert (stopped["status"], stopped["reason"]) == ("stopped", "renter")
    assert stopped["storage_rate_per_hour"] == "0.020833333"
    market.run(machine, [number], 600, state="stopped")
    for _ in range(2):
        gone = api("alice", "DELETE", f"/v1/instances/{number}")
        assert (gone.status_code, gone.json()["status"]) == (200, "destroyed")
    market.project()
    charges = api("alice", "GET", f"/v1/charges?instance_id={number}").json()["items"]
    assert {one["item"]: one["amount"] for one in charges} == {
        "gpu": "0.06",
        "disk": "0.006944444",
        "bwd": "0.0000012",
    }
    assert api("alice", "GET", "/v1/balance").json()["available"] == "99.933054356"
    ticks = api("alice", "GET", f"/v1/instances/{number}/ticks?limit=1000").json()
    assert len(ticks["items"]) == 1_000
    rest = api(
        "alice", "GET", f"/v1/instances/{number}/ticks?limit=1000&cursor={ticks['next_cursor']}"
    )
    assert len(rest.json()["items"]) == 200
    positions = [one["position"] for one in ticks["items"] + rest.json()["items"]]
    assert positions == sorted(set(positions))
    transfers = api("bob", "GET", "/v1/transfers").json()["items"]
    assert sum(float(one["amount"]) > 0 for one in transfers) == len(transfers)
    assert api("root", "GET", "/v1/trial-balance").json()["difference"] == "0"
    log = api("audrey", "GET", "/v1/events?limit=1000").text
    assert "s3cret" not in log
    assert '"alice"' not in log


def test_the_readable_page_names_every_route(api: Api) -> None:
    """/docs needs nothing from elsewhere and shows each path of the schema."""
    shown = api.client.get("/docs").text
    assert "http://" not in shown.replace("http://www.w3.org", "")
    assert "https://" not in shown
    for _, path, _ in ROUTES:
        assert path in shown
    for path in ("/healthz", "/readyz"):
        assert api.client.get(path).text == "ok\n"
    assert "gpuledger_log_position" in api.client.get("/metrics").text
