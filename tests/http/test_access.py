"""Who may do what: every route against every role, and things of others that do not exist."""

from __future__ import annotations

from typing import Any

import pytest

from ledger.services import api_keys, holds, invoicing, policies, rentals
from tests.http.conftest import Api
from tests.support.market import START
from tests.support.routes import published
from tests.support.volumes import create, offer

SSH_KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f"
NOBODY = frozenset[str]()
ANYONE = frozenset({"renter", "host", "auditor", "admin"})
ADMIN = frozenset({"admin"})
AUDITOR = ADMIN | {"auditor"}
RENTER = ADMIN | {"renter"}
HOST = ADMIN | {"host"}
PAYER = RENTER | HOST

TABLE: dict[str, frozenset[str]] = {
    "GET /healthz": NOBODY,
    "GET /readyz": NOBODY,
    "GET /metrics": NOBODY,
    "GET /v1/me": ANYONE,
    "POST /v1/accounts": ADMIN,
    "GET /v1/accounts": AUDITOR,
    "GET /v1/accounts/{account_id}": AUDITOR,
    "DELETE /v1/accounts/{account_id}/personal-data": ADMIN,
    "POST /v1/keys": ANYONE,
    "GET /v1/keys": ANYONE,
    "DELETE /v1/keys/{key_id}": ANYONE,
    "PUT /v1/keys/{key_id}": ANYONE,
    "POST /v1/keys/{key_id}/reset": ANYONE,
    "GET /v1/balance": ANYONE,
    "GET /v1/trial-balance": AUDITOR,
    "GET /v1/account-statement": ANYONE,
    "GET /v1/general-ledger/{ledger_account}": AUDITOR,
    "GET /v1/book-balances": AUDITOR,
    "GET /v1/findings": AUDITOR,
    "GET /v1/findings/{finding_id}": AUDITOR,
    "POST /v1/findings/{finding_id}/explain": ADMIN,
    "POST /v1/findings/{finding_id}/correct": ADMIN,
    "GET /v1/reconciliations": AUDITOR,
    "POST /v1/adjustments": ADMIN,
    "GET /v1/adjustments": ANYONE,
    "POST /v1/write-offs": ADMIN,
    "PUT /v1/mail": PAYER,
    "GET /v1/mail": ANYONE,
    "DELETE /v1/mail": PAYER,
    "GET /v1/mail/messages": ANYONE,
    "POST /v1/mail/messages/{event}/resend": PAYER,
    "GET /v1/charges/by-label": ANYONE,
    "PUT /v1/budgets": RENTER,
    "GET /v1/budgets": ANYONE,
    "DELETE /v1/budgets": RENTER,
    "POST /v1/deposits": ADMIN,
    "POST /v1/refunds": ADMIN,
    "POST /v1/payments": RENTER,
    "GET /v1/payments": ANYONE,
    "GET /v1/payments/{payment_id}": ANYONE,
    "POST /v1/payments/{payment_id}/page": RENTER,
    "POST /v1/payments/{payment_id}/refund": ADMIN,
    "POST /v1/cards": RENTER,
    "GET /v1/cards": ANYONE,
    "DELETE /v1/cards/{card}": RENTER,
    "POST /v1/payment-events": NOBODY,
    "POST /v1/payout-account": HOST,
    "GET /v1/payout-account": ANYONE,
    "POST /v1/payout-account/onboarding": HOST,
    "GET /v1/payouts": ANYONE,
    "GET /v1/earnings": ANYONE,
    "POST /v1/transfers": PAYER,
    "GET /v1/transfers": ANYONE,
    "POST /v1/holds": RENTER,
    "GET /v1/holds": ANYONE,
    "POST /v1/holds/{hold_id}/capture": RENTER,
    "POST /v1/holds/{hold_id}/release": RENTER,
    "GET /v1/charges": ANYONE,
    "POST /v1/machines": HOST,
    "GET /v1/machines": ANYONE,
    "GET /v1/machines/{machine_id}": ANYONE,
    "POST /v1/machines/{machine_id}/enrolment-tokens": HOST,
    "POST /v1/enrolments": NOBODY,
    "DELETE /v1/machines/{machine_id}/keys/{key_id}": HOST,
    "PUT /v1/machines/{machine_id}/listing": HOST,
    "DELETE /v1/machines/{machine_id}/listing": HOST,
    "GET /v1/machines/{machine_id}/desired": HOST,
    "POST /v1/instances": RENTER,
    "GET /v1/instances": ANYONE,
    "GET /v1/instances/{instance_id}": ANYONE,
    "POST /v1/instances/{instance_id}/start": RENTER,
    "POST /v1/instances/{instance_id}/stop": RENTER,
    "POST /v1/instances/{instance_id}/reboot": RENTER,
    "POST /v1/instances/{instance_id}/label": RENTER,
    "DELETE /v1/instances/{instance_id}": RENTER,
    "GET /v1/instances/{instance_id}/ticks": ANYONE,
    "PUT /v1/machines/{machine_id}/volume-offer": HOST,
    "DELETE /v1/machines/{machine_id}/volume-offer": HOST,
    "GET /v1/volume-offers": ANYONE,
    "POST /v1/volumes": RENTER,
    "GET /v1/volumes": ANYONE,
    "GET /v1/volumes/{volume_id}": ANYONE,
    "POST /v1/volumes/{volume_id}/clone": RENTER,
    "DELETE /v1/volumes/{volume_id}": RENTER,
    "GET /v1/instances/{instance_id}/launch": ANYONE,
    "PUT /v1/instances/{instance_id}/launch": RENTER,
    "PUT /v1/instances/{instance_id}/connection": HOST,
    "POST /v1/instances/{instance_id}/log-requests": RENTER,
    "GET /v1/machines/{machine_id}/log-requests": HOST,
    "PUT /v1/log-requests/{token}": HOST,
    "GET /v1/logs/{token}": NOBODY,
    "POST /v1/scheduled-jobs": RENTER,
    "GET /v1/scheduled-jobs": ANYONE,
    "PUT /v1/scheduled-jobs/{job_id}": RENTER,
    "DELETE /v1/scheduled-jobs/{job_id}": RENTER,
    "GET /v1/audit-log": ANYONE,
    "GET /v1/addresses": PAYER,
    "GET /v1/launch-policy": ANYONE,
    "PUT /v1/launch-policy": RENTER,
    "GET /v1/templates": ANYONE,
    "POST /v1/templates": PAYER,
    "PUT /v1/templates/{template_id}": PAYER,
    "DELETE /v1/templates/{template_id}": PAYER,
    "GET /v1/secrets": RENTER,
    "PUT /v1/secrets": RENTER,
    "DELETE /v1/secrets/{name}": RENTER,
    "GET /v1/ssh-keys": RENTER,
    "POST /v1/ssh-keys": RENTER,
    "PUT /v1/ssh-keys/{ssh_key_id}": RENTER,
    "DELETE /v1/ssh-keys/{ssh_key_id}": RENTER,
    "GET /v1/instances/{instance_id}/ssh-keys": ANYONE,
    "POST /v1/instances/{instance_id}/ssh-keys": RENTER,
    "DELETE /v1/instances/{instance_id}/ssh-keys/{ssh_key_id}": RENTER,
    "PUT /v1/instances/{instance_id}/bid": RENTER,
    "POST /v1/instances/{instance_id}/reservation": RENTER,
    "DELETE /v1/instances/{instance_id}/reservation": RENTER,
    "GET /v1/instances/{instance_id}/reservations": ANYONE,
    "POST /v1/instances/{instance_id}/price-increase/accept": RENTER,
    "POST /v1/instances/{instance_id}/price-increase/reject": RENTER,
    "GET /v1/price-increases": ANYONE,
    "POST /v1/offers/search": ANYONE,
    "GET /v1/offers": ANYONE,
    "GET /v1/offers/fields": ANYONE,
    "GET /v1/offers/{offer_id}": ANYONE,
    "GET /v1/machines/{machine_id}/allocations": ANYONE,
    "POST /v1/usage": NOBODY,
    "GET /v1/invoices": ANYONE,
    "GET /v1/instances/{instance_id}/timeline": ANYONE,
    "GET /v1/machines/{machine_id}/timeline": HOST | AUDITOR,
    "GET /v1/spend/timeline": ANYONE,
    "GET /v1/invoices/{number}": ANYONE,
    "GET /v1/documents": ANYONE,
    "GET /v1/invoice-preview": ANYONE,
    "POST /v1/grants": ADMIN,
    "GET /v1/grants": ANYONE,
    "POST /v1/grants/{grant_id}/revoke": ADMIN,
    "GET /v1/billing": ANYONE,
    "PUT /v1/billing": PAYER,
    "GET /v1/tax-profile": ANYONE,
    "PUT /v1/tax-profile": ADMIN,
    "GET /v1/billing-details": PAYER,
    "PUT /v1/billing-details": PAYER,
    "GET /v1/issuer": AUDITOR,
    "PUT /v1/issuer": ADMIN,
    "GET /v1/statements": ANYONE,
    "GET /v1/statements/{day}": ANYONE,
    "GET /v1/statements/{day}/lines/{line}/proof": ANYONE,
    "POST /v1/disputes": RENTER,
    "GET /v1/disputes": ANYONE,
    "GET /v1/disputes/{dispute_id}": ANYONE,
    "POST /v1/disputes/{dispute_id}/answer": PAYER,
    "POST /v1/disputes/{dispute_id}/question": ADMIN,
    "POST /v1/disputes/{dispute_id}/withdraw": RENTER,
    "POST /v1/disputes/{dispute_id}/resolve": ADMIN,
    "GET /v1/witnesses": ANYONE,
    "POST /v1/instances/{instance_id}/heartbeat-token": RENTER,
    "POST /v1/heartbeats": NOBODY,
    "GET /v1/corrections": ANYONE,
    "POST /v1/corrections": ADMIN,
    "GET /v1/corrected-charges": ANYONE,
    "GET /v1/credit-notes": ANYONE,
    "GET /v1/credit-notes/{number}": ANYONE,
    "POST /v1/credit-notes": ADMIN,
    "POST /v1/approvals": ADMIN,
    "GET /v1/anomalies": ANYONE,
    "GET /v1/events": AUDITOR,
    "GET /v1/events/{stream}": AUDITOR,
    "POST /v1/machines/{machine_id}/maintenance": HOST,
    "GET /v1/machines/{machine_id}/maintenance": ANYONE,
    "DELETE /v1/machines/{machine_id}/maintenance/{maintenance_id}": HOST,
    "GET /v1/maintenance": ANYONE,
    "POST /v1/machines/{machine_id}/clean-up": HOST,
    "DELETE /v1/machines/{machine_id}/instances/{instance_id}": HOST,
    "DELETE /v1/machines/{machine_id}": HOST,
    "POST /v1/probe-locations": ADMIN,
    "GET /v1/probe-locations": AUDITOR,
    "DELETE /v1/probe-locations/{location}": ADMIN,
    "POST /v1/probe-results": ADMIN,
    "GET /v1/outages": ANYONE,
    "GET /v1/compensations": ANYONE,
    "GET /v1/notices": ANYONE,
    "POST /v1/webhooks": PAYER,
    "GET /v1/webhooks": ANYONE,
    "GET /v1/webhooks/{webhook_id}": ANYONE,
    "PUT /v1/webhooks/{webhook_id}": PAYER,
    "DELETE /v1/webhooks/{webhook_id}": PAYER,
    "POST /v1/webhooks/{webhook_id}/rotate": PAYER,
    "POST /v1/webhooks/{webhook_id}/test": PAYER,
    "GET /v1/webhooks/{webhook_id}/deliveries": ANYONE,
    "POST /v1/webhooks/{webhook_id}/replay": PAYER,
    "GET /v1/machines/{machine_id}/rating": ANYONE,
    "GET /v1/machines/{machine_id}/checks": ANYONE,
    "GET /v1/machines/{machine_id}/verification": ANYONE,
    "GET /v1/machines/{machine_id}/verification/history": ANYONE,
    "POST /v1/machines/{machine_id}/verification": ADMIN,
    "GET /v1/machines/{machine_id}/gpus": HOST | AUDITOR,
    "POST /v1/machines/{machine_id}/gpus/{gpu_uuid}/restore": ADMIN,
    "GET /v1/machines/{machine_id}/benchmarks": ANYONE,
    "POST /v1/machines/{machine_id}/probes": ADMIN,
    "PUT /v1/machines/{machine_id}/location": HOST,
    "GET /v1/hosts/{host_id}/certifications": ANYONE,
    "POST /v1/hosts/{host_id}/certifications": ADMIN,
    "DELETE /v1/hosts/{host_id}/certifications/{certification_no}": ADMIN,
    "GET /v1/spend-caps": ANYONE,
    "PUT /v1/spend-caps": RENTER,
    "GET /v1/alerts": ANYONE,
    "GET /v1/auto-top-up": ANYONE,
    "PUT /v1/auto-top-up": RENTER,
    "DELETE /v1/auto-top-up": RENTER,
    "GET /v1/top-ups": ANYONE,
    "GET /v1/instances/{instance_id}/lease": ANYONE,
    "PUT /v1/instances/{instance_id}/lease": RENTER,
    "GET /v1/idle-policy": ANYONE,
    "PUT /v1/idle-policy": RENTER,
    "GET /v1/cleanup-policy": ANYONE,
    "PUT /v1/cleanup-policy": RENTER,
    "POST /v1/calculators/useful-hour": ANYONE,
    "POST /v1/calculators/memory": ANYONE,
    "POST /v1/calculators/transfer": ANYONE,
    "POST /v1/calculators/budget": ANYONE,
}
"""Written by hand from the design: a route that is not here, or opens up, fails a test."""
PEOPLE = {"renter": "alice", "host": "bob", "auditor": "audrey", "admin": "root"}
CREDENTIALS = {"POST /v1/usage", "POST /v1/enrolments", "POST /v1/payment-events"}
"""Open to all, because a signature or a one-time token is what they ask for."""


def paths() -> dict[str, Any]:
    """The paths of the schema that the application publishes."""
    found: dict[str, Any] = published()["paths"]
    return found


def concrete(path: str, value: str = "999999") -> str:
    """*path* with *value* for each of its parameters."""
    while "{" in path:
        before, _, rest = path.partition("{")
        path = before + value + rest.partition("}")[2]
    return path


def test_the_table_names_every_route_and_no_other() -> None:
    """A route that the schema has and the table lacks, or the reverse, is found here."""
    published = {f"{method.upper()} {path}" for path, one in paths().items() for method in one}
    assert published == set(TABLE)


def test_the_schema_states_the_roles_of_the_table() -> None:
    """The roles that the published schema names are those of the table."""
    for path, methods in paths().items():
        for method, operation in methods.items():
            stated = {role for need in operation["security"] for role in need.get("key", [])}
            assert stated == TABLE[f"{method.upper()} {path}"], (method, path)


def test_every_route_lets_in_the_roles_of_the_table_and_nobody_else(api: Api) -> None:
    """Each of the four roles gets 403 on each route that is not its own, and never on its own."""
    head = api.market.head()
    wrong: list[tuple[str, str, object]] = []
    for route, roles in TABLE.items():
        method, path = route.split(" ")
        for role, person in PEOPLE.items():
            answer = api(person, method, concrete(path), {})
            is_kept_out = answer.status_code == 403
            if roles and is_kept_out != (role not in roles):
                wrong.append((route, role, answer.status_code))
            if is_kept_out and answer.json()["code"] != "not_authorized":
                wrong.append((route, role, answer.text))
            if answer.status_code >= 500:
                wrong.append((route, role, answer.text))
    assert wrong == []
    assert api.market.head() == head


def test_every_closed_route_wants_a_key_before_anything_else(api: Api) -> None:
    """Without a key, with a garbage one or another scheme, each closed route is 401 (API-02)."""
    head = api.market.head()
    alice = api.keys["alice"]
    _, key_id, secret = alice.split("_", 2)
    spoiled = [
        None,
        "Bearer",
        "Bearer ",
        "Basic " + alice,
        "Bearer glk",
        "Bearer glk__",
        "Bearer " + alice[:-1],
        "Bearer " + alice + "x",
        "Bearer gle_" + key_id + "_" + secret,
        "Bearer glk_0000000000000000_" + secret,
        "Bearer glk_'; DROP TABLE events; --_x",
        "Bearer " + "x" * 4_000,
    ]
    for route, roles in TABLE.items():
        if not roles:
            continue
        method, path = route.split(" ")
        for header in spoiled if path == "/v1/me" else spoiled[:1] + spoiled[-2:]:
            headers = {} if header is None else {"Authorization": header}
            answer = api(None, method, concrete(path), {}, **headers)
            assert (answer.status_code, answer.json()["code"]) == (401, "auth_error"), (
                route,
                header,
            )
            assert answer.headers["www-authenticate"] == "Bearer"
            assert answer.headers["content-type"].startswith("application/problem+json")
    assert api.market.head() == head


def test_open_routes_answer_without_a_key(api: Api) -> None:
    """Health, metrics, the reference and the routes with credentials of their own are open."""
    for path in ("/healthz", "/readyz", "/metrics", "/", "/docs", "/openapi.json"):
        assert api(None, "GET", path).status_code == 200, path
    for route in CREDENTIALS:
        method, path = route.split(" ")
        answer = api(None, method, path, {})
        assert answer.json()["code"] != "auth_error", route


def test_a_key_ends_at_its_second_and_with_its_revocation(api: Api) -> None:
    """An expired and a revoked key are 401 on every route from that second on, with no grace."""
    market = api.market
    with market.ledger.unit() as unit:
        for person, role in (("alice", "renter"), ("audrey", "auditor"), ("root", "admin")):
            account = api.accounts[person]
            api.keys[f"{person}-short"] = api_keys.create_key(
                unit,
                account,
                role,  # type: ignore[arg-type]  # a literal in a tuple is a str to mypy
                expires_at=START + 10,
            )
            api.keys[f"{person}-gone"] = api_keys.create_key(unit, account, role)  # type: ignore[arg-type]
    market.clock.move_to(START + 9)
    for person in ("alice", "audrey", "root"):
        for kind in ("short", "gone"):
            assert api(f"{person}-{kind}", "GET", "/v1/me").status_code == 200
        key_id = api.keys[f"{person}-gone"].split("_")[1]
        assert api(person, "DELETE", f"/v1/keys/{key_id}").status_code == 200
        assert api(person, "DELETE", f"/v1/keys/{key_id}").status_code == 200
    market.clock.move_to(START + 10)
    head = market.head()
    for route, roles in TABLE.items():
        method, path = route.split(" ")
        for person in ("alice", "audrey", "root"):
            for kind in ("short", "gone"):
                answer = api(f"{person}-{kind}", method, concrete(path), {})
                if roles:
                    assert (answer.status_code, answer.json()["code"]) == (401, "auth_error")
                    assert answer.headers["www-authenticate"] == "Bearer"
    assert market.head() == head


def test_a_key_is_no_ladder(api: Api) -> None:
    """Nobody but an admin makes a key of another role or account, or sees and ends others' keys."""
    for person, role in (("alice", "renter"), ("bob", "host"), ("audrey", "auditor")):
        for wanted in ("renter", "host", "auditor", "admin"):
            answer = api(person, "POST", "/v1/keys", {"role": wanted})
            assert answer.status_code == (201 if wanted == role else 403), (person, wanted)
        carol = {"role": role, "account_id": api.accounts["carol"]}
        assert api(person, "POST", "/v1/keys", carol).status_code in {403, 404}
        key_id = api.keys["carol"].split("_")[1]
        answer = api(person, "DELETE", f"/v1/keys/{key_id}")
        assert (answer.status_code, answer.json()["code"]) == (404, "no_such_key")
    assert api("carol", "GET", "/v1/me").status_code == 200
    made = api("root", "POST", "/v1/keys", {"role": "host", "account_id": api.accounts["eve"]})
    api.keys["made"] = made.json()["key"]
    assert api("made", "GET", "/v1/me").json()["account_id"] == api.accounts["eve"]
    shown = api("eve", "GET", "/v1/keys")
    assert made.json()["key"].split("_", 2)[2] not in shown.text


@pytest.fixture
def owned(api: Api) -> dict[str, str]:
    """Paths of everything that alice rents and bob owns: instance, machine, invoice, hold, ids."""
    market = api.market
    machine = market.machine(host="bob")
    instance = market.rent(api.accounts["alice"], machine)
    volume = create(market, api.accounts["alice"], offer(market, machine))
    market.confirm(machine, instance)
    market.run(machine, [instance], 60)
    with market.ledger.unit() as unit:
        rentals.destroy(unit, instance)
        holds.place_hold(unit, api.accounts["alice"], 10**9, "mine")
        key_id = unit.connection.execute("SELECT key_id FROM machine_keys").fetchone()
    living = market.rent(api.accounts["alice"], market.machine(host="bob"))
    template = api("alice", "POST", "/v1/templates", {"name": "t", "launch": {}}).json()
    ssh_key = api("alice", "POST", "/v1/ssh-keys", {"ssh_key": SSH_KEY}).json()
    api("alice", "PUT", "/v1/secrets", {"name": "TOKEN", "value": "x"})
    order = {"instance_id": living, "action": "stop", "frequency": "HOURLY"}
    job = api("alice", "POST", "/v1/scheduled-jobs", order).json()
    with market.ledger.unit() as unit:
        rentals.stop(unit, living)
    market.clock.move_to(START + 32 * 86_400)
    policies.run_due(market.ledger)
    market.project()
    assert invoicing.issue_due(market.ledger) == 1
    market.project()
    number = api("alice", "GET", "/v1/invoices").json()["items"][0]["number"]
    assert key_id is not None
    return {
        "instance": str(instance),
        "volume": str(volume),
        "machine": str(machine),
        "number": number,
        "hold": "mine",
        "template": str(template["template_id"]),
        "ssh_key": str(ssh_key["ssh_key_id"]),
        "job": str(job["job_id"]),
        "living": str(living),
        "key": key_id[0],
        "alice": str(api.accounts["alice"]),
    }


RENTERS_OWN = [
    ("GET", "/v1/instances/{instance}", None),
    ("GET", "/v1/instances/{instance}/ticks", None),
    ("GET", "/v1/instances/{instance}/timeline?form=svg", None),
    ("POST", "/v1/instances/{instance}/start", None),
    ("POST", "/v1/instances/{instance}/stop", None),
    ("POST", "/v1/instances/{instance}/reboot", None),
    ("POST", "/v1/instances/{instance}/label", {"label": "mine now"}),
    ("GET", "/v1/instances/{instance}/launch", None),
    ("PUT", "/v1/instances/{instance}/launch", {"image": "busybox:1"}),
    ("GET", "/v1/instances/{instance}/ssh-keys", None),
    ("POST", "/v1/instances/{instance}/ssh-keys", {"ssh_key_id": 1}),
    ("DELETE", "/v1/instances/{instance}/ssh-keys/1", None),
    ("POST", "/v1/instances/{instance}/log-requests", {}),
    ("PUT", "/v1/templates/{template}", {"name": "mine", "launch": {}}),
    ("DELETE", "/v1/templates/{template}", None),
    ("PUT", "/v1/ssh-keys/{ssh_key}", {"ssh_key": SSH_KEY}),
    ("DELETE", "/v1/ssh-keys/{ssh_key}", None),
    ("DELETE", "/v1/secrets/TOKEN", None),
    ("PUT", "/v1/scheduled-jobs/{job}", {"action": "stop", "frequency": "HOURLY"}),
    ("DELETE", "/v1/scheduled-jobs/{job}", None),
    ("GET", "/v1/audit-log?account_id={alice}", None),
    ("GET", "/v1/addresses?account_id={alice}", None),
    ("GET", "/v1/launch-policy?account_id={alice}", None),
    ("PUT", "/v1/launch-policy", {"secure_only": True, "account_id": 0}),
    ("DELETE", "/v1/instances/{instance}", None),
    ("GET", "/v1/volumes/{volume}", None),
    ("DELETE", "/v1/volumes/{volume}", None),
    ("POST", "/v1/volumes/{volume}/clone", {"volume_offer_id": 1}),
    ("POST", "/v1/volumes", {"volume_offer_id": 1, "disk_gb": 1, "account_id": "{alice}"}),
    ("PUT", "/v1/instances/{instance}/bid", {"price": None}),
    ("POST", "/v1/instances/{instance}/reservation", {"amount": "1"}),
    ("DELETE", "/v1/instances/{instance}/reservation", None),
    ("GET", "/v1/instances/{instance}/reservations", None),
    ("POST", "/v1/instances/{instance}/price-increase/accept", None),
    ("POST", "/v1/instances/{instance}/price-increase/reject", None),
    ("GET", "/v1/instances/{instance}/lease", None),
    ("PUT", "/v1/instances/{instance}/lease", {"until": None, "spend_limit": "1"}),
    ("PUT", "/v1/spend-caps", {"per_hour": "0", "per_day": "0", "account_id": "{alice}"}),
    ("PUT", "/v1/idle-policy", {"notice_seconds": 600, "account_id": "{alice}"}),
    (
        "PUT",
        "/v1/idle-policy",
        {"notice_seconds": 0, "stop_seconds": 3600, "account_id": "{alice}"},
    ),
    ("PUT", "/v1/cleanup-policy", {"scope": "all", "account_id": "{alice}"}),
    ("DELETE", "/v1/auto-top-up?account_id={alice}", None),
    ("POST", "/v1/instances", {"machine_id": 1, "disk_gb": 1, "account_id": "{alice}"}),
    ("GET", "/v1/invoices/{number}", None),
    ("GET", "/v1/invoices/{number}.pdf", None),
    ("GET", "/v1/invoices/{number}.xml", None),
    ("POST", "/v1/holds/{hold}/capture", {}),
    ("POST", "/v1/holds/{hold}/release", None),
    ("POST", "/v1/holds/{hold}/capture?account_id={alice}", {}),
    ("POST", "/v1/holds/{hold}/release?account_id={alice}", None),
    ("POST", "/v1/holds", {"amount": "1", "id": "x", "account_id": "{alice}"}),
    *[
        ("GET", f"/v1/{kind}?account_id={{alice}}", None)
        for kind in (
            "balance",
            "charges",
            "transfers",
            "holds",
            "invoices",
            "documents",
            "invoice-preview",
            "grants",
            "billing",
            "tax-profile",
            "billing-details",
            "instances",
            "volumes",
            "anomalies",
            "keys",
            "price-increases",
            "spend-caps",
            "alerts",
            "auto-top-up",
            "top-ups",
            "idle-policy",
            "cleanup-policy",
        )
    ],
]
HOSTS_OWN = [
    ("GET", "/v1/machines/{machine}/desired", None),
    ("POST", "/v1/machines/{machine}/enrolment-tokens", None),
    ("DELETE", "/v1/machines/{machine}/listing", None),
    (
        "PUT",
        "/v1/machines/{machine}/listing",
        {"gpu_hour": "0.01", "storage_gb_month": "0.01"},
    ),
    ("DELETE", "/v1/machines/{machine}/keys/{key}", None),
    ("GET", "/v1/machines/{machine}/gpus", None),
    ("GET", "/v1/machines/{machine}/timeline", None),
    ("GET", "/v1/instances/{instance}", None),
    ("GET", "/v1/instances/{instance}/ticks", None),
    ("GET", "/v1/instances/{instance}/timeline?form=svg", None),
    ("GET", "/v1/instances/{instance}/reservations", None),
    ("PUT", "/v1/machines/{machine}/volume-offer", {"disk_gb": 1, "storage_gb_month": "0.1"}),
    ("DELETE", "/v1/machines/{machine}/volume-offer", None),
    ("GET", "/v1/volumes/{volume}", None),
    ("GET", "/v1/invoices/{number}", None),
    ("GET", "/v1/balance?account_id={alice}", None),
    ("GET", "/v1/transfers?account_id={alice}", None),
]


@pytest.mark.parametrize(
    ("person", "requests"), [("carol", RENTERS_OWN), ("eve", HOSTS_OWN)], ids=["renter", "host"]
)
def test_what_is_not_yours_does_not_exist(
    api: Api, owned: dict[str, str], person: str, requests: list[tuple[str, str, Any]]
) -> None:
    """Another tenant's id is answered like an id that never was: 404, same code, nothing stored."""
    head = api.market.head()
    never = dict.fromkeys(owned, "888888")
    for method, path, body in requests:
        answers = []
        for names in (owned, never):
            sent = body
            if body is not None and "account_id" in body:
                sent = {**body, "account_id": int(names["alice"])}
            answers.append(api(person, method, path.format(**names), sent))
        theirs, missing = answers
        assert theirs.status_code == missing.status_code == 404, (method, path, theirs.text)
        assert theirs.json()["code"] == missing.json()["code"]
        assert theirs.json()["code"].startswith("no_such_")
    assert api.market.head() == head


def test_owners_auditors_and_admins_see_them(api: Api, owned: dict[str, str]) -> None:
    """What others get as 404 is there for its owner, an auditor and an admin."""
    for path in (
        "/v1/instances/{instance}",
        "/v1/instances/{instance}/ticks",
        "/v1/instances/{instance}/timeline?form=svg",
        "/v1/volumes/{volume}",
        "/v1/invoices/{number}",
    ):
        for person in ("alice", "audrey", "root"):
            assert api(person, "GET", path.format(**owned)).status_code == 200, (person, path)
    assert api("bob", "GET", "/v1/instances/{instance}".format(**owned)).status_code == 200
    assert api("bob", "GET", "/v1/machines/{machine}/desired".format(**owned)).status_code == 200
    for person in ("audrey", "root"):
        for kind in ("balance", "charges", "transfers", "invoices", "instances", "keys"):
            path = f"/v1/{kind}?account_id={owned['alice']}"
            assert api(person, "GET", path).status_code == 200, (person, kind)


def test_lists_show_only_what_is_ones_own(api: Api, owned: dict[str, str]) -> None:
    """Lists without a filter hold nothing of another renter or another host."""
    for kind in ("instances", "volumes", "charges", "invoices", "holds", "anomalies"):
        assert api("carol", "GET", f"/v1/{kind}").json()["items"] == [], kind
    for kind in ("instances", "volumes", "machines", "anomalies", "charges", "invoices"):
        assert api("eve", "GET", f"/v1/{kind}").json()["items"] == [], kind
    carol = {api.accounts["carol"], None}
    for one in api("carol", "GET", "/v1/transfers").json()["items"]:
        assert {one["debit_account"], one["credit_account"]} <= carol
    assert {one["account_id"] for one in api("carol", "GET", "/v1/keys").json()["items"]} <= carol
    mine = api("alice", "GET", "/v1/instances").json()["items"]
    assert [str(one["instance_id"]) for one in mine] == [owned["instance"], owned["living"]]
