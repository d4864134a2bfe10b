# SPDX-License-Identifier: Apache-2.0
"""Shapes and versions of agents' messages: the fields that the daemon reads, with their types (docs/contracts.md).

A real machine may send anything. Messages of another shape are refused here, so that code can rely on their fields.
Fields that are not listed are not checked.
"""

import itertools
import json
from collections.abc import Iterable, Mapping
from types import NoneType
from typing import Any, NoReturn, cast

from atoll_core.errors import plain

Shape = Any
"""A type or several; ``[shape]``; ``{str: shape}`` for any keys, ``{"key": shape}`` for required ones."""

_FIGURES = {str: frozenset({int, float, NoneType})}
_TEXT_OR_NONE = frozenset({str, NoneType})

_INTERFACE = {"mac": str, "mtu": int, "up": bool, "carrier": bool, "addresses": [str]}
_HOST_FIGURES = {str: {"interfaces": {str: _FIGURES}, "tcp": _FIGURES}}

METRICS: Shape = {
    "t_ns": int,
    "machine": _FIGURES,
    "agent": _FIGURES,
    "clock": frozenset({dict, NoneType}),
    "hosts": _HOST_FIGURES,
    "jobs": {str: {"host": _TEXT_OR_NONE}},
    "unread": [str],
}
EXIT: Shape = {"job": str, "code": frozenset({int, NoneType}), "signal": _TEXT_OR_NONE}
HELLO: Shape = {"version": str, "arch": str}
ANSWERS: Mapping[str, Shape] = {
    "start": {"pid": int},
    "set": {"was": {"sysctls": [[str]], "offloads": {str: {str: str}}}},
    "sysctl": {"was": [[str]]},
    "read": {"sysctls": {str: str}, "offloads": {str: {str: str}}, "counters": {str: {str: int}}},
    "clock": {"t_ns": int},
    "describe": {
        **dict.fromkeys(("hostname", "kernel"), str),
        **dict.fromkeys(("user", "cpus", "memory_bytes", "free_bytes"), int),
        **dict.fromkeys(("may_configure", "may_capture"), bool),
        "missing_tools": [str],
        "interfaces": {str: _INTERFACE},
    },
    "owners": {"owners": [str]},
    "spool": {"path": str},
    "files": {"spool": {"path": str, "files": [{"name": str, "bytes": int}]}},
    "sample": {"sample": {"machine": _FIGURES, "hosts": _HOST_FIGURES, "unread": [str]}},
}
"""Shapes of answers by operation; answers of other operations are empty."""


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")


_DECODER = json.JSONDecoder(parse_constant=_refuse)


def parse_json(text: str) -> Any:
    """Parse JSON. Raises ValueError for invalid JSON, for NaN and infinities, and for nesting that is too deep."""
    try:
        return _DECODER.decode(text)
    except RecursionError:
        raise ValueError("the JSON is nested too deeply") from None


def printable(value: Any) -> Any:
    """A copy with every string, including keys, made safe to print (:func:`atoll_core.errors.plain`)."""
    if isinstance(value, str):
        return plain(value)
    if isinstance(value, dict):
        return {plain(key): printable(item) for key, item in cast("dict[str, Any]", value).items()}
    if isinstance(value, list):
        return [printable(item) for item in cast("list[Any]", value)]
    return value


def first_deviation(value: Any, shape: Shape, where: str = "it") -> str | None:
    """The first deviation from the shape, in words; None if there is none."""
    if isinstance(shape, (type, frozenset)):
        return None if _has_type(value, shape) else f"{where} has a wrong type"
    if isinstance(shape, list):
        if not isinstance(value, list):
            return f"{where} is not a list"
        items = enumerate(cast("list[Any]", value))
        return _first(first_deviation(item, shape[0], f"{where}[{index}]") for index, item in items)
    if not isinstance(value, dict):
        return f"{where} is not an object"
    fields, shapes = cast("dict[str, Any]", value), cast("dict[Any, Shape]", shape)
    if str not in shapes:
        missing = _first(f"{where} has no {key}" for key in shapes if key not in fields)
        return missing or _first(first_deviation(fields[key], shape, f"{where}.{key}") for key, shape in shapes.items())
    inner = shapes[str]
    if isinstance(inner, (type, frozenset)):  # counters: thousands in the metrics of a large lab
        return _first(f"{where}.{key} has a wrong type" for key, item in fields.items() if not _has_type(item, inner))
    return _first(first_deviation(item, inner, f"{where}.{key}") for key, item in fields.items())


def _has_type(value: Any, types: Any) -> bool:
    """Whether a value has exactly this type; a bool is not an int."""
    return type(value) is types if isinstance(types, type) else type(value) in types


def _first(deviations: Iterable[str | None]) -> str | None:
    return next((deviation for deviation in deviations if deviation is not None), None)


ProtocolVersion = tuple[int, int]
"""Major and minor version. Major versions are incompatible; a minor version adds parts that others may ignore."""

SUPPORTED_VERSIONS: tuple[ProtocolVersion, ...] = ((2, 3),)
"""The highest minor version of each major one."""


def common_version(own: Iterable[ProtocolVersion], agents: Iterable[ProtocolVersion]) -> ProtocolVersion | None:
    """The highest common major version with the lower of both minor versions; None if there is none.

    The rule is in docs/contracts.md. The agent applies it, too (hosts/crates/agent/src/protocol.rs).
    """
    pairs = itertools.product(own, agents)
    return max((min(version, other) for version, other in pairs if version[0] == other[0]), default=None)


def greeting_versions(hello: Mapping[str, Any]) -> tuple[ProtocolVersion, ...]:
    """The versions in an agent's greeting; agents of 1.0 named their major version only. Empty if it is invalid."""
    try:
        return tuple((int(major), int(minor)) for major, minor in hello.get("speaks") or [(hello["protocol"], 0)])
    except (KeyError, TypeError, ValueError):
        return ()


def version_text(versions: Iterable[ProtocolVersion]) -> str:
    """Versions as text: ``1.1``, ``1.0 and 2.3``."""
    return " and ".join(f"{major}.{minor}" for major, minor in versions) or "no version"
