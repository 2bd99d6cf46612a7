"""Templates: named launch configurations, one's own and public ones."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Final

import msgspec
from litestar import Response, delete, get, post, put
from litestar.params import FromPath, JSONBody, QueryParameter

from adapters.http.call import ANYONE, PAYER, Call, Caller, allowed
from adapters.http.native.accounts import AccountFilter, Cursor, Limit
from adapters.http.wire import Body, Id, Instant, Page, decode_cursor, page_of, render
from ledger.domain.launch import LaunchConfig
from ledger.services import templates as use_cases
from ledger.services.ledger import Unit

_TEXTS: Final = use_cases.Content.__struct_fields__
"""What a version says, all of which is hidden from those whose it is not to see."""


class NewTemplate(Body):
    """A name that the account uses once, and what to start.

    What is `public` everybody sees and may rent with, its environment included.

    `href` (a page about it), `repo` (its source), `docker_login_repo` (its registry) and
    `extra_filters` (JSON of a search for offers that suit it) are kept for clients that use them.
    """

    EXAMPLE: ClassVar[dict[str, Any]] = {
        "name": "train",
        "launch": {"image": "pytorch/pytorch:2.9", "onstart": "python train.py"},
        "description": "Trains the model in /workspace.",
        "recommended_disk_gb": 100,
        "public": False,
    }

    name: str
    launch: LaunchConfig
    description: str = ""
    recommended_disk_gb: int | None = None
    href: str | None = None
    repo: str | None = None
    docker_login_repo: str | None = None
    extra_filters: str | None = None
    public: bool = False
    account_id: Id | None = None


class Template(msgspec.Struct, frozen=True, kw_only=True):
    """A template at its newest version; `hash_id` names this version for ever.

    The texts are null for auditors, unless it is public, and once its owner's data were erased.
    """

    template_id: int
    account_id: int
    version: int
    hash_id: str
    public: bool
    name: str | None
    description: str | None
    recommended_disk_gb: int | None
    href: str | None
    repo: str | None
    docker_login_repo: str | None
    extra_filters: str | None
    launch: LaunchConfig | None
    created_at: Instant
    changed_at: Instant


class Deleted(msgspec.Struct, frozen=True, kw_only=True):
    """Nothing is made from this template any more."""

    template_id: int


def _shown(one: use_cases.Template, *, contents: bool = True) -> Template:
    content = one.content if contents or one.public else None
    texts = {name: None if content is None else getattr(content, name) for name in _TEXTS}
    return render(Template, one, **texts)


@get("/v1/templates", opt=allowed(*ANYONE), summary="List templates")
async def list_templates(
    call: Caller,
    account_id: AccountFilter = None,
    search: Annotated[
        str | None,
        QueryParameter(max_length=128, description="A part of a name, or a hash id."),
    ] = None,
    mine: Annotated[bool, QueryParameter(description="Without public ones of others.")] = False,
    limit: Limit = 100,
    cursor: Cursor = None,
) -> Page[Template]:
    """List one's own templates and public ones; auditors see the texts of public ones alone."""
    after = decode_cursor(cursor, int, 0)
    account, vault = call.view(account_id), call.ledger.vault
    if mine:
        account = account or call.principal.account_id
    found = await call.question(
        lambda connection: use_cases.templates(
            connection,
            vault,
            account,
            search=search,
            public=not mine,
            after=after,
            limit=limit + 1,
        )
    )
    shown = [_shown(one, contents=_sees(call, one)) for one in found]
    return page_of(shown, limit, lambda one: one.template_id)


def _sees(call: Call, one: use_cases.Template) -> bool:
    """Whether the texts of a template that is not public are this caller's to see."""
    return one.account_id == call.principal.account_id


@post("/v1/templates", opt=allowed(*PAYER), summary="Create a template")
async def create(call: Caller, data: JSONBody[NewTemplate]) -> Response[Template]:
    """Name a launch configuration; the answer has its id, and the hash id of this version."""
    account = call.account(data.account_id)

    def do(unit: Unit) -> Template:
        template_id = use_cases.create(unit, account, _content(data), public=data.public)
        return _found(unit, account, template_id)

    return await call.command(do, 201, secret=True)


@put("/v1/templates/{template_id:int}", opt=allowed(*PAYER), summary="Change a template")
async def change(
    call: Caller, template_id: FromPath[int], data: JSONBody[NewTemplate]
) -> Response[Template]:
    """Make another version with another hash id; instances keep what they were started with."""
    account = call.account(data.account_id)

    def do(unit: Unit) -> Template:
        use_cases.change(unit, account, template_id, _content(data), public=data.public)
        return _found(unit, account, template_id)

    return await call.command(do, secret=True)


@delete(
    "/v1/templates/{template_id:int}",
    opt=allowed(*PAYER),
    status_code=200,
    summary="Delete a template",
)
async def remove(
    call: Caller, template_id: FromPath[int], account_id: AccountFilter = None
) -> Response[Deleted]:
    """Destroy the texts of all its versions; instances keep what they were started with."""
    account = call.account(account_id)

    def do(unit: Unit) -> Deleted:
        use_cases.delete(unit, account, template_id)
        return Deleted(template_id=template_id)

    return await call.command(do)


def _content(data: NewTemplate) -> dict[str, Any]:
    return {
        **{name: getattr(data, name) for name in _TEXTS},
        "launch": msgspec.to_builtins(data.launch),
    }


def _found(unit: Unit, account_id: int, template_id: int) -> Template:
    (one,) = use_cases.templates(
        unit.connection, unit.vault, account_id, public=False, after=template_id - 1, limit=1
    )
    return _shown(one)


HANDLERS = [list_templates, create, change, remove]
