"""How fast the market answers: searches over 100,000 open offers, and the auction of a machine."""

from __future__ import annotations

import random
import statistics
import time
from pathlib import Path
from typing import Any, Final

from ledger.domain.auction import Claim, Supply, allocate, min_bids
from ledger.services.questions.offers import Search, search
from ledger.store.database import Connection, Database
from tests.bench.row import Row

NOW: Final = 1_797_000_000
OFFERS: Final = 100_000
GPUS: Final = (
    ("RTX 4090", 24, 0.35), ("RTX 3090", 24, 0.18), ("RTX 5090", 32, 0.6), ("H100 SXM", 80, 2.2),
    ("A100 SXM4", 80, 1.1), ("RTX A6000", 48, 0.5), ("L40S", 48, 0.8), ("RTX 4080", 16, 0.25),
    ("RTX 3080", 10, 0.12), ("V100", 16, 0.2), ("T4", 16, 0.12), ("H200", 141, 3.0),
    ("B200", 180, 4.0), ("RTX 4070", 12, 0.15), ("A40", 48, 0.4), ("RTX 2080 Ti", 11, 0.1),
    ("GTX 1080", 8, 0.06), ("L4", 24, 0.3), ("A10", 24, 0.25), ("RTX 3060", 12, 0.08),
)  # fmt: skip


def searches(folder: Path, rounds: int) -> Row:
    """Latency of a mix of searches, each of another shape, in random order."""
    database = Database.open(folder, "")
    try:
        with database.connect("owner", autocommit=True) as owner:
            fill(owner)
        with database.connect() as connection:
            spent = _timed(connection, rounds)
    finally:
        database.close()
    spent.sort()
    p99 = spent[len(spent) * 99 // 100]
    return Row(
        f"search, p99 of {len(spent):,} over {OFFERS:,} open offers",
        f"{p99 * 1_000:.1f} ms",
        "20 ms",
        f"median {statistics.median(spent) * 1_000:.1f} ms, slowest {spent[-1] * 1_000:.1f} ms;"
        f" {len(SHAPES)} shapes of query, a page of 64 each",
    )


def _timed(connection: Connection, rounds: int) -> list[float]:
    chance = random.Random(1)  # noqa: S311 - which search comes next
    spent = []
    for shape in SHAPES:
        search(connection, shape, NOW)
    for _ in range(rounds):
        wish = chance.choice(SHAPES)
        began = time.perf_counter()
        search(connection, wish, NOW)
        spent.append(time.perf_counter() - began)
    return spent


_GUIDE_A: Final[dict[str, dict[str, Any]]] = {
    "gpu_name": {"eq": "RTX 4090"},
    "num_gpus": {"eq": "1"},
    "reliability": {"gt": "0.98"},
    "inet_down": {"gt": "500"},
    "disk_space": {"gte": "100"},
    "cuda": {"gte": "12.4"},
    "direct_port_count": {"gte": "1"},
}
_GUIDE_B: Final[dict[str, dict[str, Any]]] = {
    "num_gpus": {"eq": 8},
    "gpu_ram": {"gte": 80},
    "nvlink_bw": {"gt": 0},
    "secure": {"eq": True},
}
SHAPES: Final = (
    Search(),
    Search(disk_gb=500),
    Search(kind="interruptible"),
    Search(kind="reserved", disk_gb=100),
    Search(order=[("dph_total", "asc")], disk_gb=1_000),
    Search(kind="interruptible", order=[("dph_total", "asc")]),
    Search(filters=_GUIDE_A, disk_gb=100),
    Search(filters=_GUIDE_B, kind="interruptible", order=[("dph_total", "asc")]),
    Search(filters={"gpu_name": {"in": ["RTX 4090", "RTX 5090"]}, "num_gpus": {"gte": 2}}),
    Search(filters={"gpu_total_ram": {"gte": 320}, "dph_total": {"lte": "8"}}),
    Search(filters={"country": {"notin": ["CN", "VN"]}, "verified": {"eq": True}}),
    Search(filters={"reliability": {"gt": 0.995}, "num_gpus": {"eq": 4}}),
    Search(filters={"dph_total": {"lte": "0.2"}}, order=[("score", "desc")]),
    Search(order=[("reliability", "desc"), ("dph_total", "asc")]),
    Search(order=[("inet_down", "desc")], filters={"static_ip": {"eq": True}}),
    Search(filters={"gpu_ram": {"gte": 500}}),
    Search(filters={"machine_id": {"eq": 777}}, verified_only=False, rentable_only=False),
)
"""What people ask: the guides' searches, the default, the cheapest, and some that find little."""


def fill(connection: Connection) -> None:
    """Write 25,000 machines' open offers of 1, 2, 4 and 8 GPUs, as the fold leaves them."""
    connection.execute("SELECT setseed(0.5)")
    names = [name for name, _, _ in GPUS]
    rams = [ram for _, ram, _ in GPUS]
    prices = [price for _, _, price in GPUS]
    connection.execute(_FILL, {"n": OFFERS, "names": names, "rams": rams, "prices": prices})
    connection.execute("VACUUM ANALYZE open_offers")


_FILL: Final = """
INSERT INTO open_offers (offer_id, machine_id, host_id, listing_id, gpus, machine_gpus, gpu_name,
    gpu_ram_gb, cpu_cores, ram_gb, disk_gb, up_mbps, down_mbps, gpu_rate, reserved_rate,
    storage_rate, up_rate, down_rate, floor, min_bid, reserved_discount_max_bp, until, opened_at,
    bookable, rentable, verification, verified, secure, reliability, checks, lower_bound, score,
    country,
    cuda, ports, static_ip, nvlink_gb_s, storage_cost, on_demand_cost, interruptible_cost,
    reserved_cost, on_demand_worth, interruptible_worth, reserved_worth)
SELECT o.*, storage_rate, gpu_rate, min_bid, reserved_rate, score * lower_bound * 1e9 / gpu_rate,
       score * lower_bound * 1e9 / min_bid, score * lower_bound * 1e9 / reserved_rate
FROM (
    SELECT i AS offer_id, m AS machine_id, m / 10 + 1, m AS listing_id, n AS gpus, 8,
           (%(names)s::text[])[g], (%(rams)s::int[])[g], 8 * n, 64 * n, (500 + m %% 1500) * n,
           100 + m %% 900, 100 + (m * 7) %% 2000, rate AS gpu_rate,
           div(rate::numeric * 8, 10)::bigint AS reserved_rate,
           ((0.05 + spread * 0.3) * 1e9)::bigint AS storage_rate, 3000000, 2000000,
           div(rate::numeric * 4, 10)::bigint / n, (rate * (0.4 + spread / 2))::bigint AS min_bid,
           4000, NULL::bigint, 1796000000, m %% 20 > 0, m %% 20 > 0 AND (m + n) %% 5 > 1,
           CASE WHEN m %% 4 > 0 THEN 'verified' ELSE 'unverified' END,
           m %% 4 > 0, m %% 5 = 0,
           0.9 + 0.1 * random(), 8640, 0.85 + 0.14 * spread AS lower_bound,
           n * (5 + 60 * spread + 0.001 * g) AS score,
           (ARRAY['SE', 'US', 'DE', 'CN', 'VN', 'NO'])[m %% 6 + 1], 12.0 + (m %% 9) / 10.0,
           m %% 200, m %% 3 = 0, CASE WHEN g IN (4, 5, 12, 13) THEN 600 ELSE 0 END
    FROM (SELECT i, (i + 3) / 4 AS m, (ARRAY[1, 2, 4, 8])[i %% 4 + 1] AS n,
                 ((i + 3) / 4) %% 20 + 1 AS g, random() AS spread,
                 ((%(prices)s::float8[])[((i + 3) / 4) %% 20 + 1] * (0.7 + random())
                  * (ARRAY[1, 2, 4, 8])[i %% 4 + 1] * 1e9)::bigint AS rate
          FROM generate_series(1, %(n)s) i) AS drawn
) AS o
"""


def allocation(rounds: int) -> Row:
    """One decision and five prices on a machine with 16 GPUs and 200 waiting bids."""
    chance = random.Random(2)  # noqa: S311 - the bids of a crowd
    spent = []
    for _ in range(rounds):
        claims = [
            Claim(
                number,
                chance.choice([1, 2, 4, 8, 16]),
                is_bid=True,
                requested_at=number,
                bid=chance.randint(10**8, 10**10),
                bid_effective_at=chance.randint(1, 1_000),
            )
            for number in range(1, 201)
        ]
        supply = Supply(tuple(range(16)), 10**6)
        began = time.perf_counter()
        allocate(supply, claims)
        min_bids(supply, claims, [1, 2, 4, 8, 16])
        spent.append(time.perf_counter() - began)
    spent.sort()
    return Row(
        "allocation and five prices, 16 GPUs, 200 waiting bids, p99",
        f"{spent[len(spent) * 99 // 100] * 1_000:.2f} ms",
        "2 ms",
        f"median {statistics.median(spent) * 1_000:.2f} ms, in plain Python",
    )
