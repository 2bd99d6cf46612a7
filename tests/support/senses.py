"""A machine whose clocks, processes and network are what a test says they are."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from adapters.hostagent.collector.port import Collector
from adapters.hostagent.sensing.clocks import ClockReading
from adapters.hostagent.sensing.processes import TICK_NS
from adapters.hostagent.sensing.senses import Senses
from adapters.hostagent.sensing.watched import Settings

SECOND_NS: Final = 1_000_000_000
START: Final = 1_798_761_600
"""New year 2027: the Unix second at which a clock begins."""


class MachineClock:
    """All clocks of a machine, half a second into `START` and five minutes after its boot."""

    def __init__(self, *, is_synced: bool = True) -> None:
        """Begin with clocks that agree."""
        self.mono_ns = 300 * SECOND_NS
        self.asleep_ns = 0
        self.wall_ns = START * SECOND_NS + SECOND_NS // 2
        self.is_synced = is_synced
        self.boot_id = "b1" * 16

    def __call__(self) -> ClockReading:
        """Read them."""
        return ClockReading(
            self.mono_ns,
            self.mono_ns + self.asleep_ns,
            self.wall_ns,
            self.is_synced,
            self.boot_id,
        )

    def pass_ns(self, duration_ns: int) -> None:
        """Let time pass."""
        self.mono_ns += duration_ns
        self.wall_ns += duration_ns

    def pass_seconds(self, seconds: float) -> None:
        """Let time pass."""
        self.pass_ns(int(seconds * SECOND_NS))

    def step_wall(self, seconds: float) -> None:
        """Somebody sets the wall clock."""
        self.wall_ns += int(seconds * SECOND_NS)

    def sleep(self, seconds: float) -> None:
        """The machine is suspended: one clock stands, the others go on."""
        self.asleep_ns += int(seconds * SECOND_NS)
        self.wall_ns += int(seconds * SECOND_NS)

    def reboot(self, seconds: float) -> None:
        """The machine is off for a while and counts from zero."""
        self.wall_ns += int(seconds * SECOND_NS)
        self.mono_ns = self.asleep_ns = 0
        self.boot_id = f"{int(self.boot_id, 16) + 1:032x}"


def senses_of(
    collector: Collector,
    clock: MachineClock,
    *,
    state: bytes | None = None,
    sealed_until: int = 0,
    proc: Path = Path("/proc"),
    settings: Settings | None = None,
) -> Senses:
    """The senses of a machine, started."""
    senses = Senses(
        collector, state=state, sealed_until=sealed_until, clock=clock, proc=proc, settings=settings
    )
    senses.start()
    return senses


class FakeProc:
    """A folder that shows processes as the kernel does."""

    def __init__(self, folder: Path) -> None:
        """Begin without processes, but with this one's network namespace."""
        self.folder = folder
        self._namespace("self", 1)

    def _namespace(self, name: str, number: int) -> None:
        place = self.folder / name / "ns"
        place.mkdir(parents=True, exist_ok=True)
        shared = self.folder / f"namespace-{number}"
        shared.touch()
        (place / "net").unlink(missing_ok=True)
        (place / "net").symlink_to(shared)

    def start(
        self, pid: int, clock: MachineClock, *, namespace: int = 2, container: str | None = None
    ) -> None:
        """A process starts now."""
        ticks = (clock.mono_ns + clock.asleep_ns) // TICK_NS
        self._namespace(str(pid), namespace)
        place = self.folder / str(pid)
        (place / "net").mkdir(exist_ok=True)
        (place / "stat").write_text(f"{pid} (a (b) c) S 1 {'0 ' * 17}{ticks} 0 0\n")
        scope = "/user.slice" if container is None else f"/system.slice/docker-{container}.scope"
        (place / "cgroup").write_text(f"0::{scope}\n")
        (place / "status").write_text(f"Name:\tx\nNSpid:\t{pid}\t1\n")
        self.count(pid, {})

    def count(self, pid: int, interfaces: dict[str, tuple[int, int, int]]) -> None:
        """Its interfaces: index, bytes sent, bytes received."""
        rows = {"lo": (1, 999, 999), **interfaces}
        text = "Inter-|   Receive |  Transmit\n face |bytes packets |bytes packets\n"
        text += "".join(
            f"{name:>6}: {down} {'0 ' * 7}{up} {'0 ' * 7}\n" for name, (_, up, down) in rows.items()
        )
        net = self.folder / str(pid) / "net"
        # Names are any bytes: what is no text comes as Python writes it in a `str`.
        (net / "dev").write_bytes(text.encode(errors="surrogateescape"))
        lists = "".join(
            f"{index} {name} 1 0 01005e000001\n" for name, (index, _, _) in rows.items()
        )
        (net / "dev_mcast").write_bytes(lists.encode(errors="surrogateescape"))

    def end(self, pid: int) -> None:
        """It is gone."""
        for place in ("stat", "net/dev", "ns/net"):
            (self.folder / str(pid) / place).unlink()
