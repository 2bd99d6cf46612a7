"""What a real engine makes of the agent's requests; skipped with the reason where none is."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from adapters.hostagent.runtime.docker_engine import DockerRuntime
from adapters.hostagent.runtime.docker_launch import creation, host_options
from adapters.hostagent.runtime.port import LaunchError, LaunchSpec, Mount, PortWish
from tests.support.engine import IMAGE, Engine

FOREVER = "while :; do sleep 1000; done"


def spec(instance: int = 7, assignment: int = 1, **fields: object) -> LaunchSpec:
    """A container that stays, unless told otherwise."""
    wanted = {"image": IMAGE, "onstart": FOREVER, "gpu_uuids": (), **fields}
    return LaunchSpec(instance=instance, assignment=assignment, **wanted)  # type: ignore[arg-type]


@pytest.fixture
def runtime(real_engine: Engine) -> Iterator[DockerRuntime]:
    """The runtime on the real engine; what a test leaves is removed."""
    one = DockerRuntime(real_engine.url)
    yield one
    for found in one.list():
        one.remove(found.id)
    for number in range(3, 7):
        one.remove_volume(number)
    one.close()


@pytest.fixture
def starting(runtime: DockerRuntime, real_engine: Engine) -> DockerRuntime:
    """The runtime, where the engine starts containers."""
    real_engine.require_start()
    return runtime


def made(engine: Engine, wanted: LaunchSpec) -> str:
    """The container of *wanted*, created as the runtime would and not started."""
    options = host_options(wanted, with_quota=False, as_wished=True)
    host = engine.api.create_host_config(**options)
    return str(engine.api.create_container(**creation(wanted, IMAGE), host_config=host)["Id"])


def until(condition: Callable[[], object], seconds: float = 20.0) -> None:
    """Wait until *condition* holds."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.05)


# --- wherever an engine answers -------------------------------------------------------------------


def test_a_whole_launch_is_accepted_listed_and_removed(
    runtime: DockerRuntime, real_engine: Engine
) -> None:
    """The engine takes every part of a creation, shows its labels, and forgets it on remove."""
    wanted = spec(
        7,
        3,
        gpu_uuids=("GPU-a", "GPU-b"),
        env={"A": "b c"},
        user="root",
        hostname="box",
        has_ssh=True,
        ssh_keys=("ssh-ed25519 AAAA me",),
        jupyter="lab",
        ports=(PortWish(8080, "tcp", 28_080), PortWish(53, "udp")),
        mounts=(Mount(3, "/data"),),
    )
    created = made(real_engine, wanted)
    (listed,) = runtime.list()
    assert listed == runtime.inspect(created)
    assert (listed.instance, listed.assignment, listed.state) == (7, 3, "created")
    assert listed.gpu_uuids == ("GPU-a", "GPU-b")
    assert (listed.pid, listed.exit_code, listed.is_alive) == (None, None, False)
    assert not runtime.probe(created)
    assert runtime.logs(created, 10) == b""
    for _ in range(2):
        runtime.remove(created)
        runtime.remove_volume(3)
    assert runtime.list() == []
    assert real_engine.platform_volumes() == []


def test_the_request_names_gpus_by_uuid(real_engine: Engine, runtime: DockerRuntime) -> None:
    """What the engine keeps of the request is a device request with the UUIDs, and a bridge."""
    shown = real_engine.api.inspect_container(made(real_engine, spec(gpu_uuids=("GPU-a",))))
    host = shown["HostConfig"]
    assert host["NetworkMode"] == "bridge"
    assert not host["Privileged"]
    if real_engine.is_podman:
        pytest.skip("this engine keeps no device requests to be looked at")
    (request,) = host["DeviceRequests"]
    assert (request["Driver"], request["DeviceIDs"]) == ("nvidia", ["GPU-a"])


def test_events_of_the_present_second_are_told_at_once(
    runtime: DockerRuntime, real_engine: Engine
) -> None:
    """What has just been removed is told by the very next question, and not by the one after."""
    created = made(real_engine, spec())
    runtime.remove(created)
    told = [one.kind for one in runtime.events(time.time() - 5) if one.id == created]
    assert told == ["remove"]


def test_an_image_that_is_nowhere_is_the_renters_mistake_or_the_networks(
    runtime: DockerRuntime,
) -> None:
    """A pull that fails leaves no container, and a code for why."""
    with pytest.raises(LaunchError) as refused:
        runtime.start(spec(image="localhost:9/nothing/here:1"))
    assert refused.value.reason in {"image_pull_failed", "image_not_found", "image_denied"}
    assert runtime.list() == []


# --- where it starts containers -------------------------------------------------------------------


def test_gpus_that_the_engine_cannot_give_are_said_to_be_unavailable(
    starting: DockerRuntime, real_engine: Engine
) -> None:
    """Without NVIDIA's runtime a container with GPUs does not start, and the fault is known."""
    if real_engine.has_gpus or real_engine.is_podman:
        pytest.skip("this engine gives GPUs, or passes over the wish for them")
    with pytest.raises(LaunchError) as refused:
        starting.start(spec(gpu_uuids=("GPU-a",)))
    assert refused.value.reason == "gpu_unavailable"
    assert any("NVIDIA" in one.what for one in starting.faults())


def test_the_first_process_is_the_hosts_and_has_a_network_of_its_own(
    starting: DockerRuntime,
) -> None:
    """The pid that the engine names is alive here, in another network namespace than ours."""
    started = starting.start(spec())
    assert started.pid is not None
    if not Path(f"/proc/{started.pid}").exists():
        pytest.skip("the engine's processes are not in this process namespace")
    assert os.readlink(f"/proc/{started.pid}/ns/net") != os.readlink("/proc/self/ns/net")
    assert "eth0:" in Path(f"/proc/{started.pid}/net/dev").read_text()


def test_ports_are_published_and_a_taken_one_is_replaced(starting: DockerRuntime) -> None:
    """Of two renters who wish one port of the host the second gets another, and both are told."""
    wish = (PortWish(8080, "tcp", 28_080), PortWish(53, "udp"))
    first = starting.start(spec(7, ports=wish))
    second = starting.start(spec(8, ports=wish))
    ports = [
        {
            (one.container_port, one.protocol): one.host_port
            for one in starting.connection(id_).ports
        }
        for id_ in (first.id, second.id)
    ]
    assert [set(one) for one in ports] == [{(8080, "tcp"), (53, "udp")}] * 2
    assert ports[0][8080, "tcp"] == 28_080 != ports[1][8080, "tcp"]
    assert {one.instance for one in starting.list() if one.is_alive} == {7, 8}


def test_files_live_through_stop_and_another_assignment(
    starting: DockerRuntime, real_engine: Engine
) -> None:
    """File system and workspace are the instance's, and nothing of either outlives a remove."""
    write = f"echo line >> /root/file; echo line >> /workspace/file; {FOREVER}"
    first = starting.start(spec(7, 1, onstart=write))
    until(lambda: real_engine.read(first.id, "/workspace/file"))
    starting.stop(first.id, 0)
    again = starting.start(spec(7, 1, onstart=write))
    assert again.id == first.id
    until(lambda: real_engine.read(again.id, "/workspace/file") == b"line\n" * 2)
    second = starting.start(spec(7, 2, onstart=FOREVER))
    assert (second.assignment, len(starting.list())) == (2, 1)
    for file in ("/root/file", "/workspace/file"):
        # Some engines lose the output of what ends at once: it is asked for again.
        until(lambda file=file: real_engine.read(second.id, file) == b"line\n" * 2)  # type: ignore[misc]
    starting.remove(second.id)
    assert real_engine.platform_volumes() == []
    assert real_engine.platform_images() == []


def test_a_size_is_enforced_or_said_not_to_be(starting: DockerRuntime) -> None:
    """A launch with sizes runs on every file system; where they bound nothing, it is a fault."""
    mounts = (Mount(3, "/data", 10**9),)
    started = starting.start(spec(disk_bytes=10**9, mounts=mounts))
    assert started.is_alive
    if starting._volumes.is_unbounded:
        assert any("not enforced" in one.what for one in starting.faults())


def test_a_grace_is_kept_and_a_kill_is_at_once(starting: DockerRuntime) -> None:
    """What traps SIGTERM ends with its own code, what ignores it is killed after the grace."""
    traps = "trap 'exit 9' TERM; echo ready; while :; do sleep 0.1; done"
    started = starting.start(spec(onstart=traps))
    until(lambda: starting.logs(started.id, 1) == b"ready\n")
    starting.stop(started.id, 10)
    found = starting.inspect(started.id)
    assert found is not None
    assert (found.state, found.exit_code) == ("exited", 9)
    deaf = starting.start(spec(8, onstart="trap '' TERM; echo ready; while :; do sleep 0.1; done"))
    until(lambda: starting.logs(deaf.id, 1) == b"ready\n")
    began = time.monotonic()
    starting.stop(deaf.id, 1)
    assert 0.9 < time.monotonic() - began < 8
    found = starting.inspect(deaf.id)
    assert found is not None
    assert (found.state, found.exit_code) == ("exited", 137)


def test_the_output_is_what_was_written(starting: DockerRuntime) -> None:
    """Both streams come without frames, the last lines are counted from the end."""
    started = starting.start(
        spec(onstart="echo one; sleep 0.2; echo two >&2; sleep 0.2; echo three")
    )
    until(lambda: not starting.list()[0].is_alive)
    assert starting.logs(started.id, None) == b"one\ntwo\nthree\n"
    assert starting.logs(started.id, 2) == b"two\nthree\n"


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"user": "nobody-at-all"}, "bad_configuration"),
        ({"mounts": (Mount(3, "not/absolute"),)}, "bad_configuration"),
    ],
)
def test_a_renters_mistake_has_its_code(
    starting: DockerRuntime, fields: dict[str, Any], reason: str
) -> None:
    """In the engine's own words it is told what was wrong, and the host is not blamed."""
    with pytest.raises(LaunchError) as refused:
        starting.start(spec(**fields))
    assert refused.value.reason == reason, str(refused.value)


@pytest.mark.parametrize("fields", [{"args": ("/no/such",)}, {"entrypoint": "/no/such"}])
def test_a_command_that_is_not_there_ends_at_once_and_says_so(
    starting: DockerRuntime, fields: dict[str, Any]
) -> None:
    """The engine starts its init program, and that says that there is no such program."""
    started = starting.start(spec(onstart=None, **fields))
    until(lambda: not starting.list()[0].is_alive)
    (found,) = starting.list()
    assert found.exit_code in {1, 127}
    assert b"No such file" in starting.logs(started.id, 5)


def test_without_sshd_the_way_in_is_said_to_be_missing(starting: DockerRuntime) -> None:
    """An image that has no sshd and cannot get one ends with 78 and says so, where ssh is all."""
    started = starting.start(spec(onstart=None, has_ssh=True, ssh_keys=("ssh-ed25519 AAAA me",)))
    until(lambda: not starting.list()[0].is_alive)
    (found,) = starting.list()
    assert found.exit_code == 78
    assert b"no sshd could be installed" in starting.logs(started.id, 5)


def test_keys_come_and_go_while_it_runs_and_while_it_does_not(
    starting: DockerRuntime, real_engine: Engine
) -> None:
    """The file that sshd reads has the keys of now, for root alone, beside the renter's own."""
    me, you = "ssh-ed25519 AAAA me@home", "ssh-rsa BBBB you"
    file = "/root/.ssh/authorized_keys"
    wanted: dict[str, Any] = {"onstart": FOREVER, "has_ssh": True}
    started = starting.start(spec(ssh_keys=(me,), **wanted))
    until(lambda: me in real_engine.read(started.id, file).decode())
    real_engine.run(started.id, f"echo ssh-rsa CCCC own >> {file}")
    assert starting.set_keys(started.id, (me, you))
    assert not starting.set_keys(started.id, (me, you))
    text = real_engine.read(started.id, file).decode()
    assert [line for line in text.splitlines() if not line.startswith("#")] == [
        "ssh-rsa CCCC own",
        me,
        you,
    ]
    shown = real_engine.run(started.id, f"ls -ldn /root/.ssh {file}").decode().splitlines()
    assert [line.split()[0] for line in shown] == ["drwx------", "-rw-------"]
    assert [line.split()[2:4] for line in shown] == [["0", "0"]] * 2
    starting.stop(started.id, 0)
    again = starting.start(spec(ssh_keys=(you,), **wanted))
    assert again.id == started.id
    text = real_engine.read(started.id, file).decode()
    assert me not in text
    assert you in text
    assert "CCCC own" in text


def test_a_copy_has_all_that_the_source_has(starting: DockerRuntime, real_engine: Engine) -> None:
    """Files, links, owners, modes and seconds are in the copy, and nothing that came later is."""
    fill = (
        "cd /data && mkdir -p a/b && echo deep > a/b/c && ln -s a/b/c link && chmod 2750 a/b"
        " && chown 1000:1001 a/b/c && dd if=/dev/zero of=big bs=1M count=40 && touch ready;"
        f" {FOREVER}"
    )
    first = starting.start(spec(7, onstart=fill, mounts=(Mount(3, "/data"),)))
    until(lambda: real_engine.run(first.id, "ls /data/ready").startswith(b"/data/ready"), 60)
    copy = Mount(4, "/data", copy_of=Mount(3, ""))
    starting.make_copy(copy)
    real_engine.run(first.id, "echo later > /data/later")
    starting.make_copy(copy)
    second = starting.start(spec(8, mounts=(copy,)))
    owners = "-go" if real_engine.is_podman else "-l"
    listing = f"cd /data && ls {owners} -nR --time-style=+%s . && cat link"
    shown = []
    for one in (first, second):
        until(lambda one=one: real_engine.run(one.id, listing))  # type: ignore[misc]
        shown.append(real_engine.run(one.id, listing).decode())
    assert "later" in shown[0]
    assert [line for line in shown[0].splitlines() if "later" not in line][2:] == shown[
        1
    ].splitlines()[2:]
    for one in (first, second):
        starting.remove(one.id)
    starting.remove_volume(3)
    chained = Mount(5, "/data", copy_of=copy)
    starting.make_copy(chained)
    third = starting.start(spec(9, mounts=(chained,)))
    assert real_engine.read(third.id, "/data/a/b/c") == b"deep\n"
    starting.remove(third.id)
    starting.remove_volume(4)
    starting.remove_volume(5)
    assert real_engine.platform_volumes() == []


def test_a_copy_that_was_broken_off_is_begun_anew(
    starting: DockerRuntime, real_engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a kill left of a copy is nobody's; a source that is gone is told from an empty one."""
    first = starting.start(
        spec(7, onstart=f"echo all > /data/all; {FOREVER}", mounts=(Mount(3, "/data"),))
    )
    until(lambda: real_engine.read(first.id, "/data/all"))
    copy = Mount(4, "/data", copy_of=Mount(3, ""))
    copied = starting._volumes._copy

    def copy_and_die(source: str, target: str) -> None:
        copied(source, target)
        raise SystemExit

    monkeypatch.setattr(starting._volumes, "_copy", copy_and_die)
    with pytest.raises(SystemExit):
        starting.make_copy(copy)
    monkeypatch.undo()
    real_engine.run(first.id, "echo more > /data/more")
    second = starting.start(spec(8, mounts=(copy,)))
    until(lambda: real_engine.read(second.id, "/data/more") == b"more\n")
    for state, number in (("gone", 98), ("elsewhere", 99)):
        nowhere = Mount(5, "/data", copy_of=Mount(number, "", state=state))  # type: ignore[arg-type]
        with pytest.raises(LaunchError) as refused:
            starting.start(spec(9, mounts=(nowhere,)))
        assert refused.value.reason == "volume_unavailable"
    empty = Mount(6, "/data", copy_of=Mount(97, ""))
    third = starting.start(spec(9, mounts=(empty,)))
    assert real_engine.run(third.id, "ls -A /data") == b""


def test_the_probe_asks_inside(starting: DockerRuntime, real_engine: Engine) -> None:
    """Without devices inside, a container that is to have GPUs fails; asked from many threads."""
    started = starting.start(spec())
    assert starting.probe(started.id)
    answers: list[bool] = []
    asks = [
        threading.Thread(target=lambda: answers.append(starting.probe(started.id)))
        for _ in range(4)
    ]
    for one in asks:
        one.start()
    for one in asks:
        one.join()
    assert any(answers)


def test_a_container_that_is_removed_meanwhile_is_no_error(
    starting: DockerRuntime, real_engine: Engine
) -> None:
    """What somebody took away by hand is unknown, and unknown is success."""
    started = starting.start(spec())
    real_engine.api.remove_container(started.id, force=True)
    starting.stop(started.id, 1)
    starting.remove(started.id)
    assert starting.inspect(started.id) is None
    assert starting.connection(started.id).ports == []
    assert starting.logs(started.id, 5) == b""
