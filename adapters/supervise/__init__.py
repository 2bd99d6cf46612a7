"""Keeps one rented job alive: finds an offer, rents, watches, and moves on when it is stuck.

`keeper` goes round; what to do is decided by `judge` from what the server says alone, so that a
supervisor that was killed goes on where it was. It talks to a server over HTTP as any client does.
"""

from __future__ import annotations

from adapters.supervise.job import Job
from adapters.supervise.journal import Journal
from adapters.supervise.keeper import Pace, supervise

__all__ = ["Job", "Journal", "Pace", "supervise"]
