"""Accounts and their own money: what those facts change."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ledger.domain import events as e
from ledger.projections.facts.change import Change, counted


def account_changes(fact: e.AccountFact, position: int) -> Iterator[Change]:
    """Who has an account, and with which keys."""
    del position
    match fact:
        case e.AccountOpened():
            yield Change(
                "INSERT INTO accounts (account_id, subject, name_hash, opened_at, closed_until)"
                " VALUES (%s, %s, %s, %s, %s)",
                (fact.account_id, fact.subject, fact.name_hash, fact.opened_at, fact.opened_at),
            )
            yield Change("INSERT INTO account_credit (account_id) VALUES (%s)", (fact.account_id,))
            yield counted("account", fact.account_id)
        case e.SubjectErased():
            yield Change(
                "UPDATE accounts SET erased_at = %s WHERE account_id = %s",
                (fact.erased_at, fact.account_id),
            )
        case e.ApiKeyCreated():
            yield Change(
                "INSERT INTO api_keys (key_id, account_id, role, expires_at, created_at)"
                " VALUES (%s, %s, %s, %s, %s)",
                (fact.key_id, fact.account_id, fact.role, fact.expires_at, fact.created_at),
            )
        case e.ApiKeyRevoked():
            yield Change(
                "UPDATE api_keys SET revoked_at = %s WHERE key_id = %s",
                (fact.revoked_at, fact.key_id),
            )


RENTER_CREDIT: Final = "renter_credit"
HOST_PAYABLE: Final = "host_payable"
PLATFORM_FEE: Final = "platform_fee"
PLATFORM_REVENUE: Final = "platform_revenue"
BANK: Final = "bank"
PAYMENT_CLEARING: Final = "payment_clearing"
TAX_PAYABLE: Final = "tax_payable"
RESERVED_DEPOSIT: Final = "reserved_deposit"


def posted(account_id: int, amount: int) -> Change:
    """Nanos that came to an account, or left it, by a movement of its own."""
    return Change(
        "UPDATE account_credit SET posted = posted + %s WHERE account_id = %s", (amount, account_id)
    )


def moved(
    position: int,
    kind: str,
    reference: str,
    debit: tuple[str, int | None],
    credit: tuple[str, int | None],
    amount: int,
    at: int,
    *,
    leg: int = 1,
) -> Change:
    """One balanced row: nanos from *debit* to *credit*, each a ledger account and whose it is."""
    return Change(
        "INSERT INTO movements VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s)",
        (position, leg, kind, reference, *debit, *credit, amount, at),
    )


def settles(account_id: int, amount: int) -> Change:
    """Nanos of new credit pay what usage invoices left due, the oldest first."""
    return Change(
        "UPDATE invoices SET due = invoices.due - paid.part FROM ("
        "SELECT number, greatest(0, least(due, %s - (sum(due) OVER (ORDER BY position) - due)))"
        " AS part FROM invoices WHERE account_id = %s AND due > 0) AS paid"
        " WHERE invoices.number = paid.number AND paid.part > 0",
        (amount, account_id),
    )


def credited(account_id: int, amount: int) -> Iterator[Change]:
    """Nanos that came to an account, and pay what is due, or below 0 left it."""
    yield posted(account_id, amount)
    if amount > 0:
        yield settles(account_id, amount)


def paid_to_host(host_id: int, amount: int) -> Change:
    """Nanos that a host is owed, or owes, by a movement outside the meters."""
    return Change(
        "UPDATE account_credit SET payable = payable + %s WHERE account_id = %s", (amount, host_id)
    )


def _close_hold(account_id: int, hold_id: str, status: str, captured: int, at: int) -> Change:
    return Change(
        "UPDATE holds SET status = %s, captured = %s, closed_at = %s"
        " WHERE account_id = %s AND hold_id = %s",
        (status, captured, at, account_id, hold_id),
    )


def credit_changes(fact: e.CreditFact, position: int) -> Iterator[Change]:
    """Money that an account moves itself: every movement is debit and credit of one amount."""
    match fact:
        case e.DepositSettled():
            yield Change(
                "INSERT INTO deposits (account_id, deposit_id, amount, source, settled_at)"
                " VALUES (%s, %s, %s, %s, %s)",
                (fact.account_id, fact.deposit_id, fact.amount, fact.source, fact.settled_at),
            )
            yield from credited(fact.account_id, fact.amount)
            yield moved(
                position,
                "deposit",
                fact.deposit_id,
                # What an admin books lies in the bank; a card payment is still on its way there.
                (BANK if fact.source == "admin" else PAYMENT_CLEARING, None),
                (RENTER_CREDIT, fact.account_id),
                fact.amount,
                fact.settled_at,
            )
        case e.CreditRefunded():
            yield Change(
                "UPDATE deposits SET refunded = refunded + %s"
                " WHERE account_id = %s AND deposit_id = %s",
                (fact.amount, fact.account_id, fact.deposit_id),
            )
            yield posted(fact.account_id, -fact.amount)
            yield moved(
                position,
                "refund",
                fact.refund_id,
                (RENTER_CREDIT, fact.account_id),
                (BANK, None),
                fact.amount,
                fact.refunded_at,
            )
        case e.CreditTransferred():
            yield posted(fact.from_account_id, -fact.amount)
            yield from credited(fact.to_account_id, fact.amount)
            yield moved(
                position,
                "transfer",
                fact.transfer_id,
                (RENTER_CREDIT, fact.from_account_id),
                (RENTER_CREDIT, fact.to_account_id),
                fact.amount,
                fact.transferred_at,
            )
        case e.HoldPlaced():
            yield Change(
                "INSERT INTO holds (account_id, hold_id, amount, status, expires_at, placed_at)"
                " VALUES (%s, %s, %s, 'pending', %s, %s)",
                (fact.account_id, fact.hold_id, fact.amount, fact.expires_at, fact.placed_at),
            )
        case e.HoldCaptured():
            yield _close_hold(
                fact.account_id, fact.hold_id, "captured", fact.amount, fact.captured_at
            )
            yield posted(fact.account_id, -fact.amount)
            yield moved(
                position,
                "capture",
                fact.hold_id,
                (RENTER_CREDIT, fact.account_id),
                (PLATFORM_REVENUE, None),
                fact.amount,
                fact.captured_at,
            )
        case e.HoldReleased():
            yield _close_hold(fact.account_id, fact.hold_id, "released", 0, fact.released_at)
        case e.HoldExpired():
            yield _close_hold(fact.account_id, fact.hold_id, "expired", 0, fact.expired_at)


def exhaustion_changes(fact: e.ExhaustionFact, position: int) -> Iterator[Change]:
    """What an account without credit may still owe, and how often it was told."""
    del position
    match fact:
        case e.AccountExhausted():
            yield Change(
                "UPDATE account_credit SET dry_at = %s, exhausted_at = %s, debt_limit = %s,"
                " debt_notices = 0, debt_since = NULL WHERE account_id = %s",
                (fact.dry_at, fact.stopped_at, fact.debt_limit, fact.account_id),
            )
        case e.AccountRestored():
            yield Change(
                "UPDATE account_credit SET exhausted_at = NULL, dry_at = NULL, debt_limit = 0,"
                " debt_notices = 0, debt_since = NULL WHERE account_id = %s",
                (fact.account_id,),
            )
        case e.StorageDebtNoticed():
            yield Change(
                "UPDATE account_credit SET debt_notices = %s,"
                " debt_since = coalesce(debt_since, %s) WHERE account_id = %s",
                (fact.number, fact.noticed_at, fact.account_id),
            )
        case e.StorageDebtCleared():
            yield Change(
                "UPDATE account_credit SET debt_notices = 0, debt_since = NULL"
                " WHERE account_id = %s",
                (fact.account_id,),
            )
