"""Typed ids and instants.

Ids of instances, machines and accounts are positive integers, handed out in the order in which the
creating fact was appended: tie-breaks use them, and clients expect integers.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import NewType

AccountId = NewType("AccountId", int)
MachineId = NewType("MachineId", int)
InstanceId = NewType("InstanceId", int)
ListingId = NewType("ListingId", int)

UnixSeconds = NewType("UnixSeconds", int)
"""A whole UTC Unix second. Intervals are half open: [start, end)."""

Position = NewType("Position", int)
"""A place in the one log; every tick and every other fact has its own."""


def account_stream(account_id: int) -> str:
    """Name of the stream of an account's facts."""
    return f"account-{account_id}"


def machine_stream(machine_id: int) -> str:
    """Name of the stream of a machine's facts."""
    return f"machine-{machine_id}"


def instance_stream(instance_id: int) -> str:
    """Name of the stream of an instance's facts."""
    return f"instance-{instance_id}"


def volume_stream(volume_id: int) -> str:
    """Name of the stream of a volume's facts."""
    return f"volume-{volume_id}"


def usage_stream(machine_id: int, epoch: str) -> str:
    """Name of the stream of a machine's signed reports under one epoch.

    A report's version is its `seq`.
    """
    return f"usage-{machine_id}-{epoch}"


def rfc3339(second: int) -> str:
    """A Unix second as people and programs read it: ``2026-01-01T00:00:00Z``."""
    return datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def parse_rfc3339(text: str) -> UnixSeconds:
    """The Unix second of an RFC 3339 instant with an offset, in whole seconds.

    Raises:
        ValueError: The text is not such an instant.
    """
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None or moment.microsecond:
        message = f"{text!r} is not a whole second with an offset such as 2026-01-01T00:00:00Z"
        raise ValueError(message)
    return UnixSeconds(int(moment.timestamp()))


def month_start(second: int) -> UnixSeconds:
    """First second of the UTC calendar month that holds *second*."""
    moment = datetime.fromtimestamp(second, UTC)
    return UnixSeconds(int(datetime(moment.year, moment.month, 1, tzinfo=UTC).timestamp()))


def next_month_start(second: int) -> UnixSeconds:
    """First second of the UTC calendar month after the one that holds *second*."""
    moment = datetime.fromtimestamp(second, UTC)
    year, month = moment.year, moment.month + 1
    if moment.month == 12:  # noqa: PLR2004 - December
        year, month = moment.year + 1, 1
    return UnixSeconds(int(datetime(year, month, 1, tzinfo=UTC).timestamp()))
