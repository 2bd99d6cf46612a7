"""The agent's folder: its key, what it enrolled as, its spool, its instances, and one lock."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import msgspec

from adapters.hostagent.client import enrol as present
from adapters.hostagent.identity import HostIdentity
from ledger.domain.hardware import Inventory
from ledger.errors import ConflictError, NotFoundError

DEFAULT: Final = Path("/var/lib/gpuledger-agent")


class Enrolled(msgspec.Struct, frozen=True, kw_only=True):
    """Who this machine is, and to whom."""

    server: str
    machine: int
    key_id: str
    gpu_uuids: list[str]
    simulated: bool = False
    """Its GPUs are names only."""
    gpus_only: bool = False
    """It tells of its GPUs, and nothing of the computer around them."""


class AgentHome:
    """Names the files; each is made when it is needed."""

    def __init__(self, folder: Path) -> None:
        """Look at *folder*; nothing is read or written yet."""
        self.folder = folder
        self.key_file = folder / "host.key"
        self.enrolled_file = folder / "enrolled.json"
        self.spool_file = folder / "spool.db"
        self.instances = folder / "instances"
        self.socket = folder / "control.sock"

    def prepare(self) -> None:
        """Make the folder: instances may pass through it, and read nothing in it."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self.folder.chmod(0o711)

    def identity(self) -> HostIdentity:
        """The machine's key, made at the first call; a half-done enrolment uses it again."""
        with suppress(ConflictError):
            HostIdentity.generate().save(self.key_file)
        return HostIdentity.load(self.key_file)

    def enrolled(self) -> Enrolled:
        """As what this machine is enrolled.

        Raises:
            NotFoundError: `not_enrolled`.
        """
        try:
            raw = self.enrolled_file.read_bytes()
        except FileNotFoundError:
            message = (
                f"{self.folder} is not enrolled: make a token on the server"
                " (POST /v1/machines/<id>/enrolment-tokens) and run"
                " `gpuledger agent enrol --server URL --token TOKEN`"
            )
            raise NotFoundError("not_enrolled", message) from None
        return msgspec.json.decode(raw, type=Enrolled)

    def enrol(
        self,
        server: str,
        token: str,
        gpu_uuids: Sequence[str],
        inventory: Inventory | None,
        *,
        simulated: bool = False,
        gpus_only: bool = False,
    ) -> Enrolled:
        """Present this machine's key with the one-time *token*, and keep what it became.

        Raises:
            ConflictError: `enrolled_already`; another folder makes another machine.
            LedgerError: As `client.enrol` raises; the key is kept, and the token is good for
                another try if no answer came.
        """
        self.prepare()
        if self.enrolled_file.exists():
            known = self.enrolled()
            message = (
                f"{self.folder} is machine {known.machine} of {known.server} already;"
                " choose another --state folder for another machine"
            )
            raise ConflictError("enrolled_already", message)
        identity = self.identity()
        machine = present(server, token, identity, gpu_uuids, inventory)
        done = Enrolled(
            server=server,
            machine=machine,
            key_id=identity.key_id,
            gpu_uuids=list(gpu_uuids),
            simulated=simulated,
            gpus_only=gpus_only,
        )
        new = self.enrolled_file.with_suffix(".new")
        with new.open("wb") as file:
            file.write(msgspec.json.encode(done))
            file.flush()
            os.fsync(file.fileno())
        new.replace(self.enrolled_file)
        return done

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Hold the folder's lock: two agents would attest the same seconds twice.

        Raises:
            ConflictError: `agent_running`.
        """
        with (self.folder / "agent.lock").open("a") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                message = f"an agent runs in {self.folder} already"
                raise ConflictError("agent_running", message) from None
            yield
