"""Templates: named launch configurations, each edit a version of its own.

Everything that people wrote lies in the vault, the name too. A version has a hash id: naming it
means that version for ever, naming the template means its newest. Deleting destroys the texts;
instances that were made from one keep what they were started with.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Annotated, Any, Final, NamedTuple

import msgspec
from msgspec import Meta

from ledger.domain.events import TemplateChanged, TemplateCreated, TemplateDeleted
from ledger.domain.ids import account_stream
from ledger.domain.launch import LaunchConfig, parse_launch
from ledger.errors import NotFoundError, RejectedError
from ledger.services.ledger import Unit
from ledger.services.subjects import opened, require_subject
from ledger.store.database import Connection
from ledger.store.vault import Vault

TEMPLATES_MAX: Final = 500
"""Living templates of one account."""
_HASH_DIGITS: Final = 32
_SCAN: Final = 200
_DISK_MAX: Final = 2**31 - 1

Name = Annotated[str, Meta(min_length=1, max_length=128, pattern=r"^[^\x00-\x1f\x7f]+\Z")]
_Words = Annotated[str, Meta(max_length=65_536, pattern=r"^[^\x00]*\Z")]
_Link = Annotated[str, Meta(max_length=2_048, pattern=r"^[^\x00-\x1f\x7f]*\Z")]
_Registry = Annotated[str, Meta(max_length=256, pattern=r"^\S*\Z")]
"""A registry's name; a whole login has spaces, and what is public would show it to everybody."""


class Content(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a version says: its name, what it is for, the disk it recommends, what it starts.

    Clients keep four texts more with it, which nothing here reads: `href`, a page about it; `repo`,
    where its source lies; `docker_login_repo`, the registry that its image comes from; and
    `extra_filters`, JSON of a search for offers that suit it.
    """

    name: Name
    launch: LaunchConfig
    description: _Words = ""
    recommended_disk_gb: Annotated[int, Meta(ge=1, le=_DISK_MAX)] | None = None
    href: _Link | None = None
    repo: _Link | None = None
    docker_login_repo: _Registry | None = None
    extra_filters: _Words | None = None


class TemplateVersion(NamedTuple):
    """One version of a template, as far as launches need it."""

    template_id: int
    hash_id: str
    version: int
    content: Content

    @property
    def config(self) -> LaunchConfig:
        """What it starts."""
        return self.content.launch


class Template(msgspec.Struct, frozen=True):
    """A template at its newest version; its content is none once its owner was erased."""

    template_id: int
    account_id: int
    version: int
    hash_id: str
    public: bool
    content: Content | None
    created_at: int
    changed_at: int

    @property
    def name(self) -> str | None:
        """What people call it; none once its owner was erased."""
        return None if self.content is None else self.content.name


def create(
    unit: Unit, account_id: int, content: Content | Mapping[str, Any], *, public: bool = False
) -> int:
    """Name a launch configuration; returns the template's id.

    Raises:
        NotFoundError: `no_such_account`, or `erased`.
        RejectedError: `invalid_args`, `template_exists` for a name that the account uses already,
            or `too_many_templates`.
    """
    checked = _checked(content, public=public)
    subject = require_subject(unit.connection, account_id)
    name_hash = _name_hash(unit.vault, account_id, checked.name)
    count = _require_new_name(unit, account_id, name_hash)
    if count >= TEMPLATES_MAX:
        message = f"an account has at most {TEMPLATES_MAX} templates"
        raise RejectedError("too_many_templates", message)
    template_id = unit.next_id("template")
    text = _encoded(checked)
    reference = _keep(unit, subject, template_id, 1, text)
    unit.append(
        account_stream(account_id),
        TemplateCreated(
            account_id=account_id,
            template_id=template_id,
            hash_id=_hash_id(unit, template_id, 1, text),
            reference=reference,
            content_hash=unit.vault.keyed_hash(text.decode()),
            name_hash=name_hash,
            public=public,
            created_at=unit.now,
        ),
    )
    return template_id


def change(
    unit: Unit,
    account_id: int,
    template_id: int,
    content: Content | Mapping[str, Any],
    *,
    public: bool = False,
) -> None:
    """Make another version of a template; the same content again changes nothing.

    Raises:
        NotFoundError: `no_such_template`.
        RejectedError: `invalid_args`, or `template_exists`.
    """
    row = _require(unit.connection, account_id, template_id)
    checked = _checked(content, public=public)
    subject = require_subject(unit.connection, account_id)
    text = _encoded(checked)
    content_hash = unit.vault.keyed_hash(text.decode())
    if content_hash == row.content_hash and public == row.public:
        return
    name_hash = _name_hash(unit.vault, account_id, checked.name)
    _require_new_name(unit, account_id, name_hash, besides=template_id)
    version = row.version + 1
    unit.append(
        account_stream(account_id),
        TemplateChanged(
            account_id=account_id,
            template_id=template_id,
            version=version,
            hash_id=_hash_id(unit, template_id, version, text),
            reference=_keep(unit, subject, template_id, version, text),
            content_hash=content_hash,
            name_hash=name_hash,
            public=public,
            changed_at=unit.now,
        ),
    )


def delete(unit: Unit, account_id: int, template_id: int) -> None:
    """Destroy the texts of all versions; instances keep what they were started with.

    Raises:
        NotFoundError: `no_such_template`.
    """
    _require(unit.connection, account_id, template_id)
    for (reference,) in unit.connection.execute(
        "SELECT reference FROM template_versions WHERE template_id = %s", [template_id]
    ).fetchall():
        subject, _, name = reference.partition("/")
        unit.vault.remove(unit.connection, subject, [name])
    unit.append(
        account_stream(account_id),
        TemplateDeleted(account_id=account_id, template_id=template_id, deleted_at=unit.now),
    )


def find_version(
    connection: Connection, vault: Vault, account_id: int, wanted: str | int
) -> TemplateVersion:
    """The version that a template's id (its newest) or a hash id means, of one's own or public.

    Raises:
        NotFoundError: `no_such_template`.
    """
    is_id = isinstance(wanted, int)
    row = connection.execute(
        "SELECT v.template_id, v.hash_id, v.version, v.reference FROM template_versions v"
        " JOIN templates t USING (template_id) WHERE t.deleted_at IS NULL"
        " AND (t.account_id = %s OR t.public)"
        " AND ((%s AND t.template_id = %s AND v.version = t.version) OR v.hash_id = %s)",
        [account_id, is_id, wanted if is_id else 0, "" if is_id else wanted],
    ).fetchone()
    text = None if row is None else opened(connection, vault, row[3])
    if row is None or text is None:
        raise _no_such_template(wanted)
    return TemplateVersion(row[0], row[1], row[2], msgspec.json.decode(text, type=Content))


def templates(
    connection: Connection,
    vault: Vault,
    account_id: int | None,
    *,
    search: str | None = None,
    public: bool = True,
    after: int = 0,
    limit: int = 100,
) -> list[Template]:
    """Templates of an account (none: of all) and, with *public*, those of others that are; by id.

    *search* is a part of a name, whatever its case, or a hash id. Names are sealed, so they are
    compared one by one as they are opened.
    """
    found: list[Template] = []
    while len(found) < limit:
        rows = connection.execute(
            "SELECT template_id, account_id, version, hash_id, public, reference, created_at,"
            " changed_at FROM templates WHERE template_id > %s AND deleted_at IS NULL"
            " AND (%s::bigint IS NULL OR account_id = %s OR (%s AND public))"
            " ORDER BY template_id LIMIT %s",
            [after, account_id, account_id, public, _SCAN],
        ).fetchall()
        for row in rows:
            text = opened(connection, vault, row[5])
            content = None if text is None else msgspec.json.decode(text, type=Content)
            one = Template(row[0], row[1], row[2], row[3], row[4], content, row[6], row[7])
            if _matches(one, search):
                found.append(one)
        if len(rows) < _SCAN:
            break
        after = rows[-1][0]
    return found[:limit]


def _matches(one: Template, search: str | None) -> bool:
    if search is None or search == one.hash_id:
        return True
    return one.content is not None and search.casefold() in one.content.name.casefold()


class _Known(NamedTuple):
    version: int
    content_hash: str
    public: bool


def _require(connection: Connection, account_id: int, template_id: int) -> _Known:
    row = connection.execute(
        "SELECT version, content_hash, public FROM templates WHERE template_id = %s"
        " AND account_id = %s AND deleted_at IS NULL",
        [template_id, account_id],
    ).fetchone()
    if row is None:
        raise _no_such_template(template_id)
    return _Known(*row)


def _require_new_name(
    unit: Unit, account_id: int, name_hash: str, besides: int | None = None
) -> int:
    """How many templates the account has, none of which but *besides* has this name."""
    rows = unit.connection.execute(
        "SELECT template_id, name_hash FROM templates WHERE account_id = %s AND deleted_at IS NULL",
        [account_id],
    ).fetchall()
    for template_id, known in rows:
        if known == name_hash and template_id != besides:
            message = f"template {template_id} has this name: change it, or take another name"
            raise RejectedError("template_exists", message, template_id=template_id)
    return len(rows)


def _checked(content: Content | Mapping[str, Any], *, public: bool) -> Content:
    try:
        # Also what is built already: it was not checked then, and is when it is read back.
        content = msgspec.convert(msgspec.to_builtins(content), Content)
    except msgspec.ValidationError as error:
        raise RejectedError("invalid_args", f"template: {error}") from None
    if content.name != content.name.strip():
        raise RejectedError("invalid_args", "a template's name has no spaces at its ends")
    if public and content.launch.image_login is not None:
        message = "everybody sees a public template: it holds no login of a registry"
        raise RejectedError("invalid_args", message)
    parse_launch(content.launch)
    return content


def _encoded(content: Content) -> bytes:
    return msgspec.json.encode(content, order="sorted")


def _keep(unit: Unit, subject: str, template_id: int, version: int, text: bytes) -> str:
    name = f"template-{template_id}-{version}"
    unit.vault.put(unit.connection, subject, name, text)
    return f"{subject}/{name}"


def _hash_id(unit: Unit, template_id: int, version: int, text: bytes) -> str:
    """The name of a version: nobody can tell its content from it, or guess one that is private."""
    keyed = unit.vault.keyed_hash(f"template/{template_id}/{version}/{text.decode()}")
    return hashlib.sha256(keyed.encode()).hexdigest()[:_HASH_DIGITS]


def _name_hash(vault: Vault, account_id: int, name: str) -> str:
    return vault.keyed_hash(f"template-name/{account_id}/{name.casefold()}")


def _no_such_template(wanted: str | int) -> NotFoundError:
    return NotFoundError("no_such_template", f"there is no template {wanted!r}")
