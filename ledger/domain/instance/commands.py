"""What can be wished of one instance, by people, hosts and the platform itself."""

from __future__ import annotations

from typing import Literal, dataclass_transform

import msgspec

from ledger.domain.events import PublishedPort, StopReason, Terms, WaitReason


@dataclass_transform(frozen_default=True, field_specifiers=(msgspec.field,))
class _Command(msgspec.Struct, frozen=True):
    """A wish concerning one instance."""


class StartInstance(_Command):
    """The renter wants it to run."""


class StopInstance(_Command):
    """The GPU meter must end now; the disk stays."""

    reason: StopReason


class RebootInstance(_Command):
    """The renter wants a restart in place."""


class DestroyInstance(_Command):
    """Everything must end now."""

    by: Literal["renter", "admin", "host", "storage_debt", "cleanup"]
    reason: str | None = None


class ExpireInstance(_Command):
    """The contract's end is reached."""


class GrantGpus(_Command):
    """The allocation gave it these GPUs."""

    slots: tuple[int, ...]
    gpu_uuids: tuple[str, ...]


class LabelInstance(_Command):
    """The renter wants another label."""

    label: str | None


class ChangeLaunchConfig(_Command):
    """The renter wants another image, environment, start text or arguments.

    The text is sealed under *launch* already, or will be in the same transaction.
    """

    launch: str
    launch_hash: str
    image_digest: str | None


class PublishConnection(_Command):
    """The host says how one gets into the container of an assignment."""

    assignment: int
    ports: tuple[PublishedPort, ...]
    addresses: str | None
    addresses_hash: str | None
    digest: str | None


class Observe(_Command):
    """The host saw something, in a report received now.

    `billed_until` is the first second that no accepted report attests yet: an interval never
    shrinks below it.
    """

    assignment: int
    state: Literal["loading", "running", "exited", "launch_failed", "disk_gone", "gpu_lost"]
    at: int
    billed_until: int
    exit_code: int | None = None


class ChangeBoot(_Command):
    """The machine reports under a new boot id: nothing that ran before runs now."""

    boot_id: str
    billed_until: int


class TimeOutLaunch(_Command):
    """Nobody confirmed the container for too long."""


class DisplaceInstance(_Command):
    """The allocation took its GPUs for a higher claim."""

    reason: WaitReason


class ChangeBid(_Command):
    """The renter bids another amount for the slice, nanos per hour."""

    bid: int


class ApplyTerms(_Command):
    """Terms that were agreed before may be due."""


class BuyReservation(_Command):
    """Credit is locked until *term_until* and pays GPU time at *rate*, nanos per hour."""

    rate: int
    deposit: int
    added: int
    term_until: int


class EndReservation(_Command):
    """The term is over, and *kept* of what it left is an early-cancellation charge."""

    reason: Literal["term", "cancelled", "destroyed", "expired", "no_penalty"]
    remaining: int
    received: int
    kept: int


class OfferExtension(_Command):
    """The host's listing ends later (null: never) at these rates."""

    terms: Terms
    until: int | None


class AnswerIncrease(_Command):
    """The renter accepts or rejects the pending price increase."""

    accept: bool


InstanceCommand = (
    StartInstance
    | StopInstance
    | RebootInstance
    | DestroyInstance
    | ExpireInstance
    | GrantGpus
    | LabelInstance
    | Observe
    | ChangeBoot
    | TimeOutLaunch
    | DisplaceInstance
    | ChangeBid
    | ApplyTerms
    | BuyReservation
    | EndReservation
    | OfferExtension
    | AnswerIncrease
    | ChangeLaunchConfig
    | PublishConnection
)
