"""Statements, disputes, corrections, credit notes, and what witnesses said."""

from __future__ import annotations

from sqlalchemy import ARRAY, Boolean, Column, Index, Integer, PrimaryKeyConstraint, Text, text

from ledger.projections.groups import FACTS
from ledger.projections.tables.base import big, maybe, money, string, table

statements = table(
    "statements",
    FACTS,
    big("account_id"),
    big("day"),
    Column("lines", Integer, nullable=False),
    money("total"),
    string("merkle_root"),
    big("cause"),
    Column("policy_version", Integer, nullable=False),
    big("issued_at"),
    big("position"),
    PrimaryKeyConstraint("account_id", "day"),
    Index("statements_position", "position"),
)
"""One per account and UTC day with usage; `day` is its first second."""

statement_lines = table(
    "statement_lines",
    FACTS,
    big("account_id"),
    big("day"),
    Column("line", Integer, nullable=False),
    string("charge"),
    big("instance_id"),
    string("meter"),
    string("kind"),
    big("segment_from"),
    money("rate"),
    money("quantity"),
    money("amount"),
    money("fee"),
    Column("late", Boolean, nullable=False),
    big("used_day"),
    big("used_from"),
    big("used_until"),
    big("issued_at"),
    PrimaryKeyConstraint("account_id", "day", "line"),
    Index("statement_lines_used", "instance_id", "used_day"),
)

disputes = table(
    "disputes",
    FACTS,
    big("dispute_id", primary_key=True, autoincrement=False),
    big("account_id"),
    big("host_id"),
    big("instance_id"),
    big("machine_id"),
    string("filed_by"),
    string("reason"),
    string("status"),
    money("claimed"),
    big("seconds_from"),
    big("seconds_until"),
    Column("evidence", ARRAY(Text), nullable=False),
    string("statement", nullable=True),
    big("as_of"),
    maybe("host_due_at"),
    maybe("question_due_at"),
    money("held_payable"),
    money("held_receivable"),
    money("amount"),
    string("rule_id", nullable=True),
    string("decided_by", nullable=True),
    string("actor"),
    Column("policy_version", Integer, nullable=False),
    big("opened_at"),
    maybe("answered_at"),
    maybe("resolved_at"),
    big("position"),
    Index("disputes_account", "account_id", "dispute_id"),
    Index("disputes_host", "host_id", "dispute_id"),
    Index("disputes_instance", "instance_id"),
    Index("disputes_host_due", "host_due_at", postgresql_where=text("host_due_at IS NOT NULL")),
    Index(
        "disputes_question_due",
        "question_due_at",
        postgresql_where=text("question_due_at IS NOT NULL"),
    ),
    fillfactor=70,
)
"""`status`: open, answered, questioned, or the outcome. `…_due_at`: when whose silence decides."""

dispute_seconds = table(
    "dispute_seconds",
    FACTS,
    big("dispute_id"),
    string("charge"),
    big("start"),
    big("until"),
    PrimaryKeyConstraint("dispute_id", "charge", "start"),
)
"""The seconds of each claim: what one dispute is about, another cannot claim."""

dispute_claims = table(
    "dispute_claims",
    FACTS,
    big("dispute_id"),
    string("charge"),
    string("meter"),
    money("quantity"),
    money("amount"),
    money("fee"),
    money("charged"),
    money("charged_fee"),
    PrimaryKeyConstraint("dispute_id", "charge"),
    Index("dispute_claims_charge", "charge"),
)

corrections = table(
    "corrections",
    FACTS,
    big("correction_id", primary_key=True, autoincrement=False),
    string("kind"),
    string("charge"),
    big("account_id"),
    big("host_id"),
    big("instance_id"),
    string("meter"),
    money("quantity"),
    money("amount"),
    money("fee"),
    Column("depth", Integer, nullable=False),
    maybe("dispute_id"),
    string("reason"),
    big("period_from"),
    string("actor"),
    string("approved_by", nullable=True),
    maybe("cause"),
    Column("policy_version", Integer, nullable=False),
    big("effective_at"),
    big("corrected_at"),
    big("position"),
    Index("corrections_charge", "charge"),
    Index("corrections_account", "account_id", "correction_id"),
    Index("corrections_instance", "instance_id", "effective_at"),
)
"""`kind` reversal: of `charge`; `kind` charge: a replacement that corrects `charge`."""

host_receivables = table(
    "host_receivables",
    FACTS,
    big("host_id", primary_key=True, autoincrement=False),
    money("amount"),
    fillfactor=70,
)
"""What hosts owe: shares taken back after they were paid out."""

credit_notes = table(
    "credit_notes",
    FACTS,
    Column("number", Text, primary_key=True),
    big("account_id"),
    string("document"),
    money("total"),
    string("reason"),
    Column("voids", Boolean, nullable=False),
    string("actor"),
    string("approved_by", nullable=True),
    maybe("cause"),
    Column("policy_version", Integer, nullable=False),
    big("effective_at"),
    big("issued_at"),
    big("position"),
    Index("credit_notes_account", "account_id", "position"),
    Index("credit_notes_document", "document"),
)

credit_note_lines = table(
    "credit_note_lines",
    FACTS,
    string("number"),
    Column("line", Integer, nullable=False),
    string("document"),
    Column("document_line", Integer, nullable=False),
    big("correction_id"),
    money("amount"),
    PrimaryKeyConstraint("number", "line"),
    Index("credit_note_lines_document", "document", "document_line"),
)

witnesses = table(
    "witnesses",
    FACTS,
    big("instance_id"),
    big("start"),
    big("until"),
    big("machine_id"),
    big("account_id"),
    string("renter"),
    string("probe"),
    Column("probes_up", Integer, nullable=False),
    Column("probes_down", Integer, nullable=False),
    string("verdict"),
    maybe("dispute_id"),
    big("recorded_at"),
    big("position"),
    PrimaryKeyConstraint("instance_id", "start"),
    Index(
        "witnesses_to_hold",
        "until",
        postgresql_where=text("verdict = 'hold' AND dispute_id IS NULL"),
    ),
    fillfactor=70,
)
"""Minutes in which the witnesses of an instance contradict each other."""

approvals = table(
    "approvals",
    FACTS,
    string("subject"),
    string("actor"),
    big("given_at"),
    big("position"),
    PrimaryKeyConstraint("position"),
    Index("approvals_subject", "subject"),
)
"""Who agreed to what; a command on the same subject asks for somebody else's, from then on."""

filing_restrictions = table(
    "filing_restrictions",
    FACTS,
    big("account_id"),
    Column("rejected", Integer, nullable=False),
    big("restricted_at"),
    big("position"),
    PrimaryKeyConstraint("account_id", "position"),
)
