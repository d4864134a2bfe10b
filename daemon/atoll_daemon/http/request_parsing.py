# SPDX-License-Identifier: Apache-2.0
"""Read the body and the parameters of a request within limits of size, depth and time."""

import asyncio
import codecs
import json
from collections.abc import Iterator
from typing import Any, TypeVar, cast

from aiohttp import web
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from atoll_core.description.yaml_document import Document, compose_document
from atoll_core.errors import Diagnostic, shown
from atoll_daemon.http.http_errors import RequestError

BODY = "body"
"""The name of a request's body in messages that otherwise name a file."""

JSON_TYPE = "application/json"  # RFC 8259
YAML_TYPES = ("application/yaml", "application/x-yaml", "text/yaml")  # RFC 9512

MOST_BODY_BYTES = 128 * 1024  # a full laboratory with some 150 machines is 20 kB
MOST_BODY_ENTRIES = 5_000
MOST_BODY_DEPTH = 32
BODY_TIMEOUT_S = 20.0

M = TypeVar("M", bound=BaseModel)


async def read_body_document(request: web.Request) -> Document:
    """Read the body as a description; an empty body is an empty mapping.

    Raises RequestError: 400 invalid UTF-8, JSON or YAML; 408 too slow; 413 too large; 415 unsupported type.
    """
    text, is_json = await _read_text(request)
    if not text.strip():
        return Document(BODY, {}, {(): 0}, ())
    if is_json:
        document = _json_document(text)
    else:
        document = await asyncio.to_thread(compose_document, text, BODY)
    if document.tree is None:
        raise _request_error(400, document.mistakes)
    _require_small(document.tree)
    if document.mistakes:
        raise _request_error(400, document.mistakes)
    return document


async def read_model(request: web.Request, model: type[M]) -> M:
    """Read the body as a model. Raises RequestError as :func:`read_body_document`; 422 for invalid content."""
    document = await read_body_document(request)
    try:
        return model.model_validate(document.tree)
    except ValidationError as error:
        mistakes = [document.mistake(details["loc"], _message(details)) for details in error.errors(include_url=False)]
        raise _request_error(422, mistakes) from None


def parameters(request: web.Request, model: type[M]) -> M:
    """Read the query parameters. Raises RequestError (400) that names every wrong one."""
    values: dict[str, Any] = {}
    for name in request.query:
        texts = request.query.getall(name)
        is_list = name in model.model_fields and model.model_fields[name].annotation == list[str]
        values[name] = texts if is_list or len(texts) > 1 else texts[0]
    try:
        return model.model_validate(values)
    except ValidationError as error:
        names = ", ".join(model.model_fields) or "none"
        mistakes = [
            Diagnostic("", 0, _message(details, f"; known parameters: {names}"), (f"?{details['loc'][0]}",))
            for details in error.errors(include_url=False)
        ]
        text = "\n".join(f"{mistake.key_path[0]}: {mistake.message}" for mistake in mistakes)
        raise RequestError(400, text, mistakes=mistakes) from None


async def read_bytes(request: web.Request) -> bytes:
    """Read the body as bytes. Raises RequestError: 408 too slow; 413 too large."""
    try:
        async with asyncio.timeout(BODY_TIMEOUT_S):
            return await _read_all(request)
    except TimeoutError:
        raise RequestError(408, f"the body was not complete after {BODY_TIMEOUT_S:g} s") from None


async def _read_text(request: web.Request) -> tuple[str, bool]:
    is_json = _is_json(request)
    content = await read_bytes(request)
    try:
        return content.decode("utf-8-sig"), is_json
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise _request_error(400, [Diagnostic(BODY, line, f"byte 0x{content[error.start]:02x} is not UTF-8")]) from None


def _is_json(request: web.Request) -> bool:
    """Whether a body is JSON, not YAML, by the Content-Type header, which a request without a body need not have."""
    if not request.body_exists:
        return True
    if request.content_type in (JSON_TYPE, *YAML_TYPES):
        charset = request.charset or "utf-8"
        if not _is_utf8(charset):
            raise RequestError(415, f"charset {shown(charset)}: descriptions are UTF-8", where="Content-Type")
        return request.content_type == JSON_TYPE
    media_type = request.headers.get("Content-Type")
    problem = f"unsupported media type {shown(media_type)}" if media_type else "media type missing"
    raise RequestError(415, f"{problem}; send Content-Type: application/json or application/yaml", where="Content-Type")


def _is_utf8(charset: str) -> bool:
    try:
        return codecs.lookup(charset).name in ("utf-8", "ascii")
    except (LookupError, ValueError):
        return False


async def _read_all(request: web.Request) -> bytes:
    """Read the body, but not more than the limit."""
    too_large = RequestError(413, f"the body is larger than {MOST_BODY_BYTES // 1024} KiB, the limit for descriptions")
    if (request.content_length or 0) > MOST_BODY_BYTES:
        raise too_large
    content = bytearray()
    async for part in request.content.iter_any():
        content += part
        if len(content) > MOST_BODY_BYTES:
            raise too_large
    return bytes(content)


def _json_document(text: str) -> Document:
    try:
        tree = json.loads(text, parse_constant=_refuse_constant, object_pairs_hook=_object_of_unique_keys)
    except json.JSONDecodeError as error:
        return _unreadable(error.lineno, f"not valid JSON: {error.msg} (column {error.colno})")
    except RecursionError:
        return _unreadable(0, f"nested deeper than {MOST_BODY_DEPTH} levels")
    except ValueError as error:  # ours, and Python's about integers of thousands of digits
        return _unreadable(0, f"not valid JSON: {error}")
    if not isinstance(tree, dict):
        return _unreadable(0, f"{shown(tree)} is not an object")
    return Document(BODY, cast("dict[str, Any]", tree), {(): 0}, ())


def _object_of_unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    tree = dict(pairs)
    if len(tree) < len(pairs):
        names = [name for name, _ in pairs]
        duplicate = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"duplicate key {shown(duplicate)}; keep one of them")
    return tree


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not allowed in JSON")


def _unreadable(line: int, message: str) -> Document:
    return Document(BODY, None, {}, (Diagnostic(BODY, line, message),))


def _require_small(tree: dict[str, Any]) -> None:
    """Refuse deeply nested or long bodies before any recursive function reads them."""
    entries = 0
    level: list[Any] = [tree]
    for _ in range(MOST_BODY_DEPTH):
        level = [child for parent in level for child in _children(parent)]
        entries += len(level)
        if entries > MOST_BODY_ENTRIES:
            raise RequestError(413, f"the body has more than {MOST_BODY_ENTRIES} entries, the limit for descriptions")
        if not level:
            return
    raise _request_error(400, [Diagnostic(BODY, 0, f"nested deeper than {MOST_BODY_DEPTH} levels")])


def _children(tree: Any) -> Iterator[Any]:
    if isinstance(tree, dict):
        yield from cast("dict[str, Any]", tree).values()
    elif isinstance(tree, list):
        yield from cast("list[Any]", tree)


def _request_error(status: int, mistakes: list[Diagnostic] | tuple[Diagnostic, ...]) -> RequestError:
    return RequestError(status, "\n".join(map(str, mistakes)), mistakes=mistakes)


def _message(details: ErrorDetails, unknown_key_hint: str = "") -> str:
    """An error of pydantic in plain words."""
    name, value = str(details["loc"][-1]) if details["loc"] else "body", details.get("input")
    match details["type"]:
        case "missing":
            return f"{name} is missing"
        case "extra_forbidden":
            return f"unknown {shown(name)}{unknown_key_hint}"
        case "value_error":
            return str(cast(Any, details)["ctx"]["error"])
        case _:
            return f"{shown(value)}: {details['msg'][:1].lower()}{details['msg'][1:]}"
