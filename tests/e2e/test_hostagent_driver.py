"""The whole agent on a stub of the driver: what it senses reaches the bill and the record."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from adapters.hostagent.nvml.build import NoCompilerError, build
from ledger.domain.events import CheckIssued
from ledger.domain.usage import UsageReport
from ledger.services import checks
from ledger.services.ledger import Ledger, SystemClock
from ledger.store.database import Connection
from ledger.store.vault import Vault
from tests.e2e.hostagents import HostAgent, stored_reports, until
from tests.e2e.serving import ROOT, Serving


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


def judged(connection: Connection, about: list[int]) -> str | None:
    """What became of the check of a machine and slot."""
    row = connection.execute(
        "SELECT result FROM checks WHERE machine_id = %s AND slot = %s AND kind = 'challenge'",
        about,
    ).fetchone()
    return None if row is None else row[0]


def kinds(reports: list[UsageReport]) -> set[str]:
    """What was told of the machine's health."""
    return {event.kind for report in reports for event in report.health}


def suite_python(folder: Path) -> str:
    """A Python whose framework is the processor: what it computes is right, and quickly done."""
    file = folder / "python"
    file.write_text(f"""#!{sys.executable}
import sys
from types import SimpleNamespace
sys.path.insert(0, {str(ROOT)!r})
from adapters.hostagent.suite import challenge
from adapters.hostagent.suite.__main__ import main
from tests.support.suite import NumpyGpu
gpus = SimpleNamespace(visible_gpus=lambda: [NumpyGpu()])
sys.modules["adapters.hostagent.suite.torch_gpus"] = gpus
challenge.WORK_SECONDS = 0.1
sys.exit(main())
""")
    file.chmod(0o700)
    return str(file)


def challenged(ledger: Ledger, machine: int) -> int:
    """Ask the machine to prove its GPUs now, and not in some slot to come; the check's slot."""
    with ledger.unit() as unit:
        stream, check = checks.issued(machine, "challenge", unit.now, unit.now)
        unit.append(stream, check)
    assert isinstance(check, CheckIssued)
    return check.slot


def test_a_gpu_that_falls_off_the_bus_ends_its_instance_until_it_has_proven_itself(
    folder: Path,
) -> None:
    """Utilisation is the driver's, a lost GPU is the host's fault, a challenge brings it back."""
    driver = {"LD_LIBRARY_PATH": str(folder), "FAKE_NVML_CONTROL": str(folder / "control.txt")}
    with Serving(workers=1) as serving:
        host = serving.person("hannah", "host")
        rita = serving.person("rita", "renter", "100")
        machine = serving.machine(host)
        options = ["--suite-python", suite_python(folder)]
        agent = HostAgent(serving.url, machine.token, driver=driver, options=options)
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
                control(folder, "gpus=1\ngpu0.util=0\n")
                until(lambda: agent.status()["gpus"] == 1, "the driver to answer again", 60)
                ledger = Ledger(database, Vault(bytes(32)), SystemClock())
                slot = challenged(ledger, machine.machine)
                about = [machine.machine, slot]
                until(lambda: judged(connection, about) is not None, "the challenge", 60)
                assert judged(connection, about) == "passed"
                healthy = connection.execute("SELECT healthy FROM gpus").fetchall()
                assert healthy == [(True,)]
                assert agent.stop() == 0
                reports = stored_reports(connection, agent)
        finally:
            agent.close()
    seen = {util for report in reports for one in report.instances for util in one.util}
    assert 97 in seen
    assert any(report.inventory is not None for report in reports)
