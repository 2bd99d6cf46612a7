"""`/v1/calculators`: the same numbers as the library, for every role, without a trace."""

from __future__ import annotations

from typing import Any

import pytest

from adapters.http.native import calculators
from tests.http.conftest import Api
from tests.http.test_access import paths

REQUESTS: dict[str, dict[str, Any]] = {
    "useful-hour": calculators.UsefulHourRequest.EXAMPLE,
    "memory": calculators.MemoryRequest.EXAMPLE,
    "transfer": calculators.TransferRequest.EXAMPLE,
    "budget": calculators.BudgetRequest.EXAMPLE,
}
OFFER: dict[str, Any] = {
    "offer_id": 7,
    "gpu_name": "RTX 4090",
    "gpus": 1,
    "on_demand_dollars_per_hour": 0.5,
    "interruptible_dollars_per_hour": 0.25,
    "interruptions_per_hour": 0.125,
}
JOB: dict[str, Any] = {
    "useful_hours": 40,
    "interval_minutes": 20,
    "write_minutes": 1,
    "restart_minutes": 15,
    "setup_minutes": 15,
}


def ask(api: Api, name: str, body: dict[str, Any], who: str = "alice") -> Any:
    """The answer of one calculator, which must be 200."""
    answer = api(who, "POST", f"/v1/calculators/{name}", body)
    assert answer.status_code == 200, answer.text
    return answer.json()


@pytest.fixture
def api(still: Api) -> Api:
    """One market for all of them: a calculator changes nothing."""
    return still


def test_the_examples_of_the_reference_work_for_every_role(api: Api) -> None:
    """Renter, host, auditor and admin get the same answer, and nothing is stored."""
    head = api.market.head()
    for name, body in REQUESTS.items():
        answers = [ask(api, name, body, who) for who in ("alice", "bob", "audrey", "root")]
        assert answers == [answers[0]] * 4
    assert api.market.head() == head


def test_offers_are_compared_and_ranked(api: Api) -> None:
    """$11.14 by a bid against $20.125, after the offer that costs $8 on demand."""
    cheap = {**OFFER, "offer_id": 8, "on_demand_dollars_per_hour": 0.2}
    del cheap["interruptible_dollars_per_hour"]
    found = ask(api, "useful-hour", {**JOB, "offers": [OFFER, cheap]})["items"]
    assert [one["offer"]["offer_id"] for one in found] == [8, 7]
    assert [one["advised"] for one in found] == ["on_demand", "interruptible"]
    assert found[1]["interruptible"]["estimate"]["cost_dollars"] == pytest.approx(11.14, abs=0.005)
    assert found[1]["on_demand"]["estimate"]["cost_dollars"] == pytest.approx(20.125)
    assert found[1]["break_even"]["interruptions_per_hour"] == pytest.approx(1.497, abs=0.0005)
    assert found[1]["job"]["useful_hours"] == 40
    assert "offers" not in found[1]["job"]
    assert "λ" in found[1]["formula"]


def test_cannot_meet_it_and_never_are_answers(api: Api) -> None:
    """A deadline that is too near, and a rate of which nothing is ever finished, are 200."""
    (late,) = ask(api, "useful-hour", {**JOB, "deadline_hours": 10, "offers": [OFFER]})["items"]
    assert (late["advised"], late["deadline"]) == (None, "cannot meet it")
    often = {**OFFER, "interruptions_per_hour": 1e6}
    (never,) = ask(api, "useful-hour", {**JOB, "offers": [often]})["items"]
    assert never["interruptible"]["estimate"]["finishes"] is False
    assert never["interruptible"]["estimate"]["cost_dollars"] is None
    assert never["advised"] == "on_demand"


def test_memory_says_what_fits(api: Api) -> None:
    """112 GB of states, split over eight H100 by ZeRO 3; not on one RTX 4090."""
    found = ask(api, "memory", REQUESTS["memory"])
    assert found["memory"]["times_weights"] == 8
    assert found["memory"]["activations_bytes"] / 2**30 == pytest.approx(17.0)
    assert [one["fits"] for one in found["fits"]] == [False, True]
    assert ask(api, "memory", {"parameters": 7, "recipe": "adam_fp32"})["fits"] == []
    assert "gpus" not in found["memory"]["inputs"]


def test_transfer_and_budget(api: Api) -> None:
    """The numbers of §17.1: 10 000 s, $1.11 and $1.50, and twice that in a budget."""
    found = ask(api, "transfer", REQUESTS["transfer"])
    assert found["once"]["seconds"] == pytest.approx(10_000)
    assert found["once"]["gpu_dollars"] == pytest.approx(1.11, abs=0.005)
    assert found["with_failed_attempt"]["traffic_dollars"] == pytest.approx(3)
    planned = ask(api, "budget", REQUESTS["budget"])
    parts = {one["part"]: one["cost_dollars"] for one in planned["parts"]}
    assert parts["failed attempt"] == pytest.approx(parts["setup"] + parts["transfer"])


@pytest.mark.parametrize(
    ("name", "wrong", "named"),
    [
        ("transfer", {"link_mbps": 0}, "link_mbps"),
        ("transfer", {"link_mbps": -1}, "link_mbps"),
        ("transfer", {"size_bytes": 1.5}, "size_bytes"),
        ("transfer", {"dollars_per_hour": "much"}, "dollars_per_hour"),
        ("transfer", {"colour": 1}, "colour"),
        ("budget", {"dollars_per_hour": 0}, "dollars_per_hour"),
        ("budget", {"link_mbps": None}, "link_mbps"),
        ("memory", {"recipe": "magic"}, "recipe"),
        ("memory", {"layers": 0}, "layers"),
        ("memory", {"zero_stage": 4}, "zero_stage"),
        ("memory", {"gpus": [{"name": "any", "vram_gb": 0}]}, "gpus"),
        ("useful-hour", {"useful_hours": 1e13}, "useful_hours"),
        ("useful-hour", {"offers": []}, "offers"),
        ("useful-hour", {"offers": [OFFER] * 101}, "offers"),
        ("useful-hour", {"offers": [{**OFFER, "reliability_lower_bound": 2}]}, "offers"),
        ("useful-hour", {"download_bytes": 10}, "down_mbps"),
    ],
)
def test_bad_input_is_named(api: Api, name: str, wrong: dict[str, Any], named: str) -> None:
    """Zero, negative, unknown or incomplete: 400 `invalid_args`, which names the field."""
    answer = api("alice", "POST", f"/v1/calculators/{name}", {**REQUESTS[name], **wrong})
    assert answer.status_code == 400, answer.text
    assert answer.json()["code"] == "invalid_args"
    assert named in answer.json()["detail"]


def test_numbers_that_json_does_not_have_are_refused(api: Api) -> None:
    """NaN, Infinity and 1e999 never reach a formula."""
    for number in (b"NaN", b"Infinity", b"-Infinity", b"1e999", b"1" + b"0" * 400):
        body = b'{"size_bytes": 1, "link_mbps": ' + number + b"}"
        answer = api("alice", "POST", "/v1/calculators/transfer", body)
        assert answer.status_code == 400, answer.text


def test_a_hundred_offers_are_answered(api: Api) -> None:
    """The largest request that is taken is answered in full."""
    offers = [{**OFFER, "offer_id": number} for number in range(1, 101)]
    found = ask(api, "useful-hour", {**JOB, "offers": offers})["items"]
    assert [one["offer"]["offer_id"] for one in found] == list(range(1, 101))


def test_the_reference_says_that_nothing_is_changed() -> None:
    """The four routes show an example, and ask for no Idempotency-Key."""
    for name, example in REQUESTS.items():
        route = paths()[f"/v1/calculators/{name}"]["post"]
        assert "changes nothing" in route["description"]
        assert route.get("parameters", []) == []
        (media,) = route["requestBody"]["content"].values()
        assert media["example"] == example
