"""Backups of the whole database, and restoring one into a new home.

A backup is one file in PostgreSQL's custom dump format, taken from one snapshot while the ledger
serves. The vault's master key is not in it: who has both reads names, who has the file alone
has the books.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import psycopg
from psycopg import sql

from ledger.errors import RejectedError, UnavailableError
from ledger.store.database import SERVICE_ROLE, Database
from ledger.store.embedded import EmbeddedPostgres


def backup(database: Database, path: Path) -> int:
    """Write a backup to *path* and return its size in bytes.

    Raises:
        RejectedError: `file_exists`.
        UnavailableError: `backup_failed`.
    """
    if path.exists():
        raise RejectedError("file_exists", f"{path} exists; a backup never overwrites a file")
    tools = EmbeddedPostgres(Path()).bin_dir
    _run(
        [str(tools / "pg_dump"), "--format=custom", f"--file={path}", database.owner_dsn],
        "backup_failed",
    )
    return path.stat().st_size


def restore(path: Path, home: Path) -> None:
    """Make a new ledger in *home* from a backup; all of it, or nothing.

    Raises:
        RejectedError: `file_missing`, or `home_in_use` when there is a ledger already.
        UnavailableError: `restore_failed`.
    """
    if not path.is_file():
        raise RejectedError("file_missing", f"there is no backup {path}")
    if (home / "postgres").exists():
        raise RejectedError("home_in_use", f"{home} holds a ledger already; give a new folder")
    home.mkdir(parents=True, exist_ok=True)
    try:
        _fill(path, home)
    except BaseException:
        for folder in ("postgres", "run"):
            shutil.rmtree(home / folder, ignore_errors=True)
        raise


def _fill(path: Path, home: Path) -> None:
    """Make the cluster and put the backup into it."""
    with EmbeddedPostgres(home) as server:
        with psycopg.connect(server.dsn, autocommit=True) as connection:
            connection.execute(
                sql.SQL("CREATE ROLE {} NOLOGIN").format(sql.Identifier(SERVICE_ROLE))
            )
            connection.execute(
                sql.SQL("GRANT {} TO CURRENT_USER").format(sql.Identifier(SERVICE_ROLE))
            )
        _run(
            [
                str(server.bin_dir / "pg_restore"),
                "--exit-on-error",
                "--single-transaction",
                "--no-owner",
                f"--dbname={server.dsn}",
                str(path),
            ],
            "restore_failed",
        )


def _run(command: list[str], code: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - our own tools
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
        raise UnavailableError(code, f"{Path(command[0]).name} failed: {last}")
