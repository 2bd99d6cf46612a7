"""How read models' tables are declared; they are made by the migrations and by a rebuild.

The order of columns is part of the canonical dump that a rebuild compares. Amounts are nanos,
instants Unix seconds, positions places in the log.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import (
    BigInteger,
    Column,
    MetaData,
    Numeric,
    Table,
    Text,
    text,
)

metadata = MetaData()


def big(name: str, **options: Any) -> Column[int]:
    """A whole number."""
    return Column(name, BigInteger, nullable=options.pop("nullable", False), **options)


def maybe(name: str) -> Column[int]:
    """A whole number, or nothing."""
    return Column(name, BigInteger, nullable=True)


def money(name: str) -> Column[Any]:
    """Nanos of any size; 0 at first."""
    return Column(name, Numeric(38, 0), nullable=False, server_default=text("0"))


def string(name: str, *, nullable: bool = False) -> Column[str]:
    """A text."""
    return Column(name, Text, nullable=nullable)


def table(name: str, group: str, *parts: Any, fillfactor: int | None = None) -> Table:
    """A table of one group."""
    options: dict[str, Any] = {"info": {"group": group}}
    if fillfactor is not None:
        options["postgresql_with"] = {"fillfactor": fillfactor}
    return Table(name, metadata, *parts, **options)
