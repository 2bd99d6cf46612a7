"""Trust in machines: what its facts change, up to the rating and the rows that the search reads."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec

from ledger.domain import events as e
from ledger.domain.benchmark import SUITE, score_per_gpu
from ledger.domain.hardware import Inventory
from ledger.domain.score import MEDIAN_OF
from ledger.projections.facts.change import Change
from ledger.projections.facts.details import details
from ledger.projections.facts.market import health_changed, refreshed
from ledger.projections.facts.rating import judged, reclassified

_json = msgspec.json.Encoder()


def check_changes(fact: e.CheckFact, position: int) -> Iterator[Change]:
    """Checks, and the rating that follows from them."""
    match fact:
        case e.CheckIssued():
            yield Change(
                "INSERT INTO checks (machine_id, slot, position, kind, at, nonce, deadline)"
                " VALUES (%s, %s, %s, %s, %s, %s, %s)",
                (
                    fact.machine_id,
                    fact.slot,
                    position,
                    fact.kind,
                    fact.at,
                    fact.nonce,
                    fact.deadline,
                ),
            )
        case e.CheckJudged():
            yield from judged(fact, position)
            yield refreshed(fact.machine_id)
        case e.CheckReclassified():
            yield from reclassified(fact)
            yield refreshed(fact.machine_id)
        case e.BenchmarkRecorded():
            yield from _benchmark(fact, position)
        case e.GpuSuspected():
            yield Change(
                "INSERT INTO gpu_suspects VALUES (%s, %s, %s, %s) ON CONFLICT (gpu_uuid)"
                " DO UPDATE SET machine_id = EXCLUDED.machine_id, reason = EXCLUDED.reason",
                (fact.gpu_uuid, fact.machine_id, fact.reason, fact.suspected_at),
            )
            yield refreshed(fact.machine_id)
        case e.GpuCleared():
            yield Change("DELETE FROM gpu_suspects WHERE gpu_uuid = %s", (fact.gpu_uuid,))
            yield refreshed(fact.machine_id)
        case e.GpuRestored():
            yield Change("DELETE FROM gpu_suspects WHERE gpu_uuid = %s", (fact.gpu_uuid,))
            yield health_changed(fact.gpu_uuid, fact.reason, fact.restored_at, healthy=True)
            yield refreshed(fact.machine_id)


def _benchmark(fact: e.BenchmarkRecorded, position: int) -> Iterator[Change]:
    yield Change(
        "INSERT INTO benchmark_runs VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s)",
        (
            fact.machine_id,
            position,
            fact.slot,
            fact.suite,
            _text(fact.measures),
            fact.scaling_ppm,
            score_per_gpu(fact.measures, fact.scaling_ppm),
            fact.evidence,
            fact.recorded_at,
        ),
    )
    yield Change(_SCORE, (fact.machine_id, SUITE, MEDIAN_OF, fact.recorded_at, fact.machine_id))
    yield refreshed(fact.machine_id)


_SCORE: Final = (
    "UPDATE machine_standing SET score = (SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY score)"
    "  FROM (SELECT score FROM benchmark_runs WHERE machine_id = %s AND suite = %s"
    "        ORDER BY position DESC LIMIT %s) AS last), changed_at = %s WHERE machine_id = %s"
)
"""The median of the last runs of the suite in force; a new suite begins without a score."""


# --- what was found -------------------------------------------------------------------------------


def finding_changes(fact: e.FindingFact, position: int) -> Iterator[Change]:
    """What is known of a machine, and whether it is what was stated."""
    del position
    match fact:
        case e.InventoryReported():
            yield from inventory_changes(
                fact.machine_id, fact.inventory, fact.evidence, fact.reported_at
            )
        case e.MachineProbed():
            yield Change(
                "INSERT INTO machine_trust AS t (machine_id, judged_by, up_mbps, down_mbps,"
                " open_ports, country, under_load, probed_at)"
                " VALUES (%s, 'platform', %s, %s, %s, %s, %s, %s)"
                " ON CONFLICT (machine_id) DO UPDATE SET"
                " up_mbps = coalesce(EXCLUDED.up_mbps, t.up_mbps),"
                " down_mbps = coalesce(EXCLUDED.down_mbps, t.down_mbps),"
                " open_ports = coalesce(EXCLUDED.open_ports, t.open_ports),"
                " country = coalesce(EXCLUDED.country, t.country),"
                " under_load = EXCLUDED.under_load, probed_at = EXCLUDED.probed_at",
                (
                    fact.machine_id,
                    fact.up_mbps,
                    fact.down_mbps,
                    fact.open_ports,
                    fact.country,
                    fact.under_load,
                    fact.probed_at,
                ),
            )
        case e.MachineLocated():
            yield Change(
                "UPDATE machine_standing SET country = %s, changed_at = %s WHERE machine_id = %s",
                (fact.country, fact.located_at, fact.machine_id),
            )
            yield refreshed(fact.machine_id)
        case e.MachineCompared():
            yield from _compared(fact)


def inventory_changes(
    machine_id: int, inventory: Inventory, evidence: e.EvidenceLevel, at: int
) -> Iterator[Change]:
    """An inventory replaces the one before: as it was told, and as numbers for the search."""
    yield Change(
        "INSERT INTO machine_trust"
        " (machine_id, judged_by, inventory, inventory_evidence, inventory_at)"
        " VALUES (%s, 'platform', %s, %s, %s) ON CONFLICT (machine_id) DO UPDATE SET"
        " inventory = EXCLUDED.inventory, inventory_evidence = EXCLUDED.inventory_evidence,"
        " inventory_at = EXCLUDED.inventory_at",
        (machine_id, _text(inventory), evidence, at),
    )
    yield details(machine_id, inventory)
    yield refreshed(machine_id)


def _compared(fact: e.MachineCompared) -> Iterator[Change]:
    at_fault = bool(fact.differences or fact.missed_to_verify)
    at = fact.compared_at
    yield Change(
        "INSERT INTO machine_trust AS t (machine_id, judged_by, differences, missed_to_list,"
        " missed_to_verify, compared_at, fault_since)"
        " VALUES (%s, 'platform', %s, %s, %s, %s, %s) ON CONFLICT (machine_id) DO UPDATE SET"
        " differences = EXCLUDED.differences, missed_to_list = EXCLUDED.missed_to_list,"
        " missed_to_verify = EXCLUDED.missed_to_verify, compared_at = EXCLUDED.compared_at,"
        " fault_until = CASE WHEN t.fault_since IS NOT NULL AND EXCLUDED.fault_since IS NULL"
        "  THEN EXCLUDED.compared_at ELSE t.fault_until END,"
        " fault_since = CASE WHEN EXCLUDED.fault_since IS NULL THEN NULL"
        "  ELSE coalesce(t.fault_since, EXCLUDED.fault_since) END",
        (
            fact.machine_id,
            _text(fact.differences),
            _text(fact.missed_to_list),
            _text(fact.missed_to_verify),
            at,
            at if at_fault else None,
        ),
    )
    yield Change(
        "UPDATE machine_standing SET below_bars = %s, changed_at = %s WHERE machine_id = %s",
        (bool(fact.missed_to_list), at, fact.machine_id),
    )
    yield refreshed(fact.machine_id)


# --- what follows ---------------------------------------------------------------------------------


def standing_changes(fact: e.StandingFact, position: int) -> Iterator[Change]:
    """Verification, papers, the secure tier."""
    match fact:
        case e.MachineVerified():
            yield from _verification(
                fact.machine_id, position, "verified", fact.by, fact.reason, fact.verified_at
            )
        case e.MachineDeverified():
            yield from _verification(
                fact.machine_id, position, "deverified", fact.by, fact.reason, fact.deverified_at
            )
        case e.VerificationReset():
            yield from _verification(
                fact.machine_id, position, "unverified", fact.by, fact.reason, fact.reset_at
            )
        case e.CertificationRecorded():
            yield Change(
                "INSERT INTO certifications VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, NULL)",
                (
                    fact.host_id,
                    fact.certification_no,
                    fact.kind,
                    fact.number,
                    fact.issuer,
                    fact.valid_from,
                    fact.valid_to,
                    fact.evidence_hash,
                    fact.recorded_at,
                ),
            )
        case e.CertificationWithdrawn():
            yield Change(
                "UPDATE certifications SET withdrawn_at = %s"
                " WHERE host_id = %s AND certification_no = %s",
                (fact.withdrawn_at, fact.host_id, fact.certification_no),
            )
        case e.SecureTierChanged():
            yield Change(
                "UPDATE machine_standing SET secure = %s, changed_at = %s"
                " WHERE machine_id = ANY(%s)",
                (fact.secure, fact.changed_at, fact.machine_ids),
            )
            for machine_id in fact.machine_ids:
                yield refreshed(machine_id)


def _verification(
    machine_id: int, position: int, state: str, by: e.JudgedBy, reason: str, at: int
) -> Iterator[Change]:
    yield Change(
        "UPDATE machine_standing SET verification = %s, changed_at = %s WHERE machine_id = %s",
        (state, at, machine_id),
    )
    yield Change(
        "INSERT INTO machine_trust (machine_id, judged_by, vouched) VALUES (%s, %s, %s)"
        " ON CONFLICT (machine_id) DO UPDATE SET judged_by = EXCLUDED.judged_by,"
        " vouched = EXCLUDED.vouched",
        (machine_id, by, state == "verified" and by == "admin"),
    )
    yield Change(
        "INSERT INTO verification_history VALUES (%s, %s, %s, %s, %s, %s)",
        (machine_id, position, state, by, reason, at),
    )
    yield refreshed(machine_id)


def _text(value: object) -> str:
    return _json.encode(value).decode()
