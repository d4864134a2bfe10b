# SPDX-License-Identifier: Apache-2.0
"""Runs as samples: whatever the runs are, each is counted, invalid or there again, and once."""

from statistics import median

from hypothesis import given
from hypothesis import strategies as st

from atoll_dashboards.compare.seed_groups import group, pairs

RUNS = st.lists(st.tuples(st.sampled_from("ab"), st.booleans(), st.integers(1, 3), st.integers(0, 4)), min_size=1)


@given(RUNS)
def test_every_run_has_one_place_in_one_group(runs: list[tuple[str, bool, int, int]]) -> None:
    kinds, valid = [run[0] for run in runs], [run[1] for run in runs]
    groups = group(kinds, valid, [run[2:] for run in runs])
    assert sorted(run for each in groups for run in each.runs) == list(range(len(runs)))
    for each in groups:
        assert len({kinds[run] for run in each.runs}) == 1
        assert sorted((*each.samples, *each.invalid, *(run for run, _ in each.again))) == list(each.runs)
        assert {run for run in each.runs if not valid[run]} == set(each.invalid)
        assert len({runs[run][2:] for run in each.samples}) == len(each.samples), "no sample twice"
        assert all(runs[run][2:] == runs[earlier][2:] and earlier < run for run, earlier in each.again)


@given(RUNS)
def test_medians_lie_between_the_least_and_the_greatest(runs: list[tuple[str, bool, int, int]]) -> None:
    """And figures that a run lacks are no zeros."""
    figures = [None if run[3] == 0 else float(run[3]) for run in runs]
    for each in group([run[0] for run in runs], [run[1] for run in runs], list(range(len(runs)))):
        measured = [found for run in each.samples if (found := figures[run]) is not None]
        spread = each.spread(figures)
        if spread is None:
            assert not measured
        else:
            assert (spread.samples, spread.median) == (len(measured), median(measured))
            assert (spread.least, spread.greatest) == (min(measured), max(measured))


@given(RUNS)
def test_pairs_are_of_common_seeds_and_turn_about(runs: list[tuple[str, bool, int, int]]) -> None:
    seeds, figures = [str(run[2]) for run in runs], [float(run[3]) for run in runs]
    groups = group([run[0] for run in runs], [run[1] for run in runs], list(range(len(runs))))
    first, last = groups[0], groups[-1]
    there, back = pairs(first, last, figures, seeds), pairs(last, first, figures, seeds)
    assert there.seeds == len({seeds[run] for run in first.samples} & {seeds[run] for run in last.samples})
    assert (there.higher, there.lower) == (back.lower, back.higher)
    assert there.higher + there.lower <= there.seeds
