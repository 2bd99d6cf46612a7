"""The sensing half of a demo's host: its GPUs as the driver says, and nothing of the rest.

One computer plays three machines with fourteen GPUs; its own processors and memory are not theirs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from adapters.hostagent.acting.machine_senses import MachineSenses, take_stock
from adapters.hostagent.collector.protocol import GpuIdentity, Versions
from adapters.hostagent.home import Enrolled
from adapters.hostagent.sensing.inventory import take_inventory
from adapters.hostagent.spool import SqliteSpool
from ledger.domain.hardware import Inventory


def inventory_of_gpus() -> Inventory:
    """The GPUs that the driver shows, asked once."""
    return Inventory(gpus=take_stock().gpus)


def senses_of_gpus(spool: SqliteSpool, enrolled: Enrolled) -> MachineSenses:
    """Senses that tell of the GPUs only."""
    return MachineSenses(
        enrolled.gpu_uuids,
        state=spool.load("senses"),
        sealed_until=spool.sealed_until,
        stock=_gpus_only,
    )


def _gpus_only(gpus: Sequence[GpuIdentity], versions: Versions | None, **_: Any) -> Inventory:
    return Inventory(gpus=take_inventory(gpus, versions).gpus)
