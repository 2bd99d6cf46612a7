"""One fact of every kind of the core: accounts, machines, instances, documents, usage."""

from __future__ import annotations

from typing import Final

from ledger.domain import events as e
from ledger.domain.hardware import GpuInventory, Inventory

T: Final = 1_798_761_600
EPOCH: Final = "9f2c" * 8
HASH: Final = "ab" * 32

TERMS: Final = e.Terms(
    kind="on_demand",
    gpu_rate=400_000_000,
    storage_rate=150_000_000,
    up_rate=3_000_000,
    down_rate=3_000_000,
    fee_bp=1_500,
)
LINE: Final = e.InvoiceLine(
    instance_id=1001,
    meter="gpu",
    segment_from=T,
    kind="on_demand",
    rate=400_000_000,
    quantity=3_600,
    amount=400_000_000,
    late=False,
    period_from=T,
    used_from=T,
    used_until=T + 3_625,
)
CORE: Final[tuple[e.AnyFact, ...]] = (
    e.PolicyAdopted(
        version=1,
        fee_bp=1_500,
        late_usage_seconds=259_200,
        admission=True,
        offline_after_seconds=60,
        admit_waiting_bids=False,
        displacement_margin=0,
        compensation="none",
        secure_requires_iso=False,
        adopted_at=T,
    ),
    e.AccountOpened(
        account_id=7, subject="s-7", name_hash="hmac:00ff", currency="USD", opened_at=T
    ),
    e.SubjectErased(account_id=7, subject="s-7", erased_at=T),
    e.ApiKeyCreated(key_id="k1", account_id=7, role="renter", expires_at=None, created_at=T),
    e.ApiKeyRevoked(key_id="k1", account_id=7, revoked_at=T),
    e.DepositSettled(
        account_id=7, deposit_id="d1", amount=10_000_000_000, source="card", settled_at=T
    ),
    e.PromotionGranted(
        account_id=7,
        grant_id="welcome",
        amount=5_000_000_000,
        reason="welcome",
        expires_at=T + 2_592_000,
        granted_at=T,
    ),
    e.PromotionRevoked(account_id=7, grant_id="welcome", reason="abuse", revoked_at=T + 60),
    e.PromotionClosed(
        account_id=7,
        grant_id="welcome",
        unspent=4_000_000_000,
        cause="revoked",
        valid_until=T + 60,
        closed_at=T + 259_260,
    ),
    e.CreditRefunded(
        account_id=7, refund_id="r1", deposit_id="d1", amount=1_000_000_000, refunded_at=T
    ),
    e.CreditTransferred(
        transfer_id="t1", from_account_id=7, to_account_id=8, amount=10_000_000, transferred_at=T
    ),
    e.HoldPlaced(
        account_id=7, hold_id="h1", amount=5_000_000_000, expires_at=T + 604_800, placed_at=T
    ),
    e.HoldCaptured(account_id=7, hold_id="h1", amount=5_000_000_001, captured_at=T),
    e.HoldReleased(account_id=7, hold_id="h1", released_at=T),
    e.HoldExpired(account_id=7, hold_id="h1", expired_at=T + 604_800),
    e.AccountExhausted(
        account_id=7,
        dry_at=T + 601,
        stopped_at=T + 601,
        available=-16_666_550,
        debt_limit=1_000_000_000,
    ),
    e.AccountRestored(account_id=7, restored_at=T),
    e.StorageDebtNoticed(account_id=7, number=3, debt=3_000_000_000, noticed_at=T + 259_200),
    e.StorageDebtCleared(account_id=7, cleared_at=T),
    e.PeriodClosed(
        account_id=7, period_from=T, period_until=T + 2_678_400, closed_at=T + 2_682_000
    ),
    e.InvoiceIssued(
        account_id=7,
        number="USE-000001",
        period_from=T,
        period_until=T + 2_678_400,
        opening=0,
        movements=10_000_000_000,
        total=400_000_000,
        closing=9_600_000_000,
        paid=400_000_000,
        lines=[LINE],
        issued_at=T + 2_682_000,
    ),
    e.NoticeIssued(account_id=7, code="low_balance_24h", about="runway 86399 s", issued_at=T),
    e.MachineRegistered(
        machine_id=4001,
        host_id=9,
        spec=e.MachineSpec(
            gpus=2,
            gpu_name="RTX 4090",
            gpu_ram_gb=24,
            cpu_cores=64,
            ram_gb=256,
            disk_gb=2_000,
            up_mbps=1_000,
            down_mbps=1_000,
        ),
        registered_at=T,
    ),
    e.EnrolmentOffered(machine_id=4001, expires_at=T + 3_600, offered_at=T),
    e.MachineEnrolled(
        machine_id=4001,
        key_id="66687aadf862bd77",
        public_key="00" * 32,
        gpu_uuids=["GPU-a", "GPU-b"],
        inventory=Inventory(
            cpu_name="EPYC",
            gpus=[GpuInventory(uuid="GPU-a", mib=24_576)],
            measured={"cpu_name": "os"},
        ),
        enrolled_at=T,
    ),
    e.MachineKeyRevoked(machine_id=4001, key_id="66687aadf862bd77", reason="rotated", revoked_at=T),
    e.MachineListed(
        machine_id=4001,
        listing_id=1,
        gpu_rate_per_gpu=200_000_000,
        storage_rate=150_000_000,
        up_rate=3_000_000,
        down_rate=3_000_000,
        min_bid_per_gpu=None,
        min_gpus=1,
        until=None,
        reserved_discount_max_bp=4_000,
        listed_at=T,
    ),
    e.MachineUnlisted(machine_id=4001, unlisted_at=T),
    e.MachineBooted(machine_id=4001, boot_id="b2", booted_at=T),
    e.AgentEpochOpened(machine_id=4001, epoch=EPOCH, opened_at=T),
    e.AgentEquivocated(
        machine_id=4001,
        epoch=EPOCH,
        seq=184,
        first_hash=HASH,
        second_hash="cd" * 32,
        second_body=b"\x80",
        second_signature=bytes(64),
        equivocated_at=T,
    ),
    e.MachineWentOffline(machine_id=4001, last_report_at=T, offline_at=T + 60),
    e.MachineCameOnline(machine_id=4001, online_at=T),
    e.InstanceCreated(
        instance_id=1001,
        account_id=7,
        machine_id=4001,
        host_id=9,
        listing_id=1,
        offer_id=12,
        gpus=2,
        disk_bytes=100_000_000_000,
        terms=TERMS,
        bid=None,
        until=T + 31_536_000,
        label="train-7",
        launch="s-7/launch-1001",
        launch_hash="hmac:00ff",
        policy_version=1,
        reason="new",
        created_at=T,
    ),
    e.InstanceStartRequested(instance_id=1001, requested_at=T),
    e.GpusAssigned(
        instance_id=1001,
        assignment_no=1,
        slots=[0, 1],
        gpu_uuids=["GPU-a", "GPU-b"],
        assigned_at=T,
    ),
    e.InstanceRunning(
        instance_id=1001,
        assignment_no=1,
        gpu_from=T + 25,
        observed_at=T + 25,
        confirmed_at=T + 27,
    ),
    e.InstanceRan(
        instance_id=1001, assignment_no=1, gpu_from=T + 25, gpu_until=T + 60, confirmed_at=T + 70
    ),
    e.InstanceBootChanged(instance_id=1001, boot_id="b2", gpu_until=T + 100, changed_at=T + 150),
    e.InstanceRebooted(instance_id=1001, rebooted_at=T),
    e.InstanceStopped(
        instance_id=1001,
        reason="container_exit",
        exit_code=137,
        stopped_at=T + 3_625,
        decided_at=T + 3_630,
    ),
    e.InstanceDisplaced(instance_id=1001, reason="outbid", displaced_at=T),
    e.InstanceExpired(instance_id=1001, expired_at=T),
    e.InstanceDiskLost(instance_id=1001, lost_at=T),
    e.InstanceDestroyed(instance_id=1001, by="renter", reason=None, destroyed_at=T + 3_685),
    e.InstanceLabelled(instance_id=1001, label=None, labelled_at=T),
    e.ObservationIgnored(
        instance_id=1001,
        machine_id=4001,
        assignment_no=1,
        state="running",
        why="it names another assignment",
        observed_at=T + 9,
        ignored_at=T + 11,
    ),
    e.UsageGapRecorded(
        instance_id=1001,
        machine_id=4001,
        gap_from=T + 300,
        gap_until=T + 310,
        recorded_at=T + 259_600,
    ),
    e.UsageRejected(
        machine_id=4001,
        epoch=EPOCH,
        seq=185,
        code="bad_columns",
        reason="the columns of instance 1001 do not have 6 values each",
        body=b"\x81\xa1v\x01",
        rejected_at=T,
    ),
    e.UsageForked(
        machine_id=4001,
        epoch=EPOCH,
        seq=186,
        expected_prev=HASH,
        body=b"\x81\xa1v\x01",
        forked_at=T,
    ),
)
"""One fact of every kind that the core has."""
