"""Simulated GPUs under the real binding of NVML."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.fake_nvml import FakeGpus, InProcess, Libraries


@pytest.fixture(scope="session")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> Libraries:
    """Stub libraries, built when first asked for."""
    return Libraries(tmp_path_factory.mktemp("nvml"))


@pytest.fixture
def gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeGpus:
    """One GPU in a file that this process and its children look into."""
    fake = FakeGpus(tmp_path)
    monkeypatch.setenv("FAKE_NVML_CONTROL", str(fake.path))
    return fake


@pytest.fixture
def child_driver(gpus: FakeGpus, libraries: Libraries, monkeypatch: pytest.MonkeyPatch) -> FakeGpus:
    """The same GPUs; children load the stub of a new driver."""
    monkeypatch.setenv("LD_LIBRARY_PATH", str(libraries.path("new").parent))
    return gpus


@pytest.fixture
def in_process(gpus: FakeGpus, libraries: Libraries) -> Iterator[Callable[[str], InProcess]]:
    """Opens a variant of the stub in this process."""
    assert gpus.path.exists()
    opened: list[InProcess] = []

    def load(variant: str = "new") -> InProcess:
        opened.append(InProcess(libraries.path(variant)))
        return opened[-1]

    yield load
    for one in opened:
        one.close()
