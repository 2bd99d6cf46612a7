"""Bad input: a clear error with a stable code, never a 500, and nothing stored."""

from __future__ import annotations

import base64
import re
from typing import Any
from urllib.parse import quote

import httpx
import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ledger.services import machines
from tests.http.conftest import Api
from tests.http.test_access import concrete, paths
from tests.support.examples import examples
from tests.support.volumes import create, offer

SQL = "'; DROP TABLE events; --"
NUL = "a\x00b"
DEEP = 10_000
SSH_KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f me@home"
MACHINE = {
    "gpus": 1,
    "gpu_name": "RTX 4090",
    "gpu_ram_gb": 24,
    "cpu_cores": 8,
    "ram_gb": 64,
    "disk_gb": 1_000,
    "up_mbps": 100,
    "down_mbps": 100,
}
OFFER = {"offer_id": 1, "gpu_name": "RTX 4090", "gpus": 1, "on_demand_dollars_per_hour": 0.5}
GOOD: dict[str, dict[str, Any]] = {
    "POST /v1/accounts": {"name": "dora"},
    "POST /v1/keys": {"role": "renter"},
    "POST /v1/deposits": {"account_id": 1, "amount": "1", "id": "d-1"},
    "POST /v1/refunds": {"account_id": 1, "deposit_id": "opening-1", "amount": "1", "id": "r-1"},
    "POST /v1/transfers": {"to_account_id": 2, "amount": "1", "id": "t-1"},
    "POST /v1/holds": {"amount": "1", "id": "h-1"},
    "POST /v1/holds/{hold_id}/capture": {"amount": "1"},
    "POST /v1/machines": MACHINE,
    "POST /v1/enrolments": {"token": "x", "public_key": "ab" * 32, "gpu_uuids": ["GPU-9"]},
    "PUT /v1/machines/{machine_id}/listing": {"gpu_hour": "0.4", "storage_gb_month": "0.1"},
    "POST /v1/instances": {"machine_id": 1, "disk_gb": 10},
    "PUT /v1/machines/{machine_id}/volume-offer": {"disk_gb": 500, "storage_gb_month": "0.15"},
    "POST /v1/volumes": {"volume_offer_id": 1, "disk_gb": 10},
    "POST /v1/volumes/{volume_id}/clone": {"volume_offer_id": 1},
    "POST /v1/instances/{instance_id}/label": {"label": "job"},
    "PUT /v1/keys/{key_id}": {"name": "laptop"},
    "PUT /v1/instances/{instance_id}/launch": {"image": "pytorch/pytorch:2.9"},
    "PUT /v1/instances/{instance_id}/connection": {"assignment": 1},
    "POST /v1/instances/{instance_id}/log-requests": {"tail": 100},
    "PUT /v1/log-requests/{token}": {"text": "epoch 1"},
    "POST /v1/scheduled-jobs": {"instance_id": 1, "action": "reboot", "frequency": "HOURLY"},
    "PUT /v1/scheduled-jobs/{job_id}": {"action": "stop", "frequency": "HOURLY"},
    "PUT /v1/launch-policy": {"secure_only": False},
    "POST /v1/templates": {"name": "train", "launch": {"image": "pytorch/pytorch:2.9"}},
    "PUT /v1/templates/{template_id}": {"name": "base", "launch": {"image": "busybox:1"}},
    "PUT /v1/secrets": {"name": "TOKEN", "value": "x"},
    "POST /v1/ssh-keys": {"ssh_key": SSH_KEY},
    "PUT /v1/ssh-keys/{ssh_key_id}": {"ssh_key": SSH_KEY},
    "POST /v1/instances/{instance_id}/ssh-keys": {"ssh_key": SSH_KEY},
    "PUT /v1/instances/{instance_id}/bid": {"price": "0.3"},
    "POST /v1/instances/{instance_id}/reservation": {"amount": "1"},
    "POST /v1/offers/search": {},
    "POST /v1/machines/{machine_id}/maintenance": {
        "start": "2026-04-01T00:00:00Z",
        "duration_seconds": 3_600,
        "category": "power",
    },
    "POST /v1/disputes": {
        "instance_id": 1,
        "start": "2026-03-01T10:00:00Z",
        "until": "2026-03-01T10:10:00Z",
        "reason": "not_running",
    },
    "POST /v1/disputes/{dispute_id}/answer": {},
    "POST /v1/disputes/{dispute_id}/question": {"statement": "Which error?"},
    "POST /v1/disputes/{dispute_id}/resolve": {"outcome": "rejected"},
    "POST /v1/corrections": {"charge": "instance-1.gpu.1", "reason": "x"},
    "POST /v1/credit-notes": {
        "account_id": 1,
        "document": "USE-00000001",
        "amount": "1",
        "reason": "x",
    },
    "POST /v1/approvals": {"subject": "file account-1"},
    "POST /v1/probe-locations": {"location": "fra1", "region": "DE"},
    "POST /v1/probe-results": {
        "location": "fra1",
        "results": [{"machine_id": 1, "result": "up"}],
    },
    "POST /v1/machines/{machine_id}/verification": {"verification": "verified", "reason": "seen"},
    "POST /v1/machines/{machine_id}/gpus/{gpu_uuid}/restore": {"reason": "reseated"},
    "POST /v1/machines/{machine_id}/probes": {"up_mbps": 940},
    "PUT /v1/machines/{machine_id}/location": {"country": "SE"},
    "POST /v1/hosts/{host_id}/certifications": {
        "kind": "iso27001",
        "number": "IS 700001",
        "issuer": "BSI",
        "valid_from": "2026-01-01T00:00:00Z",
        "evidence_hash": "9f" * 32,
    },
    "POST /v1/webhooks": {"url": "https://hooks.example/"},
    "PUT /v1/webhooks/{webhook_id}": {"url": "https://hooks.example/changed"},
    "POST /v1/webhooks/{webhook_id}/replay": {"since": "2026-03-01T00:00:00Z"},
    "PUT /v1/spend-caps": {"per_hour": "1", "per_day": "20"},
    "PUT /v1/auto-top-up": {
        "below": "5",
        "amount": "20",
        "max_per_day": "100",
        "reference": "mandate_1",
    },
    "PUT /v1/instances/{instance_id}/lease": {
        "until": "2027-01-01T00:00:00Z",
        "spend_limit": "25",
    },
    "PUT /v1/idle-policy": {"notice_seconds": 600},
    "PUT /v1/cleanup-policy": {"scope": "all"},
    "POST /v1/payments": {"amount": "50"},
    "POST /v1/payments/{payment_id}/refund": {"amount": "12.50", "id": "refund-3"},
    "POST /v1/cards": {"consent": True, "terms": "card-terms-2026-03"},
    "POST /v1/payout-account": {"country": "US"},
    "PUT /v1/billing": {
        "zone": "Europe/Berlin",
        "cycle": "monthly",
        "anchor": 15,
        "zero_invoices": False,
    },
    "PUT /v1/tax-profile": {
        "account_id": 2,
        "country": "FR",
        "rate": "0.2",
        "treatment": "standard",
    },
    "PUT /v1/billing-details": {
        "name": "Alice Research",
        "street": "1 Long Road",
        "postcode": "75001",
        "city": "Paris",
        "country": "FR",
        "vat_id": None,
        "email": "alice@example.com",
    },
    "PUT /v1/issuer": {
        "name": "Example Compute GmbH",
        "street": "Kanalstrasse 12",
        "postcode": "20095",
        "city": "Hamburg",
        "country": "DE",
        "vat_id": "DE123456788",
        "registration": "HRB 12345",
        "email": "billing@example.com",
    },
    "POST /v1/grants": {
        "account_id": 2,
        "amount": "5",
        "expires_at": "2030-01-01T00:00:00Z",
        "id": "welcome-2",
        "reason": "welcome",
    },
    "POST /v1/grants/{grant_id}/revoke": {"account_id": 2, "reason": "abuse"},
    "PUT /v1/mail": {"address": "root@example.com"},
    "PUT /v1/budgets": {"label": "train", "amount": "250"},
    "POST /v1/adjustments": {"id": "a-1", "account_id": 2, "amount": "12.50", "reason": "outage"},
    "POST /v1/write-offs": {"id": "w-1", "account_id": 2, "reason": "insolvent"},
    "POST /v1/findings/{finding_id}/explain": {"reason": "a power cut, announced"},
    "POST /v1/findings/{finding_id}/correct": {"reason": "booked twice"},
    "POST /v1/calculators/useful-hour": {"useful_hours": 40, "offers": [OFFER]},
    "POST /v1/calculators/memory": {"parameters": 7_000_000_000, "recipe": "inference"},
    "POST /v1/calculators/transfer": {"size_bytes": 10**9, "link_mbps": 500},
    "POST /v1/calculators/budget": {"work_hours": 40, "dollars_per_hour": 0.5},
}
"""A body that each route with a body would take, for a test to spoil."""
OPTIONAL = {
    "POST /v1/holds/{hold_id}/capture",
    "POST /v1/instances/{instance_id}/log-requests",
}
"""Routes whose body may be empty."""
AMOUNTS = [
    ("POST /v1/deposits", "amount"),
    ("POST /v1/refunds", "amount"),
    ("POST /v1/transfers", "amount"),
    ("POST /v1/holds", "amount"),
    ("POST /v1/holds/{hold_id}/capture", "amount"),
    ("POST /v1/instances/{instance_id}/reservation", "amount"),
    *[("PUT /v1/auto-top-up", name) for name in ("below", "amount", "max_per_day")],
    ("PUT /v1/instances/{instance_id}/lease", "spend_limit"),
    ("POST /v1/grants", "amount"),
    ("PUT /v1/budgets", "amount"),
]
PRICES = [
    ("PUT /v1/machines/{machine_id}/listing", name)
    for name in ("gpu_hour", "storage_gb_month", "up_gb", "down_gb", "min_bid")
]
PRICES += [("PUT /v1/machines/{machine_id}/volume-offer", "storage_gb_month")]
PRICES += [("PUT /v1/instances/{instance_id}/bid", "price"), ("POST /v1/instances", "bid")]
NUMBERS = [
    ("POST /v1/keys", "account_id"),
    ("POST /v1/deposits", "account_id"),
    ("POST /v1/refunds", "account_id"),
    ("POST /v1/transfers", "to_account_id"),
    ("POST /v1/holds", "seconds"),
    ("POST /v1/holds", "account_id"),
    *[("POST /v1/machines", name) for name in MACHINE if name != "gpu_name"],
    ("POST /v1/machines", "host_id"),
    ("PUT /v1/machines/{machine_id}/listing", "min_gpus"),
    ("POST /v1/instances", "machine_id"),
    ("POST /v1/instances", "disk_gb"),
    ("POST /v1/instances", "gpus"),
    ("POST /v1/instances", "offer_id"),
    ("POST /v1/instances", "account_id"),
    ("PUT /v1/machines/{machine_id}/volume-offer", "disk_gb"),
    *[("POST /v1/volumes", name) for name in ("volume_offer_id", "disk_gb", "account_id")],
    *[("POST /v1/volumes/{volume_id}/clone", name) for name in ("volume_offer_id", "disk_gb")],
    ("POST /v1/instances/{instance_id}/reservation", "months"),
    ("POST /v1/instances/{instance_id}/reservation", "seconds"),
    ("POST /v1/offers/search", "limit"),
    ("PUT /v1/idle-policy", "notice_seconds"),
    ("PUT /v1/cleanup-policy", "days"),
    ("POST /v1/grants", "account_id"),
    ("POST /v1/adjustments", "account_id"),
    ("POST /v1/write-offs", "account_id"),
    ("PUT /v1/tax-profile", "account_id"),
]
TIMES = [
    ("POST /v1/keys", "expires_at"),
    ("PUT /v1/machines/{machine_id}/listing", "until"),
    ("PUT /v1/machines/{machine_id}/volume-offer", "until"),
    ("PUT /v1/instances/{instance_id}/lease", "until"),
    ("POST /v1/grants", "expires_at"),
]


class Refuses:
    """Requests that must be refused by the client's own fault, with the log where it was."""

    def __init__(self, api: Api) -> None:
        """A machine and an instance stand, so that what is refused is the spoiled part alone."""
        self.api = api
        self.machine = api.market.machine(host="bob")
        self.instance = api.market.rent(api.accounts["root"], self.machine)
        self.volume = create(api.market, api.accounts["root"], offer(api.market, self.machine), 10)
        api("root", "POST", "/v1/holds", {"amount": "5", "id": "h-0"})
        made = api("root", "POST", "/v1/webhooks", {"url": "https://hooks.example/first"})
        self.webhook = made.json()["webhook_id"]
        self.key = api.keys["root"].split("_")[1]
        template = {"name": "first", "launch": {"image": "busybox:1"}}
        self.template = api("root", "POST", "/v1/templates", template).json()["template_id"]
        kept = api("root", "POST", "/v1/ssh-keys", {"ssh_key": SSH_KEY})
        self.ssh_key = kept.json()["ssh_key_id"]
        plan = {"instance_id": self.instance, "action": "stop", "frequency": "HOURLY"}
        self.job = api("root", "POST", "/v1/scheduled-jobs", plan).json()["job_id"]
        asked = api("root", "POST", f"/v1/instances/{self.instance}/log-requests", {"tail": 1})
        self.log = asked.json()["result_url"]

    def path(self, template: str) -> str:
        """A path of things that exist."""
        names = {
            "machine_id": self.machine,
            "host_id": self.api.accounts["bob"],
            "instance_id": self.instance,
            "volume_id": self.volume,
            "hold_id": "h-0",
            "webhook_id": self.webhook,
            "offer_id": 2,
            "dispute_id": 1,
            "payment_id": "payment-1",
            "key_id": self.key,
            "template_id": self.template,
            "ssh_key_id": self.ssh_key,
            "job_id": self.job,
            "token": self.log.rpartition("/")[2],
            "name": "TOKEN",
            "day": "2026-03-01",
            "line": 0,
            "grant_id": "welcome-2",
            "finding_id": 1,
            "event": "evt-1",
            "ledger_account": "bank",
            "gpu_uuid": f"GPU-{self.machine}-0",
        }
        return template.format(**names)

    def __call__(
        self, route: str, body: Any, *, status: set[int] | None = None, **headers: str
    ) -> httpx.Response:
        """Send it as an admin, who may do everything, and see that it is refused."""
        method, template = route.split(" ")
        head = self.api.market.head()
        answer = self.api("root", method, self.path(template), body, **headers)
        shown = (route, str(body)[:120], answer.status_code, answer.text[:300])
        assert 400 <= answer.status_code < 500, shown
        assert answer.status_code in (status or {400, 401, 404, 409, 413, 415, 422}), shown
        assert answer.headers["content-type"].startswith("application/problem+json"), shown
        problem = answer.json()
        assert problem["status"] == answer.status_code, shown
        assert problem["code"], shown
        assert problem["detail"], shown
        assert problem["type"] == f"urn:gpuledger:error:{problem['code']}", shown
        assert self.api.market.head() == head, shown
        return answer


@pytest.fixture
def refuses(api: Api) -> Refuses:
    """What must be refused."""
    return Refuses(api)


def test_the_good_bodies_are_good(refuses: Refuses) -> None:
    """Each body that other tests spoil is accepted as it stands, or fails for a later reason."""
    taken = {}
    for route, body in GOOD.items():
        method, template = route.split(" ")
        taken[route] = refuses.api("root", method, refuses.path(template), body).status_code
    assert set(GOOD) == {
        f"{method.upper()} {path}"
        for path, methods in paths().items()
        for method, one in methods.items()
        if "requestBody" in one and path not in {"/v1/usage", "/v1/payment-events"}
    }
    assert {route: status for route, status in taken.items() if status >= 300} == {
        "POST /v1/enrolments": 401,
        "POST /v1/instances": 409,
        "PUT /v1/instances/{instance_id}/bid": 422,
        "POST /v1/disputes": 422,
        "POST /v1/disputes/{dispute_id}/answer": 422,
        "POST /v1/disputes/{dispute_id}/question": 404,
        "POST /v1/disputes/{dispute_id}/resolve": 404,
        "POST /v1/corrections": 404,
        "POST /v1/credit-notes": 404,
        # There is no processor here.
        "POST /v1/payments": 409,
        "POST /v1/payments/{payment_id}/refund": 409,
        "POST /v1/cards": 409,
        "POST /v1/payout-account": 409,
        "POST /v1/write-offs": 422,
        "POST /v1/findings/{finding_id}/explain": 404,
        "POST /v1/findings/{finding_id}/correct": 404,
    }


def test_what_is_no_json_object_is_400(refuses: Refuses) -> None:
    """Empty, cut, nested 10,000 deep, NaN, another type or encoding: 400 on every route."""
    for route, good in GOOD.items():
        whole = msgspec.json.encode(good)
        for raw in (
            b"",
            b" ",
            b"null",
            b"[]",
            b"1",
            b'"text"',
            b"NaN",
            b"{",
            whole[:-1],
            whole + b"}",
            b"[" * DEEP,
            b"[" * DEEP + b"]" * DEEP,
            b'{"a":' * DEEP + b"1" + b"}" * DEEP,
            whole[:-1] + b',"launch":' + b'{"a":' * DEEP + b"1" + b"}" * DEEP + b"}",
            b"\xff\xfe{}",
            b'{"name": "\xff"}',
            b'{"name": "\\ud800"}',
            b'{"amount": NaN}',
            b'{"amount": Infinity}',
            b"\x00",
        ):
            refuses(route, raw, status={400})


def test_unknown_fields_and_wrong_types_are_400(refuses: Refuses) -> None:
    """A field that is not known or of another type is refused by its name (every route)."""
    for route, good in GOOD.items():
        for name in ("colour", "", SQL, "__class__", "x" * 1_000):
            refuses(route, {**good, name: 1}, status={400})
        for name in good:
            missing = {key: value for key, value in good.items() if key != name}
            if route not in OPTIONAL:
                refuses(route, missing, status={400})
            spoiled: list[Any] = [[], {}, True, [good[name]]]
            for wrong in spoiled:
                if type(wrong) is not type(good[name]):
                    answer = refuses(route, {**good, name: wrong}, status={400})
                    assert name in answer.json()["detail"], answer.text


def test_amounts_are_exact_positive_decimals(refuses: Refuses) -> None:
    """NaN, signs, zero, ten decimals, 10^30, numbers and words are no amounts; nothing moves."""
    for route, name in AMOUNTS:
        for wrong in (
            "NaN",
            "sNaN",
            "Infinity",
            "-Infinity",
            "-1",
            "-0.000000001",
            "0",
            "0.0000000001",
            "1.0000000001",
            "1000000000.000000001",
            "1" + "0" * 30,
            "1e30",
            "1e999999999",
            "1e-999999999",
            "9" * 100_000,
            "",
            " ",
            "one",
            "1,5",
            "$1",
            "0x10",
            SQL,
            NUL,
            1,
            1.5,
            -1,
            10**30,
            True,
        ):
            refuses(route, {**GOOD[route], name: wrong}, status={400, 422})


def test_prices_are_finite_and_not_negative(refuses: Refuses) -> None:
    """No listing has a price that is NaN, negative, endless, above the bound, or no text."""
    for route, name in PRICES:
        for wrong in (
            "NaN",
            "Infinity",
            "-1",
            "-0.1",
            "1" + "0" * 30,
            "1e400",
            "",
            SQL,
            NUL,
            1,
            0.4,
        ):
            refuses(route, {**GOOD[route], name: wrong}, status={400, 422})
        if name == "gpu_hour":
            for wrong in ("0", "0.0000000001"):
                refuses(route, {**GOOD[route], name: wrong}, status={422})


def test_numbers_are_in_range(refuses: Refuses) -> None:
    """Zero, negative, fractional and endless ids and sizes are refused, never wrapped round."""
    for route, name in NUMBERS:
        for wrong in (0, -1, 1.5, -(2**63), 2**63, 2**64, 10**30, "x", NUL):
            refuses(route, {**GOOD[route], name: wrong})


def test_times_are_rfc_3339_and_ahead(refuses: Refuses) -> None:
    """Words, dates that do not exist, seconds without offset, the past: none is a time to come."""
    for route, name in TIMES:
        for wrong in (
            "tomorrow",
            "",
            "2030-02-30T00:00:00Z",
            "2030-01-01T00:00:00",
            "2030-01-01",
            "2030-01-01T00:00:00.5Z",
            "2020-01-01T00:00:00Z",
            "0001-01-01T00:00:00+23:59",
            "9999-12-31T23:59:59-23:59",
            SQL,
            NUL,
            1_900_000_000,
        ):
            refuses(route, {**GOOD[route], name: wrong})


def test_queries_are_checked(refuses: Refuses) -> None:
    """Forged cursors, bad limits, bad times and bad filters are 400 on every list that has them."""
    forged = [
        "forged",
        "%00",
        "=",
        "----",
        "é",
        "x" * 5_000,
        SQL,
        *[
            base64.urlsafe_b64encode(msgspec.msgpack.encode(key)).decode().rstrip("=")
            for key in (None, [], {}, 1.5, b"x", [1, 2, 3], {"a": 1}, SQL, [SQL], NUL, 2**64 - 1)
        ],
    ]
    for path, methods in paths().items():
        for one in methods.get("get", {}).get("parameters", []):
            name, route = one["name"], f"GET {path}"
            if one["in"] != "query":
                continue
            if name == "limit":
                for wrong in ("0", "-1", "1001", "x", "1.5", "", NUL, str(10**30), "NaN"):
                    refuses_query(refuses, route, name, wrong)
            if name == "cursor":
                for wrong in forged:
                    refuses_query(refuses, route, name, wrong, may_be_empty=True)
            if name in {"from", "until"}:
                for wrong in ("yesterday", "2026-03-01", "1772359200", "", SQL, NUL):
                    refuses_query(refuses, route, name, wrong)
            if name.endswith("_id"):
                for wrong in ("x", "1.5", "", NUL, SQL, str(2**63), str(10**30)):
                    refuses_query(refuses, route, name, wrong, may_be_empty=True)


def refuses_query(
    refuses: Refuses, route: str, name: str, wrong: str, *, may_be_empty: bool = False
) -> None:
    """A GET with one bad parameter is refused, or, where nothing can match, finds nothing."""
    method, path = route.split(" ")
    shown = refuses.path(path) if "number" not in path and "stream" not in path else path
    shown = concrete(shown, "instance-1")
    head = refuses.api.market.head()
    answer = refuses.api("root", method, f"{shown}?{name}={quote(wrong, safe='%')}")
    told = (shown, name, wrong[:60], answer.status_code, answer.text[:300])
    if not (may_be_empty and answer.status_code == 200):
        assert 400 <= answer.status_code < 500, told
        assert answer.json()["code"], told
    assert refuses.api.market.head() == head


def test_paths_are_checked(refuses: Refuses) -> None:
    """Ids in a path that cannot be are 404 or 400, whatever they look like."""
    for path, methods in paths().items():
        for method in methods:
            if "{" not in path:
                continue
            for wrong in ("0", "-1", str(2**63), str(10**30), "x", "%00", "a%00b", quote(SQL), "é"):
                if path == "/v1/events/{stream}" and wrong != "%00":
                    continue
                body = GOOD.get(f"{method.upper()} {path}", {})
                head = refuses.api.market.head()
                suffix = "?reason=x" if method == "delete" else ""
                answer = refuses.api("root", method.upper(), concrete(path, wrong) + suffix, body)
                told = (method, path, wrong, answer.status_code, answer.text[:300])
                without = answer.json()["code"] == "payments_not_configured"
                assert answer.status_code in {400, 404, 422} or without, told
                assert answer.json()["code"], told
                assert refuses.api.market.head() == head, told


NO_ROUTES = [
    ("PATCH", "/v1/accounts", 405),
    ("DELETE", "/v1/accounts", 405),
    ("GET", "/v1/nothing", 404),
    ("GET", "/v1", 404),
    ("GET", "/v2/accounts", 404),
    ("POST", "/healthz", 405),
    ("GET", "/v1/../v1/accounts/..%2f..%2fetc", 404),
]


def test_what_is_no_route_is_told(api: Api) -> None:
    """An unknown path is 404 and a wrong method 405, both as problem documents."""
    for method, path, status in NO_ROUTES:
        answer = api("root", method, path, {})
        assert answer.status_code == status, (method, path)
        assert answer.headers["content-type"].startswith("application/problem+json")
        assert answer.json()["status"] == status


def test_names_and_labels_are_text_and_nothing_else(refuses: Refuses) -> None:
    """SQL, markup and other scripts are just names; control characters and NUL are refused."""
    api = refuses.api
    for name in (SQL, "Robert'); DROP TABLE events; --", '"><script>', "Zoë 李 🚀", "%s %(x)s {}"):
        made = api("root", "POST", "/v1/accounts", {"name": name})
        assert made.status_code == 201, made.text
        shown = api("root", "GET", f"/v1/accounts/{made.json()['account_id']}").json()
        assert shown["name"] == name
        path = f"/v1/instances/{refuses.instance}/label"
        assert api("root", "POST", path, {"label": name}).json()["label"] == name
        found = api("root", "GET", f"/v1/instances?label={quote(name)}").json()["items"]
        assert [one["instance_id"] for one in found] == [refuses.instance]
    for name in ("", " ", " x", "x ", NUL, "a\nb", "a\x1bb", "a\x7fb", "x" * 65):
        refuses("POST /v1/accounts", {"name": name})
    for label in ("", NUL, "a\nb", "a\x1bb", "x" * 1_025):
        refuses("POST /v1/instances/{instance_id}/label", {"label": label})
        refuses("POST /v1/instances", {**GOOD["POST /v1/instances"], "label": label})


def test_references_are_short_and_plain(refuses: Refuses) -> None:
    """Ids of movements take no spaces, quotes, control characters, or more than 128 of anything."""
    for route in ("POST /v1/deposits", "POST /v1/refunds", "POST /v1/transfers", "POST /v1/holds"):
        for wrong in ("", " ", SQL, NUL, "a b", "a\n", "é", "x" * 129):
            refuses(route, {**GOOD[route], "id": wrong}, status={400, 422})
    for wrong in ("", SQL, NUL, "x" * 5_000):
        refuses("POST /v1/refunds", {**GOOD["POST /v1/refunds"], "deposit_id": wrong})


def test_machines_and_enrolments_are_checked(refuses: Refuses) -> None:
    """Names, keys and GPUs that cannot be are refused, and the token is good afterwards."""
    api = refuses.api
    for wrong in ("", "x" * 129, NUL, "a\nb"):
        refuses("POST /v1/machines", {**MACHINE, "gpu_name": wrong})
    refuses("POST /v1/machines", {**MACHINE, "gpus": 17}, status={422})
    number = api("root", "POST", "/v1/machines", MACHINE).json()["machine_id"]
    with api.market.ledger.unit() as unit:
        token = machines.offer_enrolment(unit, number)
    good = {"token": token, "public_key": "ab" * 32, "gpu_uuids": ["GPU-77"]}
    spoiled: dict[str, list[Any]] = {
        "token": ["", "x", NUL, SQL, "x" * 10_000],
        "public_key": ["", "ab" * 31, "AB" * 32, "zz" * 32, NUL, "ab" * 32 + "\n"],
        "gpu_uuids": [[], [""], [NUL], ["x" * 129], ["a", "a"], ["a", "b"], ["a"] * 17, [1]],
    }
    for name, values in spoiled.items():
        for wrong in values:
            refuses("POST /v1/enrolments", {**good, name: wrong})
    assert api(None, "POST", "/v1/enrolments", good).status_code == 201
    assert api(None, "POST", "/v1/enrolments", {**good, "public_key": "cd" * 32}).status_code == 401


def test_huge_bodies_are_413(refuses: Refuses) -> None:
    """A body above the limit is refused before it is read as JSON, on every route with a body."""
    for route, good in GOOD.items():
        raw = msgspec.json.encode({**good, "padding": "x" * 200_000})
        answer = refuses(route, raw, status={413})
        assert answer.json()["code"] == "too_large"


def test_launch_options_have_a_bound(refuses: Refuses) -> None:
    """Launch options over 64 KiB are refused; a NUL or an endless number in them is no crash."""
    api = refuses.api
    other = api.market.machine(host="bob")
    order = {"machine_id": other, "disk_gb": 1}
    refuses("POST /v1/instances", {**order, "launch": {"env": "x" * 70_000}}, status={400, 422})
    made = api("root", "POST", "/v1/instances", {**order, "launch": {"env": NUL, "n": 10**30}})
    assert made.status_code in {201, 400, 422}, made.text


def test_other_encodings_are_no_crash(refuses: Refuses) -> None:
    """A form, XML, msgpack or a wrong content type on a JSON route is a 4xx."""
    for kind in (
        "application/x-www-form-urlencoded",
        "multipart/form-data; boundary=x",
        "multipart/form-data",
        "text/xml",
        "application/msgpack",
        "image/png",
        "application/json; charset=utf-16",
        "nonsense",
        "",
    ):
        for raw in (b"name=x&name=y", b"--x\r\n\r\n--x--", b"\x81\xa4name", b"\xff", b""):
            refuses("POST /v1/accounts", raw, Content_Type=kind)


def test_a_key_for_repeats_is_printable_and_short(refuses: Refuses) -> None:
    """A key of 256 characters is refused, and one that looks like SQL is just a key."""
    refuses("POST /v1/accounts", {"name": "x"}, status={400}, Idempotency_Key="x" * 256)
    api = refuses.api
    for _ in range(2):
        made = api("root", "POST", "/v1/accounts", {"name": "x"}, Idempotency_Key=SQL)
        assert made.status_code == 201


# --- whatever else comes -------------------------------------------------------------------------

_TEXTS = st.text(max_size=8) | st.sampled_from(
    [SQL, NUL, "1", "0.5", "-1", "NaN", "1e30", "h-0", "2030-01-01T00:00:00Z", "renter", "USD"]
)
_SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-3, 3)
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | _TEXTS
)
_JSON = st.recursive(
    _SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner),
    max_leaves=5,
)
_OPERATIONS = [
    (method.upper(), path, [one["name"] for one in operation.get("parameters", [])])
    for path, methods in paths().items()
    for method, operation in methods.items()
]
_FIELDS = sorted({name for body in GOOD.values() for name in body} | {"launch", "label", "until"})


@st.composite
def _requests(draw: st.DrawFn) -> tuple[str, str, Any]:
    method, path, names = draw(st.sampled_from(_OPERATIONS))
    good = GOOD.get(f"{method} {path}", {})
    shaped = st.dictionaries(st.sampled_from(sorted(good) or _FIELDS), _JSON, max_size=2)
    body = draw(_JSON | shaped.map(lambda spoiled: {**good, **spoiled}))
    parts = st.sampled_from(["1", "h-0", "instance-1"]) | _TEXTS.filter(bool)
    path = re.sub(r"{[a-z_]+}", lambda _: quote(draw(parts), safe=""), path)
    query = "&".join(
        f"{name}={quote(draw(_TEXTS), safe='')}" for name in names if draw(st.integers(0, 3)) == 0
    )
    return method, f"{path}?{query}" if query else path, body


@settings(
    max_examples=examples(100),
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(request=_requests())
def test_no_request_whatever_is_a_500(api: Api, request: tuple[str, str, Any]) -> None:
    """Random paths, queries and JSON on every route are answered by 2xx, 4xx, and nothing else."""
    method, path, body = request
    for person in ("root", "alice"):
        answer = api(person, method, path, body)
        assert answer.status_code < 500, (request, answer.text)
        if answer.status_code >= 400:
            assert answer.json()["code"]
