"""Timelines over the API: data and pictures, for those whose they are."""

from __future__ import annotations

import pytest

from tests.http.conftest import Api


@pytest.fixture
def ids(api: Api) -> tuple[int, int]:
    """Alice's instance with a label that is no markup, on Bob's machine."""
    market = api.market
    machine = market.machine()
    one = market.rent(api.accounts["alice"], machine, label="<script>alert(1)</script> $x$")
    market.confirm(machine, one)
    market.run(machine, [one], 120)
    market.project()
    return one, machine


@pytest.mark.parametrize(
    ("query", "media_type", "begins"),
    [
        ("", "application/json", b"{"),
        ("?form=svg", "image/svg+xml", b"<?xml"),
        ("?form=png", "image/png", b"\x89PNG"),
        ("?form=pdf", "application/pdf", b"%PDF"),
    ],
)
def test_a_timeline_comes_as_data_or_as_a_picture(
    api: Api, ids: tuple[int, int], query: str, media_type: str, begins: bytes
) -> None:
    """By its form; the renter sees the instance and the spending, the host the machine."""
    instance, machine = ids
    for who, path in (
        ("alice", f"/v1/instances/{instance}/timeline"),
        ("alice", "/v1/spend/timeline"),
        ("root", f"/v1/machines/{machine}/timeline"),
    ):
        answer = api(who, "GET", path + query)
        assert answer.status_code == 200, answer.text
        assert answer.headers["content-type"] == media_type
        assert answer.content.startswith(begins)


def test_a_label_is_text_in_a_picture(api: Api, ids: tuple[int, int]) -> None:
    """Whatever it says, it is neither markup nor a formula."""
    answer = api("alice", "GET", f"/v1/instances/{ids[0]}/timeline?form=svg")
    assert "<script" not in answer.text
    assert "&lt;script&gt;alert(1)&lt;/script&gt; $x$" in answer.text
    assert "default-src 'none'" in answer.headers["content-security-policy"]


def test_the_data_have_dollars_and_instants(api: Api, ids: tuple[int, int]) -> None:
    """As everywhere in this API."""
    answer = api("alice", "GET", f"/v1/instances/{ids[0]}/timeline").json()
    assert answer["running"] == [{"start": "2026-03-01T10:00:00Z", "until": "2026-03-01T10:02:00Z"}]
    assert answer["costs"][0]["gpu_charge"] == "0.012"


def test_nobody_elses_timeline_is_found(api: Api, ids: tuple[int, int]) -> None:
    """Not another renter's, not another host's, and a renter sees no machine."""
    instance, machine = ids
    assert api("carol", "GET", f"/v1/instances/{instance}/timeline?form=svg").status_code == 404
    assert api("eve", "GET", f"/v1/machines/{machine}/timeline").status_code == 404
    assert api("alice", "GET", f"/v1/machines/{machine}/timeline").status_code == 403
    other = api.accounts["alice"]
    assert api("carol", "GET", f"/v1/spend/timeline?account_id={other}").status_code == 404
    assert api("audrey", "GET", f"/v1/spend/timeline?account_id={other}").status_code == 200


def test_an_empty_window_is_refused(api: Api, ids: tuple[int, int]) -> None:
    """With the rule in words."""
    query = "?from=2026-03-01T10:00:00Z&until=2026-03-01T10:00:00Z"
    answer = api("alice", "GET", f"/v1/instances/{ids[0]}/timeline{query}&form=svg")
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid_args")
