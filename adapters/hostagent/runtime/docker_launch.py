"""What a Docker container is made from: the request of its creation, and how one gets into it.

GPUs by UUID, a bridge instead of the host's network, no privilege, a bounded log, labels from which
a new agent rebuilds its map.
"""

from __future__ import annotations

import secrets
from typing import Any, Final

from docker.types import DeviceRequest, LogConfig

from adapters.hostagent.runtime.port import (
    ASSIGNMENT_LABEL,
    GPUS_LABEL,
    INSTANCE_LABEL,
    Jupyter,
    LaunchSpec,
    PortWish,
)

_PIDS_MAX: Final = 32_768
_LOG_OPTIONS: Final = {"max-size": "8m", "max-file": "2"}
_WORKSPACE: Final = "/workspace"
_SSH: Final = PortWish(22)
_JUPYTER: Final = PortWish(8_080)
_JUPYTER_TOKEN: Final = "JUPYTER_TOKEN"  # noqa: S105 - the name of a variable
_FIRST_FREE_PORT: Final = 1_024
"""Ports of the host below this are not given away."""

_WAYS_IN: Final = """
say() { echo "gpuledger: $*" >&2; }
lacks() {
    say "$1"
    # With a command of its own the instance is of use without the way in; else to nobody.
    [ -n "$onstart" ] || exit 78
}
onstart=$1
shift
if [ -n "${GPULEDGER_SSH+set}" ]; then
    mkdir -p /root/.ssh /run/sshd && chmod 700 /root/.ssh
    if ! command -v sshd >/dev/null; then
        say "the image has no sshd: installing one"
        { apt-get update && apt-get install -y --no-install-recommends openssh-server \\
            || apk add --no-cache openssh || dnf -y install openssh-server; } >/dev/null 2>&1
    fi
    if command -v sshd >/dev/null; then
        ssh-keygen -A >/dev/null && "$(command -v sshd)" -o PasswordAuthentication=no
    else
        lacks "no sshd could be installed: take an image that has one, or runtype args"
    fi
fi
if [ -n "${GPULEDGER_JUPYTER+set}" ]; then
    if command -v jupyter >/dev/null; then
        (cd "${GPULEDGER_JUPYTER_DIR:-/}" && exec jupyter "$GPULEDGER_JUPYTER" --allow-root \\
            --no-browser --ip=0.0.0.0 --port=8080) &
    else
        lacks "the image has no jupyter: take one that has, or another runtype"
    fi
fi
[ -z "$onstart" ] || /bin/sh -c "$onstart" onstart "$@"
while :; do sleep 3600; done
"""
"""Opens the ways in, runs what the renter asked for, and stays: there may be somebody inside."""


def volume_of(instance: int) -> str:
    """The engine's name of the disk that an instance has besides its file system."""
    return f"ledger-{instance}"


def rented_volume(volume: int) -> str:
    """The engine's name of a volume that is rented by itself."""
    return f"ledger-volume-{volume}"


def creation(spec: LaunchSpec, image: str) -> dict[str, Any]:
    """The arguments of `create_container` besides those of the host."""
    entrypoint, command = _program(spec)
    return {
        "image": image,
        "entrypoint": entrypoint,
        "command": command,
        "environment": {**spec.env, **_ways_in(spec)},
        "user": spec.user,
        "hostname": spec.hostname,
        "labels": {
            INSTANCE_LABEL: str(spec.instance),
            ASSIGNMENT_LABEL: str(spec.assignment),
            GPUS_LABEL: ",".join(spec.gpu_uuids),
        },
        "ports": [(one.container_port, one.protocol) for one in _ports(spec)],
        "name": f"ledger-{spec.instance}-{spec.assignment}",
    }


def host_options(spec: LaunchSpec, *, with_quota: bool, as_wished: bool) -> dict[str, Any]:
    """The arguments of `create_host_config`.

    Args:
        spec: What is started.
        with_quota: Whether the engine is asked to bound the disk.
        as_wished: Whether ports come where the renter wished them; else anywhere.
    """
    binds = {volume_of(spec.instance): {"bind": _WORKSPACE, "mode": "rw"}}
    for mount in spec.mounts:
        binds[rented_volume(mount.volume)] = {"bind": mount.path, "mode": "rw"}
    options: dict[str, Any] = {
        "binds": binds,
        "network_mode": "bridge",
        "port_bindings": {
            f"{one.container_port}/{one.protocol}": _place(one) if as_wished else None
            for one in _ports(spec)
        },
        "privileged": False,
        "init": True,
        "pids_limit": _PIDS_MAX,
        "restart_policy": {"Name": "no"},
        "log_config": LogConfig(type="json-file", config=_LOG_OPTIONS),
    }
    if spec.gpu_uuids:
        options["device_requests"] = [
            DeviceRequest(driver="nvidia", device_ids=list(spec.gpu_uuids), capabilities=[["gpu"]])
        ]
    if spec.disk_bytes and with_quota:
        options["storage_opt"] = {"size": str(spec.disk_bytes)}
    return options


def jupyter_of(shown: dict[str, Any]) -> Jupyter | None:
    """The notebook server of a container, as the engine shows it; null when it has none."""
    lines = (shown.get("Config") or {}).get("Env") or []
    env = dict(line.partition("=")[::2] for line in lines)
    if "GPULEDGER_JUPYTER" not in env:
        return None
    return Jupyter(_JUPYTER.container_port, env.get(_JUPYTER_TOKEN, ""))


def _program(spec: LaunchSpec) -> tuple[list[str] | None, list[str] | None]:
    """Entry point and command; null leaves the image's own.

    A text replaces the entry point: most images' own would take it for arguments.
    """
    args = list(spec.args)
    if spec.has_ssh or spec.jupyter is not None:
        # Nothing of the image's own runs there, as on every market that people know.
        onstart = spec.onstart or ('exec "$@"' if args else "")
        return ["/bin/sh", "-c", _WAYS_IN, "gpuledger"], [onstart, *args]
    if spec.entrypoint is not None:
        return [spec.entrypoint], args
    if spec.onstart:
        return ["/bin/sh", "-c", spec.onstart, "onstart"], args
    return None, args or None


def _ways_in(spec: LaunchSpec) -> dict[str, str]:
    found = {}
    if spec.has_ssh:
        found["GPULEDGER_SSH"] = "1"
    if spec.jupyter is not None:
        found["GPULEDGER_JUPYTER"] = spec.jupyter
        # The server reads it from there, so it is on no command line.
        found[_JUPYTER_TOKEN] = spec.env.get(_JUPYTER_TOKEN) or secrets.token_hex(16)
        if spec.jupyter_dir:
            found["GPULEDGER_JUPYTER_DIR"] = spec.jupyter_dir
    return found


def _ports(spec: LaunchSpec) -> list[PortWish]:
    """What is published: what was wished, and the ways in."""
    found = {(one.container_port, one.protocol): one for one in spec.ports}
    for one, is_needed in ((_SSH, spec.has_ssh), (_JUPYTER, spec.jupyter is not None)):
        if is_needed:
            found.setdefault((one.container_port, one.protocol), one)
    return list(found.values())


def _place(wish: PortWish) -> int | None:
    is_free = wish.host_port is not None and wish.host_port >= _FIRST_FREE_PORT
    return wish.host_port if is_free else None
