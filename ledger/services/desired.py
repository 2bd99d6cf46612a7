"""What the server wants of each machine: a level that its agent moves towards, not a command.

It travels in every acknowledgement, and at once to a machine that waits for it (`DesiredWatch`), so
that a displacement is on its way to the machine as soon as it is committed. Image, environment and
commands of an instance go only to the machine that must run it, over a request that it signed.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Collection
from concurrent.futures import Future
from typing import Any, Final, NamedTuple

import msgspec

from ledger.domain.acknowledgement import Desired, DesiredInstance, DesiredMount, DesiredVolume
from ledger.errors import LedgerError, NotFoundError, UnavailableError
from ledger.services.container_logs import newest_request, newest_requests
from ledger.services.credit import read_credit
from ledger.services.ledger import Ledger, read_policy
from ledger.services.questions.launches import launch
from ledger.store.database import Connection
from ledger.store.vault import Vault

_LEASE_SECONDS: Final = 86_400
"""How far ahead the end of a credit lease is looked for."""
_LEASE_AGE_SECONDS: Final = 5
"""A credit lease in an answer is at most this old."""
_GONE_SECONDS: Final = 7 * 86_400
"""How long a destroyed instance is still named, for hosts that could not hear of it before."""
_KNOWN_MACHINES_MAX: Final = 100_000
_AT_ONCE: Final = frozenset({"zero_balance", "spend_cap"})
"""Reasons of a stop for which nobody pays a second more: the container is killed."""
_WATCH_SECONDS: Final = 0.2
_NOWHERE: Final = (-1, -1)


class DesiredStates:
    """What the server wants of each machine; read again only when facts changed it."""

    def __init__(self, ledger: Ledger) -> None:
        """Begin empty."""
        self._ledger = ledger
        self._known: dict[int, tuple[int, int, Desired]] = {}
        """Machine → (fact position, second) at which it was read, and what was read."""

    def of(
        self,
        connection: Connection,
        machine_ids: Collection[int],
        fact_position: int | None = None,
    ) -> dict[int, Desired]:
        """The desired state of each machine, its leases at most a few seconds old."""
        now = self._ledger.clock()
        stale = [
            machine_id
            for machine_id in machine_ids
            if fact_position is None
            or machine_id not in self._known
            or self._known[machine_id][0] != fact_position
            or self._known[machine_id][1] + _LEASE_AGE_SECONDS < now
        ]
        if stale:
            if len(self._known) > _KNOWN_MACHINES_MAX:
                self._known.clear()
            for machine_id, desired in self._read(connection, stale, now).items():
                self._known[machine_id] = (fact_position or 0, now, desired)
        return {one: self._known[one][2] for one in machine_ids if one in self._known}

    def _read(
        self, connection: Connection, machine_ids: Collection[int], now: int
    ) -> dict[int, Desired]:
        versions = versions_of(connection, machine_ids)
        rows = connection.execute(
            "SELECT machine_id, instance_id, assignment_no, status, gpu_uuids, disk_bytes,"
            " account_id, reason, reboots FROM instances WHERE machine_id = ANY(%s)"
            " AND (destroyed_at IS NULL OR destroyed_at > %s) ORDER BY instance_id",
            [list(machine_ids), now - _GONE_SECONDS],
        ).fetchall()
        runs = {row[6] for row in rows if row[3] in {"loading", "running"}}
        policy = read_policy(connection)
        leases = {
            account_id: credit.dry_second(now, policy, horizon_seconds=_LEASE_SECONDS)
            for account_id, credit in (read_credit(connection, runs) if runs else {}).items()
        }
        volumes, mounts = _volumes(connection, machine_ids, now - _GONE_SECONDS)
        instances: dict[int, list[DesiredInstance]] = {one: [] for one in versions}
        for row in rows:
            machine_id, instance_id, assignment, status, uuids, disk_bytes, account_id = row[:7]
            reason, reboots = row[7:]
            runs_now = status in {"loading", "running"}
            instances[machine_id].append(
                DesiredInstance(
                    instance=instance_id,
                    assignment=assignment,
                    want="running" if runs_now else "gone" if status == "destroyed" else "stopped",
                    gpu_uuids=uuids,
                    disk_bytes=disk_bytes,
                    run_until=leases.get(account_id) if runs_now else None,
                    at_once=status == "scheduling" or (status == "stopped" and reason in _AT_ONCE),
                    reboots=reboots,
                    volumes=mounts.get(instance_id, []),
                )
            )
        return {
            machine_id: Desired(
                version=version,
                instances=instances[machine_id],
                volumes=volumes.get(machine_id, []),
            )
            for machine_id, version in versions.items()
        }


def with_specs(connection: Connection, vault: Vault, desired: Desired) -> Desired:
    """The same, with what each instance that is to run is started from.

    Only for the machine itself, over a request that it signed: environments hold secrets.
    """
    return msgspec.structs.replace(
        desired,
        instances=[
            msgspec.structs.replace(one, spec=spec_of(connection, vault, one.instance))
            if one.want == "running"
            else one
            for one in desired.instances
        ],
    )


def spec_of(connection: Connection, vault: Vault, instance_id: int) -> dict[str, Any] | None:
    """What an instance is started from; null where the vault cannot tell.

    The stops of others do not wait for a locked vault: a machine that gets no spec starts nothing.
    """
    try:
        view = launch(connection, vault, instance_id, contents=True, for_host=True)
    except (NotFoundError, UnavailableError):
        return None
    spec: dict[str, Any] = msgspec.to_builtins(view.config)
    return {**spec, "digest": view.image_digest, "ssh_keys": view.ssh_keys}


def _volumes(
    connection: Connection, machine_ids: Collection[int], gone_after: int
) -> tuple[dict[int, list[DesiredVolume]], dict[int, list[DesiredMount]]]:
    """The volumes of each machine, and what each living instance has of them."""
    volumes: dict[int, list[DesiredVolume]] = {}
    for machine_id, volume_id, disk_bytes, cloned_from, destroyed_at in connection.execute(
        "SELECT machine_id, volume_id, disk_bytes, cloned_from, destroyed_at FROM volumes"
        " WHERE machine_id = ANY(%s) AND (destroyed_at IS NULL OR destroyed_at > %s)"
        " ORDER BY volume_id",
        [list(machine_ids), gone_after],
    ):
        one = DesiredVolume(
            volume=volume_id,
            want="kept" if destroyed_at is None else "gone",
            disk_bytes=disk_bytes,
            cloned_from=cloned_from,
        )
        volumes.setdefault(machine_id, []).append(one)
    mounts: dict[int, list[DesiredMount]] = {}
    if volumes:
        for instance_id, volume_id, mount_path in connection.execute(
            "SELECT a.instance_id, a.volume_id, a.mount_path FROM volume_attachments a"
            " JOIN instances i USING (instance_id) WHERE i.machine_id = ANY(%s)"
            " AND i.destroyed_at IS NULL ORDER BY a.instance_id, a.volume_id",
            [list(volumes)],
        ):
            mount = DesiredMount(volume=volume_id, mount_path=mount_path)
            mounts.setdefault(instance_id, []).append(mount)
    return volumes, mounts


class _Waiting(NamedTuple):
    after: int
    after_log: int | None
    """Number of the last log request that it heard of; none: it does not wait for them."""
    until: float
    """Monotonic second at which it is told that nothing changed."""
    future: Future[None]

    def is_over(self, version: int, newest_log: int) -> bool:
        return self.after < version or (self.after_log is not None and self.after_log < newest_log)


class DesiredWatch:
    """Tells waiting machines when what is wanted of them changed; one small query for all of them.

    Every 200 ms it reads one row, the position of the last fact and the number of the last log
    request; the machines that wait are looked up only when one of them moved.
    """

    def __init__(self, ledger: Ledger) -> None:
        """Watch *ledger*; the thread runs while anybody waits."""
        self._ledger = ledger
        self._lock = threading.Lock()
        self._waiting: dict[int, list[_Waiting]] = {}
        self._is_running = False
        self._is_closed = False

    def changed(
        self, machine_id: int, after: int, seconds: float, *, after_log: int | None = None
    ) -> Future[None]:
        """Done when the machine's version is above *after*, or after *seconds*.

        With *after_log* also when a log request above it waits there.
        """
        future: Future[None] = Future()
        one = _Waiting(after, after_log, time.monotonic() + seconds, future)
        with self._lock:
            if self._is_closed:
                future.set_result(None)
                return future
            self._waiting.setdefault(machine_id, []).append(one)
            if not self._is_running:
                self._is_running = True
                threading.Thread(target=self._run, name="desired-watch", daemon=True).start()
        return future

    def close(self) -> None:
        """Let everybody go."""
        with self._lock:
            self._is_closed = True
            for machine_id in list(self._waiting):
                self._release(machine_id, lambda _: True)

    def _run(self) -> None:
        position, looked_for = _NOWHERE, frozenset[int]()
        while True:
            with self._lock:
                asked = frozenset(self._waiting)
                if not asked:
                    self._is_running = False
                    return
            try:
                with self._ledger.reading() as connection:
                    now_at = _fact_position(connection), newest_request(connection)
                    # A machine that came since the last look may have missed the change before it.
                    if now_at != position or not asked <= looked_for:
                        now = self._ledger.clock()
                        logs = newest_requests(connection, asked, now)
                        self._let_go(versions_of(connection, asked), logs)
                        position, looked_for = now_at, asked
            except LedgerError:
                # The database is away; whoever waits long enough is told nothing.
                position = _NOWHERE
            self._let_late_go()
            time.sleep(_WATCH_SECONDS)

    def _let_go(self, versions: dict[int, int], logs: dict[int, int]) -> None:
        with self._lock:
            for machine_id, version in versions.items():
                newest = logs.get(machine_id, 0)
                self._release(machine_id, lambda one, at=version, log=newest: one.is_over(at, log))

    def _let_late_go(self) -> None:
        now = time.monotonic()
        with self._lock:
            for machine_id in list(self._waiting):
                self._release(machine_id, lambda one: one.until <= now)

    def _release(self, machine_id: int, is_due: Any) -> None:
        kept = []
        for one in self._waiting.get(machine_id, []):
            if one.future.cancelled():
                continue
            if is_due(one):
                one.future.set_running_or_notify_cancel()
                one.future.set_result(None)
            else:
                kept.append(one)
        if kept:
            self._waiting[machine_id] = kept
        else:
            self._waiting.pop(machine_id, None)


def versions_of(connection: Connection, machine_ids: Collection[int]) -> dict[int, int]:
    """Machine → the version of what is wanted of it."""
    return dict(
        connection.execute(
            "SELECT machine_id, desired_version FROM machines WHERE machine_id = ANY(%s)",
            [list(machine_ids)],
        ).fetchall()
    )


def _fact_position(connection: Connection) -> int:
    row = connection.execute("SELECT fact_position FROM log_position").fetchone()
    return 0 if row is None else int(row[0])
