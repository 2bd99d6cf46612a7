"""`gpuledger calc`: estimates that need no ledger, with their formula and inputs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_args

import pytest

from adapters.cli import calc
from adapters.cli.calc_shown import print_job_costs
from adapters.cli.main import run
from ledger.domain.estimate import LEAST, LIMIT
from ledger.domain.job_cost import Job, JobOffer
from ledger.domain.sizing import Recipe
from tests.cli.conftest import Result

USEFUL_HOUR = {
    "--useful-hours": 40,
    "--on-demand": 0.50,
    "--interruptible": 0.25,
    "--interruptions-per-hour": 0.125,
    "--interval-minutes": 20,
    "--write-minutes": 1,
    "--restart-minutes": 15,
    "--setup-minutes": 15,
}
MEMORY = {"--billions": 7, "--recipe": "adam_mixed"}
TRANSFER = {"--gb": 500, "--mbps": 500, "--price": 0.40, "--traffic-price": 0.003}
BUDGET = {
    "--work-hours": 40,
    "--price": 0.40,
    "--setup-minutes": 15,
    "--download-gb": 500,
    "--down-mbps": 500,
    "--down-price": 0.003,
}


class Calc:
    """`gpuledger calc` in a place where there is no ledger."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        """Read what the commands print."""
        self.capsys = capsys

    def __call__(self, command: str, options: Mapping[str, object], *more: object) -> Result:
        """One command with *options*, and *more* as it is typed."""
        given = [str(part) for option in options.items() for part in option]
        self.capsys.readouterr()
        code = run(["calc", command, *given, *map(str, more)])
        return Result(code, *self.capsys.readouterr())

    def json(self, command: str, options: Mapping[str, object], *more: object) -> Any:
        """The answer of a command that succeeds, as JSON."""
        answer = self(command, options, *more, "--json")
        assert (answer.code, answer.err) == (0, "")
        return answer.json


@pytest.fixture
def calculate(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Calc:
    """The command line, far from any ledger."""
    monkeypatch.delenv("GPULEDGER_DATABASE_URL", raising=False)
    monkeypatch.setenv("GPULEDGER_HOME", str(tmp_path / "nowhere"))
    return Calc(capsys)


# --- answers -------------------------------------------------------------------------------------


def test_a_useful_hour_in_json(calculate: Calc) -> None:
    """The numbers of the table, the break-even, the advice, the formula and the inputs."""
    (found,) = calculate.json("useful-hour", USEFUL_HOUR)
    assert found["interruptible"]["estimate"]["cost_dollars"] == pytest.approx(11.14, abs=0.005)
    assert found["on_demand"]["estimate"]["cost_dollars"] == pytest.approx(20.125)
    assert found["break_even"]["interruptions_per_hour"] == pytest.approx(1.497, abs=0.0005)
    assert found["advised"] == "interruptible"
    assert found["job"]["interval_minutes"] == 20
    assert found["offer"]["on_demand_dollars_per_hour"] == 0.50
    assert "e^(λR)" in found["formula"]


def test_a_useful_hour_for_people(calculate: Calc) -> None:
    """Both kinds side by side, and below them advice, break-even, formula and inputs."""
    shown = calculate("useful-hour", USEFUL_HOUR, "--interruptions", 5).out
    for part in (
        "cost, $                          11.14      20.12",
        "running, h                       44.30      40.00",
        "running, first order, h          44.36",
        "good interval, min                31.0",
        "advice ",
        "1.497 interruptions an hour, a mean run of 40.1 min",
        "5 interruptions: 42.333 h",
        "e^(λR)",
        "interval_minutes 20.0",
        "on_demand_dollars_per_hour 0.5",
    ):
        assert part in shown, part


def test_a_deadline_that_cannot_be_met_is_an_answer(calculate: Calc) -> None:
    """It exits 0 and says `cannot meet it`."""
    answer = calculate("useful-hour", {**USEFUL_HOUR, "--deadline-hours": 10})
    assert answer.code == 0
    assert "cannot meet it: on demand it takes 40.2 h" in answer.out


def test_a_job_that_must_not_be_interrupted_is_told_so(calculate: Calc) -> None:
    """The advice is on demand, with its reason, and no cost of a bid is shown."""
    (found,) = calculate.json("useful-hour", USEFUL_HOUR, "--uninterruptible")
    assert (found["advised"], found["interruptible"]) == ("on_demand", None)
    assert "cannot be interrupted safely" in found["advice"]


def test_what_never_finishes_is_an_answer(calculate: Calc) -> None:
    """A million interruptions an hour: no traceback, no endless number."""
    often = {**USEFUL_HOUR, "--interruptions-per-hour": 1e6}
    answer = calculate("useful-hour", often)
    assert answer.code == 0
    assert "never finishes" in answer.out
    (found,) = calculate.json("useful-hour", often)
    assert found["interruptible"]["estimate"]["finishes"] is False


def test_offers_are_shown_as_a_ranked_table(capsys: pytest.CaptureFixture[str]) -> None:
    """Several offers are one line each, cheapest first, then their advice; names cannot forge."""
    job = Job(useful_hours=40, interval_minutes=20, write_minutes=1)
    offers = [
        JobOffer(offer_id=8, gpu_name="RTX 4090", gpus=2, on_demand_dollars_per_hour=1),
        JobOffer(offer_id=9, gpu_name="A\x1b[31m\nB", gpus=1, on_demand_dollars_per_hour=0.5),
    ]
    print_job_costs(job, offers, as_json=False)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == [
        "offer", "gpus", "advised", "cost", "per_useful_h", "wall_h", "on_demand", "bid"
    ]  # fmt: skip
    assert [line.split()[0] for line in lines[1:3]] == ["9", "8"]
    assert "\x1b" not in lines[1]
    assert any(line.startswith("offer 9  on demand: offer 9 takes no bids") for line in lines)
    print_job_costs(job, [], as_json=False)
    assert capsys.readouterr().out == "no offer matches\n"
    print_job_costs(job, offers, as_json=True)
    assert [one["offer"]["offer_id"] for one in json.loads(capsys.readouterr().out)] == [9, 8]


def test_a_transfer(calculate: Calc) -> None:
    """10 000 s, $1.11 and $1.50; twice that when the first attempt fails."""
    found = calculate.json("transfer", TRANSFER)
    assert found["once"]["seconds"] == pytest.approx(10_000)
    assert found["with_failed_attempt"]["traffic_dollars"] == pytest.approx(3)
    shown = calculate("transfer", TRANSFER).out
    for part in ("10,000  1.11     1.50  2.61", "20,000  2.22     3.00  5.22", "link_mbps 500.0"):
        assert part in shown


def test_a_budget(calculate: Calc) -> None:
    """Four parts, and what they come to with and without the failed attempt."""
    found = calculate.json("budget", BUDGET)
    parts = ["setup", "transfer", "work", "failed attempt"]
    assert [one["part"] for one in found["parts"]] == parts
    assert found["cost_dollars"] == pytest.approx(21.4222, abs=0.0001)
    shown = calculate("budget", BUDGET).out
    for part in ("$21.42, 46.06 h", "$18.71", "work_hours 40.0", "failed attempt = setup"):
        assert part in shown


def test_a_budget_s_disk_is_paid_by_the_hour(calculate: Calc) -> None:
    """100 GB at $0.15 a month of 720 h are $0.0208 an hour."""
    found = calculate.json("budget", {**BUDGET, "--disk-gb": 100, "--storage-price": 0.15})
    assert found["inputs"]["storage_dollars_per_hour"] == pytest.approx(0.15 * 100 / 720)


def test_memory_and_what_it_fits_on(calculate: Calc) -> None:
    """7 B in mixed precision: 112 GB of states; with ZeRO 3 on eight H100 and on no RTX 4090."""
    gpus = ["--gpu", "RTX 4090:24", "--gpu", "H100:80:8", "--zero-stage", 3]
    found = calculate.json("memory", MEMORY, *gpus)
    assert found["memory"]["states_bytes"] == 112 * 10**9
    assert [(one["name"], one["gpus"], one["fits"]) for one in found["fits"]] == [
        ("RTX 4090", 1, False),
        ("H100", 8, True),
    ]
    shown = calculate("memory", MEMORY, *gpus).out
    for part in (
        "needed per GPU",
        "8.00 times the weights",
        "3 times the weights",
        "short by",
        "to spare",
        "activations: sequence, batch",
        "parameters 7000000000",
    ):
        assert part in shown, part


def test_memory_of_a_shape(calculate: Calc) -> None:
    """GPT-3's activations with selective recomputation, and Llama-2's cache, from options."""
    shape = {"--billions": 175, "--layers": 96, "--hidden": 12_288, "--heads": 96}
    found = calculate.json(
        "memory",
        {**shape, "--recipe": "adam_mixed", "--sequence": 2_048, "--recompute": "selective"},
    )
    assert found["memory"]["activations_bytes"] / 2**30 == pytest.approx(76.5)
    llama = {"--billions": 7, "--layers": 32, "--hidden": 4_096, "--heads": 32}
    cache = {**llama, "--recipe": "inference", "--kv-tokens": 4_096}
    assert calculate.json("memory", cache)["memory"]["kv_bytes"] / 2**30 == pytest.approx(2)


# --- mistakes ------------------------------------------------------------------------------------

COMMANDS: dict[str, Mapping[str, object]] = {
    "useful-hour": USEFUL_HOUR,
    "memory": MEMORY,
    "transfer": TRANSFER,
    "budget": BUDGET,
}


@pytest.mark.parametrize("value", ["-1", "nan", "inf", "-inf", "1e13", "x", ""])
@pytest.mark.parametrize(
    ("command", "option"),
    [
        (command, option)
        for command, options in COMMANDS.items()
        for option in options
        if option != "--recipe"
    ],
)
def test_numbers_out_of_range_exit_2_and_name_the_option(
    calculate: Calc, command: str, option: str, value: str
) -> None:
    """Negative, NaN, endless, too large, a word: one line that names what was wrong."""
    answer = calculate(command, {**COMMANDS[command], option: value})
    assert (answer.code, answer.out) == (2, "")
    assert answer.err.startswith("error: ")
    assert answer.err.count("\n") == 1
    assert option in answer.err


@pytest.mark.parametrize(
    ("command", "option"),
    [
        ("useful-hour", "--on-demand"),
        ("useful-hour", "--interruptible"),
        ("useful-hour", "--useful-hours"),
        ("useful-hour", "--interval-minutes"),
        ("memory", "--billions"),
        ("memory", "--batch"),
        ("transfer", "--mbps"),
        ("budget", "--price"),
        ("budget", "--down-mbps"),
    ],
)
def test_zero_where_it_makes_no_sense_exits_2(calculate: Calc, command: str, option: str) -> None:
    """A price, a link, an interval or a model of nothing is refused."""
    answer = calculate(command, {**COMMANDS[command], option: 0})
    assert (answer.code, answer.out) == (2, "")
    assert option in answer.err


@pytest.mark.parametrize(
    ("command", "more", "told"),
    [
        ("useful-hour", ["--download-gb", "5"], "down_mbps"),
        ("useful-hour", ["--reliability", "1.5"], "--reliability"),
        ("memory", ["--gpu", "H100"], "--gpu"),
        ("memory", ["--gpu", "H100:many"], "--gpu"),
        ("memory", ["--gpu", "H100:80:0"], "gpus"),
        ("memory", ["--sequence", "2048"], "layers"),
        ("memory", ["--weight-bytes", "1"], "weight_bytes"),
        ("memory", ["--zero-stage", "4"], "--zero-stage"),
        ("memory", ["--recipe", "magic"], "--recipe"),
        ("transfer", ["--colour", "red"], "--colour"),
    ],
)
def test_what_does_not_go_together_exits_2(
    calculate: Calc, command: str, more: list[str], told: str
) -> None:
    """Missing links, unknown recipes, GPUs without memory: one line, exit code 2."""
    answer = calculate(command, COMMANDS[command], *more)
    assert (answer.code, answer.out) == (2, "")
    assert told in answer.err
    assert answer.err.count("\n") == 1


def test_what_is_missing_is_named(calculate: Calc) -> None:
    """A command without its required options says which one it wants."""
    for command, option in (
        ("useful-hour", "--useful-hours"),
        ("memory", "--billions"),
        ("transfer", "--gb"),
        ("budget", "--work-hours"),
    ):
        answer = calculate(command, {})
        assert answer.code == 2
        assert option in answer.err


def test_no_ledger_is_made(calculate: Calc, tmp_path: Path) -> None:
    """Calculating leaves no trace."""
    for command, options in COMMANDS.items():
        assert calculate(command, options).code == 0
    assert not (tmp_path / "nowhere").exists()


def test_recipes_and_bounds_are_the_domain_s() -> None:
    """What the command line writes again is what the domain says."""
    assert get_args(calc.Recipe) == get_args(Recipe)
    assert (calc.LEAST, calc.LIMIT) == (LEAST, LIMIT)
