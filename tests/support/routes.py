"""The application and the schema it publishes, made once: that takes longer than most tests."""

from __future__ import annotations

import functools
from typing import Any

from litestar import Litestar

from adapters.http.app import build_app


@functools.cache
def application() -> Litestar:
    """Every route; a test attaches the ledger that it is to answer from."""
    return build_app()


@functools.cache
def published() -> dict[str, Any]:
    """The schema, for reading only."""
    schema: dict[str, Any] = application().openapi_schema.to_schema()
    return schema
