# SPDX-License-Identifier: Apache-2.0
"""YAML files as trees with lines: what is read, and how unreadable ones are told."""

# ruff: noqa: E501 (the tables of texts read best with a case on a line)

import os
from pathlib import Path

import pytest

from atoll_core.description.yaml_document import compose_document, label, read_document


def test_every_entry_knows_its_line():
    document = compose_document("a: 1\nb:\n  c: [x,\n    y]\n  d:\n    'text'\n", "f.yaml")
    assert document.tree == {"a": 1, "b": {"c": ["x", "y"], "d": "text"}}
    assert document.mistakes == ()
    places = {(): 1, ("a",): 1, ("b",): 2, ("b", "c"): 3, ("b", "c", 0): 3, ("b", "c", 1): 4, ("b", "d"): 6}
    assert {place: document.line(place) for place in places} == places


def test_a_place_that_is_not_there_has_the_line_of_what_is_around_it():
    document = compose_document("a: 1\nb:\n  c: 2\n", "f.yaml")
    assert document.line(("b", "missing", "deeper")) == 2


@pytest.mark.parametrize(
    ("text", "tree"),
    [
        ("a: 0x1F", {"a": 31}),
        ("a: 0o17", {"a": 15}),
        ("a: 010", {"a": 10}),
        ("a: 1_000", {"a": 1000}),
        ("a: on", {"a": "on"}),  # YAML 1.2: only true and false are booleans
        ("a: ~", {"a": None}),
        ("a:", {"a": None}),
        ("a: '5'", {"a": "5"}),
        ("a: 2026-01-01", {"a": "2026-01-01"}),
        ("a: 02:00:00:00:00:01", {"a": "02:00:00:00:00:01"}),
        ("1: x", {"1": "x"}),
        ("\ufeffa: 1", {"a": 1}),
        ("a: 1\r\nb: 2\r\n", {"a": 1, "b": 2}),
        ("a: &x {b: 1}\nc: *x", {"a": {"b": 1}, "c": {"b": 1}}),
        ("a: &x {b: 1, c: 1}\nd: {<<: *x, c: 2}", {"a": {"b": 1, "c": 1}, "d": {"b": 1, "c": 2}}),
        ("a: &x {b: 1}\nc: &y {b: 2, d: 2}\ne: {<<: [*x, *y]}", {"a": {"b": 1}, "c": {"b": 2, "d": 2}, "e": {"b": 1, "d": 2}}),
        ("a: &x 1\nb: &x 2\nc: *x", {"a": 1, "b": 2, "c": 2}),
    ],
)  # fmt: skip
def test_scalars_aliases_and_merge_keys_are_those_of_yaml_1_2(text, tree, recwarn):
    document = compose_document(text, "f.yaml")
    assert document.tree == tree
    assert document.mistakes == ()
    assert not recwarn.list


UNREADABLE = [
    ("", "f.yaml:1: the file is empty; a description begins with 'name: ...'"),
    ("# only a comment\n", "f.yaml:1: the file is empty; a description begins with 'name: ...'"),
    ("\n- a\n- b\n", "f.yaml:2: a list, but a description begins with keys, such as 'name: island'"),
    ("hello", "f.yaml:1: a single word, but a description begins with keys, such as 'name: island'"),
    ("a: [1,\nb: 2\n", "f.yaml:2: not valid YAML: expected ',' or ']' before this; a bracket is not closed, or a comma is missing"),
    ("a: {b: 1\nc: 2\n", "f.yaml:2: not valid YAML: expected ',' or '}' before this; a bracket is not closed, or a comma is missing"),
    ("a:\n  b: 1\n c: 2\n", "f.yaml:3: not valid YAML: wrong indentation; align the entries of one level"),
    ("a: 1\nb:\n\tc: 2\n", "f.yaml:3: not valid YAML: the line is indented with a tab; use spaces"),
    (
        "a: 1\n b: 2\n",
        "f.yaml:2: not valid YAML: a ':' in the wrong place; check the indentation, and put text with ': ' in quotes",
    ),
    ("a: 'x\n\n", "f.yaml:1: not valid YAML: a quotation mark is opened and not closed"),
    ("a: *x\n", "f.yaml:1: not valid YAML: found undefined alias 'x'"),
    ("a: 1\n---\nb: 2\n", "f.yaml:2: not valid YAML: a second document begins here ('---'); a description is one document"),
    ("a: 1\nb: \x07\n", "f.yaml:2: character U+0007 is not allowed in YAML; remove it"),
    ("a: " + "[" * 5000, "f.yaml:1: nested too deeply to be a description"),
    (
        "a: &a [x, x, x, x, x, x, x, x, x, x]\n"
        + "".join(f"{new}: &{new} [{', '.join(f'*{old}' for _ in range(10))}]\n" for old, new in zip("abcde", "bcdef", strict=True)),
        "f.yaml:1: more than 100000 entries, including repetitions by aliases",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("text", "message"), UNREADABLE, ids=[message for _, message in UNREADABLE])
def test_what_is_no_description_is_told_in_one_line(text, message):
    document = compose_document(text, "f.yaml")
    assert document.tree is None
    assert [str(mistake) for mistake in document.mistakes] == [message]


REPAIRABLE = [
    ("a: 1\nb: 2\na: 3\n", "f.yaml:3: key 'a' is here twice, first at line 1; keep one of them", {"a": 1, "b": 2}),
    ("a: !x 1\n", "f.yaml:1: tag !x has no meaning here; remove it", {"a": "1"}),
    ("a: &a [1, *a]\n", "f.yaml:1: an alias refers to a node that contains the alias; remove it", {"a": [1, None]}),
    ("a: 1\n? [x]\n: 2\n", "f.yaml:2: a key must be text, not a list or mapping", {"a": 1}),
    ("a: {<<: 5, b: 1}\n", "f.yaml:1: '<<' merges a mapping that is not around it, such as '<<: *defaults'", {"a": {"b": 1}}),
    ("a: &a {<<: *a, b: 1}\n", "f.yaml:1: '<<' merges a mapping that is not around it, such as '<<: *defaults'", {"a": {"b": 1}}),
]  # fmt: skip


@pytest.mark.parametrize(("text", "message", "tree"), REPAIRABLE, ids=[message for _, message, _ in REPAIRABLE])
def test_reading_goes_on_after_a_mistake_that_leaves_a_tree(text, message, tree):
    document = compose_document(text, "f.yaml")
    assert [str(mistake) for mistake in document.mistakes] == [message]
    assert document.tree == tree


def test_files_that_cannot_be_read_are_told_without_a_line(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    os.mkfifo("pipe")
    answer = [str(read_document(Path(name)).mistakes[0]) for name in ("missing.yaml", ".", "pipe", "a\0b", "x" * 300)]
    assert answer == [
        "missing.yaml: there is no such file",
        ".: is a directory; give a YAML file",
        "pipe: is not a regular file; give a YAML file",
        "a?b: cannot be read: embedded null byte",
        f"{'x' * 300}: cannot be read: File name too long",
    ]


def test_text_that_is_not_utf_8_is_told_with_its_line(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("latin.yaml").write_bytes("a: 1\nname: é\n".encode("latin-1"))
    assert (
        str(read_document(Path("latin.yaml")).mistakes[0])
        == "latin.yaml:2: byte 0xe9 is not UTF-8; save the file as UTF-8 text"
    )


def test_a_file_too_large_is_not_read_whole(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with Path("large.yaml").open("wb") as file:
        file.truncate(10**12)  # sparse
    assert (
        str(read_document(Path("large.yaml")).mistakes[0])
        == "large.yaml: is larger than 4 MB, the limit for a description"
    )


def test_files_are_called_as_the_user_sees_them(tmp_path, monkeypatch):
    (tmp_path / "below").mkdir()
    monkeypatch.chdir(tmp_path)
    assert label(tmp_path / "below/lab.yaml") == "below/lab.yaml"
    assert label(Path("below/../lab.yaml")) == "lab.yaml"
    assert label(Path("../lab.yaml")) == "../lab.yaml"
    assert label(Path("/elsewhere/lab.yaml")) == "/elsewhere/lab.yaml"
    assert label(Path("two\nlines\udcff.yaml")) == "two?lines?.yaml"
