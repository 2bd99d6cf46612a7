"""Renting the next best offer: search, bid within the ceiling, create exactly one instance."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any, Final

from adapters.supervise.api import Api
from adapters.supervise.job import Job
from adapters.supervise.journal import Journal
from adapters.supervise.records import Instance, Offer
from ledger.domain.money import format_dollars
from ledger.errors import DeclinedError, IdempotencyError, LedgerError, NotFoundError, RejectedError

_OFFERS_TRIED: Final = 10
_KEYS_TRIED: Final = 100
_AVOID_SECONDS: Final = 1_800.0
"""How long a machine that failed the job is left alone."""
_NEXT_OFFER: Final = frozenset({
    "no_such_ask", "no_capacity", "invalid_price", "bids_not_accepted", "no_such_machine",
})  # fmt: skip
"""Refusals that are about this offer, and not about the next one."""
_NO_MONEY: Final = frozenset({"insufficient_credit", "spend_rate_limit"})


class Renter:
    """Rents for one job."""

    def __init__(self, job: Job, api: Api, journal: Journal) -> None:
        """Nothing is rented yet."""
        self._job = job
        self._api = api
        self._journal = journal
        self._avoided: dict[int, float] = {}
        """Machine → until when it is avoided, by the clock that never goes back."""
        self._told: tuple[object, ...] = ()
        self.is_broke = False
        """The last attempt failed for lack of credit, or at a spend cap."""

    def avoid(self, machine_id: int) -> None:
        """Leave a machine alone for half an hour."""
        self._avoided[machine_id] = time.monotonic() + _AVOID_SECONDS

    def rent(self, why: str, avoid: Iterable[int], newest: int) -> Instance | None:
        """Rent the next best offer that takes the job; None when none does.

        Args:
            why: Why another instance is needed.
            avoid: Machines that are out of the question, beside those that failed lately.
            newest: The newest instance ever rented for the job, 0 before the first.

        Raises:
            LedgerError: The server refuses this job whatever the offer.
        """
        self.is_broke = False
        now = time.monotonic()
        self._avoided = {one: until for one, until in self._avoided.items() if until > now}
        machines = {*avoid, *self._avoided}
        offers = self._api.search(self._job.search(machines, _OFFERS_TRIED))
        attempts = iter(range(_KEYS_TRIED))
        for offer in offers:
            body = self._job.order_of(offer)
            if body is not None and (made := self._create(offer, body, newest, attempts)):
                self._told = ()
                self._rented(why, offer, made, body)
                return made
            if self.is_broke:
                break
        self._tell_nothing(why, newest, len(offers))
        return None

    def _create(
        self, offer: Offer, body: dict[str, Any], newest: int, attempts: Iterable[int]
    ) -> Instance | None:
        """Create from one offer, under the next key that does not stand for something else."""
        for attempt in attempts:
            key = self._job.create_key(newest, self._api.now, attempt)
            try:
                made, replayed = self._api.create(body, key)
            except IdempotencyError:
                # The key stands for another offer that this job asked for: what came of it?
                if (found := self._newer(newest)) is not None:
                    return found
            except (DeclinedError, NotFoundError, RejectedError) as error:
                if error.detail["replayed"]:
                    continue
                self._refused(offer, error)
                return None
            else:
                # A replayed answer tells of then, and the instance may be gone by now.
                found = self._newer(newest) if replayed else made
                if found is not None:
                    return found
        return None

    def _newer(self, newest: int) -> Instance | None:
        """What was rented after *newest* and lives."""
        for one in self._api.instances(self._job.label):
            if one.instance_id > newest and one.is_alive:
                return one
        return None

    def _refused(self, offer: Offer, error: LedgerError) -> None:
        """Tell a refusal; one that no other offer would change is raised."""
        told = ("refused", offer.offer_id, error.code)
        if told != self._told:
            self._told = told
            self._journal(
                "refused",
                f"offer {offer.offer_id} on machine {offer.machine_id}: {error.message}",
                code=error.code,
                offer_id=offer.offer_id,
                machine_id=offer.machine_id,
            )
        if error.code in _NO_MONEY:
            self.is_broke = True
        elif error.code not in _NEXT_OFFER:
            raise error

    def _rented(self, why: str, offer: Offer, made: Instance, body: dict[str, Any]) -> None:
        paid = "on demand" if made.bid is None else f"bid {made.bid}"
        self._journal(
            "rented",
            f"instance {made.instance_id}: {offer.num_gpus} x {offer.gpu_name} on machine"
            f" {made.machine_id}, {paid}, {made.dph_total} an hour with the disk, {made.shown};"
            f" because {why}",
            instance_id=made.instance_id,
            machine_id=made.machine_id,
            offer_id=body["offer_id"],
            status=made.status,
            bid=made.bid,
            dph_total=made.dph_total,
            why=why,
        )

    def _tell_nothing(self, why: str, newest: int, count: int) -> None:
        told = ("no offer", newest, count)
        if told == self._told or self.is_broke:
            return
        self._told = told
        ceiling = format_dollars(self._job.max_price)
        self._journal(
            "no offer",
            f"{why}, and none of {count} offers within {ceiling} an hour takes the job now",
            offers=count,
            why=why,
        )
