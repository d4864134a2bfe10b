# SPDX-License-Identifier: Apache-2.0
"""docs/openapi.json is what the routes say, and holds together."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator
from ruamel.yaml import YAML

from atoll_daemon.http.openapi import document, document_text
from atoll_daemon.http.routes import ROUTES


def references(thing: Any) -> Iterator[str]:
    """Every reference in the document."""
    if isinstance(thing, dict):
        if isinstance(thing.get("$ref"), str):
            yield thing["$ref"]
        thing = list(thing.values())
    if isinstance(thing, list):
        for part in thing:
            yield from references(part)


def test_the_committed_document_is_what_the_routes_say(project: Path) -> None:
    """`python -m atoll_daemon.http.routes docs/openapi.json` writes it anew."""
    assert (project / "docs" / "openapi.json").read_text() == document_text(ROUTES)


def test_paragraphs_of_descriptions_have_no_line_ends() -> None:
    """Where a docstring of the models has one says nothing."""
    assert "\\n" not in document_text(ROUTES).replace("\\n\\n", "")


def test_every_reference_leads_somewhere() -> None:
    whole = document(ROUTES)
    found = set(references(whole))
    assert len(found) > 20
    for reference in found:
        at: Any = whole
        for key in reference.removeprefix("#/").split("/"):
            at = at[key]
        assert at


def test_every_schema_is_one() -> None:
    for schema in document(ROUTES)["components"]["schemas"].values():
        Draft202012Validator.check_schema(schema)


def test_requests_have_names_of_their_own() -> None:
    names = [route.handler.__name__ for route in ROUTES]
    assert len(set(names)) == len(names)


def test_the_shipped_experiments_are_what_the_document_calls_one(project: Path) -> None:
    """An experiment as one writes it into a file is a body as it stands."""
    whole = document(ROUTES)
    schema = {"$ref": "#/components/schemas/Experiment", "components": whole["components"]}
    for file in sorted((project / "examples").glob("*.yaml")):
        if "duration" in (tree := YAML(typ="safe", pure=True).load(file.read_text())):
            Draft202012Validator(schema).validate(json.loads(json.dumps(tree)))
