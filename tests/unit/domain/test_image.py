"""References of images, as people write them."""

from __future__ import annotations

import pytest

from ledger.domain.image import is_digest, parse_image
from ledger.errors import RejectedError

DIGEST = "sha256:" + "ab" * 32


@pytest.mark.parametrize(
    ("text", "registry", "repository", "tag", "digest"),
    [
        ("busybox", "registry-1.docker.io", "library/busybox", "latest", None),
        ("pytorch/pytorch:2.9", "registry-1.docker.io", "pytorch/pytorch", "2.9", None),
        ("docker.io/busybox:1", "registry-1.docker.io", "library/busybox", "1", None),
        ("index.docker.io/a/b", "registry-1.docker.io", "a/b", "latest", None),
        ("ghcr.io/a/b/c:v1", "ghcr.io", "a/b/c", "v1", None),
        ("localhost/x", "localhost", "x", "latest", None),
        ("localhost:5000/x:1", "localhost:5000", "x", "1", None),
        ("nvcr.io/nvidia/pytorch:24.01-py3", "nvcr.io", "nvidia/pytorch", "24.01-py3", None),
        (f"a/b@{DIGEST}", "registry-1.docker.io", "a/b", "latest", DIGEST),
        (f"a/b:1@{DIGEST}", "registry-1.docker.io", "a/b", "1", DIGEST),
    ],
)
def test_the_parts_of_a_reference(
    text: str, registry: str, repository: str, tag: str, digest: str | None
) -> None:
    """A first part with a dot, a port or `localhost` is the registry; no tag means `latest`."""
    found = parse_image(text)
    assert (found.registry, found.repository, found.tag, found.digest) == (
        registry,
        repository,
        tag,
        digest,
    )


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        ":1",
        "a:",
        "a@",
        "A/b",
        "a//b",
        "/a",
        "a/",
        "https://ghcr.io/a",
        "a@sha256:1",
        "a@md5:" + "0" * 32,
        "ghcr.io/",
        "a/../b",
        "user@ghcr.io/a",
        "ghcr.io:port/a",
        "a:" + "t" * 129,
    ],
)
def test_what_is_no_reference(text: str) -> None:
    """What a registry could not have is `invalid_args`, and no request is ever made of it."""
    with pytest.raises(RejectedError) as error:
        parse_image(text)
    assert error.value.code == "invalid_args"


def test_digests() -> None:
    """A digest is sha256 and 64 lower-case hexadecimal digits, nothing around them."""
    assert is_digest(DIGEST)
    for wrong in ("", DIGEST + "0", DIGEST.upper(), DIGEST + "\n", "sha512:" + "ab" * 64):
        assert not is_digest(wrong)
