"""Commands about payments by card: what there is, and what the processor says again."""

from __future__ import annotations

import sys
from typing import Annotated, Literal

from cyclopts import Parameter

from adapters.cli.options import (
    Account,
    AfterPosition,
    AsJson,
    Home,
    Limit,
    account_id,
    instant,
    opened,
    reading,
)
from ledger.errors import DeclinedError, RejectedError

Status = Literal["ordered", "open", "settled", "failed"]


def listed(
    *,
    account: Account = None,
    status: Annotated[Status | None, Parameter(help="Only those in this state.")] = None,
    home: Home = None,
    after: AfterPosition = 0,
    limit: Limit = 100,
    json: AsJson = False,
) -> None:
    """List payments in the order in which they were ordered, automatic ones too.

    Example: gpuledger payments list --account alice --status settled
    """
    from adapters.cli.output import page, print_rows
    from ledger.services.questions import payments as ask

    with reading(home) as (ledger, connection):
        owner = account_id(ledger, connection, account)
        found = ask.payments(
            connection, account_id=owner, status=status, after=after, limit=limit + 1
        )
    shown = page(found, limit, lambda one: one.position)
    columns = [
        "payment_id", "account_id", "method", "total", "tax", "refunded", "difference", "status",
        "reason", "ordered_at", "closed_at",
    ]  # fmt: skip
    print_rows(shown, columns, as_json=json, title="payments", empty="no payments")


def show(
    payment: Annotated[str, Parameter(help="The payment's id, such as pay-3.")],
    *,
    home: Home = None,
    json: AsJson = False,
) -> None:
    """Show a payment with its refunds and chargebacks.

    Example: gpuledger payments show pay-3
    """
    from adapters.cli.output import print_facts, print_json, print_rows
    from ledger.services.questions import payments as ask

    with reading(home) as (_, connection):
        found = ask.payment(connection, payment)
    if json:
        print_json(found)
        return
    print_facts(found.payment, as_json=False)
    if found.refunds:
        columns = ["refund_id", "origin", "amount", "tax", "status", "reason", "begun_at"]
        print_rows(found.refunds, columns, as_json=False, title="refunds", empty="")
    if found.chargebacks:
        columns = ["chargeback_id", "claimed", "withdrawn", "reason", "status", "opened_at"]
        print_rows(found.chargebacks, columns, as_json=False, title="chargebacks", empty="")


def resync(
    *,
    since: Annotated[
        str, Parameter(help="From when, such as 2026-03-01T10:00:00Z; at most 30 days ago.")
    ],
    home: Home = None,
    json: AsJson = False,
) -> int:
    """Ask the processor what happened since a second, and book it: for messages that were lost.

    It can be repeated at any time, beside a running server: what is booked already stays once.

    Example: gpuledger payments resync --since 2026-03-01T10:00:00Z
    """
    from adapters.cli.output import print_json
    from adapters.main import payment_gateway
    from ledger.services.payments import entries, inbox

    start = instant(since, "--since")
    assert start is not None
    with opened(home) as ledger:
        gateway = payment_gateway(ledger)
        if gateway is None:
            message = "there is no payment processor: set GPULEDGER_STRIPE_API_KEY and its fellows"
            raise DeclinedError("payments_not_configured", message)
        if start > ledger.clock():
            raise RejectedError("invalid_args", f"--since: {since} is still to come")
        heard = inbox.resync(ledger, gateway, start)
        booked = failed = 0
        while (worked := inbox.work_off(ledger, gateway)) != (0, 0):
            booked, failed = booked + worked.booked, failed + worked.failed
        lines = entries.book_new(ledger, gateway, start)
    if json:
        print_json({"messages": heard, "objects": booked, "failed": failed, "entries": lines})
    else:
        sys.stdout.write(
            f"{heard} messages, {booked} objects looked at, {failed} failed,"
            f" {lines} new entries booked\n"
        )
    return 1 if failed else 0
