"""Every scenario file holds, and every mistake in one is told with its place."""

from __future__ import annotations

from pathlib import Path

import pytest

from adapters.simulation import world
from adapters.simulation.scenario import run, run_files
from adapters.simulation.scenario_file import read
from ledger.services import policies
from ledger.services.ledger import Clock, Ledger
from ledger.services.policies.glance import Round
from ledger.store.vault import Vault
from tests.support.databases import open_database, rebuilt

HERE = Path(__file__).parent
FILES = sorted(HERE.rglob("*.yaml"))


@pytest.fixture
def _at_hand(monkeypatch: pytest.MonkeyPatch, dsn: str) -> None:
    """Sessions, and tables for rebuilds, are there already: making them would take longest."""

    def ledger(_: Path, *, url: str, clock: Clock) -> Ledger:
        return Ledger(open_database(url), Vault(bytes(32)), clock)

    monkeypatch.setattr(Ledger, "open", ledger)
    monkeypatch.setattr(world, "check", lambda _: rebuilt(dsn))


@pytest.mark.usefixtures("_at_hand")
@pytest.mark.parametrize("path", FILES, ids=[path.stem for path in FILES])
def test_scenario_holds(dsn: str, path: Path) -> None:
    """Everything that the file expects is what the ledger says."""
    assert run(read(path), url=dsn).differences == []


class _Asked(Round):
    """Policies that all act, also those of which a glance says that they have nothing to do."""

    def take(self, ledger: Ledger) -> None:
        """Call every policy; one that nobody would have called must not even begin a command."""
        with ledger.looking() as looking:
            for number, turn in enumerate(self.turns):
                is_due, before = self.glance(ledger)[number], looking.changes
                turn.act(ledger)
                assert is_due or looking.changes == before, turn.act.__name__


def _hold_without_glances(monkeypatch: pytest.MonkeyPatch, dsn: str, path: Path) -> None:
    monkeypatch.setattr(Round, "take", _Asked.take)
    monkeypatch.setattr(policies, "is_due", lambda *_: True)
    assert run(read(path), url=dsn).differences == []


@pytest.mark.usefixtures("_at_hand")
@pytest.mark.parametrize(
    "name",
    [
        "C35-announced-maintenance",
        "CRED-01-volumes-go-last-for-storage-debt",
        "LIFE-02-gpu-taken-while-the-host-was-away",
        "LIFE-08-an-idle-gpu-is-told-and-costs-the-same",
    ],
)
def test_a_policy_that_is_not_asked_has_nothing_to_do(
    dsn: str, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Where a glance finds nothing for a policy, that policy begins no command either."""
    _hold_without_glances(monkeypatch, dsn, HERE / "cases" / f"{name}.yaml")


@pytest.mark.soak
@pytest.mark.usefixtures("_at_hand")
@pytest.mark.parametrize("path", FILES, ids=[path.stem for path in FILES])
def test_in_no_scenario_does_a_glance_overlook_anything(
    dsn: str, monkeypatch: pytest.MonkeyPatch, path: Path
) -> None:
    """Every scenario ends the same, and no policy acts of which a glance found nothing."""
    _hold_without_glances(monkeypatch, dsn, path)


HEAD = """scenario: a mistake
steps:
  - {at: "2026-03-01T00:00:00Z", do: open-account, account: alice, credit: "10"}
"""


@pytest.mark.parametrize(
    ("text", "line", "meant"),
    [
        (HEAD + "  - {do: destory, instance: i}\n", 4, "did you mean `destroy`"),
        (HEAD + "  - {do: deposit, acount: alice, amount: '1'}\n", 4, "did you mean `account`"),
        (HEAD + "  - {do: deposit, account: alice, amount: 1.5}\n", 4, "as text"),
        (HEAD + "  - {do: grant, account: alice, amount: '1'}\n", 4, "`grant` needs `until`"),
        (HEAD + "  - {do: volume, as: v, account: alice}\n", 4, "`volume` needs `machine`"),
        (HEAD + "  - {do: delete-volume, volume: v}\n", 4, "no volume `v`"),
        (HEAD + "  - {at: '2026-02-01T00:00:00Z', do: rebuild}\n", 4, "time order"),
        (HEAD + "expect: {balance: {alice: '10'}}\n", 4, "did you mean `balances`"),
        (HEAD + "settings: {plattform_fee: '0'}\n", 4, "did you mean `platform_fee`"),
        (HEAD + "  - {do: stop, instance: i}\n", 4, "no instance `i`"),
        (HEAD + "  - {do: rebuild, do: expect}\n", 4, "twice"),
        ("scenario: [\n", 2, ""),
    ],
)
def test_mistakes_name_file_line_and_what_was_meant(
    dsn: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, line: int, meant: str
) -> None:
    """A file that is no scenario ends with exit code 2, its line, and a hint."""
    path = tmp_path / "wrong.yaml"
    path.write_text(text)
    assert run_files([path], url=dsn) == 2
    error = capsys.readouterr().err
    assert f"{path}:{line}: " in error
    assert meant in error


def test_a_wrong_expectation_is_shown_and_ends_with_one(
    dsn: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each difference shows what, expected and actual; the exit code is 1."""
    path = tmp_path / "wrong.yaml"
    path.write_text(HEAD + "expect: {balances: {alice: '11'}}\n")
    assert run_files([path], url=dsn) == 1
    shown = capsys.readouterr().out
    assert "balances.alice" in shown
    assert "expected 11" in shown
    assert "actual   10" in shown
