"""The market at the command line: conditions as people type them, the table, pages, auctions."""

from __future__ import annotations

from typing import Any

import pytest

from ledger.errors import RejectedError
from ledger.services.questions.offer_fields import fields
from ledger.services.questions.offer_words import parse_filters, parse_order
from tests.cli.conftest import Cli, command_line
from tests.support.databases import Server
from tests.support.market import DOLLAR, START, Market
from tests.support.offers import describe

CENT = DOLLAR // 100


@pytest.fixture(scope="module")
def bazaar(server: Server) -> Any:
    """Four machines: two RTX 4090, one of two GPUs, one unverified, one with an auction."""
    dsn = server.copy()
    market = Market(dsn)
    alice, carol = market.account("alice", 10 * DOLLAR), market.account("carol", 10 * DOLLAR)
    for number, (gpus, gpu_hour, verified) in enumerate(
        [(1, 39, True), (2, 45, True), (1, 30, False), (1, 50, True)]
    ):
        machine = market.machine(
            gpus=gpus, gpu_hour=gpu_hour * CENT, floor=10 * CENT, until=START + 86_400 * 365
        )
        describe(
            market,
            machine,
            verification="verified" if verified else "unverified",
            reliability=None if number == 0 else 0.95 + number / 100,
            checks=100 * number,
            lower_bound=0.9,
            score=20.0 + number,
            country="DE",
            architecture="x86_64",
        )
    market.rent(alice, machine, bid=20 * CENT, disk_gb=1)
    market.rent(carol, machine, bid=30 * CENT, disk_gb=1)
    market.clock.move_to(START + 30)
    market.close()
    yield dsn
    server.drop(dsn)


@pytest.fixture
def offers(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    bazaar: str,
) -> Cli:
    """Run a command on that market, in the minute in which it was made."""
    monkeypatch.setattr("ledger.services.ledger.SystemClock.__call__", lambda _: START + 30)
    return command_line(capsys, monkeypatch, bazaar)


# --- words ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (["num_gpus>=2"], {"num_gpus": {"gte": "2"}}),
        (["num_gpus", ">=", "2"], {"num_gpus": {"gte": "2"}}),
        (
            ["num_gpus>=2 num_gpus<8", "reliability>0.98"],
            {"num_gpus": {"gte": "2", "lt": "8"}, "reliability": {"gt": "0.98"}},
        ),
        (["gpu_name=RTX_4090"], {"gpu_name": {"in": ["RTX_4090", "RTX 4090"]}}),
        (["gpu_name!=RTX_4090"], {"gpu_name": {"notin": ["RTX_4090", "RTX 4090"]}}),
        (["gpu_name == A100"], {"gpu_name": {"eq": "A100"}}),
        (['gpu_name="RTX 4090"'], {"gpu_name": {"eq": "RTX 4090"}}),
        (["gpu_name='RTX_4090'"], {"gpu_name": {"eq": "RTX_4090"}}),
        (
            ['gpu_name in [RTX_4090, "RTX 5090",A100]'],
            {"gpu_name": {"in": ["RTX_4090", "RTX 4090", "RTX 5090", "A100"]}},
        ),
        (["num_gpus notin [1,2]"], {"num_gpus": {"notin": ["1", "2"]}}),
        (["driver>=570.86_10"], {"driver": {"gte": "570.86 10"}}),
        (["verified=true"], {"verified": {"eq": "true"}}),
        (["NUM_GPUS = 1"], {"num_gpus": {"eq": "1"}}),
        ([], {}),
        (["  "], {}),
    ],
)
def test_conditions_as_people_type_them(words: list[str], meant: dict[str, Any]) -> None:
    """Signs with and without spaces, lists, quotes; an underscore in a text may be a space."""
    assert parse_filters(words) == meant


@pytest.mark.parametrize(
    "words",
    ["num_gpus", "num_gpus>", ">2", "a b", "num_gpus>==2", "num_gpus=>2", "gpu_name in RTX_4090",
     "gpu_name=[A100]", "gpu_name in [a,,b]", 'gpu_name="RTX', "num_gpus>1 num_gpus>2", "x=1;y=2 z",
     "2=num_gpus"],
)  # fmt: skip
def test_what_is_no_condition(words: str) -> None:
    """Half conditions, doubled ones and stray words are told, never ignored."""
    with pytest.raises(RejectedError) as error:
        parse_filters([words])
    assert error.value.code == "invalid_args"


def test_every_text_field_takes_underscores_and_no_other() -> None:
    """Only in texts an underscore may be a space; `in [a_b]` stays one value elsewhere."""
    for name, field in fields("on_demand").items():
        values = parse_filters([f"{name} in [a_b]"])[name]["in"]
        assert values == (["a_b", "a b"] if field.type == "text" else ["a_b"]), name


def test_orders_as_people_type_them() -> None:
    """A minus in front or behind means large first; blanks and empty parts do not matter."""
    assert parse_order("dph_total,-score , reliability-,") == [
        ("dph_total", "asc"),
        ("score", "desc"),
        ("reliability", "desc"),
    ]


# --- the command ----------------------------------------------------------------------------------


def machines(found: list[dict[str, Any]]) -> list[int]:
    """Which machines were found, in order."""
    return [one["machine_id"] for one in found]


def test_the_default_is_verified_and_by_score_per_dollar(offers: Cli) -> None:
    """The best score per dollar stands first, unverified machines only on demand."""
    found = offers("offers", "--json").json
    per_dollar = [one["score_per_dollar"] for one in found]
    assert per_dollar == sorted(per_dollar, reverse=True)
    assert 3 not in machines(found)
    assert 3 in machines(offers("offers", "--unverified", "--json").json)


def test_a_search_as_in_the_guides(offers: Cli) -> None:
    """Underscores, comparisons, disk and order work together, and amounts are exact texts."""
    found = offers(
        "offers",
        "gpu_name=RTX_4090 num_gpus<=1 cpu_arch=x86_64",
        *("--disk", 100, "--order", "-dph_total", "--unverified", "--taken", "--json"),
    ).json
    assert machines(found) == [4, 2, 1, 3]
    assert [one["dph_total"] for one in found] == [
        *("0.520833333", "0.470833333", "0.410833333", "0.320833333")
    ]
    leading = offers("offers", "--order", "-dph_total", "--limit", 1, "--json").json
    assert machines(leading) == [2]


def test_prices_of_bids(offers: Cli) -> None:
    """`--kind interruptible` prices what would run now."""
    found = offers("offers", "--kind", "interruptible", "--order", "min_bid", "--json").json
    assert {one["machine_id"]: one["min_bid"] for one in found if one["num_gpus"] == 1} == {
        1: "0.1",
        2: "0.1",
        4: "0.300000001",
    }


def test_the_table_is_for_people(offers: Cli) -> None:
    """Price in all and per GPU, score per dollar, reliability with its n, in columns."""
    shown = offers("offers", "num_gpus=2", "--disk", 100).out.splitlines()
    head, line = shown
    assert head.split() == [
        *("offer", "gpus", "per_hour", "per_gpu_hour", "score", "per_dollar", "reliability"),
        *("vram", "cpus", "ram", "disk", "down", "up", "country", "ends_in"),
    ]
    for part in ("2 x RTX 4090", "$0.9208", "$0.4500", "37.8", "41.0", "0.9600 (100)", "365.0 d"):
        assert f" {part}" in line, part
    many = offers("offers", "--unverified").out.splitlines()
    assert len({len(one.split("$")[0]) for one in many[1:]}) == 1
    unknown = offers("offers", "machine_id=1").out
    assert "- (0)" in unknown


def test_nothing_found_is_said(offers: Cli) -> None:
    """An empty market is a sentence for people and an empty list for programs; exit code 0."""
    answer = offers("offers", "gpu_name=H100")
    assert (answer.code, answer.err) == (0, "")
    assert answer.out.startswith("no offers: try")
    assert offers("offers", "gpu_name=H100", "--json").json == []


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["gpu_nam=A100"], "did you mean `gpu_name`?"),
        (["num_gpus=many"], "`num_gpus` is compared with a number"),
        (["num_gpus"], "'num_gpus' is no condition such as num_gpus>=2"),
        (["--order", "prize"], "an offer has no field `prize`"),
        (["--limit", "2000"], "--limit: a page has at most 1000 offers"),
        (["--after", "x"], "the cursor is not one that this search gave"),
    ],
)
def test_mistakes_are_told(offers: Cli, arguments: list[str], told: str) -> None:
    """Wrong usage is exit code 2 and one line that says what to write."""
    answer = offers("offers", *arguments)
    assert (answer.code, answer.out) == (2, "")
    assert told in answer.err
    assert answer.err.count("\n") == 1


def test_pages_together_are_the_whole_market(offers: Cli) -> None:
    """Following the hints neither repeats nor skips an offer."""
    everything = offers("offers", "--unverified", "--json").json
    paged: list[Any] = []
    more: list[str] = []
    while True:
        answer = offers("offers", "--unverified", "--limit", 1, *more, "--json")
        paged += answer.json
        if not answer.err:
            break
        more = answer.err.split()[-2:]
    assert paged == everything
    assert len(paged) == 5


def test_the_fields_can_be_listed(offers: Cli) -> None:
    """`--fields` names each field with its type and meaning, and needs no ledger."""
    assert {one["name"] for one in offers("offers", "--fields", "--json").json} == set(
        fields("on_demand")
    )
    assert "what ranks and gates" in offers("offers", "--fields").out


def test_an_auction_can_be_read(offers: Cli) -> None:
    """Who lost, who got which GPUs, and what a place costs since; page by page."""
    found = offers("allocations", 4, "--json").json
    assert [
        (one["displaced"], [row["instance_id"] for row in one["granted"]]) for one in found
    ] == [
        ([], []),
        ([], [1]),
        ([1], [2]),
    ]
    assert found[-1]["min_bids"] == [{"gpus": 1, "amount": "0.300000001"}]
    assert found[-1]["decided_at"] == "2026-03-01T10:00:00Z"
    text = offers("allocations", 4).out.splitlines()
    assert text[0].split() == ["position", "decided_at", "displaced", "granted", "smallest_bids"]
    assert text[-1].split("  ")[-1] == "1: 0.300000001"
    assert "2 (GPU 0)" in text[-1]
    first = offers("allocations", 4, "--limit", 2, "--json")
    rest = offers("allocations", 4, *first.err.split()[-2:], "--json")
    assert first.json + rest.json == found
    assert offers("allocations", 1).out.count("\n") == 2
    missing = offers("allocations", 99)
    assert (missing.code, "no machine 99" in missing.err) == (1, True)


def test_reading_positions_that_are_none(offers: Cli) -> None:
    """Any position may be given: the list goes on after it."""
    found = offers("allocations", 4, "--json").json
    after = found[1]["position"] + 1
    assert offers("allocations", 4, "--after", after, "--json").json == found[2:]
    assert offers("allocations", 4, "--after", 10**9, "--json").json == []
