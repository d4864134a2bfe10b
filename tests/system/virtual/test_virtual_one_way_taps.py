# SPDX-License-Identifier: Apache-2.0
"""Taps that copy frames to the island only, as splitters with one capture port do: the same figures and verdict.

Two experiments never have the same packets to the nanosecond, so the figures compared are those of one run, from its
captures as they are and from those that taps of one direction would have made of the same packets.
"""

import json
import shutil
import struct
from collections.abc import Iterator
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path
from typing import Any

import pytest
import zstandard

from tests.support.sandbox import QUICK
from tests.support.virtual_runs import atoll, run_virtually

pytestmark = pytest.mark.virtual

PEPS = ("lab.boxes.pep-w.kind=pep", "lab.boxes.pep-i.kind=pep")
CHAIN = "chain=[tap-w, pep-w, sat, pep-i, tap-i]"
LOAD = ("transfer.size=1 MB", "transfer.start=1 s", "links.sat.to_island.queue=10 kB")
ONE_DIRECTION = "captures island, world: only packets to the island, so throughput to the world is not in its tables"
ISLAND = IPv4Network("10.20.0.0/16")

DIFFERENT = {"notes", "run_dir", "captures", "concurrency", "connections", "settings"}
"""Keys that may differ: connections without an answer are in no capture of one direction."""


def run(directory: Path, direction: str, *settings: str) -> Path:
    """The directory of a valid run with taps of that direction."""
    taps = [f"lab.taps.{tap}.direction={direction}" for tap in ("tap-w", "tap-i")]
    words = [word for setting in (CHAIN, *LOAD, *taps, *settings) for word in ("--set", setting)]
    return Path(
        run_virtually(directory, QUICK, "--duration", "8 s", "--runs", directory / direction, *words)["run_dir"]
    )


def summary(run_dir: Path) -> dict[str, Any]:
    return json.loads((run_dir / "summary.json").read_text())


def to_island(capture: bytes) -> Iterator[bytes]:
    """The head of a capture and its records of packets to the island; Ethernet frames without tags."""
    yield capture[:24]
    at = 24
    while at < len(capture):
        (length,) = struct.unpack_from("<I", capture, at + 8)
        frame = capture[at + 16 : at + 16 + length]
        if frame[12:14] == b"\x08\x00" and IPv4Address(frame[30:34]) in ISLAND:
            yield capture[at : at + 16 + length]
        at += 16 + length


def with_taps_of_one_direction(whole: Path, run_dir: Path) -> dict[str, Any]:
    """Analyse a copy of a run whose taps copied frames to the island only; its summary."""
    made = shutil.ignore_patterns("files.json", "summary.json", "tables", "report.html")
    shutil.copytree(whole, run_dir, ignore=made)
    manifest = json.loads((run_dir / "manifest.json").read_text())
    del manifest["has_file_record"]
    for tap in manifest["network"]["taps"]:
        tap["to_island_only"] = True
    (run_dir / "manifest.json").write_text(json.dumps(manifest))
    for name in ("world", "island"):
        file, log = run_dir / f"captures/{name}.pcap.zst", run_dir / f"logs/capture-{name}.out"
        with file.open("rb") as stream:
            head, *records = to_island(zstandard.ZstdDecompressor().stream_reader(stream).read())
        file.write_bytes(zstandard.ZstdCompressor().compress(b"".join([head, *records])))
        lines = [json.loads(line) for line in log.read_text().splitlines()]
        log.write_text("".join(f"{json.dumps({**line, 'captured_packets': len(records)})}\n" for line in lines))
    done = atoll(run_dir.parent, "report", "--json", run_dir)
    assert done.returncode == 0, done.stderr
    return summary(run_dir)


@pytest.mark.parametrize("settings", [(), PEPS], ids=["routers", "PEPs"])
def test_taps_of_one_direction_give_the_figures_of_taps_of_both(tmp_path: Path, settings: tuple[str, ...]) -> None:
    """Loss to the byte, throughput, goodput, payload through PEPs, flows, volumes, RTTs, regime and verdict."""
    whole = run(tmp_path, "both", *settings)
    both, one = summary(whole), with_taps_of_one_direction(whole, tmp_path / whole.name)
    assert {key for key in both if both[key] != one.get(key)} <= DIFFERENT
    assert both["verdict"] == "valid"
    assert both["loss_bytes_link"] > 0
    compared = both["payload"] if settings else both["stretches"]
    assert compared
    assert one["concurrency"]["mean"] == pytest.approx(both["concurrency"]["mean"], rel=0.02)
    assert both["connections"] - both["channels"] <= one["connections"] <= both["connections"]
    assert one["captures"]["island"]["decoded"] < both["captures"]["island"]["decoded"]
    assert any(text.startswith(ONE_DIRECTION) for text in one["notes"])


def test_a_run_with_taps_of_one_direction_is_valid(tmp_path: Path) -> None:
    """Its captures of the taps have packets to the island only."""
    one = summary(run(tmp_path, "to_island", *PEPS))
    assert one["verdict"] == "valid"
    assert any(text.startswith(ONE_DIRECTION) for text in one["notes"])
    packets = {name: capture["decoded"] for name, capture in one["captures"].items()}
    assert packets["island"] <= packets["link-sat"]
