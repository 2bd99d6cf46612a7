"""Databases that an older program made: brought to the shape of this one, with all they hold."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, TypeGuard

import msgspec
import psycopg
import pytest

from ledger.domain.events import MachineListed, OfferOpened
from ledger.errors import RejectedError
from ledger.projections.rebuild import check, swap
from ledger.services import listings, webhooks
from ledger.services.ledger import Ledger
from ledger.store import database as database_module
from ledger.store.database import migrate
from tests.support.databases import Server
from tests.support.market import DOLLAR, Market
from tests.support.webhooks import claim, register, tell

NEW_READ_MODELS = ("webhook_dead_letters", "webhooks")
"""What revision 0002 was written for; 0001, which makes what the metadata name, had none of it."""
_SHAPE = {
    "columns": "SELECT table_name, column_name, ordinal_position, data_type, is_nullable,"
    " column_default FROM information_schema.columns WHERE table_schema = 'ledger'"
    " ORDER BY table_name, column_name",
    "indexes": "SELECT tablename, indexname, indexdef FROM pg_indexes WHERE schemaname = 'ledger'"
    " ORDER BY tablename, indexname",
    "rights": "SELECT table_name, privilege_type FROM information_schema.role_table_grants"
    " WHERE grantee = 'gpuledger_service' AND table_schema = 'ledger'"
    " ORDER BY table_name, privilege_type",
    "revision": "SELECT version_num FROM ledger.alembic_version",
}


def shape(dsn: str) -> dict[str, list[tuple[Any, ...]]]:
    """Columns, indexes, rights of the service role, and the revision."""
    with psycopg.connect(dsn) as connection:
        return {name: connection.execute(query).fetchall() for name, query in _SHAPE.items()}


@pytest.fixture
def old(server: Server) -> Iterator[str]:
    """An empty database."""
    name = server.blank()
    yield name
    server.drop(name)


@pytest.fixture
def only_0001(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[], AbstractContextManager[None]]:
    """A context in which the program knows the first revision alone."""
    source = database_module._MIGRATIONS
    folder = tmp_path / "migrations"
    (folder / "versions").mkdir(parents=True)
    shutil.copy(source / "env.py", folder)
    shutil.copy(source / "versions" / "0001_log_and_read_models.py", folder / "versions")

    @contextmanager
    def within() -> Iterator[None]:
        with monkeypatch.context() as patch:
            patch.setattr(database_module, "_MIGRATIONS", folder)
            yield

    return within


def forget_new_read_models(dsn: str) -> None:
    """Take away the read models that a program of revision 0001 did not know."""
    with psycopg.connect(dsn) as connection:
        for table in NEW_READ_MODELS:
            connection.execute(f"DROP TABLE ledger.{table}")


def test_revision_0001_and_then_this_program_give_the_shape_of_a_new_database(
    dsn: str, old: str, only_0001: Callable[[], AbstractContextManager[None]]
) -> None:
    """A database that stopped at 0001 ends up with the tables, indexes and rights of a new one."""
    with only_0001():
        migrate(old)
    forget_new_read_models(old)
    assert shape(old)["revision"] == [("0001",)]
    for _ in range(2):
        migrate(old)
        assert shape(old) == shape(dsn)


def test_what_a_database_holds_survives_the_upgrade(
    old: str, only_0001: Callable[[], AbstractContextManager[None]]
) -> None:
    """Facts from before are all there, the books equal a rebuild, and webhooks begin to work."""
    with only_0001():
        before = Market(old)
        forget_new_read_models(old)
        alice = before.account("alice", 100 * DOLLAR)
        machine = before.machine()
        instance = before.rent(alice, machine)
        before.confirm(machine, instance)
        before.run(machine, [instance], 60)
        before.project()
        head, now = before.head(), before.clock()
        before.close()
    after = Market(old, start=now)
    try:
        assert after.head() == head
        assert after.rebuild().equal
        webhook = register(after.ledger, alice, "https://hooks.example/").webhook_id
        tell(after.ledger, alice, "idle")
        assert [one.webhook_id for one in claim(after.ledger)] == [webhook]
        with after.ledger.unit() as unit:
            webhooks.remove(unit, alice, webhook)
        assert after.rebuild().equal
    finally:
        after.close()


def test_read_models_of_an_older_shape_are_made_anew(dsn: str) -> None:
    """A program that folds otherwise asks for a rebuild, which changes shape, rows and rights."""
    market = Market(dsn)
    alice, machine = market.account("alice", 100 * DOLLAR), market.machine()
    instance = market.rent(alice, machine)
    market.confirm(machine, instance)
    market.run(machine, [instance], 60)
    market.project()
    before = shape(dsn)
    with market.ledger.database.connect("owner") as owner:
        owner.execute("UPDATE projection_positions SET version = version - 1")
        owner.execute("ALTER TABLE instances DROP COLUMN terms_due_at")
        owner.execute("ALTER TABLE instances ADD COLUMN colour text")
        owner.execute("DROP TABLE spend_caps")
    for ask in (lambda: Ledger.open(None, url=dsn).close(), lambda: check(market.ledger.database)):
        with pytest.raises(RejectedError, match="gpuledger rebuild") as refused:
            ask()
        assert refused.value.code == "rebuild_needed"
    swap(market.ledger.database)
    assert shape(dsn) == before
    assert check(market.ledger.database).equal
    market.run(machine, [instance], 60)
    assert market.charges(instance)["gpu"] > 0
    market.project()
    assert check(market.ledger.database).equal
    market.close()


def test_machines_listed_before_there_were_offers_come_to_the_market(market: Market) -> None:
    """A listing of an older program gets its offers once, one per slice size."""
    machine = market.machine(gpus=4)
    with market.ledger.unit() as unit:
        listings.unlist_machine(unit, machine)
        (old,) = [fact for fact in market.facts(f"machine-{machine}") if is_listing(fact)]
        unit.append(f"machine-{machine}", msgspec.structs.replace(old, listing_id=99))
    for opened in (1, 0):
        with market.ledger.unit() as unit:
            assert listings.open_missing_offers(unit) == opened
    sizes = [fact.gpus for fact in market.facts(f"machine-{machine}") if is_offer(fact, 99)]
    assert sizes == [1, 2, 4]
    assert market.rebuild().equal


def is_listing(fact: object) -> TypeGuard[MachineListed]:
    """True for a listing."""
    return isinstance(fact, MachineListed)


def is_offer(fact: object, listing_id: int) -> TypeGuard[OfferOpened]:
    """True for an offer of this listing."""
    return isinstance(fact, OfferOpened) and fact.listing_id == listing_id
