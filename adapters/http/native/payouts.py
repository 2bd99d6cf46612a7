"""How hosts are paid: their payout account, payouts, and what they earned per machine and day."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

import anyio.to_thread
import msgspec
from litestar import Request, Response, get, post
from litestar.datastructures import State
from litestar.params import FromQuery, JSONBody, QueryParameter
from msgspec import Meta

from adapters.http.call import ANYONE, HOST, Caller, allowed
from adapters.http.native.accounts import AccountFilter, Cursor, Limit
from adapters.http.native.payments import gateway_of
from adapters.http.wire import Body, Dollars, Instant, Page, decode_cursor, instant, page, render
from ledger.errors import NotFoundError
from ledger.services.ledger import Ledger, Unit
from ledger.services.payments import runner
from ledger.services.payments.gateway import PaymentGateway
from ledger.services.payouts import onboarding
from ledger.services.questions import earnings as ask_earnings
from ledger.services.questions import payments as ask
from ledger.store.database import Connection


class NewPayoutAccount(Body):
    """Where the host is."""

    EXAMPLE: ClassVar[dict[str, Any]] = {"country": "US"}

    country: Annotated[str, Meta(description="Two capital letters of ISO 3166; for good.")]


class PayoutAccount(msgspec.Struct, frozen=True, kw_only=True):
    """A host's account at the payment processor; it can be paid once it is enabled."""

    account_id: int
    country: str
    is_enabled: bool
    ordered_at: Instant
    enabled_at: Instant | None


class Onboarding(msgspec.Struct, frozen=True, kw_only=True):
    """The processor's page that asks who the host is; it is valid for some minutes."""

    url: str


class Payout(msgspec.Struct, frozen=True, kw_only=True):
    """Money to a host: `pending`, `begun`, `transferred`, `sent`, `paid`.

    Otherwise it is `returning` or `failed`, and owed again, or `cancelled`.
    """

    payout_id: int
    host_id: int
    amount: Dollars
    status: str
    reason: str | None
    due_at: Instant
    scheduled_at: Instant
    begun_at: Instant | None
    closed_at: Instant | None


class Earning(msgspec.Struct, frozen=True, kw_only=True):
    """One machine on one UTC day: earned = charged - fee."""

    host_id: int
    machine_id: int
    day: Instant
    gpu_seconds: int
    charged: Dollars
    fee: Dollars
    earned: Dollars


@post("/v1/payout-account", opt=allowed(*HOST), summary="Open a payout account")
async def open_account(
    call: Caller, request: Request[Any, Any, State], data: JSONBody[NewPayoutAccount]
) -> Response[PayoutAccount]:
    """Ask to be paid. The processor makes an account, which waits for the host to say who it is."""
    gateway_of(request)
    account = call.principal.account_id

    def do(unit: Unit) -> PayoutAccount:
        onboarding.order_payout_account(unit, account, data.country)
        return render(PayoutAccount, _required(unit.connection, account))

    return await call.command(do, 201)


@get("/v1/payout-account", opt=allowed(*ANYONE), summary="Show a payout account")
async def show_account(call: Caller, account_id: AccountFilter = None) -> PayoutAccount:
    """Show whether a host can be paid."""
    account = call.view(account_id) or call.principal.account_id
    found = await call.question(lambda connection: _required(connection, account))
    return render(PayoutAccount, found)


def _required(connection: Connection, account_id: int) -> onboarding.PayoutAccount:
    found = onboarding.find_payout_account(connection, account_id)
    if found is None:
        message = "there is no payout account: open one with POST /v1/payout-account"
        raise NotFoundError("no_such_payout_account", message)
    return found


@post(
    "/v1/payout-account/onboarding",
    opt=allowed(*HOST),
    status_code=200,
    summary="Go on with onboarding",
)
async def onboard(call: Caller, request: Request[Any, Any, State]) -> Onboarding:
    """Give the page on which the host says who it is and where its bank is."""
    account = call.principal.account_id
    found = await call.question(
        lambda connection: onboarding.require_payout_account(connection, account)
    )
    gateway = gateway_of(request)
    url = await anyio.to_thread.run_sync(_onboarding_url, call.ledger, gateway, found)
    return Onboarding(url=url)


def _onboarding_url(ledger: Ledger, gateway: PaymentGateway, host: onboarding.PayoutAccount) -> str:
    return gateway.onboarding_url(runner.advance_payout_account(ledger, gateway, host))


@get("/v1/payouts", opt=allowed(*ANYONE), summary="List payouts")
async def list_payouts(
    call: Caller, account_id: AccountFilter = None, limit: Limit = 100, cursor: Cursor = None
) -> Page[Payout]:
    """List payouts to a host, the oldest first."""
    host = call.view(account_id)
    after = decode_cursor(cursor, int, 0)
    found = await call.question(
        lambda connection: ask.payouts(connection, host_id=host, after=after, limit=limit + 1)
    )
    return page(Payout, found, limit, lambda one: one.payout_id)


@get("/v1/earnings", opt=allowed(*ANYONE), summary="Earnings per machine and day")
async def list_earnings(
    call: Caller,
    account_id: AccountFilter = None,
    machine_id: FromQuery[int | None] = None,
    start: Annotated[str | None, QueryParameter(name="from")] = None,
    until: FromQuery[str | None] = None,
    limit: Limit = 100,
    cursor: Cursor = None,
) -> Page[Earning]:
    """List what machines earned on each UTC day, by day and machine."""
    host = call.view(account_id)
    after = decode_cursor(cursor, tuple[int, int], (0, 0))
    first, end = instant(start, "from"), instant(until, "until")
    found = await call.question(
        lambda connection: ask_earnings.earnings(
            connection,
            host_id=host,
            machine_id=machine_id,
            start=first or 0,
            until=end,
            after=after,
            limit=limit + 1,
        )
    )
    return page(Earning, found, limit, lambda one: (one.day, one.machine_id))


HANDLERS = [open_account, show_account, onboard, list_payouts, list_earnings]
