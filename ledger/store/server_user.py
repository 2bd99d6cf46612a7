"""Who the embedded PostgreSQL runs as, and how its programs are run as that user.

PostgreSQL refuses to run as root. For an ordinary user the server runs as the caller. For root it
runs as the owner of the existing cluster (also one without a name, as after a new container was put
on an old volume), and a new cluster belongs to the system user `gpuledger-db`, created when
missing.
"""

from __future__ import annotations

import grp
import os
import pwd
import subprocess
import tempfile
from typing import TYPE_CHECKING, NamedTuple

from ledger.errors import UnavailableError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

SERVER_USER = "gpuledger-db"
PRIVATE_MODE = 0o700

# Nothing of the caller's environment: PGDATA or a locale would change what the programs do.
_ENVIRONMENT = {
    "PATH": "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin",
    "LC_ALL": "C",
    "TZ": "UTC",
}


class ServerUser(NamedTuple):
    """The user of the server's processes; `switch` is set when that is not the caller."""

    uid: int
    gid: int
    switch: bool

    def own(self, path: Path) -> None:
        """Give *path* to the server's user."""
        if self.switch:
            os.chown(path, self.uid, self.gid)

    def run(self, arguments: Sequence[str], *, pass_fd: int | None = None) -> tuple[int, str]:
        """Run a program as this user; return its exit status and everything it printed.

        The output goes to a file: a server that inherits a pipe keeps it open, and reading never
        ends.
        """
        with tempfile.TemporaryFile() as output:
            finished = subprocess.run(  # noqa: S603 - our own programs, no shell
                arguments,
                check=False,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                pass_fds=() if pass_fd is None else (pass_fd,),
                cwd="/",
                env=_ENVIRONMENT,
                umask=0o077,
                user=self.uid if self.switch else None,
                group=self.gid if self.switch else None,
                extra_groups=[] if self.switch else None,
            )
            output.seek(0)
            return finished.returncode, output.read().decode(errors="replace").strip()

    def can_enter(self, path: Path) -> bool:
        """Whether the server's user may use *path*, through all the folders above it."""
        return not self.switch or self.run(["/usr/bin/env", "test", "-x", str(path)])[0] == 0


def server_user(data_dir: Path) -> ServerUser:
    """Return the user for the cluster in *data_dir*, which need not exist yet.

    Raises:
        UnavailableError: The cluster belongs to somebody else, or no user can be created.
    """
    caller_uid = os.geteuid()
    owner = data_dir.stat() if data_dir.exists() else None
    if caller_uid != 0:
        if owner is not None and owner.st_uid != caller_uid:
            message = (
                f"{data_dir} belongs to uid {owner.st_uid}: run as that user or choose another home"
            )
            raise UnavailableError("database_unavailable", message)
        return ServerUser(caller_uid, os.getegid(), switch=False)
    if owner is not None and owner.st_uid != 0:
        return ServerUser(owner.st_uid, owner.st_gid, switch=True)
    try:
        entry = pwd.getpwnam(SERVER_USER)
    except KeyError:
        entry = _create_server_user()
    return ServerUser(entry.pw_uid, entry.pw_gid, switch=True)


def _create_server_user() -> pwd.struct_passwd:
    has_group = any(group.gr_name == SERVER_USER for group in grp.getgrall())
    returncode, output = ServerUser(os.geteuid(), os.getegid(), switch=False).run(
        [
            *("/usr/bin/env", "useradd", "--system", "--no-create-home"),
            *(("--gid", SERVER_USER) if has_group else ("--user-group",)),
            *("--home-dir", "/nonexistent", "--shell", "/usr/sbin/nologin", SERVER_USER),
        ]
    )
    try:
        # Another process may have created it at the same time, which makes useradd fail.
        return pwd.getpwnam(SERVER_USER)
    except KeyError as error:
        message = (
            f"PostgreSQL does not run as root, and its system user {SERVER_USER} cannot be created "
            f"(useradd: {returncode}, {output}): create it, start as an ordinary user, "
            "or set GPULEDGER_DATABASE_URL"
        )
        raise UnavailableError("database_unavailable", message) from error
