"""Logs of containers on demand: asked, uploaded, fetched by who knows where, forgotten."""

from __future__ import annotations

import pytest

from ledger.errors import DeclinedError, LedgerError, NotFoundError
from ledger.services import container_logs, erasure, rentals
from ledger.services.container_logs import KEEP_SECONDS, TEXT_CHARACTERS_MAX, Options
from tests.contract.test_vault import everything
from tests.support.market import DOLLAR, Market

TEXT = "epoch 1\nsomething-private\n"


@pytest.fixture
def rented(market: Market) -> tuple[int, int]:
    """A machine and an instance on it."""
    machine = market.machine()
    return machine, market.rent(market.account("alice", 100 * DOLLAR), machine)


def ask(market: Market, instance: int, options: Options | None = None) -> str:
    """Ask for a log; the token of its result."""
    with market.ledger.unit() as unit:
        return container_logs.ask_for_logs(unit, instance, options or Options())


def waiting(market: Market, machine: int) -> list[container_logs.LogRequest]:
    """What a machine's host is to upload."""
    with market.ledger.reading() as connection:
        return container_logs.open_requests(
            connection, market.ledger.vault, machine, market.clock()
        )


def upload(market: Market, token: str, text: str = TEXT, host: int | None = None) -> None:
    """What a host (none: anybody) sends."""
    with market.ledger.unit() as unit:
        container_logs.upload(unit, host, token, text)


def read(market: Market, token: str) -> str:
    """The text behind a token."""
    with market.ledger.reading() as connection:
        return container_logs.read_log(connection, market.ledger.vault, token, market.clock())


def assert_gone(market: Market, token: str) -> None:
    """Nothing is behind a token."""
    with pytest.raises(NotFoundError) as error:
        read(market, token)
    assert error.value.code == "no_such_log"


def test_a_log_is_asked_uploaded_and_read(market: Market, rented: tuple[int, int]) -> None:
    """The host sees what is wanted; the text is there once it was uploaded; the first stands."""
    machine, instance = rented
    token = ask(market, instance, Options(tail=7, filter="err", daemon=True))
    assert_gone(market, token)
    (one,) = waiting(market, machine)
    assert (one.token, one.instance_id) == (token, instance)
    assert one.options == Options(tail=7, filter="err", daemon=True)
    upload(market, token)
    assert waiting(market, machine) == []
    upload(market, token, "another")
    assert read(market, token) == TEXT


def test_nothing_of_it_is_in_the_log_or_in_clear(market: Market, rented: tuple[int, int]) -> None:
    """No fact is appended, no row tells the text, the filter or the token."""
    _, instance = rented
    head = market.head()
    token = ask(market, instance, Options(filter="private-filter"))
    upload(market, token)
    assert market.head() == head
    stored = everything(market)
    for text in (b"something-private", b"private-filter", token.partition("-")[2].encode()):
        assert text not in stored


def test_it_dies_after_an_hour(market: Market, rented: tuple[int, int]) -> None:
    """In its last second the text is there, then nothing is, and the next request sweeps it out."""
    machine, instance = rented
    token, unanswered = ask(market, instance), ask(market, instance)
    upload(market, token)
    market.clock.move_to(market.clock() + KEEP_SECONDS - 1)
    assert read(market, token) == TEXT
    market.clock.move_to(market.clock() + 1)
    assert_gone(market, token)
    assert waiting(market, machine) == []
    with pytest.raises(NotFoundError) as error:
        upload(market, unanswered)
    assert error.value.code == "no_such_log_request"
    ask(market, instance)
    row = market.connection.execute("SELECT count(*) FROM log_requests").fetchone()
    assert row == (1,)


def test_a_token_cannot_be_guessed_or_made_from_another(
    market: Market, rented: tuple[int, int]
) -> None:
    """A changed digit, another request's number or garbage finds nothing."""
    _, instance = rented
    first, second = ask(market, instance), ask(market, instance)
    upload(market, first)
    digits = first.partition("-")[2]
    for wrong in (
        first[:-1] + ("0" if first[-1] != "0" else "1"),
        f"{second.partition('-')[0]}-{digits}",
        f"99-{digits}",
        f"{'9' * 30}-{digits}",
        f"-1-{digits}",
        "",
        "\x00",
        "ü-ü",
    ):
        assert_gone(market, wrong)


def test_only_the_machines_host_uploads(market: Market, rented: tuple[int, int]) -> None:
    """Another host's upload is `no_such_log_request`; the machine's own is taken."""
    bob, eve = market.account("bob"), market.account("eve")
    token = ask(market, rented[1])
    with pytest.raises(NotFoundError) as error:
        upload(market, token, host=eve)
    assert error.value.code == "no_such_log_request"
    upload(market, token, host=bob)
    assert read(market, token) == TEXT


def test_a_long_text_keeps_its_end(market: Market, rented: tuple[int, int]) -> None:
    """Of more than 100,000 characters the last are kept; lone surrogates are no crash."""
    token = ask(market, rented[1])
    upload(market, token, "x" * TEXT_CHARACTERS_MAX + "end\ud800")
    found = read(market, token)
    assert len(found) == TEXT_CHARACTERS_MAX
    assert found.endswith("end?")


def test_requests_have_a_bound(market: Market, rented: tuple[int, int]) -> None:
    """The eleventh request within the hour is `too_many_log_requests`; a destroyed one has none."""
    _, instance = rented
    for _ in range(container_logs.OPEN_MAX):
        ask(market, instance)
    with pytest.raises(DeclinedError) as declined:
        ask(market, instance)
    assert declined.value.code == "too_many_log_requests"
    with market.ledger.unit() as unit:
        rentals.destroy(unit, instance)
    with pytest.raises(LedgerError) as gone:
        ask(market, instance)
    assert gone.value.code == "no_such_instance"


def test_erasing_the_renter_takes_its_logs(market: Market, rented: tuple[int, int]) -> None:
    """After the erasure neither the request nor the text is anywhere."""
    machine, instance = rented
    token = ask(market, instance)
    ask(market, instance)
    upload(market, token)
    alice = market.account("alice")
    with market.ledger.unit() as unit:
        erasure.erase_subject(unit, alice)
    assert_gone(market, token)
    assert waiting(market, machine) == []
