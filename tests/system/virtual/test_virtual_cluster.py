# SPDX-License-Identifier: Apache-2.0
"""A sweep on workers that share nothing but a scheduler: the runs come back, also if a worker is killed."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.support.sandbox import ATOLL, QUICK
from tests.support.virtual_runs import HANGS_S, atoll

pytestmark = pytest.mark.virtual

_END_S = 20  # for a worker, which first waits for its task

STUDY = f"name: tiny\nexperiment: {QUICK}\nfactors: {{traffic.channels: [6, 12]}}\nseeds: [1, 2]\n"


@contextmanager
def process(log: Path, *words: str, **environment: str) -> Generator[subprocess.Popen[bytes]]:
    """A process of Dask on loopback with its output in a file; it is ended at the end."""
    command = [sys.executable, "-m", "distributed.cli." + words[0], *words[1:]]
    command += ["--host", "127.0.0.1", "--no-dashboard", "--dashboard-address", "127.0.0.1:0"]
    with log.open("wb") as output:
        own = {**os.environ, "DASK_TEMPORARY_DIRECTORY": str(log.parent / "dask"), **environment}
        running = subprocess.Popen(command, stdout=output, stderr=output, env=own, cwd=log.parent)
        try:
            yield running
        finally:
            running.terminate()
            try:
                running.wait(_END_S)
            except subprocess.TimeoutExpired:
                running.kill()
                running.wait()


def wait_for(pattern: str, log: Path) -> str:
    """The first group of a pattern in a log, once it is there."""
    until = time.monotonic() + HANGS_S
    while (found := re.search(pattern, log.read_text())) is None:
        assert time.monotonic() < until, log.read_text()
        time.sleep(0.1)
    return found[1]


@contextmanager
def scheduler(folder: Path) -> Generator[str]:
    """The address of a scheduler on this machine."""
    with process(folder / "scheduler.log", "dask_scheduler", "--port", "0"):
        yield wait_for(r"Scheduler at:\s+(tcp://\S+)", folder / "scheduler.log")


@contextmanager
def worker(folder: Path, name: str, address: str, **environment: str) -> Generator[subprocess.Popen[bytes]]:
    """A worker with folders of its own."""
    place = folder / name
    for each in ("home", "tmp"):
        (place / each).mkdir(parents=True, exist_ok=True)
    words = ("--no-nanny", "--nthreads", "1", "--name", name)
    own = {"HOME": str(place / "home"), "TMPDIR": str(place / "tmp"), **environment}
    with process(place / "log", "dask_worker", address, *words, **own) as running:
        wait_for(r"(Registered to)", place / "log")
        yield running


def test_workers_that_share_nothing_return_the_runs_and_one_that_is_killed_loses_none(tmp_path: Path) -> None:
    (tmp_path / "study.yaml").write_text(STUDY)
    with scheduler(tmp_path) as address, ExitStack() as workers:
        started = {name: workers.enter_context(worker(tmp_path, name, address)) for name in ("one", "two")}
        sweep = subprocess.Popen(
            [ATOLL, "sweep", "study.yaml", "s", "--scheduler", address, "--json"],
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        until = time.monotonic() + HANGS_S
        while not list((tmp_path / "one" / "dask").glob("*/worker-*/attempt-*/study/working/*/*/*/link.jsonl")):
            assert sweep.poll() is None, sweep.communicate()
            assert time.monotonic() < until
            time.sleep(0.05)
        os.kill(started["one"].pid, signal.SIGKILL)
        out, errors = sweep.communicate(timeout=4 * HANGS_S)
        assert sweep.returncode == 0, errors
        assert list((tmp_path / "one" / "dask").glob("*/worker-*/attempt-*")) != []
        workers.enter_context(worker(tmp_path, "one", address))  # removes the folder of the killed one
        left = [each for name in ("one", "two") for each in (tmp_path / name).glob("dask/*/worker-*/attempt-*")]
        assert left == []
        assert [list((tmp_path / name / "tmp").iterdir()) for name in ("one", "two")] == [[], []]
    answer = json.loads(out)
    assert (answer["missing"], answer["points"]["done"]) == (0, 4)
    assert all(run["verdict"] != "invalid" for run in answer["runs"])
    kept = sorted((tmp_path / "s").glob("points/*/*/attempt.json"))
    assert len(kept) == 4
    assert not (tmp_path / "s/working").exists()
    for path in kept:
        summary = json.loads((path.parent / "summary.json").read_text())
        assert summary["run_dir"] == str(path.parent)
    again = atoll(tmp_path, "sweep", "study.yaml", "here", "--json")
    assert again.returncode == 0, again.stderr
    figures = [(each["figure"], each["median"]) for each in answer["figures"]]
    assert [(each["figure"], each["median"]) for each in json.loads(again.stdout)["figures"]] == figures


def test_a_worker_that_cannot_make_runs_ends_the_sweep_with_one_line(tmp_path: Path) -> None:
    """Without the programs that it needs, here; a full disk or another atoll has the same effect."""
    (tmp_path / "study.yaml").write_text(STUDY)
    (tmp_path / "bare").mkdir()
    with scheduler(tmp_path) as address, worker(tmp_path, "one", address, PATH=str(tmp_path / "bare")):
        done = atoll(tmp_path, "sweep", "study.yaml", "s", "--scheduler", address)
    (line,) = done.stderr.splitlines()
    assert f"a worker of {address} could not make an attempt: FileNotFoundError: " in line
    assert "setpriv" in line
    assert list((tmp_path / "s").glob("points/*/*/attempt.json")) == []
    assert not (tmp_path / "s/working").exists()


def test_a_scheduler_without_workers_and_one_that_there_is_not_are_one_line(tmp_path: Path) -> None:
    (tmp_path / "study.yaml").write_text(STUDY)
    with scheduler(tmp_path) as address:
        done = atoll(tmp_path, "sweep", "study.yaml", "s", "--scheduler", address)
        assert "has no workers" in done.stderr
    done = atoll(tmp_path, "sweep", "study.yaml", "s", "--scheduler", address)
    (line,) = done.stderr.splitlines()
    assert "no connection to the scheduler at tcp://127.0.0.1:" in line


def test_keys_of_dasks_configuration_open_a_scheduler_with_tls(tmp_path: Path) -> None:
    """With them the sweep learns that there is no worker; without them it does not try."""
    (tmp_path / "study.yaml").write_text(STUDY)
    key, certificate = tmp_path / "key.pem", tmp_path / "cert.pem"
    made = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=atoll", "-days", "2"]
    subprocess.run([*made, "-keyout", key, "-out", certificate], check=True, capture_output=True)
    tls = {f"DASK_DISTRIBUTED__COMM__TLS__{end}__{what}": str(path)
           for end in ("CLIENT", "SCHEDULER") for what, path in (("CERT", certificate), ("KEY", key))}  # fmt: skip
    tls["DASK_DISTRIBUTED__COMM__TLS__CA_FILE"] = str(certificate)
    words = ("--port", "0", "--protocol", "tls")
    log = tmp_path / "scheduler.log"
    with process(log, "dask_scheduler", *words, **tls):
        address = wait_for(r"Scheduler at:\s+(tls://\S+)", log)
        command = [ATOLL, "sweep", "study.yaml", "s", "--scheduler", address]
        reply = [
            subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, env=environment).stderr
            for environment in ({**os.environ, **tls}, dict(os.environ))
        ]
    assert "has no workers" in reply[0]
    assert "Dask's configuration names no TLS certificates; set ca-file and client" in reply[1]
    assert [len(each.splitlines()) for each in reply] == [1, 1]
