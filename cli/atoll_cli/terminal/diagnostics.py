# SPDX-License-Identifier: Apache-2.0
"""Mistakes and warnings in descriptions, printed or as JSON."""

import sys
from collections.abc import Iterable
from typing import Any

from atoll_core.errors import DescriptionError, Diagnostic


def diagnostics_json(mistakes: Iterable[Diagnostic]) -> list[dict[str, Any]]:
    """Mistakes or warnings in the form of ``--json``."""
    return [{"file": one.file, "line": one.line, "message": one.message} for one in mistakes]


def warn(warnings: Iterable[Diagnostic], *, strict: bool) -> list[dict[str, Any]]:
    """Print warnings on standard error, one line each; returns them in the form of ``--json``.

    Raises DescriptionError instead if ``strict``.
    """
    found = tuple(warnings)
    if found and strict:
        raise DescriptionError(found)
    for each in found:
        print(each.as_warning, file=sys.stderr)
    return diagnostics_json(found)
