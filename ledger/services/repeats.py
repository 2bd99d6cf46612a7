"""What clients without keys repeat: the natural keys of `marketplace.md` §1 and their windows.

Only successes are remembered; a refusal may be tried again at once. A create needs nothing of this:
its key lives as long as its instance (`rentals.rent_once`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Final, NamedTuple

import msgspec

from ledger.services import contracts, transfers
from ledger.services.contracts import Bought
from ledger.services.ledger import Unit

WINDOW_SECONDS: Final = 600


class Transferred(NamedTuple):
    """A transfer's id, and whether this is the answer to a repeated request."""

    transfer_id: str
    replayed: bool


class Prepaid(NamedTuple):
    """A reservation as it was bought, and whether this is the answer to a repeated request."""

    bought: Bought
    bought_at: int
    replayed: bool


def transfer_once(unit: Unit, sender: int, recipient: int, amount: int) -> Transferred:
    """`transfers.transfer` under the key (sender, recipient, amount).

    Raises:
        RejectedError: `amount_too_small`, `invalid_recipient`.
        DeclinedError: `insufficient_balance`.
    """
    transfer_id = f"once-{recipient}-{amount}-{unit.now}"

    def do() -> bytes:
        transfers.transfer(unit, sender, recipient, amount, transfer_id)
        return transfer_id.encode()

    kept, replayed = once(unit, sender, f"transfer/{recipient}/{amount}", do)
    return Transferred(kept.decode(), replayed)


def reserve_once(unit: Unit, account_id: int, instance_id: int, amount: int) -> Prepaid:
    """`contracts.reserve` by amount under the key (account, instance, amount).

    Raises:
        NotFoundError: `no_such_instance`.
        RejectedError: `not_on_demand`, `contract_expired`, `beyond_end_date`, `invalid_args`.
        DeclinedError: `insufficient_credit`.
    """

    def do() -> bytes:
        bought = contracts.reserve(unit, instance_id, amount=amount)
        return msgspec.json.encode((bought, unit.now))

    kept, replayed = once(unit, account_id, f"prepay/{instance_id}/{amount}", do)
    bought, bought_at = msgspec.json.decode(kept, type=tuple[Bought, int])
    return Prepaid(bought, bought_at, replayed)


def once(
    unit: Unit,
    account_id: int,
    key: str,
    do: Callable[[], bytes],
    *,
    holds: Callable[[bytes], bool] = lambda _: True,
) -> tuple[bytes, bool]:
    """The answer of the same command of the last 600 s while it *holds*, else what *do* gives.

    Returns:
        The answer, and whether it is a repeated one.
    """
    scope = f"natural/{account_id}"
    digest = hashlib.sha256(key.encode()).hexdigest()
    row = unit.connection.execute(
        "SELECT answer FROM idempotency WHERE scope = %s AND key > %s AND key <= %s"
        " ORDER BY key DESC LIMIT 1",
        [scope, _key(digest, unit.now - WINDOW_SECONDS), _key(digest, unit.now)],
    ).fetchone()
    if row is not None and holds(bytes(row[0])):
        return bytes(row[0]), True
    answer = do()
    unit.connection.execute(
        "INSERT INTO idempotency VALUES (%s, %s, %s, 0, %s, %s)"
        " ON CONFLICT (scope, key) DO NOTHING",
        [scope, _key(digest, unit.now), b"", answer, unit.now],
    )
    return answer, False


def _key(digest: str, second: int) -> str:
    return f"{digest}/{second:012d}"
