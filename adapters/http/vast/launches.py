"""What runs in an instance: the keys of a request as a launch configuration and mounts, and back.

`env` comes as an object or as a line of options for a container's runtime. Among its variables
stand ports (`-p 80:80`), volumes (`-v V.7:/data`) and a host name (`-h name`).
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from adapters.http.vast.errors import unsupported
from adapters.http.vast.wire import Json, flag, mapping, text, whole
from ledger.domain.launch import LaunchConfig, parse_launch
from ledger.errors import RejectedError
from ledger.services.volumes import Mount, NewVolume

DEFAULT_VOLUME_GB: Final = 15
_TEXTS: Final = ("onstart", "runtype", "user", "jupyter_dir", "extra")
_FLAGS: Final = ("python_utf8", "lang_utf8", "use_jupyter_lab")
_PAIRED: Final = {"-p": "-p", "--publish": "-p", "-v": "-v", "--volume": "-v", "-n": "-n"}
_NAMED: Final = {"-h": "-h", "--hostname": "-h"}
_VARIABLES: Final = frozenset({"-e", "--env"})
_LOGIN: Final = {"-u": "username", "--username": "username", "-p": "password"}
_VOLUME: Final = re.compile(r"V\.([0-9]{1,18}):(/.*)", re.DOTALL)
_DEFAULT_RUNTYPE: Final = "ssh"


class Wanted(NamedTuple):
    """What is to run, the template under it, and the volumes that it is to have."""

    launch: LaunchConfig
    template: str | int | None
    mounts: list[Mount]


class _Env(NamedTuple):
    """What `env` holds."""

    variables: dict[str, str]
    ports: list[str]
    hostname: str | None
    mounts: list[Mount]


def wanted_of(body: Json) -> Wanted:
    """What a create request asks to run.

    Raises:
        RejectedError: `invalid_args` without an image or a template, or for values that cannot be.
        Refusal: `unsupported` for what this market has not got.
    """
    template = template_of(body)
    if template is None and not text(body.get("image"), "image"):
        raise RejectedError("invalid_args", "name an `image` or a template to run")
    env = _env(body.get("env"))
    return Wanted(
        parse_launch(_config(body, env)), template, [*env.mounts, *_volume(body.get("volume_info"))]
    )


def template_of(body: Json) -> str | int | None:
    """A version of a template by its hash id, or the newest one by the template's id."""
    if body.get("template_hash_id"):
        return text(body["template_hash_id"], "template_hash_id")
    if body.get("template_id"):
        return whole(body["template_id"], "template_id")
    return None


def config_of(body: Json) -> LaunchConfig:
    """Those parts of a launch configuration that a body names; volumes are none of them.

    Raises:
        RejectedError: `invalid_args`.
    """
    env = _env(body.get("env"))
    if env.mounts:
        message = "a volume belongs to an instance from its creation: name it there"
        raise RejectedError("invalid_args", message)
    return parse_launch(_config(body, env))


def _config(body: Json, env: _Env) -> Json:
    found: Json = {
        name: value for name in _TEXTS if (value := text(body.get(name), name)) is not None
    }
    found |= {name: flag(body[name], name) for name in _FLAGS if body.get(name) is not None}
    image = text(body.get("image"), "image")
    if image:
        found["image"] = _tagged(image, text(body.get("tag"), "tag"))
    found |= {"env": env.variables, "ports": env.ports}
    if env.hostname is not None:
        found["hostname"] = env.hostname
    args = _args(body)
    if args is not None:
        found["args"] = args
    login = text(body.get("image_login"), "image_login")
    if login and login.strip():
        found["image_login"] = _login(login)
    return found


def _tagged(image: str, tag: str | None) -> str:
    last = image.rpartition("/")[2]
    return f"{image}:{tag}" if tag and ":" not in last and "@" not in last else image


def _args(body: Json) -> list[str] | None:
    given = body.get("args")
    line = text(body.get("args_str"), "args_str")
    if given is None and line:
        return _words(line, "args_str")
    if given is None:
        return None
    if not isinstance(given, list) or not all(isinstance(one, str) for one in given):
        raise RejectedError("invalid_args", "`args` must be a list of texts")
    return given


def _words(line: str, name: str) -> list[str]:
    try:
        return shlex.split(line)
    except ValueError as error:
        raise RejectedError("invalid_args", f"`{name}`: {error}") from None


def _login(line: str) -> dict[str, str]:
    """`-u name -p password registry`, as people write it for a container's runtime.

    Raises:
        RejectedError: `invalid_args`; what was sent is a secret, and is not shown.
    """
    found: dict[str, str] = {}
    words = _words(line, "image_login")
    while words:
        word = words.pop(0)
        name = _LOGIN.get(word, "password" if word == "--password" else None)
        if name is None and not word.startswith("-"):
            found["registry"] = word
        elif name is not None and words:
            found[name] = words.pop(0)
        else:
            break
    if not {"username", "password"} <= found.keys() or words:
        raise RejectedError("invalid_args", "`image_login` reads -u NAME -p PASSWORD REGISTRY")
    return found


# --- env ------------------------------------------------------------------------------------------


def _env(given: Any) -> _Env:
    pairs = docker_options(given) if isinstance(given, str) else _pairs(given)
    found = _Env({}, [], None, [])
    for name, value in pairs.items():
        option, is_option, rest = name.partition(" ")
        rest = rest.strip()
        if is_option and option in _PAIRED:
            kind = _PAIRED[option]
            if kind == "-p":
                found.ports.append(_port(rest))
            elif kind == "-v":
                found.mounts.append(_mounted(rest))
            else:
                msg = "networks between instances: machines here stand alone"
                raise unsupported(msg)
        elif name in _NAMED:
            found = found._replace(hostname=value)
        else:
            found.variables[name] = value
    return found


def _port(shown: str) -> str:
    """`8080:8080` as a port of the core's, whose protocol stands at its end."""
    host, colon, rest = shown.partition(":")
    return f"{host.partition('/')[0]}:{rest}" if colon else shown


def _mounted(shown: str) -> Mount:
    found = _VOLUME.fullmatch(shown)
    if found is None:
        message = f"`-v {shown[:60]}`: a volume is named as in `-v V.7:/data`"
        raise RejectedError("invalid_args", message)
    return Mount(found[2], int(found[1]))


def _volume(given: Any) -> Sequence[Mount]:
    """The volume that `volume_info` asks for: one of one's own, or one made from an offer."""
    if given is None:
        return ()
    info = mapping(given, "volume_info")
    path = text(info.get("mount_path"), "mount_path")
    if not path:
        raise RejectedError("invalid_args", "`volume_info`: name a `mount_path`")
    number = whole(info.get("volume_id"), "volume_id")
    if not flag(info.get("create_new") or False, "create_new"):
        return [Mount(path, number)]
    size = info.get("size")
    size = DEFAULT_VOLUME_GB if size is None else whole(size, "size")
    return [Mount(path, NewVolume(number, size, text(info.get("name"), "name") or None))]


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
    words = _words(line, "env")
    found: dict[str, str] = {}
    while words:
        option = words.pop(0)
        if not words:
            raise RejectedError("invalid_args", f"`env`: {option!r} needs a value")
        value = words.pop(0)
        if option in _VARIABLES:
            name, _, held = value.partition("=")
            found[name] = held
        elif option in _PAIRED:
            found[f"{_PAIRED[option]} {value}"] = "1"
        elif option in _NAMED:
            found[_NAMED[option]] = value
        else:
            raise RejectedError("invalid_args", f"`env`: {option!r} is none of -e -p -v -n -h")
    return found


def options_of(config: LaunchConfig) -> str:
    """The variables, ports and host name of a launch as one line of options."""
    words = [word for name, value in config.env.items() for word in ("-e", f"{name}={value}")]
    words += [word for port in config.ports for word in ("-p", port)]
    words += [] if config.hostname is None else ["-h", config.hostname]
    return shlex.join(words)


# --- rows -----------------------------------------------------------------------------------------


def launch_columns(launch: Json) -> Json:
    """The columns of an instance that say what it runs; none of a type that clients do not take.

    *launch* is a configuration as it was kept; nothing of one that the reader may not see.
    """
    args = launch.get("args")
    env = {name: str(value) for name, value in launch.get("env", {}).items()}
    env |= {f"-p {port}": "1" for port in launch.get("ports", [])}
    env |= {"-h": launch["hostname"]} if launch.get("hostname") else {}
    return {
        "image_uuid": launch.get("image", ""),
        "image_args": args if isinstance(args, list) else [],
        "image_runtype": launch.get("runtype", _DEFAULT_RUNTYPE),
        "onstart": launch.get("onstart"),
        "extra_env": [[name, env[name]] for name in sorted(env)],
    }
