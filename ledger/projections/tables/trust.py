"""Trust in machines: checks, the rating that follows from them, papers, verification."""

from __future__ import annotations

from sqlalchemy import (
    Boolean,
    Column,
    Double,
    Index,
    Integer,
    PrimaryKeyConstraint,
    SmallInteger,
    Text,
    text,
)

from ledger.projections.groups import FACTS
from ledger.projections.tables.base import big, maybe, string, table

checks = table(
    "checks",
    FACTS,
    big("machine_id"),
    big("slot"),
    big("position"),
    string("kind"),
    big("at"),
    string("nonce", nullable=True),
    maybe("deadline"),
    maybe("judged_at"),
    string("result", nullable=True),
    Column("severity", SmallInteger, nullable=False, server_default=text("1")),
    string("reason", nullable=True),
    Column("excluded", Boolean, nullable=False, server_default=text("false")),
    maybe("instance_id"),
    string("judged_as", nullable=True),
    maybe("reclassified_at"),
    PrimaryKeyConstraint("machine_id", "slot", "position"),
    Index("checks_open", "machine_id", "slot", postgresql_where=text("judged_at IS NULL")),
    Index("checks_due", "deadline", postgresql_where=text("judged_at IS NULL")),
    fillfactor=80,
)
"""Every check that was issued, every start and incident. `position`: of the fact that made it.
`judged_as`: the first result of one that was reclassified."""

rated_slots = table(
    "rated_slots",
    FACTS,
    big("machine_id"),
    big("slot"),
    big("at"),
    Column("passed", Boolean, nullable=False),
    Column("severity", SmallInteger, nullable=False),
    big("n"),
    big("passes"),
    Column("pass_weight", Double, nullable=False),
    Column("severity_weight", Double, nullable=False),
    PrimaryKeyConstraint("machine_id", "slot"),
    Index(
        "rated_slots_failed", "machine_id", "slot", unique=True, postgresql_where=text("NOT passed")
    ),
    fillfactor=90,
)
"""The one result that counts per slot, the worst, with running totals over the machine's slots up
to this one: so any window is two index lookups. `n` and `passes` are counts, the weights are the
decayed sums of `ledger.domain.reliability.Decayed` as they weigh at this row's `at`, never cut."""

machine_trust = table(
    "machine_trust",
    FACTS,
    big("machine_id", primary_key=True, autoincrement=False),
    string("inventory", nullable=True),
    string("inventory_evidence", nullable=True),
    maybe("inventory_at"),
    maybe("up_mbps"),
    maybe("down_mbps"),
    maybe("open_ports"),
    string("country", nullable=True),
    Column("under_load", Boolean, nullable=False, server_default=text("false")),
    maybe("probed_at"),
    string("differences", nullable=True),
    string("missed_to_list", nullable=True),
    string("missed_to_verify", nullable=True),
    maybe("compared_at"),
    maybe("fault_since"),
    maybe("fault_until"),
    string("judged_by"),
    Column("vouched", Boolean, nullable=False, server_default=text("false")),
    Index(
        "machine_trust_at_fault",
        "fault_since",
        postgresql_where=text("fault_since IS NOT NULL AND NOT vouched"),
    ),
    fillfactor=70,
)
"""What is known of a machine and what follows: JSON texts as in the facts. At fault: it differs or
misses a bar to verify, since `fault_since`, or last until `fault_until`. `vouched`: an admin
verified it by hand. `judged_by`: who moved its verification last."""

verification_history = table(
    "verification_history",
    FACTS,
    big("machine_id"),
    big("position"),
    string("verification"),
    string("judged_by"),
    string("reason"),
    big("changed_at"),
    PrimaryKeyConstraint("machine_id", "position"),
)

benchmark_runs = table(
    "benchmark_runs",
    FACTS,
    big("machine_id"),
    big("position"),
    big("slot"),
    string("suite"),
    string("measures"),
    Column("scaling_ppm", Integer, nullable=False),
    Column("score", Double, nullable=False),
    string("evidence"),
    big("recorded_at"),
    PrimaryKeyConstraint("machine_id", "position"),
    Index("benchmark_runs_suite", "machine_id", "suite", "position"),
)
"""Runs that the platform issued; `score` is that of one GPU."""

certifications = table(
    "certifications",
    FACTS,
    big("host_id"),
    Column("certification_no", Integer, nullable=False),
    string("kind"),
    string("number"),
    string("issuer"),
    big("valid_from"),
    maybe("valid_to"),
    Column("evidence_hash", Text, nullable=False),
    big("recorded_at"),
    maybe("withdrawn_at"),
    PrimaryKeyConstraint("host_id", "certification_no"),
)

gpu_suspects = table(
    "gpu_suspects",
    FACTS,
    Column("gpu_uuid", Text, primary_key=True),
    big("machine_id"),
    string("reason"),
    big("since"),
    Index("gpu_suspects_machine", "machine_id"),
)
"""GPUs that nobody may rent anew before a challenge passes; who holds one keeps it."""
