"""Every number of `marketplace.md` §11."""

from __future__ import annotations

from fractions import Fraction
from typing import Any, Literal

import msgspec
import pytest

from ledger.domain.events import MachineSpec
from ledger.domain.hardware import GpuInventory, Inventory
from ledger.domain.reliability import lower_bound
from ledger.domain.verification import (
    CLEAN_SLOTS,
    MIN_LOWER_BOUND,
    Certification,
    CertificationKind,
    Claim,
    Difference,
    Evidence,
    MinimumBars,
    Probed,
    SecureTier,
    Severity,
    Shortfall,
    Stated,
    Verification,
    bars,
    differences,
    is_secure,
    next_state,
    normalised_gpu_name,
    stronger,
    version,
)

UUIDS = ["GPU-a", "GPU-b"]
STATED = Stated(
    gpus=2,
    gpu_name="RTX 4090",
    gpu_ram_gb=24,
    cpu_cores=100,
    ram_gb=100,
    disk_gb=1_000,
    up_mbps=1_000,
    down_mbps=2_000,
    driver="570.133.20",
    cuda="12.8",
    open_ports=20,
    pcie_gen=4,
    pcie_width=16,
    region="SE",
)
GPU = GpuInventory(
    uuid="GPU-a",
    name="NVIDIA GeForce RTX 4090",
    mib=24_564,
    pcie_gen=4,
    pcie_width=16,
    pcie_mb_s=24_000,
)
GPUS = [GPU, msgspec.structs.replace(GPU, uuid="GPU-b")]
FOUND = Inventory(
    cpu_cores=100, ram_mib=96_000, disk_gb=1_000, driver="570.133.20", cuda="12.8", gpus=GPUS
)
PROBED = Probed(up_mbps=1_000, down_mbps=2_000, open_ports=20, region="se", under_load=True)


def found(**changes: Any) -> Inventory:
    """The inventory of the machine, changed."""
    return msgspec.structs.replace(FOUND, **changes)


def gpus(**changes: Any) -> Inventory:
    """The inventory with its second GPU changed."""
    return found(gpus=[GPU, msgspec.structs.replace(GPUS[1], **changes)])


def probed(**changes: Any) -> Probed:
    """What the probes found, changed."""
    return msgspec.structs.replace(PROBED, **changes)


# --- names and versions ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("listed", "driver_says"),
    [
        ("RTX 4090", "NVIDIA GeForce RTX 4090"),
        ("RTX_4090", "NVIDIA GeForce RTX 4090"),
        ("rtx 3080 ti", "NVIDIA GeForce RTX 3080 Ti"),
        ("RTX 3080Ti", "NVIDIA GeForce RTX 3080 Ti"),
        ("GTX 1080 Ti", "GeForce GTX 1080 Ti"),
        ("A100 SXM4", "NVIDIA A100-SXM4-80GB"),
        ("A100 PCIE", "NVIDIA A100 80GB PCIe"),
        ("A100-PCIE-40GB", "NVIDIA A100-PCIE-40GB"),
        ("H100 SXM", "NVIDIA H100 80GB HBM3"),
        ("H100 PCIE", "NVIDIA H100 PCIe"),
        ("H200", "NVIDIA H200"),
        ("V100", "Tesla V100-SXM2-16GB"),
        ("Tesla T4", "Tesla T4"),
        ("RTX 6000Ada", "NVIDIA RTX 6000 Ada Generation"),
        ("RTX 8000", "Quadro RTX 8000"),
        ("RTX 3080 Laptop", "NVIDIA GeForce RTX 3080 Laptop GPU"),
    ],
)
def test_the_same_gpu_has_one_normalised_name(listed: str, driver_says: str) -> None:
    """What hosts write and what drivers report of one model are equal after normalisation."""
    assert normalised_gpu_name(listed) == normalised_gpu_name(driver_says)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("RTX 4090", "RTX 4090 D"),
        ("RTX 4090", "RTX 4080"),
        ("RTX 3080", "RTX 3080 Ti"),
        ("RTX 4070", "RTX 4070 SUPER"),
        ("RTX 3080", "NVIDIA GeForce RTX 3080 Laptop GPU"),
        ("H100 SXM", "NVIDIA H100 PCIe"),
        ("H100 PCIe", "NVIDIA H100 NVL"),
        ("A100", "NVIDIA A100-SXM4-40GB MIG 1g.5gb"),
        ("RTX 5000", "NVIDIA RTX 5000 Ada Generation"),
    ],
)
def test_different_gpus_keep_different_names(one: str, other: str) -> None:
    """What changes the speed of a card is not normalised away."""
    assert normalised_gpu_name(one) != normalised_gpu_name(other)


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("570.133.20", (570, 133, 20)),
        ("12.8", (12, 8)),
        ("12080", (12, 8)),
        ("11080", (11, 8)),
        ("12.0", (12,)),
        ("12", (12,)),
        ("0", ()),
        (None, None),
        ("", None),
        ("unknown", None),
        ("12.x", None),
        ("-1", None),
        ("1.2.3.4.5", None),
    ],
)
def test_versions_are_compared_as_numbers(
    text: str | None, numbers: tuple[int, ...] | None
) -> None:
    """CUDA's integer form is the dotted form, and what is no version is nothing."""
    assert version(text) == numbers


# --- differences ----------------------------------------------------------------------------------


def test_a_machine_that_is_what_it_says_differs_in_nothing() -> None:
    """Equal numbers, and a region in another case, are no difference."""
    assert differences(STATED, FOUND, UUIDS, PROBED) == []


def test_a_registration_is_something_stated() -> None:
    """Every field of a MachineSpec is one of Stated, so a spec can be compared as it is."""
    spec = MachineSpec(
        gpus=2,
        gpu_name="RTX 4090",
        gpu_ram_gb=24,
        cpu_cores=100,
        ram_gb=100,
        disk_gb=1_000,
        up_mbps=1_000,
        down_mbps=2_000,
    )
    stated = msgspec.convert(spec, Stated, from_attributes=True)
    assert msgspec.to_builtins(spec).items() <= msgspec.to_builtins(stated).items()
    assert differences(stated, FOUND, UUIDS, PROBED) == []


def test_what_was_not_measured_contradicts_nothing() -> None:
    """Null everywhere, and no probe at all, give no difference."""
    bare = Inventory(gpus=[GpuInventory(uuid=uuid) for uuid in UUIDS])
    assert differences(STATED, bare, UUIDS) == []
    assert differences(STATED, bare, UUIDS, Probed(under_load=True)) == []


@pytest.mark.parametrize(
    ("inventory", "fields"),
    [
        pytest.param(found(cpu_cores=97), [], id="cores-97-percent"),
        pytest.param(found(cpu_cores=96), ["cpu_cores"], id="cores-96-percent"),
        pytest.param(found(cpu_cores=200), [], id="more-cores"),
        pytest.param(found(ram_mib=92_507), [], id="ram-97-percent"),
        pytest.param(found(ram_mib=92_506), ["ram_mib"], id="ram-just-under-97-percent"),
        pytest.param(found(disk_gb=950), [], id="disk-95-percent"),
        pytest.param(found(disk_gb=949), ["disk_gb"], id="disk-under-95-percent"),
        pytest.param(found(driver="570.133.07"), ["driver"], id="an-older-driver"),
        pytest.param(found(driver="575.51"), [], id="a-newer-driver"),
        pytest.param(found(driver="?"), [], id="a-driver-without-a-version"),
        pytest.param(found(cuda="12.4"), ["cuda"], id="an-older-cuda"),
        pytest.param(found(cuda="12080"), [], id="cuda-as-an-integer"),
        pytest.param(found(cuda="12.10"), [], id="cuda-12.10-is-newer-than-12.8"),
        pytest.param(gpus(name="NVIDIA GeForce RTX 4080"), ["gpu_name"], id="another-model"),
        pytest.param(gpus(name=None), [], id="a-name-not-measured"),
        pytest.param(gpus(uuid="GPU-c"), ["gpu_uuids"], id="another-card"),
        pytest.param(gpus(mib=24_576), [], id="vram-24-gib"),
        pytest.param(gpus(mib=23_028), [], id="vram-of-24-gb-with-ecc"),
        pytest.param(gpus(mib=22_431), [], id="vram-98-percent"),
        pytest.param(gpus(mib=22_430), ["gpu_ram_mib"], id="vram-just-under-98-percent"),
        pytest.param(gpus(mib=25_067), [], id="vram-102-percent"),
        pytest.param(gpus(mib=25_068), ["gpu_ram_mib"], id="vram-just-over-102-percent"),
        pytest.param(gpus(pcie_gen=1), ["pcie_gen"], id="an-older-pcie"),
        pytest.param(gpus(pcie_width=8), ["pcie_width"], id="a-narrower-pcie"),
        pytest.param(gpus(pcie_gen=5), [], id="a-newer-pcie"),
        pytest.param(found(gpus=GPUS[:1]), ["gpus", "gpu_uuids"], id="a-gpu-fewer"),
        pytest.param(found(gpus=[]), ["gpus", "gpu_uuids"], id="no-gpu"),
        pytest.param(found(gpus=[GPU, GPU]), ["gpus", "gpu_uuids"], id="one-card-shown-twice"),
        pytest.param(
            found(gpus=[*GPUS, msgspec.structs.replace(GPU, uuid="GPU-c")]),
            ["gpus", "gpu_uuids"],
            id="a-gpu-more",
        ),
    ],
)
def test_an_inventory_may_differ_within_its_tolerance(
    inventory: Inventory, fields: list[str]
) -> None:
    """Each tolerance of §11.1 ends exactly where it says."""
    assert [one.field for one in differences(STATED, inventory, UUIDS, PROBED)] == fields


@pytest.mark.parametrize(
    ("seen", "fields"),
    [
        pytest.param(probed(up_mbps=800), [], id="up-80-percent"),
        pytest.param(probed(up_mbps=799), ["up_mbps"], id="up-under-80-percent"),
        pytest.param(probed(down_mbps=1_600), [], id="down-80-percent"),
        pytest.param(probed(down_mbps=1_599), ["down_mbps"], id="down-under-80-percent"),
        pytest.param(probed(open_ports=19), ["open_ports"], id="a-port-fewer"),
        pytest.param(probed(region="US"), ["region"], id="another-region"),
        pytest.param(probed(up_mbps=0), ["up_mbps"], id="zero-is-measured"),
    ],
)
def test_probes_may_differ_within_their_tolerance(seen: Probed, fields: list[str]) -> None:
    """Bandwidth may be 20 % below what is stated; ports and region must be as stated."""
    assert [one.field for one in differences(STATED, FOUND, UUIDS, seen)] == fields


def test_an_idle_link_says_nothing() -> None:
    """PCIe generation and width are judged under load only: they drop when idle."""
    idle = gpus(pcie_gen=1, pcie_width=4)
    assert differences(STATED, idle, UUIDS, probed(under_load=False)) == []


@pytest.mark.parametrize(
    ("inventory", "severity"),
    [
        pytest.param(found(gpus=GPUS[:1]), "deverify_at_once", id="fewer-gpus"),
        pytest.param(found(ram_mib=64_000), "deverify_at_once", id="less-ram"),
        pytest.param(gpus(mib=16_384), "deverify_at_once", id="less-gpu-memory"),
        pytest.param(gpus(mib=49_152), "not_verified", id="more-gpu-memory"),
        pytest.param(
            found(gpus=[*GPUS, msgspec.structs.replace(GPU, uuid="GPU-c")]),
            "not_verified",
            id="more-gpus",
        ),
        pytest.param(found(cpu_cores=8), "not_verified", id="fewer-cores"),
        pytest.param(found(disk_gb=8), "not_verified", id="less-disk"),
        pytest.param(gpus(uuid="GPU-c"), "not_verified", id="another-card"),
    ],
)
def test_fewer_gpus_or_less_memory_deverify_at_once(
    inventory: Inventory, severity: Severity
) -> None:
    """The worst of the differences has this severity."""
    severities = {one.severity for one in differences(STATED, inventory, UUIDS, PROBED)}
    assert min(severities) == severity


def test_a_difference_says_what_was_stated_and_what_was_found() -> None:
    """Each names field, stated and found, so that a host can see what to mend."""
    assert differences(STATED, found(gpus=GPUS[:1], cpu_cores=64), UUIDS, PROBED) == [
        Difference("gpus", 2, 1, "deverify_at_once"),
        Difference("gpu_uuids", "GPU-a, GPU-b", "GPU-a", "not_verified"),
        Difference("cpu_cores", 100, 64, "not_verified"),
    ]


# --- minimum bars ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("gib", "mbps"),
    [
        pytest.param(24, "100", id="24-gib"),
        pytest.param(38, "100", id="38-gib-is-98.8"),
        pytest.param(40, "104", id="40-gib"),
        pytest.param(192, "499.2", id="192-gib"),
        pytest.param(640, "500", id="640-gib"),
        pytest.param(0, "100", id="unknown"),
    ],
)
def test_the_bandwidth_bar_follows_gpu_memory(gib: int, mbps: str) -> None:
    """Clamp(2.6 Mbit/s × GiB, 100, 500), exactly."""
    assert MinimumBars().mbps(gib * 1_024) == Fraction(mbps)


@pytest.mark.parametrize(
    ("vram_mib", "ram_mib"),
    [
        pytest.param(24_576, 23_348, id="24-gib"),
        pytest.param(655_360, 622_592, id="640-gib"),
        pytest.param(2_105_263, 2_000_000, id="just-the-cap"),
        pytest.param(16 * 294_912, 2_000_000, id="capped"),
    ],
)
def test_the_ram_bar_is_95_percent_of_gpu_memory_with_a_cap(vram_mib: int, ram_mib: int) -> None:
    """RAM ≥ 95 % of total VRAM, and never more than 2,000,000 MiB are needed."""
    assert MinimumBars().ram_mib(vram_mib) == ram_mib


LEAST_GPU = GpuInventory(uuid="GPU-a", name="RTX 2070", mib=6_676, pcie_mb_s=2_851)
LEAST = Inventory(
    cpu_cores=4,
    ram_mib=12_685,
    disk_gb=256,
    cuda="12.0",
    gpus=[LEAST_GPU, msgspec.structs.replace(LEAST_GPU, uuid="GPU-b")],
)
LEAST_PROBED = Probed(up_mbps=100, down_mbps=100, open_ports=6)


def least(**changes: Any) -> Inventory:
    """The smallest machine that is enough, changed."""
    return msgspec.structs.replace(LEAST, **changes)


def least_gpus(**changes: Any) -> Inventory:
    """The smallest machine with its second GPU changed."""
    return least(gpus=[LEAST_GPU, msgspec.structs.replace(LEAST.gpus[1], **changes)])


def test_the_smallest_machine_is_enough() -> None:
    """Every bar is met by its own number: 12.0, 3 ports, over 2.85 GB/s, 7 GB, 2 cores, 128 GB."""
    assert bars("verify", LEAST, LEAST_PROBED) == []
    assert bars("list", LEAST, LEAST_PROBED) == []


@pytest.mark.parametrize(
    ("inventory", "seen", "missed"),
    [
        pytest.param(
            least(cpu_cores=3), LEAST_PROBED, Shortfall("cpu_cores", 4, 3), id="cores-per-gpu"
        ),
        pytest.param(
            least(ram_mib=12_684), LEAST_PROBED, Shortfall("ram_mib", 12_685, 12_684), id="ram"
        ),
        pytest.param(
            least(disk_gb=255), LEAST_PROBED, Shortfall("disk_gb", 256, 255), id="disk-per-gpu"
        ),
        pytest.param(
            least_gpus(pcie_mb_s=2_850),
            LEAST_PROBED,
            Shortfall("pcie_mb_s", 2_851, 2_850),
            id="pcie-must-be-over-2.85",
        ),
        pytest.param(
            least_gpus(mib=6_675),
            LEAST_PROBED,
            Shortfall("gpu_ram_mib", 6_676, 6_675),
            id="gpu-memory-of-the-smallest",
        ),
        pytest.param(
            LEAST,
            Probed(up_mbps=99, down_mbps=100, open_ports=6),
            Shortfall("up_mbps", 100, 99),
            id="up",
        ),
        pytest.param(
            LEAST,
            Probed(up_mbps=100, down_mbps=99, open_ports=6),
            Shortfall("down_mbps", 100, 99),
            id="down",
        ),
        pytest.param(
            LEAST,
            Probed(up_mbps=100, down_mbps=100, open_ports=5),
            Shortfall("open_ports", 6, 5),
            id="ports-per-gpu",
        ),
        pytest.param(
            least_gpus(name="RTX 2080"),
            LEAST_PROBED,
            Shortfall("gpus_alike", "one kind of GPU", "RTX 2070 6676 MiB, RTX 2080 6676 MiB"),
            id="two-models",
        ),
        pytest.param(
            least_gpus(name=None),
            LEAST_PROBED,
            Shortfall("gpus_alike", "one kind of GPU", "RTX 2070 6676 MiB"),
            id="a-model-not-known",
        ),
    ],
)
def test_one_below_the_bar_is_a_shortfall(
    inventory: Inventory, seen: Probed, missed: Shortfall
) -> None:
    """Each bar alone stops a machine, to list and to verify, and says what is needed."""
    assert bars("verify", inventory, seen) == [missed]
    assert bars("list", inventory, seen) == [missed]


@pytest.mark.parametrize(
    ("cuda", "purpose", "missed"),
    [
        pytest.param("11.7", "list", [Shortfall("cuda", "11.8", "11.7")], id="list-11.7"),
        pytest.param("11.8", "list", [], id="list-11.8"),
        pytest.param("11.8", "verify", [Shortfall("cuda", "12.0", "11.8")], id="verify-11.8"),
        pytest.param("12.0", "verify", [], id="verify-12.0"),
        pytest.param("12000", "verify", [], id="verify-12000"),
        pytest.param(None, "list", [Shortfall("cuda", "11.8", None)], id="list-unknown"),
    ],
)
def test_verifying_needs_a_newer_cuda_than_listing(
    cuda: str | None, purpose: Literal["list", "verify"], missed: list[Shortfall]
) -> None:
    """CUDA ≥ 11.8 to list, ≥ 12.0 to verify; unknown blocks the listing."""
    assert bars(purpose, least(cuda=cuda), LEAST_PROBED) == missed


def test_cards_of_one_name_with_different_memory_are_not_alike() -> None:
    """A 3 GB and a 6 GB version of one card are two kinds."""
    missed = bars("verify", least_gpus(mib=8_192), LEAST_PROBED)
    assert [one.bar for one in missed] == ["ram_mib", "gpus_alike"]


def test_what_was_not_measured_meets_no_bar() -> None:
    """An empty inventory misses every bar but those that follow from having GPUs, with null."""
    missed = bars("verify", Inventory(gpus=[GpuInventory(uuid="GPU-a")]))
    assert [(one.bar, one.found) for one in missed] == [
        ("cuda", None),
        ("open_ports", None),
        ("pcie_mb_s", None),
        ("gpu_ram_mib", None),
        ("cpu_cores", None),
        ("ram_mib", None),
        ("disk_gb", None),
        ("up_mbps", None),
        ("down_mbps", None),
    ]


def test_one_unmeasured_gpu_leaves_the_worst_unknown() -> None:
    """The worst GPU counts, and a GPU that was not measured might be worse than the others."""
    assert Shortfall("pcie_mb_s", 2_851, None) in bars(
        "verify", least_gpus(pcie_mb_s=None), LEAST_PROBED
    )


def test_a_machine_without_gpus_is_not_enough() -> None:
    """Needs per GPU are 0 without one, so having none is a shortfall of its own."""
    assert Shortfall("gpus", 1, 0) in bars("list", least(gpus=[]), LEAST_PROBED)


def test_the_bars_are_policy() -> None:
    """Other minima give other shortfalls."""
    strict = MinimumBars(cuda_to_list="13.0", mbps_least=1_000, mbps_most=1_000)
    missed = bars("list", LEAST, LEAST_PROBED, strict)
    assert [one.bar for one in missed] == ["cuda", "up_mbps", "down_mbps"]


# --- the state of a machine -----------------------------------------------------------------------

AT_ONCE = [Difference("gpus", 2, 1, "deverify_at_once")]
LASTING = [Difference("up_mbps", 1_000, 700, "not_verified")]
SHORT = [Shortfall("open_ports", 6, 5)]
GOOD: dict[str, Any] = {
    "differences": [],
    "shortfalls": [],
    "clean_slots": 100,
    "lower_bound": 0.95,
    "n": 100,
}


@pytest.mark.parametrize(
    ("state", "changes", "after"),
    [
        pytest.param("unverified", {}, "verified", id="earned"),
        pytest.param("unverified", {"lower_bound": 0.90}, "verified", id="bound-just-enough"),
        pytest.param("unverified", {"lower_bound": 0.8999}, "unverified", id="bound-too-low"),
        pytest.param("unverified", {"n": 12}, "verified", id="twelve-checks"),
        pytest.param("unverified", {"n": 11}, "unverified", id="eleven-checks"),
        pytest.param("unverified", {"differences": LASTING}, "unverified", id="a-difference"),
        pytest.param("unverified", {"differences": AT_ONCE}, "unverified", id="a-gpu-missing"),
        pytest.param("unverified", {"shortfalls": SHORT}, "unverified", id="a-bar-missed"),
        pytest.param("unverified", {"clean_slots": 0}, "verified", id="one-failed-slot"),
        pytest.param("verified", {}, "verified", id="stays"),
        pytest.param("verified", {"differences": AT_ONCE}, "deverified", id="at-once"),
        pytest.param("verified", {"differences": LASTING}, "verified", id="not-at-once"),
        pytest.param(
            "verified",
            {"differences": LASTING, "clean_slots": 0},
            "deverified",
            id="when-a-slot-ended-with-a-difference",
        ),
        pytest.param(
            "verified",
            {"shortfalls": SHORT, "clean_slots": 0},
            "deverified",
            id="when-a-slot-ended-below-a-bar",
        ),
        pytest.param("verified", {"clean_slots": 0}, "verified", id="a-failed-check-alone"),
        pytest.param("verified", {"lower_bound": 0.89}, "deverified", id="bound-fell"),
        pytest.param("verified", {"lower_bound": 0.5, "n": 11}, "verified", id="not-judged-yet"),
        pytest.param("verified", {"lower_bound": 0.5, "n": 12}, "deverified", id="judged-from-12"),
        pytest.param("deverified", {"clean_slots": 11}, "deverified", id="eleven-clean-slots"),
        pytest.param("deverified", {"clean_slots": 12}, "unverified", id="twelve-clean-slots"),
        pytest.param(
            "deverified", {"clean_slots": 12, "lower_bound": 0.1}, "unverified", id="bound-later"
        ),
        pytest.param("deverified", {"differences": LASTING}, "deverified", id="differs-again"),
        pytest.param("deverified", {"shortfalls": SHORT}, "deverified", id="below-a-bar-again"),
    ],
)
def test_a_machine_moves_through_its_states_by_itself(
    state: Verification, changes: dict[str, Any], after: Verification
) -> None:
    """Unverified → verified → deverified → unverified, one step at a time, for these reasons."""
    assert next_state(state, **(GOOD | changes)) == after


@pytest.mark.parametrize("state", ["unverified", "verified", "deverified"])
def test_an_admin_may_verify_by_hand(state: Verification) -> None:
    """The admin's word stands in for record, bars and tolerances."""
    poor = {"differences": LASTING, "shortfalls": SHORT, "clean_slots": 0, "lower_bound": 0.0}
    assert next_state(state, **(GOOD | poor), by_admin=True) == "verified"


@pytest.mark.parametrize(
    ("state", "after"),
    [("unverified", "unverified"), ("verified", "deverified"), ("deverified", "deverified")],
)
def test_an_admin_cannot_vouch_for_a_gpu_that_is_missing(
    state: Verification, after: Verification
) -> None:
    """Fewer GPUs or less memory than listed deverify whoever verified the machine."""
    assert next_state(state, **(GOOD | {"differences": AT_ONCE}), by_admin=True) == after


def test_a_new_machine_earns_its_verification_with_the_thirty_fifth_pass() -> None:
    """34 passes out of 34 give a bound below 0.90, 35 of 35 one above: just under three hours."""
    states = [
        next_state("unverified", **(GOOD | {"n": n, "lower_bound": lower_bound(n, n)}))
        for n in range(36)
    ]
    assert states == ["unverified"] * 35 + ["verified"]
    assert (CLEAN_SLOTS, MIN_LOWER_BOUND) == (12, 0.90)


# --- evidence -------------------------------------------------------------------------------------


def test_evidence_is_ordered_from_a_word_to_an_attestation() -> None:
    """The five levels in the order of the rule book, under the names that facts record."""
    names = [
        "self_reported",
        "agent_reported",
        "kernel_corroborated",
        "platform_challenged",
        "hardware_attested",
    ]
    assert [level.value for level in sorted(Evidence, reverse=True)] == names[::-1]
    assert Evidence.SELF_REPORTED < Evidence.AGENT_REPORTED <= Evidence.AGENT_REPORTED
    assert Evidence.HARDWARE_ATTESTED > Evidence.PLATFORM_CHALLENGED
    assert not Evidence.HARDWARE_ATTESTED <= Evidence.PLATFORM_CHALLENGED
    assert msgspec.json.encode(Evidence.SELF_REPORTED) == b'"self_reported"'


@pytest.mark.parametrize("order", [1, -1])
@pytest.mark.parametrize(
    ("weak_at", "strong_at"),
    [pytest.param(2, 1, id="the-weaker-is-newer"), pytest.param(1, 2, id="the-stronger-is-newer")],
)
def test_a_contradiction_at_a_higher_level_wins(weak_at: int, strong_at: int, order: int) -> None:
    """Eight GPUs by the agent's word against one found by a challenge: it is one."""
    agent = Claim(8, Evidence.AGENT_REPORTED, weak_at)
    challenge = Claim(1, Evidence.PLATFORM_CHALLENGED, strong_at)
    assert stronger(*(agent, challenge)[::order]) == challenge


def test_a_fact_gets_no_higher_level_by_age() -> None:
    """A claim repeated for years keeps its level and does not outweigh one challenge."""
    claims = [Claim(8, Evidence.AGENT_REPORTED, day) for day in range(1_000)]
    held = claims[0]
    for claim in claims:
        held = stronger(held, claim)
    assert held == claims[-1]
    assert held.level is Evidence.AGENT_REPORTED
    challenge = Claim(1, Evidence.KERNEL_CORROBORATED, 0)
    assert stronger(held, challenge) == challenge


def test_of_one_level_the_later_claim_holds() -> None:
    """A newer report replaces an older one; of one second the first stays."""
    first, later = Claim(8, Evidence.AGENT_REPORTED, 1), Claim(7, Evidence.AGENT_REPORTED, 2)
    assert stronger(first, later) == stronger(later, first) == later
    assert stronger(first, first._replace(value=9)) == first


# --- the secure tier ------------------------------------------------------------------------------


def papers(*kinds: CertificationKind, until: int | None = None) -> list[Certification]:
    """These certifications, valid from 100 on."""
    return [Certification(kind, 100, until) for kind in kinds]


ORGANISATION = papers("business_registration", "identity_check", "agreement")
ISO = papers("iso27001", until=1_000)
TIER3 = papers("tier3", until=2_000)
TIER4 = papers("tier4", until=3_000)


@pytest.mark.parametrize(
    ("certifications", "requires_iso", "holds", "lapses_at"),
    [
        pytest.param(ORGANISATION + ISO, False, True, 1_000, id="iso-27001"),
        pytest.param(ORGANISATION + TIER3, False, True, 2_000, id="tier-3"),
        pytest.param(ORGANISATION + TIER4, False, True, 3_000, id="tier-4"),
        pytest.param(ORGANISATION + ISO + TIER3, False, True, 2_000, id="until-the-last-of-two"),
        pytest.param(ORGANISATION + ISO + TIER3, True, True, 1_000, id="iso-and-iso-required"),
        pytest.param(ORGANISATION + TIER4, True, False, None, id="tier-4-and-iso-required"),
        pytest.param(ORGANISATION, False, False, None, id="no-facility"),
        pytest.param(ORGANISATION[1:] + ISO, False, False, None, id="no-registered-business"),
        pytest.param(ORGANISATION[:1] + ORGANISATION[2:] + ISO, False, False, None, id="no-id"),
        pytest.param(ORGANISATION[:2] + ISO, False, False, None, id="no-agreement"),
        pytest.param(ORGANISATION + papers("iso27001"), False, True, None, id="nothing-expires"),
        pytest.param(
            [*papers("agreement", until=700), *ORGANISATION[:2], *ISO],
            False,
            True,
            700,
            id="the-agreement-ends-first",
        ),
        pytest.param(
            [*ORGANISATION, *ISO, Certification("iso27001", 1_000, 1_500)],
            True,
            True,
            1_500,
            id="renewed-to-the-second",
        ),
        pytest.param(
            [*ORGANISATION, *ISO, Certification("iso27001", 1_001, 1_500)],
            True,
            True,
            1_000,
            id="renewed-a-second-late",
        ),
    ],
)
def test_the_secure_tier_needs_papers_that_are_valid(
    certifications: list[Certification], requires_iso: bool, holds: bool, lapses_at: int | None
) -> None:
    """ISO or a Tier 3/4 facility, business, identity, agreement; it lapses at the breaking end."""
    tier = is_secure(certifications, 5, 500, requires_iso=requires_iso)
    assert tier == SecureTier(holds, lapses_at)


@pytest.mark.parametrize(("machines", "holds"), [(4, False), (5, True), (500, True)])
def test_the_secure_tier_needs_five_machines(machines: int, holds: bool) -> None:
    """Four machines are not enough whatever the papers say."""
    assert is_secure(ORGANISATION + ISO, machines, 500).holds is holds


@pytest.mark.parametrize(
    ("at", "holds"), [(99, False), (100, True), (999, True), (1_000, False), (5_000, False)]
)
def test_a_certification_is_valid_from_its_first_second_to_before_its_last(
    at: int, holds: bool
) -> None:
    """Valid in [valid_from, valid_to), judged at that very second."""
    assert is_secure(ORGANISATION + ISO, 5, at).holds is holds


def test_the_second_of_the_lapse_is_the_first_without_the_tier() -> None:
    """The tier holds up to the second before `lapses_at` and not at it."""
    certifications = ORGANISATION + ISO + TIER3
    lapses_at = is_secure(certifications, 5, 500).lapses_at
    assert lapses_at is not None
    assert is_secure(certifications, 5, lapses_at - 1).holds
    assert not is_secure(certifications, 5, lapses_at).holds
