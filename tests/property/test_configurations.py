# SPDX-License-Identifier: Apache-2.0
"""Runs as samples: whatever the runs are, each is counted, invalid or there again, and once."""

from pathlib import Path
from statistics import median

from hypothesis import given
from hypothesis import strategies as st

from atoll_analysis.figures.run_figures import FIGURES
from atoll_studies.results.comparison import arrange
from atoll_studies.results.results import ConfigurationFigure, StudyRun, estimate
from atoll_studies.study_directory import Provenance

Made = list[tuple[str, bool, int, int]]  # a run each: its kind, whether it is valid, its seed, what it measured
RUNS: st.SearchStrategy[Made] = st.lists(
    st.tuples(st.sampled_from("ab"), st.booleans(), st.integers(1, 3), st.integers(0, 4)), min_size=1
)


@given(RUNS)
def test_every_run_has_one_place_in_one_configuration(runs: Made) -> None:
    kinds, valid, measured = [run[0] for run in runs], [run[1] for run in runs], [run[2:] for run in runs]
    places, repeats = arrange(kinds, valid, measured)
    assert set(places) == set(range(len(set(kinds))))
    assert len({*zip(kinds, places, strict=True)}) == len(set(kinds)), "a kind is one configuration"
    counted = [run for run in range(len(runs)) if valid[run] and repeats[run] is None]
    assert len({(kinds[run], measured[run]) for run in counted}) == len(counted), "no sample twice"
    for run, earlier in enumerate(repeats):
        if earlier is not None:
            assert valid[run]
            assert earlier in counted
            assert earlier < run
            assert (kinds[run], measured[run]) == (kinds[earlier], measured[earlier])
    without = [place for place in set(places) if not any(places[run] == place for run in counted)]
    assert without == sorted(set(places))[len(set(places)) - len(without) :], "those without a sample come last"


def estimated(runs: Made, compared: dict[str, str]) -> dict[str, ConfigurationFigure]:
    """The goodput of each kind, 0 being not measured. ``compared``: kinds with those that they are compared with."""
    kinds = sorted({run[0] for run in runs})
    made = [
        StudyRun(
            number=number,
            path=Path(str(number)),
            configuration=kinds.index(kind),
            seed=seed,
            verdict="valid",
            remarks=(),
            figures={**dict.fromkeys(FIGURES), "goodput": float(value) if value else None},
            provenance=Provenance(None, "virtual", "7.2"),
        )
        for number, (kind, _, seed, value) in enumerate(runs)
    ]
    baselines = [kinds.index(other) if (other := compared.get(kind)) in kinds else None for kind in kinds]
    return {kinds[each.configuration]: each for each in estimate(made, baselines)}


@given(RUNS)
def test_medians_lie_between_the_least_and_the_greatest(runs: Made) -> None:
    """And figures that a run lacks are no zeros."""
    found = estimated(runs, {})
    for kind in "ab":
        values = [float(run[3]) for run in runs if run[0] == kind and run[3]]
        assert (kind in found) == bool(values)
        if values:
            each = found[kind]
            assert (each.median.runs, each.median.value) == (len(values), median(values))
            assert min(values) <= each.median.low <= each.median.value <= each.median.high <= max(values)


@given(RUNS)
def test_pairs_are_of_common_seeds_and_turn_about(runs: Made) -> None:
    there = estimated(runs, {"b": "a"}).get("b")
    back = estimated(runs, {"a": "b"}).get("a")
    seeds = [{run[2] for run in runs if run[0] == kind and run[3]} for kind in "ab"]
    common = len(seeds[0] & seeds[1])
    first = there.difference if there else None
    second = back.difference if back else None
    assert (first is not None) == (second is not None) == (common > 0)
    if first is not None and second is not None:
        assert first.median.runs == second.median.runs == common
        assert (first.higher, first.lower) == (second.lower, second.higher)
        assert first.higher + first.lower <= common
