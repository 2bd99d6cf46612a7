"""The renter's ssh keys in a container: lines of root's `authorized_keys`, beside the renter's own.

They are put there through the engine's copying, which works whether the container runs or not and
needs no program inside. What the market lets in stands between two lines that say so; everything
else in the file is the renter's, and stays.
"""

from __future__ import annotations

import contextlib
import io
import tarfile
from collections.abc import Sequence
from typing import Final

import docker
from docker.errors import NotFound

FILE: Final = "/root/.ssh/authorized_keys"
_BEGIN: Final = "# --- gpuledger: keys attached to this instance; changed from outside"
_END: Final = "# --- gpuledger: end"
_FILE_BYTES_MAX: Final = 2**20


class KeysError(Exception):
    """The file inside is nothing that keys can be added to."""


def install(api: docker.APIClient, container: str, keys: Sequence[str]) -> bool:
    """Let exactly *keys* in, besides what the renter put there; true when that changed the file.

    Raises:
        KeysError: The renter made something else of the file.
        NotFound: There is no such container.
        APIError: The engine cannot.
    """
    before = _read(api, container)
    after = with_keys(before, keys)
    if after == before:
        return False
    api.put_archive(container, "/", _archive(after.encode()))
    return True


def with_keys(text: str, keys: Sequence[str]) -> str:
    """The file with *keys* between our lines, or without those where there are none."""
    lines = text.splitlines()
    if _BEGIN in lines:
        begin = lines.index(_BEGIN)
        # Without the second line nobody knows which are ours: then all of them are the renter's.
        end = lines.index(_END, begin) + 1 if _END in lines[begin:] else begin + 1
        lines[begin:end] = []
    if keys:
        lines += [_BEGIN, *keys, _END]
    return "".join(f"{line}\n" for line in lines)


def _read(api: docker.APIClient, container: str) -> str:
    """The file inside; empty where there is none."""
    try:
        stream, facts = api.get_archive(container, FILE)
    except NotFound as error:
        error.response.close()  # The client leaves an answer that it did not read open.
        api.inspect_container(container)  # raises where it is the container that is not there
        return ""
    with contextlib.closing(stream):
        if int(facts.get("size") or 0) > _FILE_BYTES_MAX:
            message = f"{FILE} is larger than {_FILE_BYTES_MAX} bytes"
            raise KeysError(message)
        content = b"".join(stream)
    with tarfile.open(fileobj=io.BytesIO(content)) as tar:
        for member in tar:
            file = tar.extractfile(member) if member.isfile() else None
            if file is not None:
                return file.read().decode(errors="replace")
    message = f"{FILE} is no file"
    raise KeysError(message)


def _archive(content: bytes) -> bytes:
    """The file in its folder, both as sshd wants them: nobody but root may write."""
    folder = tarfile.TarInfo("root/.ssh")
    folder.type, folder.mode = tarfile.DIRTYPE, 0o700
    file = tarfile.TarInfo(FILE.lstrip("/"))
    file.size, file.mode = len(content), 0o600
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as tar:
        tar.addfile(folder)
        tar.addfile(file, io.BytesIO(content))
    return made.getvalue()
