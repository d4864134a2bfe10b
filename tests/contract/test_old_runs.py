# SPDX-License-Identifier: Apache-2.0
"""Run directories that an earlier revision made: they are read, compared and replayed (tests/data/old-runs)."""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from atoll_core.platforms import LabTarget
from atoll_daemon.http.tcp_listener import ListenAddress
from atoll_daemon.replays.replay_index import Replays
from atoll_daemon.replays.watch_server import serving_page
from tests.support.result_schema import assert_as_documented


@pytest.fixture
def old_runs(tmp_path: Path, project: Path) -> list[Path]:
    """The two runs, seeds 1 and 2, below tmp_path as below `runs`."""
    shutil.unpack_archive(project / "tests/data/old-runs/runs.tar.xz", tmp_path / "quick")
    return sorted((tmp_path / "quick").iterdir())


def report(*words: str | Path) -> Any:
    """What `atoll report --json` prints."""
    command = [sys.executable, "-m", "atoll_cli.main", "report", "--json", *words]
    return json.loads(subprocess.run(command, capture_output=True, text=True, check=True, timeout=100).stdout)


def summary(run: Path) -> dict[str, Any]:
    return json.loads((run / "summary.json").read_text())


NEW = {
    "caveat_codes",
    "concurrency",
    "flow_classes",
    "flow_packets",
    "flow_shares",
    "flows_failed_by",
    "initial_window",
    "long_flows_mean",
    "loss_bursts",
    "low_priority",
    "ping_sojourn",
    "reason_codes",
    "regime",
    "settings",
    "standing_queue",
    "transfers",
}
"""Keys that the summary did not have when these runs were made (docs/decisions/0048-figures-are-added.md)."""


def test_analysis_of_old_runs_gives_the_summary_of_then(old_runs: list[Path]) -> None:
    """Verdict, and every value of each key of then, from captures and logs; the path and one note's words differ.

    An interval in which a packet found no room was not counted as one with a full queue then.
    """
    assert len(old_runs) == 2
    for run in old_runs:
        then = summary(run)
        then["notes"] = [note.replace("clock stands still", "clock stops") for note in then["notes"]]
        assert then["verdict"] == "valid"
        answer = report(run)
        assert answer.pop("report") == str(run / "report.html")
        now = summary(run)
        assert answer == now
        for before, after in ((then, now), (then["links"]["sat"], now["links"]["sat"])):
            assert before["queue_full_s"] <= after["queue_full_s"] <= 0.3
            before["queue_full_s"] = after["queue_full_s"]
        link = now["links"]["sat"]
        assert [link.pop(f"{which}_rate_bit_s") for which in ("mean", "least")] == [link["rate_bit_s"]] * 2
        assert link.pop("mean_packet_bytes") > 40
        for volume in (*now["servers"].values(), *now["clients"].values()):
            assert (volume.pop("goodput_mbit_s") > 0) == (volume["goodput_bytes"] > 0)
            assert 0 <= volume.pop("loss_fraction", 0.0) < 1
        assert {key: now[key] for key in then} == {**then, "run_dir": str(run)}
        assert now.keys() - then.keys() == NEW
        assert_as_documented(run)
        assert (run / "report.html").stat().st_size > 100_000


def test_old_runs_are_compared(old_runs: list[Path]) -> None:
    """With each other and with one that this revision has analysed: they differ in the seed alone."""
    report(old_runs[1])
    comparison = report("--compare", *old_runs)
    assert comparison["unlike"] == ["seed"]
    assert [run["verdict"] for run in comparison["runs"]] == ["valid", "valid"]
    measured = [run["figures"] for run in comparison["runs"]]
    assert [each["base RTT"] for each in measured] == [summary(run)["base_rtt_ms"] for run in old_runs]
    assert [each["largest ping sojourn"] for each in measured] == [summary(run)["sojourn_max_ms"] for run in old_runs]


async def test_old_runs_are_replayed(old_runs: list[Path], tmp_path: Path) -> None:
    """By the API of `atoll watch`: the listing, the drawing of the lab, the events, the points of every second."""
    token = "correct-horse-battery-staple"
    async with (
        serving_page(LabTarget(), ListenAddress.parse("0"), token, Replays(tmp_path)) as page,
        aiohttp.ClientSession(page.removesuffix("watch/"), headers={"Authorization": f"Bearer {token}"}) as session,
    ):

        async def get(path: str) -> str:
            async with session.get(path, raise_for_status=True) as response:
                return await response.text()

        listed = json.loads(await get("v1/replays"))["replays"]
        assert [(each["id"], each["verdict"], each["outcome"]) for each in listed] == [
            (f"quick-{run.name}", "valid", "completed") for run in reversed(old_runs)
        ]
        for run in old_runs:
            replay = json.loads(await get(f"v1/replays/quick-{run.name}"))
            assert [hop["name"] for hop in replay["picture"]["chains"][0]["hops"]] == ["tap-w", "sat", "tap-i"]
            steps = [event["step"] for event in replay["events"] if event["type"] == "step"]
            assert (steps[0], steps[-1], len(steps)) == ("apply", "record", 10)
            seconds = [json.loads(line) for line in (await get(f"v1/replays/quick-{run.name}/points")).splitlines()]
            kinds = {point[0] for second in seconds for point in second["points"]}
            assert {"link", "ping", "load", "event"} <= kinds
            window = replay["window"]
            assert sum(second["t_ns"] >= window["start_ns"] for second in seconds) >= 4
