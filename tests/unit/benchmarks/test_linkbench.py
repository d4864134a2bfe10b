# SPDX-License-Identifier: Apache-2.0
"""What benchmarks/link makes of stamps and figures: the ideal link, windows, medians, promises, its file."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from atoll_core.errors import RunDirError
from linkbench import figures_file, ideal, result_file, table
from linkbench.collect import HERE, Result, Selection, summaries
from linkbench.probe import RECORD
from linkbench.promises import verdicts

ARRIVALS = st.lists(
    st.tuples(st.integers(0, 3_000_000), st.integers(42, 1500)), min_size=1, max_size=60
)  # gap before it in ns, IP bytes


def line(figures: dict[str, float], repeat: int = 0, box: str = "engine", case: str = "idle") -> dict[str, Any]:
    """What a worker writes."""
    named = {"scenario": "delay", "case": case, "box": box, "place": HERE, "repeat": repeat, "seconds": 1.0}
    return named | {"time": 0.0, "figures": figures, "curves": {"of": figures["mean_us"]}}


@given(ARRIVALS)
def test_an_ideal_link_sends_one_packet_after_the_other(arrivals: list[tuple[int, int]]) -> None:
    """The closed form is what one gets by following each packet: wait for the one ahead, serialise, propagate."""
    times = np.cumsum([gap for gap, _ in arrivals]).astype(np.float64)
    sizes = np.array([size for _, size in arrivals])
    free_ns, expected = 0.0, []
    for arrival, size in zip(times, sizes, strict=True):
        free_ns = max(free_ns, arrival) + size * 8e9 / 16_000_000
        expected.append(free_ns + 2_000_000)
    assert ideal.departures_ns(times, sizes, 16_000_000, 2_000_000) == pytest.approx(expected, abs=1)


def test_a_perfect_link_is_at_most_one_packet_above_its_rate_in_any_window() -> None:
    """1500-byte packets at 8 Mbit/s leave every 1.5 ms: a window of 100 ms holds 67 or 66 of 66.67."""
    times = np.arange(1000) * 1_500_000.0
    sizes = np.full(1000, 1500)
    found = ideal.windows(times, sizes, 8_000_000)
    assert 0 <= found.most_over_bits <= 12_000
    assert found.most_under_bits <= 12_000
    assert found.bits.sum() == pytest.approx(12_000 * 1000, rel=0.1)
    assert ideal.mean_rate_bit_s(times, sizes) == pytest.approx(8e6)


def test_a_burst_after_a_stop_stands_out_in_the_windows() -> None:
    """Packets held back for 20 ms and sent at once are as many bits too few and too many."""
    times = np.arange(1000) * 1_500_000.0
    times[(times > 500e6) & (times < 520e6)] = 520e6
    found = ideal.windows(times, np.full(1000, 1500), 8_000_000)
    assert 10 < found.most_over_bits / 12_000 < 16
    assert 10 < found.most_under_bits / 12_000 < 16


def test_errors_are_summed_up_by_their_amounts() -> None:
    """A departure before its time is an error like one after it, and is told separately."""
    summary = ideal.summary_us(np.array([-4_000.0, 2_000.0, 6_000.0]))
    assert (summary["mean_us"], summary["max_us"], summary["early_us"]) == (4.0, 6.0, 4.0)


def test_a_record_is_read_as_the_probe_writes_it() -> None:
    """24 bytes, as in probe/src/record.rs."""
    assert RECORD.itemsize == 24
    names = RECORD.names or ()
    assert names == ("t_ns", "seq", "wire_bytes", "flow", "vlan")
    assert [RECORD[name].itemsize for name in names] == [8, 8, 4, 2, 2]


def test_the_median_of_the_repeats_counts_and_is_the_one_that_is_drawn() -> None:
    """Failures are told beside what worked."""
    lines = [line({"mean_us": mean}, repeat) for repeat, mean in enumerate((9.0, 1.0, 5.0))]
    lines.append(line({"mean_us": 0.0}, 3) | {"failed": "it broke"})
    del lines[3]["figures"]
    (result,) = summaries(lines)
    assert result.median("mean_us") == 5.0
    assert result.curves == {"of": 5.0}
    assert result.failed == ["it broke"]


def test_a_promise_is_held_against_the_engine_alone() -> None:
    """mean < 50 us: 60 breaks it, whatever a peer has."""
    results = summaries([line({"mean_us": 60.0}), line({"mean_us": 600.0}, box="rattan")])
    (verdict,) = verdicts(results)
    assert (verdict.case, verdict.kept) == ("idle", False)
    assert "| NO" in table.promises([verdict])


def test_a_peer_is_shown_as_a_ratio_to_the_engine() -> None:
    """Rows of a case stand below each other, the engine first."""
    shown = table.tables(summaries([line({"mean_us": 30.0, "p50_us": 30.0}, box="rattan"),
                                    line({"mean_us": 10.0, "p50_us": 10.0})]))  # fmt: skip
    rows = [row.split("|") for row in shown.splitlines() if row.startswith("| idle")]
    assert [row[2].strip() for row in rows] == ["engine", "rattan"]
    assert rows[1][-2].strip() == "3"


def test_later_results_replace_those_of_their_name_in_the_file(tmp_path: Path) -> None:
    """The others stay; a file of something else is refused."""
    path = tmp_path / "results.json"
    first = summaries([line({"mean_us": 1.0}), line({"mean_us": 2.0}, case="16 Mbit/s")])
    result_file.save(path, {}, result_file.merged(result_file.load(path), first), [])
    second = summaries([line({"mean_us": 3.0})])
    merged = result_file.merged(result_file.load(path), second)
    assert [result.median("mean_us") for result in merged] == [3.0, 2.0]
    path.write_text(json.dumps({"format": 99, "results": []}))
    with pytest.raises(RunDirError, match="format 99"):
        result_file.load(path)


def test_a_selection_names_scenarios_or_single_cases() -> None:
    """Nothing named: everything."""
    assert Selection().wants("rate", "8 Mbit/s")
    one = Selection(only=("rate/8 Mbit/s", "delay"))
    assert one.wants("rate", "8 Mbit/s")
    assert not one.wants("rate", "16 Mbit/s")
    assert one.wants("delay", "idle")


def test_a_result_without_a_figure_has_no_median() -> None:
    """Peers do not tell what the engine tells."""
    assert Result("delay", "idle", "tbf", HERE, 0.0, 1.0, {}).median("mean_us") is None


def test_figures_are_a_file_of_their_folder(tmp_path: Path) -> None:
    stored = tmp_path / "results.json"
    results = summaries([line({"mean_us": 10.0, "p50_us": 10.0})])
    result_file.save(stored, {"cpu": "a processor"}, results, [])
    assert figures_file.render(stored, results, tmp_path) == [tmp_path / "link.md"]
    assert "a processor" in (tmp_path / "link.md").read_text()
