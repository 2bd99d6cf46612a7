"""What every endpoint has in common: paths, content type, errors, roles; and the folder can go."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable
from typing import Any

import pytest
from litestar.testing import TestClient

import adapters.http.app as application
from adapters.http.vast.errors import translated
from ledger.errors import (
    ConflictError,
    CorruptHistoryError,
    DeclinedError,
    LedgerError,
    NotFoundError,
    RejectedError,
    UnavailableError,
)
from tests.http.conftest import Api
from tests.vast.captured import CREATE
from tests.vast.test_instances import ok, refused

BASE = "http://testserver.local"
READS = (
    "/api/v0/gpu_names/unique",
    "/api/v0/users/current",
    "/api/v0/instances",
    "/api/v1/instances",
    "/api/v0/charges",
    "/api/v1/invoices",
    "/api/v0/invoices",
    "/api/v0/machines",
    "/api/v0/machines/maintenances",
    "/api/v0/users/me/invoices",
    "/api/v0/users/me/machine-earnings",
    "/api/v0/subaccounts",
    "/api/v0/auth/apikeys",
    "/api/v0/instances/filters",
    "/api/v0/instances/pending-price-increases",
    "/api/v0/volumes",
    "/api/v0/template",
    "/api/v0/secrets",
    "/api/v0/ssh",
    "/api/v0/commands/schedule_job",
)


def test_slashes_do_not_matter(api: Api) -> None:
    """With and without a slash at the end, and with two in front, the answer is the same 200."""
    for path in READS:
        spelled = (path, path + "/", "/" + path, f"/{path}/")
        answers = [ok(api("alice", "GET", BASE + one)) for one in spelled]
        assert all(one == answers[0] for one in answers), path


BROKEN: tuple[tuple[str, str, Any, int, str], ...] = (
    ("GET", "/api/v0/no/such", None, 404, "not_found"),
    ("GET", "/api/", None, 404, "not_found"),
    ("PUT", "/api/v0/instances/x/", {}, 404, "not_found"),
    ("POST", "/api/v0/instances/1/", {}, 405, "method_not_allowed"),
    ("PUT", "/api/v0/asks/1/", b"{", 400, "invalid_args"),
    ("PUT", "/api/v0/asks/1/", b"[1]", 400, "invalid_args"),
    ("PUT", "/api/v0/asks/1/", b"\xff", 400, "invalid_args"),
    ("PUT", "/api/v0/asks/1/", b"[" * 50_000, 400, "invalid_args"),
    ("PUT", "/api/v0/asks/1/", b'{"price": NaN}', 400, "invalid_args"),
    ("PUT", "/api/v0/asks/99999999999999999999/", CREATE, 404, "invalid_args"),
    ("PUT", "/api/v0/asks/1/", b" " * 200_000, 413, "too_large"),
    ("PUT", "/api/v0/instances/", {"state": "running", "ids": []}, 400, "invalid_args"),
    ("PUT", "/api/v0/instances/1/", {}, 400, "invalid_args"),
)


def test_every_error_is_an_object(api: Api) -> None:
    """C30: a path, method or body that cannot be gets an object with `error` and `msg`."""
    for method, path, body, status, error in BROKEN:
        refused(api("alice", method, path, body), status, error)


def test_outside_of_api_errors_stay_native(api: Api) -> None:
    """The native API keeps its problem documents."""
    answer = api("alice", "GET", "/v1/no-such")
    assert answer.headers["content-type"] == "application/problem+json"


def test_a_defect_is_told_without_its_inside(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """An unexpected failure is a 500 in the same form, and says nothing of its cause."""

    def fail(*_: Any) -> Any:
        message = "secret inside"
        raise RuntimeError(message)

    monkeypatch.setattr("ledger.services.questions.hosted.gpu_names", fail)
    monkeypatch.setattr("adapters.http.vast.offers.hosted.gpu_names", fail)
    body = refused(api(None, "GET", "/api/v0/gpu_names/unique/"), 500, "internal_error")
    assert "secret" not in json.dumps(body)


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (DeclinedError("insufficient_credit", "x"), 400, "insufficient_credit"),
        (DeclinedError("no_capacity", "x"), 410, "no_such_ask"),
        (NotFoundError("no_such_ask", "x"), 404, "invalid_args"),
        (RejectedError("not_running", "x"), 400, "not_running"),
        (RejectedError("contract_expired", "x"), 400, "contract_expired"),
        (RejectedError("volume_in_use", "x"), 400, "volume_in_use"),
        (RejectedError("has_contracts", "x"), 400, "has_contracts"),
        (NotFoundError("no_such_instance", "x"), 404, "no_such_instance"),
        (ConflictError("idempotency_in_flight", "x"), 409, "idempotency_in_flight"),
        (UnavailableError("database_unavailable", "x"), 503, "database_unavailable"),
        (CorruptHistoryError("corrupt_history", "x"), 500, "corrupt_history"),
    ],
)
def test_the_table_of_errors(error: LedgerError, status: int, code: str) -> None:
    """Each code of the core has one status and one code here; only what may pass is retried."""
    assert translated(error)[:2] == (status, code)


WITHOUT_MEANING = (
    ("GET", "/api/v0/endptjobs/"),
    ("POST", "/api/v0/autojobs/"),
    ("GET", "/api/v0/tfa/status/"),
    ("GET", "/api/v0/benchmarks"),
    ("PUT", "/api/v0/commands/copy_direct/"),
    ("POST", "/api/v0/commands/rclone/"),
    ("POST", "/api/v0/instances/take_snapshot/1/"),
    ("PUT", "/api/v0/instances/command/1/"),
    ("GET", "/api/v0/deployments"),
    ("GET", "/api/v0/team/members/"),
    ("POST", "/api/v0/users/"),
    ("GET", "/api/v0/network_disk/"),
    ("PUT", "/api/v0/network_volumes/"),
    ("GET", "/api/v0/instance_backups/"),
    ("PUT", "/api/v0/machines/create_bids/"),
    ("DELETE", "/api/v0/machines/1/defjob/"),
    ("GET", "/api/v0/metrics/gpu/history/"),
    ("GET", "/api/v0/clusters/"),
)


def test_what_has_no_meaning_says_what_to_use(api: Api) -> None:
    """A command without a counterpart is a 400 with a text, and needs a key like any other."""
    for method, path in WITHOUT_MEANING:
        body = refused(api("alice", method, path, {}), 400, "unsupported")
        assert len(body["msg"]) > 20
        refused(api(None, method, path, {}), 401, "auth_error")


def test_keys_and_roles(api: Api) -> None:
    """C5: no key, a wrong one and one of another role are three different answers."""
    for path, method in (("/api/v0/asks/1/", "PUT"), ("/api/v0/instances/1/", "DELETE")):
        refused(api(None, method, path, CREATE), 401, "auth_error")
        refused(api("glk_no", method, path, CREATE), 401, "auth_error")
        refused(api("bob", method, path, CREATE), 403, "not_authorized")


def test_the_certificates_are_served(api: Api) -> None:
    """`AsyncClient` finds a bundle of certificates, without a key."""
    answer = api(None, "GET", "/static/jvastai_root.cer")
    assert answer.text.count("BEGIN CERTIFICATE") > 10


def test_without_the_folder_the_rest_works(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """Taking the frontend away takes its endpoints away and nothing else."""
    find: Callable[..., Any] = importlib.util.find_spec
    monkeypatch.setattr(
        application,
        "find_spec",
        lambda name: None if name == "adapters.http.vast" else find(name),
    )
    with TestClient(application.create_app(api.market.ledger, api.market.usage)) as client:
        key = {"Authorization": f"Bearer {api.keys['alice']}"}
        assert client.get("/api/v0/users/current", headers=key).status_code == 404
        assert client.get("/v1/me", headers=key).status_code == 200
        assert client.get("/healthz").status_code == 200
