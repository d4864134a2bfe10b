# SPDX-License-Identifier: Apache-2.0
"""Errors of requests: a status, and a JSON object with the mistakes, their positions and the remedies.

    {"error": {"status": 422, "message": "body:3: chain hop 2: unknown box ..", "exit_code": 2,
               "mistakes": [{"where": "chain[1]", "line": 3, "message": "chain hop 2: unknown box .."}]}}

``mistakes`` has an entry for each mistake (the first hundred). ``where`` is the key in the body (``chain[1]``), a query
parameter (``?dry_run``), a header, or empty for the request as a whole; ``line`` is the line of a YAML body.
"""

import traceback
from collections.abc import Collection, Iterable, Sequence
from typing import Any

from atoll_core.errors import AtollError, DescriptionError, Diagnostic, LabError, MachineError, PlanError, UsageError
from atoll_core.platforms import LabTarget

_MOST_MISTAKES = 100
_LONGEST_LINE = 600  # characters; an unknown name may be as long as a body


class RequestError(AtollError):
    """A refused request with its HTTP status.

    ``where``: the part of the request with the mistake, if there is one; ``mistakes``: all mistakes of a body.
    """

    def __init__(
        self,
        status: int,
        message: str,
        *,
        where: str | None = None,
        mistakes: Sequence[Diagnostic] = (),
        exit_code: int = 2,
        headers: dict[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.where = where
        self.mistakes = tuple(mistakes)
        self.exit_code = exit_code
        self.headers = headers or {}


def no_lab_is_up(target: LabTarget) -> str:
    """The message for requests that need a lab while none is up."""
    if target.inventory is None:
        return "no lab is up; `atoll up LAB` starts one"
    return f"no lab is up on the machines of {target.inventory}; `atoll up LAB --on hardware` starts one"


def no_lab_error(target: LabTarget, status: int = 409) -> RequestError:
    """The error for requests that need a lab while none is up."""
    return RequestError(status, no_lab_is_up(target), exit_code=1)


def require_named(name: str, names: Collection[str], noun: str, nouns: str) -> None:
    """Raise RequestError (404) unless one of the things has this name."""
    if name not in names:
        from atoll_core.description.validation_messages import suggest  # 0.15 s with pydantic, not for every client

        raise RequestError(404, f"there is no {noun} {name!r}; {suggest(name, names, nouns)}", exit_code=1)


def internal_error(error: BaseException) -> RequestError:
    """An internal error for the requester; the traceback goes to the log."""
    traceback.print_exception(error)
    return RequestError(500, f"internal error in the daemon: {type(error).__name__}: {error}", exit_code=1)


def status_of(error: AtollError) -> int:
    """The HTTP status of an error, by its cause: the request, the lab or this machine."""
    match error:
        case RequestError():
            return error.status
        case DescriptionError() | PlanError() | UsageError():
            return 422
        case LabError():
            return 502  # a switch, a host or the controller failed
        case MachineError():
            return 503
        case _:
            return 500


def error_json(error: AtollError) -> dict[str, Any]:
    """The object of an error, without the key ``error`` around it."""
    mistakes = _mistakes(error)
    body: dict[str, Any] = {
        "status": status_of(error),
        "message": _shortened_text(str(error)),
        "exit_code": error.exit_code,
        "mistakes": mistakes[:_MOST_MISTAKES],
    }
    if len(mistakes) > _MOST_MISTAKES:
        body["more"] = len(mistakes) - _MOST_MISTAKES
    return body


def diagnostics_answer(mistakes: Iterable[Diagnostic]) -> list[dict[str, Any]]:
    """Mistakes or warnings in the form of the API."""
    return [
        {"where": _shortened_line(path_text(mistake.key_path)), "message": _shortened_line(mistake.message)}
        | ({"line": mistake.line} if mistake.line else {})
        for mistake in mistakes
    ]


def path_text(key_path: tuple[str | int, ...]) -> str:
    """A key path in a body as text: ``links.sat.to_island``, ``chain[1]``."""
    return "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in key_path).removeprefix(".")


def _mistakes(error: AtollError) -> list[dict[str, Any]]:
    if isinstance(error, RequestError) and not error.mistakes:
        return [{"where": error.where or "", "message": _shortened_line(str(error))}]
    if isinstance(error, (RequestError, DescriptionError)):
        return diagnostics_answer(error.mistakes)
    return [{"where": "", "message": _shortened_line(line)} for line in str(error).splitlines()]


def _shortened_text(message: str) -> str:
    lines = [_shortened_line(line) for line in message.splitlines()]
    more = [f"... and {len(lines) - _MOST_MISTAKES} more"] if len(lines) > _MOST_MISTAKES else []
    return "\n".join([*lines[:_MOST_MISTAKES], *more])


def _shortened_line(text: str) -> str:
    return text if len(text) <= _LONGEST_LINE else f"{text[: _LONGEST_LINE - 1]}…"
