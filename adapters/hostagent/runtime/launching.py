"""From what the server wants run to the runtime's terms; what cannot be had is refused in words.

Nothing of a launch is passed over in silence: the runtime is given it, or the renter is told.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal

from adapters.hostagent.runtime.port import LaunchError, LaunchSpec, Login, Mount, PortWish
from ledger.domain.acknowledgement import DesiredInstance, DesiredVolume

_PORT: Final = re.compile(r"(?:(\d{1,5}):)?(\d{1,5})(?:/(tcp|udp))?")
_PORT_MAX: Final = 65_535
_WAYS: Final = frozenset({
    "args", "ssh", "ssh_proxy", "ssh_direc", "ssh_direct", "jupyter", "jupyter_proxy",
    "jupyter_direc", "jupyter_direct",
})  # fmt: skip
"""Words of a `runtype`; by proxy and direct are one, as long as there is no gateway."""


def spec_of(wanted: DesiredInstance, volumes: Sequence[DesiredVolume] = ()) -> LaunchSpec:
    """What the server wants run, in the runtime's terms; *volumes* are those of the machine.

    Raises:
        LaunchError: `bad_configuration`, the launch is not of a shape that can be run;
            `volume_unavailable`, it has a volume that cannot be made here.
    """
    launch: Mapping[str, Any] = wanted.spec or {}
    try:
        ways = _ways(launch)
        onstart = _text(launch.get("onstart"), "onstart")
        is_program = "args" in ways and onstart is not None and len(onstart.split()) == 1
        return LaunchSpec(
            instance=wanted.instance,
            assignment=wanted.assignment,
            gpu_uuids=tuple(wanted.gpu_uuids),
            disk_bytes=wanted.disk_bytes,
            image=_text(launch.get("image"), "image"),
            digest=_text(launch.get("digest"), "digest"),
            env=_environment(launch),
            onstart=None if is_program else onstart,
            entrypoint=onstart if is_program else None,
            args=tuple(str(one) for one in launch.get("args") or ()),
            login=_login(launch.get("image_login")),
            user=_text(launch.get("user"), "user"),
            hostname=_text(launch.get("hostname"), "hostname"),
            has_ssh=any(way.startswith("ssh") for way in ways),
            ssh_keys=tuple(str(one) for one in launch.get("ssh_keys") or ()),
            jupyter=_jupyter(launch, ways),
            jupyter_dir=_text(launch.get("jupyter_dir"), "jupyter_dir"),
            ports=tuple(_port(one) for one in launch.get("ports") or ()),
            mounts=_mounts(wanted, volumes),
        )
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        message = f"the launch of instance {wanted.instance} cannot be run: {error}"
        raise LaunchError("bad_configuration", message) from None


def mount_of(volume: DesiredVolume, volumes: Sequence[DesiredVolume], path: str = "") -> Mount:
    """A volume in the runtime's terms; *volumes* are those of the machine."""
    source = None
    if volume.cloned_from is not None:
        source = Mount(volume.cloned_from, "", state="elsewhere")
        for one in volumes:
            if one.volume == volume.cloned_from:
                source = mount_of(one, volumes)
    return Mount(volume.volume, path, volume.disk_bytes, source, volume.want)


def _mounts(wanted: DesiredInstance, volumes: Sequence[DesiredVolume]) -> tuple[Mount, ...]:
    known = {one.volume: one for one in volumes}
    found = []
    for mount in wanted.volumes:
        volume = known.get(mount.volume)
        if volume is None:
            message = f"volume {mount.volume} is not on this machine"
            raise LaunchError("volume_unavailable", message)
        found.append(mount_of(volume, volumes, mount.mount_path))
    return tuple(found)


def _ways(launch: Mapping[str, Any]) -> frozenset[str]:
    """The words of its `runtype`; none where it has none."""
    ways = frozenset((launch.get("runtype") or "").split())
    if not ways <= _WAYS:
        message = f"`runtype`: {' '.join(sorted(ways - _WAYS))} is not known here"
        raise ValueError(message)
    if launch.get("extra"):
        message = "`extra`: this host takes no further words for its runtime; leave it out"
        raise ValueError(message)
    return ways


def _environment(launch: Mapping[str, Any]) -> dict[str, str]:
    """The renter's variables; what an option asks for is below what they set themselves."""
    found = {}
    if launch.get("python_utf8"):
        found["PYTHONUTF8"] = "1"
    if launch.get("lang_utf8"):
        found["LANG"] = "C.UTF-8"
    return found | {str(name): str(value) for name, value in (launch.get("env") or {}).items()}


def _jupyter(launch: Mapping[str, Any], ways: frozenset[str]) -> Literal["notebook", "lab"] | None:
    if not any(way.startswith("jupyter") for way in ways):
        return None
    return "lab" if launch.get("use_jupyter_lab") else "notebook"


def _login(value: Mapping[str, Any] | None) -> Login | None:
    if value is None:
        return None
    registry = _text(value.get("registry"), "registry")
    return Login(str(value["username"]), str(value["password"]), registry)


def _text(value: object, name: str) -> str | None:
    if value is None or isinstance(value, str):
        return value
    message = f"`{name}` is not a text"
    raise ValueError(message)


def _port(value: object) -> PortWish:
    """A wish such as `8080`, `8080/udp`, `18080:8080`, or an object with `container_port`."""
    if isinstance(value, Mapping):
        text = f"{value.get('container_port')}/{value.get('protocol', 'tcp')}"
    else:
        text = str(value)
    found = _PORT.fullmatch(text)
    numbers = [int(part) for part in found.groups()[:2] if part] if found else []
    if found is None or not all(1 <= number <= _PORT_MAX for number in numbers):
        message = f"{value!r} is no port"
        raise ValueError(message)
    host = numbers[0] if found[1] else None
    return PortWish(numbers[-1], "udp" if found[3] == "udp" else "tcp", host)
