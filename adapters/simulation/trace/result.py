"""What came of a trace: totals, a row per pod, and tables for people."""

from __future__ import annotations

from collections import defaultdict
from typing import Any, Final

from rich.console import Console
from rich.table import Table

from adapters.simulation.trace.reading import Node
from adapters.simulation.trace.replay import Rental
from adapters.simulation.world import World
from ledger.domain.money import format_dollars, parse_dollars


def result_of(world: World, nodes: list[Node], rentals_: list[Rental]) -> dict[str, Any]:
    """Totals and a row per pod; amounts as decimal texts of dollars."""
    charged = {
        row[0]: (int(row[1]), int(row[2]), int(row[3]))
        for row in world.connection.execute(
            "SELECT instance_id, sum(gpu_quantity), sum(gpu_charge), sum(storage_charge)"
            " FROM rate_segments GROUP BY instance_id"
        )
    }
    renters: dict[str, int] = defaultdict(int)
    hosts: dict[str, int] = defaultdict(int)
    fees = 0
    for name, number in world.names.items():
        row = world.connection.execute(
            "SELECT charged, earned - fees, fees FROM account_usage WHERE account_id = %s",
            [number],
        ).fetchone()
        if row is not None and name.startswith("renter-"):
            renters[name] = int(row[0])
        elif row is not None:
            hosts[name] = int(row[1])
            fees += int(row[2])
    sizes = world.connection.execute(_SIZES).fetchone()
    world.connection.commit()
    pods = []
    for rental in rentals_:
        seconds, gpu, storage = charged.get(rental.instance or 0, (0, 0, 0))
        pods.append(
            {
                "name": rental.pod.name,
                "node": None if rental.node is None else nodes[rental.node].name,
                "gpus": rental.pod.gpus,
                "gpu_seconds": seconds,
                "gpu": format_dollars(gpu),
                "storage": format_dollars(storage),
            }
        )
    assert sizes is not None
    ticks = world.runner.ticks
    totals = {
        "pods": len(pods),
        "placed": sum(1 for pod in pods if pod["node"] is not None),
        "gpu_seconds": sum(int(str(pod["gpu_seconds"])) for pod in pods),
        "ticks": ticks,
        "gpu": format_dollars(sum(charged[one][1] for one in charged)),
        "storage": format_dollars(sum(charged[one][2] for one in charged)),
        "fees": format_dollars(fees),
        "renters": {name: format_dollars(amount) for name, amount in sorted(renters.items())},
        "hosts": {name: format_dollars(amount) for name, amount in sorted(hosts.items())},
        "bytes": int(sizes[0]),
    }
    return {"pods": pods, "totals": totals}


_SIZES: Final = (
    "SELECT sum(pg_total_relation_size(c.oid)) FROM pg_class c JOIN pg_namespace n"
    " ON n.oid = c.relnamespace WHERE n.nspname = 'ledger' AND c.relkind = 'r'"
)


def print_result(
    nodes: list[Node],
    rentals_: list[Rental],
    result: dict[str, Any],
    seconds: float,
) -> None:
    """Who paid and earned, what each GPU model brought, and how fast it went."""
    console = Console()
    totals = result["totals"]
    people = Table(title="who paid, and who earned")
    for column in ("account", "charged", "earned"):
        people.add_column(column, justify="left" if column == "account" else "right")
    for name, amount in totals["renters"].items():
        people.add_row(name, amount, "")
    for name, amount in totals["hosts"].items():
        people.add_row(name, "", amount)
    people.add_row("platform", "", totals["fees"])
    console.print(people)
    models: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0])
    for rental, pod in zip(rentals_, result["pods"], strict=True):
        if rental.node is not None:
            row = models[nodes[rental.node].model]
            row[0] += 1
            row[1] += pod["gpu_seconds"]
            row[2] += parse_dollars(pod["gpu"]) + parse_dollars(pod["storage"])
    table = Table(title="by GPU model")
    for column in ("model", "pods", "instance seconds", "charged"):
        table.add_column(column, justify="left" if column == "model" else "right")
    for model, (pods, used, amount) in sorted(models.items()):
        table.add_row(model, f"{pods:,}", f"{used:,}", format_dollars(amount))
    console.print(table)
    ticks = totals["ticks"]
    per_tick = totals["bytes"] / max(ticks, 1)
    console.print(
        f"{totals['placed']:,} of {totals['pods']:,} pods placed; {ticks:,} ticks stored in"
        f" {seconds:,.1f} s: {ticks / seconds:,.0f} ticks/s, {per_tick:.2f} bytes per tick",
        highlight=False,
        soft_wrap=True,
    )
