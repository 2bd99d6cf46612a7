"""A simulated host as a process of its own, for systems on which the agent does not run.

Started by the demo as `python -m adapters.demo.simulated_host URL TOKEN GPUS SEED`. The machine
behind it is simulated; identity, reports, courier and client are those of the agent.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import sys
import time

import httpx

from adapters.hostagent.client import UsageClient, enrol
from adapters.hostagent.courier import Courier, MemorySpool
from adapters.hostagent.identity import HostIdentity
from adapters.hostagent.reports import new_epoch
from adapters.hostagent.simulated import SimulatedHost
from ledger.domain.acknowledgement import UsageAnswer

_MEGABYTE = 1_000_000


def main() -> int:
    """Run until the process that started this one is gone."""
    url, token, gpus, seed = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    parent = os.getppid()
    identity = HostIdentity.from_seed(hashlib.sha256(secrets.token_bytes(32)).digest())
    uuids = [f"GPU-{secrets.token_hex(8)}" for _ in range(gpus)]
    with httpx.Client(timeout=10) as http:
        machine = enrol(url, token, identity, uuids, http=http)
        host = SimulatedHost(
            machine,
            identity,
            now=int(time.time()),
            epoch=new_epoch(),
            boot_id=secrets.token_hex(8),
            report_seconds=1,
            idle_window_seconds=1,
            boot_seconds=1,
        )

        def heard(answer: UsageAnswer) -> None:
            for ack in answer.acks:
                if ack.machine == machine and ack.desired is not None:
                    host.obey(ack.desired, max(host.now, int(time.time())))

        spool = MemorySpool()
        courier = Courier(UsageClient(url, http), spool, on_answer=heard)
        while os.getppid() == parent:
            now = max(host.now, int(time.time()))
            for container in host.containers.values():
                load = host.loads[container.instance]
                if load.up_bytes_per_second == 0:
                    up, down = (20 + 7 * seed) * _MEGABYTE, (60 + 13 * seed) * _MEGABYTE
                    host.set_traffic(container.instance, now, up, down)
            for sealed in host.seal(now):
                spool.put(sealed)
            courier.drain(give_up_after=1)
            time.sleep(0.5 - time.time() % 0.5)
    return 0


if __name__ == "__main__":
    sys.exit(main())
