"""What a judged check does to its slot, to the running totals, and to the machine's rating.

One statement a check, whatever the number of checks behind it. The worst conclusive result of the
slot counts (`ledger.domain.reliability.worst`); it is put in the place of the one that counted, and
the totals of later slots, of which there are few, move by the difference. The rating in
`machine_standing` is the one of the second after the last judgement: two index lookups, made once
for all checks of a command (`rerate`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final

from ledger.domain import events as e
from ledger.domain.reliability import HALF_LIFE, MIN_CHECKS, SLOT_SECONDS, WINDOW_SECONDS
from ledger.projections.facts.change import Change

if TYPE_CHECKING:
    from ledger.store.database import Connection

RERATE: Final = "-- the rating of a machine"


def judged(fact: e.CheckJudged, position: int) -> Iterator[Change]:
    """A result of a check that was issued, or of something that was nobody's question."""
    counts = fact.result != "inconclusive" and not fact.excluded
    failed_severity = fact.severity if fact.result == "failed" else 1
    new = (
        fact.machine_id,
        fact.slot,
        fact.kind,
        fact.at,
        fact.result,
        failed_severity,
        fact.reason,
        fact.excluded,
        fact.instance_id,
        fact.judged_at,
        position,
        counts,
    )
    yield Change(_INSERTED if fact.kind in {"start", "incident"} else _ANSWERED, new)
    yield Change(RERATE, (fact.machine_id, fact.judged_at + 1))


def reclassified(fact: e.CheckReclassified) -> Iterator[Change]:
    """Every judged check of a slot has another result: the slot is counted again."""
    severity = fact.severity if fact.result == "failed" else 1
    yield Change(
        "UPDATE checks SET judged_as = coalesce(judged_as, result), result = %s, severity = %s,"
        " reason = %s, reclassified_at = %s"
        " WHERE machine_id = %s AND slot = %s AND judged_at IS NOT NULL",
        (
            fact.result,
            severity,
            fact.reason,
            fact.reclassified_at,
            fact.machine_id,
            fact.slot,
        ),
    )
    yield Change(_RECOUNTED, (fact.machine_id, fact.slot))
    yield Change(RERATE, (fact.machine_id, fact.reclassified_at + 1))


def rerate(connection: Connection, seconds: Mapping[int, int]) -> None:
    """Show of each machine how it is rated at its second."""
    connection.execute(_RERATE, [list(seconds), list(seconds.values())])


# --- the statement --------------------------------------------------------------------------------

_NEW: Final = """
WITH new AS (
    SELECT %s::bigint AS machine_id, %s::bigint AS slot, %s::text AS kind, %s::bigint AS at,
           %s::text AS result, %s::smallint AS severity, %s::text AS reason, %s::bool AS excluded,
           %s::bigint AS instance_id, %s::bigint AS judged_at, %s::bigint AS position,
           %s::bool AS counts
), """
_ANSWER: Final = """written AS (
    UPDATE checks c SET judged_at = new.judged_at, result = new.result, severity = new.severity,
        reason = new.reason, excluded = new.excluded
    FROM new WHERE c.machine_id = new.machine_id AND c.slot = new.slot AND c.kind = new.kind
        AND c.judged_at IS NULL
), """
_INSERT: Final = """written AS (
    INSERT INTO checks (machine_id, slot, position, kind, at, judged_at, result, severity, reason,
                        excluded, instance_id)
    SELECT machine_id, slot, position, kind, at, judged_at, result, severity, reason, excluded,
           instance_id
    FROM new
), """
_SLOT_OF_NEW: Final = "place AS (SELECT machine_id, slot FROM new), "
_SLOT_GIVEN: Final = "WITH place AS (SELECT %s::bigint AS machine_id, %s::bigint AS slot), "

# What this statement writes to `checks` it does not read: the new result joins the others here.
_AND_NEW: Final = "UNION ALL SELECT at, result, severity FROM new WHERE counts"


def _decayed(what: str, seconds: str) -> str:
    return f"{what} * power(2::float8, -({seconds})::float8 / {HALF_LIFE}::float8)"


def _recount(and_new: str) -> str:
    return f"""
results AS (
    SELECT c.at, c.result, c.severity FROM checks c, place
    WHERE c.machine_id = place.machine_id AND c.slot = place.slot AND NOT c.excluded
        AND c.result IN ('passed', 'failed')
    {and_new}
), worst AS (
    SELECT at, result = 'passed' AS passed, severity FROM results
    ORDER BY result, severity DESC, at LIMIT 1
), old AS (
    SELECT r.at, r.passed, r.severity FROM rated_slots r, place
    WHERE r.machine_id = place.machine_id AND r.slot = place.slot
), before AS (
    SELECT r.at, r.n, r.passes, r.pass_weight, r.severity_weight
    FROM place, LATERAL (SELECT * FROM rated_slots r WHERE r.machine_id = place.machine_id
        AND r.slot < place.slot ORDER BY r.slot DESC LIMIT 1) r
), change AS (
    SELECT place.machine_id, place.slot, worst.at, worst.passed, worst.severity,
           old.at AS old_at, old.passed AS old_passed, old.severity AS old_severity,
           (worst.at IS NOT NULL)::int - (old.at IS NOT NULL)::int AS n,
           coalesce(worst.passed, false)::int - coalesce(old.passed, false)::int AS passes
    FROM place LEFT JOIN worst ON true LEFT JOIN old ON true
), removed AS (
    DELETE FROM rated_slots r USING change
    WHERE change.at IS NULL AND r.machine_id = change.machine_id AND r.slot = change.slot
), put AS (
    INSERT INTO rated_slots
    SELECT change.machine_id, change.slot, change.at, change.passed, change.severity,
           coalesce(before.n, 0) + 1, coalesce(before.passes, 0) + change.passed::int,
           coalesce({_decayed("before.pass_weight", "change.at - before.at")}, 0)
               + change.passed::int,
           coalesce({_decayed("before.severity_weight", "change.at - before.at")}, 0)
               + change.severity
    FROM change LEFT JOIN before ON true WHERE change.at IS NOT NULL
    ON CONFLICT (machine_id, slot) DO UPDATE SET at = EXCLUDED.at, passed = EXCLUDED.passed,
        severity = EXCLUDED.severity, n = EXCLUDED.n, passes = EXCLUDED.passes,
        pass_weight = EXCLUDED.pass_weight, severity_weight = EXCLUDED.severity_weight
)
UPDATE rated_slots r SET n = r.n + change.n, passes = r.passes + change.passes,
    pass_weight = r.pass_weight
        + coalesce({_decayed("change.passed::int", "r.at - change.at")}, 0)
        - coalesce({_decayed("change.old_passed::int", "r.at - change.old_at")}, 0),
    severity_weight = r.severity_weight
        + coalesce({_decayed("change.severity", "r.at - change.at")}, 0)
        - coalesce({_decayed("change.old_severity", "r.at - change.old_at")}, 0)
FROM change WHERE r.machine_id = change.machine_id AND r.slot > change.slot
"""  # noqa: S608 - constants of this module


_ANSWERED: Final = _NEW + _ANSWER + _SLOT_OF_NEW + _recount(_AND_NEW)
_INSERTED: Final = _NEW + _INSERT + _SLOT_OF_NEW + _recount(_AND_NEW)
_RECOUNTED: Final = _SLOT_GIVEN + _recount("")

# --- the rating -----------------------------------------------------------------------------------

_Z: Final = 1.96
_Z2: Final = f"{_Z * _Z!r}::float8"
_N: Final = "shown.n::float8"
_P: Final = f"(shown.passes::float8 / {_N})"
_WILSON: Final = (
    "CASE WHEN shown.passes = 0 THEN 0 ELSE greatest(0,"
    f" ({_P} + {_Z2} / (2 * {_N}) - {_Z!r}::float8"
    f" * sqrt({_P} * (1 - {_P}) / {_N} + {_Z2} / (4 * {_N} * {_N}))) / (1 + {_Z2} / {_N})) END"
)
"""`ledger.domain.reliability.lower_bound`, term by term."""
_RERATE: Final = f"""
UPDATE machine_standing s SET checks = shown.n,
    reliability = CASE WHEN shown.n >= {MIN_CHECKS} THEN shown.passes::float8 / shown.n END,
    lower_bound = {_WILSON}
FROM (
    SELECT asked.machine_id, coalesce(last.n, 0) - coalesce(first.n, 0) AS n,
           coalesce(last.passes, 0) - coalesce(first.passes, 0) AS passes
    FROM (SELECT machine_id, second - {WINDOW_SECONDS} AS since
          FROM unnest(%s::bigint[], %s::bigint[]) AS asked (machine_id, second)) asked
    LEFT JOIN LATERAL (SELECT n, passes FROM rated_slots r WHERE r.machine_id = asked.machine_id
        ORDER BY r.slot DESC LIMIT 1) last ON true
    LEFT JOIN LATERAL (SELECT n, passes FROM rated_slots r WHERE r.machine_id = asked.machine_id
        AND r.slot <= asked.since / {SLOT_SECONDS} AND r.at < asked.since
        ORDER BY r.slot DESC LIMIT 1) first ON true
) shown
WHERE s.machine_id = shown.machine_id
"""  # noqa: S608 - constants of this module
