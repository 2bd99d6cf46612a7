"""The real client on an account: its keys, variables, templates, and who it is."""

from __future__ import annotations

import json
from pathlib import Path

from ledger.errors import LedgerError
from ledger.services import api_keys
from ledger.services.questions import launches
from tests.http.test_launches import KEY
from tests.support.market import Market
from tests.vast.conftest import Person, good_machine
from tests.vast.drives import drives
from tests.vast.test_instances import offer_of


@drives("create api-key", "show api-keys", "show api-key", "delete api-key", "reset api-key")
def test_keys(market: Market, person: Person, tmp_path: Path) -> None:
    """A key is made, listed without its secret, deleted; after a reset the old one is dead."""
    alice = person("alice", "renter")
    grants = tmp_path / "permissions.json"
    grants.write_text(json.dumps({"api": {"instance_read": {}}}))
    out = alice("create", "api-key", "--name", "ci", "--permission_file", str(grants)).out
    key = "glk_" + out.partition("glk_")[2].partition("'")[0].partition('"')[0]
    listed = alice.raw("show", "api-keys")["apikeys"]
    (made,) = [one for one in listed if one["name"] == "ci"]
    shown = alice("show", "api-key", str(made["id"])).out
    assert "ci" in shown
    assert key not in shown
    assert alive(market, key)
    assert alice("delete", "api-key", str(made["id"])).err == ""
    assert not alive(market, key)

    printed = alice("reset", "api-key").out
    assert "Failed with error 401" in alice("show", "user").err
    new = printed.partition("New api-key: ")[2].strip()
    assert alice.raw("show", "user", "--api-key", new)["username"] == "alice"
    assert alive(market, new)


def alive(market: Market, key: str) -> bool:
    """Whether the ledger knows somebody by this key now."""
    with market.ledger.reading() as connection:
        try:
            api_keys.authenticate(connection, key, market.clock())
        except LedgerError:
            return False
    return True


@drives(
    *("create env-var", "update env-var", "show env-vars", "delete env-var"),
    *("create ssh-key", "show ssh-keys", "update ssh-key", "delete ssh-key", "set user"),
    *("create template", "update template", "search templates", "delete template"),
)
def test_what_launches_are_made_of(market: Market, person: Person, tmp_path: Path) -> None:
    """Each later launch has what the account kept at that time, and nothing that was deleted."""
    machine = good_machine(market, gpus=3)
    alice = person("alice", "renter")

    def launched(*words: str) -> launches.LaunchView:
        offer = str(offer_of(market, machine))
        made = alice.raw("create", "instance", offer, "--disk", "10", *words)
        with market.ledger.reading() as connection:
            return launches.launch(
                connection, market.ledger.vault, made["new_contract"], contents=True
            )

    for verb, value in (("create", "1"), ("update", "2")):
        assert alice(verb, "env-var", "T", value).err == ""
        assert alice.raw("show", "env-vars", "--show-values") == {"T": value}
    assert "success" in alice("create", "ssh-key", KEY, "-y").out
    (kept,) = alice.raw("show", "ssh-keys")
    assert alice("update", "ssh-key", str(kept["id"]), f"{KEY} laptop").err == ""
    links = ("--href", "https://example.com/n", "--repo", "https://example.com/n.git")
    described = ("--login", "docker.io -u me -p secret", "--search_params", "num_gpus>=2")
    made = ("--name", "n", "--image", "i", "--ssh", *links, *described)
    assert alice("create", "template", *made).err == ""
    (template,) = alice.raw("search", "templates", "name=n")
    assert (template["href"], template["repo"]) == (links[1], links[3])
    assert template["docker_login_repo"] == "docker.io"
    assert json.loads(template["extra_filters"])["num_gpus"] == {"gte": "2"}
    found = launched("--template_hash", template["hash_id"])
    assert found.config is not None
    assert (found.config.image, found.config.env) == ("i", {"T": "2"})
    assert (found.template_id, found.ssh_keys) == (template["id"], [f"{KEY} laptop"])

    again = ("--name", "n", "--image", "j", "--ssh")
    assert alice("update", "template", template["hash_id"], *again).err == ""
    (changed,) = alice.raw("search", "templates", "name=n")
    assert (changed["image"], changed["href"], changed["repo"]) == ("j", links[1], links[3])
    assert "deleted" in alice("delete", "template", "--hash-id", changed["hash_id"]).out
    assert alice.raw("search", "templates", "name=n") == []
    assert alice("delete", "env-var", "T").err == ""
    assert alice.raw("show", "env-vars") == {}
    assert alice("delete", "ssh-key", str(kept["id"])).err == ""
    assert alice.raw("show", "ssh-keys") == []
    found = launched("--image", "k")
    assert found.config is not None
    assert (found.config.env, found.ssh_keys) == ({}, [])

    settings = tmp_path / "user.json"
    settings.write_text(json.dumps({"ssh_key": KEY}))
    assert alice("set", "user", "--file", str(settings)).err == ""
    assert launched("--image", "k").ssh_keys == [KEY]
    settings.write_text(json.dumps({"billaddress_city": "Berlin"}))
    assert "Failed with error 400" in alice("set", "user", "--file", str(settings)).err


@drives("show subaccounts", "show user", "set api-key", "set role")
def test_who_one_is(market: Market, person: Person) -> None:
    """An account has no others under it; a key that the client saved is as good as any."""
    alice = person("alice", "renter")
    assert alice.raw("show", "subaccounts") == []
    assert alice("set", "api-key", "glk_saved").code == 0
    assert alice("set", "role", "host").code == 0
    assert alice.raw("show", "user")["id"] == market.account("alice")
