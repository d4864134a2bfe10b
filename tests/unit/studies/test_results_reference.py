# SPDX-License-Identifier: Apache-2.0
"""The reference of results follows the code: every table, column and key has a meaning in it."""

from typer.testing import CliRunner

from atoll_analysis.figures.run_figures import FIGURES
from atoll_analysis.summary_keys import codes, key_groups
from atoll_analysis.tables.table_schemas import TABLES, unit_of
from atoll_cli.main import app
from tests.support.result_schema import mismatches


def test_the_command_prints_every_table_key_code_and_figure() -> None:
    printed = CliRunner().invoke(app, ["results"]).output
    keys = {name for _, _, of_group in key_groups() for name, _, _ in of_group}
    for name in (*TABLES, *keys, *codes(), *FIGURES):
        assert f"`{name}`" in printed or f"| {name} |" in printed, name


def test_every_key_and_column_has_a_meaning() -> None:
    keys = [(group, key) for group, _, of_group in key_groups() for key in of_group]
    assert len(keys) > 200
    assert [f"{group}.{name}" for group, (name, _, meaning) in keys if not meaning] == []
    assert [group for group, meaning, _ in key_groups() if not meaning] == []
    columns = [(table, name, column) for table, schema in TABLES.items() for name, column in schema.columns.items()]
    assert [f"{table}.{name}" for table, name, (_, meaning) in columns if not meaning] == []


def test_units_are_read_from_names() -> None:
    units = {"goodput_mbit_s": "Mbit/s", "rate_bit_s": "bit/s", "t_ns": "ns", "seconds": "s", "lost_packets": "packets"}
    assert {name: unit_of(name) for name in units} == units
    assert unit_of("loss_bytes_captures") == "bytes"
    assert [unit_of(name) for name in ("bytes_share", "flows", "server", "utilisation")] == [""] * 4


def test_a_summary_that_is_not_as_documented_is_noticed() -> None:
    assert mismatches({"a": 1}, dict[str, float | None], "s") == []
    assert mismatches({"a": "1"}, dict[str, float | None], "s") == ["s.a: '1' is not <class 'float'>"]
    assert mismatches([True], list[int], "s") == ["s[0]: True is not <class 'int'>"]


def test_the_heading_of_a_section_is_no_part_of_a_meaning() -> None:
    (summary,) = [keys for group, _, keys in key_groups() if group == "Summary"]
    meanings = {name: meaning for name, _, meaning in summary}
    assert meanings["chains"] == "traffic of each chain by its name; empty if one chain carries everything"
    assert meanings["loss_bursts"].startswith("bursts of lost packets")
    assert meanings["bottleneck"].startswith("name of the slowest link's box; queue, utilisation")
