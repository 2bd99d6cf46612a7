"""What tests of trust in machines share: checks issued and answered, inventories, probes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final, cast

from ledger.domain.checks import MILD, CheckKind, Verdict
from ledger.domain.events import CheckIssued
from ledger.domain.hardware import GpuInventory, Inventory
from ledger.domain.reliability import SLOT_SECONDS, Check, Result
from ledger.domain.usage import CheckAnswer, HealthEvent, Observation
from ledger.services import checks, findings, verification
from ledger.services.questions import trust
from ledger.services.questions.trust import RatingView
from tests.support.market import Market

GPU: Final = GpuInventory(
    uuid="GPU",
    name="NVIDIA GeForce RTX 4090",
    mib=24_564,
    compute_capability="8.9",
    pcie_gen=4,
    pcie_width=16,
    pcie_mb_s=24_000,
    memory_bandwidth_mb_s=930_000,
    max_power_mw=450_000,
)
GOOD_PROBE: Final = findings.Probe(up_mbps=10_000, down_mbps=10_000, open_ports=100)


def inventory_of(machine: int, count: int = 1, **changes: Any) -> Inventory:
    """What the agent of a machine of the test market sees when all is as stated."""
    return Inventory(
        **{
            "cpu_cores": 8 * count,
            "ram_mib": 64_000 * count,
            "disk_gb": 2_000 * count,
            "driver": "570.86.10",
            "cuda": "12.8",
            "port_range": "40000-40099",
            "gpus": gpus_of(machine, count),
            **changes,
        }
    )


def gpus_of(machine: int, gpus: int, **changes: Any) -> list[GpuInventory]:
    """The registered GPUs of a machine, each changed alike."""
    fields = {name: getattr(GPU, name) for name in GPU.__struct_fields__} | changes
    return [GpuInventory(**{**fields, "uuid": f"GPU-{machine}-{slot}"}) for slot in range(gpus)]


def report(
    market: Market,
    machine: int,
    *,
    answers: Sequence[CheckAnswer] = (),
    health: Sequence[HealthEvent] = (),
    inventory: Inventory | None = None,
    observed: Sequence[Observation] = (),
) -> None:
    """A report of this second that attests none, with what it brings."""
    chain = market.chains[machine]
    sealed = chain.seal(
        max(market.clock(), chain.sealed_until),
        0,
        [],
        list(observed),
        answers=list(answers),
        health=list(health),
        inventory=inventory,
    )
    assert market.deliver(sealed)[0].status == "accepted"


def issue(market: Market, machine: int, kind: CheckKind = "ping") -> CheckIssued:
    """A check of this very second."""
    with market.ledger.unit() as unit:
        stream, fact = checks.issued(machine, kind, unit.now, unit.now)
        unit.append(stream, fact)
    assert isinstance(fact, CheckIssued)
    return fact


def answer(
    check: CheckIssued, result: str = "passed", nonce: str | None = None, **measures: Any
) -> CheckAnswer:
    """What the agent says to a check."""
    said = {"nonce": check.nonce if nonce is None else nonce, **measures}
    return CheckAnswer(slot=check.slot, at=check.at, result=result, measures=said)


def judged(market: Market, machine: int, results: Iterable[str]) -> None:
    """One check per slot with these results, each in its own second, beginning now."""
    for result in results:
        with market.ledger.unit() as unit:
            verdict = Verdict(cast("Result", result), MILD, "test")
            one = checks.Judgement(machine, "incident", unit.now, verdict)
            checks.conclude(unit, [one])
        market.clock.move_to(market.clock() + SLOT_SECONDS)


def rating(market: Market, machine: int, at: int | None = None) -> RatingView:
    """The rating of a machine now, or at a past second."""
    with market.ledger.reading() as connection:
        return trust.rating(connection, machine, market.clock() if at is None else at)


def checks_of(market: Market, machine: int) -> list[Check]:
    """All judged checks of a machine, as the naive model takes them."""
    rows = market.connection.execute(
        "SELECT slot, at, result, severity, excluded FROM checks"
        " WHERE machine_id = %s AND judged_at IS NOT NULL ORDER BY position",
        [machine],
    ).fetchall()
    return [Check(*row) for row in rows]


def standing(market: Market, machine: int) -> dict[str, Any]:
    """The row that the search follows."""
    cursor = market.connection.execute(
        "SELECT * FROM machine_standing WHERE machine_id = %s", [machine]
    )
    assert cursor.description is not None
    row = cursor.fetchone()
    assert row is not None
    return dict(zip([column.name for column in cursor.description], row, strict=True))


def verify(market: Market, machine: int) -> None:
    """An admin vouches for a machine."""
    with market.ledger.unit() as unit:
        verification.verify_by_hand(unit, machine, "for the test")


def probe(market: Market, machine: int, found: findings.Probe = GOOD_PROBE) -> None:
    """What probes found from outside."""
    with market.ledger.unit() as unit:
        findings.take_probe(unit, machine, found)
