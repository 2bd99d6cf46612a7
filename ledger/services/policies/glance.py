"""One glance for many policies: which of them may have something to do in this second.

Most seconds bring nothing, and to ask some thirty policies about that, one after the other, costs
more than all that ever falls due. So each of them names a question, a query that finds a row
whenever the policy may have something to do, and all questions are one statement. A glance decides
nothing: who is called looks for himself, and judges again under the log's lock. A question may find
a row too often, and never too seldom.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from ledger.domain.ids import month_start
from ledger.domain.payment import friday_of
from ledger.projections.runner import position_of
from ledger.services.ledger import Ledger, read_policy
from ledger.store.database import Connection

ISSUE_AFTER_SECONDS: Final = 3_600
"""How long after its end a period is closed."""


class Turn(NamedTuple):
    """A policy, and the question whether it may have something to do.

    The question may name what `second` gives.
    """

    act: Callable[[Ledger], None]
    question: str


class Round:
    """Policies that act one after the other, each on what those before it have left."""

    def __init__(self, *turns: Turn) -> None:
        """In this order."""
        self.turns: Final = turns
        self._questions = "SELECT " + ", ".join(f"EXISTS ({one.question})" for one in turns)

    def take(self, ledger: Ledger) -> None:
        """Call every policy that may have something to do, and ask again where one did it."""
        with ledger.looking() as looking:
            due, seen = self.glance(ledger), looking.changes
            for number, turn in enumerate(self.turns):
                if looking.changes != seen:
                    due, seen = self.glance(ledger), looking.changes
                if due[number]:
                    turn.act(ledger)

    def glance(self, ledger: Ledger) -> tuple[bool, ...]:
        """For each policy, whether it may have something to do at the present second."""
        with ledger.reading() as connection:
            values = second(connection, ledger.clock())
            found = connection.execute(self._questions, values).fetchone()
        assert found is not None
        return found


def second(connection: Connection, now: int) -> dict[str, Any]:
    """What questions may name: second `now`, what the rules and the calendar make of it.

    `silence` and `late` are seconds of the rules in force; `folded` is the usage group's position;
    `passed` is the second at or before which periods have to have ended to be closed, `month` its
    month; `billable` is the month before whose beginning nothing can be late any more; `friday` the
    last one.
    """
    policy = read_policy(connection)
    passed = now - ISSUE_AFTER_SECONDS
    return {
        "now": now,
        "silence": policy.offline_after_seconds,
        "late": policy.late_usage_seconds,
        "iso": policy.secure_requires_iso,
        "folded": position_of(connection),
        "passed": passed,
        "month": month_start(passed),
        "billable": month_start(passed - policy.late_usage_seconds),
        "friday": friday_of(now),
    }


def marked(name: str) -> str:
    """The place up to which a job was done, as part of a question; 0 before the first time."""
    return (
        "coalesce((SELECT position FROM projection_positions"  # noqa: S608 - a name of our own
        f" WHERE name = '{name}'), 0)"
    )


def any_of(*questions: str) -> str:
    """One question that finds a row where one of these does."""
    return "SELECT 1 WHERE " + " OR ".join(f"EXISTS ({one})" for one in questions)
