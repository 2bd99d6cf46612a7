"""Usage statements as they were issued, and the proof that a line is in one of them."""

from __future__ import annotations

import msgspec

from ledger.domain.events import StatementLine, UsageStatementIssued
from ledger.domain.merkle import inclusion_proof
from ledger.errors import NotFoundError
from ledger.services.statements import line_bytes
from ledger.store.codec import decode_fact
from ledger.store.database import Connection


class StatementView(msgspec.Struct, frozen=True, kw_only=True):
    """A statement without its lines; `day` is the first second of the UTC day."""

    account_id: int
    day: int
    lines: int
    total: int
    merkle_root: str
    issued_at: int
    position: int


class LineProof(msgspec.Struct, frozen=True, kw_only=True):
    """All that is needed to prove one line: `bytes` is what its leaf hashes, `path` leads up."""

    account_id: int
    day: int
    line: int
    lines: int
    bytes: str
    path: list[str]
    merkle_root: str


_COLUMNS = "account_id, day, lines, total, merkle_root, issued_at, position"


def statements(
    connection: Connection, *, account_id: int | None = None, after: int = 0, limit: int = 100
) -> list[StatementView]:
    """Statements in the order of issue; *after* is a position."""
    rows = connection.execute(
        f"SELECT {_COLUMNS} FROM statements WHERE position > %s"  # noqa: S608 - a constant
        " AND (%s::bigint IS NULL OR account_id = %s) ORDER BY position LIMIT %s",
        [after, account_id, account_id, limit],
    )
    return [_view(row) for row in rows]


def statement(
    connection: Connection, account_id: int, day: int
) -> tuple[StatementView, list[StatementLine]]:
    """The statement of an account for a day (its first second), with its lines from the log.

    Raises:
        NotFoundError: `no_such_statement`.
    """
    row = connection.execute(
        f"SELECT {_COLUMNS} FROM statements WHERE account_id = %s AND day = %s",  # noqa: S608 - same
        [account_id, day],
    ).fetchone()
    if row is None:
        raise NotFoundError("no_such_statement", "there is no statement of this day")
    head = _view(row)
    stored = connection.execute(
        "SELECT topic, state FROM events WHERE position = %s", [head.position]
    ).fetchone()
    assert stored is not None
    fact = decode_fact(stored[0], stored[1])
    assert isinstance(fact, UsageStatementIssued)
    return head, fact.lines


def proof(connection: Connection, account_id: int, day: int, line: int) -> LineProof:
    """The proof of line number *line* (from 0) of a statement.

    Raises:
        NotFoundError: `no_such_statement`, `no_such_line`.
    """
    head, lines = statement(connection, account_id, day)
    if not 0 <= line < len(lines):
        message = f"the statement has {len(lines)} lines, numbered from 0"
        raise NotFoundError("no_such_line", message)
    leaves = [line_bytes(one) for one in lines]
    return LineProof(
        account_id=account_id,
        day=day,
        line=line,
        lines=len(lines),
        bytes=leaves[line].decode(),
        path=[one.hex() for one in inclusion_proof(leaves, line)],
        merkle_root=head.merkle_root,
    )


def _view(row: tuple[object, ...]) -> StatementView:
    account_id, day, lines, total, root, issued_at, position = row
    return StatementView(
        account_id=int(str(account_id)),
        day=int(str(day)),
        lines=int(str(lines)),
        total=int(str(total)),
        merkle_root=str(root),
        issued_at=int(str(issued_at)),
        position=int(str(position)),
    )
