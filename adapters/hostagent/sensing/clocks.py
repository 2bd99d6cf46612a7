"""Which second it is, whatever the machine's clocks do (`host-agent.md` §13). Pure.

Durations come from CLOCK_MONOTONIC. Its readings become Unix seconds by adding an anchor, which is
learnt from the server's time, or from a wall clock that NTP vouches for. No second is used twice;
a step of the wall clock creates and destroys nothing.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from ledger.domain.usage import HealthKind, HostClock

SECOND_NS: Final = 1_000_000_000
MS_NS: Final = 1_000_000
REANCHOR_NS: Final = 500 * MS_NS
"""A smaller difference to the server's time is left alone."""
SUSPEND_NS: Final = SECOND_NS
_DRIFT: Final = 10_000
"""A clock that nothing disciplines goes wrong by up to one part in this many."""
STEP_NS: Final = 500 * MS_NS
"""A smaller step of the wall clock is slewing, and nobody's concern."""


class ClockReading(NamedTuple):
    """All clocks of the machine, read together; nanoseconds."""

    mono_ns: int
    boottime_ns: int
    wall_ns: int
    is_synced: bool
    """NTP vouches for the wall clock."""
    boot_id: str


class ClockEvent(NamedTuple):
    """Something a clock did: `clock_step` with signed milliseconds, `suspended` with seconds."""

    kind: HealthKind
    ms: int | None = None
    seconds: int | None = None


class _Contact(NamedTuple):
    """One exchange with the server: the anchor that it implies, and how far off that may be."""

    anchor_ns: int
    round_trip_ns: int
    at_ns: int

    def doubt_ns(self, now_ns: int) -> int:
        """Half the round trip, and what an undisciplined clock may have drifted since."""
        return self.round_trip_ns // 2 + (now_ns - self.at_ns) // _DRIFT


class HostTime:
    """The seconds of one machine over one run of the agent.

    `unused_from` is the first second that no tick has; it only grows, over re-anchoring and over
    restarts, where it begins at what is sealed.
    """

    def __init__(self, sealed_until: int = 0, boot_id: str = "") -> None:
        """Begin without an anchor.

        Args:
            sealed_until: First second in no report yet; seconds before it are never given out.
            boot_id: Of the boot in which that was sealed; empty when nothing was.
        """
        self.anchor_ns: int | None = None
        self.unused_from = sealed_until
        self.boot_id = boot_id
        self._best: _Contact | None = None
        self._last: ClockReading | None = None
        self._seen = sealed_until - 1
        self._asleep_ns = 0
        """In this boot, as far as it is in the anchor."""

    # --- reading ---------------------------------------------------------------------------------

    def look(self, now: ClockReading) -> list[ClockEvent]:
        """Note what the clocks did since the last look; call at least once a second.

        A time asleep is added to the anchor: its seconds are a hole that nothing attests.
        """
        events: list[ClockEvent] = []
        last = self._last
        self._last = now
        if self.boot_id and now.boot_id != self.boot_id:
            events.append(ClockEvent("boot_changed"))
        if now.boot_id != self.boot_id:
            # Whatever was measured before belongs to clocks that no longer run.
            self.boot_id = now.boot_id
            self.anchor_ns = self._best = last = None
        if last is None:
            self._asleep_ns = now.boottime_ns - now.mono_ns
        else:
            events += self._suspended(now)
            events += _stepped(last, now)
        if self.anchor_ns is None and now.is_synced:
            self.anchor_ns = now.wall_ns - now.mono_ns
        return events

    def _suspended(self, now: ClockReading) -> list[ClockEvent]:
        slept_ns = now.boottime_ns - now.mono_ns - self._asleep_ns
        if slept_ns <= SUSPEND_NS:
            return []
        self._asleep_ns += slept_ns
        if self.anchor_ns is not None:
            self.anchor_ns += slept_ns
        if self._best is not None:
            self._best = self._best._replace(anchor_ns=self._best.anchor_ns + slept_ns)
        return [ClockEvent("suspended", seconds=slept_ns // SECOND_NS)]

    def second(self, mono_ns: int) -> int | None:
        """The Unix second of a moment; null without an anchor, or when it was used before."""
        if self.anchor_ns is None:
            return None
        second = (mono_ns + self.anchor_ns) // SECOND_NS
        if second < self.unused_from:
            return None
        self._seen = max(self._seen, second)
        return second

    def begins_ns(self, second: int) -> int:
        """The moment at which a second begins under the present anchor."""
        assert self.anchor_ns is not None
        return second * SECOND_NS - self.anchor_ns

    # --- anchoring -------------------------------------------------------------------------------

    def contact(self, sent_ns: int, received_ns: int, server_time_ms: int) -> None:
        """Learn from an answer of the server.

        The answer with the smallest round trip of this boot counts, until so much time has passed
        that a slower one is surer. The first anchor of a boot takes effect at once, later ones with
        `settle`.
        """
        round_trip_ns = received_ns - sent_ns
        if round_trip_ns < 0:
            return
        midpoint_ns = sent_ns + round_trip_ns // 2
        contact = _Contact(server_time_ms * MS_NS - midpoint_ns, round_trip_ns, received_ns)
        best = self._best
        if best is None or contact.doubt_ns(received_ns) <= best.doubt_ns(received_ns):
            self._best = contact
        if self.anchor_ns is None:
            self.anchor_ns = contact.anchor_ns

    def settle(self) -> ClockEvent | None:
        """Move the anchor to what the server says, if it is far off; call between two reports.

        Backwards, the seconds up to the newest one seen have been used and give nothing; forwards,
        the seconds between are a hole.
        """
        if self._best is None or self.anchor_ns is None:
            return None
        off_ns = self._best.anchor_ns - self.anchor_ns
        if abs(off_ns) <= REANCHOR_NS:
            return None
        self.unused_from = max(self.unused_from, self._seen + 1)
        self.anchor_ns = self._best.anchor_ns
        return ClockEvent("clock_step", ms=off_ns // MS_NS)

    def use_until(self, second: int) -> None:
        """The seconds before *second* are in a report now."""
        assert second >= self.unused_from, (second, self.unused_from)
        self.unused_from = second

    # --- telling ---------------------------------------------------------------------------------

    @property
    def offset_ms(self) -> int | None:
        """How far the wall clock is ahead of the server; null before the first contact."""
        if self._best is None or self._last is None:
            return None
        return (self._last.wall_ns - self._last.mono_ns - self._best.anchor_ns) // MS_NS

    def attestation(self) -> HostClock:
        """The clocks as a report carries them."""
        now = self._last
        assert now is not None
        best = self._best
        return HostClock(
            mono_ns=now.mono_ns,
            boottime_ns=now.boottime_ns,
            wall_ns=now.wall_ns,
            synced=now.is_synced,
            offset_ms=self.offset_ms,
            rtt_ms=None if best is None else best.round_trip_ns // MS_NS,
        )


def _stepped(last: ClockReading, now: ClockReading) -> list[ClockEvent]:
    """What the wall clock did that the clock which runs through sleep did not do."""
    step_ns = (now.wall_ns - last.wall_ns) - (now.boottime_ns - last.boottime_ns)
    return [] if abs(step_ns) <= STEP_NS else [ClockEvent("clock_step", ms=step_ns // MS_NS)]
