"""The life of one rental: commands, state, `evolve` (fold facts), `decide` (a wish into facts).

Who may send a command is judged by the services; which instance gets which GPUs by
`ledger.domain.auction`.
"""

from __future__ import annotations

from ledger.domain.instance.commands import (
    AnswerIncrease,
    ApplyTerms,
    BuyReservation,
    ChangeBid,
    ChangeBoot,
    ChangeLaunchConfig,
    DestroyInstance,
    DisplaceInstance,
    EndReservation,
    ExpireInstance,
    GrantGpus,
    InstanceCommand,
    LabelInstance,
    Observe,
    OfferExtension,
    PublishConnection,
    RebootInstance,
    StartInstance,
    StopInstance,
    TimeOutLaunch,
)
from ledger.domain.instance.contract import (
    require_bidding,
    require_reservable,
)
from ledger.domain.instance.decide import (
    decide,
)
from ledger.domain.instance.state import (
    HOLDS_GPUS,
    LAUNCH_TIMEOUT_SECONDS,
    Instance,
    Proposal,
    Reservation,
    Status,
    evolve,
    fold,
)

__all__ = [
    "HOLDS_GPUS",
    "LAUNCH_TIMEOUT_SECONDS",
    "AnswerIncrease",
    "ApplyTerms",
    "BuyReservation",
    "ChangeBid",
    "ChangeBoot",
    "ChangeLaunchConfig",
    "DestroyInstance",
    "DisplaceInstance",
    "EndReservation",
    "ExpireInstance",
    "GrantGpus",
    "Instance",
    "InstanceCommand",
    "LabelInstance",
    "Observe",
    "OfferExtension",
    "Proposal",
    "PublishConnection",
    "RebootInstance",
    "Reservation",
    "StartInstance",
    "Status",
    "StopInstance",
    "TimeOutLaunch",
    "decide",
    "evolve",
    "fold",
    "require_bidding",
    "require_reservable",
]
