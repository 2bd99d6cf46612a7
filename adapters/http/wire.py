"""How values travel: amounts as decimal strings, instants as RFC 3339, lists page by page.

`render` turns a view of the ledger into a wire struct by the types of the wire struct's fields, so
that what is documented and what is sent are one thing.
"""

from __future__ import annotations

import base64
import binascii
import types
from collections.abc import Callable, Sequence
from functools import cache
from typing import (
    Annotated,
    Any,
    ClassVar,
    Generic,
    TypeVar,
    dataclass_transform,
    get_args,
    get_origin,
    get_type_hints,
)

import msgspec
from msgspec import Meta

from ledger.domain.ids import parse_rfc3339, rfc3339
from ledger.domain.money import format_dollars
from ledger.errors import RejectedError

T = TypeVar("T")
W = TypeVar("W", bound=msgspec.Struct)

_DOLLARS = Meta(
    description="Dollars as an exact decimal, up to nine digits after the point.",
    examples=["0.4", "99.2174856"],
    extra={"render": "dollars"},
)
_INSTANT = Meta(
    description="A UTC second, RFC 3339.",
    examples=["2026-03-01T10:00:00Z"],
    extra={"render": "instant"},
)
MAX_ID = 2**63 - 1
Id = Annotated[int, Meta(ge=1, le=MAX_ID)]
Dollars = Annotated[str, _DOLLARS]
Instant = Annotated[str, _INSTANT]
_RENDERERS: dict[str, Callable[[Any], Any]] = {"dollars": format_dollars, "instant": rfc3339}

MAX_PAGE = 1_000
_LAST_SECOND = 253_402_300_799
"""9999-12-31T23:59:59Z: what comes after it cannot be written as RFC 3339."""


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(msgspec.field,))
class Body(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A request's body; a field that is not known is an error."""

    EXAMPLE: ClassVar[dict[str, Any]]
    """A body that would be accepted; the reference shows it."""


class Page(msgspec.Struct, Generic[T], frozen=True, kw_only=True):
    """One page. `next_cursor` is null on the last page; a cursor never repeats or skips a row."""

    items: list[T]
    next_cursor: str | None


def render(wire: type[W], view: Any, **more: Any) -> W:
    """*view* as a struct of type *wire*; *more* sets fields that the view does not have."""
    values = {}
    for name, convert in _fields(wire):
        if name in more:
            values[name] = more[name]
        else:
            value = getattr(view, name)
            values[name] = None if value is None else convert(value)
    return wire(**values)


def render_all(wire: type[W], views: Sequence[Any]) -> list[W]:
    """Every view as a struct of type *wire*."""
    return [render(wire, view) for view in views]


@cache
def _fields(wire: type[msgspec.Struct]) -> list[tuple[str, Callable[[Any], Any]]]:
    hints = get_type_hints(wire, include_extras=True)
    return [(name, _converter(hints[name])) for name in wire.__struct_fields__]


def _converter(hint: Any) -> Callable[[Any], Any]:
    if get_origin(hint) is Annotated:
        for meta in get_args(hint)[1:]:
            extra = getattr(meta, "extra", None) or {}
            if "render" in extra:
                return _RENDERERS[extra["render"]]
        return _converter(get_args(hint)[0])
    if get_origin(hint) in {types.UnionType} or str(get_origin(hint)) == "typing.Union":
        inner = [one for one in get_args(hint) if one is not type(None)]
        return _converter(inner[0]) if len(inner) == 1 else _same
    if get_origin(hint) is list:
        convert = _converter(get_args(hint)[0])
        return _same if convert is _same else lambda values: [convert(value) for value in values]
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        return lambda view: render(hint, view)
    return _same


def _same(value: Any) -> Any:
    return value


def instant(text: str | None, name: str) -> int | None:
    """The Unix second of an RFC 3339 text.

    Raises:
        RejectedError: `invalid_args`.
    """
    if text is None:
        return None
    try:
        second = parse_rfc3339(text)
    except (ValueError, OverflowError) as error:
        raise RejectedError("invalid_args", f"{name}: {error}", status=400) from None
    if not 0 <= second <= _LAST_SECOND:
        message = f"{name}: an instant lies between 1970 and 9999"
        raise RejectedError("invalid_args", message, status=400)
    return second


def encode_cursor(key: Any) -> str:
    """An opaque text for the key of a page's last row."""
    return base64.urlsafe_b64encode(msgspec.msgpack.encode(key)).decode().rstrip("=")


def decode_cursor(cursor: str | None, kind: type[T], first: T) -> T:
    """The key that a cursor names; *first* without one.

    Raises:
        RejectedError: `invalid_args` for a cursor that this list never gave.
    """
    if cursor is None:
        return first
    try:
        raw = base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4))
        return msgspec.msgpack.decode(raw, type=kind)
    except (binascii.Error, ValueError, msgspec.DecodeError, UnicodeError):
        message = "the cursor is not one that this list gave"
        raise RejectedError("invalid_args", message, status=400) from None


def page(wire: type[W], views: Sequence[Any], limit: int, key: Callable[[Any], Any]) -> Page[W]:
    """A page of *views*, which were asked for with ``limit + 1``."""
    more = len(views) > limit
    kept = views[:limit]
    cursor = encode_cursor(key(kept[-1])) if more and kept else None
    return Page(items=render_all(wire, kept), next_cursor=cursor)


def page_of(items: Sequence[T], limit: int, key: Callable[[T], Any]) -> Page[T]:
    """A page of what is on the wire already, and was asked for with ``limit + 1``."""
    kept = list(items[:limit])
    cursor = encode_cursor(key(kept[-1])) if len(items) > limit and kept else None
    return Page(items=kept, next_cursor=cursor)
