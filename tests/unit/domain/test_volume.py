"""The life of a volume: what each wish makes of each state."""

from __future__ import annotations

import pytest

from ledger.domain.events import (
    Terms,
    VolumeAttached,
    VolumeCreated,
    VolumeDestroyed,
    VolumeExpired,
    VolumeLifeFact,
)
from ledger.domain.volume import (
    AttachVolume,
    DestroyVolume,
    ExpireVolume,
    check_mount_path,
    decide,
    evolve,
    fold,
)
from ledger.errors import LedgerError, RejectedError

NOW = 1_772_359_260
CREATED = VolumeCreated(
    volume_id=7,
    account_id=1,
    machine_id=4,
    host_id=2,
    volume_offer_id=3,
    disk_bytes=30_000_000_000,
    terms=Terms(
        kind="volume", gpu_rate=0, storage_rate=150_000_000, up_rate=0, down_rate=0, fee_bp=1_500
    ),
    until=NOW + 60,
    name=None,
    cloned_from=None,
    policy_version=1,
    created_at=NOW - 60,
)
ATTACHED = VolumeAttached(volume_id=7, instance_id=8, mount_path="/data", attached_at=NOW)
EXPIRED = VolumeExpired(volume_id=7, expired_at=NOW)
DESTROYED = VolumeDestroyed(volume_id=7, by="renter", reason=None, destroyed_at=NOW)
STATES: dict[str, list[VolumeLifeFact]] = {
    "active": [CREATED, ATTACHED],
    "expired": [CREATED, EXPIRED],
    "destroyed": [CREATED, EXPIRED, DESTROYED],
}


@pytest.mark.parametrize("status", STATES)
def test_facts_fold_to_the_state_they_tell(status: str) -> None:
    """Contract and size stay as created; only the state changes."""
    volume = fold(STATES[status])
    assert volume.status == status
    assert (volume.account_id, volume.machine_id, volume.host_id) == (1, 4, 2)
    assert (volume.disk_bytes, volume.terms, volume.until) == (30 * 10**9, CREATED.terms, NOW + 60)


def test_a_stream_begins_with_the_creation() -> None:
    """A volume cannot be folded from anything that happened to it later."""
    with pytest.raises(AssertionError):
        evolve(None, DESTROYED)


@pytest.mark.parametrize(
    ("status", "code"),
    [("active", None), ("expired", "contract_expired"), ("destroyed", "no_such_volume")],
)
def test_only_a_contract_in_force_serves_an_instance(status: str, code: str | None) -> None:
    """An expired volume is refused and a destroyed one not found."""
    volume = fold(STATES[status])
    wish = AttachVolume(8, "/data")
    if code is None:
        assert decide(volume, wish, NOW) == [ATTACHED]
    else:
        with pytest.raises(LedgerError) as error:
            decide(volume, wish, NOW)
        assert error.value.code == code


@pytest.mark.parametrize(
    ("status", "facts"), [("active", [EXPIRED]), ("expired", []), ("destroyed", [])]
)
def test_a_contract_ends_once(status: str, facts: list[VolumeLifeFact]) -> None:
    """The end date changes nothing that has ended already."""
    assert decide(fold(STATES[status]), ExpireVolume(), NOW) == facts


@pytest.mark.parametrize("status", STATES)
def test_destroying_again_changes_nothing(status: str) -> None:
    """Whatever its state, a volume is destroyed by one fact that names who did it and why."""
    facts = decide(fold(STATES[status]), DestroyVolume("admin", "abuse"), NOW)
    if status == "destroyed":
        assert facts == []
    else:
        assert facts == [VolumeDestroyed(volume_id=7, by="admin", reason="abuse", destroyed_at=NOW)]


@pytest.mark.parametrize("path", ["/data", "/mnt/a-b_c.d/1", "/" + "x" * 64, "/x" * 16])
def test_a_plain_absolute_folder_is_a_mount_path(path: str) -> None:
    """Letters, digits, dots, lines and up to sixteen folders."""
    check_mount_path(path)


@pytest.mark.parametrize("path", ["/x" * 17, "/a:ro", "/a,b", "/ä", "/a\n", "/$HOME", "/a//b"])
def test_what_an_engine_could_read_otherwise_is_no_mount_path(path: str) -> None:
    """Separators of mount options, variables and anything outside ASCII are refused."""
    with pytest.raises(RejectedError):
        check_mount_path(path)
