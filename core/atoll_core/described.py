# SPDX-License-Identifier: Apache-2.0
"""Settings as descriptions have them: mappings of keys, lists and values, and the text that a user writes for each.

Values of the model state theirs by a property ``described``: a mapping in the shape of the file, None for a setting
that is left out. ``--set KEY=TEXT`` takes the keys and texts.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from decimal import Decimal
from enum import Enum
from typing import Any, cast

_UNQUOTED = re.compile(r"(?![-+.]?[0-9][0-9_.a-zA-Z+-]*$|(?i:null|true|false)$|-(?: |$))[\w./+-]+(?:[: ]?[\w./%+-]+)*")
"""Text that YAML reads as text without quotes, also within brackets."""


class _Null(Enum):
    """What a change writes to remove a setting."""

    NULL = "null"

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True, slots=True)
class FileName:
    """The name of a file in a description. Two are equal if the contents of the files are."""

    name: str = field(compare=False)
    content: Any

    def __str__(self) -> str:
        return self.name


class Described:
    """Base of dataclasses that a description states by the names of their compared fields, without ``name``."""

    __slots__ = ()

    @property
    def described(self) -> dict[str, Any]:
        """As in a description."""
        all_fields = fields(cast("Any", self))
        return settings_of(self, *(item.name for item in all_fields if item.compare and item.name != "name"))


def settings_of(value: Any, *keys: str) -> dict[str, Any]:
    """Return the settings of a value: those of its fields that ``keys`` name."""
    parts = {key: getattr(value, key) for key in keys}
    return {key: getattr(part, "described", part) for key, part in parts.items()}


def percent(share: float) -> str:
    """Write a share of one in per cent, exactly."""
    return f"{(100 * Decimal(repr(share))).normalize():f} %"


def changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings that differ, as they are after a change, which removes those that it leaves out."""
    names = [name for name in {**after, **before} if before.get(name) != after.get(name)]
    return {name: _Null.NULL if after.get(name) is None else after[name] for name in names}


def setting_text(setting: Any) -> str:
    """Return a setting on one line of YAML; a mapping without what is left out."""
    match setting:
        case None:
            return "null"
        case bool():
            return str(setting).lower()
        case int() | float():
            return repr(setting).removesuffix(".0")
        case dict():
            parts = cast("dict[str, Any]", setting).items()
            return f"{{{', '.join(f'{key}: {setting_text(part)}' for key, part in parts if part is not None)}}}"
        case list() | tuple():
            return f"[{', '.join(map(setting_text, cast('list[Any]', setting)))}]"
        case str() | FileName() if not _UNQUOTED.fullmatch(str(setting)):
            return json.dumps(str(setting), ensure_ascii=False)
        case _:
            return str(setting)
