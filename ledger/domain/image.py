"""References of container images: registry, repository, tag and digest, as their users write them.

The rules are those of the distribution specification: a first part with a dot, a port or the name
`localhost` is a registry, and a name without one lies in the default registry.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from ledger.errors import RejectedError

DEFAULT_REGISTRY: Final = "registry-1.docker.io"
"""Where images without a registry lie."""
_DEFAULT_NAMES: Final = frozenset({"docker.io", "index.docker.io"})
_DIGEST: Final = re.compile(r"sha256:[0-9a-f]{64}")
_TAG: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}")
_REGISTRY: Final = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?(?::\d{1,5})?")
_REPOSITORY: Final = re.compile(
    r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*(?:/[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*)*"
)


class ImageReference(NamedTuple):
    """An image: `name` is what was written without tag and digest."""

    name: str
    registry: str
    repository: str
    tag: str
    digest: str | None


def is_digest(text: str) -> bool:
    """True for `sha256:` and 64 hexadecimal digits."""
    return _DIGEST.fullmatch(text) is not None


def parse_image(text: str) -> ImageReference:
    """The parts of a reference such as `pytorch/pytorch:2.9` or `ghcr.io/a/b@sha256:…`.

    Raises:
        RejectedError: `invalid_args`.
    """
    rest, _, digest = text.partition("@")
    head, _, last = rest.rpartition("/")
    last, colon, tag = last.partition(":")
    name = f"{head}/{last}" if "/" in rest else last
    registry, repository = _split(name)
    is_whole = (
        _REGISTRY.fullmatch(registry)
        and _REPOSITORY.fullmatch(repository)
        and (not colon or _TAG.fullmatch(tag))
        and ("@" not in text or _DIGEST.fullmatch(digest))
    )
    if not is_whole:
        message = f"{text!r} is no image such as pytorch/pytorch:2.9 or ghcr.io/a/b@sha256:…"
        raise RejectedError("invalid_args", message)
    return ImageReference(name, registry, repository, tag or "latest", digest or None)


def _split(name: str) -> tuple[str, str]:
    """Registry and repository of a name."""
    first, slash, rest = name.partition("/")
    if slash and ("." in first or ":" in first or first == "localhost"):
        if first not in _DEFAULT_NAMES:
            return first, rest
        name = rest
    return DEFAULT_REGISTRY, name if "/" in name else f"library/{name}"
