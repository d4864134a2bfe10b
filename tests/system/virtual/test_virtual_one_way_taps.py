# SPDX-License-Identifier: Apache-2.0
"""Taps that copy frames to the island only, as splitters with one capture port do: the same figures and verdict."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.sandbox import QUICK
from tests.support.virtual_runs import run_virtually

pytestmark = pytest.mark.virtual

PEPS = ("lab.boxes.pep-w.kind=pep", "lab.boxes.pep-i.kind=pep")
CHAIN = "chain=[tap-w, pep-w, sat, pep-i, tap-i]"
LOAD = ("transfer.size=1 MB", "transfer.start=1 s", "links.sat.to_island.queue=10 kB")

DIFFERENT = {"notes", "run_dir", "captures", "concurrency", "connections", "settings"}
"""Keys that may differ: connections without an answer are in no capture of one direction."""


def summary(directory: Path, direction: str, *settings: str) -> dict[str, Any]:
    """The summary of a run with taps of that direction; every run of these is valid."""
    taps = [f"lab.taps.{tap}.direction={direction}" for tap in ("tap-w", "tap-i")]
    words = [word for setting in (CHAIN, *LOAD, *taps, *settings) for word in ("--set", setting)]
    run_virtually(directory, QUICK, "--duration", "8 s", "--runs", directory / direction, *words)
    (found,) = (directory / direction / "quick").glob("*/summary.json")
    return json.loads(found.read_text())


@pytest.mark.parametrize("settings", [(), PEPS], ids=["routers", "PEPs"])
def test_taps_of_one_direction_give_the_figures_of_taps_of_both(tmp_path: Path, settings: tuple[str, ...]) -> None:
    """Loss to the byte, throughput, goodput, payload through PEPs, flows, volumes, RTTs, regime and verdict."""
    both, one = (summary(tmp_path, direction, *settings) for direction in ("both", "to_island"))
    assert {key for key in both if both[key] != one.get(key)} <= DIFFERENT
    assert both["verdict"] == "valid"
    assert both["loss_bytes_link"] > 0
    compared = both["payload"] if settings else both["stretches"]
    assert compared
    assert one["concurrency"]["mean"] == pytest.approx(both["concurrency"]["mean"], rel=0.02)
    assert both["connections"] - both["channels"] <= one["connections"] <= both["connections"]
    assert one["captures"]["island"]["decoded"] < both["captures"]["island"]["decoded"]
    note = "captures island, world: only packets to the island, so throughput to the world is not in its tables"
    assert any(text.startswith(note) for text in one["notes"])
