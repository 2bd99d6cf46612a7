"""Notices by mail: what is sent, to whom, how often, and what it says."""

from __future__ import annotations

import string
from pathlib import Path
from typing import get_args

import pytest

from adapters.documents.attachments import attachments_from
from adapters.mail.settings import configured
from adapters.mail.smtp import SmtpClient
from ledger.domain.events import MailDeadLettered, NoticeCode
from ledger.domain.webhooks import TRIES, Event
from ledger.errors import LedgerError
from ledger.services import billing, deposits, erasure, mail
from ledger.services.mail import Attachment
from ledger.services.mail.messages import write
from ledger.services.mail.texts import TEXTS
from ledger.services.questions import mail as ask
from ledger.store.database import Connection
from tests.support.certificates import certificate
from tests.support.mail import MailServer, choose, sender
from tests.support.market import DOLLAR, START, Market
from tests.support.webhooks import tell

SECRET = "alice.secret@mail.example"


def states(market: Market, state: ask.MessageState) -> list[tuple[str, int, str | None]]:
    """(code, attempts, reason) of the messages in one state."""
    with market.ledger.reading() as connection:
        return [(one.code, one.attempts, one.reason) for one in ask.messages(connection, state)]


# --- what is sent --------------------------------------------------------------------------------


def test_a_notice_is_sent_once_to_the_address_that_was_chosen(market: Market) -> None:
    """From the choice on each notice is one message; what was noticed before is not sent."""
    alice = market.account("alice", 5 * DOLLAR)
    tell(market.ledger, alice, "created", about="instance-1")
    choose(market.ledger, alice, address=SECRET)
    tell(market.ledger, alice, "low_balance_24h", about=f"account-{alice}")
    with MailServer() as server:
        one = sender(market.ledger, server)
        assert [one.turn(), one.turn()] == [1, 0]
        (got,) = server.got
    assert (got.sender, got.to) == ("billing@gpu.example", [SECRET])
    assert got.message["Subject"] == "Credit for less than 24 hours"
    assert "Your credit is $5 at 2026-03-01T10:00:00Z" in got.text
    assert "Buy credit" in got.text
    assert "DELETE /v1/mail" in got.text
    assert states(market, "sent") == [("low_balance_24h", 1, None)]


def test_an_account_gets_the_notices_it_chose(market: Market) -> None:
    """Codes choose; an empty list is to unsubscribe; nobody gets what is somebody else's."""
    alice, carol = market.account("alice"), market.account("carol")
    choose(market.ledger, alice, ["outbid"])
    choose(market.ledger, carol, [], "carol@mail.example")
    tell(market.ledger, alice, "outbid", "resumed")
    tell(market.ledger, carol, "outbid")
    with MailServer() as server:
        one = sender(market.ledger, server)
        one.turn()
        assert [got.to for got in server.got] == [["a@mail.example"]]
        choose(market.ledger, alice)
        tell(market.ledger, alice, "resumed")
        one.turn()
        assert [got.message["Subject"] for got in server.got] == [
            "Outbid: account 1 waits", "account 1 runs again",
        ]  # fmt: skip


def test_a_changed_choice_counts_for_what_comes_after_it(market: Market) -> None:
    """What was noticed under the old choice is sent by the old choice."""
    alice = market.account("alice")
    choose(market.ledger, alice, ["outbid"])
    tell(market.ledger, alice, "outbid")
    choose(market.ledger, alice, [])
    with MailServer() as server:
        sender(market.ledger, server).turn()
        assert len(server.got) == 1


def test_the_address_is_in_no_fact_and_can_be_erased(market: Market) -> None:
    """The log holds a reference and a keyed hash; once erased, what waits is not sent."""
    alice = market.account("alice")
    choose(market.ledger, alice, address=SECRET)
    tell(market.ledger, alice, "outbid")
    rows = market.connection.execute("SELECT state FROM events").fetchall()
    assert not any(b"secret" in bytes(row[0]) for row in rows)
    with market.ledger.unit() as unit:
        erasure.erase_subject(unit, alice)
    with MailServer() as server:
        sender(market.ledger, server).turn()
        assert server.got == []
    assert states(market, "pending") == []
    assert market.rebuild().equal


def test_who_stops_mail_gets_none_and_its_address_is_gone(market: Market) -> None:
    """Stopping drops what waits; again it changes nothing."""
    alice = market.account("alice")
    choose(market.ledger, alice)
    tell(market.ledger, alice, "outbid")
    with market.ledger.unit() as unit:
        mail.enqueue(unit.connection, unit.now)
        mail.stop(unit, alice)
    head = market.head()
    with market.ledger.unit() as unit:
        mail.stop(unit, alice)
    assert market.head() == head
    with MailServer() as server:
        sender(market.ledger, server).turn()
        assert server.got == []
    with market.ledger.reading() as connection:
        assert mail.read_settings(connection, market.ledger.vault, alice) is None


def test_documents_go_with_a_message(market: Market) -> None:
    """What the port for documents gives is attached, byte for byte, under its name."""
    alice = market.account("alice")
    choose(market.ledger, alice)
    tell(market.ledger, alice, "extended", about="instance-7")

    def documents(connection: Connection, event: Event) -> list[Attachment]:
        del connection
        assert event.about == "instance-7"
        return [Attachment("INV-1.pdf", "application/pdf", b"%PDF-\x00\xff")]

    with MailServer() as server:
        sender(market.ledger, server, documents).turn()
        (part,) = server.got[0].message.iter_attachments()
    assert (part.get_filename(), part.get_content_type()) == ("INV-1.pdf", "application/pdf")
    assert part.get_content() == b"%PDF-\x00\xff"


def test_a_receipt_comes_with_its_invoice(market: Market) -> None:
    """Credit that is bought is told with its total, and the tax invoice goes with it as a PDF."""
    alice = market.account("alice")
    with market.ledger.unit() as unit:
        billing.set_tax(unit, alice, rate_bp=1_900)
        deposits.deposit(unit, alice, 100 * DOLLAR, "wire-1")
    choose(market.ledger, alice)
    with market.ledger.unit() as unit:
        deposits.deposit(unit, alice, 10 * DOLLAR, "wire-2")
    with MailServer() as server:
        sender(market.ledger, server, attachments_from(market.ledger.vault)).turn()
        (got,) = server.got
    assert got.message["Subject"] == "Receipt INV-00000002: $11.9"
    (part,) = got.message.iter_attachments()
    assert part.get_filename() == "INV-00000002.pdf"
    assert part.get_content().startswith(b"%PDF-")
    assert market.rebuild().equal


# --- failures ------------------------------------------------------------------------------------


def test_what_a_server_does_not_take_now_is_sent_again_as_the_same_message(
    market: Market,
) -> None:
    """HOOK-04: a repeat has the same Message-ID, and comes when its pause is over, not before."""
    alice = market.account("alice")
    choose(market.ledger, alice)
    tell(market.ledger, alice, "outbid")
    with MailServer("451 later") as server:
        one = sender(market.ledger, server)
        assert one.turn() == 1
        assert states(market, "pending") == [("outbid", 1, "smtp_451")]
        assert one.turn() == 0
        market.clock.move_to(START + 12)
        assert one.turn() == 1
        (got,) = server.got
    position = market.connection.execute("SELECT max(position) FROM notices").fetchone()
    assert position is not None
    assert got.message["Message-ID"] == f"<evt_{position[0]}.{alice}@gpu.example>"


def test_who_dies_between_sending_and_writing_down_sends_again(market: Market) -> None:
    """At least once: a claim that nobody ended is sent again by the next leader."""
    alice = market.account("alice")
    choose(market.ledger, alice)
    tell(market.ledger, alice, "outbid")
    with MailServer() as server:
        with market.ledger.database.pool.connection() as connection:
            mail.enqueue(connection, market.clock())
            due = mail.claim(connection, market.ledger.vault, market.clock(), 10)
        SmtpClient(server.settings()).send(due)
        one = sender(market.ledger, server)
        assert one.turn() == 0
        one.take_over()
        assert one.turn() == 1
        ids = [got.message["Message-ID"] for got in server.got]
    assert len(ids) == 2
    assert len(set(ids)) == 1


def test_a_refused_recipient_is_given_up_at_once_and_can_be_asked_for_again(
    market: Market,
) -> None:
    """A 550 is a dead letter, which is a fact without the server's words; asked for, it is sent."""
    alice = market.account("alice")
    choose(market.ledger, alice)
    tell(market.ledger, alice, "outbid")
    with MailServer("550 alice.secret is unknown") as server:
        one = sender(market.ledger, server)
        one.turn()
        assert states(market, "dead") == [("outbid", 1, "smtp_550")]
        (fact,) = [one for one in market.facts() if isinstance(one, MailDeadLettered)]
        assert (fact.reason, fact.attempts) == ("smtp_550", 1)
        with market.ledger.unit() as unit:
            mail.requeue(unit, alice, f"evt_{fact.event}")
        assert one.turn() == 1
        assert len(server.got) == 1
    assert states(market, "dead") == []
    assert market.rebuild().equal


def test_a_server_that_is_away_is_tried_for_three_days(market: Market) -> None:
    """Nobody listens: so many tries with growing pauses, then a dead letter."""
    alice = market.account("alice")
    choose(market.ledger, alice)
    tell(market.ledger, alice, "outbid")
    with MailServer() as server:
        one = sender(market.ledger, server)
    for _ in range(TRIES):
        assert one.turn() == 1
        market.clock.move_to(market.clock() + 86_400)
    assert states(market, "dead") == [("outbid", TRIES, "not_reached")]


def test_what_happened_long_before_mail_was_on_is_not_told(market: Market) -> None:
    """After a week without a mail server, nobody gets a week's old messages."""
    alice = market.account("alice")
    choose(market.ledger, alice)
    tell(market.ledger, alice, "outbid")
    market.clock.move_to(START + 7 * 86_400)
    tell(market.ledger, alice, "resumed")
    with MailServer() as server:
        sender(market.ledger, server).turn()
        assert [got.message["Subject"] for got in server.got] == ["account 1 runs again"]


# --- the server ----------------------------------------------------------------------------------


def test_mail_is_sent_over_tls_with_a_password(market: Market, tmp_path: Path) -> None:
    """STARTTLS comes before the password, and the certificate has to be of the server's name."""
    alice = market.account("alice")
    choose(market.ledger, alice)
    tell(market.ledger, alice, "outbid")
    own = certificate("localhost", tmp_path)
    with MailServer(tls=own, login=("billing", "s3cret")) as server:
        assert sender(market.ledger, server).turn() == 1
        assert (len(server.got), server.logins) == (1, ["billing"])
    tell(market.ledger, alice, "resumed")
    with MailServer(tls=certificate("evil.test", tmp_path)) as server:
        sender(market.ledger, server).turn()
        assert server.got == []
    assert states(market, "pending") == [("resumed", 1, "tls_failed")]


def test_a_server_without_tls_gets_nothing_where_tls_is_asked_for(market: Market) -> None:
    """Nothing is sent in the clear by accident."""
    alice = market.account("alice")
    choose(market.ledger, alice)
    tell(market.ledger, alice, "outbid")
    with MailServer() as server:
        sender(market.ledger, server, security="starttls").turn()
        assert server.got == []
    assert states(market, "pending") == [("outbid", 1, "tls_failed")]


@pytest.mark.parametrize(
    "environment",
    [
        {"HOST": "mail", "FROM": "nobody"},
        {"HOST": "mail"},
        {"HOST": "mail", "FROM": "a@b", "PORT": "0"},
        {"HOST": "mail", "FROM": "a@b", "SECURITY": "maybe"},
        {"HOST": "mail", "FROM": "a@b", "SECURITY": "none", "USER": "x"},
    ],
)
def test_settings_that_cannot_work_are_refused(environment: dict[str, str]) -> None:
    """No sender, no port, no known security, a password in the clear: nothing starts."""
    with pytest.raises(LedgerError) as error:
        configured({f"GPULEDGER_SMTP_{name}": value for name, value in environment.items()})
    assert error.value.code == "invalid_setting"


def test_settings_come_from_the_environment_and_show_no_password() -> None:
    """Without a host mail is off; with one STARTTLS is the default."""
    assert configured({}) is None
    values = {"HOST": "mail", "FROM": "a@b", "USER": "u", "PASSWORD": "s3cret"}
    found = configured({f"GPULEDGER_SMTP_{name}": value for name, value in values.items()})
    assert found is not None
    assert (found.port, found.security, found.password) == (587, "starttls", "s3cret")
    assert "s3cret" not in repr(found)


@pytest.mark.parametrize(
    "address",
    ["", "alice", "a@b c", "a@b\nBcc: x@y", "a,b@c", "<a@b>", "a@-b", f"{'a' * 250}@b.example"],
)
def test_what_is_no_address_is_refused(market: Market, address: str) -> None:
    """Nothing that would put a second recipient or a header into a message is an address."""
    alice = market.account("alice")
    with pytest.raises(LedgerError) as error:
        choose(market.ledger, alice, address=address)
    assert error.value.code == "invalid_address"


# --- the texts -----------------------------------------------------------------------------------


@pytest.mark.parametrize("code", get_args(NoticeCode))
def test_every_notice_has_a_text_that_says_what_it_costs(code: str) -> None:
    """Each code has a text of its own, with every word filled in, and says cost and way out."""
    text = TEXTS[code]
    known = {
        "object", "label", "at", "available", "burn", "runway", "now", "code", "status", "until",
        "reason", "net", "tax", "total", "due", "document", "amount",
    }  # fmt: skip
    for part in text:
        assert set(string.Template(part).get_identifiers()) <= known
        assert len(part) > 10
    said = text.costs.lower()
    assert any(word in said for word in ("cost", "charge", "credit", "lost", "went back"))


def test_a_label_cannot_break_a_message() -> None:
    """A label that looks like a placeholder, or is long, is shown as it is."""
    event = Event(
        id="evt_1",
        type="stopped",
        account_id=1,
        about="instance-7",
        at="2026-03-01T10:00:00Z",
        data={"label": "$available ${x} 100%", "reason": "renter"},
    )
    credit = {"available": "1", "burn": "0", "runway": "nothing burns", "now": "now"}
    subject, text = write(event, credit)
    assert subject == "instance 7 stopped"
    assert '("$available ${x} 100%")' in text
    assert "Reason: renter" in text
