"""Two hundred clients at once list, search and rent for a minute (`make soak`)."""

from __future__ import annotations

import json
import random
import statistics
import threading
import time
from collections import Counter
from typing import Any, Final

import httpx
import pytest

from adapters.http.vast.turns import WAIT_SECONDS
from tests.e2e.agents import Agent
from tests.e2e.serving import Serving, books_equal_a_rebuild
from tests.vast.captured import CREATE

pytestmark = pytest.mark.soak
CLIENTS: Final = 200
SECONDS: Final = 60
MACHINES: Final = 8
STATED: Final = frozenset({400, 404, 410, 503})
PATIENCE_SECONDS: Final = 4 * WAIT_SECONDS
"""Longer than a request can wait for its turns: whoever hears nothing then found a defect."""


class Crowd:
    """What many clients saw: how long answers took, which statuses, which offers were rented."""

    def __init__(self, url: str, keys: list[str]) -> None:
        """Use these keys in turn."""
        self._url = url
        self._keys = keys
        self._lock = threading.Lock()
        self.seconds: list[float] = []
        self.statuses: Counter[int] = Counter()
        self.rented: dict[int, set[int]] = {}
        self.unstated: list[str] = []

    def run(self, number: int, until: float) -> None:
        """One client: search, rent something of it, list, destroy what it rented."""
        chance = random.Random(number)  # noqa: S311 - which offers are tried is no secret
        headers = {"Authorization": f"Bearer {self._keys[number % len(self._keys)]}"}
        with httpx.Client(base_url=self._url, headers=headers, timeout=PATIENCE_SECONDS) as client:
            while time.monotonic() < until:
                query = {"num_gpus": {"eq": 1}, "limit": 20}
                found = self._call(client, "POST", "/api/v0/bundles/", query)
                offers = [] if found is None else found["offers"]
                made = None
                if offers:
                    offer = chance.choice(offers)["id"]
                    body = {**CREATE, "price": None, "disk": 8, "cancel_unavail": True}
                    made = self._call(client, "PUT", f"/api/v0/asks/{offer}/", body)
                    if made is not None:
                        with self._lock:
                            self.rented.setdefault(offer, set()).add(made["new_contract"])
                self._call(client, "GET", "/api/v1/instances/")
                if made is not None:
                    path = f"/api/v0/instances/{made['new_contract']}/"
                    self._call(client, "DELETE", path)

    def _call(self, client: httpx.Client, method: str, path: str, body: Any = None) -> Any:
        began = time.monotonic()
        answer = client.request(method, path, json=body)
        took = time.monotonic() - began
        with self._lock:
            self.seconds.append(took)
            self.statuses[answer.status_code] += 1
            if answer.status_code != httpx.codes.OK and not _is_stated(answer):
                self.unstated.append(f"{method} {path}: {answer.status_code} {answer.text[:200]}")
        return answer.json() if answer.status_code == httpx.codes.OK else None


def _is_stated(answer: httpx.Response) -> bool:
    """Whether a refusal says why; one for want of a turn also when to repeat."""
    if answer.status_code not in STATED or not answer.json().get("msg"):
        return False
    is_busy = answer.json()["error"] == "busy" and "retry-after" in answer.headers
    return answer.status_code != httpx.codes.SERVICE_UNAVAILABLE or is_busy


def test_two_hundred_clients(capsys: pytest.CaptureFixture[str]) -> None:
    """API-01, API-03: no answer is an unstated failure, and no offer is rented twice."""
    with Serving() as serving:
        host = serving.person("bob", "host")
        agents = []
        for _ in range(MACHINES):
            machine = serving.machine(host, gpus=8)
            agents.append(Agent(serving.url, machine, gpus=8))
            serving.list_machine(machine, "0.40")
        keys = [serving.person(f"renter-{number}", "renter", "1000") for number in range(20)]
        crowd = Crowd(serving.url, keys)
        until = time.monotonic() + SECONDS
        threads = [
            threading.Thread(target=crowd.run, args=(number, until)) for number in range(CLIENTS)
        ]
        for one in threads:
            one.start()
        for one in threads:
            one.join()
        for agent in agents:
            agent.end()
        cuts = statistics.quantiles(crowd.seconds, n=100)
        with capsys.disabled():
            shown = {"p50_s": round(cuts[49], 3), "p99_s": round(cuts[98], 3)}
            print(json.dumps({**shown, "calls": len(crowd.seconds), **crowd.statuses}))
        assert crowd.unstated == []
        assert crowd.rented, "somebody rented something"
        assert {len(made) for made in crowd.rented.values()} == {1}
        database = serving.database()
        rows = database.connect()
        twice = rows.execute(
            "SELECT offer_id FROM instances GROUP BY offer_id HAVING count(*) > 1"
        ).fetchall()
        rows.close()
        assert twice == []
        books_equal_a_rebuild(database)
        database.close()
