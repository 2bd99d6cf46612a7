"""Machines, their keys and listings: what those facts change."""

from __future__ import annotations

from collections.abc import Iterator

from ledger.domain import events as e
from ledger.projections.facts.change import Change, counted
from ledger.projections.facts.market import refreshed
from ledger.projections.facts.trust import inventory_changes


def machine_changes(fact: e.MachineFact, position: int) -> Iterator[Change]:
    """Machines as registered, enrolled, listed and heard of."""
    match fact:
        case e.MachineRegistered():
            spec = fact.spec
            yield Change(
                "INSERT INTO machines (machine_id, host_id, gpus, gpu_name, gpu_ram_gb, cpu_cores,"
                " ram_gb, disk_gb, up_mbps, down_mbps, registered_at, desired_version)"
                " VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s)",
                (
                    fact.machine_id,
                    fact.host_id,
                    spec.gpus,
                    spec.gpu_name,
                    spec.gpu_ram_gb,
                    spec.cpu_cores,
                    spec.ram_gb,
                    spec.disk_gb,
                    spec.up_mbps,
                    spec.down_mbps,
                    fact.registered_at,
                    position,
                ),
            )
            yield Change(
                "INSERT INTO machine_standing (machine_id, verification) VALUES (%s, 'unverified')",
                (fact.machine_id,),
            )
            yield counted("machine", fact.machine_id)
        case e.MachineEnrolled():
            yield Change(
                "INSERT INTO machine_keys (machine_id, key_id, public_key, enrolled_at)"
                " VALUES (%s, %s, %s, %s)",
                (
                    fact.machine_id,
                    fact.key_id,
                    bytes.fromhex(fact.public_key),
                    fact.enrolled_at,
                ),
            )
            yield Change(
                "UPDATE machines SET enrolled_at = coalesce(enrolled_at, %s) WHERE machine_id = %s",
                (fact.enrolled_at, fact.machine_id),
            )
            for slot, gpu_uuid in enumerate(fact.gpu_uuids):
                yield Change(
                    "INSERT INTO gpus (gpu_no, gpu_uuid, machine_id, slot)"
                    " VALUES ((SELECT coalesce(max(gpu_no), 0) + 1 FROM gpus), %s, %s, %s)"
                    " ON CONFLICT (gpu_uuid) DO NOTHING",
                    (gpu_uuid, fact.machine_id, slot),
                )
            if fact.inventory is not None:
                yield from inventory_changes(
                    fact.machine_id, fact.inventory, "agent_reported", fact.enrolled_at
                )
        case e.MachineKeyRevoked():
            yield Change(
                "UPDATE machine_keys SET revoked_at = %s WHERE machine_id = %s AND key_id = %s",
                (fact.revoked_at, fact.machine_id, fact.key_id),
            )
        case e.MachineListed():
            yield _unlist(fact.machine_id, fact.listed_at)
            yield Change(
                "INSERT INTO listings VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, NULL)",
                (
                    fact.listing_id,
                    fact.machine_id,
                    fact.gpu_rate_per_gpu,
                    fact.storage_rate,
                    fact.up_rate,
                    fact.down_rate,
                    fact.min_bid_per_gpu,
                    fact.min_gpus,
                    fact.until,
                    fact.reserved_discount_max_bp,
                    fact.listed_at,
                ),
            )
            yield Change(
                "UPDATE machines SET listing_id = %s, floor = %s WHERE machine_id = %s",
                (fact.listing_id, fact.min_bid_per_gpu, fact.machine_id),
            )
            if fact.min_bid_per_gpu is None:
                yield Change("DELETE FROM smallest_bids WHERE machine_id = %s", (fact.machine_id,))
            yield _close_offers(fact.machine_id, fact.listed_at)
            yield refreshed(fact.machine_id)
            yield counted("listing", fact.listing_id)
        case e.MachineUnlisted():
            yield _unlist(fact.machine_id, fact.unlisted_at)
            yield Change(
                "UPDATE machines SET listing_id = NULL WHERE machine_id = %s", (fact.machine_id,)
            )
            yield _close_offers(fact.machine_id, fact.unlisted_at)
            yield refreshed(fact.machine_id)
        case e.MachineBooted():
            yield Change(
                "UPDATE machines SET boot_id = %s WHERE machine_id = %s",
                (fact.boot_id, fact.machine_id),
            )
        case e.AgentEpochOpened():
            yield Change(
                "INSERT INTO machine_epochs VALUES (%s, %s, %s, %s)",
                (fact.machine_id, fact.epoch, fact.opened_at, position),
            )
        case e.MachineWentOffline():
            yield Change(
                "UPDATE machines SET offline_since = %s WHERE machine_id = %s",
                (fact.offline_at, fact.machine_id),
            )
            yield refreshed(fact.machine_id)
        case e.MachineCameOnline():
            yield Change(
                "UPDATE machines SET offline_since = NULL WHERE machine_id = %s", (fact.machine_id,)
            )
            yield refreshed(fact.machine_id)
        case e.EnrolmentOffered() | e.AgentEquivocated():
            return


def _unlist(machine_id: int, at: int) -> Change:
    return Change(
        "UPDATE listings SET unlisted_at = %s WHERE machine_id = %s AND unlisted_at IS NULL",
        (at, machine_id),
    )


def _close_offers(machine_id: int, at: int) -> Change:
    return Change(
        "UPDATE offers SET closed_at = %s WHERE machine_id = %s AND closed_at IS NULL",
        (at, machine_id),
    )
