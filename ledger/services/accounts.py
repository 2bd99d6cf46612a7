"""Accounts, their API keys, and the credit they move themselves: deposits, transfers, holds.

Every function works inside a `Unit`, so several of them can make one command. Amounts are nanos.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from collections.abc import Sequence
from contextlib import suppress
from typing import Final, NamedTuple

import msgspec

from ledger.domain.events import (
    AccountOpened,
    ApiKeyCreated,
    ApiKeyNamed,
    ApiKeyReset,
    ApiKeyRestricted,
    ApiKeyRevoked,
    CreditRefunded,
    CreditTransferred,
    DepositSettled,
    Grant,
    HoldCaptured,
    HoldExpired,
    HoldPlaced,
    HoldReleased,
    Role,
    SubjectErased,
)
from ledger.domain.ids import account_stream
from ledger.domain.money import MAX_POSTING_NANOS, NANOS_PER_CENT, format_dollars
from ledger.domain.payment import PAYMENT_PREFIX, TOP_UP_PREFIX, is_processed
from ledger.domain.permissions import covers
from ledger.domain.tax import Split
from ledger.errors import (
    AuthError,
    DeclinedError,
    ForbiddenError,
    IdempotencyError,
    NotFoundError,
    RejectedError,
    UnavailableError,
)
from ledger.services import tax_invoices
from ledger.services.billing import erase_customer
from ledger.services.credit import lock_credit
from ledger.services.ledger import Ledger, Unit
from ledger.services.private import forget_account
from ledger.services.subjects import opened, require_subject
from ledger.store.codec import decode_fact
from ledger.store.database import Connection, translating

HOLD_SECONDS: Final = 7 * 86_400
_USE_SECONDS: Final = 60
_NAME = re.compile(r"[^\x00-\x1f\x7f]{1,64}")
_REFERENCE = re.compile(r"[A-Za-z0-9._:-]{1,128}")


class Principal(NamedTuple):
    """Who is asking, and in which role."""

    account_id: int
    role: Role
    key_id: str
    last_used_at: int | None
    """To about a minute, without this use."""
    expires_at: int | None = None
    grants: tuple[Grant, ...] | None = None
    """What the key may do; none: all that its role may."""
    instance_id: int | None = None
    """Whose key it is, where it is that of an instance."""


# --- accounts ------------------------------------------------------------------------------------


def open_account(unit: Unit, name: str, *, currency: str = "USD") -> int:
    """Open an account under a name that no other account has, and return its id.

    Raises:
        RejectedError: `invalid_args`, `currency_not_supported` or `name_taken`.
    """
    if not _NAME.fullmatch(name) or name != name.strip():
        message = "a name is 1 to 64 printable characters without spaces at its ends"
        raise RejectedError("invalid_args", message)
    if name.isdecimal():
        # Where people may give a name or an id, a number is always an id.
        raise RejectedError("invalid_args", "a name of digits alone would be taken for an id")
    if currency != "USD":
        message = f"accounts are kept in USD; {currency!r} is not supported"
        raise RejectedError("currency_not_supported", message)
    if find_account(unit, name) is not None:
        raise RejectedError("name_taken", f"there already is an account named {name!r}")
    account_id = unit.next_id("account")
    subject = unit.vault.new_subject(unit.connection)
    unit.vault.put(unit.connection, subject, "name", name.encode())
    unit.append(
        account_stream(account_id),
        AccountOpened(
            account_id=account_id,
            subject=subject,
            name_hash=unit.vault.keyed_hash(name),
            currency=currency,
            opened_at=unit.now,
        ),
    )
    return account_id


def find_account(unit: Unit, name: str) -> int | None:
    """The id of the account with this name; none if there is no such account."""
    row = unit.connection.execute(
        "SELECT account_id FROM accounts WHERE name_hash = %s", [unit.vault.keyed_hash(name)]
    ).fetchone()
    return None if row is None else int(row[0])


def ensure_account(unit: Unit, name: str) -> int:
    """The id of the account with this name, opened now if it did not exist."""
    found = find_account(unit, name)
    return open_account(unit, name) if found is None else found


def erase_subject(unit: Unit, account_id: int) -> None:
    """Destroy the key of an account's personal data; its books stay as they are."""
    row = unit.connection.execute(
        "SELECT subject, erased_at FROM accounts WHERE account_id = %s", [account_id]
    ).fetchone()
    if row is None:
        raise NotFoundError("no_such_account", f"there is no account {account_id}")
    if row[1] is not None:
        return
    erase_customer(unit, account_id)
    unit.vault.erase(unit.connection, row[0])
    forget_account(unit, account_id)
    unit.append(
        account_stream(account_id),
        SubjectErased(account_id=account_id, subject=row[0], erased_at=unit.now),
    )


# --- API keys ------------------------------------------------------------------------------------


def create_key(
    unit: Unit,
    account_id: int,
    role: Role,
    *,
    expires_at: int | None = None,
    grants: Sequence[Grant] | None = None,
    name: str | None = None,
    instance_id: int | None = None,
) -> str:
    """Make an API key; the text returned is shown once and kept nowhere.

    Args:
        unit: The command's transaction.
        account_id: For whom it acts.
        role: In which role.
        expires_at: Its first dead second; never by default.
        grants: What it may do; all that its role may by default.
        name: What people call it.
        instance_id: Set for the key that an instance itself has.

    Raises:
        NotFoundError: `no_such_account`.
        RejectedError: `invalid_args` when it would already be expired, or for a name that is none.
    """
    if expires_at is not None and expires_at <= unit.now:
        raise RejectedError("invalid_args", "a key must expire in the future")
    _require_account(unit, account_id)
    key_id = secrets.token_hex(8)
    secret = secrets.token_urlsafe(32)
    unit.append(
        account_stream(account_id),
        ApiKeyCreated(
            key_id=key_id,
            account_id=account_id,
            role=role,
            expires_at=expires_at,
            created_at=unit.now,
        ),
    )
    unit.connection.execute(
        "INSERT INTO key_secrets (key_id, secret_sha256) VALUES (%s, %s)",
        [key_id, hashlib.sha256(secret.encode()).digest()],
    )
    if grants is not None:
        unit.append(
            account_stream(account_id),
            ApiKeyRestricted(
                account_id=account_id,
                key_id=key_id,
                grants=list(grants),
                instance_id=instance_id,
                restricted_at=unit.now,
            ),
        )
    if name is not None:
        rename_key(unit, account_id, key_id, name)
    return f"glk_{key_id}_{secret}"


def rename_key(unit: Unit, account_id: int, key_id: str, name: str | None) -> None:
    """Call a key by another name, or by none; the name is sealed, and the same changes nothing.

    Raises:
        NotFoundError: `no_such_key`, or `erased`.
        RejectedError: `invalid_args`.
    """
    require_key(unit.connection, account_id, key_id)
    if name is not None and not _NAME.fullmatch(name):
        raise RejectedError("invalid_args", "a key's name is 1 to 64 printable characters")
    subject = require_subject(unit.connection, account_id)
    item = f"key-{key_id}-name"
    reference = f"{subject}/{item}"
    before = opened(unit.connection, unit.vault, reference)
    if (None if before is None else before.decode()) == name:
        return
    if name is None:
        unit.vault.remove(unit.connection, subject, [item])
    else:
        unit.vault.put(unit.connection, subject, item, name.encode())
    unit.append(
        account_stream(account_id),
        ApiKeyNamed(
            account_id=account_id,
            key_id=key_id,
            reference=None if name is None else reference,
            named_at=unit.now,
        ),
    )


def reset_key(unit: Unit, account_id: int, key_id: str) -> str:
    """Give a key another secret; the old text is dead at once, the new one shown this once.

    Raises:
        NotFoundError: `no_such_key`.
        RejectedError: `key_revoked`: a dead key stays dead.
    """
    if require_key(unit.connection, account_id, key_id).revoked_at is not None:
        raise RejectedError("key_revoked", "the key was revoked: make another one")
    secret = secrets.token_urlsafe(32)
    unit.connection.execute(
        "UPDATE key_secrets SET secret_sha256 = %s WHERE key_id = %s",
        [hashlib.sha256(secret.encode()).digest(), key_id],
    )
    unit.append(
        account_stream(account_id),
        ApiKeyReset(account_id=account_id, key_id=key_id, reset_at=unit.now),
    )
    return f"glk_{key_id}_{secret}"


class KnownKey(NamedTuple):
    """A key of an account, as far as others may be compared with it."""

    key_id: str
    role: Role
    expires_at: int | None
    revoked_at: int | None
    grants: tuple[Grant, ...] | None
    instance_id: int | None


def require_key(connection: Connection, account_id: int, key_id: str) -> KnownKey:
    """A key of this account, also one that was revoked.

    Raises:
        NotFoundError: `no_such_key`.
    """
    row = connection.execute(
        "SELECT k.key_id, k.role, k.expires_at, k.revoked_at, g.grants, g.instance_id"
        " FROM api_keys k LEFT JOIN api_key_grants g USING (key_id)"
        " WHERE k.key_id = %s AND k.account_id = %s",
        [key_id, account_id],
    ).fetchone()
    if row is None:
        raise NotFoundError("no_such_key", f"there is no key {key_id!r}")
    return KnownKey(row[0], row[1], row[2], row[3], _grants(row[4]), row[5])


def require_not_more(
    principal: Principal,
    *,
    grants: Sequence[Grant] | None,
    expires_at: int | None,
) -> None:
    """Let a key make, reset or change another one only if that may no more than itself.

    Raises:
        ForbiddenError: `not_authorized`.
    """
    outlives = principal.expires_at is not None and (
        expires_at is None or expires_at > principal.expires_at
    )
    if outlives or not covers(principal.grants, grants):
        message = "a key makes and changes keys that may no more, and live no longer, than itself"
        raise ForbiddenError("not_authorized", message)


def _grants(stored: object) -> tuple[Grant, ...] | None:
    return None if stored is None else tuple(msgspec.convert(stored, list[Grant]))


def revoke_key(unit: Unit, account_id: int, key_id: str) -> None:
    """End a key of this account; revoking it again changes nothing.

    Raises:
        NotFoundError: `no_such_key`.
    """
    row = unit.connection.execute(
        "SELECT revoked_at FROM api_keys WHERE key_id = %s AND account_id = %s",
        [key_id, account_id],
    ).fetchone()
    if row is None:
        raise NotFoundError("no_such_key", f"there is no key {key_id!r}")
    if row[0] is None:
        unit.append(
            account_stream(account_id),
            ApiKeyRevoked(key_id=key_id, account_id=account_id, revoked_at=unit.now),
        )


def authenticate(connection: Connection, key: str, now: int) -> Principal:
    """Who holds this key.

    Raises:
        AuthError: `auth_error`, whatever is wrong with it.
    """
    prefix, _, rest = key.partition("_")
    key_id, _, secret = rest.partition("_")
    row = connection.execute(
        "SELECT k.account_id, k.role, k.expires_at, k.revoked_at, s.secret_sha256, s.last_used_at,"
        " g.grants, g.instance_id FROM api_keys k JOIN key_secrets s USING (key_id)"
        " LEFT JOIN api_key_grants g USING (key_id) WHERE key_id = %s",
        [key_id],
    ).fetchone()
    digest = hashlib.sha256(secret.encode()).digest()
    expected = bytes(32) if row is None else bytes(row[4])
    matches = hmac.compare_digest(digest, expected)
    if prefix != "glk" or row is None or not matches:
        raise AuthError("auth_error", "the API key is not valid")
    if row[3] is not None or (row[2] is not None and row[2] <= now):
        raise AuthError("auth_error", "the API key has expired or was revoked")
    return Principal(row[0], row[1], key_id, row[5], row[2], _grants(row[6]), row[7])


def note_use(ledger: Ledger, principal: Principal, now: int) -> None:
    """Keep when a key was used, once a minute; a server that takes no writes is no obstacle."""
    if principal.last_used_at is not None and now < principal.last_used_at + _USE_SECONDS:
        return
    with suppress(UnavailableError), translating(), ledger.database.pool.connection() as connection:
        connection.execute(
            "UPDATE key_secrets SET last_used_at = %s WHERE key_id = %s"
            " AND (last_used_at IS NULL OR last_used_at < %s)",
            [now, principal.key_id, now],
        )


# --- money that an account moves itself ----------------------------------------------------------


def deposit(
    unit: Unit,
    account_id: int,
    amount: int,
    deposit_id: str,
    *,
    source: str = "admin",
    tax: int | None = None,
) -> None:
    """Book a settled payment; the same id and amount again is the same payment.

    *amount* is what becomes credit; *tax* was paid beside it, by default what the account's tax
    profile says. Both are on the tax invoice.

    Raises:
        IdempotencyError: `idempotency_conflict` when the id stands for another amount.
        RejectedError: `invalid_args` for an id that a card payment has, or may get;
            `invalid_amount` for a taxed amount that is not whole cents.
    """
    _require_account(unit, account_id)
    _check_reference(deposit_id)
    _check_amount(amount)
    if source == "admin" and is_processed(deposit_id):
        message = f"ids that begin with {PAYMENT_PREFIX} or {TOP_UP_PREFIX} are of card payments"
        raise RejectedError("invalid_args", message)
    row = unit.connection.execute(
        "SELECT amount FROM deposits WHERE account_id = %s AND deposit_id = %s",
        [account_id, deposit_id],
    ).fetchone()
    if row is not None:
        _same(int(row[0]) == amount, "deposit", deposit_id)
        return
    split, profile = tax_invoices.tax_on(unit.connection, account_id, amount)
    if tax is not None:
        split = Split(amount, tax)
    unit.append(
        account_stream(account_id),
        DepositSettled(
            account_id=account_id,
            deposit_id=deposit_id,
            amount=amount,
            source=source,
            settled_at=unit.now,
        ),
    )
    tax_invoices.issue(unit, account_id, deposit_id, split, profile)


def refund(
    unit: Unit,
    account_id: int,
    deposit_id: str,
    amount: int,
    refund_id: str,
    *,
    cause: tax_invoices.Cause | None = None,
) -> str | None:
    """Give unspent credit of one deposit back to its payer; returns the number of the credit note.

    *amount* is gross: credit and the tax that was paid on it go back together.

    Raises:
        IdempotencyError: `idempotency_conflict` when the id stands for another refund.
        NotFoundError: `no_such_deposit`.
        RejectedError: `over_credit` beyond what this deposit has left; `paid_by_card` where only
            the payment processor can give it back.
        DeclinedError: `insufficient_balance` beyond what the account has left.
    """
    _check_reference(refund_id)
    _check_amount(amount)
    documented = tax_invoices.refunded(unit.connection, account_id, refund_id)
    if documented is not None:
        _same(documented == (deposit_id, amount), "refund", refund_id)
        return None
    if _movement(unit, account_id, "refund", refund_id, amount):
        _same(_refunded(unit, account_id, refund_id) == deposit_id, "refund", refund_id)
        return None
    row = unit.connection.execute(
        "SELECT amount - refunded, source FROM deposits WHERE account_id = %s AND deposit_id = %s",
        [account_id, deposit_id],
    ).fetchone()
    if row is None:
        raise NotFoundError("no_such_deposit", f"there is no deposit {deposit_id!r}")
    if row[1] != "admin":
        message = f"this deposit was paid by card: POST /v1/payments/{deposit_id}/refund"
        raise RejectedError("paid_by_card", message)
    invoice = tax_invoices.of_deposit(unit.connection, account_id, deposit_id)
    parts = Split(amount, 0) if invoice is None else tax_invoices.divide(invoice, amount)
    if parts.net > row[0]:
        message = f"only {format_dollars(int(row[0]))} of this deposit is left to refund"
        raise RejectedError("over_credit", message, left=format_dollars(int(row[0])))
    _require_own(unit, account_id, parts.net)
    unit.append(
        account_stream(account_id),
        CreditRefunded(
            account_id=account_id,
            refund_id=refund_id,
            deposit_id=deposit_id,
            amount=parts.net,
            refunded_at=unit.now,
        ),
    )
    if invoice is None:
        return None
    return tax_invoices.credit(
        unit, account_id, invoice, parts, refund_id, cause or tax_invoices.Cause()
    )


def transfer(unit: Unit, sender: int, recipient: int, amount: int, transfer_id: str) -> None:
    """Move credit to another account; irreversible, and the same id again is the same transfer.

    Raises:
        RejectedError: `amount_too_small` below one cent, `invalid_recipient` to oneself or nobody.
        DeclinedError: `insufficient_balance`.
    """
    _check_reference(transfer_id)
    if amount < NANOS_PER_CENT:
        raise RejectedError("amount_too_small", "the smallest transfer is 0.01")
    if sender == recipient or not _exists(unit, recipient):
        raise RejectedError("invalid_recipient", "the recipient must be another account")
    if _movement(unit, sender, "transfer", transfer_id, amount, recipient):
        return
    lock_credit(unit.connection, [sender, recipient])
    _require_own(unit, sender, amount)
    unit.append(
        account_stream(sender),
        CreditTransferred(
            transfer_id=transfer_id,
            from_account_id=sender,
            to_account_id=recipient,
            amount=amount,
            transferred_at=unit.now,
        ),
    )


def place_hold(
    unit: Unit, account_id: int, amount: int, hold_id: str, *, seconds: int = HOLD_SECONDS
) -> None:
    """Set credit aside under an id; the same id and amount again is the same hold.

    Raises:
        IdempotencyError: `idempotency_conflict` when the id stands for another amount.
        DeclinedError: `insufficient_credit`.
    """
    _require_account(unit, account_id)
    _check_reference(hold_id)
    _check_amount(amount)
    row = unit.connection.execute(
        "SELECT amount FROM holds WHERE account_id = %s AND hold_id = %s", [account_id, hold_id]
    ).fetchone()
    if row is not None:
        _same(int(row[0]) == amount, "hold", hold_id)
        return
    _require_available(unit, account_id, amount, "insufficient_credit")
    unit.append(
        account_stream(account_id),
        HoldPlaced(
            account_id=account_id,
            hold_id=hold_id,
            amount=amount,
            expires_at=unit.now + seconds,
            placed_at=unit.now,
        ),
    )


def capture_hold(unit: Unit, account_id: int, hold_id: str, amount: int | None = None) -> None:
    """Spend a hold. Less than it holds releases the rest; more is booked in full, even below zero.

    Raises:
        NotFoundError: `no_such_hold`.
        RejectedError: `hold_closed` when it was released, has expired, or was captured otherwise.
    """
    held, status, captured = _hold(unit, account_id, hold_id)
    wanted = held if amount is None else amount
    _check_amount(wanted)
    if status == "captured" and captured == wanted:
        return
    _require_pending(status, hold_id)
    unit.append(
        account_stream(account_id),
        HoldCaptured(account_id=account_id, hold_id=hold_id, amount=wanted, captured_at=unit.now),
    )


def release_hold(unit: Unit, account_id: int, hold_id: str) -> None:
    """Give a hold back unspent; releasing it again changes nothing.

    Raises:
        NotFoundError: `no_such_hold`.
        RejectedError: `hold_closed` when it was captured or has expired.
    """
    _, status, _ = _hold(unit, account_id, hold_id)
    if status == "released":
        return
    _require_pending(status, hold_id)
    unit.append(
        account_stream(account_id),
        HoldReleased(account_id=account_id, hold_id=hold_id, released_at=unit.now),
    )


def expire_holds(unit: Unit) -> int:
    """Record the end of every hold whose instant has come; returns how many."""
    rows = unit.connection.execute(
        "SELECT account_id, hold_id, expires_at FROM holds"
        " WHERE status = 'pending' AND expires_at <= %s ORDER BY expires_at, account_id, hold_id",
        [unit.now],
    ).fetchall()
    unit.append_all(
        [
            (
                account_stream(account_id),
                HoldExpired(account_id=account_id, hold_id=hold_id, expired_at=expires_at),
            )
            for account_id, hold_id, expires_at in rows
        ]
    )
    return len(rows)


def _hold(unit: Unit, account_id: int, hold_id: str) -> tuple[int, str, int]:
    row = unit.connection.execute(
        "SELECT amount, status, captured, expires_at FROM holds"
        " WHERE account_id = %s AND hold_id = %s",
        [account_id, hold_id],
    ).fetchone()
    if row is None:
        raise NotFoundError("no_such_hold", f"there is no hold {hold_id!r}")
    status = "expired" if row[1] == "pending" and row[3] <= unit.now else row[1]
    return int(row[0]), status, int(row[2])


def _require_pending(status: str, hold_id: str) -> None:
    if status != "pending":
        raise RejectedError("hold_closed", f"hold {hold_id!r} is {status}, and that is final")


def _require_available(unit: Unit, account_id: int, amount: int, code: str) -> None:
    credit = lock_credit(unit.connection, [account_id])[account_id]
    available = credit.available(unit.now, unit.policy)
    if available < amount:
        message = f"{format_dollars(amount)} is needed and {format_dollars(available)} is available"
        raise DeclinedError(
            code, message, needed=format_dollars(amount), available=format_dollars(available)
        )


def _require_own(unit: Unit, account_id: int, amount: int) -> None:
    """Credit that leaves the account must be its own: promotional credit can only be spent."""
    credit = lock_credit(unit.connection, [account_id])[account_id]
    own = credit.own(unit.now, unit.policy)
    if own >= amount:
        return
    promotional = credit.promotional(unit.now, unit.policy)
    message = f"{format_dollars(amount)} is needed and {format_dollars(own)} is available"
    if promotional:
        message += f"; {format_dollars(promotional)} is promotional credit, which can only be spent"
    raise DeclinedError(
        "insufficient_balance",
        message,
        needed=format_dollars(amount),
        available=format_dollars(own),
    )


def _movement(
    unit: Unit,
    account_id: int,
    kind: str,
    reference: str,
    amount: int,
    recipient: int | None = None,
) -> bool:
    """True when this very movement was made before.

    Raises:
        IdempotencyError: `idempotency_conflict` when the reference stands for another one.
    """
    row = unit.connection.execute(
        "SELECT amount, credit_account FROM movements"
        " WHERE debit_account = %s AND kind = %s AND reference = %s",
        [account_id, kind, reference],
    ).fetchone()
    if row is None:
        return False
    _same(int(row[0]) == amount and row[1] == recipient, kind, reference)
    return True


def _refunded(unit: Unit, account_id: int, refund_id: str) -> str:
    """Of which deposit a refund was; only its fact says so."""
    row = unit.connection.execute(
        "SELECT e.topic, e.state FROM movements m JOIN events e USING (position)"
        " WHERE m.debit_account = %s AND m.kind = 'refund' AND m.reference = %s",
        [account_id, refund_id],
    ).fetchone()
    assert row is not None
    fact = decode_fact(row[0], row[1])
    assert isinstance(fact, CreditRefunded)
    return fact.deposit_id


def _same(equal: bool, what: str, reference: str) -> None:
    if not equal:
        message = f"the {what} id {reference!r} already stands for another {what}"
        raise IdempotencyError("idempotency_conflict", message)


def _exists(unit: Unit, account_id: int) -> bool:
    row = unit.connection.execute(
        "SELECT 1 FROM accounts WHERE account_id = %s", [account_id]
    ).fetchone()
    return row is not None


def _require_account(unit: Unit, account_id: int) -> None:
    if not _exists(unit, account_id):
        raise NotFoundError("no_such_account", f"there is no account {account_id}")


def _check_amount(amount: int) -> None:
    """Money moves forwards, and one posting has a bound."""
    if not 1 <= amount <= MAX_POSTING_NANOS:
        message = f"an amount is between 0.000000001 and {format_dollars(MAX_POSTING_NANOS)}"
        raise RejectedError("invalid_amount", message)


def _check_reference(reference: str) -> None:
    if not _REFERENCE.fullmatch(reference):
        message = "an id is 1 to 128 letters, digits, dots, colons, dashes or underscores"
        raise RejectedError("invalid_args", message)
