"""Steps about disputes and corrections."""

from __future__ import annotations

import re
from typing import Any, get_args

from adapters.simulation.steps.readers import instant, money, name
from adapters.simulation.steps.registry import Run, Step, Values, step
from ledger.domain.dispute import PLATFORM, Authority
from ledger.domain.events import DisputeOutcome
from ledger.services import credit_notes, disputes, filing
from ledger.store.database import Connection

_NUMBER = re.compile(r"([A-Z]{2,4})-0*([0-9]{1,8})")


def outcome(value: Any) -> str:
    """How a dispute ends."""
    if value not in get_args(DisputeOutcome):
        message = f"{value!r} is none of {', '.join(get_args(DisputeOutcome))}"
        raise ValueError(message)
    return str(value)


def document(value: Any) -> str | int:
    """A document by its number (`USE-1` is `USE-00000001`), or the account's n-th usage invoice."""
    if isinstance(value, int) and not isinstance(value, bool) and value > 0:
        return value
    found = _NUMBER.fullmatch(name(value))
    if found is None:
        message = f"{value!r} is no number of a document, such as USE-00000001"
        raise ValueError(message)
    return f"{found[1]}-{int(found[2]):08d}"


@step(
    "dispute",
    required={"instance": name, "from": instant, "until": instant, "reason": name, "as": name},
)
def dispute(run: Run, step: Step, values: Values) -> None:
    """The renter disputes what was billed for some seconds."""
    del step
    if values["as"] in run.disputes:
        message = f"the dispute `{values['as']}` exists already"
        raise run.fail(message)
    instance = run.instance(values)
    with run.world.ledger.unit() as unit:
        run.disputes[values["as"]] = filing.open_dispute(
            unit,
            instance,
            values["from"],
            values["until"],
            values["reason"],
            actor=_renter(unit.connection, instance),
        )


@step("resolve", required={"dispute": name, "outcome": outcome}, optional={"amount": money})
def resolve(run: Run, step: Step, values: Values) -> None:
    """The platform decides, or the renter withdraws."""
    del step
    if values["dispute"] not in run.disputes:
        message = f"there is no dispute `{values['dispute']}` yet"
        raise run.fail(message)
    dispute_id = run.disputes[values["dispute"]]
    with run.world.ledger.unit() as unit:
        if values["outcome"] == "withdrawn":
            account = disputes.load(unit.connection, dispute_id).account_id
            disputes.withdraw(unit, dispute_id, account)
            return
        disputes.resolve(
            unit, dispute_id, values["outcome"], actor=PLATFORM, amount=values.get("amount")
        )


@step(
    "credit-note",
    required={"account": name, "invoice": document, "amount": money, "reason": name},
)
def credit_note(run: Run, step: Step, values: Values) -> None:
    """The platform gives back part of an invoice, under a document of its own."""
    del step
    account = run.account(values["account"])
    with run.world.ledger.unit() as unit:
        number = values["invoice"]
        if isinstance(number, int):
            number = _nth_invoice(unit.connection, account, number)
        by = Authority(PLATFORM, unit.policy.version)
        credit_notes.credit_note(unit, account, number, values["amount"], values["reason"], by)


def _renter(connection: Connection, instance_id: int) -> int:
    row = connection.execute(
        "SELECT account_id FROM instances WHERE instance_id = %s", [instance_id]
    ).fetchone()
    assert row is not None
    return int(row[0])


def _nth_invoice(connection: Connection, account_id: int, number: int) -> str:
    row = connection.execute(
        "SELECT number FROM invoices WHERE account_id = %s ORDER BY position OFFSET %s LIMIT 1",
        [account_id, number - 1],
    ).fetchone()
    return f"invoice {number}" if row is None else str(row[0])
