"""The whole agent on a stub of the driver: what it senses reaches the bill and the record."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from adapters.hostagent.nvml.build import NoCompilerError, build
from ledger.domain.usage import UsageReport
from tests.e2e.hostagents import HostAgent, stored_reports, until
from tests.e2e.serving import Serving


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder with the stub library and its control file."""
    one = Path(tempfile.mkdtemp(prefix="gl-nvml-"))
    try:
        build(one)
    except NoCompilerError as error:
        pytest.skip(str(error))
    control(one, "gpus=1\ngpu0.util=97\n")
    yield one
    shutil.rmtree(one)


def control(folder: Path, text: str) -> None:
    """Change what the driver says."""
    new = folder / "control.new"
    new.write_text(text)
    new.replace(folder / "control.txt")


def kinds(reports: list[UsageReport]) -> set[str]:
    """What was told of the machine's health."""
    return {event.kind for report in reports for event in report.health}


def test_a_gpu_that_falls_off_the_bus_ends_its_instance(folder: Path) -> None:
    """Utilisation is that of the driver, and a lost GPU stops the instance as the host's fault."""
    driver = {"LD_LIBRARY_PATH": str(folder), "FAKE_NVML_CONTROL": str(folder / "control.txt")}
    with Serving(workers=1) as serving:
        host = serving.person("hannah", "host")
        rita = serving.person("rita", "renter", "100")
        machine = serving.machine(host)
        agent = HostAgent(serving.url, machine.token, driver=driver)
        try:
            agent.start()
            serving.list_machine(machine)
            until(lambda: agent.status()["last_answer_seconds_ago"] is not None, "an answer")
            until(lambda: agent.status()["gpus"] == 1, "the driver to answer")
            wish = {
                "machine_id": machine.machine,
                "disk_gb": 10,
                "launch": {"args": ["sleep", "1000"]},
            }
            instance = serving.call("POST", "/v1/instances", wish, key=rita)["instance_id"]
            path = f"/v1/instances/{instance}"
            until(lambda: serving.call("GET", path)["gpu_seconds"] >= 3, "billed seconds", 60)
            control(folder, "gpus=1\ngpu0.lost=1\nxid=0:79:a\n")
            until(lambda: serving.call("GET", path)["status"] == "stopped", "the fault", 60)
            assert serving.call("GET", path)["reason"] == "host_fault"
            with serving.database() as database, database.connect(autocommit=True) as connection:
                # The loss is told when the next generation finds the GPU gone as well.
                until(
                    lambda: {"xid", "gpu_lost"} <= kinds(stored_reports(connection, agent)),
                    "both to be told",
                    60,
                )
                assert agent.stop() == 0
                reports = stored_reports(connection, agent)
        finally:
            agent.close()
    seen = {util for report in reports for one in report.instances for util in one.util}
    assert 97 in seen
    assert any(report.inventory is not None for report in reports)
