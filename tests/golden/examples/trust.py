"""One fact of every kind about trust: findings, checks, papers, verification."""

from __future__ import annotations

from typing import Final

from ledger.domain import events as e
from ledger.domain.benchmark import REFERENCE, SUITE
from ledger.domain.hardware import GpuInventory, Inventory
from tests.golden.examples.core import HASH, T

INVENTORY: Final = Inventory(
    cpu_name="AMD EPYC 7763",
    cpu_cores=64,
    ram_mib=262_144,
    driver="570.86.10",
    cuda="12.8",
    gpus=[
        GpuInventory(
            uuid="GPU-a", name="NVIDIA GeForce RTX 4090", mib=24_564, compute_capability="8.9"
        )
    ],
    measured={"disk_mb_s": "1 GiB written and read"},
)
SLOT: Final = T // 300
TRUST: Final[tuple[e.AnyFact, ...]] = (
    e.InventoryReported(
        machine_id=4001, inventory=INVENTORY, evidence="agent_reported", reported_at=T
    ),
    e.MachineProbed(
        machine_id=4001,
        up_mbps=940,
        down_mbps=None,
        open_ports=100,
        country="SE",
        under_load=False,
        evidence="platform_challenged",
        probed_at=T,
    ),
    e.MachineLocated(machine_id=4001, country="SE", evidence="self_reported", located_at=T),
    e.MachineCompared(
        machine_id=4001,
        differences=[
            e.FoundDifference(field="gpus", stated="4", found="3", severity="deverify_at_once")
        ],
        missed_to_list=[e.MissedBar(bar="cuda", needed="11.8", found="11.4")],
        missed_to_verify=[e.MissedBar(bar="open_ports", needed="12", found=None)],
        compared_at=T,
    ),
    e.CheckIssued(
        machine_id=4001,
        slot=SLOT,
        kind="ping",
        at=T + 17,
        nonce="9f2c" * 4,
        deadline=T + 197,
        issued_at=T,
    ),
    e.CheckJudged(
        machine_id=4001,
        slot=SLOT,
        kind="start",
        at=T + 20,
        result="failed",
        severity=2,
        reason="launch_failed",
        excluded=False,
        instance_id=1001,
        judged_at=T + 20,
    ),
    e.CheckReclassified(
        machine_id=4001,
        slot=SLOT,
        result="failed",
        severity=1,
        reason="dispute_upheld",
        dispute_id=3,
        reclassified_at=T + 600,
    ),
    e.BenchmarkRecorded(
        machine_id=4001,
        slot=SLOT,
        suite=SUITE,
        measures=dict(REFERENCE),
        scaling_ppm=900_000,
        evidence="agent_reported",
        recorded_at=T,
    ),
    e.GpuSuspected(machine_id=4001, gpu_uuid="GPU-a", reason="xid 63", suspected_at=T),
    e.GpuRestored(machine_id=4001, gpu_uuid="GPU-a", reason="seen in the rack", restored_at=T),
    e.GpuCleared(machine_id=4001, gpu_uuid="GPU-a", slot=SLOT, cleared_at=T),
    e.MachineVerified(machine_id=4001, by="platform", reason="35 of 35 checks", verified_at=T),
    e.MachineDeverified(machine_id=4001, by="platform", reason="gpus: 3, not 4", deverified_at=T),
    e.VerificationReset(machine_id=4001, by="admin", reason="mended", reset_at=T),
    e.CertificationRecorded(
        host_id=9,
        certification_no=1,
        kind="iso27001",
        number="IS 700001",
        issuer="BSI",
        valid_from=T,
        valid_to=T + 31_536_000,
        evidence_hash=HASH,
        recorded_at=T,
    ),
    e.CertificationWithdrawn(host_id=9, certification_no=1, reason="revoked", withdrawn_at=T),
    e.SecureTierChanged(host_id=9, machine_ids=[4001, 4002], secure=True, changed_at=T),
)
"""One fact of every kind about trust."""
