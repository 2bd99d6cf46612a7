"""The real client around a rental: volumes, templates, keys, variables, logs, jobs, the audit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ledger.domain.events import PublishedPort
from ledger.services import api_keys, connections, container_logs, jobs
from ledger.services.connections import Addresses
from ledger.services.questions import volumes as ask
from tests.http.test_launches import KEY
from tests.support.market import DOLLAR, Market
from tests.vast.conftest import Person, good_machine
from tests.vast.drives import drives
from tests.vast.loopback import Loopback
from tests.vast.test_client import of
from tests.vast.test_instances import offer_of


def volumes_of(market: Market, account: int) -> list[ask.VolumeView]:
    """The volumes that an account ever had, as the ledger has them."""
    with market.ledger.reading() as connection:
        return ask.volumes(connection, account_id=account)


@drives(
    *("list volume", "search volumes", "create volume", "clone volume", "show volumes"),
    *("delete volume", "unlist volume"),
)
def test_volumes(market: Market, person: Person) -> None:
    """A host offers; a renter makes, clones, lists, mounts and deletes: the ledger says so."""
    machine = good_machine(market, gpus=2)
    bob, alice = person("bob", "host"), person("alice", "renter")
    account = market.account("alice")

    assert "volume offers: 1" in bob("list", "volume", str(machine), "-p", ".1", "-s", "200").out
    (offer,) = alice.raw("search", "volumes", "disk_space>50")
    assert (offer["id"], offer["storage_cost"], offer["disk_space"]) == (1, 0.1, 200)
    assert "V.1" in alice("create", "volume", "1", "-s", "30", "-n", "v1").out
    assert alice("clone", "volume", "1", "1", "-s", "40").err == ""
    assert [
        (one.name, one.disk_bytes // 10**9, one.cloned_from) for one in volumes_of(market, account)
    ] == [
        ("v1", 30, None),
        (None, 40, 1),
    ]
    made = alice.raw(
        *("create", "instance", str(offer_of(market, machine)), "--image", "img", "--disk", "10"),
        *("--env", "-e A=1 -v V.1:/mnt"),
    )
    shown = alice.raw("show", "volumes", "-t", "local")
    assert [(one["id"], one["instances"]) for one in shown] == [
        (1, [made["new_contract"]]),
        (2, []),
    ]
    assert "used by instance" in alice("delete", "volume", "1").err
    assert alice("delete", "volume", "2").err == ""
    assert [one.status for one in volumes_of(market, account)] == ["active", "destroyed"]
    assert "withdrawn" in bob("unlist", "volume", "1").out


@drives(
    *("create template", "search templates", "update template", "create env-var"),
    *("show env-vars", "create ssh-key", "update instance", "create api-key", "show api-keys"),
)
def test_templates_variables_and_keys(
    market: Market, loopback: Loopback, person: Person, tmp_path: Path
) -> None:
    """What the client makes of launches is what the instance then has; a narrow key is narrow."""
    machine = good_machine(market, gpus=2)
    alice = person("alice", "renter")
    account = market.account("alice")

    made = alice("create", "template", "--name", "n", "--image", "i", "--env", "-e A=1", "--ssh")
    (known,) = alice.raw("search", "templates", "name=n")
    assert known["hash_id"] in made.out
    alice("update", "template", known["hash_id"], "--name", "n", "--image", "j", "--env", "-e A=2")
    (changed,) = alice.raw("search", "templates", "name=n")
    assert (changed["image"], changed["version"]) == ("j", 2)
    alice("create", "env-var", "T", "secret")
    assert "T" in alice("show", "env-vars").out
    assert "success" in alice("create", "ssh-key", KEY, "-y").out
    offer = str(offer_of(market, machine))
    rented = alice.raw(
        *("create", "instance", offer, "--template_hash", changed["hash_id"], "--disk", "10")
    )
    number = rented["new_contract"]
    row = alice.raw("show", "instance", str(number))
    assert row["extra_env"] == {"A": "2", "T": "secret"}
    assert (row["image_uuid"], row["template_hash_id"]) == ("j", changed["hash_id"])
    assert alice("update", "instance", str(number), "--image", "k").err == ""
    assert alice.raw("show", "instance", str(number))["image_uuid"] == "k"

    grants = tmp_path / "permissions.json"
    grants.write_text(json.dumps({"api": {"instance_read": {}, "misc": {}}}))
    out = alice("create", "api-key", "--name", "ci", "--permission_file", str(grants)).out
    key = "glk_" + out.partition("glk_")[2].partition("'")[0].partition('"')[0]
    with market.ledger.reading() as connection:
        principal = api_keys.authenticate(connection, key, market.clock())
    assert [one.scope for one in principal.grants or ()] == ["instance_read", "misc"]
    assert "ci" in alice("show", "api-keys").out
    for other in (key, rented["instance_api_key"]):
        other_offer = str(offer_of(market, machine))
        refused = alice(
            *("create", "instance", other_offer, "--image", "i", "--disk", "8", "--api-key", other)
        )
        assert "Failed with error 403" in refused.err
    inside = alice(
        "show", "instance", str(number), "--raw", "--api-key", rented["instance_api_key"]
    )
    assert inside.json()["id"] == number
    assert len(of(market, account)) == 1
    assert loopback.requests()


def _upload(market: Market, machine: int, text: str) -> None:
    """What the host answers to everything that is asked of it."""
    with market.ledger.reading() as connection:
        found = container_logs.open_requests(
            connection, market.ledger.vault, machine, market.clock()
        )
    for one in found:
        with market.ledger.unit() as unit:
            container_logs.upload(unit, None, one.token, text)


@drives(
    *("ssh-url", "attach ssh", "detach ssh", "logs", "reboot instance", "show scheduled-jobs"),
    *("delete scheduled-job", "show audit-logs", "show ipaddrs"),
)
def test_getting_in_logs_and_jobs(market: Market, loopback: Loopback, person: Person) -> None:
    """ssh, logs and jobs go where the host and the calendar say; calls are in the audit log."""
    machine = good_machine(market)
    alice = person("alice", "renter")
    account = market.account("alice")
    number = str(market.rent(account, machine, bid=DOLLAR))
    market.confirm(machine, int(number))
    port = PublishedPort(container_port=22, host_port=40_001, protocol="tcp")
    with market.ledger.unit() as unit:
        connections.publish(unit, int(number), 1, [port], Addresses(public_ip="203.0.113.9"))
    assert alice("ssh-url", number).out.strip() == "ssh://root@203.0.113.9:40001"
    assert "opens instance" in alice("attach", "ssh", number, KEY).out
    assert "no longer" in alice("detach", "ssh", number, "1").out

    loopback.after = lambda: _upload(market, machine, "epoch 1\n")
    assert "epoch 1" in alice("logs", number, "--tail", "5").out

    daily = ("reboot", "instance", number, "--schedule", "DAILY", "--day", "*", "--hour")
    assert "success" in alice(*daily, "3").out
    again = alice(*daily, "4", stdin="y\n")
    assert "Existing scheduled job found" in again.out
    with market.ledger.reading() as connection:
        (job,) = jobs.jobs(connection, account)
    assert (job.plan.action, job.plan.hour) == ("reboot", 4)
    assert "reboot" in alice("show", "scheduled-jobs").out
    alice("delete", "scheduled-job", str(job.job_id))
    with market.ledger.reading() as connection:
        assert jobs.jobs(connection, account) == []

    calls: list[dict[str, Any]] = alice.raw("show", "audit-logs")
    assert calls[0]["api_route"] == f"DELETE /api/v0/commands/schedule_job/{job.job_id}"
    assert [one["ip"] for one in alice.raw("show", "ipaddrs")] == ["testclient"]
