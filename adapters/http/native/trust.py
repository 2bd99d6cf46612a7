"""Trust in machines and hosts: ratings, checks, verification, benchmarks, papers."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

import msgspec
from litestar import Response, delete, get, post, put
from litestar.params import FromPath, JSONBody, QueryParameter
from msgspec import Meta

from adapters.http.call import ADMIN, ANYONE, HOST, Caller, allowed
from adapters.http.native.accounts import Cursor, Limit
from adapters.http.native.own import own_machine, require_insight, seen_machine
from adapters.http.wire import Body, Instant, Page, decode_cursor, instant, page, render
from ledger.domain.verification import CertificationKind
from ledger.services import certifications as paper_cases
from ledger.services import findings, health, verification
from ledger.services.ledger import Unit
from ledger.services.questions import trust as ask
from ledger.store.database import Connection

Reason = Annotated[str, Meta(max_length=256)]
Mbps = Annotated[int, Meta(ge=0, le=10_000_000)]
Country = Annotated[str, Meta(pattern=r"^[A-Z]{2}\Z", description="ISO 3166-1, two letters.")]


class Rating(msgspec.Struct, frozen=True, kw_only=True):
    """Passed of n conclusive checks in the 30 days before `at`.

    `reliability` is null below 12; `lower_bound` (Wilson, 95 %) ranks and gates; in
    `expected_reliability` a check weighs half after 14 days.
    """

    machine_id: int
    at: Instant
    passed: int
    n: int
    reliability: float | None
    expected_reliability: float
    lower_bound: float


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """A health check, an instance's start or an incident, in its slot of 300 s.

    `result` is null while it is open. Of a slot the worst conclusive result counts; an excluded one
    lies in approved maintenance.
    """

    slot: int
    kind: str
    at: Instant
    deadline: Instant | None
    result: str | None
    severity: int
    reason: str | None
    excluded: bool
    instance_id: int | None
    judged_at: Instant | None
    judged_as: str | None
    reclassified_at: Instant | None


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """A field in which the machine is not what was stated of it."""

    field: str
    stated: str
    found: str
    severity: str


class MissedBar(msgspec.Struct, frozen=True, kw_only=True):
    """A minimum that the machine does not meet; `found` is null where it was not measured."""

    bar: str
    needed: str
    found: str | None


class Verification(msgspec.Struct, frozen=True, kw_only=True):
    """How the machine stands, and what it lacks.

    `score` is the raw benchmark score of one GPU. While `below_bars` the machine is not rented
    anew.
    """

    machine_id: int
    verification: str
    judged_by: str
    secure: bool
    country: str | None
    below_bars: bool
    score: float | None
    differences: list[Difference]
    missed_to_list: list[MissedBar]
    missed_to_verify: list[MissedBar]
    compared_at: Instant | None


class VerificationChange(msgspec.Struct, frozen=True, kw_only=True):
    """A step of a machine's verification, who decided it and why."""

    verification: str
    judged_by: str
    reason: str
    changed_at: Instant
    position: int


class Benchmark(msgspec.Struct, frozen=True, kw_only=True):
    """A run of the suite that the platform issued: MFLOP/s and MB/s, and the score of one GPU."""

    slot: int
    suite: str
    measures: dict[str, int]
    scaling_ppm: int
    score: float
    evidence: str
    recorded_at: Instant
    position: int


class Certification(msgspec.Struct, frozen=True, kw_only=True):
    """A paper of a host, valid in `[valid_from, valid_to)`; `counts` says whether it does now."""

    certification_no: int
    kind: str
    number: str
    issuer: str
    valid_from: Instant
    valid_to: Instant | None
    evidence_hash: str
    recorded_at: Instant
    withdrawn_at: Instant | None
    counts: bool


class Judgement(Body):
    """What an admin decides by hand, and why."""

    EXAMPLE: ClassVar[dict[str, Any]] = {
        "verification": "verified",
        "reason": "seen in the data centre",
    }

    verification: Literal["verified", "deverified", "unverified"]
    reason: Reason


class Gpu(msgspec.Struct, frozen=True, kw_only=True):
    """A GPU: `good`, `suspect` (who holds it keeps it, nobody else gets it) or `lost`.

    What is suspect or lost comes back when the machine passes a challenge on all of its GPUs, for
    which its agent needs a framework that computes; or when an admin vouches for it.
    """

    slot: int
    gpu_uuid: str
    state: str
    reason: str | None
    since: Instant | None
    instance_id: int | None


class Vouching(Body):
    """Why an admin vouches for a GPU."""

    EXAMPLE: ClassVar[dict[str, Any]] = {"reason": "reseated, burnt in for a day"}

    reason: Reason


class NewProbe(Body):
    """What the platform's probes measured from outside; leave out what they did not measure."""

    EXAMPLE: ClassVar[dict[str, Any]] = {
        "up_mbps": 940,
        "down_mbps": 930,
        "open_ports": 100,
        "country": "SE",
    }

    up_mbps: Mbps | None = None
    down_mbps: Mbps | None = None
    open_ports: Annotated[int, Meta(ge=0, le=65_536)] | None = None
    country: Country | None = None
    under_load: bool = False

    def __post_init__(self) -> None:
        """Refuse one that measured nothing."""
        if (self.up_mbps, self.down_mbps, self.open_ports, self.country) == (None,) * 4:
            message = "say what was measured: up_mbps, down_mbps, open_ports or country"
            raise ValueError(message)


class Location(Body):
    """Where the host says that the machine stands."""

    EXAMPLE: ClassVar[dict[str, Any]] = {"country": "SE"}

    country: Country


class NewCertification(Body):
    """A paper that an admin has seen. Of a person's identity check `number` is that of the check.

    `evidence_hash` is the SHA-256 of the document.
    """

    EXAMPLE: ClassVar[dict[str, Any]] = {
        "kind": "iso27001",
        "number": "IS 700001",
        "issuer": "BSI",
        "valid_from": "2026-01-01T00:00:00Z",
        "valid_to": "2029-01-01T00:00:00Z",
        "evidence_hash": "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
    }

    kind: CertificationKind
    number: Annotated[str, Meta(max_length=128)]
    issuer: Annotated[str, Meta(max_length=128)]
    valid_from: str
    evidence_hash: str
    valid_to: str | None = None


class Recorded(msgspec.Struct, frozen=True, kw_only=True):
    """The paper's number at this host."""

    host_id: int
    certification_no: int


@get("/v1/machines/{machine_id:int}/rating", opt=allowed(*ANYONE), summary="How reliable it is")
async def show_rating(
    call: Caller,
    machine_id: FromPath[int],
    as_of: Annotated[
        str | None, QueryParameter(description="The rating of a past second, RFC 3339.")
    ] = None,
) -> Rating:
    """Show a machine's rating now, or as it was at any past second."""
    now = call.ledger.clock()
    second = instant(as_of, "as_of")
    at = now if second is None else min(second, now)

    def run(connection: Connection) -> ask.RatingView:
        seen_machine(call, connection, machine_id)
        return ask.rating(connection, machine_id, at)

    return render(Rating, await call.question(run))


@get("/v1/machines/{machine_id:int}/checks", opt=allowed(*ANYONE), summary="List its checks")
async def list_checks(
    call: Caller,
    machine_id: FromPath[int],
    since: Annotated[
        str | None, QueryParameter(description="From the slot of this second on, RFC 3339.")
    ] = None,
    limit: Limit = 100,
    cursor: Cursor = None,
) -> Page[Check]:
    """List what the rating follows from, slot by slot."""
    first = instant(since, "since") or 0
    after = decode_cursor(cursor, tuple[int, int], (-1, -1))

    def run(connection: Connection) -> list[ask.CheckView]:
        seen_machine(call, connection, machine_id)
        return ask.checks(connection, machine_id, since=first, after=after, limit=limit + 1)

    found = await call.question(run)
    return page(Check, found, limit, lambda one: (one.slot, one.position))


@get("/v1/machines/{machine_id:int}/verification", opt=allowed(*ANYONE), summary="Is it as stated")
async def show_verification(call: Caller, machine_id: FromPath[int]) -> Verification:
    """Show whether a machine is verified, and what it lacks to be."""

    def run(connection: Connection) -> ask.VerificationView:
        seen_machine(call, connection, machine_id)
        return ask.verification(connection, machine_id)

    return render(Verification, await call.question(run))


@get(
    "/v1/machines/{machine_id:int}/verification/history",
    opt=allowed(*ANYONE),
    summary="How its verification changed",
)
async def list_verification(
    call: Caller, machine_id: FromPath[int], limit: Limit = 100, cursor: Cursor = None
) -> Page[VerificationChange]:
    """List every step of a machine's verification, with its reason."""
    after = decode_cursor(cursor, int, 0)

    def run(connection: Connection) -> list[ask.VerificationChange]:
        seen_machine(call, connection, machine_id)
        return ask.verification_history(connection, machine_id, after=after, limit=limit + 1)

    found = await call.question(run)
    return page(VerificationChange, found, limit, lambda one: one.position)


@get("/v1/machines/{machine_id:int}/gpus", opt=allowed(*HOST, "auditor"), summary="List its GPUs")
async def list_gpus(call: Caller, machine_id: FromPath[int]) -> list[Gpu]:
    """List the GPUs of one's machine: who holds them, and why one cannot be rented."""

    def run(connection: Connection) -> list[ask.GpuView]:
        require_insight(call, connection, machine_id)
        return ask.gpus(connection, machine_id)

    return [render(Gpu, one) for one in await call.question(run)]


@post(
    "/v1/machines/{machine_id:int}/gpus/{gpu_uuid:str}/restore",
    opt=allowed(*ADMIN),
    status_code=200,
    summary="Vouch for a GPU",
)
async def restore_gpu(
    call: Caller, machine_id: FromPath[int], gpu_uuid: FromPath[str], data: JSONBody[Vouching]
) -> Response[Gpu]:
    """Let a lost or suspect GPU be rented again, without a challenge."""

    def do(unit: Unit) -> Gpu:
        health.restore_by_hand(unit, machine_id, gpu_uuid, data.reason)
        found = ask.gpus(unit.connection, machine_id)
        return render(Gpu, next(one for one in found if one.gpu_uuid == gpu_uuid))

    return await call.command(do)


@post(
    "/v1/machines/{machine_id:int}/verification",
    opt=allowed(*ADMIN),
    status_code=200,
    summary="Verify or deverify by hand",
)
async def judge_machine(
    call: Caller, machine_id: FromPath[int], data: JSONBody[Judgement]
) -> Response[Verification]:
    """Vouch for a machine, take its verification back, or let it earn it anew."""
    decide = {
        "verified": verification.verify_by_hand,
        "deverified": verification.deverify_by_hand,
        "unverified": verification.reset_by_hand,
    }[data.verification]

    def do(unit: Unit) -> Verification:
        decide(unit, machine_id, data.reason)
        return render(Verification, ask.verification(unit.connection, machine_id))

    return await call.command(do)


@get(
    "/v1/machines/{machine_id:int}/benchmarks", opt=allowed(*ANYONE), summary="List its benchmarks"
)
async def list_benchmarks(
    call: Caller, machine_id: FromPath[int], limit: Limit = 100, cursor: Cursor = None
) -> Page[Benchmark]:
    """List the runs of the suite that the platform issued to a machine."""
    after = decode_cursor(cursor, int, 0)

    def run(connection: Connection) -> list[ask.BenchmarkView]:
        seen_machine(call, connection, machine_id)
        return ask.benchmarks(connection, machine_id, after=after, limit=limit + 1)

    found = await call.question(run)
    return page(Benchmark, found, limit, lambda one: one.position)


@post(
    "/v1/machines/{machine_id:int}/probes",
    opt=allowed(*ADMIN),
    status_code=200,
    summary="Record what probes measured",
)
async def record_probe(
    call: Caller, machine_id: FromPath[int], data: JSONBody[NewProbe]
) -> Response[Verification]:
    """Keep what the platform's probes measured of a machine, and judge it anew."""
    probe = findings.Probe(**msgspec.to_builtins(data))

    def do(unit: Unit) -> Verification:
        findings.take_probe(unit, machine_id, probe)
        return render(Verification, ask.verification(unit.connection, machine_id))

    return await call.command(do)


@put("/v1/machines/{machine_id:int}/location", opt=allowed(*HOST), summary="Say where it stands")
async def locate_machine(
    call: Caller, machine_id: FromPath[int], data: JSONBody[Location]
) -> Response[Verification]:
    """Say in which country a machine stands."""

    def do(unit: Unit) -> Verification:
        own_machine(call, unit.connection, machine_id)
        findings.locate(unit, machine_id, data.country)
        return render(Verification, ask.verification(unit.connection, machine_id))

    return await call.command(do)


@get("/v1/hosts/{host_id:int}/certifications", opt=allowed(*ANYONE), summary="List its papers")
async def list_certifications(
    call: Caller, host_id: FromPath[int], limit: Limit = 100, cursor: Cursor = None
) -> Page[Certification]:
    """List the papers on which a host's secure tier rests; anybody may see them."""
    now = call.ledger.clock()
    after = decode_cursor(cursor, int, 0)
    found = await call.question(
        lambda connection: ask.certifications(
            connection, host_id, now, after=after, limit=limit + 1
        )
    )
    return page(Certification, found, limit, lambda one: one.certification_no)


@post("/v1/hosts/{host_id:int}/certifications", opt=allowed(*ADMIN), summary="Record a paper")
async def record_certification(
    call: Caller, host_id: FromPath[int], data: JSONBody[NewCertification]
) -> Response[Recorded]:
    """Record a paper of a host; its secure tier is judged at once."""
    valid_from = instant(data.valid_from, "valid_from")
    assert valid_from is not None
    paper = paper_cases.Paper(
        kind=data.kind,
        number=data.number,
        issuer=data.issuer,
        valid_from=valid_from,
        valid_to=instant(data.valid_to, "valid_to"),
        evidence_hash=data.evidence_hash,
    )

    def do(unit: Unit) -> Recorded:
        number = paper_cases.record(unit, host_id, paper)
        return Recorded(host_id=host_id, certification_no=number)

    return await call.command(do, 201)


@delete(
    "/v1/hosts/{host_id:int}/certifications/{certification_no:int}",
    opt=allowed(*ADMIN),
    status_code=200,
    summary="Withdraw a paper",
)
async def withdraw_certification(
    call: Caller,
    host_id: FromPath[int],
    certification_no: FromPath[int],
    reason: Annotated[
        str, QueryParameter(max_length=256, description="Why; kept in the log.")
    ] = "withdrawn",
) -> Response[Recorded]:
    """Let a paper count no more, before its own end."""

    def do(unit: Unit) -> Recorded:
        paper_cases.withdraw(unit, host_id, certification_no, reason)
        return Recorded(host_id=host_id, certification_no=certification_no)

    return await call.command(do)


HANDLERS = [
    show_rating,
    list_checks,
    show_verification,
    list_verification,
    judge_machine,
    list_gpus,
    restore_gpu,
    list_benchmarks,
    record_probe,
    locate_machine,
    list_certifications,
    record_certification,
    withdraw_certification,
]
