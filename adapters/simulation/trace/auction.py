"""What the auction did in a trace: who was displaced, who waited, and whether its rules held.

Everything is read from the log alone, with code that shares nothing with the auction's.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any, Final

from rich.console import Console
from rich.table import Table

from adapters.simulation.world import World
from ledger.domain import events as e
from ledger.domain.money import format_dollars
from ledger.errors import CorruptHistoryError
from ledger.store.codec import decode_fact
from ledger.store.log import read_facts

_KINDS: Final = ("on_demand", "interruptible")


@dataclass
class _Tenant:
    """An instance, as the facts so far tell it."""

    label: str
    gpus: int
    bid: int | None
    waits_since: int | None
    gpu_uuids: frozenset[str] = frozenset()
    displaced: int = 0
    resumed: int = 0
    waited: int = 0


@dataclass
class _Machine:
    """A machine and its tenants that are not gone."""

    gpus: int
    floor: int | None = None
    tenants: dict[int, _Tenant] = field(default_factory=dict)

    def check(self) -> None:
        """The rules of `marketplace.md` §8.2, by trying every number of GPUs.

        Raises:
            CorruptHistoryError: `auction_broken`.
        """
        held = [one for one in self.tenants.values() if one.gpu_uuids]
        uuids = [uuid for one in held for uuid in one.gpu_uuids]
        if len(uuids) != len(set(uuids)) or len(uuids) > self.gpus:
            raise CorruptHistoryError("auction_broken", "a GPU is held twice")
        left = self.gpus - sum(one.gpus for one in held if one.bid is None)
        bids = []
        for one in self.tenants.values():
            if one.bid is None and not one.gpu_uuids and one.gpus <= left:
                raise CorruptHistoryError("auction_broken", "an on-demand instance waits in vain")
            if one.bid is not None and (
                one.gpu_uuids or (self.floor is not None and one.bid >= self.floor * one.gpus)
            ):
                bids.append((one.gpus, one.bid))
        revenue = sum(one.bid for one in held if one.bid is not None)
        if revenue != _most(bids, left):
            raise CorruptHistoryError("auction_broken", "another set of bids would pay more")


def _most(bids: list[tuple[int, int]], gpus: int) -> int:
    """The most that bids (GPUs, amount) can pay for *gpus* GPUs."""
    best = {0: 0}
    for size, amount in bids:
        for used, total in sorted(best.items(), reverse=True):
            if used + size <= gpus:
                best[used + size] = max(best.get(used + size, 0), total + amount)
    return max(best.values())


class _History:
    """Goes through the log once."""

    def __init__(self) -> None:
        self.machines: dict[int, _Machine] = {}
        self.tenants: dict[int, _Tenant] = {}
        self.home: dict[int, _Machine] = {}
        self.checks = 0

    def take(self, fact: e.AnyFact) -> None:
        """Fold one fact; what came before it must have left every rule whole."""
        match fact:
            case e.MachineRegistered():
                self.machines[fact.machine_id] = _Machine(fact.spec.gpus)
            case e.MachineListed():
                self.machines[fact.machine_id].floor = fact.min_bid_per_gpu
            case e.InstanceCreated():
                machine = self.home[fact.instance_id] = self.machines[fact.machine_id]
                self._check(machine)
                tenant = _Tenant(fact.label or "", fact.gpus, fact.bid, fact.created_at)
                self.tenants[fact.instance_id] = machine.tenants[fact.instance_id] = tenant
            case e.GpusAssigned():
                tenant = self.tenants[fact.instance_id]
                assert tenant.waits_since is not None, fact
                tenant.waited += fact.assigned_at - tenant.waits_since
                tenant.waits_since = None
                tenant.resumed += fact.assignment_no > 1
                tenant.gpu_uuids = frozenset(fact.gpu_uuids)
            case e.InstanceDisplaced():
                tenant = self.tenants[fact.instance_id]
                if tenant.bid is None or not tenant.gpu_uuids:
                    raise CorruptHistoryError("auction_broken", "it may not be displaced")
                tenant.displaced += 1
                tenant.waits_since = fact.displaced_at
                tenant.gpu_uuids = frozenset()
            case e.InstanceDestroyed():
                machine = self.home.pop(fact.instance_id)
                self._check(machine)
                tenant = machine.tenants.pop(fact.instance_id)
                if tenant.waits_since is not None:
                    tenant.waited += fact.destroyed_at - tenant.waits_since
            case _:
                return

    def _check(self, machine: _Machine) -> None:
        machine.check()
        self.checks += 1


def add_auction(world: World, result: dict[str, Any]) -> None:
    """Add displacements, waiting and revenue per kind to the *result* of a trace.

    Raises:
        CorruptHistoryError: `auction_broken`: a rule of the auction did not hold.
    """
    history = _History()
    for stored in read_facts(world.connection):
        history.take(decode_fact(stored.topic, stored.state))
    world.connection.commit()
    by_label = {tenant.label: tenant for tenant in history.tenants.values()}
    for pod in result["pods"]:
        tenant = by_label.get(pod["name"])
        pod["kind"] = None
        if tenant is not None:
            pod["kind"] = "on_demand" if tenant.bid is None else "interruptible"
        pod["displaced"] = 0 if tenant is None else tenant.displaced
        pod["waited_seconds"] = 0 if tenant is None else tenant.waited
    totals = result["totals"]
    totals["skipped"] = totals["pods"] - totals["placed"]
    totals["displacements"] = sum(one.displaced for one in history.tenants.values())
    totals["resumes"] = sum(one.resumed for one in history.tenants.values())
    totals["waited_seconds"] = sum(one.waited for one in history.tenants.values())
    totals["states_checked"] = history.checks
    totals["by_kind"] = _by_kind(world)


def _by_kind(world: World) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = defaultdict(dict)
    for kind, pods, seconds, gpu, storage in world.connection.execute(
        "SELECT i.kind, count(DISTINCT i.instance_id), coalesce(sum(s.gpu_quantity), 0),"
        " coalesce(sum(s.gpu_charge), 0), coalesce(sum(s.storage_charge), 0)"
        " FROM instances i LEFT JOIN rate_segments s USING (instance_id) GROUP BY i.kind"
    ):
        found[kind] = {
            "pods": pods,
            "gpu_seconds": int(seconds),
            "gpu": format_dollars(int(gpu)),
            "storage": format_dollars(int(storage)),
        }
    world.connection.commit()
    return {kind: found[kind] for kind in _KINDS if kind in found}


def print_auction(result: dict[str, Any]) -> None:
    """The auction's part of the answer, for people."""
    totals = result["totals"]
    console = Console()
    table = Table(title="by rental kind")
    for column in ("kind", "pods", "instance seconds", "GPU revenue", "storage"):
        table.add_column(column, justify="left" if column == "kind" else "right")
    for kind, row in totals["by_kind"].items():
        table.add_row(
            kind, f"{row['pods']:,}", f"{row['gpu_seconds']:,}", row["gpu"], row["storage"]
        )
    console.print(table)
    console.print(
        f"{totals['displacements']:,} displacements, {totals['resumes']:,} resumes,"
        f" {totals['waited_seconds']:,} seconds waited; {totals['skipped']:,} pods fit no node;"
        f" the auction's rules held in all {totals['states_checked']:,} states of the log",
        highlight=False,
        soft_wrap=True,
    )
