# SPDX-License-Identifier: Apache-2.0
"""Every table, column and key of the results of runs and studies, as Markdown: ``atoll results``."""

import inspect
from collections.abc import Iterable, Iterator, Sequence

from atoll_analysis.figures.run_figures import FIGURES
from atoll_analysis.summary_keys import Keys, codes, key_groups
from atoll_analysis.tables.table_schemas import TABLES, TableSchema, unit_of
from atoll_studies.results.result_tables import (
    FIGURE_COLUMNS,
    ORIGIN_COLUMNS,
    REGIME_COLUMN,
    VARIATE_COLUMN,
    column_name,
)

_HEAD = """\
# Results

Every table, column, unit and key of the files with results.

| file | content |
|---|---|
| `RUN/tables/*.parquet` | "Tables of a run": packets, flows, queues, losses |
| `RUN/summary.json` | "Summary of a run": verdict and figures |
| `STUDY/runs.csv`, `runs.parquet` | "Tables of a study": a row for each run |
| `STUDY/figures.csv`, `figures.parquet` | "Tables of a study": figures over its runs |

The unit of a column or key is at the end of its name: `goodput_mbit_s` is in Mbit/s. In Parquet files it is also in
the metadata, under `unit:` and the name of the column. Hosts have their names of lab.yaml.
"""

_TABLES_HEAD = """\
## Tables of a run

`t_ns` and other instants are CLOCK_REALTIME. Bytes are those of IP packets unless a column says otherwise.
"""

_SUMMARY = """\
## Summary of a run

None (`null` in JSON) means: not measured. Shares are fractions of 1.
"""

_CODES = """\
### Codes of findings

The verdict is made of findings. Scripts compare their codes, as their texts may change.
"""

_STUDY = """\
## Tables of a study

Both tables begin with a column for each factor of the study. The names of figures are those of
"Figures by name".

`runs`: a row for each run whose figures count; a figure that no run measured has no column. If the transfer of a run
did not finish, `transfer_time_s` and `transfer_rate_mbit_s` are empty, and the columns `transfer_time_at_least_s` and
`transfer_rate_at_most_mbit_s` have the time that was available, and the rate at which it would have finished in this
time.
"""

_FIGURES_HEAD = """\
## Figures by name

`atoll report --figure`, `figures` of a study and the tables of studies use these names. The slowest link is meant
where a figure is one of a link. Losses by a cause that no run had are left out.
"""

_RUN_MEANINGS = {
    "seed": "seed of the run",
    "verdict": "`valid`, `valid with caveats` or `invalid`",
    REGIME_COLUMN: "regime of the slowest link; empty without a link",
    VARIATE_COLUMN: "mean size of the first flows of the channels; only with `control`",
    "point": "id of the run in its study",
    "run": "the run directory",
    "wall_s": "wall time of the run",
    "platform": "`virtual`, `mininet`, `hardware` or `captures`",
    "revision": "revision of atoll",
    "kernel": "release of the kernel",
    "kernel_mode": "mode of the virtual kernel",
}


def _interval_columns(name: str, meaning: str) -> dict[str, str]:
    """The columns of an estimate and its interval."""
    return {
        name: meaning,
        f"{name}_low": f"{meaning}, lower end of its confidence interval",
        f"{name}_high": f"{meaning}, upper end of its confidence interval",
        f"{name}_level": f"{meaning}, level of this interval: 0.95 is 95 %",
    }


_CENSORING_SIGNS = {
    name: f"a sign for each of `{name}`, `{name}_low` and `{name}_high`: `=`; `>`: greater than the number; `<`: less "
    "than it; `~`: a lower limit only; `?`: not known"
    for name in ("median", "quartile_1", "quartile_3", "difference")
}
_FIGURE_MEANINGS = {
    "figure": "name of the figure",
    "unit": "its unit",
    "runs": "runs that measured it, or that show its limits alone: a transfer did not finish",
    "finished": "runs whose transfer finished; empty for other figures",
    **_interval_columns("median", "median over the runs"),
    **_interval_columns("quartile_1", "first quartile"),
    **_interval_columns("quartile_3", "third quartile"),
    **{f"{name}_limits": text for name, text in _CENSORING_SIGNS.items()},
    "least": "minimum",
    "greatest": "maximum; empty if a transfer did not finish",
    **_interval_columns("mean", "mean over the runs"),
    **_interval_columns("controlled", "mean corrected by the control variate"),
    "control_correlation": "correlation of the figure with the control variate",
    "stopped": "of the figure of `stop`: why no more repetitions were made",
    "replaced": "runs whose first attempt failed or was invalid",
    "median_without_replaced": "median of the other runs",
    "median_of_first_attempts": "median of all first attempts, whatever their verdicts",
    "baseline": "label of the configuration that this one is compared with",
    "pairs": "pairs of runs with the same seed",
    **_interval_columns("difference", "median difference from the baseline in these pairs"),
    "pairs_higher": "pairs in which this configuration has the higher value",
    "pairs_lower": "pairs in which this configuration has the lower value; pairs that are not known count as neither",
}


def reference() -> str:
    """Return all of it as Markdown."""
    return "\n".join(_page())


def _page() -> Iterator[str]:
    yield _HEAD
    yield _TABLES_HEAD
    for name, schema in TABLES.items():
        yield from _table_of(name, schema)
    yield _SUMMARY
    for group in key_groups():
        yield from _keys_of(*group)
    yield _CODES
    yield from _rows(("code", "meaning"), ((f"`{code}`", meaning) for code, meaning in codes().items()))
    yield _STUDY
    yield from _columns(_RUN_MEANINGS, ("seed", "verdict", REGIME_COLUMN, VARIATE_COLUMN, *ORIGIN_COLUMNS))
    yield "`figures`: a row for each combination of levels and each figure.\n"
    yield from _columns(_FIGURE_MEANINGS, FIGURE_COLUMNS)
    yield _FIGURES_HEAD
    figures = ((name, unit, f"`{column_name(name, unit)}`") for name, (unit, *_) in FIGURES.items())
    yield from _rows(("figure", "unit", "column"), figures)


def _columns(meanings: dict[str, str], columns: Iterable[str]) -> Iterator[str]:
    return _rows(("column", "unit", "meaning"), ((f"`{name}`", unit_of(name), meanings[name]) for name in columns))


def _table_of(name: str, schema: TableSchema) -> Iterator[str]:
    yield f"### `{name}`\n"
    yield f"A row is {schema.rows}.\n"
    yield from _rows(
        ("column", "type", "unit", "meaning"),
        ((f"`{key}`", str(kind()), unit_of(key), meaning) for key, (kind, meaning) in schema.columns.items()),
    )


def _keys_of(group: str, description: str, keys: Keys) -> Iterator[str]:
    yield f"### {group}\n"
    yield inspect.cleandoc(description).replace("``", "`") + "\n"
    yield from _rows(
        ("key", "type", "unit", "meaning"),
        (
            (f"`{name}`", kind.replace("|", "or"), unit_of(name), meaning.replace("``", "`"))
            for name, kind, meaning in keys
        ),
    )


def _rows(head: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    yield f"| {' | '.join(head)} |"
    yield "|" + "---|" * len(head)
    for row in rows:
        yield f"| {' | '.join(row)} |"
    yield ""
