"""The HTTP application: routes, errors, documentation, health."""

from __future__ import annotations

from importlib.metadata import version
from typing import Any, Final

import anyio.to_thread
from litestar import Litestar, MediaType, Request, Response, get
from litestar.datastructures import State
from litestar.exceptions import HTTPException
from litestar.openapi.config import OpenAPIConfig
from litestar.openapi.spec import Components, Contact, License, SecurityScheme, Tag
from litestar.types import ASGIApp, Message, Receive, Scope, Send

from adapters.http.call import DEPENDENCIES
from adapters.http.docs import readable_page
from adapters.http.errors import (
    on_any_error,
    on_deep_body,
    on_http_error,
    on_ledger_error,
)
from adapters.http.metrics import Metrics
from adapters.http.native import (
    accounts,
    adjustments,
    books,
    calculators,
    contracts,
    corrections,
    disputes,
    findings,
    instances,
    labels,
    machines,
    mail,
    money,
    notices,
    offers,
    operations,
    outages,
    records,
    safety,
    statements,
    top_ups,
    trust,
    usage,
    volumes,
    webhooks,
    witnesses,
)
from adapters.http.operations import document
from ledger.errors import LedgerError
from ledger.services.ledger import Ledger
from ledger.services.usage import UsageService

MAX_BODY_BYTES: Final = 131_072
_TAGS: Final = {
    "accounts": (accounts, "Accounts, API keys, balances"),
    "money": (money, "Deposits, transfers, holds, charges"),
    "books": (books, "Statements, the general ledger, balances as of any instant"),
    "machines": (machines, "Registration, enrolment, listings"),
    "offers": (offers, "The market: search, quotes, auctions"),
    "instances": (instances, "Renting and ticks"),
    "volumes": (volumes, "Disks apart from instances: offers, clones"),
    "contracts": (contracts, "Bids, reservations, price increases"),
    "safety": (safety, "Caps, alerts, leases, idleness, cleanup"),
    "top-ups": (top_ups, "Automatic charges: consent first"),
    "usage": (usage, "Signed usage reports"),
    "records": (records, "Invoices, anomalies, the log"),
    "trust": (trust, "Ratings, checks, verification, papers"),
    "operations": (operations, "Maintenance, expired contracts"),
    "outages": (outages, "Probes, outages, compensation"),
    "notices": (notices, "What an account has to know"),
    "webhooks": (webhooks, "Where notices are sent, signed, at least once"),
    "labels": (labels, "Charges and budgets by label"),
    "mail": (mail, "Notices by mail, which of them, and what became of them"),
    "statements": (statements, "What a day cost, with a proof of every line"),
    "disputes": (disputes, "Disputes: opened, held, answered, resolved"),
    "witnesses": (witnesses, "Heartbeats, and minutes that contradict each other"),
    "corrections": (corrections, "Reversals, replacements, credit notes"),
    "adjustments": (adjustments, "Movements by hand, and debt written off"),
    "findings": (findings, "Reconciliation: what was compared and did not agree"),
    "calculators": (calculators, "Estimates before renting; they change nothing"),
}


@get("/healthz", dependencies={}, media_type=MediaType.TEXT, security=[{}], summary="Alive")
async def healthz() -> str:
    """Answer as long as the process runs."""
    return "ok\n"


@get("/readyz", dependencies={}, media_type=MediaType.TEXT, security=[{}], summary="Ready")
async def readyz(request: Request[Any, Any, State]) -> str:
    """Answer when the database takes writes; 503 otherwise."""
    await anyio.to_thread.run_sync(request.app.state.ledger.database.check)
    return "ok\n"


@get("/metrics", dependencies={}, security=[{}], summary="Metrics for Prometheus")
async def metrics(request: Request[Any, Any, State]) -> Response[bytes]:
    """Show counters and the lag of the usage projection."""
    state = request.app.state
    text = await anyio.to_thread.run_sync(state.metrics.text, state.ledger)
    return Response(text, media_type="text/plain; version=0.0.4; charset=utf-8")


@get(["/", "/docs"], dependencies={}, include_in_schema=False)
async def docs(request: Request[Any, Any, State]) -> Response[str]:
    """The API as a page that people read; it needs nothing from elsewhere."""
    return Response(readable_page(request.app.openapi_schema), media_type=MediaType.HTML)


@get("/openapi.json", dependencies={}, include_in_schema=False)
async def openapi_json(request: Request[Any, Any, State]) -> Response[dict[str, Any]]:
    """The API as programs read it."""
    return Response(request.app.openapi_schema.to_schema(), media_type=MediaType.JSON)


def create_app(ledger: Ledger, usage_service: UsageService) -> Litestar:
    """The application on an open ledger; the caller closes the ledger after it."""
    app = build_app()
    attach(app, ledger, usage_service)
    return app


def attach(app: Litestar, ledger: Ledger, usage_service: UsageService) -> None:
    """Answer from this ledger from now on, with counters that begin at nothing."""
    app.state.ledger = ledger
    app.state.usage = usage_service
    app.state.metrics = Metrics(usage_service)


def build_app() -> Litestar:
    """Every route, attached to no ledger yet."""
    handlers: list[Any] = [docs, openapi_json]
    for one in (healthz, readyz, metrics):
        one.tags = ["service"]
        handlers.append(one)
    for tag, (module, _) in _TAGS.items():
        for handler in module.HANDLERS:
            handlers.append(document(handler, tag))

    def counting(app: ASGIApp) -> ASGIApp:
        async def middleware(scope: Scope, receive: Receive, send: Send) -> None:
            async def counted(message: Message) -> None:
                if message["type"] == "http.response.start":
                    scope["litestar_app"].state.metrics.request(message["status"])
                await send(message)

            await app(scope, receive, counted)

        return middleware

    return Litestar(
        route_handlers=handlers,
        dependencies=DEPENDENCIES,
        exception_handlers={
            LedgerError: on_ledger_error,
            HTTPException: on_http_error,
            RecursionError: on_deep_body,
            Exception: on_any_error,
        },
        middleware=[counting],
        request_max_body_size=MAX_BODY_BYTES,
        openapi_config=OpenAPIConfig(
            title="gpuledger",
            version=version("gpuledger"),
            description="Billing and ledger core of a GPU rental marketplace. Amounts are decimal"
            " strings of dollars, times RFC 3339. Send an `Idempotency-Key` with a POST and repeat"
            " it safely.",
            license=License(name="Apache-2.0"),
            contact=Contact(name="gpuledger"),
            tags=[
                *(Tag(name=tag, description=text) for tag, (_, text) in _TAGS.items()),
                Tag(name="service", description="Health and metrics"),
            ],
            components=Components(
                security_schemes={"key": SecurityScheme(type="http", scheme="bearer")}
            ),
            security=[{"key": []}],
            path="/openapi",
            use_handler_docstrings=True,
            render_plugins=(),
        ),
        logging_config=None,
    )
