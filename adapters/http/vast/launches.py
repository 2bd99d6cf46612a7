"""Launch configurations: the keys of a create request that say what runs, and back.

They are kept in the vault, never in the log. `docker_options` reads the string form of `env`.
"""

from __future__ import annotations

import shlex
from typing import Any, Final

from adapters.http.vast.errors import unsupported
from adapters.http.vast.wire import Json, mapping, text
from ledger.errors import RejectedError

_KEPT: Final = (
    *("image", "onstart", "runtype", "args", "args_str", "image_login", "user", "extra"),
    *("python_utf8", "lang_utf8", "use_jupyter_lab", "jupyter_dir", "create_from"),
)
_PAIRED: Final = {"-p", "--publish", "-v", "--volume", "-n", "--network"}
_NAMED: Final = {"-h": "-h", "--hostname": "-h"}
_DEFAULT_RUNTYPE: Final = "ssh"


def launch_of(body: Json) -> Json:
    """What is to run; keys without a value are left out.

    Raises:
        RejectedError: `invalid_args` without an image, or for values of another type.
        Refusal: `unsupported` for what this market has not got.
    """
    if body.get("template_hash_id") is not None or body.get("template_id") is not None:
        message = "templates are not offered yet: name an image and its options"
        raise unsupported(message)
    if body.get("volume_info") is not None:
        message = "volumes are not offered yet: rent a larger disk instead"
        raise unsupported(message)
    if not text(body.get("image"), "image"):
        raise RejectedError("invalid_args", "name an `image` to run")
    return changes_of(body)


def changes_of(body: Json) -> Json:
    """Those parts of a launch configuration that a body names.

    Raises:
        RejectedError: `invalid_args`.
    """
    found = {name: body[name] for name in _KEPT if body.get(name) is not None}
    for name in ("image", "onstart", "runtype", "image_login", "user"):
        text(found.get(name), name)
    if not isinstance(found.get("args", []), list):
        raise RejectedError("invalid_args", "`args` must be a list of texts")
    env = body.get("env")
    if env:
        found["env"] = docker_options(env) if isinstance(env, str) else _pairs(env)
    return found


def _pairs(env: Any) -> dict[str, str]:
    return {
        name: value if isinstance(value, str) else str(value)
        for name, value in mapping(env, "env").items()
    }


def docker_options(line: str) -> dict[str, str]:
    """`-e K=V -p 80:80 -h name` as the object that other clients send.

    Raises:
        RejectedError: `invalid_args` for what is none of these options.
    """
    try:
        words = shlex.split(line)
    except ValueError as error:
        raise RejectedError("invalid_args", f"`env`: {error}") from None
    found: dict[str, str] = {}
    while words:
        option = words.pop(0)
        if not words:
            raise RejectedError("invalid_args", f"`env`: {option!r} needs a value")
        value = words.pop(0)
        if option in {"-e", "--env"}:
            name, _, held = value.partition("=")
            found[name] = held
        elif option in _PAIRED:
            found[f"{option} {value}"] = "1"
        elif option in _NAMED:
            found[_NAMED[option]] = value
        else:
            raise RejectedError("invalid_args", f"`env`: {option!r} is none of -e -p -v -n -h")
    return found


def launch_columns(launch: Json) -> Json:
    """The columns of an instance that say what it runs; none of a type that clients do not take."""
    args = launch.get("args")
    return {
        "image_uuid": launch.get("image", ""),
        "image_args": args if isinstance(args, list) else [],
        "image_runtype": launch.get("runtype", _DEFAULT_RUNTYPE),
        "onstart": launch.get("onstart"),
        "extra_env": [[name, str(value)] for name, value in launch.get("env", {}).items()],
        "jupyter_token": "",
        "template_id": None,
        "template_hash_id": None,
        "template_name": None,
    }
