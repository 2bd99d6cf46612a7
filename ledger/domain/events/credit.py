"""Credit: what an account moves itself, and what happens when it is used up."""

from __future__ import annotations

from ledger.domain.events.base import Fact


class DepositSettled(Fact, tag="deposit.settled.v1"):
    """Money arrived and became spendable credit."""

    account_id: int
    deposit_id: str
    amount: int
    source: str
    settled_at: int


class CreditRefunded(Fact, tag="credit.refunded.v1"):
    """Unspent credit of one deposit went back to its payer."""

    account_id: int
    refund_id: str
    deposit_id: str
    amount: int
    refunded_at: int


class CreditTransferred(Fact, tag="credit.transferred.v1"):
    """Credit moved between two accounts; irreversible."""

    transfer_id: str
    from_account_id: int
    to_account_id: int
    amount: int
    transferred_at: int


class HoldPlaced(Fact, tag="hold.placed.v1"):
    """Credit is set aside until *expires_at*."""

    account_id: int
    hold_id: str
    amount: int
    expires_at: int
    placed_at: int


class HoldCaptured(Fact, tag="hold.captured.v1"):
    """A hold was spent; what it did not need is free again."""

    account_id: int
    hold_id: str
    amount: int
    captured_at: int


class HoldReleased(Fact, tag="hold.released.v1"):
    """A hold was given back unspent."""

    account_id: int
    hold_id: str
    released_at: int


class HoldExpired(Fact, tag="hold.expired.v1"):
    """A forgotten hold ended by itself at its instant."""

    account_id: int
    hold_id: str
    expired_at: int


class AccountExhausted(Fact, tag="account.exhausted.v1"):
    """Credit ran dry at *dry_at*; every instance of the account was stopped at *stopped_at*.

    *debt_limit* is how far storage may go on below zero (`marketplace.md` §13.4), fixed here.
    """

    account_id: int
    available: int
    debt_limit: int
    dry_at: int
    stopped_at: int


class AccountRestored(Fact, tag="account.restored.v1"):
    """Credit is above zero again; nothing starts by itself."""

    account_id: int
    restored_at: int


class StorageDebtNoticed(Fact, tag="storage_debt.noticed.v1"):
    """Notice number 1, 2 or 3 that the debt reached its limit.

    Right after the third the instances go.
    """

    account_id: int
    number: int
    debt: int
    noticed_at: int


class StorageDebtCleared(Fact, tag="storage_debt.cleared.v1"):
    """The debt fell below its limit; a later breach starts a new sequence."""

    account_id: int
    cleared_at: int


CreditFact = (
    DepositSettled
    | CreditRefunded
    | CreditTransferred
    | HoldPlaced
    | HoldCaptured
    | HoldReleased
    | HoldExpired
)
ExhaustionFact = AccountExhausted | AccountRestored | StorageDebtNoticed | StorageDebtCleared
