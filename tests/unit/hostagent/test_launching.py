"""From what the server wants run to the runtime's terms: handed over, or refused in words."""

from __future__ import annotations

from typing import Any

import pytest

from adapters.hostagent.runtime.launching import spec_of
from adapters.hostagent.runtime.port import LaunchError, LaunchSpec, Login, Mount, PortWish
from ledger.domain.acknowledgement import DesiredInstance, DesiredMount, DesiredVolume


def read(volumes: list[DesiredVolume] | None = None, **launch: Any) -> LaunchSpec:
    """The launch of instance 7; it has a volume where *volumes* are given."""
    wanted = DesiredInstance(
        instance=7,
        assignment=2,
        want="running",
        gpu_uuids=["GPU-a"],
        spec=launch,
        volumes=[DesiredMount(volume=3, mount_path="/data")] if volumes is not None else [],
    )
    return spec_of(wanted, volumes or ())


def test_a_launch_is_read_from_what_the_server_sent() -> None:
    """Image, environment and command come out as they were wished, and none is shown."""
    launch = read(image="a/b:c", env={"A": 1}, onstart="x", digest="sha256:00")
    assert (launch.image, launch.env, launch.onstart) == ("a/b:c", {"A": "1"}, "x")
    assert "A" not in repr(launch)


@pytest.mark.parametrize(
    ("text", "wish"),
    [
        (22, PortWish(22)),
        ("8080", PortWish(8080)),
        ("53/udp", PortWish(53, "udp")),
        ("18080:8080", PortWish(8080, "tcp", 18080)),
        ("18080:8080/udp", PortWish(8080, "udp", 18080)),
        ({"container_port": 80}, PortWish(80)),
    ],
)
def test_a_port_is_read_in_every_form(text: object, wish: PortWish) -> None:
    """The host's number comes before the container's, the protocol behind it."""
    assert read(ports=[text]).ports == (wish,)


@pytest.mark.parametrize(
    ("runtype", "has_ssh", "jupyter"),
    [
        (None, False, None),
        ("args", False, None),
        ("ssh", True, None),
        ("ssh_direc ssh_proxy", True, None),
        ("jupyter_direc ssh_direc ssh_proxy", True, "notebook"),
    ],
)
def test_the_words_of_a_runtype_are_ways_in(
    runtype: str | None, has_ssh: bool, jupyter: str | None
) -> None:
    """By proxy or direct, ssh and notebook are what is opened."""
    launch = read(runtype=runtype, ssh_keys=["k"])
    assert (launch.has_ssh, launch.jupyter, launch.ssh_keys) == (has_ssh, jupyter, ("k",))


def test_with_args_one_word_is_the_program() -> None:
    """`args` with a program in `onstart` runs that program; a text stays a text for the shell."""
    program = read(runtype="args", onstart="/bin/sh", args=["-c", "x"])
    assert (program.entrypoint, program.onstart, program.args) == ("/bin/sh", None, ("-c", "x"))
    text = read(runtype="args", onstart="cd /w && train", args=[])
    assert (text.entrypoint, text.onstart) == (None, "cd /w && train")


def test_options_become_variables_below_the_renters_own() -> None:
    """UTF-8 is asked for in the environment, and what the renter set wins."""
    launch = read(python_utf8=True, lang_utf8=True, env={"LANG": "de_DE.UTF-8"})
    assert launch.env == {"PYTHONUTF8": "1", "LANG": "de_DE.UTF-8"}


def test_login_user_and_names_are_handed_over() -> None:
    """What only an engine can do reaches it."""
    login = {"username": "me", "password": "p", "registry": "r.example"}
    launch = read(image_login=login, user="u", hostname="h", jupyter_dir="/w")
    assert launch.login == Login("me", "p", "r.example")
    assert (launch.user, launch.hostname, launch.jupyter_dir) == ("u", "h", "/w")


def test_a_volume_of_the_machine_is_mounted() -> None:
    """The mount names volume and path."""
    known = DesiredVolume(volume=3, want="kept", disk_bytes=1)
    assert read([known]).mounts == (Mount(3, "/data", 1),)


def test_a_volume_that_cannot_be_had_stops_the_launch() -> None:
    """One that is not here is the host's failure and not passed over."""
    with pytest.raises(LaunchError) as refused:
        read([])
    assert refused.value.reason == "volume_unavailable"


def test_a_copy_knows_what_it_begins_with() -> None:
    """A copy of a copy names all before it, and says of each whether it is on this machine."""
    first = DesiredVolume(volume=1, want="gone", disk_bytes=10)
    second = DesiredVolume(volume=2, want="kept", disk_bytes=20, cloned_from=1)
    third = DesiredVolume(volume=3, want="kept", disk_bytes=30, cloned_from=2)
    one = Mount(1, "", 10, None, "gone")
    two = Mount(2, "", 20, one)
    assert read([third, first, second]).mounts == (Mount(3, "/data", 30, two),)
    assert read([third]).mounts == (Mount(3, "/data", 30, Mount(2, "", state="elsewhere")),)


@pytest.mark.parametrize(
    "launch",
    [
        {"env": [1]}, {"image": 3}, {"args": 3}, {"ports": ["99999"]}, {"ports": ["1:2:3"]},
        {"ports": ["0:80"]}, {"ports": ["80/sctp"]}, {"runtype": "telnet"}, {"extra": "--net=host"},
        {"image_login": {"username": "me"}},
    ],
)  # fmt: skip
def test_a_launch_that_cannot_be_run_is_the_renters_fault(launch: dict[str, Any]) -> None:
    """A shape that nobody can run is refused with its own reason."""
    with pytest.raises(LaunchError) as refused:
        read(**launch)
    assert refused.value.reason == "bad_configuration"
