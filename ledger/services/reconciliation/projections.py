"""Every read model against a replay of the log from position 0."""

from __future__ import annotations

from ledger.services.ledger import Ledger
from ledger.services.reconciliation.difference import Compared, Difference

_DETAIL_MAX = 300


def compare_projections(ledger: Ledger, start: int, until: int) -> Compared:
    """Tables that a rebuild makes otherwise; the day does not matter.

    Raises:
        ConflictError: `rebuild_running`.
    """
    # The tables' declarations are SQLAlchemy's: what only this comparison, once a night, loads.
    from ledger.projections.rebuild import check  # noqa: PLC0415 - see above

    del start, until
    result = check(ledger.database)
    found = [
        Difference(
            "table", table.name, 0, 1, "rows", f"first: {table.first_difference}"[:_DETAIL_MAX]
        )
        for table in result.tables
        if not table.equal
    ]
    note = f"positions up to {result.facts_position}, usage up to {result.usage_position}"
    return Compared(found, note)
