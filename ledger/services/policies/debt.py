"""Storage debt: three notices, then the instances go, and the volumes after them."""

from __future__ import annotations

from typing import Final

from ledger.domain.events import StorageDebtCleared, StorageDebtNoticed
from ledger.domain.ids import account_stream
from ledger.domain.instance import DestroyInstance
from ledger.domain.money import SECONDS_PER_DAY
from ledger.domain.volume import DestroyVolume
from ledger.services import volumes
from ledger.services.credit import lock_credit, read_credit
from ledger.services.ledger import Ledger, read_policy
from ledger.services.notices import notify
from ledger.services.rentals import command_all
from ledger.store.database import Connection

DEBT_NOTICE_SECONDS: Final = (0, SECONDS_PER_DAY, 3 * SECONDS_PER_DAY)

_LAST: Final = DestroyVolume("storage_debt", "storage debt")

DEBTS: Final = (
    "SELECT account_id, debt_limit, debt_notices, debt_since FROM account_credit"
    " WHERE exhausted_at IS NOT NULL AND (debt_notices > 0 OR storage_product > 0)"
    " ORDER BY account_id"
)


def collect_debt(ledger: Ledger) -> None:
    """Notice a debt that reached its limit three times, then destroy what causes it (§13.4)."""
    with ledger.reading() as connection:
        due = [one for one, _ in _debts(connection, ledger.clock())]
    if not due:
        return
    with ledger.unit() as unit:
        lock_credit(unit.connection, due)
        for account_id, number in _debts(unit.connection, unit.now):
            if number == 0:
                unit.append(
                    account_stream(account_id),
                    StorageDebtCleared(account_id=account_id, cleared_at=unit.now),
                )
                continue
            credit = read_credit(unit.connection, [account_id])[account_id]
            unit.append(
                account_stream(account_id),
                StorageDebtNoticed(
                    account_id=account_id,
                    number=number,
                    debt=-credit.available(unit.now, unit.policy),
                    noticed_at=unit.now,
                ),
            )
            notify(unit, account_id, "storage_debt", f"notice-{number}")
            if number == len(DEBT_NOTICE_SECONDS):
                rows = unit.connection.execute(
                    "SELECT instance_id FROM instances WHERE account_id = %s"
                    " AND destroyed_at IS NULL ORDER BY instance_id",
                    [account_id],
                ).fetchall()
                wish = DestroyInstance("storage_debt", "storage debt")
                command_all(unit, [(row[0], wish) for row in rows])
                volumes.command_all(
                    unit, [(one, _LAST) for one in volumes.living(unit, account_id)]
                )


def _debts(connection: Connection, now: int) -> list[tuple[int, int]]:
    """Accounts with the number of the notice that is due; 0 when a sequence is over."""
    rows = connection.execute(DEBTS).fetchall()
    if not rows:
        return []
    policy = read_policy(connection)
    credits = read_credit(connection, [row[0] for row in rows])
    due = []
    for account_id, limit, notices, since in rows:
        reached = credits[account_id].available(now, policy) <= -int(limit)
        if not reached:
            if 0 < notices < len(DEBT_NOTICE_SECONDS):
                due.append((account_id, 0))
        elif notices == 0:
            due.append((account_id, 1))
        elif notices < len(DEBT_NOTICE_SECONDS) and now >= since + DEBT_NOTICE_SECONDS[notices]:
            due.append((account_id, notices + 1))
    return due


def next_due(connection: Connection, now: int) -> int | None:
    """The next second at which an account runs dry, reaches its debt limit or is noticed again."""
    due = [second for second in _credit_due(connection, now) if second is not None]
    return min((second for second in due if second > now), default=None)


def _credit_due(connection: Connection, now: int) -> list[int | None]:
    policy = read_policy(connection)
    rows = connection.execute(
        "SELECT account_id, exhausted_at, debt_limit, debt_notices, debt_since FROM account_credit"
        " WHERE gpu_rate > 0 OR storage_product > 0 OR debt_notices > 0"
    ).fetchall()
    if not rows:
        return []
    due: list[int | None] = []
    for account_id, credit in read_credit(connection, [row[0] for row in rows]).items():
        _, exhausted_at, limit, notices, since = next(row for row in rows if row[0] == account_id)
        if exhausted_at is None or credit.available(now, policy) > 0:
            due.append(credit.dry_second(now, policy))
        elif notices == 0:
            due.append(credit.dry_second(now, policy, floor=-int(limit)))
        elif notices < len(DEBT_NOTICE_SECONDS):
            due.append(since + DEBT_NOTICE_SECONDS[notices])
    return due
