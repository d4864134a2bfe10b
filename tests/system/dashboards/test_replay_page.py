# SPDX-License-Identifier: Apache-2.0
"""Replays in a real Chromium, of runs as runs write them: of several chains, one that failed, one without metrics."""

from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from screenshots.browser import Browser, Page
from screenshots.live_page import served
from tests.support.watched_run import WatchedRun

pytestmark = [pytest.mark.browser]

STATE = "document.querySelector('#state').textContent"
BANNER = "document.querySelector('#banner')"
RUN = "document.querySelector('#run')"
WHY = "the configuration test failed; nothing was started\nw3 to i2: off by 2.1 ms"

INSIDE = """(() => {
    const room = document.querySelector('#chain svg').getBoundingClientRect();
    return [...document.querySelectorAll('#chain text')].filter(text => {
        const {top, bottom, left, right} = text.getBoundingClientRect();
        return top < room.top || bottom > room.bottom || left < room.left || right > room.right;
    }).map(text => text.textContent);
})()"""
"""Texts of the drawing that are cut off at its edges."""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with Browser() as browser:
        yield browser


def counted(runs: Path, experiment: str = "geo", *, metrics: bool = True) -> WatchedRun:
    """A run whose link sends 1 MB a second; not ended."""
    run = WatchedRun(runs, experiment, metrics=metrics)
    run.event("step", 0, step="measure", state="begin")
    for second in range(6):
        total = 1_000_000 * second
        queue = {"queue_bytes": 50_000, "queue_max_bytes": 60_000, "dropped_packets": 0}
        run.second(second, 1, in_bytes=total, out_bytes=total, **queue)
    return run


@contextmanager
def replayed(browser: Browser, run: WatchedRun) -> Generator[Page]:
    """The page that has the run open, while the block lasts."""
    with served(run.dir.path) as url:
        page = browser.page(1280, 800)
        page.go(url)
        page.wait(f"{STATE} === 'replay'", 30)
        yield page
        page.close()


def test_what_several_chains_pass_is_told_as_theirs_together(browser: Browser, tmp_path: Path) -> None:
    """Their names are in sight, at every width; of one chain alone nothing of the kind is said."""
    run = counted(tmp_path, "half-coded")
    run.end()
    with replayed(browser, run) as page:
        answer = "[...document.querySelectorAll('#chain .rates-of')].map(text => text.textContent).filter(Boolean)"
        page.wait(f"{answer}.length === 4")
        assert set(page.value(answer)) == {"coded + main in all"}
        names = page.value("[...document.querySelectorAll('#chain .chain-name')].map(text => text.textContent)")
        assert names == ["coded: island 10.20.0.0/30", "main: all else"]
        assert page.value("document.querySelector('#chain .queue-figure').textContent").endswith(", shared")
        for width in (1600, 1280, 420):
            page.resize(width, 800)
            page.listen(0.5)
            assert page.value(INSIDE) == [], width
        assert page.complaints == []
    run = counted(tmp_path)
    run.end()
    with replayed(browser, run) as page:
        page.wait("document.querySelector('#chain .rate').textContent.includes('Mbit/s')")
        assert page.value(answer) == []


def test_of_a_run_that_failed_the_step_and_the_reason_are_told(browser: Browser, tmp_path: Path) -> None:
    """What comes after that step was not reached, and nothing was measured."""
    run = WatchedRun(tmp_path)
    for second, step in enumerate(("apply", "check")):
        run.event("step", second, step=step, state="begin")
    run.event("step", 4, step="check", state="failed", message=WHY)
    outcome = f"failed at step check: {WHY}"
    run.event("outcome", 4, outcome=outcome)
    run.end(outcome)
    with replayed(browser, run) as page:
        page.wait(f"{RUN}.querySelector('.run-text').textContent === 'failed at check'")
        states = page.value(f"[...{RUN}.querySelectorAll('li')].map(step => step.className)")
        assert states == ["done", "broken", *["not-reached"] * 9]
        assert page.value(f"{RUN}.querySelector('.run-why').textContent") == WHY
        assert page.value(f"{RUN}.querySelector('progress').value") == 0
        page.press("r")
        rows = "[...document.querySelectorAll('dialog[open] .replays tr')].map(row => row.textContent)"
        assert page.wait(f"{rows}.find(row => row.startsWith('{run.id}'))").endswith("failed")
        page.press("Escape")
        assert page.value("document.querySelector('#chart-goodput .canvas').dataset.none") == "no figures in this run"
        assert page.complaints == []


def test_why_a_run_is_invalid_is_told_beside_it_and_in_the_log(browser: Browser, tmp_path: Path) -> None:
    """At once, and not only where its end is looked at."""
    reasons = ["a departure was 9.10 ms late, bound 5 ms: the machine was too busy", "capture island is missing"]
    run = counted(tmp_path)
    run.end()
    run.dir.write_summary({"verdict": "invalid", "reasons": reasons})
    with replayed(browser, run) as page:
        why = page.wait(f"{RUN}.querySelector('.run-why').textContent")
        assert why.splitlines() == ["invalid because", *reasons]
        assert f"verdict: invalid: {'; '.join(reasons)}" in page.value("document.querySelector('#log').textContent")
        assert page.complaints == []


def test_a_run_without_metrics_says_so_and_shows_what_its_links_counted(browser: Browser, tmp_path: Path) -> None:
    run = counted(tmp_path, metrics=False)
    run.end()
    with replayed(browser, run) as page:
        assert page.wait(f"{BANNER}.textContent").startswith("This run has no metrics: it was made with --no-metrics.")
        page.wait("document.querySelector('#chart-rate .figure').textContent === '8.00'")
        assert page.value("document.querySelector('#chart-rate .canvas').dataset.none") == ""
        assert page.value("document.querySelector('#chart-flows .canvas').dataset.none") == "no figures in this run"
        assert "measure: the load is running" in page.value("document.querySelector('#log').textContent")
        assert page.complaints == []
    run = counted(tmp_path)
    run.end()
    with replayed(browser, run) as page:
        assert page.value(f"{BANNER}.hidden")


@pytest.mark.parametrize("letters", [0, 1])
def test_the_table_of_servers_fits_beside_the_plots(browser: Browser, tmp_path: Path, letters: int) -> None:
    """With the longest figures there are, in a window of 1280 pixels, and with larger letters."""
    run = counted(tmp_path)
    run.end()
    with replayed(browser, run) as page:
        for _ in range(letters):
            page.press("s")
        page.wait("document.querySelectorAll('#servers tr').length === 6")
        longest = "['not delayed', '200', '200.4', '88.8\\u00a0Mbit/s', '1000']"
        page.value(
            "document.querySelectorAll('#servers tr').forEach(row => row.querySelectorAll('td')"
            f".forEach((cell, index) => {{ cell.textContent = {longest}[index] }}))"
        )
        table = "document.querySelector('.scroll')"
        assert page.value(f"{table}.scrollWidth - {table}.clientWidth") <= 0
        page.value("localStorage.clear()")
