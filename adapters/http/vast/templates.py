"""Templates: named launch configurations, each edit a version with a hash id of its own."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, Final

from litestar import Response

from adapters.http.vast.call import ANYONE, Call, Caller, endpoint
from adapters.http.vast.launches import config_of, options_of
from adapters.http.vast.matching import matching
from adapters.http.vast.permissions import Sent
from adapters.http.vast.search import disk_gb, selected
from adapters.http.vast.wire import Json, answer, encode, flag, mapping, text, whole
from ledger.domain.events import Role
from ledger.domain.launch import LaunchConfig, overlaid
from ledger.errors import NotFoundError, RejectedError
from ledger.services import repeats
from ledger.services import templates as use_cases
from ledger.services.ledger import Unit
from ledger.services.templates import Content, Template
from ledger.store.database import Connection

_PAYER: Final[tuple[Role, ...]] = ("renter", "host", "admin")
_PAGE: Final = 1_000
_JUPYTER: Final = "jupyter"
_LINKS: Final = ("href", "repo", "docker_login_repo")


@endpoint("POST", "/v0/template", roles=_PAYER, needs="api.template.create")
async def create(call: Caller) -> Response[Any]:
    """Name a launch configuration; the same one again within ten minutes is the first one."""
    body = call.body
    content, public = _content(body, None), _is_public(body, before=False)
    digest = hashlib.sha256(encode(body)).hexdigest()

    def do(unit: Unit) -> Json:
        def make() -> bytes:
            return str(use_cases.create(unit, call.account_id, content, public=public)).encode()

        def lives(kept: bytes) -> bool:
            return _found(unit, call.account_id, int(kept)) is not None

        kept, replayed = repeats.once(
            unit, call.account_id, f"template/{digest}", make, holds=lives
        )
        return _told(unit, call.account_id, int(kept), replayed=replayed)

    return await call.command(do)


def _id_of(sent: Sent) -> Sequence[Json]:
    number = sent.body.get("id", sent.body.get("template_id"))
    return [{} if number is None else {"template_id": number, "id": number}]


@endpoint("PUT", "/v1/template", roles=_PAYER, needs="api.template.change", naming=_id_of)
async def change(call: Caller) -> Response[Any]:
    """Make another version; what the body does not name, or names as null, stays as it was."""
    body = call.body
    number = whole(body.get("id"), "id")

    def do(unit: Unit) -> Json:
        before = _found(unit, call.account_id, number)
        if before is None or before.content is None:
            raise NotFoundError("no_such_template", f"there is no template {number}")
        content = _content(body, before.content)
        public = _is_public(body, before=before.public)
        use_cases.change(unit, call.account_id, number, content, public=public)
        return _told(unit, call.account_id, number, replayed=False)

    return await call.command(do)


@endpoint("DELETE", "/v0/template", roles=_PAYER, needs="api.template.remove", naming=_id_of)
async def delete(call: Caller) -> Response[Any]:
    """Destroy the texts of all versions; instances keep what they were started with."""
    body = call.body
    hash_id = text(body.get("hash_id"), "hash_id")

    def do(unit: Unit) -> Json:
        if hash_id:
            version = use_cases.find_version(unit.connection, unit.vault, call.account_id, hash_id)
            number = version.template_id
        else:
            number = whole(body.get("template_id"), "template_id")
        use_cases.delete(unit, call.account_id, number)
        return {"success": True, "id": number, "msg": f"template {number} is deleted"}

    return await call.command(do)


@endpoint("GET", "/v0/template", roles=ANYONE, needs="api.template.list_templates")
async def search(call: Caller) -> Response[Any]:
    """One's own templates and public ones, by any of their columns."""
    filters = mapping(call.query("select_filters"), "select_filters")

    def find(connection: Connection) -> list[Template]:
        return _all(connection, call, _hash_id(filters))

    rows = [_row(one) for one in await call.question(find) if one.content is not None]
    found = matching(rows, filters)
    return answer(
        {
            "success": True,
            "templates_found": len(found),
            "templates": selected(found, call.query("select_cols")),
        }
    )


def _hash_id(filters: Mapping[str, Any]) -> str | None:
    """The one version that filters name, if they do."""
    asked = filters.get("hash_id")
    found = asked.get("eq") if isinstance(asked, Mapping) else asked
    return found if isinstance(found, str) else None


def _all(connection: Connection, call: Call, hash_id: str | None) -> list[Template]:
    found: list[Template] = []
    after = 0
    while True:
        page = use_cases.templates(
            connection,
            call.ledger.vault,
            call.account_id,
            search=hash_id,
            after=after,
            limit=_PAGE,
        )
        found += page
        if len(page) < _PAGE:
            return found
        after = page[-1].template_id


# --- what a body says -----------------------------------------------------------------------------


def _content(body: Json, before: Content | None) -> Content:
    """What a version says, where *before* is what it says now.

    Raises:
        RejectedError: `invalid_args`.
    """
    name = text(body.get("name"), "name") or (before.name if before else None)
    config = config_of({**body, "runtype": _runtype(body), "image_login": None})
    if before is not None:
        config = _changed(before.launch, config, body)
    if not name or config.image is None:
        raise RejectedError("invalid_args", "a template has a `name` and an `image`")
    description = text(body.get("desc"), "desc") or text(body.get("readme"), "readme")
    size = body.get("recommended_disk_space")
    if size in {None, ""}:
        recommended = None if before is None else before.recommended_disk_gb
    else:
        recommended = disk_gb(size, 0) or None
    return Content(
        name=name,
        launch=config,
        description=description or (before.description if before else ""),
        recommended_disk_gb=recommended,
        **_links(body, before),
    )


def _links(body: Json, before: Content | None) -> dict[str, str | None]:
    """What a version keeps for these clients alone, as it came."""
    found = {name: text(body.get(name), name) for name in _LINKS}
    filters = body.get("extra_filters")
    if filters is not None and not isinstance(filters, str):
        filters = encode(mapping(filters, "extra_filters")).decode()
    found["extra_filters"] = filters
    if before is None:
        return found
    return {
        name: getattr(before, name) if value is None else value for name, value in found.items()
    }


def _changed(before: LaunchConfig, new: LaunchConfig, body: Json) -> LaunchConfig:
    """*new* over *before*; an environment that is named replaces the one before."""
    if body.get("env") is not None:
        before = LaunchConfig(
            **{
                name: getattr(before, name)
                for name in before.__struct_fields__
                if name not in {"env", "ports", "hostname"}
            }
        )
    return overlaid(before, new)


def _runtype(body: Json) -> str | None:
    """How one gets in, as a create of these clients says it."""
    kind = text(body.get("runtype"), "runtype")
    if kind is None:
        return None
    words = []
    if kind.startswith(_JUPYTER):
        direct = flag(body.get("jup_direct") or False, "jup_direct")
        words.append("jupyter_direc" if direct else "jupyter_proxy")
    if kind.startswith((_JUPYTER, "ssh")) and body.get("use_ssh"):
        direct = flag(body.get("ssh_direct") or False, "ssh_direct")
        words += ["ssh_direc", "ssh_proxy"] if direct else ["ssh_proxy"]
    return " ".join(words) or kind


def _is_public(body: Json, *, before: bool) -> bool:
    private = body.get("private")
    return before if private is None else not flag(private, "private")


# --- what a template looks like -------------------------------------------------------------------


def _found(unit: Unit, account_id: int, template_id: int) -> Template | None:
    found = use_cases.templates(
        unit.connection, unit.vault, account_id, public=False, after=template_id - 1, limit=1
    )
    return found[0] if found and found[0].template_id == template_id else None


def _told(unit: Unit, account_id: int, template_id: int, *, replayed: bool) -> Json:
    found = _found(unit, account_id, template_id)
    assert found is not None, "it was made or changed just now"
    return {"success": True, "replayed": replayed, "template": _row(found), "msg": "ok"}


def _row(one: Template) -> Json:
    assert one.content is not None, "what was erased is left out"
    content, launch = one.content, one.content.launch
    runtype = launch.runtype or "ssh"
    return {
        "id": one.template_id,
        "hash_id": one.hash_id,
        "version": one.version,
        "creator_id": one.account_id,
        "name": content.name,
        "image": launch.image,
        "tag": None,
        **{name: getattr(content, name) for name in _LINKS},
        "extra_filters": content.extra_filters,
        "env": options_of(launch),
        "onstart": launch.onstart,
        "runtype": runtype,
        "use_ssh": "ssh" in runtype,
        "ssh_direct": "ssh_direc" in runtype,
        "jup_direct": "jupyter_direc" in runtype,
        "use_jupyter_lab": launch.use_jupyter_lab,
        "jupyter_dir": launch.jupyter_dir,
        "args_str": None,
        "desc": content.description,
        "readme": None,
        "recommended_disk_space": content.recommended_disk_gb,
        "private": not one.public,
        "created_at": one.created_at,
        "changed_at": one.changed_at,
    }


ENDPOINTS: Sequence[Any] = [create, change, delete, search]
