# SPDX-License-Identifier: Apache-2.0
"""One experiment, three ways: real time with the engine, virtual time with the engine, virtual time with tc.

docs/agreement.md puts them side by side for a minute of the demo and explains what differs.
"""

import json
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from atoll.rundir import RunDir
from tests.lab.sandbox import ATOLL, GEO, Sandbox

pytestmark = [pytest.mark.virtual, pytest.mark.lab, pytest.mark.figures, pytest.mark.timeout(240)]

SHORT = ("--duration", "12 s", "--set", "transfer.start=1 s", "--set", "transfer.size=2 MB", "--json")

PING_BYTES = 84  # IP packet of a check's ping
PING_SERIALISATION_NS = 8 * PING_BYTES * 10**9 // 16_000_000 + 8 * PING_BYTES * 10**9 // 4_000_000
BOUND_MS = 8 * 100_000 / 16_000_000 * 1e3
MTU_MS = 8 * 1500 / 16_000_000 * 1e3


def in_virtual_time(directory: Path, backend: str) -> dict[str, Any]:
    done = subprocess.run(
        [ATOLL, "run", GEO, "--on", "virtual", "--backend", backend, "--runs", directory / backend, *SHORT],
        capture_output=True,
        text=True,
        check=False,
        timeout=200,
    )
    assert done.returncode == 0, done.stderr + done.stdout
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def virtual(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """Summaries by backend."""
    directory = tmp_path_factory.mktemp("virtual")
    backends = ("engine", "tc")
    with ThreadPoolExecutor() as pool:
        found = pool.map(lambda backend: in_virtual_time(directory, backend), backends)
        return dict(zip(backends, found, strict=True))


@pytest.fixture
def real(tmp_path: Path) -> Iterator[dict[str, Any]]:
    with Sandbox(tmp_path) as sandbox:
        done = sandbox.run(ATOLL, "run", GEO, *SHORT)
        assert done.returncode in (0, 3), done.stderr
        yield json.loads(done.stdout)


def beyond_delays_ns(summary: dict[str, Any]) -> list[int]:
    """What every path's base RTT is beyond the delays on it."""
    events = RunDir.open(Path(summary["run_dir"])).events()
    return [event["rtt_min_ns"] - event["expected_ns"] for event in events if event["type"] == "check"]


def test_base_rtts_in_virtual_time_are_those_computed_for_each_backend(virtual: dict[str, dict[str, Any]]) -> None:
    """The engine serialises every packet; tc's bucket lets one small packet through at once. Within 10 us."""
    assert all(0 <= beyond <= 10_000 for beyond in beyond_delays_ns(virtual["tc"]))
    by_engine = beyond_delays_ns(virtual["engine"])
    assert all(abs(beyond - PING_SERIALISATION_NS) <= 10_000 for beyond in by_engine), by_engine


def test_both_backends_give_the_same_figures(virtual: dict[str, dict[str, Any]]) -> None:
    engine, tc = virtual["engine"], virtual["tc"]
    assert (engine["verdict"], tc["verdict"]) == ("valid", "valid")
    for summary in (engine, tc):
        assert BOUND_MS - 2 * MTU_MS <= summary["sojourn_max_ms"] <= BOUND_MS + MTU_MS
        assert summary["loss_bytes_captures"] == summary["loss_bytes_link"] > 0
        assert summary["transfer_complete"]
    assert tc["goodput_mbit_s"] == pytest.approx(engine["goodput_mbit_s"], rel=0.05)
    assert tc["flows_completed"] == pytest.approx(engine["flows_completed"], rel=0.05)


def test_real_time_differs_by_what_the_machine_adds(virtual: dict[str, dict[str, Any]], real: dict[str, Any]) -> None:
    """Every packet takes a while longer, and what TCP makes of that moves the figures, but not far."""
    engine = virtual["engine"]
    assert all("too busy" in reason for reason in real["reasons"]), real["reasons"]
    assert 0 <= real["base_rtt_ms"] - engine["base_rtt_ms"] <= 5
    assert real["loss_bytes_captures"] == real["loss_bytes_link"]
    assert real["sojourn_max_ms"] <= BOUND_MS + MTU_MS + 10 + real["lateness_max_ms"]
    assert real["goodput_mbit_s"] == pytest.approx(engine["goodput_mbit_s"], rel=0.15)
    assert real["flows_completed"] == pytest.approx(engine["flows_completed"], rel=0.1)
