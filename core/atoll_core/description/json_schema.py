# SPDX-License-Identifier: Apache-2.0
"""JSON Schemas of the descriptions, for editors. The committed files are in ``atoll_core/schemas/``.

``python -m atoll_core.description.json_schema`` writes them; a test fails when they are out of date. A schema describes
one file alone: ``atoll check`` finds more.
"""

import json
from pathlib import Path
from typing import Any, cast

from pydantic.json_schema import GenerateJsonSchema
from ruamel.yaml import YAML

from atoll_core.description.raw_experiment import RawExperiment
from atoll_core.description.raw_inventory import RawInventory
from atoll_core.description.raw_lab import RawLab
from atoll_core.description.raw_study import RawStudy
from atoll_core.description.raw_types import Raw
from atoll_core.units import Duration, Rate, Size

FOLDER = Path(__file__).parents[1] / "schemas"
_YAML: Any = YAML(typ="safe", pure=True)
_NAME_KEYED = ("properties", "$defs")  # keys there are names, and "title" could be one
SCHEMAS: dict[str, type[Raw]] = {
    "lab.schema.json": RawLab,
    "experiment.schema.json": RawExperiment,
    "inventory.schema.json": RawInventory,
    "study.schema.json": RawStudy,
}


class _Generator(GenerateJsonSchema):
    """Defaults as a user would write them."""

    def encode_default(self, dft: Any) -> Any:
        if isinstance(dft, (Rate, Duration, Size)):
            return str(dft)
        if isinstance(dft, Raw):
            return {}  # all of a mapping's own defaults
        return super().encode_default(dft)


def schema_text(model: type[Raw]) -> str:
    """The schema of a description, as committed."""
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **_adapted(model.model_json_schema(schema_generator=_Generator)),
    }
    return json.dumps(schema, indent=2) + "\n"


def write_schemas() -> None:
    """Write the committed schemas."""
    FOLDER.mkdir(exist_ok=True)
    for file, model in SCHEMAS.items():
        (FOLDER / file).write_text(schema_text(model), encoding="utf-8")


def _adapted(schema: Any) -> Any:
    """Adapt pydantic's schema for editors.

    Titles are removed: they repeat the keys and would be shown instead of descriptions. Examples are parsed as YAML,
    the lines of a description joined.
    Where keys are names, other keys are refused: pydantic leaves them unchecked.
    """
    if isinstance(schema, list):
        return [_adapted(part) for part in cast("list[Any]", schema)]
    if not isinstance(schema, dict):
        return schema
    adapted: dict[str, Any] = {}
    for key, part in cast("dict[str, Any]", schema).items():
        if key in _NAME_KEYED:
            adapted[key] = {name: _adapted(entry) for name, entry in part.items()}
        elif key == "examples":
            adapted[key] = [_YAML.load(example) if isinstance(example, str) else example for example in part]
        elif key == "description":
            adapted[key] = "\n\n".join(" ".join(paragraph.split()) for paragraph in part.split("\n\n"))
        elif key != "title":
            adapted[key] = _adapted(part)
    if "patternProperties" in adapted:
        adapted["additionalProperties"] = False
    return adapted


if __name__ == "__main__":
    write_schemas()
