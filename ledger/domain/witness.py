"""Three witnesses of a minute, judged second by second (`marketplace.md` §18).

The host says which seconds the container ran (its ticks), the renter's heartbeat says whether it is
alive inside, probes say whether the machine is there. Silence of the renter alone cancels nothing:
the probe decides.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal, NamedTuple

from ledger.domain.downtime import quorum

MINUTE_SECONDS: Final = 60
HEARTBEAT_SECONDS: Final = 30
"""How often the container says that it lives."""

RenterWord = Literal["alive", "silent", "not_installed"]
ProbeWord = Literal["up", "down", "inconclusive"]
Decision = Literal["bill", "hold", "no_bill"]


class Judgement(NamedTuple):
    """What a second is, and what else has to be remembered of it."""

    decision: Decision
    no_network: bool = False
    """Alive inside and not reachable: a matter for reliability."""
    anomaly: bool = False
    """Somebody saw life where the host attests none."""


class Spans(NamedTuple):
    """The seconds of one minute by what becomes of them, each as `[start, end)`."""

    bill: list[tuple[int, int]]
    hold: list[tuple[int, int]]
    no_bill: list[tuple[int, int]]
    no_network: bool
    anomaly: bool


def probe_word(up: int, down: int, configured: int) -> ProbeWord:
    """What the probes agree on: down by quorum only, up when more saw it up than down.

    Args:
        up: Locations that reached the machine in this minute.
        down: Locations that did not.
        configured: Locations that there are, whether they looked or not.
    """
    needed = quorum(configured)
    if needed is not None and down >= needed:
        return "down"
    return "up" if up > down else "inconclusive"


def judge_second(running: bool, renter: RenterWord, probe: ProbeWord) -> Judgement:
    """The table of §18 for one second; *running*: the host's tick says that it ran."""
    if not running:
        return Judgement("no_bill", anomaly=renter == "alive" or probe == "up")
    if probe != "down":
        return Judgement("bill")
    if renter == "alive":
        return Judgement("bill", no_network=True)
    return Judgement("hold")


def judge_minute(
    start: int, ran: Sequence[tuple[int, int]], renter: RenterWord, probe: ProbeWord
) -> Spans:
    """Judge the minute from second *start*; *ran*: the seconds whose ticks say that it ran."""
    spans = Spans([], [], [], no_network=False, anomaly=False)
    no_network = anomaly = False
    for second in range(start, start + MINUTE_SECONDS):
        judged = judge_second(any(a <= second < b for a, b in ran), renter, probe)
        no_network |= judged.no_network
        anomaly |= judged.anomaly
        target = getattr(spans, judged.decision)
        if target and target[-1][1] == second:
            target[-1] = (target[-1][0], second + 1)
        else:
            target.append((second, second + 1))
    return spans._replace(no_network=no_network, anomaly=anomaly)
