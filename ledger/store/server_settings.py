"""What the embedded PostgreSQL is told: durable commits, a private socket, room for a big log."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

from ledger.errors import UnavailableError

if TYPE_CHECKING:
    from pathlib import Path

_SETTINGS = """\
# Written by gpuledger at every start. Change settings with ALTER SYSTEM, which wins over this file.
listen_addresses = ''
port = {port}
unix_socket_directories = '{socket_dir}'
unix_socket_permissions = 0700
cluster_name = '{cluster_name}'
max_connections = 100

fsync = on
full_page_writes = on
synchronous_commit = on
wal_compression = {wal_compression}
max_wal_size = 4GB
checkpoint_timeout = 15min
shared_buffers = {shared_buffers}
jit = off

# Most tables only grow: vacuum after inserts early, so that index-only scans and freezing keep up,
# and hot balance rows often, so that their pages keep room for the next version.
autovacuum = on
autovacuum_naptime = 15s
autovacuum_vacuum_scale_factor = 0.05
autovacuum_vacuum_insert_scale_factor = 0.05
autovacuum_analyze_scale_factor = 0.02
autovacuum_vacuum_cost_limit = 1000

timezone = 'UTC'
log_timezone = 'UTC'
# One file per weekday, overwritten a week later. A statement is not repeated in the log: its text
# can be long, and the caller gets the error.
logging_collector = on
log_directory = 'log'
log_filename = 'server-%a.log'
log_rotation_age = 1d
log_rotation_size = 0
log_truncate_on_rotation = on
log_min_error_statement = panic
log_line_prefix = '%m [%p] %d '
"""


def settings_text(*, socket_dir: Path, port: int, cluster_name: str, has_lz4: bool) -> str:
    """Return the configuration file; `GPULEDGER_SHARED_BUFFERS` overrides 512 MB of buffers.

    Raises:
        UnavailableError: That variable is not a size.
    """
    shared_buffers = os.environ.get("GPULEDGER_SHARED_BUFFERS", "512MB")
    if not re.fullmatch(r"[1-9][0-9]*(kB|MB|GB)", shared_buffers):
        message = f"GPULEDGER_SHARED_BUFFERS is not a size such as 512MB: {shared_buffers!r}"
        raise UnavailableError("database_unavailable", message)
    return _SETTINGS.format(
        socket_dir=socket_dir,
        port=port,
        cluster_name=cluster_name,
        shared_buffers=shared_buffers,
        # pglz, the other method, costs more time than the bytes are worth.
        wal_compression="lz4" if has_lz4 else "off",
    )
