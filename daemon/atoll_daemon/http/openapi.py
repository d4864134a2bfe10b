# SPDX-License-Identifier: Apache-2.0
"""The API as an OpenAPI 3.1 document (docs/openapi.json), made from the table of routes and their models."""

import functools
import inspect
import json
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any, cast

from aiohttp import web
from pydantic import TypeAdapter

from atoll_core.description.json_schema import schema_text
from atoll_core.description.raw_experiment import RawExperiment
from atoll_daemon.http import api_models
from atoll_daemon.http.request_parsing import JSON_TYPE, YAML_TYPES
from atoll_daemon.http.responses import LINES
from atoll_daemon.lab_daemon import LabDaemon

Handler = Callable[[LabDaemon, web.Request], Awaitable[dict[str, Any] | web.StreamResponse]]

DESCRIPTION = "description"
"""A body that is an experiment, or a change of the applied one."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One request. The docstring of ``handler`` is its summary, and its description, for users.

    ``body``: DESCRIPTION, or the class of an object; ``lines``: JSON lines are possible as answer.

    ``errors``: possible statuses in addition to those of every request (400, 401, 403, 404, 405, 500).
    """

    method: str
    path: str
    handler: Handler
    answer: type[Any]
    query: type[api_models.Request] = api_models.Request
    body: str | type[api_models.Request] | None = None
    lines: bool = False
    success: int = 200
    errors: tuple[int, ...] = (409,)


_COMMON_ERRORS = (400, 401, 403, 500)
_STATUS_TEXTS = {
    400: "Invalid parameters, or a body that is not JSON or YAML",
    401: "The token is missing or wrong",
    403: "The request is not allowed for this client",
    404: "Not found",
    408: "The body took too long",
    409: "Not possible now: no lab is up, another lab is up, or it is busy",
    413: "The body is too large for a description",
    415: "The body has an unsupported media type",
    422: "The request is wrong or cannot be realised; every mistake with its place",
    500: "Internal error of the daemon",
    502: "A switch, a host or the controller failed; the previous configuration is active",
    503: "A prerequisite is missing on this machine, or the daemon is ending",
}
_TOPICS = (  # with the paths below /v1 that are about them
    ("lab", "The lab that is up", ("status", "lab", "picture")),
    ("switches", "Switches and boxes", ("switches", "boxes")),
    (
        "experiment",
        "The applied experiment and changes of it",
        ("experiment", "chains", "latencies", "plan", "diff", "apply", "trace"),
    ),
    ("runs", "Measurements", ("runs", "calibrations", "replays")),
    ("events", "Events and samples", ("events", "openapi.json")),
)
_REF = "#/components/schemas/{model}"


@functools.cache
def document(routes: tuple[Endpoint, ...]) -> dict[str, Any]:
    """The OpenAPI document of these routes."""
    schemas: dict[str, Any] = {}
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route, schemas)
    schemas["Experiment"] = _experiment(schemas)
    error_responses = _error_responses(schemas)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "atoll",
            "version": version("atoll"),
            "summary": "The lab that is up: its state, its activity, and changes under traffic.",
            "description": "docs/api.md has examples. `*_ns` are durations in ns, or times in ns since 1970.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "http://127.0.0.1:8080", "description": "`atoll up LAB --listen 8080`"}],
        "security": [{"token": []}],
        "tags": [{"name": name, "description": description} for name, description, _ in _TOPICS],
        "paths": paths,
        "components": {
            "securitySchemes": {
                "token": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "For TCP. On the Unix socket the kernel identifies the user.",
                }
            },
            "responses": error_responses,
            "schemas": dict(sorted(schemas.items())),
        },
    }


def document_text(routes: tuple[Endpoint, ...]) -> str:
    """The document as committed."""
    return json.dumps(document(routes), indent=2) + "\n"


def _operation(route: Endpoint, schemas: dict[str, Any]) -> dict[str, Any]:
    names = re.findall(r"\{(\w+)\}", route.path)
    summary, _, description = (inspect.getdoc(route.handler) or "").partition("\n\n")
    operation: dict[str, Any] = {
        "operationId": route.handler.__name__,
        "tags": [name for name, _, paths in _TOPICS if route.path.split("/")[2] in paths],
        "summary": summary.removesuffix("."),
    }
    if description:
        operation["description"] = description.replace("\n", " ")
    path_parameters = [{"name": name, "in": "path", "required": True, "schema": {"type": "string"}} for name in names]
    if parameters := [*path_parameters, *_query_parameters(route.query, schemas)]:
        operation["parameters"] = parameters
    if route.body is not None:
        operation["requestBody"] = _request_body(route.body, schemas)
    errors = sorted({*_COMMON_ERRORS, *route.errors, *((404,) if names else ())})
    operation["responses"] = {
        str(route.success): {"description": "Done", "content": _content(route, schemas)},
        **{str(status): {"$ref": f"#/components/responses/{status}"} for status in errors},
    }
    return operation


def _query_parameters(model: type[api_models.Request], schemas: dict[str, Any]) -> list[dict[str, Any]]:
    schema = _schema_of(model, schemas, mode="validation")
    return [
        {
            "name": name,
            "in": "query",
            "description": part.pop("description", ""),
            "required": name in schema.get("required", ()),
            "schema": part,
        }
        for name, part in cast("dict[str, dict[str, Any]]", schema.get("properties", {})).items()
    ]


def _request_body(body: str | type[api_models.Request], schemas: dict[str, Any]) -> dict[str, Any]:
    if isinstance(body, str):
        schema = {
            "description": "A whole experiment if it has a name, else a JSON merge patch (RFC 7396) of the applied "
            "one. An empty body is the applied experiment.",
            "anyOf": [{"$ref": _REF.format(model="Experiment")}, {"type": "object", "not": {"required": ["name"]}}],
        }
    else:
        schema = _reference(body, schemas, mode="validation")
    content = {media: {"schema": schema} for media in (JSON_TYPE, YAML_TYPES[0])}
    return {"required": not isinstance(body, str), "content": content}


def _content(route: Endpoint, schemas: dict[str, Any]) -> dict[str, Any]:
    schema = {"type": "object"} if route.answer is dict else _reference(route.answer, schemas, mode="serialization")
    if route.answer in (api_models.EventResponse, api_models.PointsResponse):
        return {LINES: {"schema": schema}}
    lines = {LINES: {"schema": {"type": "object", "required": ["type"]}}} if route.lines else {}
    return {"application/json": {"schema": schema}, **lines}


def _error_responses(schemas: dict[str, Any]) -> dict[str, Any]:
    content = {"application/json": {"schema": _reference(api_models.RefusalResponse, schemas, mode="serialization")}}
    return {str(status): {"description": text, "content": content} for status, text in _STATUS_TEXTS.items()}


def _reference(model: type[Any], schemas: dict[str, Any], *, mode: Any) -> dict[str, Any]:
    """A reference to the schema of a class, which is added to ``schemas``."""
    schemas[model.__name__] = _schema_of(model, schemas, mode=mode)
    return {"$ref": _REF.format(model=model.__name__)}


def _schema_of(model: type[Any], schemas: dict[str, Any], *, mode: Any) -> dict[str, Any]:
    schema = TypeAdapter(model).json_schema(mode=mode, ref_template=_REF)
    for name, part in schema.pop("$defs", {}).items():
        schemas[name] = _tidied(part)
    return _tidied(schema)


def _experiment(schemas: dict[str, Any]) -> dict[str, Any]:
    """The committed schema of experiment.yaml, with its definitions added to ``schemas``."""
    schema = json.loads(schema_text(RawExperiment).replace('"#/$defs/', '"#/components/schemas/'))
    del schema["$schema"]
    schemas |= schema.pop("$defs", {})
    return schema


def _tidied(schema: Any) -> Any:
    """The schema without the titles that pydantic makes from names, and with every paragraph of a text on one line."""
    if isinstance(schema, list):
        return [_tidied(part) for part in cast("list[Any]", schema)]
    if isinstance(schema, str):
        return re.sub(r"(?<!\n)\n(?!\n)", " ", schema)
    if not isinstance(schema, dict):
        return schema
    return {
        key: {name: _tidied(value) for name, value in cast("dict[str, Any]", part).items()}
        if key == "properties"
        else _tidied(part)
        for key, part in cast("dict[str, Any]", schema).items()
        if key != "title" or isinstance(part, dict)
    }
