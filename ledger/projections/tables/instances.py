"""Instances, and who holds which GPU."""

from __future__ import annotations

from sqlalchemy import Boolean, Column, Index, Integer, Numeric, PrimaryKeyConstraint, Text, text
from sqlalchemy.dialects.postgresql import ARRAY, INT8RANGE, ExcludeConstraint

from ledger.projections.groups import FACTS
from ledger.projections.tables.base import big, maybe, money, string, table

instances = table(
    "instances",
    FACTS,
    big("instance_id", primary_key=True, autoincrement=False),
    big("account_id"),
    big("machine_id"),
    big("host_id"),
    big("listing_id"),
    maybe("offer_id"),
    string("kind"),
    Column("gpus", Integer, nullable=False),
    big("disk_bytes"),
    money("gpu_rate"),
    money("storage_rate"),
    money("up_rate"),
    money("down_rate"),
    Column("fee_bp", Integer, nullable=False),
    Column("bid", Numeric(38, 0), nullable=True),
    big("bid_effective_at", server_default=text("0")),
    maybe("terms_due_at"),
    maybe("until"),
    string("label", nullable=True),
    string("launch", nullable=True),
    string("status"),
    string("reason"),
    Column("wants_run", Boolean, nullable=False),
    big("requested_position"),
    Column("assignment_no", Integer, nullable=False),
    maybe("assigned_at"),
    Column("slots", ARRAY(Integer), nullable=False),
    Column("gpu_uuids", ARRAY(Text), nullable=False),
    maybe("gpu_from"),
    maybe("gpu_until"),
    maybe("first_run_at"),
    maybe("disk_lost_at"),
    big("created_at"),
    maybe("stopped_at"),
    maybe("destroyed_at"),
    big("changed_position"),
    Column("reboots", Integer, nullable=False, server_default=text("0")),
    Index("instances_account", "account_id", "instance_id"),
    Index(
        "instances_kept",
        "account_id",
        "instance_id",
        postgresql_where=text("destroyed_at IS NULL"),
    ),
    Index("instances_offer", "offer_id", "account_id"),
    Index("instances_terms_due", "terms_due_at", postgresql_where=text("terms_due_at IS NOT NULL")),
    Index("instances_machine", "machine_id", "instance_id"),
    Index("instances_alive", "machine_id", postgresql_where=text("destroyed_at IS NULL")),
    fillfactor=70,
)

gpu_assignments = table(
    "gpu_assignments",
    FACTS,
    big("instance_id"),
    Column("assignment_no", Integer, nullable=False),
    Column("slot", Integer, nullable=False),
    big("machine_id"),
    Column("gpu", INT8RANGE, nullable=False),
    Column("during", INT8RANGE, nullable=False),
    PrimaryKeyConstraint("instance_id", "assignment_no", "slot"),
    ExcludeConstraint(("gpu", "&&"), ("during", "&&"), name="gpu_held_once", using="gist"),
    Index("gpu_assignments_open", "machine_id", postgresql_where=text("upper_inf(during)")),
)
"""No GPU is held twice in one second, on any machine: the database itself refuses it."""
instance_terms = table(
    "instance_terms",
    FACTS,
    big("instance_id"),
    Column("terms_no", Integer, nullable=False),
    big("since"),
    big("until"),
    string("kind"),
    Column("fee_bp", Integer, nullable=False),
    money("gpu_rate"),
    money("storage_rate"),
    money("up_rate"),
    money("down_rate"),
    PrimaryKeyConstraint("instance_id", "terms_no"),
    fillfactor=70,
)
"""What a second of `[since, until)` costs; later terms may be known before they apply. Terms that
were replaced before they applied have no second."""
gpu_spans = table(
    "gpu_spans",
    FACTS,
    big("instance_id"),
    big("start"),
    big("until"),
    PrimaryKeyConstraint("instance_id", "start"),
    Index("gpu_spans_until", "instance_id", "until"),
    fillfactor=70,
)
"""GPU intervals as soon as they are decided, for credit that does not wait for the meters; an open
one ends in the far future."""
reservations = table(
    "reservations",
    FACTS,
    big("instance_id"),
    Column("reservation_no", Integer, nullable=False),
    big("account_id"),
    Column("terms_no", Integer, nullable=False),
    money("base_rate"),
    money("rate"),
    money("deposit"),
    money("added"),
    big("term_from"),
    big("term_until"),
    maybe("ended_at"),
    string("reason", nullable=True),
    money("kept"),
    maybe("position"),
    PrimaryKeyConstraint("instance_id", "reservation_no"),
    Index("reservations_open", "account_id", postgresql_where=text("ended_at IS NULL")),
    Index("reservations_due", "term_until", postgresql_where=text("ended_at IS NULL")),
)
price_increases = table(
    "price_increases",
    FACTS,
    big("instance_id"),
    Column("proposal_no", Integer, nullable=False),
    big("account_id"),
    money("gpu_rate"),
    money("storage_rate"),
    money("up_rate"),
    money("down_rate"),
    maybe("until"),
    string("status"),
    big("proposed_at"),
    maybe("answered_at"),
    PrimaryKeyConstraint("instance_id", "proposal_no"),
    Index("price_increases_account", "account_id"),
)
