"""Launch configurations of instances: resolved at the create, sealed, changed, shown to whom it is.

What an instance is started with is put together once, in this order, the later winning: the
account's secrets, the template, the create's own values. So later edits of a template or a secret
change nothing of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from ledger.domain.events import InstanceLaunchResolved
from ledger.domain.ids import instance_stream
from ledger.domain.instance import ChangeLaunchConfig, Instance
from ledger.domain.launch import (
    LaunchChange,
    LaunchConfig,
    Warning,
    decode_launch,
    encode_launch,
    overlaid,
    parse_launch,
    warnings_of,
)
from ledger.errors import RejectedError
from ledger.services.images import Resolved
from ledger.services.launch_policies import demands_secure
from ledger.services.ledger import Unit
from ledger.services.secrets import environment_of
from ledger.services.ssh_keys import attach_all
from ledger.services.subjects import opened, require_subject
from ledger.services.templates import TemplateVersion, find_version
from ledger.store.database import Connection
from ledger.store.vault import Vault


class Launch(NamedTuple):
    """A resolved configuration, where it lies, and from which template it came."""

    config: LaunchConfig
    reference: str | None
    launch_hash: str | None
    template: TemplateVersion | None


def keep_launch(
    unit: Unit,
    account_id: int,
    instance_id: int,
    launch: Mapping[str, Any] | LaunchConfig | None,
    template: str | int | None = None,
) -> Launch:
    """Resolve and seal what an instance that is being created is started with.

    Raises:
        NotFoundError: `no_such_template`.
        RejectedError: `invalid_args` for a configuration that is none.
    """
    own = parse_launch(launch)
    version = None
    if template is not None:
        version = find_version(unit.connection, unit.vault, account_id, template)
    secrets = environment_of(unit.connection, unit.vault, account_id)
    config = LaunchConfig(env=secrets)
    if version is not None:
        config = overlaid(config, version.config)
    config = parse_launch(overlaid(config, own))
    if config == LaunchConfig():
        return Launch(config, None, None, version)
    reference, launch_hash = _seal(unit, account_id, f"launch-{instance_id}", config)
    return Launch(config, reference, launch_hash, version)


def record_resolved(unit: Unit, instance_id: int, launch: Launch, resolved: Resolved) -> None:
    """Record what stood behind the names of a create, where that is known, and let keys in."""
    digest = resolved.digest_of(launch.config.image)
    template = launch.template
    if digest is not None or template is not None:
        unit.append(
            instance_stream(instance_id),
            InstanceLaunchResolved(
                instance_id=instance_id,
                image_digest=digest,
                template_id=None if template is None else template.template_id,
                template_hash=None if template is None else template.hash_id,
                resolved_at=unit.now,
            ),
        )
    attach_all(unit, instance_id)


def change_of(
    unit: Unit, instance: Instance, wish: LaunchChange, resolved: Resolved
) -> ChangeLaunchConfig | None:
    """The command that gives an instance another configuration; None when it has it already.

    The text before it is destroyed with the command: a secret that was replaced is kept nowhere.

    Raises:
        RejectedError: `invalid_args`.
    """
    before = config_of(unit.connection, unit.vault, instance.launch) or LaunchConfig()
    config = parse_launch(wish.of(before))
    if config == before:
        return None
    name = f"launch-{instance.instance_id}-{instance.launches + 1}"
    reference, launch_hash = _seal(unit, instance.account_id, name, config)
    return ChangeLaunchConfig(reference, launch_hash, resolved.digest_of(config.image))


def config_of(connection: Connection, vault: Vault, reference: str | None) -> LaunchConfig | None:
    """The configuration under a reference; none where none was kept, or it was erased."""
    text = opened(connection, vault, reference)
    return None if text is None else decode_launch(text)


def launch_warnings(
    unit: Unit, machine_id: int, launch: LaunchConfig, digest: str | None
) -> list[Warning]:
    """What is odd about a launch on this machine."""
    return warnings_of(launch, secure=is_secure(unit.connection, machine_id), digest=digest)


def is_secure(connection: Connection, machine_id: int) -> bool:
    """True when a machine is in the secure tier now."""
    row = connection.execute(
        "SELECT secure FROM machine_standing WHERE machine_id = %s", [machine_id]
    ).fetchone()
    return row is not None and bool(row[0])


def require_tier(unit: Unit, account_id: int, machine_id: int) -> None:
    """Refuse a machine outside the secure tier to an account that demands it.

    Raises:
        RejectedError: `secure_tier_required`.
    """
    demands = demands_secure(unit.connection, account_id)
    if demands and not is_secure(unit.connection, machine_id):
        message = (
            f"this account rents in the secure tier only, and machine {machine_id} is not in it:"
            " search with `secure`, or change the launch policy"
        )
        raise RejectedError("secure_tier_required", message)


def _seal(unit: Unit, account_id: int, name: str, config: LaunchConfig) -> tuple[str, str]:
    text = encode_launch(config)
    subject = require_subject(unit.connection, account_id)
    unit.vault.put(unit.connection, subject, name, text)
    return f"{subject}/{name}", unit.vault.keyed_hash(text.decode())
