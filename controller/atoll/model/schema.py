# SPDX-License-Identifier: Apache-2.0
"""JSON Schemas of both descriptions, for editors. The committed files lie in ``schemas/``.

``python -m atoll.model.schema`` writes them anew; a test fails when they are out of date. A schema says what can be
said of one file alone: ``atoll check`` finds more.
"""

import json
from pathlib import Path
from typing import Any, cast

from pydantic.json_schema import GenerateJsonSchema

from atoll.model.raw import Raw
from atoll.model.raw_experiment import RawExperiment
from atoll.model.raw_lab import RawLab
from atoll.model.units import Duration, Rate, Size

FOLDER = Path(__file__).parent / "schemas"
_BY_NAME = ("properties", "$defs")  # mappings from names of the description's own; one may be "title"
SCHEMAS: dict[str, type[Raw]] = {"lab.schema.json": RawLab, "experiment.schema.json": RawExperiment}


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
        **_untitled(model.model_json_schema(schema_generator=_Generator)),
    }
    return json.dumps(schema, indent=2) + "\n"


def write_schemas() -> None:
    """Write the committed schemas."""
    FOLDER.mkdir(exist_ok=True)
    for file, model in SCHEMAS.items():
        (FOLDER / file).write_text(schema_text(model), encoding="utf-8")


def _untitled(schema: Any) -> Any:
    """Without pydantic's titles, which repeat the keys: editors would show them instead of the descriptions."""
    if isinstance(schema, list):
        return [_untitled(part) for part in cast("list[Any]", schema)]
    if not isinstance(schema, dict):
        return schema
    parts = {
        key: part
        for key, part in cast("dict[str, Any]", schema).items()
        if not (key == "title" and isinstance(part, str))
    }
    return {
        key: {name: _untitled(entry) for name, entry in part.items()} if key in _BY_NAME else _untitled(part)
        for key, part in parts.items()
    }


if __name__ == "__main__":
    write_schemas()
