# SPDX-License-Identifier: Apache-2.0
"""What a request is answered when it cannot be done: a status, and a JSON object that says what, where and what to do.

    {"error": {"status": 422, "message": "body:3: chain hop 2: unknown box ..", "exit_code": 2,
               "mistakes": [{"where": "chain[1]", "line": 3, "message": "chain hop 2: unknown box .."}]}}

``mistakes`` has an entry for each of them (the first hundred), ``where`` being the key in the body (``chain[1]``), a
parameter of the address (``?dry_run``), a header, or empty for the request as a whole; ``line`` is that of a YAML body.
"""

import traceback
from collections.abc import Iterable, Sequence
from typing import Any

from atoll_core.errors import AtollError, DescriptionError, Diagnostic, LabError, MachineError, PlanError, UsageError
from atoll_daemon.socket_lock import rack

_MOST_TOLD = 100
_LONGEST_TOLD = 600  # characters of one mistake; a name that is unknown may be as long as a body


class RequestError(AtollError):
    """A request that is refused with a status of its own.

    ``where``: what is wrong with it, if one thing is; ``mistakes``: everything that is, in a body.
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


def no_lab_is_up() -> str:
    """What is said to whoever needs a lab while none is up, where the lab would be that is meant."""
    inventory = rack()
    if inventory is None:
        return "no lab is up; `atoll up LAB` starts one"
    return f"no lab is up on the rack of {inventory}; `atoll up LAB --on hardware` starts one"


def no_lab() -> RequestError:
    """The answer to what needs a lab while none is up."""
    return RequestError(409, no_lab_is_up(), exit_code=1)


def internal_error(error: BaseException) -> RequestError:
    """A fault of ours, told to whoever asked; the log has where it was."""
    traceback.print_exception(error)
    return RequestError(500, f"internal error in the daemon: {type(error).__name__}: {error}", exit_code=1)


def status_of(error: AtollError) -> int:
    """The HTTP status that says whose fault it was: the request's, the laboratory's or this machine's."""
    match error:
        case RequestError():
            return error.status
        case DescriptionError() | PlanError() | UsageError():
            return 422
        case LabError():
            return 502  # a switch, a host or the controller behind the daemon did not do it
        case MachineError():
            return 503
        case _:
            return 500


def error_json(error: AtollError) -> dict[str, Any]:
    """The object that tells an error, without the key ``error`` around it."""
    told = _mistakes(error)
    body: dict[str, Any] = {
        "status": status_of(error),
        "message": _shortened(str(error)),
        "exit_code": error.exit_code,
        "mistakes": told[:_MOST_TOLD],
    }
    if len(told) > _MOST_TOLD:
        body["more"] = len(told) - _MOST_TOLD
    return body


def diagnostics_answer(mistakes: Iterable[Diagnostic]) -> list[dict[str, Any]]:
    """Mistakes, or warnings, as answers have them."""
    return [
        {"where": _cut(path_text(each.place)), "message": _cut(each.message)}
        | ({"line": each.line} if each.line else {})
        for each in mistakes
    ]


def path_text(place: tuple[str | int, ...]) -> str:
    """A place in a body as one writes it: ``links.sat.to_island``, ``chain[1]``."""
    text = ""
    for key in place:
        text += f"[{key}]" if isinstance(key, int) else f".{key}" if text else str(key)
    return text


def _mistakes(error: AtollError) -> list[dict[str, Any]]:
    if isinstance(error, RequestError) and not error.mistakes:
        return [{"where": error.where or "", "message": _cut(str(error))}]
    if isinstance(error, (RequestError, DescriptionError)):
        return diagnostics_answer(error.mistakes)
    return [{"where": "", "message": _cut(line)} for line in str(error).splitlines()]


def _shortened(message: str) -> str:
    lines = [_cut(line) for line in message.splitlines()]
    more = [f"... and {len(lines) - _MOST_TOLD} more"] if len(lines) > _MOST_TOLD else []
    return "\n".join([*lines[:_MOST_TOLD], *more])


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST_TOLD else f"{text[: _LONGEST_TOLD - 1]}…"
