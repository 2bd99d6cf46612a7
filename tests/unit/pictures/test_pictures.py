"""Pictures of timelines: the same bytes for the same facts, and what is written in them."""

from __future__ import annotations

import re

import pytest

from adapters.cli.timelines import bar
from adapters.pictures.forms import MEDIA_TYPES, Timeline, picture
from ledger.services.questions.timelines import (
    Cost,
    Held,
    InstanceTimeline,
    MachineTimeline,
    SpendTimeline,
    Stretch,
)

START = 1_798_761_600
LIFE = Stretch(start=START, until=START + 7_200)


def cost(hour: int, **charges: int) -> Cost:
    """What an hour cost."""
    nothing = dict.fromkeys(
        ["gpu_charge", "storage_charge", "up_charge", "down_charge", "reserved_idle_charge"], 0
    )
    return Cost(start=START + 3_600 * hour, **nothing | charges)


INSTANCE = InstanceTimeline(
    instance_id=7, kind="interruptible", gpus=2, label="train", start=START, until=START + 7_200,
    existed=[LIFE], held=[LIFE], running=[LIFE], attested=[LIFE], cost_seconds=3_600,
    costs=[cost(0, gpu_charge=600_000_000), cost(1, gpu_charge=1, storage_charge=21_000_000)],
)  # fmt: skip
MACHINE = MachineTimeline(
    machine_id=3, gpus=2, gpu_name="RTX 4090", start=START, until=START + 7_200, attested=[LIFE],
    held=[
        Held(slot=1, instance_id=1_234, kind="reserved", start=START, until=START + 7_200),
        Held(slot=0, instance_id=77, kind="on_demand", start=START, until=START + 10),
    ],
)  # fmt: skip
SPEND = SpendTimeline(
    account_id=1, start=START, until=START + 7_200, cost_seconds=3_600, costs=INSTANCE.costs
)
NOTHING = SpendTimeline(account_id=1, start=START, until=START + 1, cost_seconds=3_600, costs=[])


@pytest.mark.parametrize(
    "timeline", [INSTANCE, MACHINE, SPEND, NOTHING], ids=lambda one: type(one).__name__
)
def test_the_same_facts_are_the_same_bytes(timeline: Timeline) -> None:
    """In every form, so that a picture in a document can be compared."""
    for form in MEDIA_TYPES:
        assert picture(timeline, form) == picture(timeline, form)


def words(timeline: Timeline) -> set[str]:
    """The texts in a picture."""
    return set(re.findall(r">([^<>\n]+)</text>", picture(timeline, "svg").decode()))


def test_an_instance_is_named_with_its_total_and_its_lanes() -> None:
    """To the nano, with the legend of what it paid and of nothing else."""
    found = words(INSTANCE)
    assert "Instance 7 “train”" in found
    assert any(one.endswith("$0.621000001") for one in found)
    assert {"exists", "holds GPUs", "runs (the server)", "attested (the host)"} <= found
    assert {"GPU", "storage"} <= found
    assert "upload" not in found


def test_a_machine_names_instances_where_there_is_room() -> None:
    """A box of ten seconds in two hours has none."""
    found = words(MACHINE)
    assert {"GPU 0", "GPU 1", "1234", "reserved"} <= found
    assert "77" not in found


@pytest.mark.parametrize(
    ("stretches", "drawn"),
    [
        ([], "····"),
        ([(0, 400)], "████"),
        ([(0, 100), (300, 400)], "█··█"),
        ([(150, 250)], "·▓▓·"),
        ([(0, 1), (399, 400)], "░··░"),
        ([(0, 50), (50, 100)], "█···"),
    ],
)
def test_a_line_of_text_covers_what_its_stretches_cover(
    stretches: list[tuple[int, int]], drawn: str
) -> None:
    """A column is full only when all of it is covered, and empty only when none of it is."""
    found = [Stretch(start=START + first, until=START + end) for first, end in stretches]
    assert bar(found, START, START + 400, columns=4) == drawn
