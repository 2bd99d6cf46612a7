"""Markets and signed bodies for measurements, made before anything is measured."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec

from adapters.hostagent.identity import HostIdentity
from adapters.hostagent.reports import ReportChain, SealedReport
from ledger.domain.events import MachineSpec
from ledger.domain.usage import InstanceBlock, Observation
from ledger.services import accounts, deposits, listings, machines, rentals
from ledger.services.ledger import Ledger, SimulatedClock
from ledger.services.usage import SignedReport, UsageService

PAST_SECONDS = 60 * 3_600
"""Markets are set up this long ago, so that old seconds can be reported: late, but in time."""


class Fleet:
    """Machines with running instances, and the chains of their reports."""

    def __init__(self, home: Path, count: int, instances: int, *, seed: int = 1) -> None:
        """Set up *count* machines with *instances* each, all running since `start`."""
        self.home = home
        self.start = int(time.time()) - PAST_SECONDS
        self.random = random.Random(seed)  # noqa: S311 - the same bytes in every run
        self.chains: dict[int, ReportChain] = {}
        self.tenants: dict[int, list[int]] = {}
        ledger = Ledger.open(home, clock=SimulatedClock(self.start))
        ledger.adopt_policy()
        usage = UsageService(ledger)
        confirmations: list[SealedReport] = []
        with ledger.unit() as unit:
            host = accounts.open_account(unit, "host")
            for number in range(count):
                renter = accounts.open_account(unit, f"renter-{number}")
                deposits.deposit(unit, renter, 10**17, "credit")
                spec = MachineSpec(
                    gpus=8, gpu_name="RTX 4090", gpu_ram_gb=24, cpu_cores=64, ram_gb=512,
                    disk_gb=16_000, up_mbps=10_000, down_mbps=10_000,
                )  # fmt: skip
                machine = machines.register(unit, host, spec)
                identity = HostIdentity.from_seed(machine.to_bytes(32, "big"))
                token = machines.offer_enrolment(unit, machine)
                uuids = [f"GPU-{machine}-{slot}" for slot in range(8)]
                machines.enrol(unit, token, identity.public_key_hex, uuids)
                prices = listings.Prices(400_000_000, 150_000_000, 3_000_000, 2_000_000)
                listings.list_machine(unit, machine, prices)
                rented = [
                    rentals.rent(unit, renter, machine, gpus=1, disk_gb=100)
                    for _ in range(instances)
                ]
                chain = ReportChain(machine, identity, boot_id="boot", epoch=f"{machine:032x}")
                observed = [
                    Observation(instance=one, assignment=1, state="running", at=self.start)
                    for one in rented
                ]
                confirmations.append(chain.seal(self.start, 0, [], observed))
                self.chains[machine] = chain
                self.tenants[machine] = rented
        for one in confirmations:
            signed = SignedReport(one.key_id, one.signature, one.body)
            answer = usage.deliver([signed], [self.start])[0]
            assert answer.status == "accepted", answer
        usage.close()
        ledger.close()

    def reports(
        self, rounds: int, seconds: int, *, constant: bool = False
    ) -> Iterator[SealedReport]:
        """*rounds* reports of every machine in turn, bytes uniform in 0…65,535 each way."""
        for _ in range(rounds):
            for machine, chain in self.chains.items():
                start = max(chain.sealed_until, self.start)
                blocks = [
                    self._block(one, start, seconds, constant) for one in self.tenants[machine]
                ]
                yield chain.seal(start, seconds, blocks)

    def _block(self, instance: int, start: int, seconds: int, constant: bool) -> InstanceBlock:
        if constant:
            up: list[int | list[int]] = [[1_000, seconds]]
            down: list[int | list[int]] = [[2_000, seconds]]
        else:
            raw = self.random.randbytes(4 * seconds)
            up = list(memoryview(raw[: 2 * seconds]).cast("H"))
            down = list(memoryview(raw[2 * seconds :]).cast("H"))
        return InstanceBlock(
            instance=instance,
            start=start,
            count=seconds,
            state=[("running", seconds)],
            up=up,
            down=down,
            util=bytes([97]) * seconds,
        )


def request(reports: list[SealedReport], port: int) -> bytes:
    """The bytes of one `POST /v1/usage`."""
    body = msgspec.msgpack.encode([[one.key_id, one.signature, one.body] for one in reports])
    head = (
        f"POST /v1/usage HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nAccept: application/msgpack\r\n"
        f"Content-Type: application/msgpack\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body
