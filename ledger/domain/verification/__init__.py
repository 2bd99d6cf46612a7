"""Is a machine what its listing says, and may it call itself verified or secure (§11).

`differences` compares what is stated with what was found, `bars` asks whether it is enough for this
market, `next_state` draws the conclusion; `stronger` says which of two claims holds, `is_secure`
whether a host's papers make its machines the secure tier.
"""

from __future__ import annotations

from ledger.domain.verification.compare import (
    Difference,
    Probed,
    Severity,
    Stated,
    differences,
    normalised_gpu_name,
    version,
)
from ledger.domain.verification.evidence import (
    Claim,
    Evidence,
    stronger,
)
from ledger.domain.verification.minimum import (
    MinimumBars,
    Shortfall,
    bars,
)
from ledger.domain.verification.secure import (
    MIN_SECURE_MACHINES,
    Certification,
    CertificationKind,
    SecureTier,
    is_secure,
)
from ledger.domain.verification.state import (
    CLEAN_SLOTS,
    MIN_LOWER_BOUND,
    Verification,
    next_state,
)

__all__ = [
    "CLEAN_SLOTS",
    "MIN_LOWER_BOUND",
    "MIN_SECURE_MACHINES",
    "Certification",
    "CertificationKind",
    "Claim",
    "Difference",
    "Evidence",
    "MinimumBars",
    "Probed",
    "SecureTier",
    "Severity",
    "Shortfall",
    "Stated",
    "Verification",
    "bars",
    "differences",
    "is_secure",
    "next_state",
    "normalised_gpu_name",
    "stronger",
    "version",
]
