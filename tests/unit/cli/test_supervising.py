"""What `gpuledger supervise` makes of what was typed: the launch configuration, and signals."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from adapters.cli.supervising import _launch, _stopping
from ledger.errors import RejectedError


def test_a_launch_configuration_is_put_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file's values, and over them what was typed; a bare name is taken from here."""
    file = tmp_path / "launch.json"
    file.write_text('{"image": "old", "args": ["-v"], "env": {"A": "1", "B": "2"}}')
    monkeypatch.setenv("TOKEN", "secret=1")
    assert _launch(file, "new", "run.sh", ["B=3=4", "TOKEN", "EMPTY="]) == {
        "image": "new",
        "args": ["-v"],
        "onstart": "run.sh",
        "env": {"A": "1", "B": "3=4", "TOKEN": "secret=1", "EMPTY": ""},
    }
    assert _launch(None, None, None, []) == {}


@pytest.mark.parametrize("text", ["", "[]", "{", "\xff", '{"env": 1}'])
def test_a_launch_file_that_is_none(tmp_path: Path, text: str) -> None:
    """What is no JSON object, or has no names under env, is told with the file's name."""
    file = tmp_path / "launch.json"
    file.write_text(text, encoding="latin-1")
    with pytest.raises(RejectedError) as error:
        _launch(file, None, None, ["A=1"])
    assert "launch.json" in error.value.message


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_signal_asks_and_the_second_insists(number: signal.Signals) -> None:
    """The first one sets the event; afterwards the signal means what it always means."""
    before = {one: signal.getsignal(one) for one in (signal.SIGINT, signal.SIGTERM)}
    try:
        stop = _stopping()
        assert not stop.is_set()
        os.kill(os.getpid(), number)
        assert stop.wait(5)
        usual = signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL
        assert signal.getsignal(number) == usual
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)
