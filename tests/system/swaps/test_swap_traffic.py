# SPDX-License-Identifier: Apache-2.0
"""Random chain swaps under traffic on a link of 100 Mbit/s and 250 ms: every packet of two streams is accounted for.

`make test` swaps eight times, `make test-swaps` a hundred times.
"""

import csv
import json
import statistics
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.guests.swap_guest import KILLED_AFTER
from tests.support.sandbox import ROOT, Sandbox
from tests.support.swap_proof import SWAPS, Verdict, judge

KILLS = max(2, SWAPS // 5)
_PER_SWAP_S = 10  # on a machine that is busy with other things, too

pytestmark = [pytest.mark.lab, pytest.mark.timeout(300 + 2 * SWAPS * _PER_SWAP_S)]


def swapped(directory: Path, **options: Any) -> dict[str, Any]:
    """Have the guest swap; its facts."""
    with Sandbox(directory) as sandbox:
        python = ROOT / ".venv" / "bin" / "python"
        words = ["env", f"PYTHONPATH={ROOT}", python, "-m", "tests.guests.swap_guest", directory, json.dumps(options)]
        done = sandbox.run(*words, limit_s=100 + options["swaps"] * _PER_SWAP_S)
        assert done.returncode == 0, done.stderr
    return json.loads((directory / "facts.json").read_text())


def answer(facts: dict[str, Any], verdicts: dict[str, Verdict]) -> str:
    """The figures, as a report has them."""
    swaps = [version["swap"] for version in facts["versions"][1:]]
    beyond = sorted(swap["beyond_drain_ns"] / 1e6 for swap in swaps if swap["beyond_drain_ns"])
    done = sum(swap["outcome"] == "new" for swap in swaps)
    lines = [f"{len(swaps)} swaps, {done} done, {facts['refused']} drawn and refused; {facts['datapath']} datapath"]
    if beyond:
        lines += [f"beyond the drain: median {statistics.median(beyond):.0f} ms, longest {beyond[-1]:.0f} ms"]
    lines += [f"{way}: {verdict}" for way, verdict in verdicts.items()]
    lines += [f"dropped by the link: {[facts['link']['end'][way]['dropped_packets'] for way in verdicts]}"]
    return "\n".join([*lines, f"dropped at the switches' own sockets: {facts['switch_drops']}"])


def hold(facts: dict[str, Any], out: Path) -> dict[str, Verdict]:
    """What must be so after any swaps: nothing lost, doubled or led astray but for what was counted elsewhere."""
    verdicts = {way: judge(out, way) for way in ("to_island", "to_world")}
    text = answer(facts, verdicts)
    print(text)
    assert not any(capture.get("dropped_packets") for capture in facts["captures"].values()), "the proof is complete"
    for way, verdict in verdicts.items():
        assert verdict.sent > 50 * (len(facts["versions"]) - 1), text
        assert (verdict.mixed, verdict.duplicated, verdict.at_taps) == (0, 0, 0), text
        link = facts["link"]["end"][way]
        assert verdict.in_link <= link["dropped_packets"] + link.get("lost_after_packets", 0), text
        assert verdict.turned_under_way > 0, text
    assert facts["load"]["flows_completed"] > 0, text
    failed = [flow for flow in _flows(out) if flow["outcome"].startswith("failed")]
    assert len(failed) == facts["load"]["flows_failed"], text
    breaks = list(_breaks(facts))
    whole = [
        flow
        for flow in failed
        if not any(int(flow["start_ns"]) <= reset and int(flow["end_ns"]) >= shift for shift, reset in breaks)
    ]
    assert not whole, f"{text}; failed without the end of a connection at a box: {whole}"
    print(f"{len(failed)} flows failed by {len(breaks)} shifts that broke connections")
    return verdicts


def _flows(out: Path) -> list[dict[str, str]]:
    with (out / "flows.csv").open() as file:
        return list(csv.DictReader(file))


def _breaks(facts: dict[str, Any]) -> Iterator[tuple[int, int]]:
    """When each swap ended the connections through boxes: from the shift of such a part until they were reset."""
    for swap in (version["swap"] for version in facts["versions"][1:]):
        if swap["outcome"] == "old" and any(swap["moved"]):
            yield swap["began_ns"], swap["ended_ns"]
        elif swap["outcome"] == "new":
            for part, (moved, shift) in enumerate(zip(swap["moved"], swap["shifts"], strict=False)):
                if moved and shift:
                    yield shift[0], swap["resets"][f"{part}"]


def test_no_packet_is_lost_doubled_or_led_astray_by_swaps(tmp_path: Path) -> None:
    """Half of the swaps add, remove or reorder routed boxes; the others move the link and the taps among them.

    In every second the switches' data planes follow their barriers by 0 to 3 s.
    """
    facts = swapped(tmp_path, swaps=SWAPS, lag_s=3.0, lag_every=2)
    swaps = [version["swap"] for version in facts["versions"][1:]]
    assert [(swap["outcome"], swap["exact"], swap["why"]) for swap in swaps] == [("new", True, "")] * SWAPS
    hold(facts, tmp_path)


def test_a_controller_killed_at_any_moment_of_a_swap_leaves_the_old_or_the_new_plan(tmp_path: Path) -> None:
    """Once it is back: the old one if it died before packets turned. Traffic does not notice its death."""
    facts = swapped(tmp_path, swaps=KILLS, kill=True, pause_s=0.0)
    swaps = [version["swap"] for version in facts["versions"][1:]]
    assert [swap["exact"] for swap in swaps] == [True] * KILLS, swaps
    assert [swap["outcome"] for swap in swaps[: len(KILLED_AFTER)]] == ["old", "new"], swaps
    undone = [swap for swap in swaps if swap["outcome"] == "old"]
    for swap in [*undone, *swaps[: len(KILLED_AFTER)]]:
        assert swap["began_ns"] < swap["killed_ns"] < swap["ended_ns"], swap
    assert all("the controller is gone" in swap["why"] for swap in undone), undone
    hold(facts, tmp_path)
