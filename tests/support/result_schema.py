# SPDX-License-Identifier: Apache-2.0
"""Results of real runs compared with the schemas that `atoll results` prints."""

import inspect
import json
from pathlib import Path
from types import UnionType
from typing import Any, NotRequired, Union, get_args, get_origin, is_typeddict

import polars as pl

from atoll_analysis.summary import Summary
from atoll_analysis.tables.table_schemas import schema_of


def assert_as_documented(run: Path) -> None:
    """Assert that tables have the columns, types and units of their schemas, and the summary the keys of its types."""
    tables = sorted((run / "tables").glob("*.parquet"))
    assert tables
    for path in tables:
        schema = schema_of(path.stem)
        found = pl.read_parquet_schema(path)
        assert dict(found) == {name: kind() for name, kind in schema.types.items()}, path.name
        units = {key: unit for key, unit in pl.read_parquet_metadata(path).items() if key.startswith("unit:")}
        assert units == schema.units, path.name
    assert list(mismatches(json.loads((run / "summary.json").read_text()), Summary, "summary")) == []


def mismatches(value: Any, hint: Any, at: str) -> list[str]:
    """Return where a JSON value is not of a type, a line each."""
    origin, parts = get_origin(hint), get_args(hint)
    if is_typeddict(hint):
        return _of_object(value, hint, at)
    if origin in (Union, UnionType):
        tried = [mismatches(value, part, at) for part in parts]
        return [] if [] in tried else min(tried, key=len)
    if origin is NotRequired:
        return mismatches(value, parts[0], at)
    if origin is list and isinstance(value, list):
        return [line for place, each in enumerate(value) for line in mismatches(each, parts[0], f"{at}[{place}]")]
    if origin is dict and isinstance(value, dict):
        return [line for key, each in value.items() for line in mismatches(each, parts[1], f"{at}.{key}")]
    if hint is Any:
        return []
    numeric = hint in (int, float)
    right = isinstance(value, (int, float) if hint is float else origin or hint)
    return [] if right and not (numeric and isinstance(value, bool)) else [f"{at}: {value!r:.60} is not {hint}"]


def _of_object(value: Any, kind: type[Any], at: str) -> list[str]:
    if not isinstance(value, dict):
        return [f"{at}: {value!r:.60} is no {kind.__name__}"]
    hints = inspect.get_annotations(kind, eval_str=True)
    optional = {name for name, hint in hints.items() if get_origin(hint) is NotRequired}
    return [
        *(f"{at}.{name}: not documented" for name in value.keys() - hints.keys()),
        *(f"{at}.{name}: missing" for name in hints.keys() - value.keys() - optional),
        *(line for name in value if name in hints for line in mismatches(value[name], hints[name], f"{at}.{name}")),
    ]
