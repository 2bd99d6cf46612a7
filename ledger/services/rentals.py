"""Renting: create, bid, start, stop, reboot, destroy, and the decision that follows each of them.

Who may do what to which instance is checked by `owned`; the rules of the states are the domain's
(`ledger.domain.instance`). After every change of a machine, `settle` decides who gets its GPUs.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from ledger.domain.auction import Claim, bid_to_run, min_bid
from ledger.domain.events import Fact, InstanceCreated, Terms
from ledger.domain.ids import instance_stream
from ledger.domain.instance import (
    ChangeBid,
    DestroyInstance,
    ExpireInstance,
    Instance,
    InstanceCommand,
    LabelInstance,
    RebootInstance,
    StartInstance,
    StopInstance,
    decide,
    require_bidding,
)
from ledger.domain.money import BYTES_PER_GB, format_dollars
from ledger.errors import DeclinedError, NotFoundError, RejectedError
from ledger.services.admission import admit, admit_change
from ledger.services.allocation import claims_of, is_online, settle, supply_of
from ledger.services.contracts import end_reservation
from ledger.services.ledger import Unit
from ledger.services.machines import Machine, require_machine
from ledger.services.notices import life_notices, notice
from ledger.services.offers import (
    Listing,
    check_disk,
    free_of_charge,
    open_offer,
    require_listing,
    require_offer,
)

_LABEL = re.compile(r"[^\x00-\x1f\x7f]+")
_LABEL_CHARACTERS_MAX: Final = 1_024
_MAX_LAUNCH_BYTES: Final = 65_536


class Rented(msgspec.Struct, frozen=True):
    """What a create gave: the instance, and whether it is the answer to a repeated request."""

    instance_id: int
    replayed: bool = False


def rent(
    unit: Unit,
    account_id: int,
    machine_id: int | None = None,
    *,
    offer_id: int | None = None,
    gpus: int | None = None,
    disk_gb: int,
    bid: int | None = None,
    label: str | None = None,
    wait: bool = False,
    launch: Mapping[str, object] | None = None,
) -> int:
    """Rent a slice of a listed machine and return the instance's id.

    Args:
        unit: The command's transaction.
        account_id: Who pays.
        machine_id: Which machine, where no offer is named.
        offer_id: Which offer; it closes, and another of its size opens.
        gpus: How many of the machine's GPUs; all by default.
        disk_gb: Size of the disk, billed until the instance is destroyed.
        bid: Nanos per hour for the whole slice: an interruptible rental. On demand without.
        label: A name of the renter's own.
        wait: Create it in `scheduling` when the GPUs are taken, instead of refusing
            (`cancel_unavail` is the opposite).
        launch: Image, environment and commands; kept in the vault, never in the log.

    Raises:
        NotFoundError: `no_such_machine`, or `no_such_ask` for an offer that never was.
        RejectedError: `no_such_ask` when the offer is closed or the machine not listed,
            `invalid_args` for a slice or disk that it does not have, `bids_not_accepted`, and
            `invalid_price` for a bid below the floor, or below the smallest that would run now.
        DeclinedError: `no_capacity` when the GPUs are taken or the machine cannot be rented now and
            *wait* is off; `insufficient_credit`.
    """
    offer = require_offer(unit, machine_id=machine_id, offer_id=offer_id, gpus=gpus)
    machine = require_machine(unit.connection, offer.machine_id)
    listing = require_listing(unit, machine)
    check_disk(unit, machine, offer.gpus, disk_gb)
    check_label(label)
    terms = _terms(unit, machine, listing, account_id, offer.gpus, bid)
    fits = _fits(unit, machine, offer.gpus, bid)
    if not fits and not wait:
        message = f"machine {machine.machine_id} has no {offer.gpus} free GPUs now"
        raise DeclinedError("no_capacity", message)
    disk_bytes = disk_gb * BYTES_PER_GB
    admit(unit, account_id, terms, disk_bytes)
    instance_id = unit.next_id("instance")
    reference, launch_hash = _keep_launch(unit, account_id, instance_id, launch)
    created = InstanceCreated(
        instance_id=instance_id,
        account_id=account_id,
        machine_id=machine.machine_id,
        host_id=machine.host_id,
        listing_id=listing.listing_id,
        offer_id=offer.offer_id,
        gpus=offer.gpus,
        disk_bytes=disk_bytes,
        terms=terms,
        bid=bid,
        until=listing.until,
        label=label,
        launch=reference,
        launch_hash=launch_hash,
        policy_version=unit.policy.version,
        reason="new" if fits else "no_capacity",
        created_at=unit.now,
    )
    told = notice(unit, account_id, "created", f"instance-{instance_id}")
    unit.append_all([(instance_stream(instance_id), created), told])
    open_offer(unit, machine.machine_id, listing.listing_id, offer.gpus)
    settle(unit, machine.machine_id)
    return instance_id


def rent_once(unit: Unit, account_id: int, offer_id: int, **wishes: Any) -> Rented:
    """`rent` for clients that repeat themselves without a key (`marketplace.md` §1).

    As long as the instance that this account created from this offer lives, it is the answer.
    """
    row = unit.connection.execute(
        "SELECT instance_id FROM instances WHERE offer_id = %s AND account_id = %s"
        " AND destroyed_at IS NULL",
        [offer_id, account_id],
    ).fetchone()
    if row is not None:
        return Rented(row[0], replayed=True)
    return Rented(rent(unit, account_id, offer_id=offer_id, **wishes))


def start(unit: Unit, instance_id: int) -> None:
    """Let a stopped instance run again, as soon as its GPUs are free.

    Raises:
        RejectedError: `contract_expired`.
        DeclinedError: `insufficient_credit`.
    """
    instance = unit.instance(instance_id)
    new = decide(instance, StartInstance(), unit.now)
    if new:
        account_id, disk_bytes = instance.account_id, instance.disk_bytes
        admit(unit, account_id, instance.terms, disk_bytes, starting=instance_id)
        unit.append(instance_stream(instance_id), *new)
        settle(unit, instance.machine_id)


def stop(unit: Unit, instance_id: int, *, by_admin: bool = False) -> None:
    """End the GPU meter now; the disk is kept, and its meter goes on."""
    command(unit, instance_id, StopInstance("admin" if by_admin else "renter"))


def reboot(unit: Unit, instance_id: int) -> None:
    """Restart the container in place; GPUs and priority are kept.

    Raises:
        RejectedError: `not_running`.
    """
    command(unit, instance_id, RebootInstance())


def label(unit: Unit, instance_id: int, text: str | None) -> None:
    """Give an instance another label, or none."""
    check_label(text)
    command(unit, instance_id, LabelInstance(text))


def destroy(
    unit: Unit, instance_id: int, *, by_admin: bool = False, reason: str | None = None
) -> None:
    """End every meter now; destroying again changes nothing."""
    command(unit, instance_id, DestroyInstance("admin" if by_admin else "renter", reason))


def command(unit: Unit, instance_id: int, wish: InstanceCommand) -> None:
    """Carry out one command on one instance and decide anew who gets its machine's GPUs."""
    command_all(unit, [(instance_id, wish)])


def command_all(unit: Unit, wishes: Iterable[tuple[int, InstanceCommand]]) -> list[int]:
    """Carry out commands on many instances as one change; returns those that it concerned."""
    new: list[tuple[str, Fact]] = []
    notices: list[tuple[str, Fact]] = []
    machines: list[int] = []
    changed = []
    for instance_id, wish in wishes:
        instance = unit.instance(instance_id)
        decided = decide(instance, wish, unit.now)
        if decided and instance.reservation is not None:
            _end_term(unit, instance, wish)
        if decided:
            changed.append(instance_id)
            machines.append(instance.machine_id)
            new.extend((instance_stream(instance_id), fact) for fact in decided)
            notices.extend(life_notices(unit, instance, decided))
    unit.append_all([*new, *notices])
    for machine_id in dict.fromkeys(machines):
        settle(unit, machine_id)
    return changed


def _end_term(unit: Unit, instance: Instance, wish: InstanceCommand) -> None:
    """A contract that ends takes its reservation with it."""
    if isinstance(wish, DestroyInstance):
        end_reservation(unit, instance, "destroyed")
    elif isinstance(wish, ExpireInstance):
        end_reservation(unit, instance, "expired")


def owned(unit: Unit, instance_id: int, account_id: int) -> Instance:
    """The instance, if it is this account's.

    Raises:
        NotFoundError: `no_such_instance`, also for somebody else's.
    """
    instance = unit.instance(instance_id)
    if instance.account_id != account_id:
        raise NotFoundError("no_such_instance", f"there is no instance {instance_id}")
    return instance


# --- what must hold before -----------------------------------------------------------------------


def _terms(
    unit: Unit, machine: Machine, listing: Listing, account_id: int, gpus: int, bid: int | None
) -> Terms:
    rates = listing.rates(gpus)
    if bid is not None:
        _check_bid(machine, gpus, bid)
        rates = msgspec.structs.replace(rates, kind="interruptible", gpu_rate=bid)
    if machine.host_id == account_id:
        rates = free_of_charge(rates)
    return msgspec.structs.replace(rates, fee_bp=unit.policy.fee_bp)


def _check_bid(machine: Machine, gpus: int, bid: int) -> None:
    if machine.floor is None:
        message = f"machine {machine.machine_id} takes no bids: rent it on demand"
        raise RejectedError("bids_not_accepted", message)
    floor = machine.floor * gpus
    if bid < floor:
        message = f"a bid for this slice is at least {format_dollars(floor)} per hour"
        raise RejectedError("invalid_price", message, floor=format_dollars(floor))


def _fits(unit: Unit, machine: Machine, gpus: int, bid: int | None) -> bool:
    """True when it would run at once; a bid that would not is refused unless bids may wait.

    Raises:
        RejectedError: `invalid_price` with the smallest bid that would run.
    """
    if not is_online(unit, machine) or machine.stopped_for_maintenance or machine.below_bars:
        return False
    supply, claims = supply_of(unit, machine), claims_of(unit, machine.machine_id)
    if bid is None:
        held = sum(claim.gpus for claim in claims if claim.slots and not claim.is_bid)
        return gpus <= len(supply.slots) - held
    smallest = min_bid(supply, claims, gpus)
    if smallest is None:
        return False
    if bid < smallest and not unit.policy.admit_waiting_bids:
        message = f"a bid of {format_dollars(smallest)} per hour for this slice would run now"
        raise RejectedError("invalid_price", message, min_bid=format_dollars(smallest))
    return bid >= smallest


def change_bid(unit: Unit, instance_id: int, bid: int | None) -> int:
    """Bid another amount for the slice from the next second on; returns the bid.

    None asks for the smallest amount with which this instance would run. The same amount again
    changes nothing.

    Raises:
        NotFoundError: `no_such_instance`.
        RejectedError: `not_interruptible`, `contract_expired`, `bids_not_accepted`, or
            `invalid_price` below the host's floor.
        DeclinedError: `no_capacity` when no amount would do.
    """
    instance = unit.instance(instance_id)
    require_bidding(instance)
    machine = require_machine(unit.connection, instance.machine_id)
    wanted = _smallest_bid(unit, machine, instance) if bid is None else bid
    if wanted != instance.next_bid:
        _check_bid(machine, instance.gpus, wanted)
        terms = msgspec.structs.replace(instance.terms, gpu_rate=wanted)
        admit_change(unit, instance, terms)
        command(unit, instance_id, ChangeBid(wanted))
    return wanted


def _smallest_bid(unit: Unit, machine: Machine, instance: Instance) -> int:
    claims = claims_of(unit, machine.machine_id)
    if all(claim.instance_id != instance.instance_id for claim in claims):
        asking = Claim(instance.instance_id, instance.gpus, is_bid=True, requested_at=2**62)
        claims.append(asking)
    smallest = bid_to_run(supply_of(unit, machine), claims, instance.instance_id)
    if smallest is None:
        message = f"no bid would let instance {instance.instance_id} run now"
        raise DeclinedError("no_capacity", message)
    return smallest


def check_label(text: str | None) -> None:
    """Refuse a label that could not be shown.

    Raises:
        RejectedError: `invalid_args`, or `label_too_long` above 1,024 characters.
    """
    if text is None:
        return
    if len(text) > _LABEL_CHARACTERS_MAX:
        message = f"a label has at most {_LABEL_CHARACTERS_MAX} characters"
        raise RejectedError("label_too_long", message)
    if not _LABEL.fullmatch(text):
        raise RejectedError("invalid_args", "a label is made of printable characters")


def _keep_launch(
    unit: Unit, account_id: int, instance_id: int, launch: Mapping[str, object] | None
) -> tuple[str | None, str | None]:
    """Seal the launch configuration; the log gets a reference and a keyed hash."""
    if not launch:
        return None, None
    text = msgspec.json.encode(dict(launch), order="sorted")
    if len(text) > _MAX_LAUNCH_BYTES:
        raise RejectedError("invalid_args", "a launch configuration is at most 64 KiB")
    row = unit.connection.execute(
        "SELECT subject FROM accounts WHERE account_id = %s", [account_id]
    ).fetchone()
    if row is None:
        raise NotFoundError("no_such_account", f"there is no account {account_id}")
    name = f"launch-{instance_id}"
    unit.vault.put(unit.connection, row[0], name, text)
    return f"{row[0]}/{name}", unit.vault.keyed_hash(text.decode())
