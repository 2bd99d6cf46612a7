"""The suite's process: one request on standard input, one answer on standard output.

Standard input stays open as long as somebody wants the answer; at its end the process ends too, so
that no agent that was killed leaves full GPUs behind.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from typing import Any

from adapters.hostagent.suite import benchmark, challenge
from adapters.hostagent.suite.port import Measured, not_able


def main() -> int:
    """Answer the request on standard input."""
    request = json.loads(sys.stdin.readline())
    threading.Thread(target=_end_with_the_agent, daemon=True).start()
    found = answer(request)
    print(json.dumps({"result": found.result, "measures": dict(found.measures)}), flush=True)
    return 0


def answer(request: dict[str, Any]) -> Measured:
    """Carry out *request*; what stands in the way is an answer too."""
    try:
        from adapters.hostagent.suite.torch_gpus import visible_gpus  # noqa: PLC0415 - may not exist
    except ImportError as error:
        print(f"no framework: {error}", file=sys.stderr)
        return not_able("no_framework")
    gpus = visible_gpus()
    if request["kind"] == "framework":
        return Measured("passed", {"gpus": len(gpus)}) if gpus else not_able("no_gpu")
    try:
        if request["kind"] == "challenge":
            return challenge.run(gpus, request["nonce"], request["seconds"])
        return benchmark.run(gpus, request["seconds"])
    except RuntimeError as error:
        # The framework's word for whatever went wrong on a GPU.
        print(f"a GPU failed: {error}", file=sys.stderr)
        return Measured("failed", {"gpus": len(gpus), "reason": "gpu_error"})


def _end_with_the_agent() -> None:
    sys.stdin.read()
    os._exit(1)


if __name__ == "__main__":
    sys.exit(main())
