"""What the Docker engine's words mean: its containers, events and refusals in the port's terms."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from datetime import datetime
from typing import Any, Final, Literal

from docker.errors import APIError, DockerException
from requests.exceptions import RequestException

from adapters.hostagent.runtime.port import (
    ASSIGNMENT_LABEL,
    GPUS_LABEL,
    INSTANCE_LABEL,
    ContainerState,
    Found,
    LaunchError,
    RuntimeUnavailableError,
)

_STATES: Final[dict[str, ContainerState]] = {
    "created": "created",
    "running": "running",
    "restarting": "running",
    "paused": "paused",
    "removing": "exited",
    "exited": "exited",
    "dead": "exited",
}


_INITS: Final = ("docker-init", "container-init", "catatonit")
_MISTAKES: Final = ("invalid", "bad parameter", "unable to find user", "unable to find group")


class PortTakenError(LaunchError):
    """A port of the host that was wished belongs to somebody else."""

    def __init__(self, message: str) -> None:
        """Keep *message* for people; the host could not give what it has not."""
        super().__init__("port_taken", message)


def found_of(shown: dict[str, Any]) -> Found | None:
    """The container that the engine shows; null when it is not the platform's."""
    labels = (shown.get("Config") or {}).get("Labels") or {}
    instance, assignment = labels.get(INSTANCE_LABEL, ""), labels.get(ASSIGNMENT_LABEL, "")
    if not (instance.isdigit() and assignment.isdigit()):
        return None
    state = shown.get("State") or {}
    status = _STATES.get(state.get("Status", ""), "exited")
    is_alive = status in {"running", "paused"}
    return Found(
        id=shown["Id"],
        instance=int(instance),
        assignment=int(assignment),
        state=status,
        gpu_uuids=tuple(one for one in labels.get(GPUS_LABEL, "").split(",") if one),
        pid=state.get("Pid") or None if is_alive else None,
        started_at=second_of(state.get("StartedAt", "")),
        exit_code=None if is_alive or status == "created" else state.get("ExitCode"),
        # The layer that is written to: the merged view is there only while the container runs.
        disk=((shown.get("GraphDriver") or {}).get("Data") or {}).get("UpperDir"),
    )


def second_of(text: str) -> int | None:
    """The Unix second of an RFC 3339 time with nanoseconds; year 1 means never."""
    if not text or text.startswith("0001-"):
        return None
    return int(datetime.fromisoformat(text[:19] + "+00:00").timestamp())


def kind_of(action: str) -> Literal["start", "exit", "remove"] | None:
    """What an event of the engine comes to; null when it is of no interest."""
    match action:
        case "start" | "restart" | "unpause":
            return "start"
        case "die" | "died" | "oom" | "kill":
            return "exit"
        case "destroy" | "remove":
            return "remove"
        case _:
            return None


def said(error: APIError) -> str:
    """The engine's own words, cut to what a report holds."""
    return str(error.explanation or error)[:256]


def pull_reason(text: str) -> str:
    """The code of a pull that failed with *text*."""
    text = text.lower()
    if "denied" in text or "unauthorized" in text or "authentication" in text:
        return "image_denied"
    if "not found" in text or "manifest unknown" in text or "does not exist" in text:
        return "image_not_found"
    if "invalid reference" in text or "unsupported" in text:
        return "image_invalid"
    return "image_pull_failed"


def is_port_taken(error: APIError) -> bool:
    """Whether a start failed for a port of the host alone."""
    text = said(error).lower()
    return "port is already allocated" in text or "address already in use" in text


def start_reason(error: APIError) -> str:
    """The code of a creation or a start that failed."""
    text = said(error).lower()
    if any(name in text for name in _INITS):
        return "runtime_failed"  # The engine's own program is missing, not the renter's.
    if "executable file not found" in text or "no such file or directory" in text:
        return "bad_command"
    if "could not select device driver" in text or "nvidia" in text:
        return "gpu_unavailable"
    if any(words in text for words in _MISTAKES):
        return "bad_configuration"
    return "runtime_failed"


@contextlib.contextmanager
def answering() -> Iterator[None]:
    """Whatever an engine does not answer, or refuses unforeseen, is one error: nothing is known."""
    try:
        yield
    except APIError as error:
        # First, because the client's own class of refusals is also one of failed requests.
        raise RuntimeUnavailableError(said(error)) from error
    except (DockerException, RequestException) as error:
        raise RuntimeUnavailableError(str(error)) from error
