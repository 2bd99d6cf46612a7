"""How answers are written, for people and for programs."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from adapters.cli.output import MONEY, TIMES, page, plain, print_facts, print_json, print_rows
from ledger.services.questions.usage import AnomalyView


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """A view with one field of each kind."""

    name: str | None
    amount: int
    created_at: int
    online: bool
    sizes: list[int]


ROW = Row(
    name="alice", amount=1_500_000_000, created_at=1_772_359_200, online=True, sizes=[1, 2, 4]
)
COLUMNS = ["name", "amount", "created_at", "online", "sizes"]


def printed(capsys: pytest.CaptureFixture[str], rows: list[Row], *, as_json: bool = False) -> str:
    """What `print_rows` writes to standard output."""
    print_rows(rows, COLUMNS, as_json=as_json, title="rows", empty="no rows")
    return capsys.readouterr().out


def test_amounts_are_decimal_texts_and_times_rfc3339(capsys: pytest.CaptureFixture[str]) -> None:
    """JSON never holds nanos or Unix seconds where a program expects dollars and instants."""
    assert json.loads(printed(capsys, [ROW], as_json=True)) == [
        {
            "name": "alice",
            "amount": "1.5",
            "created_at": "2026-03-01T10:00:00Z",
            "online": True,
            "sizes": [1, 2, 4],
        }
    ]


def test_no_rows_are_an_empty_list_for_programs(capsys: pytest.CaptureFixture[str]) -> None:
    """An empty answer is `[]` as JSON and a sentence for people."""
    assert printed(capsys, [], as_json=True) == "[]\n"
    assert printed(capsys, []) == "no rows\n"


def test_piped_columns_align_and_money_is_on_the_right(capsys: pytest.CaptureFixture[str]) -> None:
    """Each line has its columns at the same places, amounts end below each other."""
    other = msgspec.structs.replace(ROW, name=None, amount=12_000_000_001, online=False)
    head, first, second = printed(capsys, [ROW, other]).splitlines()
    assert head == "name         amount  created_at            online  sizes"
    assert first == "alice           1.5  2026-03-01T10:00:00Z  yes     1 2 4"
    assert second == "-      12.000000001  2026-03-01T10:00:00Z  no      1 2 4"


def test_piped_rows_are_never_cut(capsys: pytest.CaptureFixture[str]) -> None:
    """A long text stays whole in a pipe."""
    long = msgspec.structs.replace(ROW, name="x" * 5_000)
    assert "x" * 5_000 in printed(capsys, [long])


@pytest.mark.parametrize("name", ["[red]bob[/red]", "[/]", ":smile:", "[link=http://x]y"])
def test_names_are_no_markup(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """A terminal shows a name as it was given, whatever it looks like."""
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "200")
    assert name in printed(capsys, [msgspec.structs.replace(ROW, name=name)])


def test_control_characters_do_not_reach_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    """A label cannot move the cursor, recolour the screen or forge a line."""
    shown = printed(capsys, [msgspec.structs.replace(ROW, name="a\x1b[2Jb\nc\x9bd\u2028e")])
    assert "a\ufffd[2Jb\ufffdc\ufffdd\ufffde" in shown
    assert len(shown.splitlines()) == 2


def test_an_anomaly_s_amount_is_no_money(capsys: pytest.CaptureFixture[str]) -> None:
    """Excess bytes are shown as a number of bytes."""
    one = AnomalyView(
        machine_id=1,
        instance_id=None,
        code="bandwidth_excess",
        severity="warning",
        start=0,
        until=1,
        amount=5_000_000,
        position=9,
    )
    print_json([one])
    assert json.loads(capsys.readouterr().out)[0]["amount"] == 5_000_000


def test_one_view_is_a_field_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    """A single answer reads as names and values."""
    print_facts(ROW, as_json=False)
    assert capsys.readouterr().out.splitlines()[:2] == ["name        alice", "amount      1.5"]


def test_a_page_says_how_to_go_on_only_when_there_is_more(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The hint names the last row shown, and goes to standard error."""
    assert page([1, 2, 3], 2, lambda one: one) == [1, 2]
    assert capsys.readouterr() == ("", "more: repeat with --after 2\n")
    assert page([1, 2], 2, lambda one: one) == [1, 2]
    assert capsys.readouterr() == ("", "")


def test_every_int_of_a_view_is_known_as_money_time_or_number() -> None:
    """A new field of a question that sounds like money or an instant is formatted as such."""
    from ledger.services import explain  # noqa: PLC0415 - only this test looks at all views
    from ledger.services.questions import (  # noqa: PLC0415 - same
        accounts,
        balances,
        instances,
        invoices,
        machines,
        transfers,
        usage,
    )

    asked = (accounts, balances, explain, instances, invoices, machines, transfers, usage)
    views: list[Any] = [
        value
        for module in asked
        for value in vars(module).values()
        if isinstance(value, type) and issubclass(value, msgspec.Struct)
    ]
    names = {
        field.name
        for view in views
        for field in msgspec.structs.fields(view)
        if field.type in (int, int | None)
    }
    sounds_like_time = {name for name in names if name.endswith(("_at", "_from", "_until"))}
    assert sounds_like_time <= TIMES
    sounds_like_money = {name for name in names if name.endswith(("_charge", "_rate", "amount"))}
    assert sounds_like_money <= MONEY


def test_plain_leaves_numbers_that_are_neither(capsys: pytest.CaptureFixture[str]) -> None:
    """Positions, ids and counts stay JSON numbers."""
    assert plain({"position": 7}) == {"position": 7}
    assert plain([3, 4]) == [3, 4]
    print_json(True)
    assert capsys.readouterr().out == "true\n"
