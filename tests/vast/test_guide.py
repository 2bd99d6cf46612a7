"""The guide's routine, end to end: the real client and SDK, the real program and its agent."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from tests.e2e.agents import Agent
from tests.e2e.serving import HostMachine, Serving, wait_for
from tests.support.market import DOLLAR
from tests.support.offers import describe_in
from tests.vast.captured import CREATE, GUIDE_QUERY, GUIDE_QUERY_B
from tests.vast.client import Client, Runner
from tests.vast.conftest import GOOD

Row = dict[str, Any]
PRINTED_QUERY: Final = (
    "gpu_name=RTX_4090 num_gpus=1 reliability>0.98 inet_down>500 \\\n"
    "    disk_space>=100 cuda_vers>=12.4 direct_port_count>=1"
)
LAUNCHER: Final = f"""
import json, subprocess

def vast(*args):
    out = subprocess.run(["vastai", *args, "--raw"], check=True, capture_output=True, text=True)
    return json.loads(out.stdout)

offers = vast("search", "offers", {GUIDE_QUERY!r}, "--type", "bid", "-o", "dlperf_usd-")
offer = offers[0]
ONSTART = " && ".join([
    "cd /workspace",
    "git clone --depth 1 https://github.com/acme/train.git",
    "cd train && pip install -r requirements.txt",
    "nohup python train.py --ckpt-uri s3://acme-ckpt/run-42 > /workspace/train.log 2>&1 &",
])
resp = vast("create", "instance", str(offer["id"]),
            "--image", "pytorch/pytorch:2.4.0-cuda12.4-cudnn9-runtime",
            "--disk", "100", "--ssh", "--direct",
            "--bid_price", "0.30", "--label", "run-42",
            "--env", "-e AWS_ACCESS_KEY_ID=... -e AWS_SECRET_ACCESS_KEY=...",
            "--onstart-cmd", ONSTART)
print(json.dumps(resp))
"""
SDK: Final = """
import asyncio, json, os
from vastai import AsyncClient, SyncClient, VastAI
from vastai.data.instance import InstanceConfig
from vastai.data.query import Query

url, key = os.environ["VAST_URL"], os.environ["VAST_API_KEY"]
sdk = VastAI(api_key=key, server_url=url)
offers = sdk.search_offers(
    query="gpu_name=RTX_4090 num_gpus=1", type="bid", order="dlperf_usd-", limit=3
)
made = sdk.create_instance(
    offers[0]["id"], image="img", disk=100, bid_price=0.3, ssh=True, direct=True, label="run-43"
)
row = sdk.show_instance(made["new_contract"])
sdk.destroy_instance(made["new_contract"])
gone = sdk.show_instance(made["new_contract"])

client = SyncClient(api_key=key, vast_server=url)
offer = client.search(Query.search_defaults(), type_="bid", limit=2)[0]
rented = client.create_instance(offer.id, InstanceConfig(image="img", disk=10))
client.destroy_instance(rented.id)

async def main():
    AsyncClient.SSL_CERT_URL = url + "/static/jvastai_root.cer"
    async with AsyncClient(api_key=key, vast_server=url) as c:
        found = await c.search(Query.search_defaults())
        one = await c.create_instance(found[0].id, InstanceConfig(image="img"))
        await c.destroy_instance(one.id)
        return one.id

third = asyncio.run(main())
try:
    VastAI(api_key="glk_wrong", server_url=url).show_instances()
    refused = 0
except Exception as error:
    refused = error.response.status_code
print(json.dumps({
    "datacenter": offers[0]["datacenter"], "label": row["label"], "bid": row["dph_base"],
    "gone": gone, "ids": [made["new_contract"], rented.id, third], "refused": refused,
}))
"""


class Place:
    """A server with one listed machine whose agent runs."""

    def __init__(self, serving: Serving) -> None:
        """Enrol the machine; its host lists it with the real client."""
        self.serving = serving
        self.host = serving.person("bob", "host")
        self.machine = self._machine()
        self.agent = Agent(serving.url, self.machine)
        self._database = serving.database()

    def _machine(self) -> HostMachine:
        return self.serving.machine(self.host)

    def praise(self) -> None:
        """Let searches find the machine verified and reliable, which takes weeks of checks."""
        describe_in(self._database, self.machine.machine, **GOOD)

    def instance(self, number: int, key: str) -> Row:
        """An instance as these clients read it."""
        answer = self.serving.call("GET", f"/api/v0/instances/{number}/?owner=me", key=key)
        found: Row = answer["instances"]
        return found

    def wait_until(self, number: int, key: str, **columns: Any) -> None:
        """Wait until an instance shows these values."""

        def is_so() -> bool:
            row = self.instance(number, key)
            return all(row[name] == value for name, value in columns.items())

        wait_for(is_so, 30, f"instance {number} to be {columns}")

    def close(self) -> None:
        """End what was started."""
        self.agent.end()
        self._database.close()


@pytest.fixture(scope="module")
def place() -> Iterator[Place]:
    """The program in processes of its own, on a fresh home."""
    with Serving() as serving:
        made = Place(serving)
        yield made
        made.close()


def test_the_guide(place: Place, runner: Runner, tmp_path: Path) -> None:
    """C28, C29: search, launch, outbid, resume, stop, destroy; the bill is the ledger's."""
    serving = place.serving
    alice_key = serving.person("alice", "renter", "100")
    carol_key = serving.person("carol", "renter", "100")
    bob = Client(runner, tmp_path / "bob", serving.url, place.host)
    number = str(place.machine.machine)
    prices = ("-g", "0.36", "-s", "0.15", "-u", "0.003", "-d", "0.003", "-b", "0.10")
    assert "offers created" in bob("list", "machine", number, *prices).out

    alice = Client(runner, tmp_path / "alice", serving.url, None)
    assert alice("set", "api-key", alice_key).code == 0
    printed = alice("search", "offers", PRINTED_QUERY, "-o", "dlperf_usd-")
    assert (printed.code, "Unconsumed text" in printed.out + printed.err) == (1, True)
    place.praise()
    (offer,) = alice.raw("search", "offers", GUIDE_QUERY, "-o", "dlperf_usd-")
    assert offer["gpu_name"] == "RTX 4090"
    assert alice.raw("search", "offers", GUIDE_QUERY_B, "--type", "bid", "-o", "dph") == []

    place.praise()
    made = alice.process(LAUNCHER).json()
    instance: int = made["new_contract"]
    assert made["success"] is True
    place.wait_until(instance, alice_key, actual_status="running")
    (row,) = alice.raw("show", "instances")
    assert (row["id"], row["label"], row["is_bid"]) == (instance, "run-42", True)
    assert (row["dph_base"], row["dph_total"]) == (0.3, 0.320833333)

    # Somebody bids more, and gives the GPU back.
    body = {**CREATE, "price": 0.5, "label": None}
    (other,) = serving.call("POST", "/api/v0/bundles/", {"machine_id": {"eq": number}})["offers"]
    rival = serving.call("PUT", f"/api/v0/asks/{other['id']}/", body, key=carol_key)
    interrupted = {"cur_state": "stopped", "intended_status": "stopped", "next_state": "stopped"}
    place.wait_until(instance, alice_key, actual_status="exited", reason="outbid", **interrupted)
    time.sleep(2)
    serving.call("DELETE", f"/api/v0/instances/{rival['new_contract']}/", key=carol_key)
    place.wait_until(instance, alice_key, actual_status="running")
    time.sleep(2)

    shown = str(instance)
    assert "set to run-42b" in alice("label", "instance", shown, "run-42b").out
    assert "stopping" in alice("stop", "instance", shown).out
    assert "destroying" in alice("destroy", "instance", shown, "-y").out
    assert place.instance(instance, alice_key) is None

    time.sleep(3)  # the last seconds are attested and folded
    today = time.strftime("%Y-%m-%d", time.gmtime())
    tomorrow = time.strftime("%Y-%m-%d", time.gmtime(time.time() + 86_400))
    window = ("-s", today, "-e", tomorrow)
    page = alice.raw("show", "invoices-v1", "--charges", *window)
    lines = serving.call("GET", f"/v1/charges?instance_id={instance}", key=alice_key)["items"]
    amounts: dict[str, int] = {}
    for line in lines:
        nanos = round(float(line["amount"]) * DOLLAR)
        amounts[line["item"]] = amounts.get(line["item"], 0) + nanos
    billed: dict[str, int] = {}
    for day in page["results"]:
        assert (day["source"], day["metadata"]["label"]) == (f"instance-{instance}", "run-42b")
        for item in day["items"]:
            nanos = round(item["amount"] * DOLLAR)
            billed[item["type"]] = billed.get(item["type"], 0) + nanos
    assert billed == amounts
    assert billed["gpu"] > 0
    assert sum(round(day["amount"] * DOLLAR) for day in page["results"]) == sum(amounts.values())
    total = sum(amounts.values()) / DOLLAR
    assert f"${total:.3f}" in alice("show", "invoices-v1", "-c", *window, "--no-color").out


def test_the_sdk(place: Place, runner: Runner, tmp_path: Path) -> None:
    """C30: `VastAI`, `SyncClient` and `AsyncClient` rent, read and destroy, and see refusals."""
    serving = place.serving
    serving.call(
        "PUT",
        f"/v1/machines/{place.machine.machine}/listing",
        {"gpu_hour": "0.36", "storage_gb_month": "0.15", "min_bid": "0.10"},
        key=place.host,
    )
    key = serving.person("dave", "renter", "100")
    place.praise()
    done = Client(runner, tmp_path / "alice", serving.url, key).python(SDK)
    assert done.out, done.err
    said = json.loads(done.out.splitlines()[-1])
    assert {name: said[name] for name in ("datacenter", "label", "bid", "gone", "refused")} == {
        "datacenter": False,
        "label": "run-43",
        "bid": 0.3,
        "gone": None,
        "refused": 401,
    }
    listed = serving.call("GET", "/v1/instances", key=key)["items"]
    assert [(one["instance_id"], one["status"]) for one in listed] == [
        (number, "destroyed") for number in said["ids"]
    ]
    assert [one["bid"] for one in listed] == ["0.3", None, None]
