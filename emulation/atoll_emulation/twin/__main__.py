# SPDX-License-Identifier: Apache-2.0
"""``python -m atoll_emulation.twin --driver procurve-v2``: a twin of hardware in front of a bridge of Open vSwitch.

Without ``--driver`` it serves the twins of an emulated lab: the first line of standard input describes them, later
lines are commands to them (docs/contracts.md, "Twins"). It ends when its standard input ends. With ``--driver`` a pipe
or a socket as standard input takes the same commands, and ends it; a terminal or a file is not read.
"""

import argparse
import asyncio
import contextlib
import json
import os
import stat
import sys
from dataclasses import asdict
from typing import Any

from atoll_core.codec import from_json
from atoll_core.errors import PlanError
from atoll_core.lab.twin import TwinSettings
from atoll_core.units import Duration
from atoll_emulation.twin.twin_proxy import TwinProxy, TwinSpec, serve_twins

_LONGEST_LINE_BYTES = 1 << 22


def main() -> int:
    """Serve until standard input ends, or Ctrl-C; 1 if a port is not available, 2 for bad arguments."""
    parser = argparse.ArgumentParser(prog="python -m atoll_emulation.twin", description=__doc__)
    parser.add_argument("--driver", help="the hardware: procurve-v1, procurve-v2 or procurve-v3")
    parser.add_argument(
        "--listen", type=int, default=6654, metavar="PORT", help="where the bridge connects, on 127.0.0.1 (%(default)s)"
    )
    parser.add_argument(
        "--controller", default="127.0.0.1:6653", metavar="HOST:PORT", help="the controller (%(default)s)"
    )
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="another behaviour, such as lag_max='0 s'; keys as in lab.yaml",
    )
    options = parser.parse_args()
    try:
        if options.driver:
            spec = TwinSpec(options.driver, options.driver, _checked_port(options.listen), settings_of(options.set))
            asyncio.run(_serve_alone(spec, _parse_address(options.controller)))
        elif not _is_pipe():
            parser.error("--driver: name the hardware, such as procurve-v2")
        else:
            asyncio.run(_serve_lab())
    except (PlanError, ValueError) as error:
        parser.error(str(error))
    except OSError as error:
        option = f"--listen {options.listen}: " if options.driver else ""
        sys.stderr.write(f"{option}{error.strerror or error}\n")
        return 1
    except KeyboardInterrupt:
        pass
    return 0


def _checked_port(number: int) -> int:
    if not 0 < number < 1 << 16:
        raise ValueError(f"--listen {number}: a port is a number from 1 to 65535")
    return number


def _parse_address(text: str) -> tuple[str, int]:
    """Host and port of the controller. Raises ValueError."""
    host, _, port = text.rpartition(":")
    if not (host and port.isascii() and port.isdigit() and 0 < int(port) < 1 << 16):
        raise ValueError(f"--controller {text}: write HOST:PORT, such as 127.0.0.1:6653")
    return host, int(port)


def settings_of(words: list[str]) -> TwinSettings:
    """Settings from words KEY=VALUE. Raises ValueError."""
    settings: dict[str, Any] = {}
    for word in words:
        key, _, text = word.partition("=")
        if key not in asdict(TwinSettings()):
            raise ValueError(f"--set {word}: unknown key {key!r}; known: {', '.join(asdict(TwinSettings()))}")
        try:
            settings[key] = _parse_value(key, text)
        except ValueError as error:
            raise ValueError(f"--set {word}: {error}") from None
    return TwinSettings(**settings)


def _parse_value(key: str, text: str) -> Duration | bool | int:
    if key in ("lag_min", "lag_max", "statistics", "reboot"):
        return Duration.parse(text)
    if key in ("early_barriers", "refuses"):
        if text not in ("true", "false"):
            raise ValueError(f"{text!r} is neither true nor false")
        return text == "true"
    if not text.isascii() or not text.isdigit():
        raise ValueError(f"{text!r} is not a whole number")
    return int(text)


async def _serve_alone(spec: TwinSpec, controller: tuple[str, int]) -> None:
    proxies = {spec.switch: TwinProxy(spec, controller)}
    if _is_pipe():
        await _serve(proxies, await _open_standard_input())
    else:  # reading a terminal would stop a process in the background
        await serve_twins(proxies.values())


def _is_pipe() -> bool:
    mode = os.fstat(sys.stdin.fileno()).st_mode
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)


async def _serve_lab() -> None:
    lines = await _open_standard_input()
    description = json.loads(await lines.readline() or "{}")
    if "twins" not in description:
        raise ValueError("standard input describes no twins; --driver names the hardware of a single one")
    controller = ("127.0.0.1", int(description["controller"]))
    specs = [from_json(TwinSpec, spec) for spec in description["twins"]]
    await _serve({spec.switch: TwinProxy(spec, controller) for spec in specs}, lines)


async def _open_standard_input() -> asyncio.StreamReader:
    lines = asyncio.StreamReader(limit=_LONGEST_LINE_BYTES)
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    return lines


async def _serve(proxies: dict[str, TwinProxy], lines: asyncio.StreamReader) -> None:
    """Serve twins until there are no more lines of commands. Raises OSError if a port is not available."""
    server_task = asyncio.create_task(serve_twins(proxies.values()))
    command_task = asyncio.create_task(_perform_commands(lines, proxies))
    await asyncio.wait({server_task, command_task}, return_when=asyncio.FIRST_COMPLETED)
    if server_task.done():
        server_task.result()
    server_task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await server_task


async def _perform_commands(lines: asyncio.StreamReader, proxies: dict[str, TwinProxy]) -> None:
    """Carry out commands until there are no more."""
    async for line in lines:
        match json.loads(line):
            case {"op": "reboot", "switch": name}:
                proxies[name].reboot()
            case {"op": "disconnect", "switch": name, "for_s": for_s}:
                proxies[name].disconnect(float(for_s))
            case unknown:
                sys.stderr.write(f"twin: ignored {unknown}\n")


if __name__ == "__main__":
    sys.exit(main())
