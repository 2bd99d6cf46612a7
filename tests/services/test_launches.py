"""What instances are started with: resolved once, sealed, changed; templates, secrets, ssh keys."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ledger.domain.events import (
    InstanceLaunchChanged,
    InstanceLaunchResolved,
    SecureTierChanged,
    SshKeyAttached,
    TemplateChanged,
)
from ledger.domain.ids import account_stream
from ledger.domain.launch import LaunchChange, LaunchConfig
from ledger.errors import LedgerError, NotFoundError, RejectedError
from ledger.services import (
    api_keys,
    erasure,
    launch_policies,
    rentals,
    secrets,
    ssh_keys,
    templates,
)
from ledger.services.desired import versions_of
from ledger.services.images import Resolved
from ledger.services.launches import config_of
from ledger.services.ledger import Unit
from ledger.services.questions import launches as ask
from tests.contract.test_vault import everything
from tests.support.market import DOLLAR, Market

DIGEST = "sha256:" + "5e" * 32
KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f"
OTHER_KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8g"


@pytest.fixture
def alice(market: Market) -> int:
    """A renter with credit."""
    return market.account("alice", 100 * DOLLAR)


def started(market: Market, instance: int) -> LaunchConfig:
    """What an instance is started with now."""
    with market.ledger.reading() as connection:
        found = ask.launch(connection, market.ledger.vault, instance, contents=True)
    assert found.config is not None
    return found.config


def changed(market: Market, instance: int, resolved: Resolved | None = None, **wish: Any) -> None:
    """Change what an instance is started with."""
    with market.ledger.unit() as unit:
        rentals.change_launch(unit, instance, LaunchChange(**wish), resolved)


def code(error: pytest.ExceptionInfo[LedgerError]) -> str:
    """The code of what was raised."""
    return error.value.code


def make_template(market: Market, account: int, **content: Any) -> int:
    """A template of an account."""
    public = content.pop("public", False)
    with market.ledger.unit() as unit:
        given = {"name": "train", "launch": {"image": "a/b:1"}, **content}
        return templates.create(unit, account, given, public=public)


def listed(market: Market, account: int | None, **options: Any) -> list[templates.Template]:
    """Templates as an account sees them."""
    with market.ledger.reading() as connection:
        return templates.templates(connection, market.ledger.vault, account, **options)


# --- resolved at the create -----------------------------------------------------------------------


def test_secrets_template_and_own_values_are_merged_once(market: Market, alice: int) -> None:
    """Own values win over the template's, those over secrets; later edits change nothing (§5.6)."""
    with market.ledger.unit() as unit:
        secrets.set_secret(unit, alice, "A", "secret")
        secrets.set_secret(unit, alice, "B", "secret")
        secrets.set_secret(unit, alice, "C", "secret")
    launch = {"image": "a/b:1", "env": {"B": "template", "C": "template"}, "onstart": "run"}
    template = make_template(market, alice, launch=launch)
    instance = market.rent(
        alice, market.machine(), template=template, launch={"env": {"C": "own"}, "user": "ada"}
    )
    wanted = LaunchConfig(
        image="a/b:1",
        env={"A": "secret", "B": "template", "C": "own"},
        onstart="run",
        user="ada",
    )
    assert started(market, instance) == wanted
    with market.ledger.unit() as unit:
        secrets.set_secret(unit, alice, "A", "other")
        secrets.remove_secret(unit, alice, "B")
        templates.change(unit, alice, template, {"name": "x", "launch": {"image": "c:2"}})
    assert started(market, instance) == wanted
    with market.ledger.unit() as unit:
        templates.delete(unit, alice, template)
    assert started(market, instance) == wanted
    assert market.rebuild().equal


def test_without_anything_nothing_is_kept(market: Market, alice: int) -> None:
    """A create without launch, template and secrets leaves no reference and one fact less."""
    instance = market.rent(alice, market.machine())
    with market.ledger.reading() as connection:
        found = ask.launch(connection, market.ledger.vault, instance, contents=True)
    assert (found.reference, found.launch_hash, found.image_digest) == (None, None, None)
    assert found.config == LaunchConfig()
    kinds = {type(fact) for fact in market.facts(f"instance-{instance}")}
    assert InstanceLaunchResolved not in kinds


def test_the_digest_is_recorded(market: Market, alice: int) -> None:
    """A digest in the reference is recorded without asking, a tag by what its registry said."""
    pinned = market.rent(alice, market.machine(), launch={"image": f"a/b@{DIGEST}"})
    asked = market.rent(
        alice,
        market.machine(),
        launch={"image": "a/b:1"},
        resolved=Resolved({"a/b:1": DIGEST, "other": "sha256:" + "00" * 32}),
    )
    unknown = market.rent(alice, market.machine(), launch={"image": "a/b:1"})
    for instance, digest in ((pinned, DIGEST), (asked, DIGEST), (unknown, None)):
        facts = market.facts(f"instance-{instance}")
        found = [one.image_digest for one in facts if isinstance(one, InstanceLaunchResolved)]
        assert found == ([digest] if digest else [])


def test_an_account_may_demand_the_secure_tier(market: Market, alice: int) -> None:
    """Elsewhere a create is `secure_tier_required` and leaves nothing; in the tier it is let in."""
    community, secure = market.machine("bob"), market.machine("eve")
    with market.ledger.unit() as unit:
        launch_policies.set_policy(unit, alice, secure_only=True)
        launch_policies.set_policy(unit, alice, secure_only=True)
    head = market.head()
    with pytest.raises(RejectedError) as error:
        market.rent(alice, community)
    assert code(error) == "secure_tier_required"
    assert market.head() == head
    row = market.connection.execute(
        "SELECT host_id FROM machines WHERE machine_id = %s", [secure]
    ).fetchone()
    assert row is not None
    with market.ledger.unit() as unit:
        tier = SecureTierChanged(
            host_id=row[0], machine_ids=[secure], secure=True, changed_at=unit.now
        )
        unit.append(account_stream(row[0]), tier)
    market.rent(alice, secure)
    with market.ledger.unit() as unit:
        launch_policies.set_policy(unit, alice, secure_only=False)
    market.rent(alice, community)
    assert market.rebuild().equal


# --- changed --------------------------------------------------------------------------------------


def test_a_change_gives_a_new_reference_and_destroys_the_old_text(
    market: Market, alice: int
) -> None:
    """The fact has the new reference and hash, no text; the replaced secret is kept nowhere."""
    instance = market.rent(
        alice, market.machine(), launch={"image": "a/b:1", "env": {"T": "hunter2-hunter2"}}
    )
    before = market.facts(f"instance-{instance}")
    changed(market, instance, Resolved({"c/d:2": DIGEST}), image="c/d:2", env={"U": "other-s3cret"})
    (fact,) = market.facts(f"instance-{instance}")[len(before) :]
    assert isinstance(fact, InstanceLaunchChanged)
    assert fact.launch.endswith(f"/launch-{instance}-1")
    assert fact.image_digest == DIGEST
    assert started(market, instance) == LaunchConfig(image="c/d:2", env={"U": "other-s3cret"})
    names = [
        row[0]
        for row in market.connection.execute(
            "SELECT name FROM vault_items WHERE name LIKE 'launch-%'"
        )
    ]
    assert names == [f"launch-{instance}-1"]
    changed(market, instance, image="c/d:2")
    assert len(market.facts(f"instance-{instance}")) == len(before) + 1
    changed(market, instance, env={}, onstart="run", args=["-v"])
    assert started(market, instance).env == {}
    assert market.rebuild().equal
    for secret in (b"hunter2", b"other-s3cret", b"c/d:2"):
        assert secret not in everything(market)


def test_a_destroyed_instance_cannot_be_changed(market: Market, alice: int) -> None:
    """After the destroy a change is `no_such_instance`, and what it was started with stays."""
    instance = market.rent(alice, market.machine(), launch={"image": "a/b:1"})
    with market.ledger.unit() as unit:
        rentals.destroy(unit, instance)
    with pytest.raises(NotFoundError) as error:
        changed(market, instance, image="x")
    assert code(error) == "no_such_instance"
    assert started(market, instance).image == "a/b:1"


def test_a_change_touches_no_price(market: Market, alice: int) -> None:
    """Rates, size and kind are as before a change; a running container goes on."""
    machine = market.machine()
    instance = market.rent(alice, machine)
    market.confirm(machine, instance)
    with market.ledger.unit() as unit:
        before = unit.instance(instance)
    changed(market, instance, image="a/b:2")
    with market.ledger.unit() as unit:
        after = unit.instance(instance)
    assert (after.terms, after.disk_bytes, after.gpus) == (
        before.terms,
        before.disk_bytes,
        before.gpus,
    )
    assert (after.status, after.gpu_from) == (before.status, before.gpu_from)


# --- templates ------------------------------------------------------------------------------------


def test_each_edit_is_a_version_with_a_hash_id_of_its_own(market: Market, alice: int) -> None:
    """The id means the newest version, a hash id that version for ever; the same is no edit."""
    template = make_template(market, alice)
    (first,) = listed(market, alice)
    with market.ledger.unit() as unit:
        again = {"name": "train", "launch": {"image": "a/b:1"}}
        templates.change(unit, alice, template, again)
        templates.change(unit, alice, template, {"name": "train", "launch": {"image": "a/b:2"}})
    (second,) = listed(market, alice)
    assert (first.version, second.version) == (1, 2)
    assert first.hash_id != second.hash_id
    machine = market.machine(gpus=4)
    images = [
        started(market, market.rent(alice, machine, gpus=1, template=wanted)).image
        for wanted in (template, first.hash_id, second.hash_id)
    ]
    assert images == ["a/b:2", "a/b:1", "a/b:2"]
    kinds = [type(fact) for fact in market.facts(f"account-{alice}")]
    assert kinds.count(TemplateChanged) == 1
    assert market.rebuild().equal


def test_templates_of_others_are_not_there_unless_public(market: Market, alice: int) -> None:
    """Another's private template is `no_such_template` by id and hash; a public one is for all."""
    carol = market.account("carol", 10 * DOLLAR)
    private = make_template(market, alice)
    public = make_template(market, alice, name="shared", public=True)
    hashes = {one.template_id: one.hash_id for one in listed(market, alice)}
    assert [one.template_id for one in listed(market, carol)] == [public]
    assert listed(market, carol, public=False) == []
    machine = market.machine(gpus=2)
    for wanted in (private, hashes[private], 10**15, "0" * 32, ""):
        with pytest.raises(NotFoundError) as error:
            market.rent(carol, machine, gpus=1, template=wanted)
        assert code(error) == "no_such_template"
    for wanted in (public, hashes[public]):
        market.rent(carol, machine, gpus=1, template=wanted)
    with market.ledger.unit() as unit, pytest.raises(NotFoundError):
        templates.change(unit, carol, public, {"name": "mine", "launch": {}})
    with market.ledger.unit() as unit, pytest.raises(NotFoundError):
        templates.delete(unit, carol, public)


def test_templates_are_found_by_name_and_hash(market: Market, alice: int) -> None:
    """A part of a name in any case, or a whole hash id, finds it; names are unique an account."""
    first = make_template(market, alice, name="Train ResNet")
    second = make_template(market, alice, name="serve")
    (found,) = listed(market, alice, search="resnet")
    assert found.template_id == first
    (found,) = listed(market, alice, search=found.hash_id)
    assert found.template_id == first
    assert listed(market, alice, search="nothing") == []
    assert [one.template_id for one in listed(market, alice, after=first)] == [second]
    with pytest.raises(RejectedError) as error:
        make_template(market, alice, name="SERVE")
    assert (code(error), error.value.detail["template_id"]) == ("template_exists", second)


@pytest.mark.parametrize(
    "content",
    [
        {"name": ""},
        {"name": " x "},
        {"name": "a\x00"},
        {"launch": {"image": "a b"}},
        {"launch": {"price": 1}},
        {"recommended_disk_gb": 0},
        {"public": True, "launch": {"image_login": {"username": "u", "password": "p"}}},
    ],
)
def test_what_is_no_template(market: Market, alice: int, content: dict[str, Any]) -> None:
    """A wrong name or launch, and a login in what everybody sees, are refused; nothing is kept."""
    head = market.head()
    with pytest.raises(RejectedError) as error:
        make_template(market, alice, **content)
    assert code(error) == "invalid_args"
    assert market.head() == head


# --- secrets and ssh keys -------------------------------------------------------------------------


def test_secrets_are_set_replaced_and_removed(market: Market, alice: int) -> None:
    """A name has one value; the same again is no fact, and a removed one is destroyed."""
    with market.ledger.unit() as unit:
        first = secrets.set_secret(unit, alice, "T", "one")
        assert secrets.set_secret(unit, alice, "T", "one") == first
        assert secrets.set_secret(unit, alice, "T", "two") == first
        second = secrets.set_secret(unit, alice, "U", "three")
        assert second == first + 1
    with market.ledger.reading() as connection:
        found = secrets.environment_of(connection, market.ledger.vault, alice)
    assert found == {"T": "two", "U": "three"}
    with market.ledger.unit() as unit:
        secrets.remove_secret(unit, alice, "T")
        with pytest.raises(NotFoundError) as error:
            secrets.remove_secret(unit, alice, "T")
        assert code(error) == "no_such_secret"
        assert secrets.set_secret(unit, alice, "V", "four") == second + 1
    assert market.rebuild().equal


@pytest.mark.parametrize(("name", "value"), [("1", "x"), ("A B", "x"), ("", "x"), ("A", "\x00")])
def test_what_is_no_secret(market: Market, alice: int, name: str, value: str) -> None:
    """A name that no shell takes, or a value with a NUL, is `invalid_args`."""
    with market.ledger.unit() as unit, pytest.raises(RejectedError) as error:
        secrets.set_secret(unit, alice, name, value)
    assert code(error) == "invalid_args"


def test_keys_of_an_account_open_its_later_instances(market: Market, alice: int) -> None:
    """Keys that exist at the create are attached by it; others by hand, and detached by hand."""
    with market.ledger.unit() as unit:
        first = ssh_keys.add_key(unit, alice, f"{KEY} ada@home")
        assert ssh_keys.add_key(unit, alice, KEY) == first
    instance = market.rent(alice, market.machine())
    with market.ledger.unit() as unit:
        second = ssh_keys.add_key(unit, alice, OTHER_KEY)
        ssh_keys.attach(unit, instance, second)
        ssh_keys.attach(unit, instance, second)
        opens = ssh_keys.keys_into(unit.connection, unit.vault, instance)
        assert [one.ssh_key_id for one in opens] == [first, second]
        ssh_keys.detach(unit, instance, second)
        with pytest.raises(NotFoundError) as error:
            ssh_keys.detach(unit, instance, second)
        assert code(error) == "no_such_ssh_key"
    attached = [one for one in market.facts() if isinstance(one, SshKeyAttached)]
    assert [one.ssh_key_id for one in attached] == [first, second]
    assert market.rebuild().equal


def test_a_changed_key_opens_what_the_old_one_did(market: Market, alice: int) -> None:
    """Under the same id the new key lets in, not the old one; a removed one opens nothing."""
    with market.ledger.unit() as unit:
        first = ssh_keys.add_key(unit, alice, KEY)
    instance = market.rent(alice, market.machine())
    with market.ledger.unit() as unit:
        ssh_keys.change_key(unit, alice, first, OTHER_KEY)
        (only,) = ssh_keys.keys_into(unit.connection, unit.vault, instance)
        assert only.key is not None
        assert only.key.line == OTHER_KEY
        third = ssh_keys.add_key(unit, alice, KEY)
        with pytest.raises(RejectedError) as error:
            ssh_keys.change_key(unit, alice, third, OTHER_KEY)
        assert code(error) == "ssh_key_exists"
        ssh_keys.remove_key(unit, alice, first)
        assert ssh_keys.keys_into(unit.connection, unit.vault, instance) == []
    assert market.rebuild().equal


def test_a_machine_hears_of_keys_at_once(market: Market, alice: int) -> None:
    """To attach, change, detach or remove a key is news to the machine that it opens, only."""
    machine, other = market.machine(), market.machine("eve")
    instance = market.rent(alice, machine)
    market.rent(alice, other)

    def version() -> tuple[int, int]:
        with market.ledger.reading() as connection:
            found = versions_of(connection, frozenset({machine, other}))
        return found[machine], found[other]

    with market.ledger.unit() as unit:
        key = ssh_keys.add_key(unit, alice, KEY)
    seen = [version()]
    changes: list[Callable[[Unit], None]] = [
        lambda unit: ssh_keys.attach(unit, instance, key),
        lambda unit: ssh_keys.change_key(unit, alice, key, OTHER_KEY),
        lambda unit: ssh_keys.detach(unit, instance, key),
        lambda unit: ssh_keys.attach(unit, instance, key),
        lambda unit: ssh_keys.remove_key(unit, alice, key),
    ]
    for change in changes:
        with market.ledger.unit() as unit:
            change(unit)
        seen.append(version())
    assert [one for one, _ in seen] == sorted({one for one, _ in seen}), "each is above the last"
    assert len({one for _, one in seen}) == 1
    assert market.rebuild().equal


def test_keys_of_others_are_not_there(market: Market, alice: int) -> None:
    """Another account's key is `no_such_ssh_key` to attach, change and remove."""
    carol = market.account("carol", 10 * DOLLAR)
    with market.ledger.unit() as unit:
        hers = ssh_keys.add_key(unit, alice, KEY)
    instance = market.rent(carol, market.machine())
    with market.ledger.unit() as unit:
        acts: list[Callable[[], None]] = [
            lambda: ssh_keys.attach(unit, instance, hers),
            lambda: ssh_keys.change_key(unit, carol, hers, OTHER_KEY),
            lambda: ssh_keys.remove_key(unit, carol, hers),
        ]
        for act in acts:
            with pytest.raises(NotFoundError) as error:
                act()
            assert code(error) == "no_such_ssh_key"


# --- erased ---------------------------------------------------------------------------------------


def test_erasing_an_account_takes_every_text_and_leaves_the_books(
    market: Market, alice: int
) -> None:
    """After it no launch, template, secret or key opens, nothing new is kept, rebuild is equal."""
    with market.ledger.unit() as unit:
        secrets.set_secret(unit, alice, "T", "hunter2")
        key = ssh_keys.add_key(unit, alice, KEY)
        api_keys.create_key(unit, alice, "renter", name="ada's laptop")
    template = make_template(market, alice, public=True)
    instance = market.rent(alice, market.machine(), template=template)
    with market.ledger.unit() as unit:
        erasure.erase_subject(unit, alice)
    with market.ledger.reading() as connection:
        vault = market.ledger.vault
        launch = ask.launch(connection, vault, instance, contents=True)
        assert config_of(connection, vault, launch.reference) is None
        assert [one.value for one in secrets.secrets_of(connection, vault, alice)] == [None]
        assert [one.key for one in ssh_keys.keys_of(connection, vault, alice)] == [None]
        kept = connection.execute(
            "SELECT count(*) FROM vault_items i JOIN accounts a USING (subject)"
            " WHERE a.account_id = %s",
            [alice],
        ).fetchone()
        assert kept == (0,)
    assert [one.content for one in listed(market, alice)] == [None]
    with pytest.raises(NotFoundError):
        market.rent(market.account("carol", DOLLAR * 10), market.machine(), template=template)
    with market.ledger.unit() as unit, pytest.raises(NotFoundError) as error:
        secrets.set_secret(unit, alice, "T", "x")
    assert code(error) == "erased"
    with market.ledger.unit() as unit:
        ssh_keys.remove_key(unit, alice, key)
        templates.delete(unit, alice, template)
    assert market.rebuild().equal


def test_no_fact_tells_a_text(market: Market, alice: int) -> None:
    """Names of templates, secrets and keys, values, comments and images are in no row in clear."""
    with market.ledger.unit() as unit:
        secrets.set_secret(unit, alice, "MY_PRIVATE_NAME", "hunter2-hunter2")
        ssh_keys.add_key(unit, alice, f"{KEY} ada@private-home")
        api_keys.create_key(unit, alice, "renter", name="ada-s-laptop")
    template = make_template(
        market, alice, name="the-quiet-project", launch={"image": "reg.example/quiet"}
    )
    market.rent(alice, market.machine(), template=template, launch={"onstart": "quiet-start"})
    stored = everything(market)
    for text in (
        b"MY_PRIVATE_NAME",
        b"hunter2",
        b"private-home",
        b"AAAAC3NzaC1lZDI1NTE5",
        b"ada-s-laptop",
        b"quiet",
    ):
        assert text not in stored, text
