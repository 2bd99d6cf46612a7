"""What a container is started with: the launch configuration, its limits, and what is odd in it.

The texts are the renter's secrets: they lie in the vault, the log holds a reference and a keyed
hash (`marketplace.md` §20). Whatever is odd is a warning, never a refusal.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping
from typing import Annotated, Any, Final, NamedTuple, dataclass_transform

import msgspec
from msgspec import UNSET, Meta, UnsetType

from ledger.domain.image import parse_image
from ledger.errors import RejectedError

LAUNCH_BYTES_MAX: Final = 65_536
ENV_MAX: Final = 512
PORTS_MAX: Final = 64
_PORT: Final = re.compile(r"(?:(\d{1,5}):)?(\d{1,5})(?:/(?:tcp|udp))?")
_PORT_MAX: Final = 65_535

EnvName = Annotated[str, Meta(pattern=r"^[A-Za-z_][A-Za-z0-9_.-]{0,254}\Z")]
"""A name of an environment variable, as every shell takes it."""
EnvValue = Annotated[str, Meta(max_length=32_768, pattern=r"^[^\x00]*\Z")]
_Line = Annotated[str, Meta(max_length=1_024, pattern=r"^[^\x00-\x1f\x7f]*\Z")]
_Text = Annotated[str, Meta(max_length=LAUNCH_BYTES_MAX, pattern=r"^[^\x00]*\Z")]
Image = Annotated[str, Meta(min_length=1, max_length=512, pattern=r"^[\x21-\x7e]+\Z")]
Env = Annotated[dict[EnvName, EnvValue], Meta(max_length=ENV_MAX)]
Args = Annotated[list[_Text], Meta(max_length=256)]


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(msgspec.field,))
class _Part(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True
):
    """A part of a launch configuration: what is not known is refused, what is not set not kept."""


class ImageLogin(_Part):
    """Who pulls a private image."""

    username: _Line
    password: _Line
    registry: _Line | None = None


class LaunchConfig(_Part):
    """What a container is started with; 64 KiB as JSON at most.

    `ports` are `8080`, `8080/udp` or `18080:8080` (the host's before the container's). `runtype`
    says how one gets in: words such as `ssh`, `ssh_proxy`, `jupyter_direc` or `args`.
    """

    image: Image | None = None
    env: Env = {}
    ports: Annotated[list[_Line], Meta(max_length=PORTS_MAX)] = []
    onstart: _Text | None = None
    """A shell text that runs when the container has started."""
    args: Args = []
    """What the image's entry point is given, in place of the image's own command."""
    runtype: _Line | None = None
    image_login: ImageLogin | None = None
    user: _Line | None = None
    hostname: _Line | None = None
    python_utf8: bool = False
    lang_utf8: bool = False
    use_jupyter_lab: bool = False
    jupyter_dir: _Line | None = None
    extra: _Line | None = None
    """Further words for the container's runtime; the host decides which it takes."""


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(msgspec.field,))
class LaunchChange(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What may be changed of a launch: what is not given stays; never price, size or kind."""

    image: Image | UnsetType = UNSET
    env: Env | UnsetType = UNSET
    onstart: _Text | UnsetType | None = UNSET
    args: Args | UnsetType = UNSET

    def of(self, config: LaunchConfig) -> LaunchConfig:
        """The configuration after this change."""
        given = {
            name: value
            for name in self.__struct_fields__
            if (value := getattr(self, name)) is not UNSET
        }
        return msgspec.structs.replace(config, **given)


class Warning(NamedTuple):
    """Something that is probably not meant: a stable code, and a sentence with the way out."""

    code: str
    message: str


def parse_launch(given: Mapping[str, Any] | LaunchConfig | None) -> LaunchConfig:
    """The launch configuration that a mapping describes.

    Raises:
        RejectedError: `invalid_args`; the message names the field.
    """
    config = given if isinstance(given, LaunchConfig) else _converted(given or {})
    if len(encode_launch(config)) > LAUNCH_BYTES_MAX:
        raise RejectedError("invalid_args", "a launch configuration is at most 64 KiB")
    _check(config)
    return config


def _converted(given: Mapping[str, Any]) -> LaunchConfig:
    try:
        return msgspec.convert(dict(given), LaunchConfig)
    except msgspec.ValidationError as error:
        onstart = given.get("onstart")
        if isinstance(onstart, str) and len(onstart) > LAUNCH_BYTES_MAX:
            message = "a launch configuration is at most 64 KiB"
            raise RejectedError("invalid_args", message) from None
        raise RejectedError("invalid_args", f"launch: {error}") from None


def _check(config: LaunchConfig) -> None:
    """What the types cannot say."""
    if config.image is not None:
        parse_image(config.image)
    for one in config.ports:
        found = _PORT.fullmatch(one)
        numbers = [int(part) for part in found.groups() if part] if found else [0]
        if not all(1 <= number <= _PORT_MAX for number in numbers):
            message = f"launch: {one!r} is no port such as 8080, 8080/udp or 18080:8080"
            raise RejectedError("invalid_args", message)


def encode_launch(config: LaunchConfig) -> bytes:
    """The configuration as it is sealed: equal ones are equal bytes."""
    return msgspec.json.encode(config, order="sorted")


def decode_launch(text: bytes) -> LaunchConfig:
    """What was sealed; a text from before there were fields is taken as far as they go."""
    given = msgspec.json.decode(text)
    known = {name: given[name] for name in LaunchConfig.__struct_fields__ if name in given}
    try:
        return msgspec.convert(known, LaunchConfig)
    except msgspec.ValidationError:
        image = known.get("image")
        return LaunchConfig(image=image if isinstance(image, str) else None)


def overlaid(config: LaunchConfig, over: LaunchConfig) -> LaunchConfig:
    """*config* with what *over* sets; their environments are merged, the values of *over* win."""
    default = LaunchConfig()
    given = {
        name: value
        for name in over.__struct_fields__
        if (value := getattr(over, name)) != getattr(default, name)
    }
    return msgspec.structs.replace(config, **{**given, "env": {**config.env, **over.env}})


# --- what is odd ----------------------------------------------------------------------------------

_KEY_SHAPES: Final = (
    re.compile(r"\b(AKIA|ASIA)[A-Z0-9]{16}\b"),
    re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----"),
    re.compile(r"\bgh[pousr]_[A-Za-z0-9]{30,}\b"),
    re.compile(r"\bgithub_pat_[A-Za-z0-9_]{40,}\b"),
    re.compile(r"\bglpat-[A-Za-z0-9_-]{20,}"),
    re.compile(r"\bhf_[A-Za-z0-9]{30,}\b"),
    re.compile(r"\bsk-[A-Za-z0-9_-]{20,}"),
    re.compile(r"\bxox[abprs]-[A-Za-z0-9-]{10,}"),
    re.compile(r"\bAIza[A-Za-z0-9_-]{35}\b"),
    re.compile(r"\bglk_[0-9a-f]{16}_[A-Za-z0-9_-]{20,}"),
    re.compile(r'"type"\s*:\s*"service_account"'),
)
"""Keys that services hand out in a shape of their own."""
_SECRET_NAME: Final = re.compile(r"(?i)(secret|passwd|password|token|api_?key|private_?key)")
_RANDOM: Final = re.compile(r"[A-Za-z0-9+/_=.-]{32,}")
_RANDOM_BITS: Final = 3.5
"""Bits a character: above what words have, below what hexadecimal digits have."""


def is_like_a_key(name: str, value: str) -> bool:
    """True when *value* has the shape of a key that lives for long.

    Known shapes count under every name; a text that looks random only under a name that says so.
    """
    if any(shape.search(value) for shape in _KEY_SHAPES):
        return True
    is_random = _RANDOM.fullmatch(value) is not None and _bits(value) >= _RANDOM_BITS
    return is_random and _SECRET_NAME.search(name) is not None


def _bits(text: str) -> float:
    """Entropy of a text's characters, in bits a character; an estimate, near no money."""
    counts = Counter(text).values()
    return -sum(n / len(text) * math.log2(n / len(text)) for n in counts)


def warnings_of(config: LaunchConfig, *, secure: bool, digest: str | None) -> list[Warning]:
    """What is odd about a launch.

    Args:
        config: What is to be started.
        secure: The machine is in the secure tier.
        digest: What the image's tag means now, where somebody asked its registry.
    """
    found = []
    if config.image is not None and (reference := parse_image(config.image)).digest is None:
        means = f"; now it means {digest}" if digest else ""
        message = (
            f"the image is named by the tag {reference.tag!r}, which may mean another image later"
            f"{means}: name it as {reference.name}@sha256:…"
        )
        found.append(Warning("image_not_pinned", message))
    if not secure and (names := sorted(k for k, v in config.env.items() if is_like_a_key(k, v))):
        message = (
            f"{', '.join(names)}: this looks like a key that lives for long, and the machine is"
            " not in the secure tier: use one that expires, or rent with `secure`"
        )
        found.append(Warning("key_on_community_machine", message))
    return found
