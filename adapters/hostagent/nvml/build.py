"""Build the stand-in library: `python -m adapters.hostagent.nvml.build FOLDER [VARIANT]`."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

LIBRARY: Final = "libnvidia-ml.so.1"
VARIANTS: Final = {
    "new": (),
    "old": ("-DOLD",),
    "full": ("-DFULL",),
    "old-full": ("-DOLD", "-DFULL"),
}
"""A GeForce on a present driver, on an old one, and a data-centre card on either."""

_SOURCE: Final = Path(__file__).with_name("stub.c")
_HELP: Final = """\
{library} is built. Two GPUs, the second one falling off the bus later:

  cat > gpus.txt <<END
  gpus=2
  gpu0.util=97
  gpu0.procs=1234:8589934592
  END
  export LD_LIBRARY_PATH={folder} FAKE_NVML_CONTROL=$PWD/gpus.txt
  # whatever is started now sees these GPUs
  printf 'gpus=2\\ngpu1.lost=1\\nxid=1:79:a\\n' > next.txt && mv next.txt gpus.txt

Keys of the file, failures and hangs included: adapters/hostagent/nvml/stub.c
"""


class NoCompilerError(Exception):
    """Neither `cc` nor `gcc` is on this machine."""


def compiler() -> str:
    """The C compiler of this machine.

    Raises:
        NoCompilerError: There is none.
    """
    found = shutil.which("cc") or shutil.which("gcc")
    if found is None:
        message = "no C compiler (cc or gcc) is installed here"
        raise NoCompilerError(message)
    return found


def build(folder: Path, variant: str = "new") -> Path:
    """The library in *folder*, made anew.

    Args:
        folder: What `LD_LIBRARY_PATH` then names; made if missing.
        variant: One of `VARIANTS`.

    Raises:
        NoCompilerError: There is nothing to build it with.
        subprocess.CalledProcessError: The compiler refused; its words are on standard error.
    """
    folder.mkdir(parents=True, exist_ok=True)
    library = folder / LIBRARY
    command = [
        compiler(), "-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC",
        "-fvisibility=hidden", f"-Wl,-soname,{LIBRARY}", "-Wl,--no-undefined",
        *VARIANTS[variant], "-o", str(library), str(_SOURCE), "-lpthread",
    ]  # fmt: skip
    subprocess.run(command, check=True)  # noqa: S603 - our own source, fixed arguments
    return library


def main(arguments: list[str]) -> int:
    """Build, and say how to use it by hand."""
    folder_name, variant = (*arguments, "new", "new")[:2]
    if not arguments or arguments[2:] or variant not in VARIANTS or folder_name.startswith("-"):
        sys.stderr.write(f"usage: build FOLDER [{'|'.join(VARIANTS)}]\n")
        return 2
    folder = Path(folder_name).resolve()
    try:
        library = build(folder, variant)
    except NoCompilerError as error:
        sys.stderr.write(f"{error}; the tests then use the simulated GPUs\n")
        return 1
    sys.stdout.write(_HELP.format(library=library, folder=folder))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
