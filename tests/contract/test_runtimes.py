"""The runtime port: the twin, processes, and Docker over a fake engine under the same tests."""

from __future__ import annotations

import gc
import os
import shutil
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

import msgspec
import pytest

from adapters.hostagent.runtime.docker_engine import DockerRuntime
from adapters.hostagent.runtime.port import (
    Found,
    LaunchError,
    LaunchSpec,
    Login,
    Mount,
    PortWish,
    Runtime,
    RuntimeUnavailableError,
)
from adapters.hostagent.runtime.process import ProcessRuntime
from adapters.hostagent.runtime.twin import RuntimeTwin
from tests.support.docker_api import FakeDocker, Problem
from tests.support.engine import IMAGE, Engine

SLEEP = ("sleep", "1000")


class Bench(NamedTuple):
    """A runtime, and how to make its containers do something by themselves."""

    runtime: Runtime
    end: Callable[[Found], None]
    """The container's first process ends with code 3."""
    docker: FakeDocker | None = None
    image: str = "busybox"
    has_gpus: bool = True

    def spec(self, instance: int = 7, assignment: int = 1, **fields: object) -> LaunchSpec:
        """As `spec`, of an image that is there, and with no more GPUs than can be had."""
        wanted = spec(instance, assignment, **{"image": self.image, **fields})
        return msgspec.structs.replace(wanted, gpu_uuids=self.gpus(*wanted.gpu_uuids))

    def gpus(self, *uuids: str) -> tuple[str, ...]:
        """These GPUs, or none where the engine has none to give."""
        return uuids if self.has_gpus else ()


def spec(instance: int = 7, assignment: int = 1, **fields: object) -> LaunchSpec:
    """A container that sleeps, unless told otherwise."""
    wanted = {"image": "busybox", "args": SLEEP, "gpu_uuids": ("GPU-a",), **fields}
    return LaunchSpec(instance=instance, assignment=assignment, **wanted)  # type: ignore[arg-type]


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that users of no rights may pass."""
    one = Path(tempfile.mkdtemp(prefix="gl-rt-"))
    one.chmod(0o711)
    yield one
    shutil.rmtree(one, ignore_errors=True)


@pytest.fixture(params=["twin", "process", "docker", "engine"])
def bench(request: pytest.FixtureRequest, folder: Path) -> Iterator[Bench]:
    """Each runtime in turn."""
    match request.param:
        case "twin":
            twin = RuntimeTwin(time.time())
            yield Bench(twin, lambda found: twin.exit(found.instance, 3))
        case "process":
            runtime = ProcessRuntime(folder / "instances")
            yield Bench(runtime, lambda found: _touch(runtime, found))
            for one in runtime.list():
                runtime.remove(one.id)
        case "docker":
            engine = FakeDocker(folder)
            client = DockerRuntime(engine.url)
            yield Bench(client, lambda found: engine.exit(found.id, 3), engine)
            client.close()
            engine.close()
        case _:
            real = request.getfixturevalue("real_engine")
            real.require_start()
            inside = DockerRuntime(real.url)
            yield Bench(inside, lambda found: _end_inside(real, found), None, IMAGE, real.has_gpus)
            for one in inside.list():
                inside.remove(one.id)
            inside.close()


def _end_inside(engine: Engine, found: Found) -> None:
    made = engine.api.exec_create(found.id, ["touch", "end"])
    engine.api.exec_start(made["Id"])
    engine.api.wait(found.id, timeout=10)


def _touch(runtime: ProcessRuntime, found: Found) -> None:
    (runtime.root / found.id / "disk" / "end").touch()
    while (now := runtime.inspect(found.id)) is not None and now.is_alive:
        time.sleep(0.02)


UNTIL_TOLD = ("/bin/sh", "-c", "while [ ! -e end ]; do sleep 0.05; done; exit 3")


def test_a_started_container_is_on_the_list_with_its_labels(bench: Bench) -> None:
    """The list says instance, assignment, GPUs, first process and start of what was started."""
    began = int(time.time()) - 1
    started = bench.runtime.start(bench.spec(7, 4, gpu_uuids=("GPU-a", "GPU-b")))
    (listed,) = bench.runtime.list()
    assert listed == started == bench.runtime.inspect(started.id)
    assert (listed.instance, listed.assignment, listed.state) == (7, 4, "running")
    assert listed.gpu_uuids == bench.gpus("GPU-a", "GPU-b")
    assert listed.pid is not None
    assert listed.started_at is not None
    assert began <= listed.started_at <= began + 30


def test_starting_again_changes_nothing(bench: Bench) -> None:
    """A start that was carried out before is answered with the same container."""
    first = bench.runtime.start(bench.spec())
    assert bench.runtime.start(bench.spec()) == first
    assert len(bench.runtime.list()) == 1


def test_a_stopped_container_is_there_and_goes_on(bench: Bench) -> None:
    """A stop keeps the container; a start under the same assignment lets it run again."""
    started = bench.runtime.start(bench.spec())
    bench.runtime.stop(started.id, 5)
    (stopped,) = bench.runtime.list()
    assert (stopped.state, stopped.pid, stopped.is_alive) == ("exited", None, False)
    again = bench.runtime.start(bench.spec())
    assert (again.state, again.assignment) == ("running", 1)


def test_a_kill_is_done_when_it_returns(bench: Bench) -> None:
    """A stop without grace leaves no process when it returns."""
    started = bench.runtime.start(bench.spec())
    began = time.monotonic()
    bench.runtime.stop(started.id, 0)
    assert time.monotonic() - began < 2
    found = bench.runtime.inspect(started.id)
    assert found is not None
    assert (found.state, found.exit_code) == ("exited", 137)


def test_stop_and_remove_of_what_is_not_there_succeed(bench: Bench) -> None:
    """Unknown ids, stopped containers and repeats are no errors."""
    for _ in range(2):
        bench.runtime.stop("123456", 0)
        bench.runtime.remove("123456")
    started = bench.runtime.start(bench.spec())
    for grace in (0, 1, 0):
        bench.runtime.stop(started.id, grace)
    for _ in range(2):
        bench.runtime.remove(started.id)
    assert bench.runtime.list() == []
    assert bench.runtime.inspect(started.id) is None


def test_another_assignment_takes_the_instance_over(bench: Bench) -> None:
    """The same instance on other GPUs runs under the new assignment, once."""
    bench.runtime.start(bench.spec(7, 1, gpu_uuids=("GPU-a",)))
    bench.runtime.start(bench.spec(7, 2, gpu_uuids=("GPU-b",)))
    (found,) = bench.runtime.list()
    assert (found.assignment, found.gpu_uuids, found.state) == (
        2,
        bench.gpus("GPU-b"),
        "running",
    )


def test_an_end_by_itself_is_seen_with_its_code(bench: Bench) -> None:
    """A command that ends leaves a container with the exit code, and an event."""
    since = time.time() - 1
    started = bench.runtime.start(bench.spec(args=UNTIL_TOLD))
    bench.end(started)
    found = bench.runtime.inspect(started.id)
    assert found is not None
    assert (found.state, found.exit_code) == ("exited", 3)
    kinds = [one.kind for one in bench.runtime.events(since) if one.id == started.id]
    assert kinds == ["start", "exit"]


def test_events_before_the_given_second_are_not_told(bench: Bench) -> None:
    """The stream begins where it is asked to."""
    bench.runtime.start(bench.spec())
    assert bench.runtime.events(time.time() + 60) == []


def test_a_probe_answers_for_a_running_container_only(bench: Bench) -> None:
    """What is stopped or unknown has no GPUs inside."""
    started = bench.runtime.start(bench.spec())
    assert bench.runtime.probe(started.id)
    bench.runtime.stop(started.id, 0)
    assert not bench.runtime.probe(started.id)
    assert not bench.runtime.probe("999999")


def test_no_logs_of_nothing(bench: Bench) -> None:
    """An unknown container and a tail of 0 have no output."""
    started = bench.runtime.start(bench.spec())
    assert bench.runtime.logs("999999", 10) == b""
    assert bench.runtime.logs(started.id, 0) == b""
    assert bench.runtime.logs("999999", None) == b""


def test_a_volume_that_is_not_there_is_removed_with_success(bench: Bench) -> None:
    """The end of a volume may be asked for twice, and where it never was."""
    bench.runtime.remove_volume(3)
    bench.runtime.remove_volume(3)


# --- processes ------------------------------------------------------------------------------------


def test_a_process_instance_keeps_its_disk_until_it_is_removed(folder: Path) -> None:
    """Files outlive stop and another assignment, and nothing outlives a remove."""
    runtime = ProcessRuntime(folder / "instances")
    write = ("/bin/sh", "-c", "echo line >> file; exec sleep 1000")
    for assignment in (1, 2):
        started = runtime.start(spec(7, assignment, args=write))
        assert started.disk is not None
        file = Path(started.disk) / "file"
        _wait(partial(_holds, file, "line\n" * assignment))
        runtime.stop(started.id, 0)
    runtime.remove("7")
    assert list((folder / "instances").iterdir()) == []


def _holds(file: Path, text: str) -> bool:
    return file.exists() and file.read_text() == text


def test_a_process_that_leaves_its_group_is_killed_too(folder: Path) -> None:
    """A daemon that an instance starts does not outlive the instance."""
    runtime = ProcessRuntime(folder / "instances")
    marker = f"mark-{time.time_ns()}"
    args = ("/bin/sh", "-c", "(setsid sleep 1000 &); exec sleep 1000")
    started = runtime.start(spec(args=args, env={"MARK": marker}))
    _wait(lambda: len(_marked(marker)) >= 2)
    runtime.stop(started.id, 0)
    _wait(lambda: _marked(marker) == [])
    runtime.remove(started.id)


def test_output_is_kept_by_line_and_secrets_are_not_on_disk(folder: Path) -> None:
    """The log has what was written; the environment is in no file of the runtime."""
    runtime = ProcessRuntime(folder / "instances")
    args = ("/bin/sh", "-c", "echo one; echo two >&2; echo three")
    started = runtime.start(spec(args=args, env={"SECRET": "rosebud-4711"}))
    _wait(lambda: runtime.logs(started.id, 9) == b"one\ntwo\nthree\n")
    assert runtime.logs(started.id, 2) == b"two\nthree\n"
    kept = b"".join(one.read_bytes() for one in (folder / "instances").rglob("*") if one.is_file())
    assert b"rosebud" not in kept
    runtime.remove(started.id)


def test_of_a_long_output_the_end_is_read(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is read at once is bounded, whatever the instance wrote, over both of its files."""
    for module in ("port", "process"):
        monkeypatch.setattr(f"adapters.hostagent.runtime.{module}.LOG_BYTES", 10)
    runtime = ProcessRuntime(folder / "instances")
    (folder / "instances" / "7").mkdir(parents=True)
    (folder / "instances" / "7" / "output.log.1").write_bytes(b"0123456789\n")
    (folder / "instances" / "7" / "output.log").write_bytes(b"a\nb\n")
    assert runtime.logs("7", None) == b"56789\na\nb\n"
    assert runtime.logs("7", 2) == b"a\nb\n"


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"has_ssh": True}, "way in by ssh"),
        ({"jupyter": "lab"}, "notebook server"),
        ({"mounts": (Mount(3, "/data"),)}, "volumes"),
        ({"user": "root"}, "user"),
        ({"hostname": "box"}, "host name"),
        ({"ports": (PortWish(8080),)}, "ports"),
    ],
)
def test_what_plain_processes_lack_is_named(
    folder: Path, fields: dict[str, Any], named: str
) -> None:
    """A launch that wants it is refused as the renter's choice, in words, and leaves no folder."""
    runtime = ProcessRuntime(folder / "instances")
    with pytest.raises(LaunchError) as refused:
        runtime.start(spec(**fields))
    assert refused.value.reason == "bad_configuration"
    assert named in str(refused.value)
    assert runtime.list() == []


def test_on_the_hosts_network_ports_are_those_of_the_host(folder: Path) -> None:
    """The connection names the wished ports, and another number outside is refused."""
    runtime = ProcessRuntime(folder / "instances", network="host")
    started = runtime.start(spec(ports=(PortWish(8080), PortWish(53, "udp", 53))))
    told = runtime.connection(started.id).ports
    assert [(one.container_port, one.host_port, one.protocol) for one in told] == [
        (8080, 8080, "tcp"),
        (53, 53, "udp"),
    ]
    runtime.remove(started.id)
    with pytest.raises(LaunchError):
        runtime.start(spec(ports=(PortWish(8080, "tcp", 18080),)))


@pytest.mark.skipif(os.geteuid() != 0, reason="namespaces are given to root only")
def test_an_instance_has_namespaces_and_a_user_of_its_own(folder: Path) -> None:
    """As root, an instance sees its own processes and network, under a number that is nobody's."""
    runtime = ProcessRuntime(folder / "instances")
    args = ("/bin/sh", "-c", "id -u; ls /sys/class/net /proc/net; exec sleep 1000")
    started = runtime.start(spec(args=args))
    assert started.pid is not None
    if "net" not in runtime.isolation(7):
        assert any("namespace" in one.what for one in runtime.faults())
    else:
        assert os.readlink(f"/proc/{started.pid}/ns/net") != os.readlink("/proc/self/ns/net")
    _wait(lambda: runtime.logs(started.id, 1) != b"")
    if "user" in runtime.isolation(7):
        assert runtime.logs(started.id, 99).startswith(b"300007\n")
    runtime.remove(started.id)


def test_a_grace_lets_a_process_end_by_itself(folder: Path) -> None:
    """SIGTERM comes first, and what ends within the grace says its own exit code."""
    runtime = ProcessRuntime(folder / "instances")
    args = ("/bin/sh", "-c", "trap 'exit 9' TERM; echo ready; while :; do sleep 0.05; done")
    started = runtime.start(spec(args=args))
    _wait(lambda: runtime.logs(started.id, 1) == b"ready\n")
    runtime.stop(started.id, 10)
    found = runtime.inspect(started.id)
    assert found is not None
    assert found.exit_code == 9
    runtime.remove(started.id)


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"args": ("/no/such/program",)}, "bad_command"),
        ({"args": ()}, "bad_command"),
        ({"env": {"a b": "c"}}, "env_invalid"),
    ],
)
def test_a_process_that_cannot_start_says_why(
    folder: Path, fields: dict[str, Any], reason: str
) -> None:
    """A renter's mistake has the code by which it is not held against the host."""
    runtime = ProcessRuntime(folder / "instances")
    with pytest.raises(LaunchError) as refused:
        runtime.start(spec(**fields))
    assert refused.value.reason == reason
    runtime.remove("7")


def _marked(marker: str) -> list[int]:
    found = []
    for one in Path("/proc").glob("[0-9]*/environ"):
        try:
            if marker.encode() in one.read_bytes():
                found.append(int(one.parent.name))
        except OSError:
            continue
    return found


def _wait(condition: Callable[[], object], seconds: float = 10.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)


# --- Docker ---------------------------------------------------------------------------------------


@pytest.fixture
def engine(folder: Path) -> Iterator[FakeDocker]:
    """A fake engine."""
    one = FakeDocker(folder)
    yield one
    one.close()


@pytest.fixture
def docker(engine: FakeDocker) -> Iterator[DockerRuntime]:
    """Docker on the fake engine."""
    one = DockerRuntime(engine.url)
    yield one
    one.close()


def test_gpus_are_asked_for_by_uuid_and_the_network_is_never_the_hosts(
    docker: DockerRuntime, engine: FakeDocker
) -> None:
    """The create request names UUIDs, labels, limits and a bridge, and no privilege."""
    docker.start(
        spec(7, 3, gpu_uuids=("GPU-a",), disk_bytes=10**10, env={"A": "b"}, ports=(PortWish(22),))
    )
    (made,) = [body for _, path, body in engine.asked if path == "/containers/create"]
    host = made["HostConfig"]
    assert made["Labels"]["ledger.instance_id"] == "7"
    assert made["Labels"]["ledger.assignment_no"] == "3"
    assert host["DeviceRequests"][0]["DeviceIDs"] == ["GPU-a"]
    assert host["DeviceRequests"][0]["Capabilities"] == [["gpu"]]
    assert host["NetworkMode"] == "bridge"
    assert not host.get("Privileged")
    assert host["StorageOpt"] == {"size": "10000000000"}
    assert (made["Env"], made["Image"]) == (["A=b"], "busybox:latest")
    assert host["PidsLimit"] > 0


def test_published_ports_and_the_digest_are_told(docker: DockerRuntime) -> None:
    """The connection names each published port once, and the image by its digest."""
    started = docker.start(spec(ports=(PortWish(22), PortWish(53, "udp"))))
    connection = docker.connection(started.id)
    assert [(one.container_port, one.protocol) for one in connection.ports] == [
        (22, "tcp"),
        (53, "udp"),
    ]
    assert all(one.host_port >= 32_768 for one in connection.ports)
    assert connection.digest == "sha256:" + "ab" * 32


def test_a_wished_port_is_given_and_a_taken_one_replaced(docker: DockerRuntime) -> None:
    """Two renters wish the same port of the host: the second gets another, and is told which."""
    first = docker.start(spec(7, ports=(PortWish(8080, "tcp", 18080),)))
    second = docker.start(spec(8, gpu_uuids=("GPU-b",), ports=(PortWish(8080, "tcp", 18080),)))
    (one,), (two,) = docker.connection(first.id).ports, docker.connection(second.id).ports
    assert (one.host_port, two.container_port) == (18080, 8080)
    assert two.host_port >= 32_768
    assert {found.instance for found in docker.list()} == {7, 8}
    low = docker.start(spec(9, gpu_uuids=(), ports=(PortWish(80, "tcp", 80),)))
    assert docker.connection(low.id).ports[0].host_port >= 32_768


def test_a_text_runs_whatever_the_image_begins_with(
    docker: DockerRuntime, engine: FakeDocker
) -> None:
    """A text and a program replace the image's entry point; arguments alone are for it."""
    docker.start(spec(1, args=("a",), onstart="train"))
    docker.start(spec(2, gpu_uuids=(), args=("-c", "x"), entrypoint="/bin/sh"))
    docker.start(spec(3, gpu_uuids=(), args=("a",)))
    made = [body for _, path, body in engine.asked if path == "/containers/create"]
    assert [(one.get("Entrypoint"), one["Cmd"]) for one in made] == [
        (["/bin/sh", "-c", "train", "onstart"], ["a"]),
        (["/bin/sh"], ["-c", "x"]),
        (None, ["a"]),
    ]


def test_ways_in_volumes_and_names_are_handed_over(
    docker: DockerRuntime, engine: FakeDocker
) -> None:
    """Keys, notebook, user, host name, login and volumes are in what the engine is asked for."""
    docker.start(
        spec(
            args=(),
            onstart="train",
            has_ssh=True,
            ssh_keys=("ssh-ed25519 AAAA me",),
            jupyter="lab",
            user="root",
            hostname="box",
            login=Login("me", "pass"),
            mounts=(Mount(3, "/data"),),
        )
    )
    (made,) = [body for _, path, body in engine.asked if path == "/containers/create"]
    env = dict(line.partition("=")[::2] for line in made["Env"])
    (inside,) = [one["contents"] for one in engine.containers.values()]
    assert "ssh-ed25519 AAAA me\n" in inside["/root/.ssh/authorized_keys"]
    assert (made["User"], made["Hostname"], made["Cmd"]) == ("root", "box", ["train"])
    assert set(made["HostConfig"]["PortBindings"]) == {"22/tcp", "8080/tcp"}
    assert "ledger-volume-3:/data:rw" in made["HostConfig"]["Binds"]
    assert engine.logins[0] is not None
    (found,) = docker.list()
    told = docker.connection(found.id).jupyter
    assert told is not None
    assert (told.container_port, told.token) == (8080, env["JUPYTER_TOKEN"])
    docker.remove(found.id)
    assert engine.volumes == {"ledger-volume-3"}
    docker.remove_volume(3)
    assert engine.volumes == set()


KEYS = ("ssh-ed25519 AAAA me@home", "ssh-rsa BBBB you")


def test_keys_are_changed_inside_and_the_renters_own_stay(
    docker: DockerRuntime, engine: FakeDocker
) -> None:
    """What is let in is exactly what was said last, beside the lines that the renter wrote."""
    started = docker.start(spec(onstart="train", has_ssh=True, ssh_keys=KEYS[:1]))
    inside = engine.containers[started.id]["contents"]
    file = "/root/.ssh/authorized_keys"
    assert KEYS[0] in inside[file]
    assert not docker.set_keys(started.id, KEYS[:1]), "nothing changed"
    inside[file] = f"ssh-rsa CCCC own\n{inside[file]}ssh-rsa DDDD own too\n"
    assert docker.set_keys(started.id, KEYS[1:])
    assert not docker.set_keys(started.id, KEYS[1:])
    assert KEYS[0] not in inside[file]
    assert [line for line in inside[file].splitlines() if not line.startswith("#")] == [
        "ssh-rsa CCCC own",
        "ssh-rsa DDDD own too",
        KEYS[1],
    ]
    assert docker.set_keys(started.id, ())
    assert inside[file] == "ssh-rsa CCCC own\nssh-rsa DDDD own too\n"
    assert not docker.set_keys("0" * 64, KEYS), "what is not there needs no keys"


def test_a_key_that_was_detached_meanwhile_does_not_open_a_restart(
    docker: DockerRuntime, engine: FakeDocker
) -> None:
    """A container that goes on does so with the keys of now, before anything in it runs."""
    started = docker.start(spec(has_ssh=True, ssh_keys=KEYS))
    docker.stop(started.id, 0)
    docker.start(spec(has_ssh=True, ssh_keys=KEYS[1:]))
    assert KEYS[0] not in engine.containers[started.id]["contents"]["/root/.ssh/authorized_keys"]
    paths = [(verb, path.rpartition("/")[2]) for verb, path, _ in engine.asked]
    assert paths.index(("PUT", "archive")) < paths.index(("POST", "start"))
    assert max(at for at, one in enumerate(paths) if one == ("PUT", "archive")) < max(
        at for at, one in enumerate(paths) if one == ("POST", "start")
    )


def test_an_endless_file_of_keys_is_not_read(docker: DockerRuntime, engine: FakeDocker) -> None:
    """What a renter makes of the file costs the agent no memory; it is told as theirs."""
    started = docker.start(spec(has_ssh=True, ssh_keys=KEYS))
    engine.containers[started.id]["contents"]["/root/.ssh/authorized_keys"] = "#" * (2**20 + 1)
    with pytest.raises(LaunchError, match="larger"):
        docker.set_keys(started.id, KEYS[:1])


def test_a_kill_before_the_removal_of_the_one_before_leaves_one_container(
    docker: DockerRuntime, engine: FakeDocker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next start finds both containers of the instance, and only the newer one goes on."""
    docker.start(spec(7, 1))
    create = docker._create

    def create_and_die(*args: Any, **kwargs: Any) -> str:
        create(*args, **kwargs)
        raise SystemExit

    monkeypatch.setattr(docker, "_create", create_and_die)
    with pytest.raises(SystemExit):
        docker.start(spec(7, 2))
    monkeypatch.undo()
    assert len(docker.list()) == 2
    docker.start(spec(7, 2))
    (found,) = docker.list()
    assert (found.assignment, found.state) == (2, "running")


def test_a_kill_between_two_containers_loses_no_file(
    docker: DockerRuntime, engine: FakeDocker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whenever the next container was made, and never before, the one before it is removed."""
    first = docker.start(spec(7, 1))
    engine.containers[first.id]["files"].append("/root/model")

    def die(_: object) -> None:
        raise SystemExit

    monkeypatch.setattr(docker, "_begin", die)
    with pytest.raises(SystemExit):
        docker.start(spec(7, 2))
    monkeypatch.undo()
    again = docker.start(spec(7, 2))
    assert engine.containers[again.id]["files"] == ["/root/model"]
    assert len(docker.list()) == 1


def test_a_stopped_container_has_its_disk(docker: DockerRuntime) -> None:
    """The path by which a disk is watched is there whether the container runs or not."""
    started = docker.start(spec())
    docker.stop(started.id, 0)
    (found,) = docker.list()
    assert found.disk == started.disk
    assert str(found.disk).endswith("/diff")


def test_an_instance_on_other_gpus_keeps_what_its_file_system_became(
    docker: DockerRuntime, engine: FakeDocker
) -> None:
    """A new assignment starts from the old container's files, and a destroy leaves no image."""
    first = docker.start(spec(7, 1))
    engine.containers[first.id]["files"].append("/root/model")
    second = docker.start(spec(7, 2, gpu_uuids=("GPU-b",)))
    assert engine.containers[second.id]["files"] == ["/root/model"]
    docker.remove(second.id)
    assert engine.containers == {}
    assert engine.volumes == set()
    assert list(engine.images) == ["busybox:latest"]


def test_the_output_of_a_container_comes_without_frames(
    docker: DockerRuntime, engine: FakeDocker
) -> None:
    """Logs are the lines that the container wrote, the last ones asked for."""
    started = docker.start(spec())
    for line in ("one", "two", "three"):
        engine.write(started.id, line)
    assert docker.logs(started.id, 2) == b"two\nthree\n"


def test_gpus_that_are_gone_inside_fail_the_probe(
    docker: DockerRuntime, engine: FakeDocker
) -> None:
    """A container whose devices disappeared is told apart from one that has them."""
    started = docker.start(spec())
    assert docker.probe(started.id)
    engine.gpus_inside = False
    assert not docker.probe(started.id)


def test_a_probe_that_hangs_is_given_up_and_not_asked_again(
    docker: DockerRuntime, engine: FakeDocker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A driver that hangs inside costs one thread, and the answer is no after the deadline."""
    monkeypatch.setattr("adapters.hostagent.runtime.docker_engine.PROBE_SECONDS", 0.3)
    started = docker.start(spec())
    engine.hangs_inside = True
    began = time.monotonic()
    assert not docker.probe(started.id)
    assert not docker.probe(started.id)
    assert time.monotonic() - began < 3
    asked = [path for _, path, _ in engine.asked if path.endswith("/exec")]
    assert len(asked) == 1
    engine.hangs_inside = False
    _wait(lambda: docker.probe(started.id))


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"image": "nowhere:1"}, "image_not_found"),
        ({"image": "private"}, "image_denied"),
        ({"image": None}, "bad_configuration"),
    ],
)
def test_a_container_that_cannot_start_says_why(
    docker: DockerRuntime, fields: dict[str, Any], reason: str
) -> None:
    """A renter's mistake has the code by which it is not held against the host."""
    with pytest.raises(LaunchError) as refused:
        docker.start(spec(**fields))
    assert refused.value.reason == reason


def test_a_newer_engine_is_spoken_to_in_its_own_version(
    docker: DockerRuntime, engine: FakeDocker
) -> None:
    """An engine that refuses old versions is asked in one it knows, also when it is replaced."""
    assert docker.list() == []
    engine.least_version = "1.44"
    with pytest.raises(RuntimeUnavailableError, match="too old"):
        docker.list()
    assert docker.list() == []
    engine.least_version = "1.100"
    with pytest.raises(RuntimeUnavailableError, match="too old"):
        docker.list()
    docker.start(spec())
    assert len(docker.list()) == 1


def test_a_refusal_that_nobody_foresaw_is_no_empty_list(
    docker: DockerRuntime, engine: FakeDocker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the engine says no to, the list is not known, and the agent's loop goes on."""
    docker.start(spec())

    def refuse(**_: object) -> None:
        raise Problem(403, "authorization denied by plugin")

    monkeypatch.setattr(engine, "_list", refuse)
    with pytest.raises(RuntimeUnavailableError, match="denied by plugin"):
        docker.list()


def test_events_of_a_second_to_come_are_not_waited_for(
    docker: DockerRuntime, engine: FakeDocker
) -> None:
    """After the host's clock was set back, the engine is not asked to wait until then."""
    asked = len(engine.asked)
    assert docker.events(time.time() + 3600) == []
    assert len(engine.asked) == asked


def test_a_copy_is_whole_or_nobodys(
    docker: DockerRuntime, engine: FakeDocker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kill before the last byte leaves what the next launch begins anew; a whole one stays."""
    source, copy = "ledger-volume-3", "ledger-volume-4"
    engine.volumes.add(source)
    engine.volume_files[source] = {"a": "one", "b/c": "two"}
    wanted = Mount(4, "/data", copy_of=Mount(3, ""))

    def die(*_: object) -> None:
        engine.volumes.add(copy)
        engine.volume_files[copy] = {"a": "on", "half": ""}
        raise SystemExit

    monkeypatch.setattr(docker._volumes, "_copy", die)
    with pytest.raises(SystemExit):
        docker.start(spec(mounts=(wanted,)))
    monkeypatch.undo()
    docker.start(spec(mounts=(wanted,)))
    assert engine.volume_files[copy] == {"a": "one", "b/c": "two"}
    engine.volume_files[source]["late"] = "three"
    docker.make_copy(wanted)
    assert "late" not in engine.volume_files[copy]
    assert len(engine.containers) == 1, "what copied is gone"
    docker.remove(docker.list()[0].id)
    for number in (3, 4):
        docker.remove_volume(number)
    assert engine.volumes == set()


@pytest.mark.parametrize("state", ["gone", "elsewhere"])
def test_a_copy_of_what_is_not_here_is_refused(
    docker: DockerRuntime, engine: FakeDocker, state: Literal["gone", "elsewhere"]
) -> None:
    """No empty volume is given for one whose contents are on no disk of this machine."""
    wanted = Mount(4, "/data", copy_of=Mount(3, "", state=state))
    with pytest.raises(LaunchError, match="copy of volume 3") as refused:
        docker.start(spec(mounts=(wanted,)))
    assert refused.value.reason == "volume_unavailable"
    assert "ledger-volume-4" not in engine.volumes


def test_of_a_copy_of_a_copy_the_first_is_made_first(
    docker: DockerRuntime, engine: FakeDocker
) -> None:
    """Whoever comes first, nothing is copied from what is not whole itself."""
    engine.volumes.add("ledger-volume-3")
    engine.volume_files["ledger-volume-3"] = {"a": "one"}
    between = Mount(4, "", copy_of=Mount(3, "", state="gone"))
    docker.make_copy(Mount(5, "/data", copy_of=between))
    assert engine.volume_files["ledger-volume-5"] == {"a": "one"}
    assert "ledger-volume-4-whole" in engine.volumes


def test_volumes_are_bounded_where_the_engine_can(
    docker: DockerRuntime, engine: FakeDocker
) -> None:
    """Disk and rented volume have their size as a bound, and none where there are no quotas."""
    wanted = spec(disk_bytes=10**10, mounts=(Mount(3, "/data", 5 * 10**9),))
    docker.start(wanted)
    assert engine.volume_options == {
        "ledger-7": {"size": "10000000000"},
        "ledger-volume-3": {"size": "5000000000"},
    }
    engine.has_quotas = False
    docker.start(spec(8, gpu_uuids=(), mounts=(Mount(4, "/data", 5 * 10**9),)))
    assert engine.volume_options["ledger-volume-4"] == {}


def test_a_file_system_without_quotas_is_said_and_used(
    docker: DockerRuntime, engine: FakeDocker
) -> None:
    """Where the engine refuses a size, the instance runs without, and the fault is known."""
    assert docker.faults() == []
    engine.has_quotas = False
    assert docker.start(spec(disk_bytes=10**10)).state == "running"
    assert [one.what for one in docker.faults()] == [
        "the size of an instance's disk is not enforced"
    ]


def test_an_engine_that_is_away_is_not_an_empty_one(folder: Path) -> None:
    """No answer is an error, never the list of no containers."""
    with warnings.catch_warnings():
        # The engine's own library leaves a socket that could not be connected to the collector.
        warnings.simplefilter("ignore", ResourceWarning)
        docker = DockerRuntime(f"unix://{folder}/nothing.sock")
        with pytest.raises(RuntimeUnavailableError):
            docker.list()
        assert not docker.probe("x")
        assert "does not answer" in docker.faults()[0].what
        docker.close()
        gc.collect()
