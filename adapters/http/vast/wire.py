"""How values travel to and from these clients: money as exact JSON numbers, times as Unix seconds.

Numbers that arrive keep the digits they were written with (`Decimal`), never a float's.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping, Sequence
from decimal import ROUND_HALF_EVEN, Decimal, InvalidOperation, localcontext
from math import isfinite
from typing import Any, Final

import msgspec
from litestar import Response

from ledger.domain.money import NANOS_PER_DOLLAR, format_dollars, parse_dollars
from ledger.errors import RejectedError

Json = dict[str, Any]
JSON_TYPE: Final = "application/json"
_PLACES: Final = 9
_PRECISION: Final = 60
_encoder = msgspec.json.Encoder(decimal_format="number")
_decoder = msgspec.json.Decoder(float_hook=Decimal)


def encode(value: Any) -> bytes:
    """*value* as JSON; decimals become numbers with exactly their digits."""
    return _encoder.encode(value)


def answer(
    value: Any, status: int = 200, headers: Mapping[str, str] | None = None
) -> Response[Any]:
    """An answer with exactly the content type that these clients insist on."""
    return Response(
        encode(value), status_code=status, media_type=JSON_TYPE, headers=dict(headers or {})
    )


def decode(text: bytes | str) -> Any:
    """The value of a JSON text.

    Raises:
        RejectedError: `invalid_args` when it is none.
    """
    try:
        return _decoder.decode(text)
    except (msgspec.DecodeError, UnicodeError, InvalidOperation) as error:
        raise RejectedError("invalid_args", f"this is not JSON: {error}") from None


# --- numbers that leave ---------------------------------------------------------------------------


def money(nanos: int) -> Decimal:
    """Nanos as dollars, to the last digit."""
    return Decimal(format_dollars(nanos))


def maybe_money(nanos: int | None) -> Decimal | None:
    """Nanos as dollars, or nothing."""
    return None if nanos is None else money(nanos)


def ratio(numerator: int, denominator: int, places: int = _PLACES) -> Decimal:
    """A derived rate, rounded half to even."""
    with localcontext() as context:
        context.prec = _PRECISION
        step = Decimal(1).scaleb(-places)
        return plain((Decimal(numerator) / denominator).quantize(step, ROUND_HALF_EVEN))


def per_hour(nanos_per_gb_month: int, gigabytes: int) -> Decimal:
    """Dollars per hour of a disk: a month of a rate has 720 hours."""
    return ratio(nanos_per_gb_month * gigabytes, 720 * NANOS_PER_DOLLAR)


def quotient(numerator: float | Decimal | None, denominator: Decimal | None) -> Decimal | None:
    """How much of *numerator* there is per unit of *denominator*; none where that is nothing."""
    if numerator is None or not denominator:
        return None
    with localcontext() as context:
        context.prec = _PRECISION
        value = Decimal(str(numerator)) / denominator
        return plain(value.quantize(Decimal(1).scaleb(-_PLACES), ROUND_HALF_EVEN))


def plain(value: Decimal) -> Decimal:
    """The shortest way to write a decimal without an exponent above zero."""
    short = value.normalize()
    exponent = short.as_tuple().exponent
    assert isinstance(exponent, int), value
    return short if exponent <= 0 else short.quantize(Decimal(1))


# --- values that arrive ---------------------------------------------------------------------------


def number(value: Any, name: str) -> Decimal:
    """A number, also one written as text.

    Raises:
        RejectedError: `invalid_args`.
    """
    try:
        found = Decimal("NaN") if isinstance(value, bool) else Decimal(str(value))
        if isfinite(found) and abs(found) < 10**18:
            return found
    except (InvalidOperation, ValueError, OverflowError):
        pass
    raise RejectedError("invalid_args", f"`{name}` must be a number, not {_brief(value)}")


def whole(value: Any, name: str) -> int:
    """A number without a fraction.

    Raises:
        RejectedError: `invalid_args`.
    """
    found = number(value, name)
    if found != found.to_integral_value():
        raise RejectedError("invalid_args", f"`{name}` must be a whole number, not {found}")
    return int(found)


def dollars(value: Any, name: str) -> int:
    """An amount of dollars in nanos, rounded half to even.

    Raises:
        RejectedError: `invalid_price`.
    """
    if isinstance(value, bool) or not isinstance(value, str | int | Decimal):
        raise RejectedError("invalid_price", f"`{name}` must be an amount, not {_brief(value)}")
    return parse_dollars(value)


def text(value: Any, name: str) -> str | None:
    """A text, or nothing.

    Raises:
        RejectedError: `invalid_args`.
    """
    if value is None or (isinstance(value, str) and "\x00" not in value):
        return value
    raise RejectedError("invalid_args", f"`{name}` must be a text, not {_brief(value)}")


def flag(value: Any, name: str) -> bool:
    """True or false, however it is written.

    Raises:
        RejectedError: `invalid_args`.
    """
    shown = str(value).lower()
    if shown in {"true", "1"}:
        return True
    if shown in {"false", "0", "none", "null"}:
        return False
    raise RejectedError("invalid_args", f"`{name}` must be true or false, not {_brief(value)}")


def mapping(value: Any, name: str) -> Json:
    """A JSON object.

    Raises:
        RejectedError: `invalid_args`.
    """
    if value is None:
        return {}
    if isinstance(value, dict):
        return value
    raise RejectedError("invalid_args", f"`{name}` must be an object, not {_brief(value)}")


def ids(value: Any, name: str, most: int = 1_000) -> list[int]:
    """Ids, each once, in the order given; one alone is a list of one.

    Raises:
        RejectedError: `invalid_args`.
    """
    given = value if isinstance(value, list) else [value]
    found = list(dict.fromkeys(whole(one, name) for one in given))
    if not found or len(found) > most:
        raise RejectedError("invalid_args", f"`{name}`: give 1 to {most} ids")
    return found


def names(*lines: str) -> frozenset[str]:
    """The words of some lines, as names."""
    return frozenset(" ".join(lines).split())


def _brief(value: Any) -> str:
    return repr(value)[:60]


# --- paging tokens --------------------------------------------------------------------------------


def token(keys: Sequence[Any] | None) -> str | None:
    """An opaque mark of the last row of a page; none on the last page."""
    if keys is None:
        return None
    return base64.urlsafe_b64encode(msgspec.json.encode(list(keys))).decode().rstrip("=")


def keys_of(shown: str | None, types: Sequence[type]) -> list[Any] | None:
    """The keys that a token holds, one of each type.

    Raises:
        RejectedError: `invalid_token` for one that this list never gave.
    """
    if not shown:
        return None
    try:
        raw = base64.urlsafe_b64decode(shown + "=" * (-len(shown) % 4))
        keys = msgspec.json.decode(raw, type=list[Any])
        if len(keys) == len(types) and all(map(_is_one, keys, types)):
            return keys
    except (binascii.Error, ValueError, msgspec.DecodeError, UnicodeError):
        pass
    raise RejectedError("invalid_token", "this token is not one that this list gave")


def _is_one(key: Any, kind: type) -> bool:
    if kind is str:
        return isinstance(key, str) and "\x00" not in key
    fits = isinstance(key, int | float) if kind is float else isinstance(key, kind)
    return fits and (kind is bool or not isinstance(key, bool))
