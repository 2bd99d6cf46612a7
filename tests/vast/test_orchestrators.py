"""gpuhunt's and dstack's own clients against the real program (`make clients`)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.e2e.serving import Serving
from tests.vast.client import in_a_process, surroundings
from tests.vast.environments import ORCHESTRATORS, environment
from tests.vast.test_guide import Place

pytestmark = pytest.mark.clients
GPUHUNT: Final = """
import json, os
import gpuhunt.providers.vastai as m
from gpuhunt import QueryFilter
m.bundles_url = os.environ["VAST_URL"] + "/api/v0/bundles/"
p = m.VastAIProvider(
    extra_filters={"direct_port_count": {"gte": 1}, "reliability2": {"gte": 0.9}}
)
items = p.get(QueryFilter(min_disk_size=100, gpu_name=["RTX4090"]))
print(json.dumps([[one.gpu_name, one.spot, one.price, one.instance_name] for one in items]))
"""
DSTACK: Final = """
import json, os
import httpx
from dstack._internal.core.backends.vastai.api_client import VastAIAPIClient
url, key, offer = os.environ["VAST_URL"], os.environ["VAST_API_KEY"], int(os.environ["OFFER"])
c = VastAIAPIClient(key)
c.s.base_url = httpx.URL(url + "/api/")
wrong = VastAIAPIClient("glk_wrong")
wrong.s.base_url = c.s.base_url
i = c.create_instance("lab", offer, "ubuntu:22.04", "echo hi", 30, bid=0.3)
number = i["new_contract"] if isinstance(i, dict) else i
seen = c.get_instance(number)
c.destroy_instance(number)
c.destroy_instance(number)
print(json.dumps([c.auth_test(), wrong.auth_test(), number, seen["actual_status"]]))
"""


@pytest.fixture(scope="module")
def orchestrators() -> Path:
    """Where both packages lie."""
    return environment("orchestrators", ORCHESTRATORS)


@pytest.fixture
def place() -> Iterator[Place]:
    """The program with one machine at $0.39, floor $0.20, storage $0.15."""
    with Serving() as serving:
        made = Place(serving)
        prices = {"gpu_hour": "0.39", "storage_gb_month": "0.15", "min_bid": "0.20"}
        path = f"/v1/machines/{made.machine.machine}/listing"
        serving.call("PUT", path, prices, key=made.host)
        yield made
        made.close()


def test_gpuhunt_quotes_what_the_first_hour_costs(
    place: Place, orchestrators: Path, tmp_path: Path
) -> None:
    """PRICE-02, PRICE-03: its prices with 100 GB are 0.41083, and 0.22083 for spot."""
    place.praise()
    around = surroundings(orchestrators, tmp_path, place.serving.url, None)
    items = in_a_process(orchestrators, around, GPUHUNT).json()
    assert {(one[1], round(one[2], 5)) for one in items} == {(False, 0.41083), (True, 0.22083)}


def test_dstack_rents_reads_and_destroys(place: Place, orchestrators: Path, tmp_path: Path) -> None:
    """API-02, AUC-01: a good key is told from a bad one; create, read, destroy twice work."""
    serving = place.serving
    key = serving.person("alice", "renter", "100")
    (offer,) = serving.call("POST", "/api/v0/bundles/", {})["offers"]
    around = surroundings(orchestrators, tmp_path, serving.url, key)
    script = DSTACK.replace('os.environ["OFFER"]', repr(str(offer["id"])))
    good, bad, number, status = in_a_process(orchestrators, around, script).json()
    assert (good, bad) == (True, False)
    assert status in {"created", "loading", "running"}
    (one,) = serving.call("GET", "/v1/instances", key=key)["items"]
    assert (one["instance_id"], one["status"], one["bid"]) == (number, "destroyed", "0.3")
    assert one["disk_bytes"] == 30 * 10**9
