"""What an account wants to happen when its instances do nothing (`marketplace.md` §13.5)."""

from __future__ import annotations

from typing import Final, NamedTuple

from ledger.domain.events import IdlePolicySet
from ledger.domain.ids import account_stream
from ledger.domain.money import SECONDS_PER_DAY, SECONDS_PER_HOUR
from ledger.errors import RejectedError
from ledger.services.accounts import require_account
from ledger.services.ledger import Unit
from ledger.store.database import Connection

SECOND_NOTICE_SECONDS: Final = SECONDS_PER_DAY
_NOTICE_MIN: Final = 300
_LONGEST: Final = 30 * SECONDS_PER_DAY


class IdlePolicy(NamedTuple):
    """After how many idle seconds a notice is due, and after how many (none: never) it stops."""

    notice_seconds: int = SECONDS_PER_HOUR
    stop_seconds: int | None = None


def set_idle_policy(unit: Unit, account_id: int, policy: IdlePolicy) -> None:
    """Say what idleness means for an account; it opts in to being stopped, or out again.

    Raises:
        NotFoundError: `no_such_account`.
        RejectedError: `invalid_args` unless a notice comes after 5 minutes to 30 days, and a stop
            not before it.
    """
    require_account(unit.connection, account_id)
    if not _NOTICE_MIN <= policy.notice_seconds <= _LONGEST:
        raise RejectedError("invalid_args", "a notice comes after 300 to 2592000 idle seconds")
    stop = policy.stop_seconds
    if stop is not None and not policy.notice_seconds <= stop <= _LONGEST:
        raise RejectedError("invalid_args", "a stop comes with the notice or later, within 30 days")
    if policy == read_idle_policy(unit.connection, account_id):
        return
    unit.append(
        account_stream(account_id),
        IdlePolicySet(
            account_id=account_id,
            notice_seconds=policy.notice_seconds,
            stop_seconds=stop,
            set_at=unit.now,
        ),
    )


def read_idle_policy(connection: Connection, account_id: int) -> IdlePolicy:
    """What an account set; notices and no stop at first."""
    row = connection.execute(
        "SELECT notice_seconds, stop_seconds FROM idle_policies WHERE account_id = %s",
        [account_id],
    ).fetchone()
    return IdlePolicy() if row is None else IdlePolicy(*row)
