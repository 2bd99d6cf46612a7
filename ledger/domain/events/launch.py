"""What an instance is started with, and how one gets in; the texts themselves lie in the vault."""

from __future__ import annotations

import msgspec

from ledger.domain.events.base import Fact


class InstanceLaunchResolved(Fact, tag="instance.launch_resolved.v1"):
    """What stood behind the names of a create: the image's digest, the template's version.

    Both are null where none was named, or nobody asked the registry.
    """

    instance_id: int
    image_digest: str | None
    template_id: int | None
    template_hash: str | None
    resolved_at: int


class InstanceLaunchChanged(Fact, tag="instance.launch_changed.v1"):
    """The renter gave another image, environment, start text or arguments.

    `launch` refers to the vault, `launch_hash` is keyed; price, size and kind are never in it.
    """

    instance_id: int
    launch: str
    launch_hash: str
    image_digest: str | None
    changed_at: int


class PublishedPort(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A port of the container, and where its host publishes it."""

    container_port: int
    host_port: int
    protocol: str


class ConnectionPublished(Fact, tag="instance.connection_published.v1"):
    """The host says how one reaches the container of this assignment.

    Addresses are personal: `addresses` refers to the vault, `addresses_hash` is keyed.
    """

    instance_id: int
    assignment_no: int
    ports: list[PublishedPort]
    addresses: str | None
    addresses_hash: str | None
    digest: str | None
    published_at: int


LaunchFact = InstanceLaunchResolved | InstanceLaunchChanged | ConnectionPublished
