"""`POST /v1/usage`: what becomes of each report, and that nothing else is stored."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

import httpx
import msgspec
import pytest

from adapters.hostagent.identity import HostIdentity
from adapters.hostagent.reports import ReportChain, SealedReport, constant_block
from ledger.domain.acknowledgement import UsageAnswer
from ledger.domain.events import USAGE_REPORTED, AgentEquivocated, UsageRejected
from ledger.domain.usage import MAX_BODY_BYTES
from ledger.services import machines
from tests.http.conftest import Api
from tests.support.market import START, Market
from tests.support.reports import body_of

MSGPACK = "application/msgpack"
NOW = START + 600


@pytest.fixture
def machine(api: Api) -> int:
    """A machine of bob's, ten minutes after it was listed."""
    number = api.market.machine(host="bob")
    api.market.clock.move_to(NOW)
    return number


def packed(*reports: SealedReport) -> bytes:
    """The request that carries *reports*."""
    return msgspec.msgpack.encode([[one.key_id, one.signature, one.body] for one in reports])


def post(api: Api, raw: bytes, **headers: str) -> httpx.Response:
    """One request with these bytes."""
    return api.client.post("/v1/usage", content=raw, headers={"Content-Type": MSGPACK, **headers})


def statuses(answer: httpx.Response) -> list[str]:
    """The status of each report of an answer."""
    assert answer.status_code == 200, answer.text
    return [one["status"] for one in answer.json()["reports"]]


def spoiled(
    market: Market, machine: int, spoil: Callable[[dict[str, Any]], None], start: int = START
) -> SealedReport:
    """The next report of a machine, correctly signed after *spoil* changed its fields."""
    chain = market.chains[machine]
    sealed = market.seal(
        machine, start, 10, [constant_block(1, start, 10, "running", up=1, down=2, util=50)]
    )
    fields = msgspec.msgpack.decode(sealed.body)
    spoil(fields)
    body = body_of(fields)
    chain.prev = hashlib.sha256(body).hexdigest()
    return sealed._replace(body=body, signature=chain.signer.sign(body))


def stored(api: Api, machine: int) -> list[dict[str, Any]]:
    """The stream of a machine's reports as an auditor reads it."""
    stream = f"usage-{machine}-{api.market.chains[machine].epoch}"
    items: list[dict[str, Any]] = api("audrey", "GET", f"/v1/events/{stream}").json()["items"]
    return items


def test_a_mixed_batch_has_a_result_per_item(api: Api, machine: int) -> None:
    """Bad items of a batch are told one by one, and the good ones beside them stand (ING-01)."""
    market = api.market
    other = market.machine(host="eve")
    good, second, _, fourth = (market.seal(machine, START + 10 * n, 10) for n in range(4))
    garbled = good._replace(body=b"\xc1\xc1", signature=bytes(64))
    forged = second._replace(signature=bytes(64))
    broken = spoiled(market, other, lambda fields: fields.update(colour="red"))
    answer = api.usage(good, garbled, forged, second, good, fourth, broken)
    assert statuses(answer) == [
        "accepted",
        "undecodable",
        "unauthorized",
        "accepted",
        "duplicate",
        "sequence_gap",
        "rejected",
    ]
    shown = answer.json()
    assert shown["reports"][5]["expected"] == 3
    assert {one["machine"]: one["acked_through"] for one in shown["acks"]} == {machine: 2, other: 1}
    assert [one["version"] for one in stored(api, machine)] == [1, 2]
    assert [one["version"] for one in stored(api, other)] == [1]


def test_a_receipt_can_be_checked_later(api: Api, machine: int) -> None:
    """Hash and position of an answer are those of the stored bytes, signature included (ING-03)."""
    market = api.market
    reports = [
        market.seal(
            machine,
            START + 10 * n,
            10,
            [constant_block(1, START + 10 * n, 10, "running", up=n, down=0, util=1)],
        )
        for n in range(3)
    ]
    receipts = api.usage(*reports).json()["reports"]
    kept = stored(api, machine)
    for report, receipt, event in zip(reports, receipts, kept, strict=True):
        assert receipt["status"] == "accepted"
        assert receipt["hash"] == hashlib.sha256(report.body).hexdigest() == event["sha256"]
        assert receipt["position"] == event["position"]
        assert event["signature"] == report.signature.hex()
    positions = [one["position"] for one in receipts]
    assert positions == [positions[0], positions[0] + 10, positions[0] + 20]
    assert market.head() == positions[-1] + 9


def test_a_repeat_changes_neither_receipt_nor_time(api: Api, machine: int) -> None:
    """A retry an hour later is a duplicate; the first receipt's second stays (ING-03, ING-04)."""
    market = api.market
    report = market.seal(machine, START, 10)
    first = api.usage(report).json()["reports"][0]
    before, head = stored(api, machine), market.head()
    market.clock.move_to(NOW + 3_600)
    again = api.usage(report, report).json()["reports"]
    assert [one["status"] for one in again] == ["duplicate", "duplicate"]
    assert again[0]["hash"] == first["hash"]
    assert stored(api, machine) == before
    assert market.head() == head


def test_accepted_ticks_are_all_visible(api: Api) -> None:
    """Counters of accepted reports equal what is in the log, folded, and listed (ING-02)."""
    market = api.market
    number = market.machine(host="bob")
    instance = market.rent(api.accounts["alice"], number)
    market.clock.move_to(NOW)
    for start in range(START, START + 30, 10):
        block = constant_block(instance, start, 10, "running", up=1, down=2, util=50)
        assert statuses(api.usage(market.seal(number, start, 10, [block]))) == ["accepted"]
    refused = spoiled(market, number, lambda fields: fields.update(v=2), start=START + 30)
    assert statuses(api.usage(refused)) == ["rejected"]
    market.project()
    ticks = api("alice", "GET", f"/v1/instances/{instance}/ticks").json()["items"]
    assert len(ticks) == 30
    lines = api.client.get("/metrics").text.splitlines()
    assert 'gpuledger_reports_total{status="accepted"} 3.0' in lines
    assert 'gpuledger_reports_total{status="rejected"} 1.0' in lines
    assert "gpuledger_usage_lag 0.0" in lines
    topics = [one["topic"] for one in stored(api, number)]
    assert topics == [USAGE_REPORTED] * 3 + [UsageRejected.__struct_config__.tag]


def test_a_gap_names_what_comes_next_and_stores_nothing(api: Api, machine: int) -> None:
    """A report ahead of its turn is not kept; the answer says which one the server waits for."""
    market = api.market
    first, second, third = (market.seal(machine, START + 10 * n, 10) for n in range(3))
    head = market.head()
    answer = api.usage(third).json()
    assert (answer["reports"][0]["status"], answer["reports"][0]["expected"]) == ("sequence_gap", 1)
    assert answer["acks"][0]["acked_through"] == 0
    assert market.head() == head
    api.usage(first)
    answer = api.usage(third).json()
    assert answer["reports"][0]["expected"] == 2
    assert answer["acks"][0]["acked_through"] == 1
    assert statuses(api.usage(second, third)) == ["accepted", "accepted"]


def test_another_body_under_the_same_number_is_recorded_once(api: Api, machine: int) -> None:
    """The first body stands; each different second body leaves one fact, however often it comes."""
    market = api.market
    chain = market.chains[machine]
    api.usage(chain.seal(START, 10))
    before = stored(api, machine)
    twins = [
        ReportChain(machine, chain.signer, boot_id="boot-1", epoch=chain.epoch).seal(START, count)
        for count in (20, 30)
    ]
    for twin in (twins[0], twins[0], twins[1], twins[0]):
        answer = api.usage(twin).json()
        assert answer["reports"][0]["status"] == "conflict"
        assert answer["reports"][0]["code"] == "equivocation"
        assert answer["acks"][0]["rejected"][0]["seq"] == 1
        assert answer["acks"][0]["acked_through"] == 1
    facts = [
        one
        for one in api("audrey", "GET", f"/v1/events/machine-{machine}").json()["items"]
        if one["topic"] == AgentEquivocated.__struct_config__.tag
    ]
    assert [one["state"]["second_hash"] for one in facts] == [
        hashlib.sha256(twin.body).hexdigest() for twin in twins
    ]
    assert stored(api, machine) == before
    assert statuses(api.usage(chain.seal(START + 10, 10))) == ["accepted"]


def test_a_fork_of_the_chain_takes_its_place_and_bills_nothing(api: Api) -> None:
    """A wrong `prev` is stored and flagged; the report after it goes on from the forked body."""
    market = api.market
    number = market.machine(host="bob")
    instance = market.rent(api.accounts["alice"], number)
    market.confirm(number, instance)
    market.clock.move_to(NOW)
    chain = market.chains[number]
    chain.prev = "ab" * 32
    block = constant_block(instance, START, 10, "running", up=0, down=0, util=1)
    answer = api.usage(chain.seal(START, 10, [block])).json()["reports"][0]
    assert (answer["status"], answer["code"]) == ("chain_fork", "chain_fork")
    assert answer["position"] == market.head()
    assert statuses(api.usage(chain.seal(START + 10, 10))) == ["accepted"]
    assert market.charges(instance)["gpu"] == 0
    assert len(stored(api, number)) == 3


def _columns(**changes: Any) -> Callable[[dict[str, Any]], None]:
    def spoil(fields: dict[str, Any]) -> None:
        fields["instances"][0].update(changes)

    return spoil


def _fields(**changes: Any) -> Callable[[dict[str, Any]], None]:
    return lambda fields: fields.update(changes)


def _without(name: str) -> Callable[[dict[str, Any]], None]:
    def spoil(fields: dict[str, Any]) -> None:
        del fields[name]

    return spoil


def _twice(fields: dict[str, Any]) -> None:
    fields["instances"] *= 2


FAULTS: dict[str, tuple[str, Callable[[dict[str, Any]], None]]] = {
    "an unknown field": ("bad_shape", _fields(colour="red")),
    "an unknown field of a block": ("bad_shape", _columns(colour="red")),
    "another version": ("bad_shape", _fields(v=2)),
    "no start": ("bad_shape", _without("start")),
    "a negative start": ("bad_shape", _fields(start=-1)),
    "a start above 2^63": ("bad_shape", _fields(start=2**63)),
    "a window of 301 s": ("bad_shape", _fields(count=301)),
    "a negative count": ("bad_shape", _fields(count=-1)),
    "a prev that is no hash": ("bad_shape", _fields(prev="0" * 63)),
    "a state nobody knows": ("bad_shape", _columns(state=[["dreaming", 10]])),
    "negative bytes": ("bad_shape", _columns(up=[-1] * 10)),
    "bytes above 2^63": ("bad_shape", _columns(down=[2**63] * 10)),
    "a fraction of a byte": ("bad_shape", _columns(down=[0.5] * 10)),
    "not a number": ("bad_shape", _columns(down=[float("nan")] * 10)),
    "text for a column": ("bad_shape", _columns(up="0000000000")),
    "an instance 0": ("bad_shape", _columns(instance=0)),
    "65 blocks": ("bad_shape", lambda fields: fields.update(instances=fields["instances"] * 65)),
    "too few values": ("bad_columns", _columns(up=[1] * 9)),
    "too many values": ("bad_columns", _columns(down=[1] * 11)),
    "too few states": ("bad_columns", _columns(state=[["running", 9]])),
    "runs that do not add up": ("bad_columns", _columns(up=[[5, 9]])),
    "integers and runs mixed": ("bad_columns", _columns(up=[[5, 9], 1])),
    "a run of three": ("bad_columns", _columns(up=[[5, 5, 5]])),
    "no utilisation": ("bad_columns", _columns(util=b"")),
    "101 percent": ("bad_columns", _columns(util=bytes([101] * 10))),
    "an instance twice": ("bad_columns", _twice),
    "a block before the window": ("bad_window", _columns(start=START - 1)),
    "a block after the window": ("bad_window", _columns(start=START + 1)),
}


def test_a_rejected_report_takes_its_place_and_blocks_nobody(api: Api) -> None:
    """Each kind of fault is stored with its code, bills nothing, and the next one is accepted."""
    market = api.market
    number = market.machine(host="bob")
    instance = market.rent(api.accounts["alice"], number)
    assert instance == 1
    market.clock.move_to(NOW)
    for seq, (name, (code, spoil)) in enumerate(FAULTS.items(), start=1):
        market.chains[number].sealed_until = 0
        report = spoiled(market, number, spoil)
        head = market.head()
        answer = api.usage(report)
        shown = answer.json()
        assert statuses(answer) == ["rejected"], (name, shown)
        assert (shown["reports"][0]["code"], shown["reports"][0]["seq"]) == (code, seq), name
        assert shown["reports"][0]["position"] == market.head() == head + 1
        assert shown["acks"][0]["acked_through"] == seq
        assert [one["code"] for one in shown["acks"][0]["rejected"]] == [code]
        assert statuses(api.usage(report)) == ["duplicate"], name
    market.chains[number].sealed_until = 0
    assert statuses(api.usage(market.seal(number, START, 10))) == ["accepted"]
    market.project()
    assert api("alice", "GET", f"/v1/instances/{instance}/ticks").json()["items"] == []
    kept = stored(api, number)
    assert [one["state"]["code"] for one in kept[:-1]] == [code for code, _ in FAULTS.values()]
    assert market.charges(instance)["up"] == 0


def test_seconds_do_not_overlap_or_go_back(api: Api, machine: int) -> None:
    """A window that begins before the end of an earlier one is rejected as `overlap`."""
    market = api.market
    chain = market.chains[machine]
    api.usage(market.seal(machine, START + 100, 10))
    for start in (START + 109, START + 100, START, START + 109):
        chain.sealed_until = 0
        answer = api.usage(market.seal(machine, start, 10)).json()["reports"][0]
        assert (answer["status"], answer["code"]) == ("rejected", "overlap"), start
    chain.sealed_until = 0
    assert statuses(api.usage(market.seal(machine, START + 110, 10))) == ["accepted"]


@pytest.mark.parametrize(
    ("ahead", "status"),
    [(0, "accepted"), (1, "too_early"), (2, "too_early"), (3, "rejected"), (86_400, "rejected")],
)
def test_a_second_is_billed_only_when_it_is_over(
    api: Api, machine: int, ahead: int, status: str
) -> None:
    """Up to 2 s ahead is asked for again and not stored; further ahead is `future` for good."""
    market = api.market
    report = market.seal(machine, NOW - 10 + ahead, 10)
    head = market.head()
    answer = api.usage(report).json()["reports"][0]
    assert answer["status"] == status
    assert (market.head() > head) == (status != "too_early")
    if status == "too_early":
        market.clock.move_to(NOW + ahead)
        assert statuses(api.usage(report)) == ["accepted"]
    if status == "rejected":
        assert answer["code"] == "future"
        market.chains[machine].sealed_until = 0
        assert statuses(api.usage(market.seal(machine, NOW - 10, 10))) == ["accepted"]


def test_what_nobody_signed_is_401_and_stores_nothing(api: Api, machine: int) -> None:
    """Wrong, empty and foreign signatures, unknown keys and machines, and revoked keys: 401."""
    market = api.market
    other = market.machine(host="eve")
    report = market.seal(machine, START, 10)
    signer = market.chains[other].signer
    stranger = HostIdentity.from_seed(bytes(range(32)))
    bad = [
        report._replace(signature=bytes(64)),
        report._replace(signature=b""),
        report._replace(signature=report.signature[:-1]),
        report._replace(signature=report.signature + b"\x00"),
        report._replace(body=report.body + b"\x00"),
        report._replace(key_id=""),
        report._replace(key_id="'; DROP TABLE events; --"),
        report._replace(key_id="\x00"),
        report._replace(key_id=signer.key_id, signature=signer.sign(report.body)),
        ReportChain(machine, stranger, boot_id="b").seal(START, 10),
        ReportChain(999_999, market.chains[machine].signer, boot_id="b").seal(START, 10),
        ReportChain(2**63 - 1, market.chains[machine].signer, boot_id="b").seal(START, 10),
    ]
    head = market.head()
    for number, one in enumerate(bad):
        answer = api.usage(one)
        assert answer.status_code in {400, 401}, (number, answer.text)
        assert answer.json()["code"] in {"auth_error", "undecodable"}, number
        if answer.status_code == 401:
            assert answer.headers["www-authenticate"] == "Bearer"
    assert market.head() == head
    with market.ledger.unit() as unit:
        machines.revoke_key(unit, machine, report.key_id, "stolen")
    head = market.head()
    answer = api.usage(report)
    assert (answer.status_code, answer.json()["code"]) == (401, "auth_error")
    assert market.head() == head


def test_a_key_id_that_cannot_be_fails_nobody_else(api: Api, machine: int) -> None:
    """A NUL in one key id leaves the reports beside it as they are (ING-01)."""
    report = api.market.seal(machine, START, 10)
    answer = api.usage(report._replace(key_id="\x00"), report)
    assert statuses(answer) == ["unauthorized", "accepted"]


def test_a_key_is_refused_from_its_revocation_on(api: Api, machine: int) -> None:
    """Reports that were accepted before stay; after the revocation the same key signs nothing."""
    market = api.market
    first, second = market.seal(machine, START, 10), market.seal(machine, START + 10, 10)
    assert statuses(api.usage(first)) == ["accepted"]
    path = f"/v1/machines/{machine}/keys/{first.key_id}"
    assert api("eve", "DELETE", path).status_code == 404
    assert api("bob", "DELETE", path).status_code == 200
    assert api.usage(second).status_code == 401
    assert len(stored(api, machine)) == 1


def test_requests_that_are_no_list_of_reports_are_400(api: Api, machine: int) -> None:
    """Not msgpack, no list, truncated, nested, 0 or 101 reports: 400 with a code, nothing kept."""
    market = api.market
    report = market.seal(machine, START, 10)
    whole = packed(report)
    raws = [
        b"",
        b"\xc1",
        b"[]",
        b'[{"body": "x"}]',
        b"\x90",
        b"\x80",
        b"\xc0",
        b"\x91" * 5_000,
        b"\x91" * 100_000,
        b"\x81\xa1a" * 5_000,
        b"\xdd\xff\xff\xff\xff",
        b"\xc6\xff\xff\xff\xff",
        msgspec.msgpack.encode([["k", "text", b""]]),
        msgspec.msgpack.encode([[1, b"", b""]]),
        msgspec.msgpack.encode([["k", b""]]),
        msgspec.msgpack.encode([["k", b"", b"", b""]]),
        b"\x91\x93\xa2\xff\xfe\xc4\x00\xc4\x00",
        packed(*[report] * 101),
        *[whole[:cut] for cut in range(0, len(whole), 37)],
        whole + b"\x00",
    ]
    head = market.head()
    for raw in raws:
        answer = post(api, raw)
        assert answer.status_code == 400, (raw[:40], answer.text)
        assert answer.json()["code"] in {"undecodable", "invalid_args"}
        assert answer.headers["content-type"].startswith("application/problem+json")
    assert market.head() == head
    assert statuses(api.usage(report)) == ["accepted"]


def test_a_signed_body_that_names_no_report_is_undecodable(api: Api, machine: int) -> None:
    """A body cut short or nested too deep has no place in the log, alone (400) or in a batch."""
    market = api.market
    good = market.seal(machine, START, 10)
    signer = market.chains[machine].signer
    bodies = [
        good.body[:20],
        b"",
        b"\x91" * 3_000,
        b"\x81\xa1x" + b"\x91" * 3_000,
        body_of({"machine": -1, "epoch": "ab" * 16, "seq": 1}),
        body_of({"machine": machine, "epoch": "x", "seq": 1}),
        body_of({"machine": machine, "epoch": "ab" * 16, "seq": 0}),
        body_of({"machine": machine, "epoch": "ab" * 16, "seq": 2**64 - 1}),
    ]
    bad = [good._replace(body=body, signature=signer.sign(body)) for body in bodies]
    head = market.head()
    for one in bad:
        answer = api.usage(one)
        assert (answer.status_code, answer.json()["code"]) == (400, "undecodable"), one.body[:30]
    assert market.head() == head
    assert statuses(api.usage(*bad, good)) == ["undecodable"] * len(bad) + ["accepted"]


def test_bodies_over_the_limit_are_413(api: Api, machine: int) -> None:
    """A report over 1 MiB and a request over its limit are 413; 100 reports in one are fine."""
    market = api.market
    signer = market.chains[machine].signer
    report = market.seal(machine, START, 10)
    body = body_of(
        {**msgspec.msgpack.decode(report.body), "agent": "x" * (MAX_BODY_BYTES - len(report.body))}
    )
    body += bytes(MAX_BODY_BYTES + 1 - len(body))
    head = market.head()
    over = report._replace(body=body, signature=signer.sign(body))
    answer = api.usage(over)
    assert (answer.status_code, answer.json()["code"]) == (413, "too_large")
    answer = post(api, bytes(MAX_BODY_BYTES + 100_000))
    assert (answer.status_code, answer.json()["code"]) == (413, "too_large")
    assert market.head() == head
    hundred = [report, *[market.seal(machine, START + 10 + n, 1) for n in range(99)]]
    assert statuses(api.usage(*hundred)) == ["accepted"] * 100


def test_the_answer_comes_as_msgpack_or_json(api: Api, machine: int) -> None:
    """Both encodings hold the same receipt, and both decode into what agents expect."""
    market = api.market
    raw = packed(market.seal(machine, START, 10))
    as_msgpack = post(api, raw, Accept=MSGPACK)
    assert as_msgpack.headers["content-type"] == MSGPACK
    first = msgspec.msgpack.decode(as_msgpack.content, type=UsageAnswer)
    as_json = post(api, raw, Accept="application/json")
    assert as_json.headers["content-type"].startswith("application/json")
    second = msgspec.json.decode(as_json.content, type=UsageAnswer)
    assert (first.reports[0].status, second.reports[0].status) == ("accepted", "duplicate")
    assert first.reports[0].hash == second.reports[0].hash
    assert first.acks == second.acks
    assert first.acks[0].desired is not None
