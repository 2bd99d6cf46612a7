"""What a check costs once a machine has thousands, and a question about a past second."""

from __future__ import annotations

import os
import random
import shutil
import statistics
import tempfile
import time
from pathlib import Path
from typing import Final

from adapters.hostagent.identity import HostIdentity
from ledger.domain import reliability
from ledger.domain.checks import PASSED
from ledger.domain.events import MachineSpec
from ledger.domain.reliability import HALF_LIFE, SLOT_SECONDS, WINDOW_SLOTS, Check
from ledger.services import accounts, checks, listings, machines
from ledger.services.ledger import Ledger, SimulatedClock
from ledger.services.questions import trust
from tests.bench.row import Row

START: Final = 1_797_000_000
NOW: Final = START + SLOT_SECONDS * WINDOW_SLOTS
MACHINES: Final = 1_000
ROUNDS: Final = 5
QUESTIONS: Final = 500


def rows(*, quick: bool = False) -> list[Row]:
    """One more check for each of 1,000 machines with 30 days of them, and as-of questions."""
    count = MACHINES // 10 if quick else MACHINES
    folder = Path(tempfile.mkdtemp(prefix="gpuledger-bench-"))
    os.chmod(folder, 0o755)  # noqa: S103 - a server started by root runs as a user of its own
    clock = SimulatedClock(START)
    ledger = Ledger.open(folder, url="", clock=clock)
    try:
        ledger.adopt_policy()
        _make(ledger, count)
        _fill(ledger)
        clock.move_to(NOW)
        per_check = statistics.median(_round(ledger, clock, count) for _ in range(ROUNDS))
        per_question = _questions(ledger, count)
    finally:
        ledger.close()
        shutil.rmtree(folder, ignore_errors=True)
    scratch = _from_scratch()
    behind = f"{count:,} machines with {WINDOW_SLOTS:,} checks each"
    return [
        Row(
            f"one check more, {behind}: fact, running totals, rating and offers, durable",
            f"{per_check * 1e6:,.0f} µs a check",
            "independent of the number of checks behind it",
            f"the rating alone from all of a machine's checks {scratch * 1e6:,.0f} µs"
            f" ({scratch / per_check:,.0f} ×)",
        ),
        Row(
            f"rating of a machine at a past second, {behind}",
            f"{per_question * 1e3:.2f} ms",
            "≤ 10 ms",
            f"median of {QUESTIONS} random machines and seconds",
        ),
    ]


def _make(ledger: Ledger, count: int) -> None:
    """Listed machines of one host, each with one open offer."""
    spec = MachineSpec(
        gpus=1, gpu_name="RTX 4090", gpu_ram_gb=24, cpu_cores=8, ram_gb=64, disk_gb=1_000,
        up_mbps=1_000, down_mbps=1_000,
    )  # fmt: skip
    with ledger.unit() as unit:
        host = accounts.open_account(unit, "host")
        for number in range(count):
            machine = machines.register(unit, host, spec)
            token = machines.offer_enrolment(unit, machine)
            key = HostIdentity.from_seed(machine.to_bytes(32, "big")).public_key_hex
            machines.enrol(unit, token, key, [f"GPU-{number}"])
            listings.list_machine(unit, machine, listings.Prices(400_000_000, 0))


def _fill(ledger: Ledger) -> None:
    """Thirty days of passed checks, as the fold would leave them."""
    q = 2.0 ** (-SLOT_SECONDS / HALF_LIFE)
    with ledger.database.connect("owner", autocommit=True) as owner:
        owner.execute(
            "INSERT INTO rated_slots SELECT m.machine_id, %(first)s + k,"
            " (%(first)s + k) * %(size)s, true, 1, k + 1, k + 1, sums.weight, sums.weight"
            " FROM machines m, generate_series(0, %(n)s - 1) AS k,"
            " LATERAL (SELECT (1 - power(%(q)s::float8, (k + 1)::float8)) / (1 - %(q)s::float8)"
            "          AS weight) AS sums",
            {"first": START // SLOT_SECONDS, "size": SLOT_SECONDS, "n": WINDOW_SLOTS, "q": q},
        )
        owner.execute("VACUUM ANALYZE rated_slots")


def _round(ledger: Ledger, clock: SimulatedClock, count: int) -> float:
    """Seconds per check when every machine passes one more, all in one transaction."""
    clock.move_to(clock.now + SLOT_SECONDS)
    with ledger.unit() as unit:
        unit.append_all(
            [checks.issued(machine, "ping", unit.now, unit.now) for machine in range(1, count + 1)]
        )
    began = time.perf_counter()
    with ledger.unit() as unit:
        judged = [
            checks.Judgement(machine, "ping", unit.now, PASSED) for machine in range(1, count + 1)
        ]
        checks.conclude(unit, judged)
    return (time.perf_counter() - began) / count


def _questions(ledger: Ledger, count: int) -> float:
    chance = random.Random(1)  # noqa: S311 - which machine and second comes next
    spent = []
    with ledger.reading() as connection:
        for _ in range(QUESTIONS):
            machine, second = chance.randint(1, count), chance.randint(START, NOW)
            began = time.perf_counter()
            trust.rating(connection, machine, second)
            spent.append(time.perf_counter() - began)
    return statistics.median(spent)


def _from_scratch() -> float:
    """Seconds for the rating of one machine from its checks in memory."""
    first = START // SLOT_SECONDS
    known = [
        Check(slot, slot * SLOT_SECONDS, "passed") for slot in range(first, first + WINDOW_SLOTS)
    ]
    began = time.perf_counter()
    reliability.rating(known, NOW)
    return time.perf_counter() - began
