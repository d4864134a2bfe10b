# SPDX-License-Identifier: Apache-2.0
"""Server and client pairs: ours, and nginx with ab or wrk. Each flow is a connection of its own, of the same size."""

import contextlib
import json
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO, cast

from atoll_hosts.binary import find_binary

CONTROL = "cubic"

_NGINX = """
daemon off; worker_processes 1; master_process off; pid {folder}/pid; error_log {folder}/error.log;
events {{ worker_connections 20000; }}
http {{
    access_log off; keepalive_timeout 0; client_body_temp_path {folder}; proxy_temp_path {folder};
    fastcgi_temp_path {folder}; uwsgi_temp_path {folder}; scgi_temp_path {folder};
    server {{ listen 127.0.0.1:{port} backlog=4096; root {folder}; }}
}}
"""
_PORT = 8099


@dataclass(frozen=True)
class Load:
    """The load that a client makes."""

    channels: int
    size: int  # bytes of a flow
    seconds: int


@dataclass(frozen=True)
class Pair:
    """A server process and a client process that fetches from it."""

    name: str
    versions: str
    server: Callable[[Load], contextlib.AbstractContextManager[Any]]
    flows_per_s: Callable[[Load, Any], float]  # with the result of starting the server


def pairs() -> tuple[list[Pair], dict[str, str]]:
    """The pairs that can run here, ours first, and why others cannot."""
    available = [Pair("atoll-host", _version(str(find_binary()), "--version"), _serve, _load)]
    left_out: dict[str, str] = {}
    nginx = shutil.which("nginx", path="/usr/sbin:/usr/bin")
    for name, run in (("ab", _ab), ("wrk", _wrk)):
        client = shutil.which(name)
        if nginx and client:
            versions = f"{_version(nginx, '-v')}; {_version(client, '-V' if name == 'ab' else '-v')}"
            available.append(Pair(f"nginx and {name}", versions, lambda load: _nginx(nginx, load), run))
        else:
            left_out[f"nginx and {name}"] = "apt install nginx-light apache2-utils wrk"
    return available, left_out


def _version(program: str, option: str) -> str:
    done = subprocess.run([program, option], capture_output=True, text=True, check=False)
    line = (done.stdout + done.stderr).strip().splitlines()[0]
    version = re.search(r"(nginx/\S+|ApacheBench, Version \S+|wrk \S+|atoll-host \S+)", line)
    return version[1].replace("ApacheBench, Version ", "ab ") if version else line


class _Job:
    """A job of atoll-host. Its standard error is shown only if it ends early: on Ctrl-C every job would add lines."""

    def __init__(self, subcommand: str, config: dict[str, Any]) -> None:
        argv = [str(find_binary()), subcommand]
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 (lives as long as the job)
        self._process = subprocess.Popen(
            argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors, text=True
        )
        self._input, self._output = cast("TextIO", self._process.stdin), cast("TextIO", self._process.stdout)
        self._input.write(json.dumps(config) + "\n")
        self._input.flush()

    def word(self, kind: str) -> dict[str, Any]:
        """Return its next message of a kind. Raises RuntimeError with its errors when it ends before."""
        for message in map(json.loads, self._output):
            if message["type"] == kind:
                return message
        self._errors.seek(0)
        raise RuntimeError(self._errors.read().strip() or f"atoll-host ended before {kind!r}")

    def end(self) -> None:
        """Close its input and wait for its end."""
        self._input.close()
        self._output.read()
        self._process.wait()
        self._errors.close()


@contextlib.contextmanager
def _serve(_: Load) -> Generator[str]:
    job = _Job("serve", {"listen": "127.0.0.1:0", "congestion_control": CONTROL})
    try:
        yield job.word("ready")["listen"]
    finally:
        job.end()


def _load(load: Load, server: str) -> float:
    with tempfile.TemporaryDirectory() as folder:
        config = {
            "seed": 1,
            "channels": list(range(load.channels)),
            "servers": [server],
            "flow_sizes": {"kind": "steps", "knots": [[10**9, load.size]]},
            "start_at_ns": 0,
            "duration_ns": load.seconds * 10**9,
            "congestion_control": CONTROL,
            "flow_log": f"{folder}/flows.csv",
        }
        job = _Job("load", config)
        begin_ns, done = job.word("started")["t_ns"], job.word("done")
        job.end()
    if done["flows_failed"]:
        msg = f"{done['flows_failed']} flows failed"
        raise RuntimeError(msg)
    return done["flows_completed"] / ((done["t_ns"] - begin_ns) / 1e9)


@contextlib.contextmanager
def _nginx(program: str, load: Load) -> Generator[str]:
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "flow").write_bytes(bytes(load.size))
        Path(folder).chmod(0o755)
        Path(folder, "conf").write_text(_NGINX.format(folder=folder, port=_PORT))
        with subprocess.Popen([program, "-p", folder, "-c", f"{folder}/conf"], stderr=subprocess.DEVNULL) as process:
            try:
                time.sleep(0.5)
                yield f"http://127.0.0.1:{_PORT}/flow"
            finally:
                process.terminate()


def _ab(load: Load, url: str) -> float:
    argv = ["ab", "-q", "-r", "-c", str(load.channels), "-t", str(load.seconds), "-n", "100000000", url]
    output = subprocess.run(argv, capture_output=True, text=True, check=True).stdout
    complete, failed, seconds = (
        float(re.findall(rf"^{words}:\s+([\d.]+)", output, re.MULTILINE)[0])
        for words in ("Complete requests", "Failed requests", "Time taken for tests")
    )
    return (complete - failed) / seconds


def _wrk(load: Load, url: str) -> float:
    argv = ["wrk", "-t1", f"-c{load.channels}", f"-d{load.seconds}s", "-H", "Connection: close", url]
    output = subprocess.run(argv, capture_output=True, text=True, check=True).stdout
    return float(re.findall(r"Requests/sec:\s+([\d.]+)", output)[0])
