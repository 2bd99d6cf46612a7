"""What is open is asked of the processor, and what it answers is booked: over and over.

No transaction is open while the processor is asked. Each order has a key of its own, made from what
was ordered, so it makes no difference who asks, how often, and who died in between: an open intent
is picked up by the next run and ends once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Final, NamedTuple, TypeVar

from ledger.domain.money import NANOS_PER_CENT
from ledger.errors import UnavailableError
from ledger.services.ledger import Ledger, Unit
from ledger.services.payments import booking, entries, inbox, returns
from ledger.services.payments.gateway import (
    BankOrder,
    CardSeen,
    Declined,
    Opened,
    Order,
    Outcome,
    Page,
    PaymentGateway,
    RefundOrder,
    ReversalOrder,
    Subject,
    TransferOrder,
)
from ledger.services.payouts import onboarding, paying
from ledger.store.database import Connection, translating

ASK_SECONDS: Final = 60
"""An intent that is open for longer than this is asked about once in this time."""
LOOK_SECONDS: Final = 3_600
"""How often pages and bank payouts are looked at, of which messages usually tell."""
LOOKS: Final = {"payments": ASK_SECONDS, "payment_pages": LOOK_SECONDS}
"""Looks that are taken whether anything is open or not, and how many seconds lie between them."""
OPEN: Final = (
    "SELECT 1 FROM payments WHERE status = 'ordered'"
    " UNION ALL SELECT 1 FROM card_setups WHERE status = 'begun'"
    " UNION ALL SELECT 1 FROM refunds WHERE status = 'begun'"
    " UNION ALL SELECT 1 FROM payout_accounts WHERE payout_account IS NULL"
    " UNION ALL SELECT 1 FROM payouts WHERE status IN ('begun', 'transferred', 'returning')"
    " UNION ALL SELECT 1 FROM payment_events WHERE done_at IS NULL AND due_at <= %(now)s"
)
"""Whether the processor has to be asked for anything, or has sent a message."""
_FAILURES_MAX: Final = 3
T = TypeVar("T")


class OpenPayment(NamedTuple):
    """A payment that the processor still has to be asked for."""

    payment_id: str
    account_id: int
    card: str | None
    cents: int
    ordered_at: int
    customer: str | None


class OpenSetup(NamedTuple):
    """A card setup that has no page yet."""

    setup_id: str
    account_id: int
    begun_at: int
    customer: str | None


def run(ledger: Ledger, gateway: PaymentGateway) -> None:
    """Pick up every open intent, work off messages, and book the processor's new entries.

    A processor that does not answer ends the run; the next one goes on.
    """
    try:
        inbox.work_off(ledger, gateway)
        _Run(ledger, gateway).go()
    except UnavailableError:
        return


class _Run:
    """One run; three failures to reach the processor end it."""

    def __init__(self, ledger: Ledger, gateway: PaymentGateway) -> None:
        self._ledger = ledger
        self._gateway = gateway
        self._failures = 0

    def go(self) -> None:
        ledger, gateway, now = self._ledger, self._gateway, self._ledger.clock()
        old = _is_round_due(ledger, "payments")
        with ledger.reading() as connection:
            payments = open_payments(connection)
            setups = open_setups(connection)
            removed = removed_cards(connection)
            refunds = returns.open_refunds(connection)
            hosts = onboarding.open_orders(connection)
            steps = paying.open_steps(connection)

        def due(all_of: Iterable[T], since: Callable[[T], int]) -> list[T]:
            return [one for one in all_of if old or since(one) + ASK_SECONDS > now]

        for payment in due(payments, lambda one: one.ordered_at):
            self._try(partial(advance_payment, ledger, gateway, payment))
        for setup in due(setups, lambda one: one.begun_at):
            self._try(partial(advance_setup, ledger, gateway, setup))
        for card in removed if old else ():
            self._try(partial(_forget, ledger, gateway, card))
        for refund in due(refunds, lambda one: one.ordered_at):
            self._try(partial(advance_refund, ledger, gateway, refund))
        for host in due(hosts, lambda one: one.ordered_at):
            self._try(partial(advance_payout_account, ledger, gateway, host))
        for step in due(steps, lambda one: one.order.ordered_at):
            self._try(partial(advance_payout, ledger, gateway, step))
        if _is_round_due(ledger, "payment_pages"):
            self._look()
        if old:
            entries.book_new(ledger, gateway)

    def _look(self) -> None:
        with self._ledger.reading() as connection:
            subjects = [*open_pages(connection), *paying.sent_payouts(connection)]
        for subject in subjects:
            self._try(partial(inbox.sync, self._ledger, self._gateway, subject))
        with translating(), self._ledger.database.pool.connection() as connection:
            inbox.tidy(connection, self._ledger.clock())

    def _try(self, act: Callable[[], object]) -> None:
        try:
            act()
        except UnavailableError:
            self._failures += 1
            if self._failures >= _FAILURES_MAX:
                raise


# --- one intent at a time ------------------------------------------------------------------------


def advance_payment(ledger: Ledger, gateway: PaymentGateway, payment: OpenPayment) -> Opened | None:
    """Ask for one payment and book the answer; returns the page, where a person pays on one.

    Raises:
        UnavailableError: The processor does not answer; the payment stays open.
    """
    customer = _customer(ledger, gateway, payment.account_id, payment.customer)
    if payment.card is None:
        page = Page(
            payment.payment_id, payment.account_id, customer, payment.cents, payment.ordered_at
        )
        opened = gateway.open_payment(page)
        with ledger.unit() as unit:
            booking.note_page(unit, payment.account_id, payment.payment_id, opened.session)
        return opened
    order = Order(
        payment.payment_id,
        payment.account_id,
        payment.card,
        payment.cents,
        customer,
        payment.ordered_at,
    )
    with ledger.reading() as connection:
        is_allowed = _is_saved(connection, payment.card)
    if is_allowed:
        outcome = gateway.charge(order)
    else:
        # The card was removed meanwhile: what was charged is booked, what was not never will be.
        outcome = gateway.outcome(order) or Declined("card_removed")
    with ledger.unit() as unit:
        booking.finish_payment(unit, payment.payment_id, outcome)
    return None


def advance_setup(ledger: Ledger, gateway: PaymentGateway, setup: OpenSetup) -> Opened:
    """Ask for the page of a card setup, and note it.

    Raises:
        UnavailableError: The processor does not answer; the setup stays open.
    """
    customer = _customer(ledger, gateway, setup.account_id, setup.customer)
    opened = gateway.open_setup(Page(setup.setup_id, setup.account_id, customer, 0, setup.begun_at))
    with ledger.unit() as unit:
        booking.note_page(unit, setup.account_id, setup.setup_id, opened.session)
    return opened


def advance_refund(ledger: Ledger, gateway: PaymentGateway, order: RefundOrder) -> None:
    """Ask for one refund and book the answer.

    Raises:
        UnavailableError: The processor does not answer; the refund stays open.
    """
    outcome = gateway.refund(order)
    _book(ledger, lambda unit: returns.finish_refund(unit, order.key, outcome))


def advance_payout_account(
    ledger: Ledger, gateway: PaymentGateway, host: onboarding.PayoutAccount
) -> str:
    """Ask for a host's account and note it; returns its name.

    Raises:
        UnavailableError: The processor does not answer; the order stays open.
    """
    if host.payout_account is not None:
        return host.payout_account
    name = gateway.open_payout_account(host.account_id, host.country, host.ordered_at)
    _book(ledger, lambda unit: onboarding.note_payout_account(unit, host.account_id, name))
    return name


def advance_payout(ledger: Ledger, gateway: PaymentGateway, step: paying.Step) -> None:
    """Ask for the next step of a payout and book the answer, as long as there is a next one.

    Raises:
        UnavailableError: The processor does not answer; the payout stays where it is.
    """
    while True:
        outcome = _ask(gateway, step)
        _book(ledger, partial(paying.finish_step, step=step, outcome=outcome))
        with ledger.reading() as connection:
            following = [
                one
                for one in paying.open_steps(connection)
                if one.payout_id == step.payout_id and type(one.order) is not type(step.order)
            ]
        if not following:
            return
        step = following[0]


def _ask(gateway: PaymentGateway, step: paying.Step) -> Outcome:
    match step.order:
        case TransferOrder():
            return gateway.transfer(step.order)
        case BankOrder():
            return gateway.pay_bank(step.order)
        case ReversalOrder():
            return gateway.reverse(step.order)


def _forget(ledger: Ledger, gateway: PaymentGateway, card: str) -> None:
    gateway.forget_card(card)
    _book(ledger, lambda unit: booking.book(unit, CardSeen(card, is_attached=False)))


def _customer(ledger: Ledger, gateway: PaymentGateway, account_id: int, known: str | None) -> str:
    """The processor's name of an account.

    A crash between the call and the fact may leave a name that nobody uses; no money hangs on it.
    """
    if known is not None:
        return known
    customer = gateway.register(account_id)
    _book(ledger, lambda unit: booking.register_payer(unit, account_id, customer))
    return customer


def _book(ledger: Ledger, do: Callable[[Unit], object]) -> None:
    with ledger.unit() as unit:
        do(unit)


# --- what is open --------------------------------------------------------------------------------

_OPEN: Final = (
    "SELECT p.payment_id, p.account_id, p.card, p.credit + p.tax, p.ordered_at, c.customer"
    " FROM payments p LEFT JOIN payers c USING (account_id)"
)


def open_payments(connection: Connection) -> list[OpenPayment]:
    """Payments that were ordered and have neither a page nor an end, oldest first.

    Automatic charges are asked for by their own policy, which looks at their consent again.
    """
    rows = connection.execute(
        f"{_OPEN} WHERE p.status = 'ordered' AND p.method <> 'auto_top_up' ORDER BY p.position"
    )
    return [_open(row) for row in rows]


def find_open(connection: Connection, payment_id: str) -> OpenPayment | None:
    """A payment that may still come in; none once it ended."""
    row = connection.execute(
        f"{_OPEN} WHERE p.payment_id = %s AND p.status IN ('ordered', 'open')", [payment_id]
    ).fetchone()
    return None if row is None else _open(row)


def _open(row: tuple[object, ...]) -> OpenPayment:
    payment_id, account_id, card, gross, ordered_at, customer = row
    cents = int(gross) // NANOS_PER_CENT  # type: ignore[call-overload]  # a numeric
    return OpenPayment(payment_id, account_id, card, cents, ordered_at, customer)  # type: ignore[arg-type]  # columns


def open_setups(connection: Connection) -> list[OpenSetup]:
    """Card setups that have no page yet, oldest first."""
    rows = connection.execute(
        "SELECT s.setup_id, s.account_id, s.begun_at, c.customer FROM card_setups s"
        " LEFT JOIN payers c USING (account_id) WHERE s.status = 'begun' ORDER BY s.begun_at"
    )
    return [OpenSetup(*row) for row in rows]


def find_setup(connection: Connection, setup_id: str) -> OpenSetup | None:
    """A card setup that did not end; none otherwise."""
    row = connection.execute(
        "SELECT s.setup_id, s.account_id, s.begun_at, c.customer FROM card_setups s"
        " LEFT JOIN payers c USING (account_id)"
        " WHERE s.setup_id = %s AND s.status IN ('begun', 'open')",
        [setup_id],
    ).fetchone()
    return None if row is None else OpenSetup(*row)


def removed_cards(connection: Connection) -> list[str]:
    """Cards that the processor still has to forget."""
    rows = connection.execute("SELECT card FROM cards WHERE status = 'removed' ORDER BY card")
    return [row[0] for row in rows]


def open_pages(connection: Connection) -> list[Subject]:
    """Pages on which a person may pay or save a card at any moment."""
    rows = connection.execute(
        "SELECT session FROM payments WHERE status = 'open' AND session IS NOT NULL UNION ALL"
        " SELECT session FROM card_setups WHERE status = 'open' AND session IS NOT NULL"
    )
    return [Subject("checkout", row[0]) for row in rows]


def _is_saved(connection: Connection, card: str) -> bool:
    row = connection.execute(
        "SELECT 1 FROM cards WHERE card = %s AND status = 'saved'", [card]
    ).fetchone()
    return row is not None


def _is_round_due(ledger: Ledger, name: str) -> bool:
    """True once in the seconds that lie between two looks; marks it at once."""
    with translating(), ledger.database.pool.connection() as connection:
        row = connection.execute(
            "INSERT INTO projection_positions AS known VALUES (%s, 0, %s) ON CONFLICT (name)"
            " DO UPDATE SET position = EXCLUDED.position"
            " WHERE known.position + %s <= EXCLUDED.position RETURNING 1",
            [name, ledger.clock(), LOOKS[name]],
        ).fetchone()
    return row is not None
