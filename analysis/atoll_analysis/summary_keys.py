# SPDX-License-Identifier: Apache-2.0
"""Keys of summary.json and codes of findings with their meanings, read from the types that the analysis is written in.

The meaning of a key or code is the comment at its line in the source.
"""

import inspect
import io
import re
import tokenize
from collections.abc import Iterator
from typing import Any, get_args, is_typeddict

from atoll_analysis.summary import Summary
from atoll_analysis.verdict.findings import FindingCode

_KEY = re.compile(r"^    (\w+)(?:: | = )")


Keys = tuple[tuple[str, str, str], ...]
"""Keys of one type of object: name, type as Python writes it (``dict[str, LinkFigures]``) and meaning of each."""


def key_groups() -> list[tuple[str, str, Keys]]:
    """Return the name, the meaning and the keys of ``Summary`` and of every type below it, in order of first use."""
    return [(kind.__name__, inspect.getdoc(kind) or "", _keys(kind)) for kind in _types_below(Summary)]


def codes() -> dict[str, str]:
    """Return the meaning of each code of a finding."""
    return _meanings(FindingCode)


def _types_below(kind: type[Any]) -> list[type[Any]]:
    kinds: dict[type[Any], None] = {kind: None}
    for hint in inspect.get_annotations(kind, eval_str=True).values():
        for part in _typed_dicts(hint):
            kinds |= dict.fromkeys(_types_below(part))
    return list(kinds)


def _typed_dicts(hint: Any) -> Iterator[type[Any]]:
    if is_typeddict(hint):
        yield hint
    for part in get_args(hint):
        yield from _typed_dicts(part)


def _keys(kind: type[Any]) -> Keys:
    meanings = _meanings(kind)
    return tuple((name, _text(hint), meanings.get(name, "")) for name, hint in inspect.get_annotations(kind).items())


def _text(hint: Any) -> str:
    if isinstance(hint, type) and not get_args(hint):
        return hint.__name__
    text = re.sub(r"(?:\w+\.)+(\w+)", r"\1", str(hint))
    return re.sub(r"NotRequired\[(.*)\]$", r"\1", text)


def _meanings(kind: type[Any]) -> dict[str, str]:
    """Return the comment of each key or member: at the end of its statement, or on lines of its own above it.

    A comment that an empty line follows is the heading of a section.
    """
    meanings: dict[str, str] = {}
    name = ""
    comment_lines: list[str] = []
    for token in tokenize.generate_tokens(io.StringIO(inspect.getsource(kind)).readline):
        is_own_line = token.line.lstrip().startswith("#")
        if not token.line.strip():
            comment_lines = []
        if token.type == tokenize.COMMENT:
            text = token.string.removeprefix("#").strip()
            if is_own_line:
                comment_lines.append(text)
            else:
                line = _KEY.match(token.line)
                name = line[1] if line else name
                meanings[name] = f"{meanings.get(name, '')} {text}".strip()
        elif (line := _KEY.match(token.line)) and line[1] != name:
            name = line[1]
            if comment_lines:
                meanings[name], comment_lines = " ".join(comment_lines), []
    return meanings
