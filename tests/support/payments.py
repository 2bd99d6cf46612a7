"""A marketplace with a payment processor: orders, what arrives, and both sides' books."""

from __future__ import annotations

import random
from collections.abc import Callable

from ledger.domain.events import ChargePosted
from ledger.domain.money import NANOS_PER_CENT, NANOS_PER_DOLLAR
from ledger.errors import LedgerError
from ledger.services import billing
from ledger.services.payments import entries, inbox, orders, returns, runner
from ledger.services.payments.gateway import Event, Opened, PaymentGateway
from ledger.services.payments.reconcile import Reconciliation, reconcile
from ledger.services.payouts import onboarding
from ledger.services.questions.balances import balance, trial_balance
from ledger.services.questions.documents import documents
from ledger.services.questions.payments import PaymentHistory, payment
from tests.support.market import Market
from tests.support.processors import MemoryProcessor, Processor, StripeProcessor

CENT = NANOS_PER_CENT


class Shop:
    """A market and a processor, and the way between them."""

    def __init__(self, market: Market, processor: Processor) -> None:
        """Put both together."""
        self.market = market
        self.processor = processor

    @property
    def gateway(self) -> PaymentGateway:
        """The port."""
        return self.processor.gateway

    # --- what people do --------------------------------------------------------------------------

    def order(self, account: int, cents: int, *, card: str | None = None, tax_bp: int = 0) -> str:
        """Credit is ordered; nobody was asked yet. *tax_bp* becomes the account's rate."""
        with self.market.ledger.unit() as unit:
            if tax_bp:
                billing.set_tax(unit, account, rate_bp=tax_bp)
            return orders.order_payment(unit, account, cents * CENT, card=card)

    def page(self, payment_id: str) -> Opened:
        """The page of an ordered payment."""
        with self.market.ledger.reading() as connection:
            found = runner.find_open(connection, payment_id)
        assert found is not None
        opened = runner.advance_payment(self.market.ledger, self.gateway, found)
        assert opened is not None
        return opened

    def buy(self, account: int, cents: int, *, tax_bp: int = 0) -> str:
        """Credit that is ordered, paid on its page, and booked."""
        payment_id = self.order(account, cents, tax_bp=tax_bp)
        self.processor.pay(self.page(payment_id).session)
        self.hear()
        self.run()
        assert self.status(payment_id) == "settled"
        return payment_id

    def save_card(self, account: int, *, is_good: bool = True) -> str:
        """A card that is saved with consent; returns its name."""
        with self.market.ledger.unit() as unit:
            setup_id = orders.begin_card_setup(unit, account, "terms-1")
        with self.market.ledger.reading() as connection:
            setup = runner.find_setup(connection, setup_id)
        assert setup is not None
        opened = runner.advance_setup(self.market.ledger, self.gateway, setup)
        save = self.processor.save_card if is_good else self.processor.save_bad_card
        save(opened.session)
        self.hear()
        self.run()
        row = self.market.connection.execute(
            "SELECT card FROM cards WHERE setup_id = %s", [setup_id]
        ).fetchone()
        self.market.connection.commit()
        assert row is not None
        return str(row[0])

    def refund(self, payment_id: str, cents: int, refund_id: str = "refund-1") -> None:
        """A refund is decided; nobody was asked yet."""
        with self.market.ledger.unit() as unit:
            account = payment(unit.connection, payment_id).payment.account_id
            returns.refund(unit, account, payment_id, cents * CENT, refund_id)

    def payable_host(self, name: str = "bob") -> int:
        """A host whom the processor knows."""
        host = self.market.account(name)
        with self.market.ledger.unit() as unit:
            onboarding.order_payout_account(unit, host, "US")
        self.run()
        row = self.market.connection.execute(
            "SELECT payout_account FROM payout_accounts WHERE account_id = %s", [host]
        ).fetchone()
        self.market.connection.commit()
        assert row is not None
        self.processor.enable(host, row[0])
        self.hear()
        self.run()
        return host

    # --- what arrives ----------------------------------------------------------------------------

    def hear(
        self,
        *,
        times: int = 1,
        shuffle: random.Random | None = None,
        lose: Callable[[str], bool] = lambda _: False,
    ) -> None:
        """The processor's messages arrive: in order and once, unless told otherwise."""
        if isinstance(self.processor, MemoryProcessor):
            told = [one for one in self.processor.memory.news() for _ in range(times)]
            if shuffle is not None:
                shuffle.shuffle(told)
            for event in told:
                if not lose(event.type):
                    self._take(event)
            return
        assert isinstance(self.processor, StripeProcessor)
        now = self.market.clock()
        self.processor.server.messages.deliver(
            lambda message: self._take(
                self.gateway.read_event(message.body, message.signature, now)
            ),
            times=times,
            shuffle=shuffle,
            lose=lambda event: lose(str(event["type"])),
        )

    def _take(self, event: Event) -> None:
        with self.market.ledger.database.pool.connection() as connection:
            inbox.receive(connection, event, self.market.clock())

    def run(self) -> None:
        """One run of what keeps asking."""
        runner.run(self.market.ledger, self.gateway)

    def next_round(self) -> None:
        """A minute later: what is old is asked about again, new lines are booked."""
        self.market.clock.move_to(self.market.clock() + 60)
        self.run()

    # --- what is there ---------------------------------------------------------------------------

    def history(self, payment_id: str) -> PaymentHistory:
        """A payment with all that went back of it."""
        with self.market.ledger.reading() as connection:
            return payment(connection, payment_id)

    def status(self, payment_id: str) -> str:
        """The state of a payment."""
        return self.history(payment_id).payment.status

    def available(self, account: int) -> int:
        """Nanos of credit."""
        with self.market.ledger.reading() as connection:
            return balance(connection, account, self.market.clock()).available

    def payable(self, host: int) -> int:
        """Nanos that a host is owed."""
        with self.market.ledger.reading() as connection:
            return balance(connection, host, self.market.clock()).host_payable

    def payouts(self, host: int) -> list[tuple[int, str]]:
        """Cents and state of a host's payouts."""
        rows = self.market.connection.execute(
            "SELECT amount, status FROM payouts WHERE host_id = %s ORDER BY payout_id", [host]
        ).fetchall()
        self.market.connection.commit()
        return [(int(row[0]) // CENT, row[1]) for row in rows]

    def compare(self) -> Reconciliation:
        """Both sides, after the processor's new lines are booked."""
        entries.book_new(self.market.ledger, self.gateway)
        return reconcile(self.market.ledger, self.gateway)

    def assert_settled(self) -> None:
        """Both sides agree, clearing is empty, tax owed is that of documents, a rebuild equals."""
        compared = self.compare()
        assert compared.is_clean, compared.findings
        assert set(compared.clearing.values()) == {0}
        assert self.owed_tax() == self.documented_tax()
        assert self.market.rebuild().equal

    def documents(self, account: int) -> list[tuple[str, int, int]]:
        """Number, and cents of net and tax, of an account's documents in the order of issue."""
        with self.market.ledger.reading() as connection:
            found = documents(connection, account_id=account)
        return [(one.number, one.net // CENT, one.tax // CENT) for one in found]

    def owed_tax(self) -> int:
        """What the books owe the state, nanos."""
        rows = trial_balance(self.market.connection)
        return sum(one.credit - one.debit for one in rows if one.ledger_account == "tax_payable")

    def documented_tax(self) -> int:
        """The tax on all invoices of top-ups, less that on their credit notes; nanos."""
        row = self.market.connection.execute(
            "SELECT coalesce(sum(tax), 0) - coalesce((SELECT sum(tax) FROM tax_credits), 0)"
            " FROM tax_invoices"
        ).fetchone()
        assert row is not None
        return int(row[0])


def refused(act: Callable[[], object]) -> str:
    """The code with which something is refused."""
    try:
        act()
    except LedgerError as error:
        return error.code
    raise AssertionError("it was not refused")


def owe(shop: Shop, host: int, nanos: int) -> None:
    """Let a host be owed nanos, as a renter's charge would."""
    payer = shop.market.account("payer", 10**6 * NANOS_PER_DOLLAR)
    with shop.market.ledger.unit() as unit:
        unit.append(
            f"account-{payer}",
            ChargePosted(
                correction_id=unit.next_id("correction"),
                corrects="correction-0",
                account_id=payer,
                host_id=host,
                instance_id=0,
                meter="gpu",
                amount=nanos,
                fee=0,
                depth=1,
                reason="test",
                period_from=0,
                approved_by=None,
                cause=None,
                policy_version=1,
                actor="platform",
                effective_at=unit.now,
                posted_at=unit.now,
            ),
        )
