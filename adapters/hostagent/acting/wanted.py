"""What the server wants of this machine, as far as it was heard: the newest version wins."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import msgspec

from ledger.domain.acknowledgement import Desired, DesiredInstance, DesiredVolume


class Wanted:
    """The newest desired state, and what instances are started from, which is kept in memory only.

    An acknowledgement says what is wanted; only the answer to a request that the machine signed
    says from what. Either may come first.
    """

    def __init__(self, stored: bytes | None = None) -> None:
        """Know what *stored* says, as `stored` of an agent before gave it."""
        self.version = -1
        self.instances: dict[int, DesiredInstance] = {}
        self.volumes: list[DesiredVolume] = []
        self._specs: dict[int, dict[str, Any]] = {}
        if stored:
            self.take(msgspec.json.decode(stored, type=Desired))

    def take(self, desired: Desired) -> bool:
        """Hear *desired*; true when it is news. An older version than known changes nothing.

        The same version again renews leases and brings specs.
        """
        if desired.version < self.version:
            return False
        for one in desired.instances:
            if one.spec is not None:
                self._specs[one.instance] = one.spec
        instances = {
            one.instance: msgspec.structs.replace(one, spec=None) for one in desired.instances
        }
        is_news = desired.version > self.version or instances != self.instances
        is_news |= desired.volumes != self.volumes
        self.version, self.instances = desired.version, instances
        self.volumes = desired.volumes
        for instance in self._specs.keys() - instances.keys():
            del self._specs[instance]
        return is_news

    @property
    def is_rented(self) -> bool:
        """Whether some instance is to run here."""
        return any(one.want == "running" for one in self.instances.values())

    @property
    def ready(self) -> Collection[int]:
        """Instances of which it is known what they are started from."""
        return self._specs.keys()

    def spec(self, instance: int) -> DesiredInstance | None:
        """The instance with what it is started from; null while that was not heard."""
        wanted, spec = self.instances.get(instance), self._specs.get(instance)
        if wanted is None or spec is None:
            return None
        return msgspec.structs.replace(wanted, spec=spec)

    def stored(self) -> bytes:
        """What may be kept on disk: everything but the specs, which hold secrets."""
        known = Desired(
            version=max(self.version, 0),
            instances=list(self.instances.values()),
            volumes=self.volumes,
        )
        return msgspec.json.encode(known)
