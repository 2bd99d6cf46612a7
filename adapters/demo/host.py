"""One host of the demo: the real agent, enrolled and run in a folder of its own.

Started as `python -m adapters.demo.host URL TOKEN GPUS FOLDER`. Renters' commands run as processes.
Where `FAKE_NVML_CONTROL` is set, the stub of the driver shows the GPUs; else they are names only.
"""

from __future__ import annotations

import ctypes
import os
import secrets
import signal
import sys
from pathlib import Path
from typing import Final

from adapters.hostagent.home import AgentHome
from adapters.hostagent.program import Options, run
from adapters.hostagent.runtime.process import ProcessRuntime

_PR_SET_PDEATHSIG: Final = 1


def main() -> int:
    """Enrol, and work until SIGTERM or the end of the process that started this one."""
    url, token, gpus, folder = sys.argv[1], sys.argv[2], int(sys.argv[3]), Path(sys.argv[4])
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    home = AgentHome(folder)
    if "FAKE_NVML_CONTROL" in os.environ:
        # The binding of NVML is an extra (`gpuledger[agent]`).
        from adapters.hostagent.acting.machine_senses import take_stock  # noqa: PLC0415

        # One computer plays three machines: its own processors and memory are not theirs.
        stock = take_stock(gpus_only=True)
        home.enrol(url, token, [one.uuid for one in stock.gpus], stock, gpus_only=True)
    else:
        uuids = [f"GPU-{secrets.token_hex(8)}" for _ in range(gpus)]
        home.enrol(url, token, uuids, None, simulated=True)
    try:
        options = Options(runtime="process", report_seconds=1, metrics_port=None)
        return run(home, options)
    finally:
        # An agent leaves its instances running; nobody comes back to these.
        runtime = ProcessRuntime(home.instances)
        for one in runtime.list():
            runtime.remove(one.id)


if __name__ == "__main__":
    sys.exit(main())
