import httpx
import msgspec
import pytest

from adapters.hostagent.client import (
    MAX_REQUEST_BYTES,
    UsageClient,
    backoff_seconds,
    enrol,
    first_batch,
)
from adapters.hostagent.reports import SealedReport
from ledger.domain.hardware import GpuInventory, Inventory
from ledger.errors import AuthError, RejectedError, UnavailableError
from tests.unit.hostagent.server import IDENTITY, START, FakeLedger, chain, problem, seal


def big(size: int) -> SealedReport:
    """A report with a body of so many bytes."""
    return seal(chain(), 1)[0]._replace(body=bytes(size))


def test_every_report_gets_its_answer_in_order() -> None:
    """Posting three reports gives three answers and how far they are stored."""
    server = FakeLedger()
    answer = server.client().post(seal(chain(), 3))
    assert [(one.seq, one.status) for one in answer.reports] == [
        (1, "accepted"),
        (2, "accepted"),
        (3, "accepted"),
    ]
    assert [ack.acked_through for ack in answer.acks] == [3]


def test_a_json_answer_is_read_as_well() -> None:
    """An answer without the msgpack content type is taken for JSON."""
    server = FakeLedger()

    def as_json(request: httpx.Request) -> httpx.Response:
        request.headers["accept"] = "application/json"
        return server.answer(request)

    http = httpx.Client(transport=httpx.MockTransport(as_json))
    answer = UsageClient("http://ledger.test", http).post(seal(chain(), 1))
    assert [one.status for one in answer.reports] == ["accepted"]


def test_more_reports_than_a_request_holds_go_in_several() -> None:
    """A post of 250 reports becomes three requests and one answer."""
    server = FakeLedger()
    answer = server.client().post(seal(chain(), 250))
    assert [len(one) for one in server.requests] == [100, 100, 50]
    assert [one.seq for one in answer.reports] == list(range(1, 251))
    assert [ack.acked_through for ack in answer.acks] == [250]


def test_nothing_to_post_asks_nobody() -> None:
    """An empty post makes no request."""
    server = FakeLedger()
    assert server.client().post([]).reports == []
    assert server.requests == []


def test_a_batch_stays_below_one_mebibyte() -> None:
    """Reports that would make a request too large are left for the next."""
    reports = [big(300_000)] * 5
    batch = first_batch(reports)
    assert len(batch) == 3
    body = msgspec.msgpack.encode([(one.key_id, one.signature, one.body) for one in batch])
    assert len(body) <= MAX_REQUEST_BYTES


def test_a_report_of_the_greatest_size_goes_alone() -> None:
    """One report always makes a batch, whatever its size."""
    assert len(first_batch([big(MAX_REQUEST_BYTES), big(10)])) == 1


@pytest.mark.parametrize("status", [408, 425, 429, 500, 502, 503])
def test_later_is_an_unavailable_error_with_its_wait(status: int) -> None:
    """Statuses that ask for patience carry the seconds of Retry-After."""
    server = FakeLedger()
    server.faults = [problem(status, "busy", retry_after="7")]
    with pytest.raises(UnavailableError) as later:
        server.client().post(seal(chain(), 1))
    assert later.value.detail == {"status": status, "retry_after_seconds": 7.0}


def test_a_silent_network_is_an_unavailable_error() -> None:
    """A connection that fails says so, with no status."""
    server = FakeLedger()
    server.faults = [httpx.ConnectError("refused")]
    with pytest.raises(UnavailableError) as later:
        server.client().post(seal(chain(), 1))
    assert (later.value.code, later.value.detail["status"]) == ("no_answer", None)


@pytest.mark.parametrize(
    "response", [httpx.Response(200, text="<html>log in</html>"), httpx.Response(200, content=b"")]
)
def test_an_answer_that_is_none_is_asked_for_again(response: httpx.Response) -> None:
    """A page that something in between put up is not an answer of the ledger."""
    server = FakeLedger()
    server.faults = [response]
    with pytest.raises(UnavailableError) as later:
        server.client().post(seal(chain(), 1))
    assert later.value.code == "bad_answer"


def test_an_answer_to_other_reports_is_none() -> None:
    """An answer with fewer results than reports is not believed."""
    server = FakeLedger()
    nothing = b'{"server_time_ms":1,"reports":[],"acks":[]}'
    server.faults = [httpx.Response(200, content=nothing)]
    with pytest.raises(UnavailableError, match="1 reports were sent and 0 answered"):
        server.client().post(seal(chain(), 1))


def test_a_refused_key_is_an_auth_error() -> None:
    """Status 401 is told apart from everything that may pass."""
    server = FakeLedger()
    server.faults = [problem(401, "auth_error")]
    with pytest.raises(AuthError) as refused:
        server.client().post(seal(chain(), 1))
    assert refused.value.code == "auth_error"


@pytest.mark.parametrize("status", [400, 404, 413, 422])
def test_other_refusals_are_final(status: int) -> None:
    """Other client errors are rejections with the server's code."""
    server = FakeLedger()
    server.faults = [problem(status, "no_way")]
    with pytest.raises(RejectedError) as refused:
        server.client().post(seal(chain(), 1))
    assert (refused.value.code, refused.value.detail["status"]) == ("no_way", status)


def test_a_retry_after_that_is_a_date_counts_as_none() -> None:
    """Only whole seconds are read from Retry-After."""
    server = FakeLedger()
    server.faults = [problem(503, "busy", retry_after="Fri, 01 Jan 2027 00:00:00 GMT")]
    with pytest.raises(UnavailableError) as later:
        server.client().post(seal(chain(), 1))
    assert later.value.detail["retry_after_seconds"] == 0.0


@pytest.mark.parametrize(
    ("attempt", "ceiling"), [(0, 1), (1, 2), (5, 32), (6, 60), (7, 60), (10**9, 60)]
)
def test_backoff_is_drawn_between_zero_and_its_ceiling(attempt: int, ceiling: int) -> None:
    """The delay is uniform up to 2 to the attempt, at most a minute."""
    drawn: list[tuple[float, float]] = []

    def uniform(low: float, high: float) -> float:
        drawn.append((low, high))
        return high

    assert backoff_seconds(attempt, 0.0, uniform) == ceiling
    assert drawn == [(0.0, ceiling)]


def test_a_larger_retry_after_wins_over_the_jitter() -> None:
    """The server's wait is kept to, and never shortens the jitter."""
    assert backoff_seconds(0, 90.0, lambda _, high: high) == 90.0
    assert backoff_seconds(4, 3.0, lambda _, high: high) == 16.0


def test_an_enrolment_presents_token_key_and_inventory() -> None:
    """The server gets what it needs, and the machine its number."""
    seen: list[object] = []

    def server(request: httpx.Request) -> httpx.Response:
        assert request.url == "http://ledger.test/v1/enrolments"
        seen.append(msgspec.json.decode(request.content))
        return httpx.Response(201, json={"machine_id": 4001, "key_id": IDENTITY.key_id})

    http = httpx.Client(transport=httpx.MockTransport(server))
    inventory = Inventory(cpu_cores=8, gpus=[GpuInventory(uuid="GPU-1")])
    machine = enrol("http://ledger.test", "t0ken", IDENTITY, ["GPU-1"], inventory, http=http)
    assert machine == 4001
    assert seen == [
        {
            "token": "t0ken",
            "public_key": IDENTITY.public_key_hex,
            "gpu_uuids": ["GPU-1"],
            "inventory": {"cpu_cores": 8, "gpus": [{"uuid": "GPU-1"}]},
        }
    ]


def test_an_enrolment_with_a_used_token_is_refused() -> None:
    """The server's refusal comes through with its code."""
    http = httpx.Client(transport=httpx.MockTransport(lambda _: problem(401, "bad_token")))
    with pytest.raises(AuthError) as refused:
        enrol("http://ledger.test", "t0ken", IDENTITY, [], http=http)
    assert refused.value.code == "bad_token"


def test_an_enrolment_of_another_key_is_refused() -> None:
    """An answer about a key that is not ours is not accepted."""
    answer = httpx.Response(201, json={"machine_id": 4001, "key_id": "0" * 16})
    http = httpx.Client(transport=httpx.MockTransport(lambda _: answer))
    with pytest.raises(RejectedError) as refused:
        enrol("http://ledger.test", "t0ken", IDENTITY, [], http=http)
    assert refused.value.code == "wrong_key"


def test_a_client_closes_its_connections() -> None:
    """After the block the connections are closed."""
    http = httpx.Client(transport=httpx.MockTransport(FakeLedger().answer))
    with UsageClient("http://ledger.test", http) as client:
        client.post([chain().seal(START, 10)])
    assert http.is_closed
