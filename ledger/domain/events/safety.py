"""What protects renters from spending more than they meant: caps, alerts, top-ups, leases.

Everything that a rule must remember about an account is a fact here: which alert was given, which
consent lets a card be charged, which run of idleness was told.
"""

from __future__ import annotations

from typing import Literal

from ledger.domain.events.base import Fact

BalanceAlert = Literal["low_balance_24h", "low_balance_4h", "low_balance_1h", "top_up_soon"]
LeaseEnd = Literal["lease", "spend_cap", "destroyed"]
CleanupScope = Literal["off", "labelled", "all"]


class SpendCapsSet(Fact, tag="spend_caps.set.v1"):
    """How much an account may burn in an hour and be charged in a UTC day; null: no cap.

    With *hard* everything stops when the day's cap is reached, else that is only told.
    """

    account_id: int
    per_hour: int | None
    per_day: int | None
    hard: bool
    set_at: int


class DayCapReached(Fact, tag="spend_caps.day_reached.v1"):
    """The charges since *day_from* reached the cap; *stopped* instances were stopped for it."""

    account_id: int
    day_from: int
    cap: int
    spent: int
    stopped: int
    reached_at: int


class BalanceAlertRaised(Fact, tag="balance_alert.raised.v1"):
    """Available credit fell below *limit*, what the alert's runway costs, or a part of `below`."""

    account_id: int
    alert: BalanceAlert
    available: int
    limit: int
    raised_at: int


class BalanceAlertCleared(Fact, tag="balance_alert.cleared.v1"):
    """Credit was seen at or above the limit again; the alert may come again a day after its last.

    A day after *it was raised*, not after this.
    """

    account_id: int
    alert: BalanceAlert
    cleared_at: int


class TopUpConsented(Fact, tag="top_up.consented.v1"):
    """A renter agreed to be charged *amount*, or a multiple, when credit falls below *below*.

    `reference` names the agreement at the payment processor: nothing of a card is here. Whole
    cents, all three.
    """

    account_id: int
    consent_no: int
    reference: str
    below: int
    amount: int
    max_per_day: int
    consented_at: int


class TopUpRevoked(Fact, tag="top_up.revoked.v1"):
    """The consent is withdrawn: no charge begins any more."""

    account_id: int
    consent_no: int
    revoked_at: int


class TopUpSwitchedOff(Fact, tag="top_up.switched_off.v1"):
    """So many charges failed in a row that none is tried until the renter consents anew."""

    account_id: int
    consent_no: int
    failures: int
    switched_off_at: int


class TopUpRequested(Fact, tag="top_up.requested.v1"):
    """A charge is about to be made: *amount* of credit, and the *tax* on it.

    `trigger` is the position of the fact it answers: the consent, or the end of the charge before.
    One fact triggers one charge.
    """

    account_id: int
    consent_no: int
    trigger: int
    amount: int
    tax: int
    requested_at: int


class TopUpFailed(Fact, tag="top_up.failed.v1"):
    """The charge was declined, or never made."""

    account_id: int
    consent_no: int
    trigger: int
    reason: str
    failed_at: int


class TopUpSettled(Fact, tag="top_up.settled.v1"):
    """The charge went through; its deposit is a fact of its own, in the same transaction.

    `payment` names it at the payment processor.
    """

    account_id: int
    consent_no: int
    trigger: int
    amount: int
    tax: int
    payment: str
    settled_at: int


class LeaseSet(Fact, tag="lease.set.v1"):
    """When an instance stops by itself: at *until*, or when it has cost *spend_limit*."""

    account_id: int
    instance_id: int
    until: int | None
    spend_limit: int | None
    set_at: int


class LeaseEnded(Fact, tag="lease.ended.v1"):
    """The end of a lease came, its limit was spent, or its instance is gone: it binds no more.

    It goes on to refuse a start until the renter sets another one.
    """

    account_id: int
    instance_id: int
    reason: LeaseEnd
    ended_at: int


class IdlePolicySet(Fact, tag="idle_policy.set.v1"):
    """After how much idleness an account is told, and after how much (null: never) it stops."""

    account_id: int
    notice_seconds: int
    stop_seconds: int | None
    set_at: int


class IdleNoticed(Fact, tag="idle.noticed.v1"):
    """Notice 1 or 2 that every tick since *idle_from* shows nothing at work."""

    account_id: int
    instance_id: int
    number: int
    idle_from: int
    noticed_at: int


class CleanupPolicySet(Fact, tag="cleanup_policy.set.v1"):
    """Which instances go by themselves when they were stopped for more than *days*.

    `labelled`: those whose label has the word *label*; `all`: every one.
    """

    account_id: int
    scope: CleanupScope
    days: int
    label: str
    set_at: int


class CleanupAnnounced(Fact, tag="cleanup.announced.v1"):
    """An instance will be destroyed at *destroy_at* unless something changes."""

    account_id: int
    instance_id: int
    destroy_at: int
    announced_at: int


class CleanupWithdrawn(Fact, tag="cleanup.withdrawn.v1"):
    """Something changed since the announcement: it binds no more, and would be made again."""

    account_id: int
    instance_id: int
    withdrawn_at: int


class CleanupDestroyed(Fact, tag="cleanup.destroyed.v1"):
    """What was announced was done; the end of the instance is a fact of its own."""

    account_id: int
    instance_id: int
    destroyed_at: int


SafetyFact = (
    SpendCapsSet
    | DayCapReached
    | BalanceAlertRaised
    | BalanceAlertCleared
    | TopUpConsented
    | TopUpRevoked
    | TopUpSwitchedOff
    | TopUpRequested
    | TopUpFailed
    | TopUpSettled
    | LeaseSet
    | LeaseEnded
    | IdlePolicySet
    | IdleNoticed
    | CleanupPolicySet
    | CleanupAnnounced
    | CleanupWithdrawn
    | CleanupDestroyed
)
