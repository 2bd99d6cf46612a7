"""A Docker Engine that fits on a page: its documented HTTP API (1.41) on a Unix socket, no kernel.

Containers are values; `start` gives them a process number and nothing runs. What it answers, the
status codes and the shapes included, is what the engine's API reference documents; nothing here
was written for the code under test.
"""

from __future__ import annotations

import base64
import contextlib
import http.server
import io
import json
import re
import secrets
import socketserver
import struct
import tarfile
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import parse_qs, unquote, urlsplit

_STDOUT = 1
_NEVER = "0001-01-01T00:00:00Z"


class Archive(NamedTuple):
    """A file as the engine hands it out: a tar archive, and its size beside it."""

    size: int
    content: bytes


class Problem(Exception):  # noqa: N818 - an answer, not a fault
    """An error answer of the engine."""

    def __init__(self, status: int, message: str) -> None:
        """Keep both."""
        super().__init__(message)
        self.status = status
        self.message = message


class FakeDocker:
    """Serves on `<folder>/docker.sock`; everything that was asked is in `asked`."""

    def __init__(self, folder: Path) -> None:
        """Begin with the image `busybox:latest` in reach of a pull and nothing else."""
        self.asked: list[tuple[str, str, Any]] = []
        self.containers: dict[str, dict[str, Any]] = {}
        self.volumes: set[str] = set()
        self.volume_files: dict[str, dict[str, str]] = {}
        self.volume_options: dict[str, dict[str, str]] = {}
        self.registry = {"busybox:latest", "train:1"}
        self.denied = {"private:latest"}
        self.images: dict[str, dict[str, Any]] = {}
        self.has_quotas = True
        self.least_version = "1.24"
        """Requests in an older version of the interface are refused."""
        self.gpus_inside = True
        self.hangs_inside = False
        """Nothing that is run in a container ends."""
        self.logins: list[str | None] = []
        """What each pull said of who it is, as the engine's client encodes it."""
        self.events: list[dict[str, Any]] = []
        self._execs: dict[str, str] = {}
        self._next_pid = 5000
        self.socket = folder / "docker.sock"
        engine = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                engine._serve(self)

            def do_POST(self) -> None:
                engine._serve(self)

            def do_PUT(self) -> None:
                engine._serve(self)

            def do_DELETE(self) -> None:
                engine._serve(self)

            def address_string(self) -> str:
                return "unix"

            def log_message(self, format: str, *args: object) -> None:
                """Nobody reads it."""

        class Server(socketserver.ThreadingUnixStreamServer):
            daemon_threads = True

        self._server = Server(str(self.socket), Handler)
        threading.Thread(target=self._server.serve_forever, args=[0.01], daemon=True).start()

    @property
    def url(self) -> str:
        """For a client."""
        return f"unix://{self.socket}"

    def close(self) -> None:
        """Stop."""
        self.hangs_inside = False
        self._server.shutdown()
        self._server.server_close()

    # --- what happens by itself ------------------------------------------------------------------

    def exit(self, container: str, code: int) -> None:
        """The first process of a container ends."""
        self._end(self.containers[container], code)

    def write(self, container: str, line: str) -> None:
        """The container writes a line."""
        self.containers[container]["output"].append(line)

    # --- HTTP ------------------------------------------------------------------------------------

    def _serve(self, handler: http.server.BaseHTTPRequestHandler) -> None:
        parts = urlsplit(handler.path)
        path = re.sub(r"^/v1\.\d+", "", unquote(parts.path))
        query = {name: values[-1] for name, values in parse_qs(parts.query).items()}
        raw = _body_of(handler)
        is_json = handler.headers.get("content-type") == "application/json"
        body = json.loads(raw) if raw and is_json else raw or {}
        self.asked.append((handler.command, path, body))
        if path == "/images/create":
            self.logins.append(handler.headers.get("x-registry-auth"))
        try:
            self._require_version(parts.path)
            status, answer = self._answer(handler.command, path, query, body)
        except Problem as problem:
            status, answer = problem.status, {"message": problem.message}
        stat = None
        if isinstance(answer, Archive):
            stat, answer = {"size": answer.size}, answer.content
        is_raw = isinstance(answer, bytes)
        content = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
        content = b"" if status in {204, 304} else content
        if path.startswith("/exec/") and is_raw:
            # The engine takes the connection over for the output, and closes it at its end.
            handler.send_response(101, "UPGRADED")
            handler.send_header("content-type", "application/vnd.docker.raw-stream")
            handler.send_header("connection", "Upgrade")
            handler.send_header("upgrade", "tcp")
            handler.end_headers()
            time.sleep(0.05)
            while self.hangs_inside:
                time.sleep(0.05)
            handler.wfile.write(content)
            handler.close_connection = True
            return
        if path == "/events":
            handler.send_response(200)
            handler.send_header("content-type", "application/json")
            handler.send_header("transfer-encoding", "chunked")
            handler.end_headers()
            for line in content.splitlines(keepends=True):
                handler.wfile.write(b"%x\r\n%s\r\n" % (len(line), line))
            handler.wfile.write(b"0\r\n\r\n")
            return
        handler.send_response(status)
        kind = "application/vnd.docker.raw-stream" if is_raw else "application/json"
        handler.send_header("content-type", kind)
        if stat is not None:
            text = base64.b64encode(json.dumps(stat).encode()).decode()
            handler.send_header("x-docker-container-path-stat", text)
        handler.send_header("content-length", str(len(content)))
        handler.end_headers()
        with contextlib.suppress(ConnectionError):  # Whoever asked may have read enough.
            handler.wfile.write(content)

    def _answer(self, method: str, path: str, query: dict[str, str], body: Any) -> tuple[int, Any]:
        routes: list[tuple[str, str, Callable[..., tuple[int, Any]]]] = [
            ("GET", r"/info", self._info),
            ("GET", r"/version", self._version),
            ("GET", r"/containers/json", self._list),
            ("POST", r"/containers/create", self._create),
            ("GET", r"/containers/([^/]+)/json", self._inspect),
            ("POST", r"/containers/([^/]+)/start", self._start),
            ("POST", r"/containers/([^/]+)/stop", self._stop),
            ("POST", r"/containers/([^/]+)/kill", self._kill),
            ("POST", r"/containers/([^/]+)/wait", self._wait),
            ("DELETE", r"/containers/([^/]+)", self._remove),
            ("GET", r"/containers/([^/]+)/logs", self._logs),
            ("POST", r"/containers/([^/]+)/exec", self._exec),
            ("POST", r"/exec/([^/]+)/start", self._exec_start),
            ("GET", r"/exec/([^/]+)/json", self._exec_inspect),
            ("GET", r"/containers/([^/]+)/archive", self._read_file),
            ("PUT", r"/containers/([^/]+)/archive", self._write_files),
            ("POST", r"/commit", self._commit),
            ("POST", r"/images/create", self._pull),
            ("GET", r"/images/json", self._images),
            ("GET", r"/images/(.+)/json", self._image),
            ("DELETE", r"/images/(.+)", self._remove_image),
            ("POST", r"/volumes/create", self._create_volume),
            ("GET", r"/volumes/([^/]+)", self._volume),
            ("DELETE", r"/volumes/([^/]+)", self._remove_volume),
            ("GET", r"/events", self._events),
        ]
        for verb, pattern, route in routes:
            found = re.fullmatch(pattern, path)
            if verb == method and found is not None:
                return route(*found.groups(), query=query, body=body)
        raise Problem(404, "page not found")

    def _require_version(self, path: str) -> None:
        asked = re.match(r"^/v(1\.\d+)", path)
        if asked is not None and _order(asked[1]) < _order(self.least_version):
            message = (
                f"client version {asked[1]} is too old. Minimum supported API version is"
                f" {self.least_version}, please upgrade your client to a newer version"
            )
            raise Problem(400, message)

    # --- containers ------------------------------------------------------------------------------

    def _list(self, *, query: dict[str, str], body: Any) -> tuple[int, Any]:
        wanted = list(json.loads(query.get("filters", "{}")).get("label", []))
        found = []
        for one in self.containers.values():
            labels = one["Config"]["Labels"]
            texts = {*labels, *(f"{name}={value}" for name, value in labels.items())}
            is_shown = query.get("all") in {"1", "true", "True"} or one["State"]["Running"]
            if is_shown and all(text in texts for text in wanted):
                found.append({"Id": one["Id"], "Labels": labels, "State": one["State"]["Status"]})
        return 200, found

    def _create(self, *, query: dict[str, str], body: Any) -> tuple[int, Any]:
        name = query.get("name", secrets.token_hex(4))
        if any(one["Name"] == f"/{name}" for one in self.containers.values()):
            raise Problem(409, f'Conflict. The container name "/{name}" is already in use')
        image = self._find_image(body["Image"])
        if image is None:
            raise Problem(404, f"No such image: {body['Image']}")
        host = body.get("HostConfig") or {}
        if host.get("StorageOpt") and not self.has_quotas:
            message = "--storage-opt is supported only for overlay over xfs with 'pquota' mount"
            raise Problem(500, message)
        for bind in host.get("Binds") or []:
            self.volumes.add(bind.partition(":")[0])
        key = secrets.token_hex(32)
        self.containers[key] = {
            "Id": key,
            "Name": f"/{name}",
            "Image": image["Id"],
            "Config": {
                "Labels": body.get("Labels") or {},
                "Env": body.get("Env") or [],
                "Cmd": body.get("Cmd"),
                "Entrypoint": body.get("Entrypoint"),
                "User": body.get("User") or "",
                "Hostname": body.get("Hostname") or "",
                "Image": body["Image"],
                "Tty": False,
            },
            "HostConfig": host,
            "State": {
                "Status": "created", "Running": False, "Paused": False, "Pid": 0, "ExitCode": 0,
                "StartedAt": _NEVER, "FinishedAt": _NEVER,
            },
            "NetworkSettings": {"Ports": {}},
            "GraphDriver": {
                "Name": "overlay2",
                "Data": {"MergedDir": f"/var/lib/{key}/merged", "UpperDir": f"/var/lib/{key}/diff"},
            },
            "output": [],
            "files": list(image["files"]),
            "contents": dict(image["contents"]),
        }  # fmt: skip
        return 201, {"Id": key, "Warnings": []}

    def _inspect(self, key: str, *, query: dict[str, str], body: Any) -> tuple[int, Any]:
        shown = dict(self._container(key))
        del shown["output"], shown["files"], shown["contents"]
        return 200, shown

    def _start(self, key: str, *, query: dict[str, str], body: Any) -> tuple[int, Any]:
        one = self._container(key)
        if one["State"]["Running"]:
            return 304, {}
        program = (one["Config"]["Cmd"] or ["sh"])[0]
        bindings = one["HostConfig"].get("PortBindings") or {}
        wished = {port: places[0].get("HostPort") for port, places in bindings.items() if places}
        taken = self._taken_ports()
        for host_port in wished.values():
            if host_port in taken:
                message = (
                    "driver failed programming external connectivity on endpoint"
                    f" {one['Name'][1:]}: Bind for 0.0.0.0:{host_port} failed:"
                    " port is already allocated"
                )
                raise Problem(500, message)
        self._next_pid += 1
        one["State"] |= {
            "Status": "running", "Running": True, "Pid": self._next_pid, "StartedAt": _now(),
        }  # fmt: skip
        free = (str(port) for port in range(32_768, 65_536) if str(port) not in taken)
        for port in sorted(bindings):
            host_port = wished.get(port) or next(free)
            one["NetworkSettings"]["Ports"][port] = [
                {"HostIp": "0.0.0.0", "HostPort": host_port},  # noqa: S104 - as it says
                {"HostIp": "::", "HostPort": host_port},
            ]
        self._tell(one, "start")
        if program.startswith("/no/"):
            # Its init program was started; that is what cannot run the renter's.
            one["output"].append(f"[FATAL tini (7)] exec {program} failed: No such file")
            self._end(one, 127)
        return 204, {}

    def _taken_ports(self) -> set[str]:
        return {
            place["HostPort"]
            for one in self.containers.values()
            for places in one["NetworkSettings"]["Ports"].values()
            for place in places
        }

    def _stop(self, key: str, *, query: dict[str, str], body: Any) -> tuple[int, Any]:
        one = self._container(key)
        if not one["State"]["Running"]:
            return 304, {}
        self._end(one, 143)
        return 204, {}

    def _kill(self, key: str, *, query: dict[str, str], body: Any) -> tuple[int, Any]:
        one = self._container(key)
        if not one["State"]["Running"]:
            raise Problem(409, f"Cannot kill container: {key}: Container {key} is not running")
        self._end(one, 137)
        return 204, {}

    def _wait(self, key: str, *, query: dict[str, str], body: Any) -> tuple[int, Any]:
        return 200, {"StatusCode": self._container(key)["State"]["ExitCode"]}

    def _remove(self, key: str, *, query: dict[str, str], body: Any) -> tuple[int, Any]:
        one = self._container(key)
        if one["State"]["Running"] and query.get("force") not in {"1", "true", "True"}:
            raise Problem(409, "You cannot remove a running container")
        del self.containers[one["Id"]]
        self._tell(one, "destroy")
        return 204, {}

    def _logs(self, key: str, *, query: dict[str, str], body: Any) -> tuple[int, Any]:
        lines = self._container(key)["output"]
        tail = query.get("tail", "all")
        shown = lines if tail == "all" else lines[-int(tail) :]
        return 200, b"".join(_frame(f"{line}\n".encode()) for line in shown)

    def _exec(self, key: str, *, query: dict[str, str], body: Any) -> tuple[int, Any]:
        one = self._container(key)
        if not one["State"]["Running"]:
            raise Problem(409, f"container {key} is not running")
        made = secrets.token_hex(32)
        self._execs[made] = one["Id"]
        return 201, {"Id": made}

    def _exec_start(self, key: str, *, query: dict[str, str], body: Any) -> tuple[int, Any]:
        one = self._container(self._execs[key])
        if not self.gpus_inside:
            return 200, _frame(b"ls: /dev/nvidiactl: No such file or directory\n")
        requests = one["HostConfig"].get("DeviceRequests") or []
        uuids = [uuid for request in requests for uuid in request["DeviceIDs"]]
        lines = [f"GPU {index}: NVIDIA (UUID: {uuid})\n" for index, uuid in enumerate(uuids)]
        return 200, _frame("".join(["/dev/nvidiactl\n", *lines]).encode())

    def _exec_inspect(self, key: str, *, query: dict[str, str], body: Any) -> tuple[int, Any]:
        return 200, {"ID": key, "Running": False, "ExitCode": 0 if self.gpus_inside else 2}

    # --- images, volumes, the rest ---------------------------------------------------------------

    def _read_file(self, key: str, *, query: dict[str, str], body: Any) -> tuple[int, Any]:
        files, place = self._place(key, query["path"])
        if place == ".":
            return 200, Archive(0, _archive(files))
        if place not in files:
            raise Problem(404, f"Could not find the file {query['path']} in container {key}")
        name = place.rpartition("/")[2]
        return 200, Archive(len(files[place]), _archive({name: files[place]}))

    def _write_files(self, key: str, *, query: dict[str, str], body: Any) -> tuple[int, Any]:
        files, place = self._place(key, query["path"])
        with tarfile.open(fileobj=io.BytesIO(body)) as tar:
            for member in tar:
                file = tar.extractfile(member) if member.isfile() else None
                if file is not None:
                    files[f"{place}{member.name}"] = file.read().decode()
        return 200, {}

    def _place(self, key: str, path: str) -> tuple[dict[str, str], str]:
        """The files of the volume at *path*, or of the container, and where in them it is."""
        one = self._container(key)
        for bind in one["HostConfig"].get("Binds") or []:
            volume, at = bind.split(":")[:2]
            if path == at or path.startswith(f"{at}/"):
                return self.volume_files.setdefault(volume, {}), path[len(at) + 1 :]
        return one["contents"], path

    def _commit(self, *, query: dict[str, str], body: Any) -> tuple[int, Any]:
        one = self._container(query["container"])
        name = f"{query['repo']}:{query['tag']}"
        labels = {}
        for change in [query["changes"]] if "changes" in query else []:
            key, _, value = change.removeprefix("LABEL ").partition("=")
            labels[key] = value
        self.images[name] = _image(name, labels, one["files"], one["contents"])
        return 201, {"Id": self.images[name]["Id"]}

    def _pull(self, *, query: dict[str, str], body: Any) -> tuple[int, Any]:
        if "fromSrc" in query:
            name = f"{query['repo']}:{query['tag']}"
            self.images[name] = _image(name, {}, [], {})
            return 200, {"status": self.images[name]["Id"]}
        separator = "@" if query["tag"].startswith("sha256:") else ":"
        name = f"{query['fromImage']}{separator}{query['tag']}"
        if name in self.denied:
            said = f"pull access denied for {query['fromImage']}, repository does not exist or may"
            raise Problem(404, f"{said} require 'docker login': denied")
        if name not in self.registry:
            raise Problem(404, f"manifest for {name} not found: manifest unknown")
        self.images[name] = _image(name, {}, [], {})
        return 200, {"status": f"Status: Downloaded newer image for {name}"}

    def _images(self, *, query: dict[str, str], body: Any) -> tuple[int, Any]:
        wanted = list(json.loads(query.get("filters", "{}")).get("label", []))
        return 200, [
            one
            for one in self.images.values()
            if all(f"{k}={v}" in wanted for k, v in one["Labels"].items()) and one["Labels"]
        ]

    def _image(self, name: str, *, query: dict[str, str], body: Any) -> tuple[int, Any]:
        found = self._find_image(name)
        if found is None:
            raise Problem(404, f"No such image: {name}")
        return 200, found

    def _remove_image(self, name: str, *, query: dict[str, str], body: Any) -> tuple[int, Any]:
        found = self._find_image(name)
        if found is None:
            raise Problem(404, f"No such image: {name}")
        self.images = {key: one for key, one in self.images.items() if one is not found}
        return 200, [{"Deleted": found["Id"]}]

    def _create_volume(self, *, query: dict[str, str], body: Any) -> tuple[int, Any]:
        options = body.get("DriverOpts") or {}
        if "size" in options and not self.has_quotas:
            raise Problem(500, f"create {body['Name']}: quota size requested but no quota support")
        if body["Name"] not in self.volumes:
            self.volume_options[body["Name"]] = options
        self.volumes.add(body["Name"])
        return 201, {"Name": body["Name"]}

    def _volume(self, name: str, *, query: dict[str, str], body: Any) -> tuple[int, Any]:
        if name not in self.volumes:
            raise Problem(404, f"get {name}: no such volume")
        return 200, {"Name": name}

    def _remove_volume(self, name: str, *, query: dict[str, str], body: Any) -> tuple[int, Any]:
        if name not in self.volumes:
            raise Problem(404, f"get {name}: no such volume")
        self.volumes.remove(name)
        self.volume_files.pop(name, None)
        return 204, {}

    def _events(self, *, query: dict[str, str], body: Any) -> tuple[int, Any]:
        since, until = int(query["since"]), int(query["until"])
        shown = [one for one in self.events if since <= one["timeNano"] / 1e9 <= until]
        return 200, b"".join(json.dumps(one).encode() + b"\n" for one in shown)

    def _info(self, *, query: dict[str, str], body: Any) -> tuple[int, Any]:
        backing = "xfs" if self.has_quotas else "extfs"
        return 200, {
            "Driver": "overlay2",
            "DriverStatus": [["Backing Filesystem", backing]],
            "Runtimes": {"runc": {}, "nvidia": {}},
        }

    def _version(self, *, query: dict[str, str], body: Any) -> tuple[int, Any]:
        return 200, {"ApiVersion": "1.52", "MinAPIVersion": self.least_version}

    def _container(self, key: str) -> dict[str, Any]:
        for one in self.containers.values():
            if one["Id"].startswith(key) or one["Name"] == f"/{key}":
                return one
        raise Problem(404, f"No such container: {key}")

    def _find_image(self, name: str) -> dict[str, Any] | None:
        for key, one in self.images.items():
            if name in {key, one["Id"]}:
                return one
        return None

    def _end(self, one: dict[str, Any], code: int) -> None:
        one["State"] |= {
            "Status": "exited", "Running": False, "Pid": 0, "ExitCode": code, "FinishedAt": _now(),
        }  # fmt: skip
        one["NetworkSettings"]["Ports"] = {}
        self._tell(one, "die")

    def _tell(self, one: dict[str, Any], action: str) -> None:
        self.events.append(
            {
                "Type": "container",
                "Action": action,
                "Actor": {"ID": one["Id"], "Attributes": dict(one["Config"]["Labels"])},
                "timeNano": time.time_ns(),
            }
        )


def _image(
    name: str, labels: dict[str, str], files: list[str], contents: dict[str, str]
) -> dict[str, Any]:
    key = f"sha256:{secrets.token_hex(32)}"
    digests = [f"{name.partition(':')[0]}@sha256:{'ab' * 32}"]
    return {
        "Id": key,
        "RepoDigests": digests,
        "Labels": labels,
        "files": files,
        "contents": contents,
    }


def _body_of(handler: http.server.BaseHTTPRequestHandler) -> bytes:
    if handler.headers.get("transfer-encoding") != "chunked":
        return handler.rfile.read(int(handler.headers.get("content-length") or 0))
    parts = []
    while size := int(handler.rfile.readline(), 16):
        parts.append(handler.rfile.read(size))
        handler.rfile.readline()
    handler.rfile.readline()
    return b"".join(parts)


def _archive(files: dict[str, str]) -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as tar:
        for name, text in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(text.encode())
            tar.addfile(entry, io.BytesIO(text.encode()))
    return made.getvalue()


def _order(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))


def _frame(chunk: bytes) -> bytes:
    """Output of a container without a terminal: stream, length, bytes."""
    return struct.pack(">BxxxL", _STDOUT, len(chunk)) + chunk


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%f000Z")
