"""Every question at the command line, for people and for programs."""

from __future__ import annotations

from typing import Any

import pytest

from tests.cli.conftest import Cli
from tests.support.market import DOLLAR, Market

QUESTIONS = [
    ["accounts"],
    ["machines"],
    ["instances"],
    ["volumes"],
    ["ticks", "1"],
    ["charges"],
    ["charges", "--by", "hour"],
    ["anomalies"],
    ["explain", "1"],
    ["invoice"],
    ["balance", "alice"],
    ["grants"],
    ["transfers"],
    ["trial-balance"],
    ["books", "trial-balance"],
    ["books", "balances"],
    ["books", "statement", "alice"],
    ["books", "ledger", "renter_credit"],
    ["findings", "list"],
    ["events"],
    ["timeline", "instance", "1"],
    ["timeline", "machine", "1"],
    ["timeline", "account", "alice"],
    ["offers", "--unverified"],
    ["offers", "--fields"],
    ["allocations", "1"],
    ["gpus", "1"],
    ["policy"],
    ["keys", "list"],
]


@pytest.mark.parametrize("question", QUESTIONS, ids=" ".join)
def test_a_piped_answer_is_plain_text(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, question: list[str]
) -> None:
    """No colours and no boxes where nobody looks, even where colours are forced."""
    monkeypatch.setenv("FORCE_COLOR", "1")
    answer = cli(*question)
    assert answer.code == 0
    assert answer.out
    assert "\x1b" not in answer.out
    assert not set("─│┃━╭") & set(answer.out)


@pytest.mark.parametrize("question", QUESTIONS, ids=" ".join)
def test_json_is_one_document(cli: Cli, question: list[str]) -> None:
    """With --json nothing but one document is on standard output."""
    answer = cli(*question, "--json")
    assert answer.code == 0
    assert isinstance(answer.json, list | dict)


def test_an_account_is_named_or_numbered(cli: Cli) -> None:
    """A name and an id of an account lead to the same answer."""
    by_name, by_id = cli("instances", "--account", "alice"), cli("instances", "--account", "1")
    assert by_name.out == by_id.out
    assert "running" not in by_name.out
    assert cli("instances", "--account", "bob").out == "no instances\n"


def test_instances_are_filtered_by_state(cli: Cli) -> None:
    """Only instances in the state that was named are listed."""
    assert len(cli("instances", "--status", "stopped", "--json").json) == 1
    assert cli("instances", "--status", "running", "--json").json == []


def test_amounts_and_times_of_an_instance_are_texts(cli: Cli) -> None:
    """Dollars are decimal texts to the nano, instants RFC 3339."""
    (one,) = cli("instances", "--json").json
    assert one["gpu_charge"] == "0.42"
    assert one["storage_charge"] == "0.025173611"
    assert one["stopped_at"] == "2026-03-01T11:11:10Z"
    assert one["label"] == "train [red] 1"


def test_ticks_start_where_they_are_asked_to(cli: Cli) -> None:
    """--from, --until and --limit cut the list of seconds, and the rest is announced."""
    answer = cli("ticks", 1, "--from", "2026-03-01T10:00:29Z", "--limit", 2, "--json")
    assert [(one["second"], one["state"]) for one in answer.json] == [
        ("2026-03-01T10:00:29Z", "loading"),
        ("2026-03-01T10:00:30Z", "running"),
    ]
    assert answer.err == "more: repeat with --from 2026-03-01T10:00:31Z\n"
    until = cli("ticks", 1, "--until", "2026-03-01T12:00:05+02:00", "--json")
    assert len(until.json) == 5


@pytest.mark.parametrize(
    "question",
    [
        ["accounts"],
        ["charges", "--by", "hour"],
        ["transfers"],
        ["events"],
        ["events", "--stream", "instance-1"],
    ],
    ids=" ".join,
)
def test_pages_together_are_the_whole_list(cli: Cli, question: list[str]) -> None:
    """Following the hints from page to page neither repeats nor skips a row."""
    whole = cli(*question, "--limit", 100_000, "--json")
    assert whole.err == ""
    paged: list[Any] = []
    more: list[str] = []
    while True:
        answer = cli(*question, "--limit", 1, *more, "--json")
        paged += answer.json
        if not answer.err:
            break
        more = answer.err.split()[-2:]
    assert paged == whole.json
    assert len(paged) > 1


def test_pages_of_charges_pass_over_what_is_free(market: Market, own_cli: Cli) -> None:
    """An instance that costs nothing does not end the list of charges before those after it."""
    alice, bob = market.account("alice", DOLLAR), market.account("bob", DOLLAR)
    machine = market.machine(host="bob", gpus=3)
    all_three = [market.rent(who, machine, gpus=1) for who in (alice, bob, alice)]
    for one in all_three:
        market.confirm(machine, one)
    market.run(machine, all_three, 60)
    market.project()
    first = own_cli("charges", "--limit", 2, "--json")
    key = first.err.split()[-1]
    second = own_cli("charges", "--limit", 2, "--after", key, "--json")
    assert [one["item"] for one in first.json + second.json] == ["gpu", "disk"] * 2
    assert {one["instance_id"] for one in first.json} == {all_three[0]}
    assert {one["instance_id"] for one in second.json} == {all_three[2]}
    assert second.err == ""


def test_the_books_balance(cli: Cli) -> None:
    """Debits and credits are equal, and the difference is said."""
    assert cli("trial-balance").out.splitlines()[-1] == "difference 0"


def test_a_balance_is_credit_less_charges(cli: Cli) -> None:
    """What alice was charged is missing from her credit, to the nano."""
    found = cli("balance", "alice", "--json").json
    assert (found["posted"], found["charged"]) == ("10", "0.449373611")


def test_events_show_what_they_say(cli: Cli) -> None:
    """The log is read in order, by position or by stream."""
    first, second = cli("events", "--limit", 2, "--json").json
    assert (first["position"], first["topic"]) == (1, "policy.adopted.v2")
    assert second["state"]["account_id"] == 1
    stream = cli("events", "--stream", "instance-1", "--json").json
    assert [one["version"] for one in stream] == [1, 2, 3, 4]
    assert stream[-1]["topic"] == "instance.stopped.v1"


def test_the_rules_in_force_are_shown(cli: Cli) -> None:
    """The platform's fee and its limits can be read."""
    assert cli("policy", "--json").json["fee_bp"] == 1500


def test_a_rebuild_is_equal(cli: Cli) -> None:
    """`rebuild --check` compares every table and exits 0 when all are equal."""
    answer = cli("rebuild", "--check", "--json")
    assert (answer.code, answer.err) == (0, "")
    assert answer.json["equal"] is True
    assert answer.json["ticks"] == 4_350
    shown = cli("rebuild", "--check")
    assert shown.code == 0
    assert "equal: 4,350 ticks rebuilt in " in shown.out
