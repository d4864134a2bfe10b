# SPDX-License-Identifier: Apache-2.0
"""Files that verbs write where an option names them: what they are by their names, and that they can be written."""

from collections.abc import Callable, Iterable
from pathlib import Path

from atoll_core.errors import MachineError, UsageError
from atoll_core.plural import listed

PICTURES = (".png", ".svg", ".pdf")


def require_ending(option: str, path: Path | None, endings: Iterable[str]) -> None:
    """Refuse, with UsageError, a file whose name ends in none of those that say what it is to hold.

    ``path`` None: the option was not given. Upper and lower case are the same.
    """
    known = tuple(endings)
    if path is not None and path.suffix.lower() not in known:
        msg = f"{option} {path}: the name does not say what it is to hold; end it in {listed(known, 'or')}"
        raise UsageError(msg)


def written(option: str, path: Path, content: str | Callable[[], None]) -> None:
    """Write the file that an option names: its text, or by what draws it.

    Raises UsageError when it cannot be there, MachineError when the disk is full.
    """
    from atoll_analysis.run_directory.atomic_files import is_full  # with all of a run directory: --help does without

    try:
        if isinstance(content, str):
            path.write_text(content, encoding="utf-8")
        else:
            content()
    except OSError as error:
        if is_full(error):
            msg = f"{option} {path}: disk full: free space there, or name another place"
            raise MachineError(msg) from None
        msg = f"{option} {path}: cannot be written ({error.strerror}); name a file in a folder of yours"
        raise UsageError(msg) from None
