"""Write the stored bytes of facts that have none yet: ``python -m tests.golden.make``.

Run by a person, on purpose, when the catalogue has a new fact. Bytes that are there are never
touched: what the log holds for ever must be read for ever. A fact whose shape changed gets a new
version, and the old bytes stay beside the new ones. A signed report is kept with its signature.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

from ledger.domain import events as e
from ledger.domain.hardware import ConnectionPort
from ledger.domain.usage import HostClock, Observation, UsageReport, encode_report
from ledger.store.codec import encode_fact
from tests.golden.examples import EXAMPLES
from tests.golden.examples.core import EPOCH, HASH, T
from tests.support.reports import BLOCK, KEY, sign

FILE: Final = Path(__file__).with_name("facts.json")
REPORT_FILE: Final = Path(__file__).with_name("report.json")
REPORT: Final = UsageReport(
    v=1,
    machine=4001,
    epoch=EPOCH,
    seq=184,
    prev=HASH,
    boot_id="b1",
    agent="0.1.0",
    start=T,
    count=10,
    clock=HostClock(
        mono_ns=81_234_567_890,
        boottime_ns=81_234_567_890,
        wall_ns=1_798_761_610_003_000_000,
        synced=True,
        offset_ms=-3,
        rtt_ms=21,
    ),
    instances=[BLOCK],
    observed=[
        Observation(
            instance=1001,
            assignment=3,
            state="running",
            at=T + 8,
            ports=[ConnectionPort(container_port=22, host_port=40_022)],
        )
    ],
)
"""One signed report; its body is the state of the one topic that is not JSON."""


def stored() -> dict[str, str]:
    """Topic → state, as the log has held it since that version of the fact exists."""
    states: dict[str, str] = json.loads(FILE.read_text("utf-8")) if FILE.exists() else {}
    return states


def stored_report() -> dict[str, str]:
    """The stored report as hex: its public key, signature and body."""
    report: dict[str, str] = json.loads(REPORT_FILE.read_text("utf-8"))
    return report


def main() -> None:
    """Add what is missing, at the end."""
    if not REPORT_FILE.exists():
        body = encode_report(REPORT)
        signed = {
            "public_key": KEY.public_key().public_bytes_raw().hex(),
            "signature": sign(body).hex(),
            "body": body.hex(),
        }
        REPORT_FILE.write_text(json.dumps(signed, indent=1) + "\n", "utf-8")
    states = stored()
    for fact in EXAMPLES:
        states.setdefault(e.topic_of(fact), encode_fact(fact).decode())
    FILE.write_text(json.dumps(states, indent=1, ensure_ascii=False) + "\n", "utf-8")


if __name__ == "__main__":
    main()
