"""How a host talks to the ledger: enrolment once, usage reports ever after."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from types import TracebackType
from typing import Final, Self, TypeVar

import httpx
import msgspec

from adapters.hostagent.identity import HostIdentity
from adapters.hostagent.reports import SealedReport
from ledger.domain.acknowledgement import UsageAnswer
from ledger.domain.hardware import Inventory
from ledger.domain.usage import MAX_REPORTS_PER_REQUEST
from ledger.errors import AuthError, LedgerError, RejectedError, UnavailableError

MAX_REQUEST_BYTES: Final = 1_048_576
TIMEOUT_SECONDS: Final = 10.0
MAX_BACKOFF_SECONDS: Final = 60.0

_MSGPACK: Final = "application/msgpack"
_RETRIED: Final = frozenset({408, 425, 429})
_UNAUTHORIZED: Final = 401
_SERVER_ERROR: Final = 500
_FRAME_BYTES: Final = 32
"""More than msgpack adds to the key id, the signature and the body of one report."""


_Answer = TypeVar("_Answer")


class _Problem(msgspec.Struct):
    """As much of a problem document as an agent reads."""

    code: str = ""
    title: str = ""
    detail: str = ""


class _Enrolled(msgspec.Struct):
    machine_id: int
    key_id: str


_answer_from_msgpack = msgspec.msgpack.Decoder(UsageAnswer)
_answer_from_json = msgspec.json.Decoder(UsageAnswer)
_problem = msgspec.json.Decoder(_Problem)
_enrolled = msgspec.json.Decoder(_Enrolled)


class UsageClient:
    """Posts sealed reports and reads one answer for each."""

    def __init__(self, base_url: str, http: httpx.Client | None = None) -> None:
        """Talk to the ledger at *base_url*, through *http* where one is given."""
        self._url = base_url.rstrip("/") + "/v1/usage"
        self._http = http or httpx.Client(timeout=TIMEOUT_SECONDS)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def post(self, reports: Sequence[SealedReport]) -> UsageAnswer:
        """Send *reports* in order, in as many requests as their number and size ask for.

        Returns:
            One answer per report, in order, and the latest acknowledgement of each epoch.

        Raises:
            AuthError: No signature of a request is good.
            UnavailableError: No answer, or one that says "later"; `detail` holds `status` (null
                when nothing came) and `retry_after_seconds` (0 when not said). Requests before
                the failed one are stored; sending all again is harmless.
            RejectedError: The request can never succeed; `detail` holds `status`.
        """
        answers = []
        rest = reports
        while rest:
            batch = first_batch(rest)
            answers.append(self._post(batch))
            rest = rest[len(batch) :]
        if len(answers) == 1:
            return answers[0]
        return UsageAnswer(
            server_time_ms=answers[-1].server_time_ms if answers else 0,
            reports=[one for answer in answers for one in answer.reports],
            acks=list(
                {
                    (ack.machine, ack.epoch): ack for answer in answers for ack in answer.acks
                }.values()
            ),
        )

    def _post(self, batch: Sequence[SealedReport]) -> UsageAnswer:
        content = msgspec.msgpack.encode([(one.key_id, one.signature, one.body) for one in batch])
        response = _send(
            self._http, self._url, content, {"content-type": _MSGPACK, "accept": _MSGPACK}
        )
        is_msgpack = response.headers.get("content-type", "").startswith(_MSGPACK)
        decoder = _answer_from_msgpack if is_msgpack else _answer_from_json
        answer = _decoded(decoder.decode, response)
        if len(answer.reports) != len(batch):
            message = f"{len(batch)} reports were sent and {len(answer.reports)} answered"
            raise _bad_answer(response, message)
        return answer


def first_batch(reports: Sequence[SealedReport]) -> Sequence[SealedReport]:
    """As many of the first *reports* as one request holds; at least one."""
    size = 0
    for index, one in enumerate(reports[:MAX_REPORTS_PER_REQUEST]):
        size += len(one.body) + len(one.signature) + len(one.key_id) + _FRAME_BYTES
        if size > MAX_REQUEST_BYTES and index:
            return reports[:index]
    return reports[:MAX_REPORTS_PER_REQUEST]


def enrol(
    base_url: str,
    token: str,
    identity: HostIdentity,
    gpu_uuids: Sequence[str],
    inventory: Inventory | None = None,
    *,
    http: httpx.Client | None = None,
) -> int:
    """Present the one-time *token* with the public key; the answer is the machine's id.

    Raises:
        AuthError: The token is unknown, used or expired.
        UnavailableError: Try again; the token is good until an answer says otherwise.
        RejectedError: The enrolment is refused.
    """
    url = base_url.rstrip("/") + "/v1/enrolments"
    content = msgspec.json.encode(
        {
            "token": token,
            "public_key": identity.public_key_hex,
            "gpu_uuids": list(gpu_uuids),
            "inventory": inventory,
        }
    )
    headers = {"content-type": "application/json", "accept": "application/json"}
    with httpx.Client(timeout=TIMEOUT_SECONDS) if http is None else nullcontext(http) as client:
        response = _send(client, url, content, headers)
    enrolled = _decoded(_enrolled.decode, response)
    if enrolled.key_id != identity.key_id:
        message = f"the server enrolled key {enrolled.key_id}, not {identity.key_id}"
        raise RejectedError("wrong_key", message, status=response.status_code)
    return enrolled.machine_id


def backoff_seconds(
    attempt: int, retry_after_seconds: float, uniform: Callable[[float, float], float]
) -> float:
    """Full jitter: uniform in [0, min(60, 2^attempt)] s; a larger *retry_after_seconds* wins."""
    # 2^6 is past the cap; without the bound, days offline would compute a huge power.
    ceiling = min(MAX_BACKOFF_SECONDS, float(2 ** min(attempt, 6)))
    return max(uniform(0.0, ceiling), retry_after_seconds)


def _send(http: httpx.Client, url: str, content: bytes, headers: dict[str, str]) -> httpx.Response:
    try:
        response = http.post(url, content=content, headers=headers)
    except httpx.RequestError as error:
        message = f"{url} did not answer: {error or type(error).__name__}"
        raise UnavailableError(
            "no_answer", message, status=None, retry_after_seconds=0.0
        ) from error
    if response.is_success:
        return response
    raise _failure(response)


def _failure(response: httpx.Response) -> LedgerError:
    status = response.status_code
    try:
        problem = _problem.decode(response.content)
    except (msgspec.DecodeError, UnicodeDecodeError):
        problem = _Problem()
    code = problem.code or f"http_{status}"
    message = problem.detail or problem.title or f"{response.url} answered {status}"
    if status == _UNAUTHORIZED:
        return AuthError(code, message, status=status)
    if status in _RETRIED or status >= _SERVER_ERROR:
        wait = _retry_after_seconds(response)
        return UnavailableError(code, message, status=status, retry_after_seconds=wait)
    return RejectedError(code, message, status=status)


def _retry_after_seconds(response: httpx.Response) -> float:
    # Only whole seconds: a date would trust two clocks that need not agree.
    text = response.headers.get("retry-after", "").strip()
    return float(text) if text.isascii() and text.isdigit() else 0.0


def _decoded(decode: Callable[[bytes], _Answer], response: httpx.Response) -> _Answer:
    try:
        return decode(response.content)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise _bad_answer(response, str(error)) from error


def _bad_answer(response: httpx.Response, why: str) -> UnavailableError:
    # What answered is not the ledger, or not this version of it: as good as no answer.
    message = f"{response.url} gave no answer of the ledger: {why}"
    status = response.status_code
    return UnavailableError("bad_answer", message, status=status, retry_after_seconds=0.0)
