"""Every error that gpuledger raises on purpose.

The branch of the tree says what the caller can do about it; the `code` of a leaf is stable and part
of the public interface (`marketplace.md` §19). HTTP statuses live in `adapters/http/errors.py`.
"""

from __future__ import annotations

from typing import Any


class LedgerError(Exception):
    """Base of all deliberate errors: a stable code, one sentence, and the data behind it."""

    def __init__(self, code: str, message: str, **detail: Any) -> None:
        """Keep *code* (stable), *message* (for people) and *detail* (for programs)."""
        super().__init__(message)
        self.code = code
        self.message = message
        self.detail = detail

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.code!r}, {self.message!r}, {self.detail!r})"


class RejectedError(LedgerError):
    """A rule says no; the same command will get the same answer."""


class DeclinedError(LedgerError):
    """Not now: a balance, a bid or a machine may change."""


class ConflictError(LedgerError):
    """Someone appended first, or the same name already means something else."""


class NotFoundError(LedgerError):
    """There is no such thing, or it is not yours."""


class AuthError(LedgerError):
    """The caller's credentials are missing, wrong, expired or revoked."""


class ForbiddenError(LedgerError):
    """The caller is known and lacks the permission."""


class IdempotencyError(LedgerError):
    """The same key arrived with another request."""


class UnavailableError(LedgerError):
    """The database or another service did not answer; nothing was changed, try again."""


class CorruptHistoryError(LedgerError):
    """Stored facts contradict each other; the program stops and says where."""
