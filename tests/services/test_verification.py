"""Verification: what is stated beside what was found, the bars, the states, and who is told."""

from __future__ import annotations

from typing import Any

import pytest

from ledger.domain.benchmark import REFERENCE, SUITE
from ledger.domain.events import (
    BenchmarkRecorded,
    InventoryReported,
    MachineCompared,
    MachineSpec,
)
from ledger.domain.ids import machine_stream
from ledger.domain.reliability import SLOT_SECONDS, slot_of, slot_start
from ledger.errors import LedgerError
from ledger.services import (
    contracts,
    findings,
    listings,
    machines,
    policies,
    rentals,
    verification,
)
from ledger.services.questions import trust
from tests.support.market import DOLLAR, START, Market
from tests.support.trust import (
    GOOD_PROBE,
    answer,
    gpus_of,
    inventory_of,
    issue,
    judged,
    probe,
    report,
    standing,
    verify,
)


def state(market: Market, machine: int) -> str:
    """How the machine stands."""
    return str(standing(market, machine)["verification"])


def notices(market: Market, name: str, code: str) -> list[str]:
    """What an account was told under a code: about what."""
    rows = market.connection.execute(
        "SELECT about FROM notices WHERE account_id = %s AND code = %s ORDER BY position",
        [market.account(name), code],
    )
    return [row[0] for row in rows]


def lacks(market: Market, machine: int) -> trust.VerificationView:
    """What the machine lacks."""
    with market.ledger.reading() as connection:
        return trust.verification(connection, machine)


def known(market: Market, gpus: int = 1, **changes: Any) -> int:
    """A machine whose agent and probes found what is stated, but for *changes*."""
    machine = market.machine(gpus=gpus)
    report(market, machine, inventory=inventory_of(machine, gpus, **changes))
    probe(market, machine)
    return machine


# --- what was found -------------------------------------------------------------------------------


def test_an_inventory_is_a_fact_when_it_is_news(market: Market) -> None:
    """The same again, with other byte counters, is not: a report a boot would fill the log."""
    machine = market.machine()
    for counter in (5, 9):
        seen = inventory_of(machine, uplink_tx_bytes=counter, uplink_rx_bytes=counter)
        report(market, machine, inventory=seen)
    report(market, machine, inventory=inventory_of(machine, cuda="12.9"))
    found = [one for one in market.facts() if isinstance(one, InventoryReported)]
    assert [one.inventory.cuda for one in found] == ["12.8", "12.9"]
    assert {one.evidence for one in found} == {"agent_reported"}
    assert found[0].inventory.uplink_tx_bytes is None


def test_the_search_sees_the_inventory_as_numbers(market: Market) -> None:
    """Versions, capability, clocks and ports are comparable; of several GPUs the least counts."""
    machine = market.machine(gpus=2)
    cards = gpus_of(machine, 2)
    slower = gpus_of(machine, 2, pcie_gen=3, pcie_mb_s=11_500, max_power_mw=350_999)[1]
    seen = inventory_of(
        machine, 2, cpu_mhz=3_500, avx=True, os_version="22.04\x00", gpus=[cards[0], slower]
    )
    report(market, machine, inventory=seen)
    row = market.connection.execute(
        "SELECT cuda, driver, driver_number, compute_capability, cpu_ghz, avx, pcie_gen, pcie_gb_s,"
        " gpu_power_w, ports, os_version, gpu_memory_gb_s, nvlink_gb_s FROM machine_details"
        " WHERE machine_id = %s",
        [machine],
    ).fetchone()
    assert row == (
        *(12.8, "570.86.10", 570_086_010, 890, 3.5, True, 3, 11.5, 350, 100, "22.04", 930.0, None),
    )
    offers = market.connection.execute(
        "SELECT gpus, cuda, ports FROM open_offers WHERE machine_id = %s ORDER BY gpus",
        [machine],
    ).fetchall()
    assert offers == [(1, 12.8, 100), (2, 12.8, 100)]


def test_numbers_that_no_machine_has_are_as_good_as_none(market: Market) -> None:
    """An agent may claim anything; the report that claims it is stored and nothing breaks."""
    machine = market.machine()
    wild = gpus_of(machine, 1, pcie_gen=2**63 - 1, compute_capability="999999999.9")
    seen = inventory_of(
        machine, driver="999999.1.1", cuda="x", port_range="9-1", disk_mb_s=2**63 - 1, gpus=wild
    )
    report(market, machine, inventory=seen)
    row = market.connection.execute(
        "SELECT cuda, driver_number, compute_capability, pcie_gen, ports, disk_mb_s"
        " FROM machine_details WHERE machine_id = %s",
        [machine],
    ).fetchone()
    assert row == (None, None, None, None, None, 2**63 - 1)


def test_the_host_says_where_its_machine_stands(market: Market) -> None:
    """The country is in the offers; a probe that finds another is a difference."""
    machine = known(market)
    with market.ledger.unit() as unit:
        findings.locate(unit, machine, "SE")
        findings.locate(unit, machine, "SE")
    row = market.connection.execute(
        "SELECT country FROM open_offers WHERE machine_id = %s", [machine]
    ).fetchone()
    assert row == ("SE",)
    assert lacks(market, machine).differences == []
    probe(market, machine, findings.Probe(country="US"))
    assert [one.field for one in lacks(market, machine).differences] == ["region"]
    probe(market, machine, findings.Probe(country="SE"))
    assert lacks(market, machine).differences == []


@pytest.mark.parametrize(
    "found",
    [
        findings.Probe(up_mbps=-1),
        findings.Probe(down_mbps=10_000_001),
        findings.Probe(open_ports=65_537),
        findings.Probe(country="Sweden"),
    ],
)
def test_a_probe_that_cannot_be_is_refused(market: Market, found: findings.Probe) -> None:
    """Negative links, more ports than there are, and no country change nothing."""
    machine = known(market)
    head = market.head()
    with pytest.raises(LedgerError) as refused:
        probe(market, machine, found)
    assert refused.value.code == "invalid_args"
    assert market.head() == head


# --- bars -----------------------------------------------------------------------------------------


def test_a_machine_below_the_bars_is_not_listed(market: Market) -> None:
    """CUDA 11.4 is too old; the refusal says what is needed. What is not known is no obstacle."""
    machine = market.machine()
    report(market, machine, inventory=inventory_of(machine, cuda="11.4"))
    with pytest.raises(LedgerError) as refused, market.ledger.unit() as unit:
        listings.list_machine(unit, machine, listings.Prices(DOLLAR, 0))
    assert refused.value.code == "below_bars"
    assert refused.value.detail["missed"] == [{"bar": "cuda", "needed": "11.8", "found": "11.4"}]
    other = market.machine()
    report(market, other, inventory=inventory_of(other, cuda=None, disk_gb=None))
    market.list_again(other)


def test_a_listed_machine_that_falls_below_the_bars_is_not_rented_anew(market: Market) -> None:
    """Its offers are closed to newcomers while it is so; who is there stays."""
    machine, alice = known(market, gpus=2), market.account("alice", 100 * DOLLAR)
    instance = market.rent(alice, machine, gpus=1)
    market.confirm(machine, instance)
    probe(market, machine, findings.Probe(open_ports=1))
    with pytest.raises(LedgerError) as refused:
        market.rent(alice, machine, gpus=1)
    assert refused.value.code == "no_capacity"
    assert market.status(instance) == "running"
    rows = market.connection.execute(
        "SELECT DISTINCT rentable FROM open_offers WHERE machine_id = %s", [machine]
    ).fetchall()
    assert rows == [(False,)]
    probe(market, machine, findings.Probe(open_ports=6))
    assert market.status(market.rent(alice, machine, gpus=1)) == "loading"


# --- the states -----------------------------------------------------------------------------------


def test_a_machine_earns_its_verification_with_the_thirty_fifth_pass(market: Market) -> None:
    """34 passes give a bound below 0.90; the 35th verifies, and the host is told."""
    machine = known(market)
    judged(market, machine, ["passed"] * 34)
    assert state(market, machine) == "unverified"
    judged(market, machine, ["passed"])
    assert state(market, machine) == "verified"
    assert notices(market, "bob", "verified") == [f"machine-{machine}"]
    with market.ledger.reading() as connection:
        (step,) = trust.verification_history(connection, machine)
    assert (step.verification, step.judged_by) == ("verified", "platform")
    assert step.reason == "35 checks, lower bound 0.901096"


def test_a_machine_that_nobody_measured_is_not_verified(market: Market) -> None:
    """Without an inventory, or without probes, no number of passes is enough."""
    bare, unprobed = market.machine(), market.machine()
    report(market, unprobed, inventory=inventory_of(unprobed))
    for machine in (bare, unprobed):
        judged(market, machine, ["passed"] * 40)
        assert state(market, machine) == "unverified"
    missed = {one.bar: one.found for one in lacks(market, unprobed).missed_to_verify}
    assert missed == {"open_ports": None, "up_mbps": None, "down_mbps": None}
    probe(market, unprobed)
    assert state(market, unprobed) == "verified"


def test_an_inventory_given_at_enrolment_is_compared_with_the_first_check(market: Market) -> None:
    """It is folded with the enrolment; what is wrong with it shows as soon as a check is judged."""
    spec = MachineSpec(
        gpus=1,
        gpu_name="RTX 4090",
        gpu_ram_gb=24,
        cpu_cores=8,
        ram_gb=64,
        disk_gb=2_000,
        up_mbps=1_000,
        down_mbps=1_000,
    )
    host = market.account("bob")
    with market.ledger.unit() as unit:
        machine = machines.register(unit, host, spec)
        token = machines.offer_enrolment(unit, machine)
        seen = inventory_of(machine, cpu_cores=1)
        machines.enrol(unit, token, "ab" * 32, [f"GPU-{machine}-0"], seen)
    row = market.connection.execute("SELECT cuda FROM machine_details").fetchone()
    assert row == (12.8,)
    judged(market, machine, ["passed"])
    assert [one.field for one in lacks(market, machine).differences] == ["cpu_cores"]
    assert market.rebuild().equal


@pytest.mark.parametrize(
    ("changes", "gpus"),
    [
        pytest.param({"gpus": 1}, 2, id="a-gpu-fewer"),
        pytest.param({"ram_mib": 32_000}, 1, id="less-ram"),
    ],
)
def test_fewer_gpus_or_less_ram_deverify_at_once(
    market: Market, changes: dict[str, Any], gpus: int
) -> None:
    """In the transaction of the report, whoever verified the machine; renters are told too."""
    machine, alice = known(market, gpus), market.account("alice", 100 * DOLLAR)
    verify(market, machine)
    market.rent(alice, machine)
    if "gpus" in changes:
        changes = {"gpus": gpus_of(machine, 1)}
    report(market, machine, inventory=inventory_of(machine, gpus, **changes))
    assert state(market, machine) == "deverified"
    for name in ("bob", "alice"):
        assert notices(market, name, "deverified") == [f"machine-{machine}"]
    with pytest.raises(LedgerError) as refused:
        verify(market, machine)
    assert refused.value.code == "not_as_stated"


def test_a_lasting_difference_deverifies_when_a_slot_ended_with_it(market: Market) -> None:
    """Fewer cores may be a slip; at the end of the slot they are not, and time alone does it."""
    machine = known(market)
    judged(market, machine, ["passed"] * 35)
    assert state(market, machine) == "verified"
    report(market, machine, inventory=inventory_of(machine, cpu_cores=4))
    policies.run_due(market.ledger)
    assert state(market, machine) == "verified"
    end = slot_start(slot_of(market.clock()) + 1)
    with market.ledger.reading() as connection:
        assert policies.next_due(connection, market.clock()) == end
    market.clock.move_to(end)
    policies.run_due(market.ledger)
    assert state(market, machine) == "deverified"
    with market.ledger.reading() as connection:
        last = trust.verification_history(connection, machine)[-1]
    assert last.reason == "cpu_cores: 4, not 8"


def test_a_difference_that_is_mended_within_its_slot_costs_nothing(market: Market) -> None:
    """An agent that came up before its disks is forgiven."""
    machine = known(market)
    judged(market, machine, ["passed"] * 35)
    report(market, machine, inventory=inventory_of(machine, disk_gb=100))
    market.clock.move_to(market.clock() + 100)
    report(market, machine, inventory=inventory_of(machine))
    market.clock.move_to(market.clock() + 2 * SLOT_SECONDS)
    policies.run_due(market.ledger)
    assert state(market, machine) == "verified"


def test_a_bound_that_falls_below_ninety_percent_deverifies(market: Market) -> None:
    """Judged by the record alone; the machine differs in nothing."""
    machine = known(market)
    judged(market, machine, ["passed"] * 35)
    judged(market, machine, ["failed"])
    assert state(market, machine) == "deverified"


def test_twelve_clean_slots_let_it_try_again(market: Market) -> None:
    """Deverified → unverified after 12 passes in a row whose slots ended; a failure starts anew."""
    machine = known(market)
    judged(market, machine, ["passed"] * 100)
    assert state(market, machine) == "verified"
    report(market, machine, inventory=inventory_of(machine, ram_mib=8))
    assert state(market, machine) == "deverified"
    judged(market, machine, ["passed"] * 20)
    assert state(market, machine) == "deverified"
    report(market, machine, inventory=inventory_of(machine))
    judged(market, machine, ["passed"] * 5 + ["failed"] + ["passed"] * 12)
    assert state(market, machine) == "deverified"
    judged(market, machine, ["passed"])
    assert state(market, machine) == "unverified"
    judged(market, machine, ["passed"])
    assert state(market, machine) == "verified"
    assert market.rebuild().equal


# --- by hand --------------------------------------------------------------------------------------


def test_an_admin_vouches_for_what_is_not_measured(market: Market) -> None:
    """Record, bars and probes are waived; failures do not take it back."""
    machine = market.machine()
    verify(market, machine)
    verify(market, machine)
    assert state(market, machine) == "verified"
    judged(market, machine, ["failed"] * 20)
    assert state(market, machine) == "verified"
    assert notices(market, "bob", "verified") == [f"machine-{machine}"]


def test_what_an_admin_took_back_stays_taken(market: Market) -> None:
    """No clean record brings it back before an admin says so; then it is earned anew."""
    machine = known(market)
    judged(market, machine, ["passed"] * 40)
    with market.ledger.unit() as unit:
        verification.deverify_by_hand(unit, machine, "complaints")
        verification.deverify_by_hand(unit, machine, "complaints")
    judged(market, machine, ["passed"] * 30)
    assert state(market, machine) == "deverified"
    with market.ledger.unit() as unit:
        verification.reset_by_hand(unit, machine, "mended")
    assert state(market, machine) == "unverified"
    judged(market, machine, ["passed"])
    assert state(market, machine) == "verified"
    with market.ledger.reading() as connection:
        steps = trust.verification_history(connection, machine)
    assert [(one.verification, one.judged_by) for one in steps] == [
        ("verified", "platform"),
        ("deverified", "admin"),
        ("unverified", "admin"),
        ("verified", "platform"),
    ]


@pytest.mark.parametrize("reason", ["", "   ", "x" * 257, "a\nb"])
def test_a_decision_by_hand_needs_a_reason(market: Market, reason: str) -> None:
    """Nothing is verified, deverified or reset without a sentence that can be read."""
    machine = market.machine()
    head = market.head()
    for decide in (
        verification.verify_by_hand,
        verification.deverify_by_hand,
        verification.reset_by_hand,
    ):
        with pytest.raises(LedgerError) as refused, market.ledger.unit() as unit:
            decide(unit, machine, reason)
        assert refused.value.code == "invalid_args"
    assert market.head() == head


def test_a_reservation_ends_without_penalty_on_a_deverified_machine(market: Market) -> None:
    """The whole remainder goes back: the host broke its promise, not the renter (§9)."""
    machine, alice = market.machine(gpu_hour=DOLLAR), market.account("alice", 1_000 * DOLLAR)
    verify(market, machine)
    instance = market.rent(alice, machine)
    with market.ledger.unit() as unit:
        contracts.reserve(unit, instance, seconds=30 * 86_400)
        verification.deverify_by_hand(unit, machine, "a cheap card shown as a dear one")
        contracts.unreserve(unit, instance)
        rentals.destroy(unit, instance)
    row = market.connection.execute("SELECT reason, kept FROM reservations").fetchone()
    assert row == ("no_penalty", 0)


# --- benchmarks -----------------------------------------------------------------------------------


def benchmark(market: Market, machine: int, percent: int = 100, **more: Any) -> None:
    """A run of the suite with so much of a GTX 1080 Ti's speed."""
    check = issue(market, machine, "benchmark")
    measured = {name: value * percent // 100 for name, value in REFERENCE.items()}
    said = answer(check, **{"suite": SUITE, **measured, **more})
    report(market, machine, answers=[said])
    market.clock.move_to(market.clock() + SLOT_SECONDS)


def test_the_score_is_the_median_of_the_last_five_runs(market: Market) -> None:
    """Per GPU: a 1080 Ti scores 10, an offer of four GPUs 40 times the measured efficiency."""
    machine = market.machine(gpus=4)
    benchmark(market, machine, 210, scaling_ppm=900_000)
    assert standing(market, machine)["score"] == pytest.approx(10 * 2.1 * 0.9)
    scores: list[tuple[int, float]] = market.connection.execute(
        "SELECT gpus, score FROM open_offers WHERE machine_id = %s ORDER BY gpus", [machine]
    ).fetchall()
    assert dict(scores)[4] == pytest.approx(75.6)
    for percent in (200, 205, 210, 215, 220):
        benchmark(market, machine, percent)
    assert standing(market, machine)["score"] == pytest.approx(21.0)
    benchmark(market, machine, 225)
    assert standing(market, machine)["score"] == pytest.approx(21.5)
    with market.ledger.reading() as connection:
        runs = trust.benchmarks(connection, machine)
    assert [round(one.score, 2) for one in runs][:2] == [18.9, 20.0]
    assert market.rebuild().equal


def test_runs_of_another_suite_or_without_a_number_record_nothing(market: Market) -> None:
    """Scores of different suites are never mixed; a hole in the answer is a bad answer."""
    machine = market.machine()
    benchmark(market, machine, suite="products-0")
    benchmark(market, machine, copy_64_mib_mb_s=None)
    benchmark(market, machine, fp32_2048_mflops=10**15)
    results = [one.result for one in market.facts() if hasattr(one, "result")]
    assert results == ["inconclusive", "failed", "failed"]
    assert not [one for one in market.facts() if isinstance(one, BenchmarkRecorded)]


@pytest.mark.parametrize(("percent", "after"), [(86, "verified"), (84, "deverified")])
def test_a_drift_of_more_than_fifteen_percent_ends_the_verification(
    market: Market, percent: int, after: str
) -> None:
    """A throttled or exchanged card shows in the benchmark (§18)."""
    machine = market.machine()
    verify(market, machine)
    benchmark(market, machine)
    benchmark(market, machine, percent)
    assert state(market, machine) == after


def test_a_comparison_is_a_fact_only_when_it_changes(market: Market) -> None:
    """A hundred reports of one shortcoming are one line in the log."""
    machine = known(market)
    for _ in range(3):
        probe(market, machine, GOOD_PROBE)
    found = [
        one for one in market.facts(machine_stream(machine)) if isinstance(one, MachineCompared)
    ]
    assert len(found) == 2
    assert (found[-1].differences, found[-1].missed_to_verify) == ([], [])
    assert found[-1].compared_at >= START
