"""What one's machines earned after the platform's fee."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from litestar import Response

from adapters.http.vast.call import ANYONE, Caller, endpoint
from adapters.http.vast.wire import Json, answer, money, number, whole
from ledger.services.questions import accounts, balances, daily_charges
from ledger.services.questions.daily_charges import Earned
from ledger.store.database import Connection


@endpoint(
    "GET",
    "/v0/users/me/machine-earnings",
    roles=ANYONE,
    needs=("api.billing.list_charges", "api.user.show_balance"),
)
async def earnings(call: Caller) -> Response[Any]:
    """What one's machines earned after the platform's fee, per machine and per day."""
    first = int(number(call.query("sday") or 0, "sday"))
    last = call.query("eday")
    machine = call.query("machid")

    def find(connection: Connection) -> Json:
        found = daily_charges.earnings(
            connection,
            call.account_id,
            first_day=first,
            last_day=None if last is None else int(number(last, "eday")),
            machine_id=None if machine is None else whole(machine, "machid"),
        )
        account = accounts.account(connection, call.ledger.vault, call.account_id)
        payable = balances.balance(connection, call.account_id, call.now).host_payable
        return _earnings(found, account.name or "", payable)

    return answer(await call.question(find))


def _earnings(found: Sequence[Earned], name: str, payable: int) -> Json:
    return {
        "summary": {
            f"total_{meter}": money(sum(getattr(one, column) for one in found))
            for meter, column in (
                ("gpu", "gpu"),
                ("stor", "storage"),
                ("bwu", "up"),
                ("bwd", "down"),
            )
        },
        "username": name,
        "email": "",
        **dict.fromkeys(("fullname", "address1", "address2", "city", "zip", "country"), ""),
        "taxinfo": "",
        "current": {
            "balance": money(payable),
            "service_fee": money(sum(one.fee for one in found)),
            "total": money(payable),
            "credit": 0,
        },
        "per_machine": _grouped(found, "machine_id", "machine_id"),
        "per_day": _grouped(found, "day", "day"),
    }


def _grouped(found: Sequence[Earned], column: str, name: str) -> list[Json]:
    keys = sorted({getattr(one, column) for one in found})
    return [
        {
            name: key,
            **{
                f"{shown}_earn": money(
                    sum(getattr(one, part) for one in found if getattr(one, column) == key)
                )
                for shown, part in (
                    ("gpu", "gpu"),
                    ("sto", "storage"),
                    ("bwu", "up"),
                    ("bwd", "down"),
                )
            },
        }
        for key in keys
    ]


ENDPOINTS: Sequence[Any] = [earnings]
