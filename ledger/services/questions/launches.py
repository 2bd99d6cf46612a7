"""What an instance is started with, as far as each may see it."""

from __future__ import annotations

import msgspec

from ledger.domain.launch import LaunchConfig
from ledger.services.instance_keys import environment_for
from ledger.services.launches import config_of
from ledger.services.ledger import load_instance
from ledger.services.ssh_keys import keys_into
from ledger.store.database import Connection
from ledger.store.vault import Vault


class LaunchView(msgspec.Struct, frozen=True, kw_only=True):
    """A launch; without contents, references and hashes alone."""

    instance_id: int
    reference: str | None
    launch_hash: str | None
    image_digest: str | None
    template_id: int | None
    template_hash: str | None
    changed_at: int | None
    config: LaunchConfig | None
    ssh_keys: list[str]


def launch(
    connection: Connection,
    vault: Vault,
    instance_id: int,
    *,
    contents: bool,
    for_host: bool = False,
) -> LaunchView:
    """What an instance is started with.

    Args:
        connection: A view of the read models.
        vault: Where the texts lie.
        instance_id: Which instance.
        contents: Open the texts: for the renter, or the machine's host.
        for_host: Add what the host gives to the container: the instance's id and its key.

    Raises:
        NotFoundError: `no_such_instance`.
    """
    instance = load_instance(connection, instance_id)
    row = connection.execute(
        "SELECT image_digest, template_id, template_hash, changed_at FROM instance_launches"
        " WHERE instance_id = %s",
        [instance_id],
    ).fetchone() or (None, None, None, None)
    config, lines = None, []
    if contents:
        config = config_of(connection, vault, instance.launch) or LaunchConfig()
        keys = keys_into(connection, vault, instance_id)
        lines = [one.key.line for one in keys if one.key is not None]
    if config is not None and for_host:
        more = environment_for(connection, vault, instance_id)
        config = msgspec.structs.replace(config, env={**config.env, **more})
    return LaunchView(
        instance_id=instance_id,
        reference=instance.launch,
        launch_hash=instance.launch_hash,
        image_digest=row[0],
        template_id=row[1],
        template_hash=row[2],
        changed_at=row[3],
        config=config,
        ssh_keys=lines,
    )
