"""What the demo's hosts run on: the best that the system allows, and it says which."""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path

import pytest

from adapters.demo.machines import machines


def test_with_a_compiler_the_driver_is_a_stub(tmp_path: Path) -> None:
    """Each host finds the library and a file of its own, in which no UUID is another's."""
    if sys.platform != "linux" or not (shutil.which("cc") or shutil.which("gcc")):
        pytest.skip("no C compiler (cc or gcc) is installed here")
    found = machines(tmp_path / "driver")
    assert (found.module, "stub of NVML" in found.said) == ("adapters.demo.host", True)
    uuids: list[str] = []
    for host, gpus in (("host-1", 2), ("host-2", 4)):
        environment = found.environment("RTX 4090", gpus, tmp_path / host)
        assert environment["LD_LIBRARY_PATH"] == str(tmp_path / "driver")
        text = Path(environment["FAKE_NVML_CONTROL"]).read_text()
        assert f"gpus={gpus}\n" in text
        uuids += re.findall(r"uuid=(\S+)", text)
    assert len(set(uuids)) == 6
    arguments = found.arguments("http://x", "gle_1", 2, 0, tmp_path / "host-1")
    assert list(arguments) == ["http://x", "gle_1", "2", str(tmp_path / "host-1")]


def test_without_a_compiler_gpus_are_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The agent still is the real one, and the demo says what is missing."""
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(shutil, "which", lambda _: None)
    found = machines(tmp_path)
    assert (found.module, found.driver) == ("adapters.demo.host", None)
    assert "no C compiler" in found.said
    assert "FAKE_NVML_CONTROL" not in found.environment("RTX 4090", 2, tmp_path / "host-1")


def test_where_the_agent_does_not_run_hosts_are_simulated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another system than Linux gets hosts that only pretend, and is told so."""
    monkeypatch.setattr(sys, "platform", "darwin")
    found = machines(tmp_path)
    assert (found.module, found.is_real) == ("adapters.demo.simulated_host", False)
    assert "Linux only" in found.said
    arguments = found.arguments("http://x", "gle_1", 2, 1, tmp_path / "host-1")
    assert list(arguments) == ["http://x", "gle_1", "2", "1"]
