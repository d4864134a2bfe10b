# SPDX-License-Identifier: Apache-2.0
"""A YAML file as plain data with the line number of every entry.

ruamel.yaml composes the text into nodes. This module converts the nodes to dicts, lists and scalars, and to a table of
lines, so that a message about ``("hosts", "w1", "ip")`` can name ``lab.yaml:22``. It knows nothing of laboratories.
Aliases and merge keys (``<<``) work; tags are refused.
"""

import functools
import os
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, cast

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.reader import ReaderError

from atoll_core.errors import Diagnostic

KeyPath = tuple[str | int, ...]
"""The path to an entry of a description: keys of mappings and indices of lists, from the top."""

_MAX_BYTES = 4_000_000  # a full lab of some 150 machines is 20 kB
_MAX_NODES = 100_000  # nested aliases multiply ("billion laughs")
_MAX_DIGITS = 40  # Python refuses to print integers of thousands
_YAML_TAG = "tag:yaml.org,2002:"


class _Mark(Protocol):
    line: int  # from 0


class _Node(Protocol):
    """The attributes of ruamel.yaml's untyped nodes."""

    id: str  # "scalar", "sequence" or "mapping"
    tag: object
    value: Any  # text, list of nodes, or list of (key node, node)
    style: str | None  # of a scalar: None if plain, else its quote
    start_mark: _Mark


@dataclass(frozen=True, slots=True)
class Document:
    """One description: its tree and the line of every entry.

    ``tree`` is None when the text is not a mapping; ``mistakes`` has the reason. Otherwise ``mistakes`` has the errors
    of the YAML that leave a usable tree, such as a key given twice. ``settings``: settings of the command line
    (atoll_core.description.overrides), by their key path.
    """

    file: str
    tree: dict[str, Any] | None
    lines: Mapping[KeyPath, int]
    mistakes: tuple[Diagnostic, ...]
    settings: Mapping[KeyPath, str] = field(default_factory=dict[KeyPath, str])

    def line(self, key_path: KeyPath) -> int:
        """The line of ``key_path``, or of the nearest entry around it that is in the file."""
        while key_path not in self.lines:
            if not key_path:
                return 1
            key_path = key_path[:-1]
        return self.lines[key_path]

    def where(self, key_path: KeyPath) -> str:
        """``lab.yaml:12``; the file alone for a value of the command line."""
        line = self.line(key_path)
        return f"{self.file}:{line}" if line else self.file

    def mistake(self, key_path: KeyPath, message: str) -> Diagnostic:
        """A mistake at ``key_path``; for a value from the command line it names the setting."""
        for length in range(len(key_path), 0, -1):
            if (setting := self.settings.get(key_path[:length])) is not None:
                return Diagnostic(self.file, 0, f"--set {setting}: {message}", key_path)
        return Diagnostic(self.file, self.line(key_path), message, key_path)


def read_document(path: Path) -> Document:
    """Read and compose a file; errors become mistakes, never an exception."""
    text = read_text(path, "YAML", _MAX_BYTES)
    return (
        Document(text.file, None, {}, (text,)) if isinstance(text, Diagnostic) else compose_document(text, label(path))
    )


def read_text(path: Path, kind: str, max_bytes: int) -> str | Diagnostic:
    """The text of a regular UTF-8 file, or the mistake that prevents reading it; ``kind``: the kind of file."""
    file = label(path)
    try:
        with open(path, "rb", opener=_open_nonblocking) as opened:  # Path.open takes no opener
            if not stat.S_ISREG(os.fstat(opened.fileno()).st_mode):
                return Diagnostic(file, 0, f"is not a regular file; give a {kind} file")
            content = opened.read(max_bytes + 1)
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        return Diagnostic(file, 0, _read_error_text(error, kind))
    if len(content) > max_bytes:
        return Diagnostic(file, 0, f"is larger than {max_bytes // 10**6} MB, the limit for a description")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        return Diagnostic(file, line, f"byte 0x{content[error.start]:02x} is not UTF-8; save the file as UTF-8 text")


def compose_document(text: str, file: str) -> Document:
    """Compose the document in ``text``; ``file`` is its name in messages."""
    try:
        root = _compose(text)
    except ReaderError as error:
        position, character = cast("tuple[int, int]", (cast(Any, error).position, cast(Any, error).character))
        line = text.count("\n", 0, position) + 1
        return _unreadable(file, line, f"character U+{character:04X} is not allowed in YAML; remove it")
    except MarkedYAMLError as error:
        mark: _Mark | None = cast(Any, error).problem_mark or cast(Any, error).context_mark
        line = min(mark.line + 1, _last_line(text)) if mark else 1
        return _unreadable(file, line, f"not valid YAML: {_problem(error)}")
    except YAMLError as error:
        return _unreadable(file, 1, f"not valid YAML: {str(error).splitlines()[0]}")
    except RecursionError:
        return _unreadable(file, 1, "nested too deeply to be a description")
    if root is None:
        return _unreadable(file, 1, "the file is empty; a description begins with 'name: ...'")
    if root.id != "mapping":
        shape = "a list" if root.id == "sequence" else "a single word"
        line = root.start_mark.line + 1
        return _unreadable(file, line, f"{shape}, but a description begins with keys, such as 'name: island'")
    return _Builder(file, _last_line(text)).document(root)


def label(path: Path) -> str:
    """The name of a file in messages: relative to the working directory when it is below, else as given.

    Unprintable characters are replaced, so it is always one line.
    """
    absolute = os.path.normpath(Path.cwd() / path)  # not Path.resolve: symbolic links keep the name the user knows
    folder = f"{Path.cwd()}/"
    name = absolute.removeprefix(folder) if absolute.startswith(folder) else os.path.normpath(path)
    return "".join(character if character.isprintable() else "?" for character in name)


def _open_nonblocking(name: str, flags: int) -> int:
    return os.open(name, flags | os.O_NONBLOCK)  # a FIFO without a writer would never open


def _read_error_text(error: OSError | ValueError, kind: str) -> str:
    if isinstance(error, FileNotFoundError):
        return "there is no such file"
    if isinstance(error, IsADirectoryError):
        return f"is a directory; give a {kind} file"
    reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return f"cannot be read: {reason}"


def _unreadable(file: str, line: int, message: str) -> Document:
    return Document(file, None, {}, (Diagnostic(file, line, message),))


def _last_line(text: str) -> int:
    return max(1, len(text.rstrip().splitlines()))  # YAML ends lines where splitlines does


@functools.lru_cache(maxsize=8)  # the configurations of a study have the same few labs
def _compose(text: str) -> _Node | None:
    yaml: Any = YAML(typ="safe", pure=True)
    yaml.composer.warn_double_anchors = False  # a warning would be printed; YAML allows it
    return cast("_Node | None", yaml.compose(text))


def _problem(error: Any) -> str:
    """The parser's message on one line; for frequent errors with a remedy."""
    problem = " ".join(str(error.problem or error.context or "").split())
    if "'\\t'" in problem:
        return "the line is indented with a tab; use spaces"
    if problem == "but found another document":
        return "a second document begins here ('---'); a description is one document"
    if problem.startswith("expected ',' or "):
        return f"{problem.partition(', but got')[0]} before this; a bracket is not closed, or a comma is missing"
    if problem == "found unexpected end of stream" and "quoted" in str(error.context):
        return "a quotation mark is opened and not closed"
    if problem.startswith("expected <block end>"):
        return "wrong indentation; align the entries of one level"
    if problem == "mapping values are not allowed here":
        return "a ':' in the wrong place; check the indentation, and put text with ': ' in quotes"
    return f"{problem} {error.context}" if error.context else problem


class _Builder:
    """Converts nodes to plain data, and collects lines and mistakes."""

    def __init__(self, file: str, last_line: int) -> None:
        self.file = file
        self.last_line = last_line
        self.lines: dict[KeyPath, int] = {}
        self.mistakes: list[Diagnostic] = []
        self.nodes = 0

    def document(self, root: _Node) -> Document:
        try:
            tree = self.mapping(root, (), frozenset())
        except _TooLargeError:
            return _unreadable(self.file, 1, f"more than {_MAX_NODES} entries, including repetitions by aliases")
        self.lines[()] = self.line_of(root)
        return Document(self.file, tree, self.lines, tuple(self.mistakes))

    def line_of(self, node: _Node) -> int:
        return min(node.start_mark.line + 1, self.last_line)

    def count(self) -> None:
        self.nodes += 1
        if self.nodes > _MAX_NODES:
            raise _TooLargeError

    def build(self, node: _Node, key_path: KeyPath, key_line: int, ancestors: frozenset[int]) -> Any:
        self.count()
        if id(node) in ancestors:
            self.mistakes.append(
                Diagnostic(self.file, key_line, "an alias refers to a node that contains the alias; remove it")
            )
            return None
        if not str(node.tag).startswith(_YAML_TAG):
            self.mistakes.append(Diagnostic(self.file, key_line, f"tag {node.tag} has no meaning here; remove it"))
        if node.id == "scalar":
            empty = node.value == "" and node.style is None  # its mark is that of the next token
            self.lines[key_path] = key_line if empty else max(key_line, self.line_of(node))
            return _scalar(node)
        self.lines[key_path] = key_line
        if node.id == "sequence":
            items = cast("list[_Node]", node.value)
            return [
                self.build(item, (*key_path, index), max(key_line, self.line_of(item)), ancestors | {id(node)})
                for index, item in enumerate(items)
            ]
        return self.mapping(node, key_path, ancestors)

    def mapping(self, node: _Node, key_path: KeyPath, ancestors: frozenset[int]) -> dict[str, Any]:
        built: dict[str, Any] = {}
        first_lines: dict[str, int] = {}
        ancestors_and_self = ancestors | {id(node)}
        for key, child in self.pairs(node):
            line = self.line_of(key)
            if key.value in first_lines:
                message = f"key {key.value!r} is here twice, first at line {first_lines[key.value]}; keep one of them"
                self.mistakes.append(Diagnostic(self.file, line, message))
                continue
            first_lines[key.value] = line
            built[key.value] = self.build(child, (*key_path, key.value), line, ancestors_and_self)
        for source in self.merged(node, ancestors_and_self):
            for key, child in self.pairs(source):
                if key.value not in built:
                    built[key.value] = self.build(
                        child, (*key_path, key.value), self.line_of(key), ancestors_and_self | {id(source)}
                    )
        return built

    def pairs(self, node: _Node) -> Iterator[tuple[_Node, _Node]]:
        """The pairs of a mapping with text as key, merge keys left out."""
        for key, child in cast("list[tuple[_Node, _Node]]", node.value):
            if key.id != "scalar":
                self.mistakes.append(
                    Diagnostic(self.file, self.line_of(key), "a key must be text, not a list or mapping")
                )
            elif not _is_merge(key):
                yield key, child

    def merged(self, node: _Node, ancestors: frozenset[int]) -> Iterator[_Node]:
        """The mappings merged into ``node``, in order of precedence."""
        for key, child in cast("list[tuple[_Node, _Node]]", node.value):
            if not _is_merge(key):
                continue
            sources = cast("list[_Node]", child.value) if child.id == "sequence" else [child]
            for source in sources:
                self.count()
                if source.id != "mapping" or id(source) in ancestors:
                    message = "'<<' merges a mapping that is not around it, such as '<<: *defaults'"
                    self.mistakes.append(Diagnostic(self.file, self.line_of(key), message))
                    continue
                yield source
                yield from self.merged(source, ancestors | {id(source)})


class _TooLargeError(Exception):
    """The document has too many nodes."""


def _is_merge(key: _Node) -> bool:
    return key.id == "scalar" and key.value == "<<" and key.style is None


def _scalar(node: _Node) -> Any:
    """The scalar as bool, int, float, None or text; it stays text if it cannot be read as its type."""
    text: str = node.value
    match str(node.tag).removeprefix(_YAML_TAG):
        case "null":
            return None
        case "bool":
            return text.lower() in {"true", "yes", "on", "y"}  # all but true: only in a file with %YAML 1.1
        case "int":
            return _integer(text)
        case "float":
            return _float(text)
        case _:
            return text


def _integer(text: str) -> int | str:
    digits = text.replace("_", "")
    if len(digits) > _MAX_DIGITS:
        return text
    try:
        has_prefix = digits.lstrip("+-")[:2].lower() in {"0x", "0o", "0b"}
        return int(digits, 0 if has_prefix else 10)
    except ValueError:  # %YAML 1.1's sexagesimal
        return text


def _float(text: str) -> float | str:
    try:
        return float(text.lower().replace("_", "").replace(".inf", "inf").replace(".nan", "nan"))
    except ValueError:
        return text
