"""Volumes and what is offered of them: what those facts change."""

from __future__ import annotations

from collections.abc import Iterator

from ledger.domain import events as e
from ledger.projections.facts.change import Change, counted
from ledger.projections.facts.contracts import agreed
from ledger.projections.facts.market import REFRESH_OF_CONTRACT, refreshed

_OF = "(SELECT machine_id FROM volumes WHERE volume_id = %s)"


def volume_changes(fact: e.VolumeFact, position: int) -> Iterator[Change]:
    """Offers with what is left of them, volumes, and what their accounts burn."""
    match fact:
        case e.VolumeOffered():
            yield Change(
                "INSERT INTO volume_offers (volume_offer_id, machine_id, host_id, disk_gb, left_gb,"
                " storage_rate, until, offered_at) VALUES (%s, %s, %s, %s, %s, %s, %s, %s)",
                (
                    fact.volume_offer_id,
                    fact.machine_id,
                    fact.host_id,
                    fact.disk_gb,
                    fact.disk_gb,
                    fact.storage_rate,
                    fact.until,
                    fact.offered_at,
                ),
            )
            yield counted("volume_offer", fact.volume_offer_id)
            yield _left("%s", fact.machine_id)
            yield refreshed(fact.machine_id)
        case e.VolumeOfferClosed():
            yield Change(
                "UPDATE volume_offers SET closed_at = %s, reason = %s, left_gb = 0"
                " WHERE volume_offer_id = %s",
                (fact.closed_at, fact.reason, fact.volume_offer_id),
            )
            yield refreshed(fact.machine_id)
        case e.VolumeCreated():
            yield from _created(fact, position)
        case e.VolumeAttached():
            yield Change(
                "INSERT INTO volume_attachments VALUES (%s, %s, %s, %s)",
                (fact.volume_id, fact.instance_id, fact.mount_path, fact.attached_at),
            )
            yield _desired(fact.volume_id, position)
        case e.VolumeExpired():
            yield Change(
                "UPDATE volumes SET status = 'expired', expired_at = %s WHERE volume_id = %s",
                (fact.expired_at, fact.volume_id),
            )
        case e.VolumeDestroyed():
            yield Change(
                "UPDATE volumes SET status = 'destroyed', destroyed_at = %s WHERE volume_id = %s",
                (fact.destroyed_at, fact.volume_id),
            )
            yield Change(
                "UPDATE account_credit c SET storage_product = c.storage_product"
                " - v.storage_rate * v.disk_bytes FROM volumes v"
                " WHERE v.volume_id = %s AND c.account_id = v.account_id",
                (fact.volume_id,),
            )
            yield _left(_OF, fact.volume_id)
            yield Change(REFRESH_OF_CONTRACT, (fact.volume_id,))
            yield _desired(fact.volume_id, position)


def _created(fact: e.VolumeCreated, position: int) -> Iterator[Change]:
    terms = fact.terms
    yield Change(
        "INSERT INTO volumes (volume_id, account_id, machine_id, host_id, volume_offer_id,"
        " disk_bytes, storage_rate, fee_bp, until, name, cloned_from, status, created_at)"
        " VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, 'active', %s)",
        (
            fact.volume_id,
            fact.account_id,
            fact.machine_id,
            fact.host_id,
            fact.volume_offer_id,
            fact.disk_bytes,
            terms.storage_rate,
            terms.fee_bp,
            fact.until,
            fact.name,
            fact.cloned_from,
            fact.created_at,
        ),
    )
    yield Change(
        "UPDATE account_credit SET storage_product = storage_product + %s WHERE account_id = %s",
        (terms.storage_rate * fact.disk_bytes, fact.account_id),
    )
    yield counted("instance", fact.volume_id)
    yield from agreed(
        fact.volume_id, [e.Coming(effective_at=fact.created_at, terms=terms, bid=None)]
    )
    yield _left("%s", fact.machine_id)
    yield refreshed(fact.machine_id)
    yield _desired(fact.volume_id, position)


def _left(machine: str, value: int) -> Change:
    """What the open offer of a machine has left, given all its volumes."""
    return Change(
        "UPDATE volume_offers o SET left_gb = greatest(0, o.disk_gb - (SELECT"  # noqa: S608 - constants
        " coalesce(sum(v.disk_bytes), 0) / 1000000000 FROM volumes v"
        " WHERE v.machine_id = o.machine_id AND v.destroyed_at IS NULL))"
        f" WHERE o.machine_id = {machine} AND o.closed_at IS NULL",
        (value,),
    )


def _desired(volume_id: int, position: int) -> Change:
    return Change(
        f"UPDATE machines SET desired_version = %s WHERE machine_id = {_OF}",  # noqa: S608 - a constant
        (position, volume_id),
    )
