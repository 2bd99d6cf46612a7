"""What an account has to know."""

from __future__ import annotations

from typing import Annotated

import msgspec
from litestar import get
from litestar.params import QueryParameter

from adapters.http.call import ANYONE, Caller, allowed
from adapters.http.native.accounts import AccountFilter, Cursor, Limit
from adapters.http.wire import Instant, Page, decode_cursor, page
from ledger.domain.events import NoticeCode
from ledger.services.questions import notices as ask

CodeFilter = Annotated[NoticeCode | None, QueryParameter(description="Notices of one code alone.")]


class Notice(msgspec.Struct, frozen=True, kw_only=True):
    """A notice. `about` names an object, such as `instance-7`; webhooks carry it as `event_id`."""

    event_id: str
    account_id: int
    code: str
    about: str
    issued_at: Instant
    position: int


@get("/v1/notices", opt=allowed(*ANYONE), summary="List notices")
async def list_notices(
    call: Caller,
    account_id: AccountFilter = None,
    code: CodeFilter = None,
    limit: Limit = 100,
    cursor: Cursor = None,
) -> Page[Notice]:
    """List what an account had to know, oldest first: the same that webhooks send."""
    account = call.view(account_id)
    after = decode_cursor(cursor, int, 0)
    found = await call.question(
        lambda connection: ask.notices(
            connection, account_id=account, code=code, after=after, limit=limit + 1
        )
    )
    return page(Notice, found, limit, lambda one: one.position)


HANDLERS = [list_notices]
