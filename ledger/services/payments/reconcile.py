"""The payment processor against the ledger: every line matched, every difference listed.

Nothing is changed and nothing stops at the first finding. Where both sides agree there is none, the
clearing accounts are empty, and `processor_balance` is what the processor says it holds.
"""

from __future__ import annotations

from typing import Final, Literal, NamedTuple

from ledger.domain.money import NANOS_PER_CENT
from ledger.services.ledger import Ledger
from ledger.services.payments.entries import book_new
from ledger.services.payments.gateway import Entry, PaymentGateway
from ledger.services.questions.balances import trial_balance
from ledger.services.reconciliation import Comparison, ProcessorComparison
from ledger.store.database import Connection

FindingKind = Literal[
    "entry_missing", "entry_differs", "entry_unknown", "orphan", "unsettled", "excess",
    "clearing_not_zero", "balance_differs",
]  # fmt: skip
CLEARING: Final = ("payment_clearing", "payout_clearing", "processor_suspense")


class Finding(NamedTuple):
    """One thing on which the two sides do not agree; amounts are nanos.

    `entry_missing`: the processor has a line that is not booked. `entry_differs`: it is booked with
    another amount. `entry_unknown`: a line is booked that the processor does not have. `orphan`: a
    line belongs to nothing of ours. `unsettled`: a payment, refund, chargeback or payout moved less
    or more at the processor than here. `excess`: a payer's bank took more than its payment, for a
    person to look at. `clearing_not_zero` and `balance_differs`: the sums.
    """

    kind: FindingKind
    about: str
    ledger: int
    processor: int


class Reconciliation(NamedTuple):
    """The two sides, as of one moment."""

    entries: int
    """Lines that were compared."""
    findings: list[Finding]
    clearing: dict[str, int]
    """Debits minus credits of each account that should be empty."""
    ledger_balance: int
    processor_balance: int

    @property
    def is_clean(self) -> bool:
        """True when both sides agree to the cent and nothing waits for a person."""
        return not self.findings


def comparison_with(gateway: PaymentGateway) -> ProcessorComparison:
    """The processor's side of the reconciliation job: its new lines are booked first."""

    def compare(ledger: Ledger, since: int) -> list[Comparison]:
        with ledger.reading() as connection:
            since = min(since, _oldest_found(connection, since))
        book_new(ledger, gateway, since)
        found = reconcile(ledger, gateway, since).findings
        return [Comparison(one.kind, one.about, one.ledger, one.processor) for one in found]

    return compare


def _oldest_found(connection: Connection, since: int) -> int:
    """When the oldest line came that a finding is about: it is looked at until it is right."""
    row = connection.execute(
        "SELECT min(e.created_at) FROM findings f JOIN processor_entries e ON e.entry = f.about"
        " WHERE f.job = 'processor' AND f.state <> 'corrected'"
    ).fetchone()
    return since if row is None or row[0] is None else int(row[0])


def reconcile(ledger: Ledger, gateway: PaymentGateway, since: int = 0) -> Reconciliation:
    """Compare every line of the processor from second *since* on with what is booked.

    Book its new lines first (`entries.book_new`): what came in since shows as missing otherwise.

    Raises:
        UnavailableError: The processor does not answer.
    """
    theirs = {one.entry: one for one in gateway.entries(since)}
    held = gateway.balance() * NANOS_PER_CENT
    with ledger.reading() as connection:
        findings = [*_lines(connection, theirs, since), *_objects(connection)]
        findings += _excess(connection)
        books = {row.ledger_account: row.debit - row.credit for row in trial_balance(connection)}
    clearing = {name: books.get(name, 0) for name in CLEARING}
    findings += [
        Finding("clearing_not_zero", name, amount, 0) for name, amount in clearing.items() if amount
    ]
    balance = books.get("processor_balance", 0)
    if balance != held:
        findings.append(Finding("balance_differs", "processor_balance", balance, held))
    return Reconciliation(len(theirs), findings, clearing, balance, held)


def _lines(connection: Connection, theirs: dict[str, Entry], since: int) -> list[Finding]:
    findings = []
    ours = {
        row[0]: (int(row[1]), int(row[2]), row[3])
        for row in connection.execute(
            "SELECT entry, amount, fee, clearing FROM processor_entries WHERE created_at >= %s"
            " OR entry = ANY(%s) ORDER BY created_at, entry",
            [since, list(theirs)],
        )
    }
    for name, entry in theirs.items():
        amount, fee = entry.cents * NANOS_PER_CENT, entry.fee_cents * NANOS_PER_CENT
        if name not in ours:
            findings.append(Finding("entry_missing", name, 0, amount - fee))
        elif ours[name][:2] != (amount, fee):
            booked = ours[name][0] - ours[name][1]
            findings.append(Finding("entry_differs", name, booked, amount - fee))
    for name, (amount, fee, clearing) in ours.items():
        if name not in theirs:
            findings.append(Finding("entry_unknown", name, amount - fee, 0))
        elif clearing == "processor_suspense":
            findings.append(Finding("orphan", name, 0, amount))
    return findings


# What each object moved in the books, beside what the processor's lines say that it moved.
_OBJECTS: Final = """
WITH moved AS (
    SELECT payment_id AS about, credit + tax AS amount FROM payments WHERE status = 'settled'
    UNION ALL
    SELECT refund_id, CASE WHEN status = 'failed' THEN 0 ELSE -(credit + tax + difference) END
    FROM refunds
    UNION ALL
    SELECT chargeback_id, -(credit + tax + difference) FROM chargebacks
    UNION ALL
    SELECT 'payout-' || payout_id, CASE WHEN status = 'failed' THEN 0 ELSE -amount END
    FROM payouts WHERE begun_at IS NOT NULL
), booked AS (
    SELECT reference AS about, sum(amount) AS amount FROM processor_entries
    WHERE reference IS NOT NULL GROUP BY reference
)
SELECT about, coalesce(moved.amount, 0), coalesce(booked.amount, 0)
FROM moved FULL JOIN booked USING (about)
WHERE coalesce(moved.amount, 0) <> coalesce(booked.amount, 0) ORDER BY about
"""


def _objects(connection: Connection) -> list[Finding]:
    return [
        Finding("unsettled", row[0], int(row[1]), int(row[2]))
        for row in connection.execute(_OBJECTS)
    ]


def _excess(connection: Connection) -> list[Finding]:
    rows = connection.execute(
        "SELECT payment_id, difference FROM payments WHERE difference <> 0 ORDER BY position"
    )
    return [Finding("excess", row[0], int(row[1]), 0) for row in rows]
