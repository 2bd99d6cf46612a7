"""What a simulated marketplace looks like now, under the keys that scenarios expect."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from adapters.simulation.world import World
from ledger.domain.ids import rfc3339
from ledger.domain.money import format_dollars
from ledger.services.credit import LOCKED, read_credit
from ledger.services.ledger import read_policy
from ledger.services.payments.reconcile import CLEARING
from ledger.services.questions import documents, trust
from ledger.services.questions.balances import trial_balance

_METERS = ("gpu", "storage", "up", "down")
# The notices that scenarios speak of; the others tell renters what a scenario shows anyway.
_NOTICES = [
    "low_balance_24h", "low_balance_4h", "low_balance_1h", "top_up_soon", "top_up_failed",
    "top_up_off", "exhausted", "storage_debt", "outbid", "resumed", "offline", "online", "expired",
    "idle", "disk_high", "maintenance", "extended", "lost_disk",
]  # fmt: skip


def final_state(
    world: World,
    machines: Mapping[str, int],
    instances: Mapping[str, int],
    volumes: Mapping[str, int],
) -> dict[str, Any]:
    """Balances, states, charges and documents, in the names of the scenario.

    Amounts are decimal texts of dollars, instants RFC 3339.
    """
    contracts = {**instances, **volumes}
    state = {
        **_accounts(world),
        **_contracts(world, contracts),
        "invoices": _invoices(world, contracts),
        "documents": _documents(world),
        "anomalies": _anomalies(world, instances),
        "notices": _notices(world),
        "reliability": _reliability(world, machines),
        **_market(world, machines),
        **_money_in_and_out(world),
        "trial_balance": _trial_balance(world),
    }
    world.connection.commit()
    return state


def _accounts(world: World) -> dict[str, Any]:
    names = {number: name for name, number in world.names.items()}
    policy = read_policy(world.connection)
    credits = read_credit(world.connection, list(names))
    balances, held, hosts = {}, {}, {}
    owners = {row[0] for row in world.connection.execute("SELECT DISTINCT host_id FROM machines")}
    for number, posted, charged, reserved, earned, fees in world.connection.execute(
        "SELECT c.account_id, c.posted - coalesce((SELECT sum(l.amount)"  # noqa: S608 - constants
        f" FROM ({LOCKED}) AS l WHERE l.account_id = c.account_id), 0),"
        " coalesce(u.charged, 0), coalesce((SELECT sum(h.amount)"
        " FROM holds h WHERE h.account_id = c.account_id AND h.status = 'pending'"
        " AND h.expires_at > %s), 0), c.payable + coalesce(u.earned, 0), coalesce(u.fees, 0)"
        " FROM account_credit c LEFT JOIN account_usage u USING (account_id)"
        " ORDER BY c.account_id",
        [world.now],
    ):
        name = names[number]
        lapsed = credits[number].lapsed(world.now, policy)
        balances[name] = format_dollars(int(posted - charged - reserved) - lapsed)
        held[name] = format_dollars(int(reserved))
        if number in owners:
            hosts[name] = format_dollars(int(earned - fees))
    row = world.connection.execute(
        "SELECT (SELECT coalesce(sum(fees), 0) FROM account_usage) + (SELECT coalesce(sum("
        "CASE WHEN credit = 'platform_fee' THEN amount ELSE -amount END), 0) FROM movements"
        " WHERE 'platform_fee' IN (credit, debit))"
    ).fetchone()
    assert row is not None
    return {
        "balances": balances,
        "held": held,
        "hosts": hosts,
        "platform": {"fees": format_dollars(int(row[0]))},
    }


def _contracts(world: World, contracts: Mapping[str, int]) -> dict[str, Any]:
    names = {number: name for name, number in contracts.items()}
    states, running = {}, []
    for number, status in world.connection.execute(
        "SELECT instance_id, status FROM instances UNION ALL"
        " SELECT volume_id, status FROM volumes ORDER BY 1"
    ):
        states[names[number]] = status
        if status in {"loading", "running"}:
            running.append(names[number])
    seconds: dict[str, dict[str, int]] = {name: {"gpu": 0, "storage": 0} for name in contracts}
    charges = {name: dict.fromkeys(_METERS, "0") for name in contracts}
    corrected = {
        (instance, meter): int(amount)
        for instance, meter, amount in world.connection.execute(
            "SELECT instance_id, meter, sum(CASE kind WHEN 'charge' THEN amount ELSE -amount END)"
            " FROM corrections GROUP BY instance_id, meter"
        )
    }
    for row in world.connection.execute(
        "SELECT instance_id, sum(gpu_quantity), sum(storage_quantity), sum(gpu_charge),"
        " sum(storage_charge), sum(up_charge), sum(down_charge) FROM rate_segments"
        " GROUP BY instance_id"
    ):
        name = names[row[0]]
        seconds[name] = {"gpu": int(row[1]), "storage": int(row[2])}
        charges[name] = {
            meter: format_dollars(int(amount) + corrected.get((row[0], meter), 0))
            for meter, amount in zip(_METERS, row[3:], strict=True)
        }
    return {"states": states, "running": running, "billed_seconds": seconds, "charges": charges}


def _invoices(world: World, contracts: Mapping[str, int]) -> dict[str, list[dict[str, Any]]]:
    names = {number: name for name, number in world.names.items()}
    tenants = {number: name for name, number in contracts.items()}
    lines: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for (
        number,
        instance,
        meter,
        quantity,
        amount,
        late,
        used_from,
        used_until,
    ) in world.connection.execute(
        "SELECT number, instance_id, meter, quantity, amount, late, used_from, used_until"
        " FROM invoice_lines ORDER BY number, line"
    ):
        lines[number].append(
            {
                "instance": tenants[instance],
                "meter": meter,
                "quantity": int(quantity),
                "amount": format_dollars(int(amount)),
                "late": late,
                "used": [rfc3339(used_from), rfc3339(used_until)],
            }
        )
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in world.names}
    for row in world.connection.execute(
        "SELECT account_id, number, period_from, period_until, opening, movements, total, closing,"
        " total - due, issued_at FROM invoices ORDER BY position"
    ):
        amounts = zip(("opening", "movements", "total", "closing", "paid"), row[4:9], strict=True)
        found[names[row[0]]].append(
            {
                "number": row[1],
                "period": [rfc3339(row[2]), rfc3339(row[3])],
                **{key: format_dollars(int(amount)) for key, amount in amounts},
                "issued": rfc3339(row[9]),
                "lines": lines[row[1]],
            }
        )
    return found


def _documents(world: World) -> dict[str, list[dict[str, Any]]]:
    """Every document in the order of issue; only tax invoices and their credit notes have tax."""
    names = {number: name for name, number in world.names.items()}
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in world.names}
    for one in documents.documents(world.connection, limit=2**31):
        found[names[one.account_id]].append(
            {
                "number": one.number,
                "net": format_dollars(one.net),
                "tax": format_dollars(one.tax),
                "total": format_dollars(one.net + one.tax),
            }
        )
    return found


def _anomalies(world: World, instances: Mapping[str, int]) -> dict[str, dict[str, int]]:
    names = {number: name for name, number in instances.items()}
    found: dict[str, dict[str, int]] = {name: {} for name in instances}
    for number, code, seconds in world.connection.execute(
        "SELECT instance_id, code, sum(until - start) FROM anomalies GROUP BY instance_id, code"
        " ORDER BY instance_id, code"
    ):
        if number in names:
            found[names[number]][code] = int(seconds)
    return found


def _notices(world: World) -> dict[str, list[str]]:
    names = {number: name for name, number in world.names.items()}
    found: dict[str, list[str]] = {name: [] for name in world.names}
    for number, code in world.connection.execute(
        "SELECT account_id, code FROM notices WHERE code = ANY(%s) ORDER BY position", [_NOTICES]
    ):
        found[names[number]].append(code)
    return found


def _reliability(world: World, machines: Mapping[str, int]) -> dict[str, dict[str, Any]]:
    """Of the last 30 days; the rating has six decimals, and is null below 12 conclusive checks."""
    found = {}
    for name, machine in machines.items():
        seen = trust.rating(world.connection, machine, world.now)
        rating = None if seen.reliability is None else f"{seen.reliability:.6f}"
        found[name] = {"passed": seen.passed, "conclusive": seen.n, "rating": rating}
    return found


def _market(world: World, machines: Mapping[str, int]) -> dict[str, Any]:
    """What a newcomer must bid for a whole machine, and how many offers a search finds."""
    names = {number: name for name, number in machines.items()}
    prices = {
        names[row[0]]: None if row[1] is None else format_dollars(int(row[1]))
        for row in world.connection.execute(
            "SELECT m.machine_id, b.amount FROM machines m LEFT JOIN smallest_bids b"
            " ON b.machine_id = m.machine_id AND b.gpus = m.gpus ORDER BY m.machine_id"
        )
        if row[0] in names
    }
    found = world.connection.execute(
        "SELECT count(*) FROM open_offers WHERE verified AND rentable"
        " AND (until IS NULL OR until > %s)",
        [world.now],
    ).fetchone()
    assert found is not None
    return {"min_bid": prices, "offers": int(found[0])}


def _money_in_and_out(world: World) -> dict[str, Any]:
    """Payments by account and payouts by host, and what waits for the processor's own lines."""
    names = {number: name for name, number in world.names.items()}
    paid: dict[str, list[dict[str, str]]] = {name: [] for name in world.names}
    for number, total, refunded, status in world.connection.execute(
        "SELECT account_id, credit + tax, returned_credit + returned_tax, status FROM payments"
        " ORDER BY position"
    ):
        paid[names[number]].append(
            {
                "total": format_dollars(int(total)),
                "refunded": format_dollars(int(refunded)),
                "status": status,
            }
        )
    sent: dict[str, list[dict[str, str]]] = {name: [] for name in world.names}
    for number, amount, status in world.connection.execute(
        "SELECT host_id, amount, status FROM payouts ORDER BY payout_id"
    ):
        sent[names[number]].append({"amount": format_dollars(int(amount)), "status": status})
    books = {row.ledger_account: row.debit - row.credit for row in trial_balance(world.connection)}
    clearing = {name: format_dollars(books.get(name, 0)) for name in CLEARING}
    return {"payments": paid, "payouts": sent, "clearing": clearing}


def _trial_balance(world: World) -> str:
    """Debits minus credits over all ledger accounts, and what accounts hold beside their rows."""
    rows = trial_balance(world.connection)
    off = abs(sum(row.debit for row in rows) - sum(row.credit for row in rows))
    books = {row.ledger_account: row.credit - row.debit for row in rows}
    kept = world.connection.execute(_KEPT).fetchone()
    assert kept is not None
    credit, locked, payable = (int(amount) for amount in kept)
    off += abs(books.get("renter_credit", 0) - credit)
    off += abs(books.get("reserved_deposit", 0) - locked)
    off += abs(books.get("host_payable", 0) - payable)
    return format_dollars(off)


_KEPT = f"""
SELECT (SELECT sum(posted) FROM account_credit)
       - (SELECT coalesce(sum(charged), 0) FROM account_usage) - locked.amount, locked.amount,
       (SELECT sum(payable) FROM account_credit)
       + (SELECT coalesce(sum(earned - fees), 0) FROM account_usage)
FROM (SELECT coalesce(sum(amount), 0) AS amount FROM ({LOCKED}) AS one) AS locked
"""  # noqa: S608 - constants
