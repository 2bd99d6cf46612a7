"""The HTTP application: routes, errors, documentation, health."""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import version
from importlib.util import find_spec
from typing import Any, Final

import anyio.to_thread
from litestar import Litestar, MediaType, Request, Response, get
from litestar.datastructures import State
from litestar.exceptions import HTTPException
from litestar.openapi.config import OpenAPIConfig
from litestar.openapi.spec import Components, Contact, License, SecurityScheme, Tag
from litestar.types import ASGIApp, Message, Receive, Scope, Send

from adapters.http.access import CALLED, AccessWriter
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
    audit,
    billing,
    books,
    calculators,
    connections,
    contracts,
    corrections,
    disputes,
    documents,
    findings,
    grants,
    instances,
    jobs,
    labels,
    launches,
    logs,
    machines,
    mail,
    money,
    notices,
    offers,
    operations,
    outages,
    payments,
    payouts,
    records,
    renting,
    safety,
    secrets,
    ssh_keys,
    statements,
    templates,
    timelines,
    top_ups,
    trust,
    usage,
    volumes,
    webhooks,
    witnesses,
)
from adapters.http.operations import document
from ledger.errors import LedgerError
from ledger.services.images import ImageResolver, NoResolver
from ledger.services.ledger import Ledger
from ledger.services.payments.gateway import PaymentGateway
from ledger.services.usage import UsageService

MAX_BODY_BYTES: Final = 131_072
_TAGS: Final = {
    "accounts": (accounts.HANDLERS, "Accounts, API keys, balances"),
    "money": (money.HANDLERS, "Deposits, transfers, holds, charges"),
    "payments": (payments.HANDLERS, "Payments by card, refunds, saved cards"),
    "payouts": (payouts.HANDLERS, "How hosts are paid, and what they earned"),
    "grants": (grants.HANDLERS, "Promotional credit: spent first, never paid out"),
    "books": (books.HANDLERS, "Statements, the general ledger, balances as of any instant"),
    "machines": (machines.HANDLERS, "Registration, enrolment, listings"),
    "offers": (offers.HANDLERS, "The market: search, quotes, auctions"),
    "instances": ([*renting.HANDLERS, *instances.HANDLERS], "Renting and ticks"),
    "volumes": (volumes.HANDLERS, "Disks apart from instances: offers, clones"),
    "launches": (launches.HANDLERS, "What instances are started with"),
    "connections": (connections.HANDLERS, "How one gets into a container"),
    "logs": (logs.HANDLERS, "Logs of containers, on demand"),
    "jobs": (jobs.HANDLERS, "What instances do by the calendar"),
    "templates": (templates.HANDLERS, "Named launch configurations, versioned"),
    "secrets": (secrets.HANDLERS, "Values for the environments of an account's launches"),
    "ssh-keys": (ssh_keys.HANDLERS, "Public keys, and the instances that they open"),
    "contracts": (contracts.HANDLERS, "Bids, reservations, price increases"),
    "safety": (safety.HANDLERS, "Caps, alerts, leases, idleness, cleanup"),
    "top-ups": (top_ups.HANDLERS, "Automatic charges: consent first"),
    "usage": (usage.HANDLERS, "Signed usage reports"),
    "timelines": (timelines.HANDLERS, "What happened when, as data or as a picture"),
    "documents": (
        documents.HANDLERS,
        "Invoices, credit notes, self-billing; as PDF, HTML, CSV, XML",
    ),
    "billing": (billing.HANDLERS, "Periods, time zone, tax, names on documents"),
    "records": (records.HANDLERS, "Usage invoices, anomalies, the log"),
    "trust": (trust.HANDLERS, "Ratings, checks, verification, papers"),
    "operations": (operations.HANDLERS, "Maintenance, expired contracts"),
    "outages": (outages.HANDLERS, "Probes, outages, compensation"),
    "notices": (notices.HANDLERS, "What an account has to know"),
    "webhooks": (webhooks.HANDLERS, "Where notices are sent, signed, at least once"),
    "labels": (labels.HANDLERS, "Charges and budgets by label"),
    "mail": (mail.HANDLERS, "Notices by mail, which of them, and what became of them"),
    "statements": (statements.HANDLERS, "What a day cost, with a proof of every line"),
    "disputes": (disputes.HANDLERS, "Disputes: opened, held, answered, resolved"),
    "witnesses": (witnesses.HANDLERS, "Heartbeats, and minutes that contradict each other"),
    "corrections": (corrections.HANDLERS, "Reversals, replacements, credit notes"),
    "audit": (audit.HANDLERS, "Who called what, and from where"),
    "adjustments": (adjustments.HANDLERS, "Movements by hand, and debt written off"),
    "findings": (findings.HANDLERS, "Reconciliation: what was compared and did not agree"),
    "calculators": (calculators.HANDLERS, "Estimates before renting; they change nothing"),
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


_FRONTENDS: Final = ("adapters.http.vast",)
"""Packages that serve the clients of other markets; one that is not there is not served."""


def _frontends() -> list[Any]:
    return [
        handler
        for name in _FRONTENDS
        if find_spec(name) is not None
        for handler in import_module(name).frontend()
    ]


def create_app(
    ledger: Ledger,
    usage_service: UsageService,
    gateway: PaymentGateway | None = None,
    images: ImageResolver | None = None,
) -> Litestar:
    """The application on an open ledger; the caller closes the ledger after it.

    Without a *gateway* nobody pays by card, and no host is paid. With *images*, the tags of images
    are resolved to digests; without, nobody is asked.
    """
    app = build_app()
    attach(app, ledger, usage_service, gateway, images)
    return app


def attach(
    app: Litestar,
    ledger: Ledger,
    usage_service: UsageService,
    gateway: PaymentGateway | None = None,
    images: ImageResolver | None = None,
) -> None:
    """Answer from this ledger from now on, with counters that begin at nothing."""
    app.state.ledger = ledger
    app.state.usage = usage_service
    app.state.metrics = Metrics(usage_service)
    app.state.gateway = gateway
    app.state.images = images or NoResolver()
    app.state.access = AccessWriter(ledger)


def _close(app: Litestar) -> None:
    """Write down the last calls."""
    app.state.access.close()


def build_app() -> Litestar:
    """Every route, attached to no ledger yet."""
    handlers: list[Any] = [docs, openapi_json]
    for one in (healthz, readyz, metrics):
        one.tags = ["service"]
        handlers.append(one)
    for tag, (routes, _) in _TAGS.items():
        for handler in routes:
            handlers.append(document(handler, tag))

    handlers += _frontends()

    def counting(app: ASGIApp) -> ASGIApp:
        async def middleware(scope: Scope, receive: Receive, send: Send) -> None:
            status = 0

            async def counted(message: Message) -> None:
                nonlocal status
                if message["type"] == "http.response.start":
                    status = message["status"]
                    scope["litestar_app"].state.metrics.request(status)
                await send(message)

            await app(scope, receive, counted)
            called = scope["state"].get(CALLED)
            if called is not None:
                scope["litestar_app"].state.access.note(called._replace(status=status))

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
        on_shutdown=[_close],
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
