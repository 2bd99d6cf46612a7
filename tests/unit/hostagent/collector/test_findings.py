"""What readings mean for the machine's health."""

from __future__ import annotations

from adapters.hostagent.collector.findings import Inspector
from adapters.hostagent.collector.protocol import (
    Field,
    GpuIdentity,
    GpuRow,
    Opened,
    Swept,
    Versions,
)
from adapters.hostagent.collector.readings import SECOND_NS, Readings
from tests.support.fake_nvml import uuid

A, B = uuid(0), uuid(1)


def opened(*uuids: str, unreadable: list[int] | None = None) -> Opened:
    """A generation with these GPUs."""
    return Opened(
        versions=Versions(),
        gpus=[GpuIdentity(uuid=one, slot=slot) for slot, one in enumerate(uuids)],
        unreadable=unreadable or [],
        events=True,
    )


class Eye:
    """An inspector with its readings, shown one number after the other."""

    def __init__(self, registered: list[str] | None) -> None:
        """Expect these GPUs."""
        self.readings = Readings()
        self.inspector = Inspector(registered, self.readings)

    def show(self, field: Field, *numbers: int) -> list[tuple[str, int | None]]:
        """What is found in these readings of one field, in a 60 s sweep each."""
        for at, number in enumerate(numbers):
            rows = [GpuRow(uuid=A, values={field: number})]
            swept = Swept(
                cadence=60, began_ns=at, ended_ns=at, rows=rows, open_fds=0, rss_bytes=0, cpu_ns=0
            )
            self.inspector.swept(swept)
            self.readings.take(60, at, rows)
        return [(one.kind, one.code) for one in self.inspector.take()]


def test_new_uncorrected_errors_are_told_and_old_ones_are_not() -> None:
    """What the counter showed first is history; each growth is told with its size."""
    eye = Eye([A])
    eye.inspector.opened(opened(A), 0, 0)
    found = eye.show("ecc_uncorrected_volatile", 7, 7, 9, 9, 10)
    assert found == [("ecc_uncorrected", 2), ("ecc_uncorrected", 1)]


def test_slowing_down_is_told_when_it_begins() -> None:
    """Heat and hardware limits are told once until they end; idling and power caps are normal."""
    eye = Eye([A])
    eye.inspector.opened(opened(A), 0, 0)
    assert eye.show("throttle", 1, 4, 0x40, 0x48, 0, 0x8) == [("throttled", 0x40), ("throttled", 8)]


def test_places_that_answer_lost_are_the_missing_gpus() -> None:
    """One registered GPU is gone and one place says lost: that is the same GPU."""
    eye = Eye([A, B])
    assert eye.inspector.opened(opened(A, unreadable=[15]), 2, 0)
    assert [(one.kind, one.gpu_uuid) for one in eye.inspector.take()] == [("gpu_lost", B)]


def test_a_gpu_that_nobody_registered_is_told_once() -> None:
    """Another GPU than registered changes the inventory; seeing it again says nothing new."""
    eye = Eye([A])
    for _ in range(2):
        eye.inspector.opened(opened(A, B), 2, 0)
    found = [(one.kind, one.gpu_uuid) for one in eye.inspector.take()]
    assert found == [("inventory_changed", B)]


def test_a_gpu_that_came_back_can_go_missing_again() -> None:
    """Each disappearance is told once, and a return is not one."""
    eye = Eye([A, B])
    told = []
    for present in ([A], [A], [A, B], [A]):
        eye.inspector.opened(opened(*present), 0, 0)
        told.append([one.kind for one in eye.inspector.take()])
    assert told == [["gpu_missing"], [], [], ["gpu_missing"]]


def test_no_gpu_is_a_success_only_where_none_is_expected() -> None:
    """An empty machine that is new has nothing to miss; one with a registered GPU has failed."""
    assert Eye(None).inspector.opened(opened(), 0, 0)
    assert not Eye([A]).inspector.opened(opened(), 0, 0)


def test_a_number_is_news_for_its_cadence_and_a_grace() -> None:
    """Six seconds after its sweep a utilisation is stale, a link width is not; none is repeated."""
    readings = Readings()
    readings.take(1, 0, [GpuRow(uuid=A, values={"util": 90})])
    readings.take(60, 0, [GpuRow(uuid=A, values={"link_width": 16})])
    young = readings.at(6 * SECOND_NS, "ok", 1).gpus[A]
    old = readings.at(6 * SECOND_NS + 1, "ok", 1).gpus[A]
    assert (young.values["util"], young.values["link_width"]) == (90, 16)
    assert ("util" in old.values, old.values["link_width"]) == (False, 16)
    assert old.status["util"] == "stale"
    assert readings.at(1, "stale", 1).gpus[A].values == {}


def test_utilisation_is_of_the_window_it_was_measured_in() -> None:
    """The highest among the GPUs that answered in the window, and -1 outside of it."""
    readings = Readings()
    readings.take(1, 5, [GpuRow(uuid=A, values={"util": 20}), GpuRow(uuid=B, values={"util": 70})])
    assert readings.utilisation([A], 0, 10) == 20
    assert readings.utilisation([A, B], 5, 6) == 70
    assert readings.utilisation([A, B], 6, 10) == -1
    assert readings.utilisation([A, B], 0, 5) == -1
    assert readings.utilisation([], 0, 10) == -1
