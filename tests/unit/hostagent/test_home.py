"""The agent's folder and its local doors: one key, one agent, one owner."""

from __future__ import annotations

import json
import stat
import urllib.request
from pathlib import Path
from urllib.error import HTTPError

import pytest

from adapters.hostagent import self_metrics
from adapters.hostagent.control import ControlSocket, MetricsServer, call
from adapters.hostagent.doctor import examine
from adapters.hostagent.home import AgentHome
from adapters.hostagent.kernel_gpus import driver_version, gpus
from adapters.hostagent.runtime.port import RuntimeFault
from adapters.hostagent.runtime.twin import RuntimeTwin
from adapters.hostagent.spool import SpoolFacts
from ledger.errors import ConflictError, NotFoundError, RejectedError, UnavailableError


@pytest.fixture
def home(tmp_path: Path) -> AgentHome:
    """An empty folder."""
    one = AgentHome(tmp_path / "state")
    one.prepare()
    return one


def test_a_half_done_enrolment_uses_its_key_again(home: AgentHome) -> None:
    """The key is made once, is its owner's alone, and never replaced."""
    first = home.identity()
    assert home.identity().key_id == first.key_id
    assert stat.S_IMODE(home.key_file.stat().st_mode) == 0o600


def test_a_folder_that_is_not_enrolled_says_what_to_do(home: AgentHome) -> None:
    """The error names the command that enrols."""
    with pytest.raises(NotFoundError, match="gpuledger agent enrol") as refused:
        home.enrolled()
    assert refused.value.code == "not_enrolled"


def test_two_agents_never_run_in_one_folder(home: AgentHome) -> None:
    """The second one is refused while the first runs, and welcome after it."""
    with home.alone(), pytest.raises(ConflictError), AgentHome(home.folder).alone():
        pass
    with home.alone():
        pass


def test_commands_come_through_the_socket_of_the_owner(home: AgentHome) -> None:
    """Answers, refusals and unknown commands are told apart; nobody else can open the socket."""

    def fail(_: object) -> None:
        message = "not now"
        raise ValueError(message)

    control = ControlSocket(home.socket, {"double": lambda one: 2 * one["number"], "fail": fail})
    assert stat.S_IMODE(home.socket.stat().st_mode) == 0o600
    assert call(home.socket, "double", number=21) == 42
    for command, text in (("fail", "not now"), ("nothing", "no such command")):
        with pytest.raises(RejectedError, match=text):
            call(home.socket, command)
    control.close()
    with pytest.raises(UnavailableError, match="gpuledger agent run"):
        call(home.socket, "double", number=1)


def test_a_socket_that_a_kill_left_behind_is_replaced(home: AgentHome) -> None:
    """An agent that was killed does not keep the next one from answering."""
    home.socket.write_text("left behind")
    control = ControlSocket(home.socket, {"ping": lambda _: "pong"})
    assert call(home.socket, "ping") == "pong"
    control.close()


def test_metrics_are_served_on_the_loopback() -> None:
    """The text is what was rendered; every other path is not found; a taken port is said."""
    server = MetricsServer(0, lambda: b"one 1\n")
    url = f"http://127.0.0.1:{server.port}"
    with urllib.request.urlopen(f"{url}/metrics") as answer:  # noqa: S310 - our own server
        assert answer.read() == b"one 1\n"
    with pytest.raises(HTTPError) as missing:
        urllib.request.urlopen(f"{url}/else")  # noqa: S310 - our own server
    missing.value.close()
    with pytest.raises(UnavailableError) as refused:
        MetricsServer(server.port, lambda: b"")
    assert refused.value.code == "port_in_use"
    server.close()


def test_a_number_that_is_not_known_is_absent() -> None:
    """Metrics never show 0 for what nobody measured."""
    facts = SpoolFacts("e" * 32, 2, 1, 9, 7, 4_096, None, 5)
    text = self_metrics.render(facts, alarms={"conflict": 1}, instances=3, contact_age=None)
    lines = text.decode().splitlines()
    assert "ledger_agent_spool_reports 2" in lines
    assert 'ledger_agent_alarms_total{code="conflict"} 1' in lines
    assert not any("oldest_age" in line or "ack_lag" in line for line in lines)


def test_gpus_are_read_from_the_kernel(tmp_path: Path) -> None:
    """UUID and model come from the driver's own files; a GPU without a UUID is none."""
    for bus, text in {
        "0000:01:00.0": "Model: \t\t NVIDIA RTX 4090\nGPU UUID: \t GPU-aa\n",
        "0000:02:00.0": "Model: \t\t NVIDIA RTX 4090\nGPU UUID: \t GPU-??\n",
    }.items():
        folder = tmp_path / "gpus" / bus
        folder.mkdir(parents=True)
        (folder / "information").write_text(text)
    (tmp_path / "version").write_text(
        "NVRM version: NVIDIA UNIX x86_64 Kernel Module  570.133.20\n"
    )
    assert [(one.uuid, one.name) for one in gpus(tmp_path)] == [("GPU-aa", "NVIDIA RTX 4090")]
    assert driver_version(tmp_path) == "570.133.20"
    assert driver_version(tmp_path / "none") is None


def test_the_doctor_finds_everything_and_changes_nothing(tmp_path: Path) -> None:
    """Each finding that is not in order says what to do; a missing folder is not made."""

    class Broken(RuntimeTwin):
        def faults(self) -> list[RuntimeFault]:
            return [RuntimeFault("the engine does not answer: x", "start it")]

    home = AgentHome(tmp_path / "nothing")
    found = examine(home, Broken)
    by_check = {one.check: one for one in found}
    assert by_check["runtime twin"].level == "error"
    assert "gpuledger agent enrol" in by_check["enrolment"].way_out
    assert all(one.way_out for one in found if one.level != "ok")
    assert not home.folder.exists()
    json.dumps([one._asdict() for one in found])
