"""What must hold before something of an account may run (`marketplace.md` §13.1)."""

from __future__ import annotations

from ledger.domain.events import Terms
from ledger.domain.instance import Instance
from ledger.domain.money import format_dollars
from ledger.errors import DeclinedError, NotFoundError
from ledger.services.caps import Plan, require_within_caps
from ledger.services.credit import Credit, admission_cost, lock_credit
from ledger.services.leases import require_lease
from ledger.services.ledger import Unit


def admit(
    unit: Unit, account_id: int, terms: Terms, disk_bytes: int, *, starting: int | None = None
) -> None:
    """Let an account start something at these terms, or say why not.

    Credit must cover an hour of GPUs (unless they are prepaid) and a day of storage, and the
    account's spend caps what would burn then. The account's row stays locked until the transaction
    ends, so starts are judged one after the other.

    Args:
        unit: The command's transaction.
        account_id: Who pays.
        terms: What it would cost.
        disk_bytes: Size of its disk; of a volume, nothing else costs anything.
        starting: The stopped instance that would run again, whose disk burns already; none for a
            new one.

    Raises:
        NotFoundError: `no_such_account`.
        DeclinedError: `insufficient_credit`, `lease_ended` or `spend_rate_limit`.
    """
    credit = _locked_credit(unit, account_id)
    available = credit.available(unit.now, unit.policy)
    gpu_rate = 0 if terms.kind == "reserved" else terms.gpu_rate
    needed = 1
    if unit.policy.admission:
        needed = admission_cost(gpu_rate, terms.storage_rate, disk_bytes)
    if available < needed:
        gpus = "" if terms.kind == "volume" else "an hour of GPUs and "
        message = (
            f"starting needs {format_dollars(needed)} ({gpus}a day of storage);"
            f" {format_dollars(available)} is available"
        )
        raise DeclinedError(
            "insufficient_credit",
            message,
            needed=format_dollars(needed),
            available=format_dollars(available),
        )
    if starting is not None:
        require_lease(unit, credit, starting)
        plan = Plan(gpu_rate)
    else:
        plan = Plan(gpu_rate, terms.storage_rate * disk_bytes)
    require_within_caps(unit, credit, plan)


def admit_change(unit: Unit, instance: Instance, terms: Terms) -> None:
    """Let an instance that may run go on at other terms, or say why not.

    Only what limits the spending of an account counts here: credit is judged at the next start. A
    change that makes nothing dearer is never refused, so a cap cannot keep a bid high.

    Raises:
        DeclinedError: `spend_rate_limit`.
    """
    last = instance.coming[-1].terms if instance.coming else instance.terms
    if not instance.wants_run or terms.gpu_rate <= last.gpu_rate:
        return
    credit = _locked_credit(unit, instance.account_id)
    plan = Plan(terms.gpu_rate, replaces=instance.instance_id)
    require_within_caps(unit, credit, plan)


def _locked_credit(unit: Unit, account_id: int) -> Credit:
    credit = lock_credit(unit.connection, [account_id]).get(account_id)
    if credit is None:
        raise NotFoundError("no_such_account", f"there is no account {account_id}")
    return credit
