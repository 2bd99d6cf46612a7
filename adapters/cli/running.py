"""Commands that run the product, replay it, or prove it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter
from cyclopts.validators import Number

from adapters.cli.options import AsJson, Home, home_folder, opened

if TYPE_CHECKING:
    from ledger.projections.rebuild import RebuildResult

Keep = Annotated[
    Path | None, Parameter(name="--keep", help="Keep the ledger in this new folder, to look at it.")
]


def serve(
    *,
    home: Home = None,
    host: Annotated[str, Parameter(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[
        int, Parameter(help="Port to listen on.", validator=Number(gte=1, lte=65_535))
    ] = 8080,
    only: Annotated[
        Literal["api", "projections", "jobs"] | None, Parameter(help="Run one part alone.")
    ] = None,
    workers: Annotated[
        int | None,
        Parameter(
            help="API processes; default: one a core, at most two.",
            validator=Number(gte=1, lte=64),
        ),
    ] = None,
    resolve_images: Annotated[
        bool,
        Parameter(
            negative="",
            help="Ask registries which digest a tag means when an instance is created;"
            " GPULEDGER_RESOLVE_IMAGES=1 does the same.",
        ),
    ] = False,
) -> int:
    """Run API, projections and jobs on the embedded database; the first start prints an admin key.

    Example: gpuledger serve --home ./books --port 8080
    """
    from adapters.main import serve as run

    return run(home_folder(home), host, port, only, workers, resolve_images=resolve_images)


def demo(
    *,
    seconds: Annotated[
        int, Parameter(help="How long to watch.", validator=Number(gte=1, lte=86_400))
    ] = 30,
    serve: Annotated[bool, Parameter(negative="", help="Keep it running afterwards.")] = False,
) -> int:
    """Watch the product work: a real server, three hosts, renters, invoices, a rebuild.

    Example: gpuledger demo --seconds 20
    """
    from adapters.demo import run

    return run(seconds=seconds, keep_serving=serve)


def scenario_run(
    files: Annotated[list[Path], Parameter(help="Scenario files (YAML).")],
    *,
    json: AsJson = False,
    keep: Keep = None,
) -> int:
    """Run scenario files, each on a fresh ledger; exit 0 when all hold, 1 if not, 2 if invalid.

    Example: gpuledger scenario run tests/scenarios/examples/*.yaml
    """
    from adapters.simulation.scenario import run_files

    return run_files(list(files), as_json=json, keep=keep)


def trace(
    nodes: Annotated[Path, Parameter(help="CSV of the cluster's nodes.")],
    pods: Annotated[Path, Parameter(help="CSV of the pods that ran on it.")],
    /,
    *,
    start: Annotated[
        int, Parameter(help="First second of the window.", validator=Number(gte=0, lte=2**40))
    ] = 0,
    seconds: Annotated[
        int | None, Parameter(help="Length of the window.", validator=Number(gte=1, lte=2**40))
    ] = None,
    interruptible: Annotated[
        bool,
        Parameter(negative="", help="Best-effort pods (qos BE) bid; the auction decides who runs."),
    ] = False,
    nodes_max: Annotated[
        int | None,
        Parameter("--nodes", help="Only this many nodes, in file order.", validator=Number(gte=1)),
    ] = None,
    min_gpus: Annotated[
        int, Parameter(help="Only nodes with this many GPUs.", validator=Number(gte=1, lte=16))
    ] = 1,
    json: AsJson = False,
    keep: Keep = None,
) -> int:
    """Bill a cluster's trace second by second, as fast as it can.

    With --interruptible on a small cluster (--nodes, --min-gpus), displacement really happens.

    Example: gpuledger trace nodes.csv pods.csv --interruptible --nodes 4 --min-gpus 8
    """
    from adapters.simulation.trace import run

    return run(
        nodes,
        pods,
        start=start,
        seconds=seconds,
        as_json=json,
        keep=keep,
        interruptible=interruptible,
        first_nodes=nodes_max,
        min_gpus=min_gpus,
    )


def rebuild(
    *,
    check: Annotated[
        bool, Parameter(negative="", help="Compare with the live tables; change nothing.")
    ] = False,
    home: Home = None,
    json: AsJson = False,
) -> int:
    """Rebuild every read model from position 0; with --check, prove that the live ones are equal.

    Exits 1 when --check finds a difference, and names the first differing row of each table.

    Example: gpuledger rebuild --check --home ./books
    """
    from adapters.cli.output import print_json
    from adapters.cli.progress import progress
    from ledger.projections.rebuild import check as compare
    from ledger.projections.rebuild import swap

    with opened(home, any_generation=not check) as ledger, progress("rebuilding") as report:
        result = (compare if check else swap)(ledger.database, report)
    if json:
        print_json({
            "equal": result.equal,
            "tables": [
                {"name": one.name, "group": one.group, "rows": one.rows, "sha256": one.live_sha256,
                 "rebuilt_sha256": one.rebuilt_sha256, "first_difference": one.first_difference}
                for one in result.tables
            ],
            "facts_position": result.facts_position,
            "usage_position": result.usage_position,
            "ticks": result.ticks,
            "seconds": round(result.seconds, 3),
        })  # fmt: skip
    else:
        _print_rebuild(result, check=check)
    return 0 if result.equal else 1


def backup(
    file: Annotated[Path, Parameter(help="The backup; it must not exist yet.")],
    *,
    home: Home = None,
) -> int:
    """Write the whole database to one file while it serves; keep vault.key in another place.

    Example: gpuledger backup books.dump --home ./books
    """
    from ledger.store.backup import backup as run

    with opened(home, any_generation=True) as ledger:
        size = run(ledger.database, file)
    sys.stdout.write(f"{file}: {size:,} bytes; the vault's key is not in it\n")
    return 0


def restore(
    file: Annotated[Path, Parameter(help="A backup.")],
    *,
    home: Annotated[Path, Parameter(name="--home", help="A new folder for the ledger.")],
) -> int:
    """Make a new ledger from a backup; prove it with `rebuild --check`.

    Example: gpuledger restore books.dump --home ./restored
    """
    from ledger.store.backup import restore as run

    run(file, home)
    sys.stdout.write(
        f"restored into {home}: put the vault.key of the backup's ledger there, then prove it with"
        f" gpuledger rebuild --check --home {home}\n"
    )
    return 0


def _print_rebuild(result: RebuildResult, *, check: bool) -> None:
    from adapters.cli.output import print_rows

    if check:
        columns = ["name", "group", "rows", "live_sha256", "equal"]
        print_rows(result.tables, columns, as_json=False, title="rebuild", empty="no tables")
        for one in result.tables:
            if not one.equal:
                sys.stdout.write(f"{one.name}: {one.first_difference}\n")
    speed = result.ticks / max(result.seconds, 1e-9)
    verdict = "" if not check else "equal: " if result.equal else "NOT EQUAL: "
    sys.stdout.write(
        f"{verdict}{result.ticks:,} ticks rebuilt in {result.seconds:.1f} s ({speed:,.0f}/s)\n"
    )
