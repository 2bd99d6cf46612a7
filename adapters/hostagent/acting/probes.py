"""Looks into containers: the host may see GPUs that the inside has lost."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Mapping
from queue import SimpleQueue
from typing import Final

from adapters.hostagent.runtime.port import Found, Runtime

EVERY_SECONDS: Final = 60.0


class Probes:
    """Asks every minute and on doubt, each on a thread; `lost` are who do not see their GPUs."""

    def __init__(
        self,
        runtime: Runtime,
        on_answer: Callable[[], None],
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Ask *runtime*; *on_answer* is called, on any thread, when one has answered."""
        self._runtime = runtime
        self._on_answer = on_answer
        self._monotonic = monotonic
        self._due_at = monotonic() + EVERY_SECONDS
        self._answers: SimpleQueue[tuple[Found, bool]] = SimpleQueue()
        self.lost: set[int] = set()

    def ask(
        self, found: Mapping[int, Found], busy: Collection[int], doubtful: Collection[int]
    ) -> None:
        """Begin what is due; those that are *busy* are left alone."""
        now = self._monotonic()
        asked = set(doubtful)
        if now >= self._due_at:
            self._due_at = now + EVERY_SECONDS
            asked |= found.keys()
        for instance in asked:
            one = found.get(instance)
            if one is None or not one.is_alive or instance in busy:
                continue
            # Beside the loop: a hung driver must not cost the others their seconds.
            threading.Thread(
                target=self._ask_one, args=[one], name=f"probe-{instance}", daemon=True
            ).start()

    def _ask_one(self, found: Found) -> None:
        self._answers.put((found, self._runtime.probe(found.id)))
        self._on_answer()

    def losses(
        self, found: Mapping[int, Found], busy: Collection[int], off_the_bus: Collection[str]
    ) -> list[Found]:
        """Who lost GPUs since the last call, by what was answered and what fell *off_the_bus*."""
        losses = {
            one.instance: one
            for one in found.values()
            if one.is_alive and not set(off_the_bus).isdisjoint(one.gpu_uuids)
        }
        while not self._answers.empty():
            asked, is_good = self._answers.get()
            now_found = found.get(asked.instance)
            if now_found is None or now_found.pid != asked.pid:
                continue  # It was started anew since it was asked.
            if not is_good:
                losses[asked.instance] = asked
            elif asked.instance not in losses:
                self.lost.discard(asked.instance)
        new = [one for one in losses.values() if one.instance not in {*self.lost, *busy}]
        self.lost |= {one.instance for one in new}
        return new
