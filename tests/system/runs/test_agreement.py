# SPDX-License-Identifier: Apache-2.0
"""One experiment, three ways: real time with the engine, virtual time with the engine, virtual time with tc.

docs/agreement.md puts them side by side for a minute of the demo and explains what differs.
"""

import json
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from atoll_analysis.run_directory import RunDir
from tests.support.sandbox import ATOLL, GEO, Sandbox, faults
from tests.support.virtual_runs import HANGS_S

pytestmark = pytest.mark.virtual

SHORT = ("--duration", "12 s", "--set", "transfer.start=1 s", "--set", "transfer.size=2 MB", "--json")
SEEDS = (1, 2, 3)

PING_BYTES = 84  # IP packet of a check's ping
PING_SERIALISATION_NS = 8 * PING_BYTES * 10**9 // 16_000_000 + 8 * PING_BYTES * 10**9 // 4_000_000
BOUND_MS = 8 * 100_000 / 16_000_000 * 1e3
MTU_MS = 8 * 1500 / 16_000_000 * 1e3


def in_virtual_time(directory: Path, backend: str, seed: int) -> dict[str, Any]:
    place = ("--on", "virtual", "--backend", backend, "--runs", directory / str(seed))
    done = subprocess.run(
        [ATOLL, "run", GEO, *place, "--seed", str(seed), *SHORT],
        capture_output=True,
        text=True,
        check=False,
        timeout=HANGS_S,
    )
    assert done.returncode == 0, done.stderr + done.stdout
    return json.loads(done.stdout)


def of_seeds(directory: Path, backend: str) -> list[dict[str, Any]]:
    """Summaries in the order of SEEDS; each run takes a core."""
    with ThreadPoolExecutor(max_workers=2) as pool:
        return list(pool.map(lambda seed: in_virtual_time(directory, backend, seed), SEEDS))


@pytest.fixture(scope="module")
def by_engine(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    return of_seeds(tmp_path_factory.mktemp("engine"), "engine")


@pytest.fixture(scope="module")
def by_tc(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    return of_seeds(tmp_path_factory.mktemp("tc"), "tc")


@pytest.fixture
def real(tmp_path: Path) -> Iterator[dict[str, Any]]:
    with Sandbox(tmp_path) as sandbox:
        done = sandbox.run(ATOLL, "run", GEO, "--seed", str(SEEDS[0]), *SHORT)
        assert done.returncode in (0, 3), done.stderr
        yield json.loads(done.stdout)


def beyond_delays_ns(summary: dict[str, Any]) -> list[int]:
    """What every path's base RTT is beyond the delays on it."""
    events = RunDir.open(Path(summary["run_dir"])).events()
    return [event["rtt_min_ns"] - event["expected_ns"] for event in events if event["type"] == "check"]


def test_base_rtts_in_virtual_time_are_those_computed_for_each_backend(
    by_engine: list[dict[str, Any]], by_tc: list[dict[str, Any]]
) -> None:
    """The engine serialises every packet; tc's bucket lets one small packet through at once. Within 10 us."""
    assert all(0 <= beyond <= 10_000 for beyond in beyond_delays_ns(by_tc[0]))
    beyond_ns = beyond_delays_ns(by_engine[0])
    assert all(abs(beyond - PING_SERIALISATION_NS) <= 10_000 for beyond in beyond_ns), beyond_ns


def test_both_backends_give_the_same_figures(by_engine: list[dict[str, Any]], by_tc: list[dict[str, Any]]) -> None:
    engine, tc = by_engine[0], by_tc[0]
    assert (engine["verdict"], tc["verdict"]) == ("valid", "valid")
    for summary in (engine, tc):
        assert BOUND_MS - 2 * MTU_MS <= summary["sojourn_max_ms"] <= BOUND_MS + MTU_MS
        assert summary["loss_bytes_captures"] == summary["loss_bytes_link"] > 0
        assert summary["transfer_complete"]
    assert tc["goodput_mbit_s"] == pytest.approx(engine["goodput_mbit_s"], rel=0.05)
    assert tc["flows_completed"] == pytest.approx(engine["flows_completed"], rel=0.05)


def test_both_backends_lose_as_much_and_take_as_long_for_the_transfer(
    by_engine: list[dict[str, Any]], by_tc: list[dict[str, Any]]
) -> None:
    """Which packet meets a full queue decides both, for a seed; over seeds the backends agree."""
    for figure, factor in (("loss_fraction", 1.5), ("transfer_s", 1.25)):
        engine, tc = (median(summary[figure] for summary in summaries) for summaries in (by_engine, by_tc))
        assert engine / factor <= tc <= engine * factor, figure


@pytest.mark.lab
@pytest.mark.figures
def test_real_time_differs_by_what_the_machine_adds(by_engine: list[dict[str, Any]], real: dict[str, Any]) -> None:
    """Every packet takes a while longer, and what TCP makes of that moves the figures, but not far."""
    engine = by_engine[0]
    assert faults(real) == []
    assert 0 <= real["base_rtt_ms"] - engine["base_rtt_ms"] <= 20
    assert real["loss_bytes_captures"] == real["loss_bytes_link"]
    assert real["sojourn_max_ms"] <= BOUND_MS + MTU_MS + 50 + real["lateness_max_ms"]
    assert real["goodput_mbit_s"] == pytest.approx(engine["goodput_mbit_s"], rel=0.15)
    assert real["flows_completed"] == pytest.approx(engine["flows_completed"], rel=0.1)
    assert real["transfer_complete"]
    for figure in ("loss_fraction", "transfer_s"):  # chaotic: a run of this seed is a sample like one of another
        samples = [summary[figure] for summary in by_engine]
        assert min(samples) / 2 <= real[figure] <= max(samples) * 2, (figure, real[figure], samples)
