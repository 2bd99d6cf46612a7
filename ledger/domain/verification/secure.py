"""The secure tier: organisational facts with an expiry (`marketplace.md` §11.3)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Literal, NamedTuple

MIN_SECURE_MACHINES: Final = 5

CertificationKind = Literal[
    "iso27001", "tier3", "tier4", "business_registration", "identity_check", "agreement"
]


class Certification(NamedTuple):
    """An organisational fact about a host, valid in `[valid_from, valid_to)`; null: for good."""

    kind: CertificationKind
    valid_from: int
    valid_to: int | None


class SecureTier(NamedTuple):
    """Whether a host is in the secure tier, and the second at which that ends by itself."""

    holds: bool
    lapses_at: int | None


def is_secure(
    certifications: Iterable[Certification], machines: int, at: int, *, requires_iso: bool = False
) -> SecureTier:
    """Whether the host is in the secure tier at the second *at*, and until when.

    It lapses at the first `valid_to` that breaks the condition; one that another certification
    outlives or replaces in time breaks nothing. Never when nothing expires.
    """
    known = list(certifications)
    if machines < MIN_SECURE_MACHINES or not _certified(known, at, requires_iso=requires_iso):
        return SecureTier(holds=False, lapses_at=None)
    ends = sorted(one.valid_to for one in known if one.valid_to is not None and one.valid_to > at)
    lapse = (end for end in ends if not _certified(known, end, requires_iso=requires_iso))
    return SecureTier(holds=True, lapses_at=next(lapse, None))


def _certified(certifications: list[Certification], at: int, *, requires_iso: bool) -> bool:
    kinds = {
        one.kind
        for one in certifications
        if one.valid_from <= at and (one.valid_to is None or at < one.valid_to)
    }
    facility = {"iso27001"} if requires_iso else {"iso27001", "tier3", "tier4"}
    organisation = {"business_registration", "identity_check", "agreement"}
    return bool(facility & kinds) and organisation <= kinds
