#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Count the lines of code of the product by folder: no blanks, comments, docstrings, tests or benchmarks.

Usage: tools/code_lines.py [--modules]. Also counts modules and public Python classes. JavaScript counts but for
libraries of others; in Rust, `#[cfg(test)]` items do not count.
"""

import ast
import io
import re
import subprocess
import sys
import tokenize
from collections import Counter
from pathlib import Path

PRODUCT = re.compile(r"^(?!(tests|benchmarks)/|.*/(tests|benches)(/|\.rs$)|.*uplot).*\.(py|rs|js)$")
NO_CODE = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
BLOCKS = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def python_lines(text: str) -> set[int]:
    """Return the numbers of the lines with code; an expression that is a string alone is a docstring."""
    lines = {
        number
        for token in tokenize.generate_tokens(io.StringIO(text).readline)
        if token.type not in NO_CODE
        for number in range(token.start[0], token.end[0] + 1)
    }
    for node in ast.walk(ast.parse(text)):
        for child in getattr(node, "body", []) if isinstance(node, BLOCKS) else []:
            match child:
                case ast.Expr(value=ast.Constant(value=str()), lineno=first, end_lineno=last):
                    lines -= set(range(first, (last or first) + 1))
                case _:
                    pass
    return lines


def rust_lines(text: str) -> int:
    """Return the number of lines with code outside items of tests, which end at the brace of their own indentation."""
    count, in_comment, end = 0, False, None
    for line in text.splitlines():
        stripped = line.strip()
        if end is not None:
            end = None if line.rstrip() in end else end
            continue
        if stripped == "#[cfg(test)]":
            indent = line[: len(line) - len(line.lstrip())]
            end = (f"{indent}}}", f"{indent}mod tests;")
            continue
        in_comment = in_comment or stripped.startswith("/*")
        if stripped and not in_comment and not stripped.startswith("//"):
            count += 1
        in_comment = in_comment and "*/" not in stripped
    return count


def main() -> None:
    listing = subprocess.run(["git", "ls-files"], capture_output=True, text=True, check=True).stdout.split()
    lines: Counter[str] = Counter()
    modules: Counter[str] = Counter()
    classes = 0
    for name in filter(PRODUCT.match, listing):
        text = Path(name).read_text()
        python = name.endswith(".py")
        count = len(python_lines(text)) if python else rust_lines(text)
        classes += len(re.findall(r"^class [A-Z]", text, re.MULTILINE)) if python else 0
        folder = name.split("/")[0]
        lines[folder], modules[folder] = lines[folder] + count, modules[folder] + 1
        if "--modules" in sys.argv:
            print(f"{count:7,} {name}")
    for folder in sorted(lines):
        print(f"{folder:16} {lines[folder]:7,} lines {modules[folder]:5} modules")
    print(f"{'all':16} {lines.total():7,} lines {modules.total():5} modules, {classes} public classes in Python")


if __name__ == "__main__":
    main()
