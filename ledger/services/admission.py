"""What must hold before something of an account may run (`marketplace.md` §13.1)."""

from __future__ import annotations

from ledger.domain.events import Terms
from ledger.domain.instance import Instance
from ledger.domain.money import format_dollars
from ledger.errors import DeclinedError, NotFoundError
from ledger.services.credit import admission_cost, lock_credit
from ledger.services.ledger import Unit


def admit(unit: Unit, account_id: int, terms: Terms, disk_bytes: int) -> None:
    """Let an account start something at these terms, or say why not.

    Credit must cover an hour of GPUs (unless they are prepaid) and a day of storage. The account's
    row stays locked until the transaction ends, so starts are judged one after the other.

    Raises:
        NotFoundError: `no_such_account`.
        DeclinedError: `insufficient_credit`.
    """
    credit = lock_credit(unit.connection, [account_id]).get(account_id)
    if credit is None:
        raise NotFoundError("no_such_account", f"there is no account {account_id}")
    available = credit.available(unit.now, unit.policy)
    needed = 1
    if unit.policy.admission:
        gpu_rate = 0 if terms.kind == "reserved" else terms.gpu_rate
        needed = admission_cost(gpu_rate, terms.storage_rate, disk_bytes)
    if available < needed:
        message = (
            f"starting needs {format_dollars(needed)} (an hour of GPUs and a day of storage);"
            f" {format_dollars(available)} is available"
        )
        raise DeclinedError(
            "insufficient_credit",
            message,
            needed=format_dollars(needed),
            available=format_dollars(available),
        )


def admit_change(unit: Unit, instance: Instance, terms: Terms) -> None:
    """Let an instance that may run go on at other terms, or say why not.

    Only what limits the spending of an account counts here: credit is judged at the next start.
    """
    del unit, instance, terms
