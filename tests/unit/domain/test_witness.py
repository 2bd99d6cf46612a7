from __future__ import annotations

import pytest

from ledger.domain.witness import (
    Decision,
    ProbeWord,
    RenterWord,
    judge_minute,
    judge_second,
    probe_word,
)

TABLE: list[tuple[bool, RenterWord, ProbeWord, Decision, bool, bool]] = [
    (True, "alive", "up", "bill", False, False),
    (True, "alive", "inconclusive", "bill", False, False),
    (True, "silent", "up", "bill", False, False),
    (True, "silent", "inconclusive", "bill", False, False),
    (True, "not_installed", "up", "bill", False, False),
    (True, "not_installed", "inconclusive", "bill", False, False),
    (True, "alive", "down", "bill", True, False),
    (True, "silent", "down", "hold", False, False),
    (True, "not_installed", "down", "hold", False, False),
    (False, "alive", "up", "no_bill", False, True),
    (False, "alive", "inconclusive", "no_bill", False, True),
    (False, "alive", "down", "no_bill", False, True),
    (False, "silent", "up", "no_bill", False, True),
    (False, "silent", "inconclusive", "no_bill", False, False),
    (False, "silent", "down", "no_bill", False, False),
    (False, "not_installed", "up", "no_bill", False, True),
    (False, "not_installed", "inconclusive", "no_bill", False, False),
    (False, "not_installed", "down", "no_bill", False, False),
]
"""The table of §18, every combination written out."""


@pytest.mark.parametrize(("running", "renter", "probe", "decision", "network", "anomaly"), TABLE)
def test_every_combination_of_three_witnesses(
    running: bool,
    renter: RenterWord,
    probe: ProbeWord,
    decision: Decision,
    network: bool,
    anomaly: bool,
) -> None:
    """Each row of §18: what is billed, held or not billed, and what is remembered besides."""
    judged = judge_second(running, renter, probe)
    assert judged == (decision, network, anomaly)


def test_a_renter_that_hides_its_heartbeats_gains_nothing() -> None:
    """Silence alone never cancels a bill: without a probe that says down, it is billed."""
    assert judge_second(True, "silent", "up").decision == "bill"
    assert judge_second(True, "silent", "inconclusive").decision == "bill"


@pytest.mark.parametrize(
    ("up", "down", "configured", "word"),
    [
        (4, 0, 4, "up"),
        (0, 4, 4, "down"),
        (0, 3, 4, "inconclusive"),
        (1, 3, 4, "inconclusive"),
        (3, 1, 4, "up"),
        (0, 4, 9, "down"),
        (5, 4, 9, "down"),
        (0, 3, 3, "down"),
        (1, 2, 3, "inconclusive"),
        (0, 2, 2, "inconclusive"),
        (0, 0, 4, "inconclusive"),
        (0, 0, 0, "inconclusive"),
    ],
)
def test_down_is_said_by_quorum_only(up: int, down: int, configured: int, word: str) -> None:
    """Four places must agree, of three all, and two are never enough."""
    assert probe_word(up, down, configured) == word


def test_a_minute_is_judged_second_by_second() -> None:
    """In a minute that is down and silent, only the seconds with running ticks are held."""
    spans = judge_minute(600, [(600, 610), (630, 640)], "silent", "down")
    assert spans.hold == [(600, 610), (630, 640)]
    assert spans.no_bill == [(610, 630), (640, 660)]
    assert spans.bill == []


def test_a_minute_without_ticks_and_alive_is_an_anomaly() -> None:
    """Somebody is alive inside while the host attests nothing: nothing is billed, all is noted."""
    spans = judge_minute(600, [], "alive", "inconclusive")
    assert spans.no_bill == [(600, 660)]
    assert spans.anomaly
    assert not spans.no_network
