# SPDX-License-Identifier: Apache-2.0
"""`atoll watch`: serve the live page from a process that outlives labs."""

import asyncio
import contextlib
import html
import json
import os
import signal
import sys
import threading
import webbrowser
from collections.abc import Generator
from pathlib import Path
from urllib.parse import quote

from atoll_cli.commands.selection import refuse
from atoll_core.errors import MachineError
from atoll_core.platforms import LabTarget
from atoll_daemon.client import state_directory
from atoll_daemon.http.auth import find_token
from atoll_daemon.http.tcp_listener import ListenAddress
from atoll_daemon.replays.replay_index import Replay, Replays
from atoll_daemon.replays.watch_server import serving_page


def watch_lab(
    target: LabTarget, run: Path | None, runs: Path, listen: str, *, open_browser: bool, as_json: bool
) -> None:
    """`atoll watch`, until it is interrupted. Raises LabError if it cannot listen, RunDirError if ``run`` is no run."""
    address = ListenAddress.parse(listen)
    refuse(runs.exists() and not runs.is_dir(), f"{runs}: is not a directory; name another one")
    replays = Replays(runs.resolve())
    run_id = None
    if run is not None:
        replay = Replay(run)
        run_id = replay.id
        replays.add(run)
        if not replay.metrics:
            shown_text = "the replay shows its steps, events and link counters"
            print(f"{run} has no metrics, as it was made with --no-metrics; {shown_text}", file=sys.stderr)
    asyncio.run(_watch(target, address, replays, run_id, open_browser=open_browser, as_json=as_json))


async def _watch(
    target: LabTarget,
    address: ListenAddress,
    replays: Replays,
    run_id: str | None,
    *,
    open_browser: bool,
    as_json: bool,
) -> None:
    token, source = find_token(state_directory())
    end = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, end.set)
    async with serving_page(target, address, token, replays) as page:
        url = f"{page}#token={quote(token)}" + (f"&run={quote(run_id)}" if run_id else "")
        print(json.dumps({"url": url}) if as_json else url, flush=True)
        print(f"token in {source}; press Ctrl-C to end", file=sys.stderr)
        if not address.is_loopback:
            print(
                "unencrypted: anyone on that network can read the token; `ssh -L` encrypts the connection",
                file=sys.stderr,
            )
        with _opened_in_browser(url) if open_browser else contextlib.nullcontext():
            await end.wait()


@contextlib.contextmanager
def _opened_in_browser(url: str) -> Generator[None]:
    """Open the page in a browser through a private file that redirects to it: other users can read command lines."""
    redirect = state_directory() / f"watch-{os.getpid()}.html"
    for stale in state_directory().glob("watch-*.html"):  # by one that was killed
        if not Path("/proc", stale.stem.removeprefix("watch-")).exists():
            stale.unlink(missing_ok=True)
    try:
        with os.fdopen(os.open(redirect, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600), "w") as file:
            file.write(f'<meta http-equiv="refresh" content="0; url={html.escape(url)}">\n')
    except OSError as error:
        raise MachineError(f"--open: {redirect}: cannot be written: {error.strerror}") from None
    # In a thread of its own: some browsers return only when they are closed.
    threading.Thread(target=_open_browser, args=(redirect.as_uri(),), daemon=True).start()
    try:
        yield
    finally:
        redirect.unlink(missing_ok=True)


def _open_browser(address: str) -> None:
    if not webbrowser.open(address):
        print("no browser was found; open the address above", file=sys.stderr)
