"""Webhooks: where an account's notices are sent, what waits to be sent, and what is sent again.

`registry` is what their owners do. An event's way: `queue` holds it once per webhook and hands it
out for an attempt, `outcomes` says whether it was delivered, is tried again or was given up, and
`replays` ask for it once more; what it says is `events`.
Sending itself is `adapters.webhooks`.
"""

from __future__ import annotations

from ledger.services.webhooks.events import event_at
from ledger.services.webhooks.outcomes import EXCERPT_BYTES_MAX, Outcome, record
from ledger.services.webhooks.queue import Delivery, claim, enqueue, release, tidy
from ledger.services.webhooks.registry import (
    WEBHOOKS_MAX,
    Registered,
    Rotated,
    change,
    register,
    remove,
    rotate,
    send_test,
)
from ledger.services.webhooks.replays import REPLAY_MAX, replay, replay_since
from ledger.services.webhooks.settings import REACH_VARIABLE, configured_reach

__all__ = [
    "EXCERPT_BYTES_MAX",
    "REACH_VARIABLE",
    "REPLAY_MAX",
    "WEBHOOKS_MAX",
    "Delivery",
    "Outcome",
    "Registered",
    "Rotated",
    "change",
    "claim",
    "configured_reach",
    "enqueue",
    "event_at",
    "record",
    "register",
    "release",
    "remove",
    "replay",
    "replay_since",
    "rotate",
    "send_test",
    "tidy",
]
