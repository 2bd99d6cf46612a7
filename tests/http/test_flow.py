"""One rental over HTTP from end to end, and what the API says of itself."""

from __future__ import annotations

import html
import re
from decimal import Decimal
from typing import Any

import pytest

from ledger.domain.money import format_dollars
from ledger.errors import UnavailableError
from ledger.services import invoicing, policies
from tests.http.conftest import Api
from tests.http.test_access import TABLE, concrete, paths
from tests.support.market import DOLLAR, START

RFC_3339 = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")
DECIMAL = re.compile(r"-?(0|[1-9]\d*)(\.\d{1,9})?")


class Rental:
    """A rental that ran for ten minutes, was stopped for ten, and was destroyed."""

    def __init__(self, api: Api) -> None:
        """Do all of it over HTTP, the host's reports too."""
        self.api = api
        self.market = api.market
        self.machine = api.market.machine(host="bob")
        order = {"machine_id": self.machine, "disk_gb": 100, "label": "job"}
        self.created = self._ok(api("alice", "POST", "/v1/instances", order), 201)
        self.instance: int = self.created["instance_id"]
        self.market.confirm(self.machine, self.instance)
        self.market.run(self.machine, [self.instance], 600, up=2_000_000, down=1_000_000)
        self.running = self._ok(api("alice", "GET", self.path), 200)
        self.stopped = self._ok(api("alice", "POST", f"{self.path}/stop"), 200)
        self.market.run(self.machine, [self.instance], 60)
        self.market.run(self.machine, [self.instance], 540, state="stopped")
        self.destroyed = self._ok(api("alice", "DELETE", self.path), 200)
        self.market.project()

    @property
    def path(self) -> str:
        """Where the instance lies."""
        return f"/v1/instances/{self.instance}"

    @staticmethod
    def _ok(answer: Any, status: int) -> dict[str, Any]:
        assert answer.status_code == status, answer.text
        shown: dict[str, Any] = answer.json()
        return shown


@pytest.fixture
def rental(api: Api) -> Rental:
    """A rental that is over."""
    return Rental(api)


def items(api: Api, person: str, path: str) -> list[dict[str, Any]]:
    """All rows of a list that fits on a page."""
    joint = "&" if "?" in path else "?"
    shown = api(person, "GET", f"{path}{joint}limit=1000").json()
    assert shown["next_cursor"] is None
    found: list[dict[str, Any]] = shown["items"]
    return found


def test_the_answers_tell_kind_rates_and_what_goes_on_costing(rental: Rental) -> None:
    """Create is an object with kind and rates; stop says what storage costs an hour (API-06)."""
    created, stopped = rental.created, rental.stopped
    assert {name: created[name] for name in ("kind", "status", "label", "gpus")} == {
        "kind": "on_demand",
        "status": "loading",
        "label": "job",
        "gpus": 1,
    }
    assert [created[f"{name}_rate"] for name in ("gpu", "storage", "up", "down")] == [
        "0.36",
        "0.15",
        "0.003",
        "0.002",
    ]
    assert rental.running["status"] == "running"
    assert (stopped["status"], stopped["reason"]) == ("stopped", "renter")
    assert stopped["storage_rate_per_hour"] == format_dollars(
        150_000_000 * 100 * 3_600 // 2_592_000
    )
    assert rental.destroyed["status"] == "destroyed"
    for name in ("created_at", "first_run_at", "stopped_at", "destroyed_at"):
        assert RFC_3339.fullmatch(rental.destroyed[name]), name


def test_every_list_says_what_the_ledger_holds(rental: Rental) -> None:
    """Charges, instance, balance, transfers and trial balance agree with the tables to the nano."""
    api, market = rental.api, rental.market
    booked = market.charges(rental.instance)
    assert booked == {
        "gpu": 360_000_000 * 600 // 3_600,
        "storage": 150_000_000 * 100 * 1_200 // 2_592_000,
        "up": 3_600_000,
        "down": 1_200_000,
    }
    total = sum(booked.values())
    for by in ("segment", "hour"):
        shown = items(api, "alice", f"/v1/charges?instance_id={rental.instance}&by={by}")
        names = {"gpu": "gpu", "storage": "disk", "up": "bwu", "down": "bwd"}
        assert {one["item"]: one["amount"] for one in shown} == {
            names[meter]: format_dollars(amount) for meter, amount in booked.items()
        }
    instance = api("alice", "GET", rental.path).json()
    assert {meter: instance[f"{meter}_charge"] for meter in booked} == {
        meter: format_dollars(amount) for meter, amount in booked.items()
    }
    assert (instance["gpu_seconds"], instance["storage_seconds"]) == market.seconds(rental.instance)
    balance = api("alice", "GET", "/v1/balance").json()
    assert balance["available"] == format_dollars(100 * DOLLAR - total)
    assert balance["charged"] == format_dollars(total)
    assert (balance["accrued"], balance["burn_per_hour"]) == ("0", "0")
    fee = sum(Decimal(one["fee"]) for one in items(api, "alice", "/v1/charges"))
    usage = [
        one
        for one in items(api, "audrey", "/v1/transfers")
        if one["reference"] == f"instance-{rental.instance}"
    ]
    paid = {name: Decimal(0) for name in ("host_payable", "platform_fee")}
    for one in usage:
        assert (one["debit"], one["debit_account"]) == ("renter_credit", api.accounts["alice"])
        paid[one["credit"]] += Decimal(one["amount"])
    assert paid == {"host_payable": Decimal(total) / DOLLAR - fee, "platform_fee": fee}
    earned = api("bob", "GET", "/v1/balance").json()["host_payable"]
    assert Decimal(earned) == paid["host_payable"]
    trial = api("audrey", "GET", "/v1/trial-balance").json()
    debit = sum(Decimal(one["debit"]) for one in trial["rows"])
    credit = sum(Decimal(one["credit"]) for one in trial["rows"])
    assert debit == credit
    assert Decimal(trial["difference"]) == 0
    by_name = {one["ledger_account"]: one for one in trial["rows"]}
    assert Decimal(by_name["platform_fee"]["credit"]) == fee


def test_ticks_and_anomalies_say_what_was_attested_and_not_billed(rental: Rental) -> None:
    """All 1,200 seconds are listed; the running ones after the stop are an anomaly, unbilled."""
    api, market = rental.api, rental.market
    first = api("alice", "GET", f"{rental.path}/ticks?limit=1000").json()
    rest = api(
        "alice", "GET", f"{rental.path}/ticks?limit=1000&cursor={first['next_cursor']}"
    ).json()
    ticks = first["items"] + rest["items"]
    assert [one["state"] for one in ticks] == ["running"] * 660 + ["stopped"] * 540
    assert len({one["position"] for one in ticks}) == 1_200
    assert {one["machine_id"] for one in ticks} == {rental.machine}
    shown = items(api, "alice", f"/v1/anomalies?instance_id={rental.instance}")
    seconds = {
        one["code"]: (one["start"], one["until"]) for one in shown if one["code"] == "after_stop"
    }
    assert seconds == {"after_stop": ("2026-03-01T10:10:00Z", "2026-03-01T10:11:00Z")}
    assert market.anomalies(rental.instance)["after_stop"] == 60
    assert items(api, "bob", "/v1/anomalies") == items(api, "audrey", "/v1/anomalies")


def test_the_month_becomes_an_invoice(rental: Rental) -> None:
    """The invoice's lines are the charges, its cents add up, opening + movements - total closes."""
    api, market = rental.api, rental.market
    market.clock.move_to(START + 32 * 86_400)
    market.project()
    policies.run_due(market.ledger)
    market.project()
    invoicing.issue_due(market.ledger)
    market.project()
    head = items(api, "alice", "/v1/invoices")
    assert len(head) == 1
    assert head[0]["lines"] == []
    shown = api("alice", "GET", f"/v1/invoices/{head[0]['number']}").json()
    total = format_dollars(sum(market.charges(rental.instance).values()))
    assert shown["total"] == total
    assert sum(Decimal(one["amount"]) for one in shown["lines"]) == Decimal(total)
    assert sum(one["cents"] for one in shown["lines"]) == shown["total_cents"]
    assert Decimal(shown["opening"]) + Decimal(shown["movements"]) - Decimal(total) == Decimal(
        shown["closing"]
    )
    assert (shown["period_from"], shown["period_until"]) == (
        "2026-03-01T10:00:00Z",
        "2026-04-01T00:00:00Z",
    )


def test_a_second_create_does_not_hide_the_first(api: Api) -> None:
    """A create on a taken machine is told so, or waits in plain sight beside the first (API-01)."""
    machine = api.market.machine(host="bob")
    order = {"machine_id": machine, "disk_gb": 10, "label": "job"}
    first = api("alice", "POST", "/v1/instances", order).json()
    refused = api("alice", "POST", "/v1/instances", order)
    assert (refused.status_code, refused.json()["code"]) == (409, "no_capacity")
    waits = api("alice", "POST", "/v1/instances", {**order, "cancel_unavail": False})
    assert (waits.status_code, waits.json()["status"]) == (201, "scheduling")
    found = items(api, "alice", "/v1/instances?label=job")
    assert [one["instance_id"] for one in found] == [
        first["instance_id"],
        waits.json()["instance_id"],
    ]
    api("alice", "DELETE", f"/v1/instances/{first['instance_id']}")
    shown = api("alice", "GET", f"/v1/instances/{waits.json()['instance_id']}").json()
    assert shown["status"] == "loading"


def test_an_instance_that_never_ran_can_be_found(api: Api) -> None:
    """`first_run_at` is null until the first run, whatever the age (API-05)."""
    machine = api.market.machine(host="bob")
    order = {"machine_id": machine, "disk_gb": 10}
    made = api("alice", "POST", "/v1/instances", order).json()
    path = f"/v1/instances/{made['instance_id']}"
    api.market.run(machine, [made["instance_id"]], 120, state="loading")
    assert api("alice", "GET", path).json()["first_run_at"] is None
    api.market.confirm(machine, made["instance_id"])
    assert api("alice", "GET", path).json()["first_run_at"] == "2026-03-01T10:02:00Z"


def test_filters_are_not_ignored(rental: Rental) -> None:
    """A window of hours, an item's instance and a status each narrow their list (API-04)."""
    api = rental.api
    inside = "from=2026-03-01T10:00:00Z&until=2026-03-01T11:00:00Z"
    outside = "from=2026-03-01T11:00:00Z&until=2026-03-01T12:00:00Z"
    assert items(api, "alice", f"/v1/charges?by=hour&{inside}")
    assert items(api, "alice", f"/v1/charges?by=hour&{outside}") == []
    assert items(api, "alice", "/v1/charges?instance_id=999") == []
    assert items(api, "alice", "/v1/instances?status=running") == []
    assert len(items(api, "alice", "/v1/instances?status=destroyed")) == 1
    assert items(api, "audrey", f"/v1/instances?account_id={api.accounts['carol']}") == []


@pytest.mark.parametrize("currency", ["CLP", "EUR", "BHD", "usd", ""])
def test_no_other_currency_is_taken_for_dollars(api: Api, currency: str) -> None:
    """PRICE-13: another currency, with 0, 2 or 3 decimals, is refused by name; nothing changes."""
    head = api.market.head()
    body = {"name": "dora", "currency": currency}
    answer = api("root", "POST", "/v1/accounts", body)
    assert (answer.status_code, answer.json()["code"]) == (422, "currency_not_supported")
    assert api.market.head() == head


def test_a_list_never_answers_an_error_with_200(api: Api) -> None:
    """Every list says `items`, or is a problem document with an error status (API-01)."""
    for route in TABLE:
        method, path = route.split(" ")
        if method != "GET" or not path.startswith("/v1"):
            continue
        answer = api("root", method, concrete(path))
        if answer.status_code == 200:
            assert "code" not in answer.json()
            assert "detail" not in answer.json()
        else:
            assert answer.headers["content-type"].startswith("application/problem+json")


def test_times_and_amounts_travel_as_the_reference_says(rental: Rental) -> None:
    """Every field that the schema calls dollars is a plain decimal, every instant RFC 3339."""
    api = rental.api
    seen = 0
    for path in (
        "/v1/balance",
        "/v1/charges",
        "/v1/transfers",
        "/v1/instances",
        "/v1/machines",
        "/v1/anomalies",
        "/v1/trial-balance",
        "/v1/keys",
    ):
        for name, value in _leaves(api("root", "GET", path).json()):
            if value is None:
                continue
            if name.endswith(("_at", "from", "until", "hour")) and name != "burn_per_hour":
                if name.endswith("_per_hour"):
                    assert DECIMAL.fullmatch(value), (path, name, value)
                    continue
                assert RFC_3339.fullmatch(value), (path, name, value)
                seen += 1
            if name.endswith(("rate", "charge", "debit", "credit")) and name not in {
                "debit",
                "credit",
            }:
                assert DECIMAL.fullmatch(value), (path, name, value)
                seen += 1
    assert seen > 20


def _leaves(value: Any, name: str = "") -> list[tuple[str, Any]]:
    if isinstance(value, dict):
        return [leaf for key, one in value.items() for leaf in _leaves(one, key)]
    if isinstance(value, list):
        return [leaf for one in value for leaf in _leaves(one, name)]
    return [(name, value)]


def test_nothing_secret_or_personal_is_in_the_log(api: Api) -> None:
    """Names, launch options, keys and tokens are in no event, and an erased name is gone."""
    machine = api.market.machine(host="bob")
    order = {"machine_id": machine, "disk_gb": 1, "launch": {"env": {"TOKEN": "s3cret-launch"}}}
    assert api("alice", "POST", "/v1/instances", order).status_code == 201
    dora = api("root", "POST", "/v1/accounts", {"name": "dora-the-renter"}).json()["account_id"]
    key = api("alice", "POST", "/v1/keys", {"role": "renter"}).json()["key"]
    token = api("bob", "POST", f"/v1/machines/{machine}/enrolment-tokens").json()["token"]
    log = api("audrey", "GET", "/v1/events?limit=1000").text
    for secret in ("s3cret-launch", "dora-the-renter", '"alice"', key.split("_", 2)[2], token):
        assert secret not in log, secret
    gone = api("root", "DELETE", f"/v1/accounts/{dora}/personal-data").json()
    assert gone["name"] is None
    assert RFC_3339.fullmatch(gone["erased_at"])
    assert api("root", "GET", f"/v1/accounts/{dora}").json()["name"] is None


# --- what the API says of itself -----------------------------------------------------------------


def test_every_operation_is_described(api: Api) -> None:
    """Each route has a summary, a description, one tag of the list, security, and error bodies."""
    schema = api.client.get("/openapi.json").json()
    assert schema["openapi"].startswith("3.")
    tags = {one["name"] for one in schema["tags"]}
    summaries = []
    for path, methods in schema["paths"].items():
        for method, one in methods.items():
            where = (method, path)
            summaries.append(one["summary"])
            assert one["description"].strip().endswith("."), where
            assert len(one["tags"]) == 1, where
            assert set(one["tags"]) <= tags, where
            assert one["security"], where
            for parameter in one.get("parameters", []):
                assert parameter["schema"], where
            if not path.startswith("/v1"):
                continue
            errors = {int(status) for status in one["responses"] if int(status) >= 400}
            # Who fetches by an address that only it knows shows no key, and sends nothing else.
            is_open = method == "get" and one["security"] == [{}]
            assert ({400, 404, 503} if is_open else {400, 401, 503}) <= errors, where
            only_asks = "needs no `Idempotency-Key`" in one["description"]
            assert 404 in errors or only_asks, where
            for status in errors:
                assert list(one["responses"][str(status)]["content"]) == [
                    "application/problem+json"
                ], where
    assert len(summaries) == len(TABLE)
    assert schema["components"]["securitySchemes"]["key"]["scheme"] == "bearer"


def test_references_of_the_schema_lead_somewhere(api: Api) -> None:
    """Each $ref of the published schema names a component that is there."""
    text = api.client.get("/openapi.json").text
    known = set(api.client.get("/openapi.json").json()["components"]["schemas"])
    found = set(re.findall(r'"#/components/schemas/([^"]+)"', text))
    assert found
    assert found <= known


def test_the_readable_page_needs_nothing_from_elsewhere(api: Api) -> None:
    """/docs shows each method and path with its summary, and loads no script or other host."""
    page = api.client.get("/docs")
    assert page.headers["content-type"].startswith("text/html")
    assert api.client.get("/").text == page.text
    for path, methods in paths().items():
        for method, one in methods.items():
            assert f"{method.upper()}</b> <code>{path}</code>" in page.text, (method, path)
            assert html.escape(one["summary"]) in page.text
    for foreign in ("http://", "https://", "<script", "<link", "src="):
        assert foreign not in page.text, foreign


def test_health_and_metrics(rental: Rental) -> None:
    """The server is alive and ready, and counts requests, reports and the log's positions."""
    api = rental.api
    for path in ("/healthz", "/readyz"):
        answer = api.client.get(path)
        assert (answer.status_code, answer.text) == (200, "ok\n")
    api.usage(api.market.seal(rental.machine, api.market.clock(), 0))
    api.market.project()
    text = api.client.get("/metrics").text
    assert f"gpuledger_log_position {float(api.market.head())}" in text
    assert "gpuledger_usage_lag 0.0" in text
    assert 'gpuledger_reports_total{status="accepted"} 1.0' in text
    assert 'gpuledger_requests_total{status="200"}' in text
    assert "alice" not in text


def test_a_lost_database_is_503(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without its database the server is alive, not ready, and says when to try again."""
    api("root", "POST", "/v1/accounts", {"name": "x"}, Idempotency_Key="before")

    def lost(*_: object, **__: object) -> None:
        message = "gone"
        raise UnavailableError("database_unavailable", message)

    with monkeypatch.context() as patch:
        patch.setattr(type(api.market.ledger), "reading", lost)
        patch.setattr(type(api.market.ledger.database), "check", lost)
        for path in ("/readyz", "/v1/me", "/v1/accounts", "/metrics"):
            answer = api("root", "GET", path)
            assert (answer.status_code, answer.json()["code"]) == (503, "database_unavailable")
            assert answer.headers["retry-after"]
        assert api.client.get("/healthz").status_code == 200
    assert api("root", "GET", "/v1/me").status_code == 200
