"""The metering fold: a page of the log becomes what changes in the usage group's tables.

Facts say what is metered (`facts`), reports which seconds of it count (`reports`); what these cost
and where that is booked is `posting`. Both change what is in memory (`live`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ledger.domain import events as e
from ledger.projections.usage.anomalies import AnomalyPage
from ledger.projections.usage.facts import FactFold
from ledger.projections.usage.live import Live
from ledger.projections.usage.page import Page
from ledger.projections.usage.posting import Posting
from ledger.projections.usage.reports import ReportFold
from ledger.store.codec import decode_fact

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ledger.store.database import Connection
    from ledger.store.log import Stored


class UsageFold:
    """Folds pages of the log into the usage group's tables; keeps live machines in memory between.

    `fold` must be followed by a commit of the page's transaction and `committed`, or by `forget`.
    """

    def __init__(self) -> None:
        """Begin with nothing in memory."""
        self._live = Live()
        self._posting = Posting(self._live.closed)
        self._facts = FactFold(self._live, self._posting)
        self._reports = ReportFold(self._live, self._posting)
        self._is_loaded = False

    def forget(self) -> None:
        """Drop everything in memory, for instance after a page that did not commit."""
        self.__init__()  # type: ignore[misc]  # the empty state is the initial state

    def fold(self, connection: Connection, stored: Sequence[Stored]) -> Page:
        """Fold a page of the log and return what changed; the caller writes it (`writing`)."""
        page = self._posting.page = Page()
        page.anomalies = AnomalyPage(connection)
        if not self._is_loaded:
            self._live.load_platform(connection)
            self._posting.load(connection)
            self._is_loaded = True
        self._live.prepare(connection, page, stored)
        self._reports.begin(page)
        for one in stored:
            if one.topic == e.USAGE_REPORTED:
                self._reports.take(one)
            else:
                self._facts.take(decode_fact(one.topic, one.state), one)
        self._live.trim(stored[-1].recorded_at if stored else 0)
        return page

    def committed(self) -> None:
        """The page is durable: forget what has left the present."""
        self._live.committed()
