"""Searches as these clients send them: columns, operators, units, wildcards, prices, order."""

from __future__ import annotations

import operator
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from typing import Any

import httpx
import msgspec
import pytest

from adapters.http.vast import search as translation
from tests.http.conftest import Api
from tests.support.market import DOLLAR, START
from tests.support.offers import describe
from tests.vast.captured import SEARCH_A, SEARCH_B, SEARCH_MIXED
from tests.vast.conftest import good_machine

Row = dict[str, Any]
CENT = DOLLAR // 100
ANYTHING: Row = {"verified": {"eq": "any"}}
COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "eq": operator.eq,
    "neq": operator.ne,
    "gt": operator.gt,
    "gte": operator.ge,
    "lt": operator.lt,
    "lte": operator.le,
}
NAMES = ("RTX 4090", "H100 SXM", "RTX 3090")
HARDWARE = (
    *("cuda", "ports", "static_ip", "nvlink_gb_s", "driver", "driver_number"),
    *("compute_capability", "cpu_ghz", "architecture", "avx", "disk_mb_s", "pcie_gen"),
    *("pcie_gb_s", "gpu_memory_gb_s", "gpu_power_w"),
)
NUMBERS = (
    *("id", "machine_id", "host_id", "num_gpus", "gpu_frac", "gpu_ram", "gpu_total_ram"),
    *("cpu_cores", "cpu_cores_effective", "cpu_ram", "cpu_ghz", "disk_space", "disk_bw"),
    *("inet_up", "inet_down", "inet_up_cost", "inet_down_cost", "storage_cost", "min_bid"),
    *("dph_base", "dph_total", "dlperf", "dlperf_per_dphtotal", "score", "reliability"),
    *("reliability2", "reliability_mult", "cuda_max_good", "compute_cap", "driver_vers"),
    *("direct_port_count", "bw_nvlink", "pcie_bw", "pci_gen", "gpu_mem_bw", "gpu_max_power"),
    *("duration", "end_date", "start_date", "internet_up_cost_per_tb", "hosting_type"),
    *("storage_total_cost", "discounted_hourly", "discounted_dph_total", "credit_discount_max"),
)


DERIVED = frozenset({"gpu_frac", "score", "dlperf", "dlperf_per_dphtotal", "reliability_mult"})
"""Made of floats: the last digit that is shown is not the one that is compared."""


MEASURED = frozenset(
    {
        *("cpu_ghz", "disk_bw", "cuda_max_good", "compute_cap", "driver_vers", "bw_nvlink"),
        *("direct_port_count", "pcie_bw", "pci_gen", "gpu_mem_bw", "gpu_max_power"),
    }
)
KINDS = ("on-demand", "bid", "reserved")
PRICES = frozenset({"dph_base", "dph_total", "min_bid", "discounted_dph_total"})


@pytest.fixture
def bazaar(api: Api) -> Api:
    """Six machines that differ in all that is known of a machine; nothing is known of the last."""
    market = api.market
    for number in range(6):
        machine = market.machine(
            host=f"host-{number % 2}",
            gpus=(1, 2, 8, 1, 3, 2)[number],
            gpu_hour=(30 + 7 * number) * CENT + number * 333,
            storage=(10 + number % 3) * CENT,
            up=number * 1_000_000,
            down=(5 - number) * 1_000_000,
            mbps=1_000 * (1 + number),
            floor=None if number == 3 else (5 + number) * CENT,
            until=None if number == 4 else START + 86_400 * (1 + number),
            reserved_discount_max_bp=1_000 * number,
        )
        if number < 5:
            values = (
                *(12.0 + number / 10, 4 * number, number % 2 == 0, 50.0 * number),
                *(f"5{number}0.86.0{number}", 500_086_000 + number * 10_000_001, 750 + 70 * number),
                *(2.5 + number, ("x86_64", "aarch64")[number % 2], number > 1, 500 + 100 * number),
                *(3 + number % 3, 10.0 + number, 900.0 + number, 300 + 50 * number),
            )
            describe(
                market,
                machine,
                verification=("verified", "unverified", "deverified")[number % 3],
                secure=number % 2 == 0,
                reliability=None if number == 1 else 0.9 + number / 100,
                lower_bound=0.85 + number / 100,
                checks=100,
                score=40.0 + 10 * number,
                country=("SE", "CN", "US", "DE", "VN")[number],
                **dict(zip(HARDWARE, values, strict=True)),
            )
    return api


def bundles(api: Api, query: Row, who: str | None = None, status: int = 200) -> httpx.Response:
    """The answer to a search."""
    answer = api(who, "POST", "/api/v0/bundles/", query)
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/json"
    return answer


def offers(api: Api, query: Row, who: str | None = None) -> list[Row]:
    """What a search finds, with its numbers to the last digit; no id comes twice."""
    decoder = msgspec.json.Decoder(float_hook=Decimal)
    found: list[Row] = decoder.decode(bundles(api, query, who).content)["offers"]
    ids = [one["id"] for one in found]
    assert len(set(ids)) == len(ids), "API-03: the same offer twice"
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_every_number_filters_as_it_is_shown(bazaar: Api, kind: str) -> None:
    """Whatever number a column shows finds its rows with each operator, as text and as a number."""
    query = {"type": kind, "allocated_storage": 37.0}
    every = offers(bazaar, query)
    assert len(every) == 13
    for place, name in enumerate(NUMBERS):
        if name not in PRICES and place % len(KINDS) != KINDS.index(kind):
            continue  # what does not depend on the kind is looked at under one of them
        known = {
            one["id"]: one[name]
            for one in every
            # What nobody measured is shown as 0 and compares with nothing.
            if one[name] is not None and not (name in MEASURED and one["machine_id"] == 6)
        }
        if name in DERIVED:
            continue
        values = sorted(set(known.values()))
        for number, (sign, compare) in enumerate(COMPARE.items()):
            value = values[number % len(values)]
            wanted = {one for one, held in known.items() if compare(held, value)}
            sent = str(value) if number % 2 else float(value)
            found = {one["id"] for one in offers(bazaar, {**query, name: {sign: sent}})}
            assert found == wanted, (name, sign, sent, kind)


def test_texts_places_and_flags(bazaar: Api) -> None:
    """Names take spaces or underscores, places their code, flags any spelling, lists each."""
    every = offers(bazaar, {})

    def ids(**query: Any) -> set[int]:
        return {one["id"] for one in offers(bazaar, query)}

    def of(keep: Callable[[Row], bool]) -> set[int]:
        return {one["id"] for one in every if keep(one)}

    for name in ("RTX 4090", "RTX_4090"):
        assert ids(gpu_name={"eq": name}) == of(lambda one: one["gpu_name"] == "RTX 4090")
        assert ids(gpu_name={"neq": name}) == set()
        assert ids(gpu_name={"in": ["A100", name]}) == ids(gpu_name={"eq": name})
    for place in ("SE", "se", "Sweden, SE", '"Sweden, SE"'):
        assert ids(geolocation={"eq": place}) == of(lambda one: one["geolocation"] == "Sweden, SE")
    assert ids(geolocation={"notin": ["CN", "VN"]}) == of(
        lambda one: one["geolocation"][-2:] in {"SE", "US", "DE"}
    )
    for truth in (True, "true", "True", 1, "1"):
        assert ids(verified={"eq": truth}) == of(lambda one: one["verification"] == "verified")
        assert ids(datacenter={"eq": truth}) == of(lambda one: one["hosting_type"] == 1)
        assert ids(has_avx={"eq": truth}) == of(lambda one: one["has_avx"] == 1)
        assert ids(external={"eq": truth}) == set()
    assert ids(hosting_type={"gte": "1"}) == ids(datacenter={"eq": "true"})
    assert ids(verified={"eq": "any"}, external={"eq": False}, gpu_arch={"in": ["nvidia"]}) == of(
        lambda one: True
    )
    for driver in ("520.86.02", "520086002", 520_086_002):
        assert ids(driver_version={"gte": driver}) == of(lambda one: one["driver_vers"] > 520086001)
    for arch in ("amd64", "x86_64"):
        assert ids(cpu_arch={"eq": arch}) == of(lambda one: one["cpu_arch"] == "amd64")
    assert ids(compute_capability={"eq": "750"}) == of(lambda one: one["compute_cap"] == 750)
    assert ids(reliability={"gte": "0.9", "lt": 0.93}) == of(
        lambda one: (
            one["reliability"] is not None
            and Decimal("0.9") <= one["reliability"] < Decimal("0.93")
        )
    )


def test_what_offers_do_not_have_matches_nothing(bazaar: Api) -> None:
    """An unknown column or a comparison with null finds nothing, and is never a failure."""
    for query in (
        {"no_such_column": {"eq": 1}},
        {"bw_nvlink": {"gt": None}},
        {"cluster_id": {"eq": 7}},
        {"gpu_arch": {"eq": "amd"}},
        {"num_gpus": {"eq": "1.5"}},
        {"datacenter": {"eq": True}, "hosting_type": {"eq": 0}},
        {"dlperf_per_dphtotal": {"gt": "1e12"}},
    ):
        assert offers(bazaar, query) == [], query
    assert len(offers(bazaar, {"no_such_column": {"eq": "any"}, "cluster_id": {"eq": None}})) == 13


WRONG: tuple[Row, ...] = (
    {"num_gpus": {"eq": "many"}},
    {"num_gpus": {"like": 1}},
    {"num_gpus": {"in": 1}},
    {"num_gpus": {"eq": {"a": 1}}},
    {"gpu_name": {"eq": "a\x00b"}},
    {"static_ip": {"eq": "perhaps"}},
    {"verified": {"gt": "x"}},
    {"type": "auction"},
    {"order": ["dph_total"]},
    {"limit": 0},
    {"limit": "all"},
    {"allocated_storage": -1},
    {"allocated_storage": "NaN"},
)


def test_what_cannot_be_meant_is_refused(bazaar: Api) -> None:
    """A value, operator, type or order that cannot be is a 400 with both `error` and `msg`."""
    for query in WRONG:
        body = bundles(bazaar, query, status=400).json()
        assert (body["success"], body["error"]) == (False, "invalid_args"), query
        assert body["msg"]


def test_order_limit_and_columns(bazaar: Api) -> None:
    """Rows come in the order asked for, nulls last; `search/asks` cuts rows to their columns."""
    for name in ("dph_total", "dlperf_per_dphtotal", "reliability", "num_gpus", "inet_down"):
        for way in ("asc", "desc"):
            found = offers(bazaar, {"order": [[name, way], ["id", "asc"]]})
            held = [one[name] for one in found if one[name] is not None]
            assert held == sorted(held, reverse=way == "desc")
            assert [one[name] for one in found][len(held) :] == [None] * (len(found) - len(held))
    best = offers(bazaar, {"limit": "3"})
    assert [one["score"] for one in best] == sorted((o["score"] for o in best), reverse=True)
    assert [one["rn"] for one in best] == [1, 2, 3]
    assert offers(bazaar, {"order": [["no_such", "asc"]], "limit": 3}) == best
    query = {"select_cols": ["id", "dph_total"], "q": {"limit": 2}}
    answer = bazaar("alice", "PUT", "/api/v0/search/asks/", query)
    assert [set(one) for one in answer.json()["offers"]] == [{"id", "dph_total"}] * 2


def test_prices_depend_on_kind_and_disk(api: Api) -> None:
    """PRICE-01, PRICE-02, PRICE-03: base 0.39, bid 0.20, storage 0.15, disk 100."""
    good_machine(api.market, gpu_hour=39 * CENT, floor=20 * CENT)
    for kind, base, total in (
        ("on-demand", "0.39", "0.410833333"),
        ("bid", "0.2", "0.220833333"),
        ("interruptible", "0.2", "0.220833333"),
        (None, "0.39", "0.410833333"),
    ):
        query = {"allocated_storage": 100.0} if kind is None else {"type": kind}
        (row,) = offers(api, {"allocated_storage": 100.0, **query})
        assert (row["dph_base"], row["dph_total"]) == (Decimal(base), Decimal(total))
        assert row["dph_total"] == row["dph_base"] + row["storage_total_cost"]
        assert row["search"]["totalHour"] == row["dph_total"]
        assert (row["min_bid"], row["rentable"]) == (Decimal("0.2"), True)
        hourly = Fraction(15, 100) * 100 / 720
        assert abs(Fraction(row["storage_total_cost"]) - hourly) * 2 <= Fraction(1, DOLLAR)
    (row,) = offers(api, {"type": "reserved", "allocated_storage": 100.0})
    assert (row["discount_rate"], row["discounted_hourly"]) == (Decimal("0.2"), Decimal("0.312"))
    assert row["discounted_dph_total"] == Decimal("0.312") + row["storage_total_cost"]
    (row,) = offers(api, {})
    assert row["storage_total_cost"] == Decimal("0.001666667"), "8 GB where nothing is said"
    assert b"00000000000" not in bundles(api, {}).content, "no number carries a float's noise"


def test_the_guides_searches(api: Api) -> None:
    """Both bodies of the guide find the machines that they describe, and no other."""
    market = api.market
    wanted = good_machine(market)
    market.machine()
    for machine, known in (
        (good_machine(market), {"reliability": 0.98}),
        (good_machine(market), {"ports": 0}),
    ):
        describe(market, machine, **known)
    assert [one["machine_id"] for one in offers(api, SEARCH_A)] == [wanted]
    box = good_machine(market, gpus=8, gpu_hour=2 * DOLLAR)
    boxes: tuple[Row, ...] = ({"secure": True}, {"secure": True, "nvlink_gb_s": 450.0})
    for measured in boxes:
        describe(market, box, **measured)
        assert offers(api, SEARCH_B) == [], "24 GB are not 80"
    with market.ledger.database.connect() as connection:
        connection.execute("UPDATE machines SET gpu_ram_gb = 80 WHERE machine_id = %s", [box])
        connection.commit()
    describe(market, box)
    (row,) = offers(api, SEARCH_B)
    assert (row["machine_id"], row["num_gpus"], row["gpu_total_ram"]) == (box, 8, 640_000)
    assert row["dph_base"] == Decimal("0.8"), "the floor of 8 GPUs"
    assert {one["machine_id"] for one in offers(api, {**SEARCH_MIXED, "reliability": {"gt": 0}})}


def test_rented_is_about_the_caller(api: Api) -> None:
    """`rented` selects machines on which the caller already has an instance; nobody has none."""
    mine, other = good_machine(api.market, gpus=2), good_machine(api.market)
    api.market.rent(api.accounts["alice"], mine, gpus=1)
    for who, rented, expected in (
        ("alice", True, {mine}),
        ("alice", False, {other}),
        ("carol", True, set()),
        (None, True, set()),
        (None, False, {mine, other}),
    ):
        found = offers(api, {"rented": {"eq": rented}, "rentable": {"eq": "any"}}, who)
        assert {one["machine_id"] for one in found} == expected
        assert {one["rented"] for one in found} <= {rented}
    assert bundles(api, {}, "no such key", 401).json()["error"] == "auth_error"


def test_every_filter_of_the_client_is_known() -> None:
    """Each column that the client offers for filters is translated or the same of every offer."""
    client = (
        *("bw_nvlink", "compute_cap", "cpu_arch", "cpu_cores", "cpu_cores_effective", "cpu_ghz"),
        *("cpu_ram", "cuda_max_good", "datacenter", "direct_port_count", "driver_version"),
        *("disk_bw", "disk_space", "dlperf", "dlperf_per_dphtotal", "dph_total", "duration"),
        *("external", "flops_per_dphtotal", "gpu_arch", "gpu_display_active", "gpu_frac"),
        *("gpu_mem_bw", "gpu_name", "gpu_ram", "gpu_total_ram", "gpu_max_power", "gpu_max_temp"),
        *("has_avx", "host_id", "id", "inet_down", "inet_down_cost", "inet_up", "inet_up_cost"),
        *("machine_id", "min_bid", "mobo_name", "num_gpus", "pci_gen", "pcie_bw", "reliability"),
        *("rentable", "rented", "storage_cost", "static_ip", "total_flops", "ubuntu_version"),
        *("verification", "verified", "vms_enabled", "geolocation", "cluster_id", "score"),
    )
    known = {*translation.COLUMNS, *translation.FLAGS, *translation.CONSTANTS}
    assert set(client) <= known
