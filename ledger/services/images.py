"""Which image a reference means at this moment: the port to registries."""

from __future__ import annotations

from typing import Protocol

from ledger.domain.image import parse_image
from ledger.domain.launch import ImageLogin, LaunchConfig


class ImageResolver(Protocol):
    """Asks an image's registry; called before a transaction, as it takes its time."""

    def digest_of(self, image: str, login: ImageLogin | None = None) -> str | None:
        """The digest (`sha256:…`) of a reference; None when the registry does not say.

        A registry that is slow, away or refuses is no error: the create goes on without a digest.
        """


class NoResolver(ImageResolver):
    """Asks nobody: only what a reference says itself is known."""

    def digest_of(self, image: str, login: ImageLogin | None = None) -> str | None:
        """None."""
        del image, login
        return None


class Resolved:
    """What was asked before the transaction, and answers within it."""

    def __init__(self, digests: dict[str, str] | None = None) -> None:
        """Know these digests, by reference."""
        self._digests = digests or {}

    @classmethod
    def asked(cls, resolver: ImageResolver, config: LaunchConfig | None) -> Resolved:
        """Ask for the image of *config*, unless its reference holds the digest."""
        if config is None or config.image is None or parse_image(config.image).digest:
            return cls()
        digest = resolver.digest_of(config.image, config.image_login)
        return cls({config.image: digest} if digest else None)

    def digest_of(self, image: str | None) -> str | None:
        """The digest of an image: its own, or what its registry said."""
        if image is None:
            return None
        return parse_image(image).digest or self._digests.get(image)
