"""Usage statements: once a day, what every account consumed, under a hash that proves each line.

A statement says what was folded when it was issued; what was accepted later for the same day comes
as a late line of a later one, so the lines of a day add up to its charges. Statements are never
changed: a dispute has seven days from the last one that names what it is about.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

import msgspec

from ledger.domain.charge import METERS, Metered
from ledger.domain.dispute import PLATFORM
from ledger.domain.events import USAGE_REPORTED, StatementLine, UsageStatementIssued
from ledger.domain.ids import account_stream
from ledger.domain.merkle import merkle_root
from ledger.domain.money import SECONDS_PER_DAY
from ledger.projections.contracts import CONTRACTS
from ledger.projections.runner import position_of
from ledger.services.ledger import Ledger, Unit, read_policy
from ledger.store.database import Connection

ISSUE_AFTER_SECONDS: Final = 3_600
"""01:00 UTC of the next day."""
_HOURS_PER_DAY: Final = 24
_BATCH: Final = 200
_MARK: Final = "statements"
_NEVER: Final = 2**40

STATEMENTS_DUE: Final = (
    "SELECT 1 WHERE coalesce((SELECT position FROM projection_positions"  # noqa: S608 - constants
    f" WHERE name = '{_MARK}'),"
    f" (SELECT min(created_at) FROM {CONTRACTS} c) / {SECONDS_PER_DAY} - 1)"
    f" < (%(now)s - {ISSUE_AFTER_SECONDS}) / {SECONDS_PER_DAY} - 1"
)


def issue_due(ledger: Ledger) -> int:
    """Issue the statements of every day that is over and folded; returns how many.

    The mark of the last day only saves looking again: whether an account has its statement of a day
    is judged by the statement.
    """
    last = _last_due(ledger.clock())
    with ledger.reading() as connection:
        first = _first_day(connection)
    issued = 0
    for day in range(first, last + 1):
        with ledger.reading() as connection:
            if not is_folded(connection, due_at(day)):
                return issued
            waiting = _accounts(connection, day)
        for start in range(0, len(waiting), _BATCH):
            with ledger.unit() as unit:
                issued += _issue(unit, day, waiting[start : start + _BATCH])
        with ledger.database.pool.connection() as connection:
            connection.execute(
                "INSERT INTO projection_positions VALUES (%s, 0, %s)"
                " ON CONFLICT (name) DO UPDATE SET position = EXCLUDED.position",
                [_MARK, day],
            )
    return issued


def next_due(connection: Connection, now: int) -> int | None:
    """The next 01:00 UTC, while a contract lives or lived so recently that usage may be late."""
    second = due_at(_last_due(now) + 1)
    oldest = second - SECONDS_PER_DAY * (_lookback_days(connection) + 1) - ISSUE_AFTER_SECONDS
    row = connection.execute(
        f"SELECT 1 FROM {CONTRACTS} c WHERE destroyed_at IS NULL OR destroyed_at > %s LIMIT 1",  # noqa: S608 - a constant
        [oldest],
    ).fetchone()
    return None if row is None else second


def due_at(day: int) -> int:
    """When the statement of UTC day number *day* is issued."""
    return (day + 1) * SECONDS_PER_DAY + ISSUE_AFTER_SECONDS


def is_folded(connection: Connection, second: int) -> bool:
    """True when every report received up to *second* is in the usage group's tables."""
    row = connection.execute(
        "SELECT 1 FROM events WHERE position > %s AND topic = %s AND recorded_at <= %s"
        " ORDER BY position LIMIT 1",
        [position_of(connection), USAGE_REPORTED, second],
    ).fetchone()
    return row is None


def stated_at(connection: Connection, instance_id: int, day: int) -> int | None:
    """When the last statement that names usage of *instance_id* on *day* was issued, if any was."""
    row = connection.execute(
        "SELECT max(issued_at) FROM statement_lines WHERE instance_id = %s AND used_day = %s",
        [instance_id, day * SECONDS_PER_DAY],
    ).fetchone()
    return None if row is None else row[0]


def _last_due(now: int) -> int:
    """The last UTC day whose statement is due."""
    return (now - ISSUE_AFTER_SECONDS) // SECONDS_PER_DAY - 1


def _first_day(connection: Connection) -> int:
    """The first day that was not looked at yet: after the mark, or when anybody first rented."""
    row = connection.execute(
        "SELECT (SELECT position FROM projection_positions WHERE name = %s),"  # noqa: S608 - a constant
        f" (SELECT min(created_at) FROM {CONTRACTS} c)",
        [_MARK],
    ).fetchone()
    assert row is not None
    if row[0] is not None:
        return int(row[0]) + 1
    return _NEVER if row[1] is None else int(row[1]) // SECONDS_PER_DAY


def _lookback_days(connection: Connection) -> int:
    """How many days back a tick accepted on a day can lie."""
    return -(-read_policy(connection).late_usage_seconds // SECONDS_PER_DAY) + 1


# --- lines ---------------------------------------------------------------------------------------

_SUMS = ", ".join(
    f"sum(h.{meter}_quantity), sum(h.{meter}_charge), sum(h.{meter}_fee)" for meter in METERS
)
_USED = f"""
SELECT h.account_id, h.instance_id, h.terms_no, h.hour / {_HOURS_PER_DAY} AS day,
       s.since, s.kind, s.gpu_rate, s.storage_rate, s.up_rate, s.down_rate,
       min(h.first_second), max(h.until), {_SUMS}
FROM {CONTRACTS} i
JOIN usage_hours h ON h.instance_id = i.instance_id AND h.hour >= %(first)s AND h.hour < %(end)s
JOIN rate_segments s ON s.instance_id = h.instance_id AND s.terms_no = h.terms_no
WHERE i.created_at < %(created)s AND (i.destroyed_at IS NULL OR i.destroyed_at > %(destroyed)s)
  AND (%(accounts)s::int8[] IS NULL OR i.account_id = ANY(%(accounts)s::int8[]))
  AND NOT EXISTS (SELECT 1 FROM statements t
                  WHERE t.account_id = h.account_id AND t.day = %(day)s)
GROUP BY 1, 2, 3, 4, 5, 6, 7, 8, 9, 10
ORDER BY h.account_id, day, h.instance_id, h.terms_no
"""  # noqa: S608 - constants
_STATED = """
SELECT charge, used_day, sum(quantity), sum(amount), sum(fee) FROM statement_lines
WHERE instance_id = ANY(%s) AND used_day >= %s AND used_day < %s GROUP BY charge, used_day
"""


class _Owned(NamedTuple):
    account_id: int
    line: StatementLine


def _accounts(connection: Connection, day: int) -> list[int]:
    """Accounts that have lines for the statement of *day* and no such statement."""
    return sorted({one.account_id for one in _lines(connection, day, None)})


def _lines(connection: Connection, day: int, accounts: Sequence[int] | None) -> Iterator[_Owned]:
    """What accounts consumed on *day*, and late what no statement of the days before names yet."""
    first = day - _lookback_days(connection)
    rows = connection.execute(
        _USED,
        {
            "first": first * _HOURS_PER_DAY,
            "end": (day + 1) * _HOURS_PER_DAY,
            "created": (day + 1) * SECONDS_PER_DAY,
            "destroyed": first * SECONDS_PER_DAY,
            "accounts": None if accounts is None else list(accounts),
            "day": day * SECONDS_PER_DAY,
        },
    ).fetchall()
    stated = {
        (charge, used_day): (int(quantity), int(amount), int(fee))
        for charge, used_day, quantity, amount, fee in connection.execute(
            _STATED,
            [
                sorted({row[1] for row in rows}),
                first * SECONDS_PER_DAY,
                (day + 1) * SECONDS_PER_DAY,
            ],
        )
    }
    rates = {"gpu": 6, "storage": 7, "up": 8, "down": 9, "reserved_idle": 6}
    for row in rows:
        account_id, instance_id, terms_no, used, since, kind = row[:6]
        used_day = used * SECONDS_PER_DAY
        for index, meter in enumerate(METERS):
            charge = str(Metered(instance_id, meter, terms_no))
            before = stated.get((charge, used_day), (0, 0, 0))
            total = [int(value) for value in row[12 + 3 * index : 15 + 3 * index]]
            quantity, amount, fee = (a - b for a, b in zip(total, before, strict=True))
            if amount == 0:
                continue
            yield _Owned(
                account_id,
                StatementLine(
                    charge=charge,
                    instance_id=instance_id,
                    meter=meter,
                    kind=kind,
                    segment_from=since,
                    rate=int(row[rates[meter]]),
                    quantity=quantity,
                    amount=amount,
                    fee=fee,
                    late=used < day,
                    used_day=used_day,
                    used_from=row[10],
                    used_until=row[11],
                ),
            )


def line_bytes(line: StatementLine) -> bytes:
    """The bytes of a line that its leaf is made of: its JSON, fields in the order of the struct."""
    return msgspec.json.encode(line)


def _issue(unit: Unit, day: int, accounts: Sequence[int]) -> int:
    found: dict[int, list[StatementLine]] = {}
    for account_id, line in _lines(unit.connection, day, accounts):
        found.setdefault(account_id, []).append(line)
    cause = position_of(unit.connection)
    unit.append_all(
        [
            (
                account_stream(account_id),
                UsageStatementIssued(
                    account_id=account_id,
                    period_from=day * SECONDS_PER_DAY,
                    period_until=(day + 1) * SECONDS_PER_DAY,
                    lines=lines,
                    total=sum(line.amount for line in lines),
                    merkle_root=merkle_root([line_bytes(line) for line in lines]).hex(),
                    cause=cause,
                    policy_version=unit.policy.version,
                    actor=PLATFORM,
                    effective_at=(day + 1) * SECONDS_PER_DAY,
                    issued_at=unit.now,
                ),
            )
            for account_id, lines in sorted(found.items())
        ]
    )
    return len(found)
