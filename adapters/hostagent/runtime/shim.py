"""What stays with one instance of the process runtime: starts it, keeps its output and its end.

Started as `python -I -S shim.py` with its orders as JSON on standard input, so that no secret is
in a file or on a command line. It outlives the agent: an instance goes on while the agent is
replaced. Standard library only, since it runs in a bare interpreter.

Three processes: this one; `init`, the first of the instance's own process namespace, whose end is
by the kernel the end of everything in it; and the renter's command.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import json
import os
import select
import signal
import socket
import struct
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NoReturn

_NEWNS, _NEWPID, _NEWNET, _NEWIPC = 0x00020000, 0x20000000, 0x40000000, 0x08000000
_MS_NOSUID, _MS_NODEV, _MS_NOEXEC, _MS_REC, _MS_PRIVATE = 0x2, 0x4, 0x8, 0x4000, 0x40000
_MS_BIND, _MS_RDONLY, _MS_REMOUNT = 0x1000, 0x1, 0x20
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER, _PR_SET_NO_NEW_PRIVS = 1, 36, 38
_SIOCGIFFLAGS, _SIOCSIFFLAGS, _IFF_UP = 0x8913, 0x8914, 0x1
_OUTPUT_BYTES = 8 * 2**20
_CHUNK = 65_536
_SIGNALLED = 128
_IS_USER = b"U"
_CANNOT_RUN = 127
_IP_SECONDS = 20
BUSY = 75
"""Exit code when another shim of this instance lives."""

_libc = ctypes.CDLL(None, use_errno=True)


def main() -> int:
    """Run one instance to its end."""
    orders = json.load(sys.stdin)
    folder = Path(orders["folder"])
    lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return BUSY
    for name in ("run.json", "exit.json"):
        (folder / name).unlink(missing_ok=True)
    _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    # Before there is a process namespace: `ip` is none of the instance's processes.
    network = _linked(orders["link"]) if orders["network"] == "bridge" else None
    output_read, output_write = os.pipe2(os.O_CLOEXEC)
    told_read, told_write = os.pipe2(os.O_CLOEXEC)
    isolation = ["pid"] if _unshared(_NEWPID) else []
    pid = os.fork()
    if pid == 0:
        os.close(output_read)
        os.close(told_read)
        _init(orders, isolation, output_write, told_write, network)
    if network is not None:
        # Only the instance's processes hold it now: it ends with the last of them.
        os.close(network)
    os.close(output_write)
    os.close(told_write)
    told = _told(told_read)
    _write(
        folder / "run.json",
        {
            "pid": pid,
            "pid_start": _start_of(pid),
            "shim": os.getpid(),
            "isolation": told.get("isolation", []),
            "error": told.get("error"),
            "started_at": int(time.time()),
        },
    )
    # Whoever started this one waits until the instance runs, and no longer.
    null = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1, 2):
        os.dup2(null, number)
    code = _follow(pid, output_read, folder / "output.log")
    _write(folder / "exit.json", {"code": code, "at": int(time.time())})
    return 0


# --- the first process of the instance ------------------------------------------------------------


def _init(
    orders: dict[str, Any], isolation: list[str], output: int, told: int, network: int | None
) -> None:
    """Prepare the namespaces, start the command, and end with it; never returns."""
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if network is not None:
        if _libc.setns(network, _NEWNET) != 0:
            os._exit(_CANNOT_RUN)
        os.close(network)
        isolation.append("net")
    elif orders["network"] == "own" and _unshared(_NEWNET):
        isolation.append("net")
        _loopback_up()
    if _unshared(_NEWIPC):
        isolation.append("ipc")
    if "pid" in isolation and _unshared(_NEWNS):
        isolation.append("mount")
        _own_proc()
        if network is not None:
            _own_name_servers(orders["link"]["resolv"])
    failed_read, failed_write = os.pipe2(os.O_CLOEXEC)
    command = os.fork()
    if command == 0:
        _command(orders, output, failed_write)
    os.close(failed_write)
    os.close(output)
    said = _all_of(failed_read)
    if said.startswith(_IS_USER):
        isolation.append("user")
    error = said.removeprefix(_IS_USER).decode() or None
    os.write(told, json.dumps({"isolation": isolation, "error": error}).encode())
    os.close(told)

    def forward(number: int, _frame: object) -> None:
        try:
            os.killpg(command, number)
        except OSError as error:
            if error.errno != errno.ESRCH:
                raise

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, forward)
    while True:
        pid, status = os.wait()
        if pid == command:
            code = os.waitstatus_to_exitcode(status)
            os._exit(code if code >= 0 else _SIGNALLED - code)


def _command(orders: dict[str, Any], output: int, failed: int) -> None:
    """Become the renter's command, as a user without rights; never returns."""
    try:
        os.setsid()
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, 0)
        os.dup2(output, 1)
        os.dup2(output, 2)
        os.chdir(orders["disk"])
        uid = orders["uid"]
        if uid is not None and _become(uid):
            os.write(failed, _IS_USER)
        _libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
        os.umask(0o022)
        argv = orders["argv"]
        os.execvpe(argv[0], argv, orders["env"])  # noqa: S606 - to run what the renter asked for
    except OSError as error:
        os.write(failed, f"{error.strerror}: {orders['argv'][0]}".encode())
    finally:
        os._exit(_CANNOT_RUN)


def _become(uid: int) -> bool:
    """False where that is not possible: not root, or a namespace without this number."""
    try:
        os.setgroups([])
        os.setgid(uid)
        os.setuid(uid)
    except OSError:
        return False
    return True


def _unshared(flag: int) -> bool:
    return int(_libc.unshare(flag)) == 0


def _own_proc() -> None:
    """Show the instance its own processes only."""
    if _libc.mount(b"none", b"/", None, _MS_REC | _MS_PRIVATE, None) == 0:
        _libc.mount(b"proc", b"/proc", b"proc", _MS_NOSUID | _MS_NODEV | _MS_NOEXEC, None)


def _own_name_servers(path: str) -> None:
    """Those of the host may listen on its loopback only; where it has no such file, neither."""
    target = os.path.realpath("/etc/resolv.conf").encode()
    if _libc.mount(path.encode(), target, None, _MS_BIND, None) == 0:
        _libc.mount(None, target, None, _MS_BIND | _MS_REMOUNT | _MS_RDONLY, None)


def _linked(link: dict[str, Any]) -> int:
    """A network namespace with a link to this one, ready for use; returns its descriptor.

    Nothing but the descriptor holds it: when it and the processes inside are gone, the kernel
    removes the link, whoever was killed and how.
    """
    here = os.open("/proc/self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    if not _unshared(_NEWNET):
        _fail("the kernel gives no network namespace")
    inside = os.open("/proc/self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    _loopback_up()
    for name, value in (
        # Neighbour discovery would be counted as the renter's bytes, before they do anything.
        ("ipv6/conf/all/disable_ipv6", "1"),
        ("ipv6/conf/default/disable_ipv6", "1"),
        # As root would: the renter has the namespace for themselves.
        ("ipv4/ip_unprivileged_port_start", "0"),
        ("ipv4/ping_group_range", "0 2147483647"),
    ):
        try:
            Path(f"/proc/sys/net/{name}").write_text(value)
        except OSError:
            continue
    if _libc.setns(here, _NEWNET) != 0:
        _fail("the host's network cannot be entered again")
    os.close(here)
    name, prefix = link["name"], link["prefix"]
    with contextlib.suppress(RuntimeError):
        # What an instance of the same slot had goes away by itself, and maybe not yet.
        _ip([f"link delete {name}"])
    try:
        _ip([f"link add {name} type veth peer name eth0 netns /proc/self/fd/{inside}"], inside)
        with contextlib.suppress(RuntimeError):
            # The host's end asks for neighbours too; a kernel without IPv6 has no such word.
            _ip([f"link set {name} addrgenmode none"])
        _ip([f"address add {link['host']}/{prefix} dev {name}", f"link set {name} up"])
        lines = [
            f"address add {link['guest']}/{prefix} dev eth0",
            "link set eth0 up",
            f"route add default via {link['host']}",
        ]
        _ip(lines, inside, is_inside=True)
    except RuntimeError as error:
        _fail(str(error))
    return inside


def _ip(lines: list[str], network: int | None = None, *, is_inside: bool = False) -> None:
    """Carry out lines of iproute2, here or in the namespace behind *network*."""

    def enter() -> None:
        if is_inside and _libc.setns(network, _NEWNET) != 0:
            raise OSError(ctypes.get_errno(), "setns")

    try:
        done = subprocess.run(
            ["ip", "-batch", "-"],  # noqa: S607 - wherever the system has it
            input="".join(f"{line}\n" for line in lines),
            capture_output=True,
            text=True,
            check=False,
            timeout=_IP_SECONDS,
            pass_fds=[] if network is None else [network],
            preexec_fn=enter if is_inside else None,
        )
    except (OSError, subprocess.SubprocessError) as error:
        message = f"ip: {error}"
        raise RuntimeError(message) from error
    if done.returncode != 0:
        message = f"ip: {' '.join(done.stderr.split())}"
        raise RuntimeError(message)


def _fail(message: str) -> NoReturn:
    """End before anything of the instance runs; whoever started this one reads why."""
    sys.stderr.write(f"{message}\n")
    sys.exit(1)


def _loopback_up() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        request = struct.pack("16sh14x", b"lo", 0)
        flags = struct.unpack("16sh14x", fcntl.ioctl(probe, _SIOCGIFFLAGS, request))[1]
        fcntl.ioctl(probe, _SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", flags | _IFF_UP))


# --- beside the instance --------------------------------------------------------------------------


def _follow(pid: int, source: int, path: Path) -> int:
    """Copy the output until the instance has ended; returns its exit code.

    No thread does this: after CLONE_NEWPID the kernel gives this process none.
    """
    output = _Output(path)
    ended = os.pidfd_open(pid)
    poll = select.poll()
    poll.register(ended, select.POLLIN)
    poll.register(source, select.POLLIN)
    is_open = True
    while True:
        ready = {descriptor for descriptor, _ in poll.poll()}
        if source in ready:
            chunk = os.read(source, _CHUNK)
            output.write(chunk)
            if not chunk:
                poll.unregister(source)
                is_open = False
        if ended in ready:
            break
    code = _reaped(pid)
    _kill_what_is_left()
    # All who could write are gone: what they left in the pipe is all there is.
    while is_open and (chunk := os.read(source, _CHUNK)):
        output.write(chunk)
    return code


class _Output:
    """The file that the output goes to; two files of 8 MiB at most."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._open()

    def _open(self) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        self._file = os.open(self._path, flags, 0o600)
        self._size = os.fstat(self._file).st_size

    def write(self, chunk: bytes) -> None:
        """Keep *chunk*; a full disk loses output, it does not stop the instance."""
        try:
            if self._size > _OUTPUT_BYTES:
                os.close(self._file)
                self._path.replace(self._path.with_suffix(".log.1"))
                self._open()
            self._size += os.write(self._file, chunk)
        except OSError:
            return


def _reaped(pid: int) -> int:
    while True:
        ended, status = os.wait()
        if ended == pid:
            code = os.waitstatus_to_exitcode(status)
            return code if code >= 0 else _SIGNALLED - code


def _kill_what_is_left() -> None:
    """Without a process namespace, what left the group has become a child of this process."""
    while True:
        for child in _children():
            os.kill(child, signal.SIGKILL)
        try:
            os.wait()
        except ChildProcessError:
            return


def _children() -> list[int]:
    path = Path(f"/proc/self/task/{os.getpid()}/children")
    return [int(one) for one in path.read_text().split()]


def _told(source: int) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(_all_of(source) or b"{}")
    return found


def _all_of(source: int) -> bytes:
    parts = []
    while chunk := os.read(source, _CHUNK):
        parts.append(chunk)
    os.close(source)
    return b"".join(parts)


def _start_of(pid: int) -> int | None:
    """Field 22 of `/proc/<pid>/stat`: with the pid it names one process for good."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return None
    return int(text.rpartition(")")[2].split()[19])


def _write(path: Path, value: dict[str, Any]) -> None:
    new = path.with_suffix(".new")
    new.write_text(json.dumps(value))
    new.replace(path)


if __name__ == "__main__":
    sys.exit(main())
