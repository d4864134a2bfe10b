# SPDX-License-Identifier: Apache-2.0
"""The live page in a real Chromium beside real labs: what a person sees who opens it, and what its buttons do."""

import json
import re
import signal
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from screenshots.browser import Browser, Page
from tests.support.sandbox import ATOLL, QUICK, Sandbox

pytestmark = [pytest.mark.lab, pytest.mark.browser]

PORT = 8470
SITE = f"http://127.0.0.1:{PORT}/"

STATE = "document.querySelector('#state').textContent"
CHAIN = "document.querySelector('#chain').textContent"
CHAIN_LABEL = "document.querySelector('#chain svg').getAttribute('aria-label')"
BANNER = "document.querySelector('#banner').textContent"
LOG = "document.querySelector('#log').textContent"
VERDICT = "document.querySelector('#run .run-text').textContent"
JUDGED = f"/^(valid|valid with caveats|invalid)$/.test({VERDICT})"
DIALOG = "document.querySelector('dialog[open]')"
CONFIRM = "dialog[open] button.primary"


class Stage:
    """A sandbox with `atoll watch` in it, as a user has it, and a browser."""

    def __init__(self, sandbox: Sandbox, url: str, browser: Browser) -> None:
        self.sandbox = sandbox
        self.url = url
        self.browser = browser

    def atoll(self, *words: str | Path) -> None:
        done = self.sandbox.run("env", f"HOME={self.sandbox.directory}", ATOLL, *words)
        assert done.returncode == 0, done.stderr

    def up(self) -> None:
        """A lab with the quick experiment, whatever was before."""
        if self.sandbox.find("atoll_daemon") is None:
            self.atoll("up", QUICK)
        else:
            self.atoll("apply", QUICK)

    def down(self) -> None:
        if self.sandbox.find("atoll_daemon") is not None:
            self.atoll("down")

    def run_directory(self) -> Path:
        """A run that has been made; made now if there is none."""
        runs = sorted((self.sandbox.directory / "runs").glob("quick/*/summary.json"))
        if not runs:
            self.up()
            self.atoll("run", QUICK)
            runs = sorted((self.sandbox.directory / "runs").glob("quick/*/summary.json"))
        return runs[0].parent

    def open(self, fragment: str | None = None, width: int = 1600, height: int = 900) -> Page:
        """The page; ``fragment`` instead of the token that belongs there."""
        address, _, own = self.url.partition("#")
        return self.open_at(f"{address}#{own if fragment is None else fragment}", width, height)

    def open_at(self, url: str, width: int = 1600, height: int = 900) -> Page:
        """The page of any `atoll watch`."""
        page = self.browser.page(width, height)
        page.go(url)
        return page

    @contextmanager
    def watch(self, port: int) -> Generator[str]:
        """`atoll watch`; the page's address with its token. It is killed at the end."""
        command = ("env", f"HOME={self.sandbox.directory}", ATOLL, "watch", "--listen", str(port), "--json")
        process = self.sandbox.start(*command)
        assert process.stdout is not None
        try:
            yield json.loads(process.stdout.readline())["url"]
        finally:
            pid = self.sandbox.find("watch", str(port))
            assert pid is not None
            self.sandbox.kill(pid)
            process.communicate()


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    home = tmp_path_factory.mktemp("page")
    with Sandbox(home) as sandbox:
        process = sandbox.start("env", f"HOME={home}", ATOLL, "watch", "--listen", str(PORT), "--json")
        assert process.stdout is not None
        url = json.loads(process.stdout.readline())["url"]
        with Browser(sandbox.command) as browser:
            yield Stage(sandbox, url, browser)
    process.communicate()


@pytest.fixture
def live(stage: Stage) -> Iterator[Page]:
    """The page on a lab that is up. Afterwards: no script has failed, and nothing was asked of anybody else."""
    stage.up()
    page = stage.open()
    page.wait(f"{STATE} === 'live'")
    yield page
    assert page.complaints == []
    assert [url for url in page.requests if not url.startswith((SITE, "data:", "blob:"))] == []
    page.close()


def submit(page: Page) -> None:
    page.click(CONFIRM)


def choose(page: Page, selector: str, option: str) -> None:
    """Choose an option of a select as a user does: the page hears of it."""
    page.value(
        f"(select => {{ select.value = {json.dumps(option)}; select.dispatchEvent(new Event('change')) }})"
        f"(document.querySelector({json.dumps(selector)}))"
    )


def test_a_lab_that_is_up_is_drawn_and_its_link_figures_go_on(live: Page) -> None:
    assert live.wait(CHAIN_LABEL) == "main: world, tap-w, sat, tap-i, island"
    assert "16\u00a0Mbit/s, 10\u00a0ms" in live.value(CHAIN)
    live.wait("document.querySelector('#chart-rate .figure').textContent === '0'")
    assert live.value("document.querySelector('#chart-rate .detail').textContent") == "0\u00a0% of 16\u00a0Mbit/s"
    assert live.value("document.querySelectorAll('#chart-rate canvas').length") == 1
    assert live.value("[...document.querySelectorAll('#hosts .host')].length") == 15
    live.wait(f"{LOG}.includes('quick applied: tap-w \u2192 sat \u2192 tap-i')")


def test_the_token_leaves_the_address_and_stays_with_the_page(live: Page) -> None:
    assert live.value("location.hash") == ""
    live.call("Page.reload")
    live.wait(f"{STATE} === 'live'")


def test_without_a_token_it_is_asked_for_once_and_a_wrong_one_is_refused(stage: Stage) -> None:
    stage.up()
    page = stage.open(fragment="")
    page.wait(f"{DIALOG}.textContent.includes('A token is needed')")
    page.value("document.querySelector('dialog[open] input').value = 'wrong'")
    submit(page)
    page.wait(f"{DIALOG}.querySelector('input').value === ''")
    token = stage.url.partition("token=")[2]
    page.value(f"document.querySelector('dialog[open] input').value = {json.dumps(token)}")
    submit(page)
    page.wait(f"{STATE} === 'live'")
    page.close()


def test_a_run_is_started_from_the_page_watched_and_judged(live: Page) -> None:
    live.click("#run-start")
    live.value(f"{DIALOG}.querySelector('input[type=text]').value = '4 s'")
    submit(live)
    live.wait(f"!{DIALOG}")
    live.wait("document.querySelector('#run .run-id').textContent.startsWith('quick-')")
    live.wait("document.querySelector('#run-stop').hidden === false")
    live.wait(JUDGED, 90)
    live.wait("document.querySelector('#run-stop').hidden")
    for plot in ("rate", "goodput", "flows"):
        figures = f"document.querySelector('#chart-{plot} .canvas').getAttribute('aria-label')"
        assert live.value(figures)
    live.wait("document.querySelector('#run progress').value === 1")
    live.wait(f"{LOG}.includes('run quick: ' + {VERDICT})")


def test_in_a_run_chains_and_latencies_are_disabled_and_a_page_opened_late_shows_what_it_missed(
    live: Page, stage: Stage
) -> None:
    """The reason can be read by keyboard; a page opened late has what was before it, but for what nobody kept."""
    live.click("#run-start")
    live.value(f"{DIALOG}.querySelector('input[type=text]').value = '14 s'")
    submit(live)
    live.wait("document.querySelector('#chain-change').getAttribute('aria-disabled') === 'true'")
    reason = live.wait("document.querySelector('#disabled-reason').textContent")
    assert reason.startswith("run quick is going on")
    for button in ("#chain-change", "#latency-change", "#servers tr button"):
        found = f"document.querySelector({json.dumps(button)})"
        assert live.value(f"[{found}.disabled, {found}.title, {found}.getAttribute('aria-describedby')]") == [
            False,
            reason,
            "disabled-reason",
        ]
        live.click(button)
        assert not live.value(f"Boolean({DIALOG})")
    live.wait("/0:(0[7-9]|1)/.test(document.querySelector('#run .run-text').textContent)")
    late = stage.open()
    late.wait(f"{STATE} === 'live'")
    late.wait("Number.parseFloat(document.querySelector('#chart-goodput .figure').textContent) > 0")
    late.point("#chart-rate .u-over", 0.9)  # six seconds ago: before the page was opened
    late.wait("Number.isFinite(Number.parseFloat(document.querySelector('#chart-rate .figure').textContent))")
    late.point("#chart-rate .u-over", 0.01)  # a minute ago: before the run
    late.wait("document.querySelector('#chart-rate .figure').textContent === ''")
    late.wait(JUDGED, 90)  # the other one is not drawn while it is behind this
    late.wait("document.querySelector('#chain-change').getAttribute('aria-disabled') === null")
    late.wait("document.querySelector('#disabled-reason').hidden")
    why = late.value("document.querySelector('#run .run-why').textContent")
    assert why.startswith("invalid because\n") == (late.value(VERDICT) == "invalid")
    assert late.complaints == []
    late.close()


def test_a_run_is_stopped_from_the_page(live: Page) -> None:
    live.click("#run-start")
    live.value(f"{DIALOG}.querySelector('input[type=text]').value = '100 s'")
    submit(live)
    live.wait("document.querySelector('#run-stop').hidden === false")
    live.click("#run-stop")
    submit(live)
    live.wait(f"{VERDICT}.startsWith('cancelled at ')")
    assert live.value("document.querySelector('#run li.broken').nextElementSibling.className") == "not-reached"


def test_a_chain_is_changed_after_its_changes_were_shown(live: Page) -> None:
    live.click("#chain-change")
    live.wait(f"{DIALOG}.querySelector('.hops')")
    live.click("dialog[open] button[aria-label='remove tap-i']")
    submit(live)
    live.wait(f"{DIALOG}.querySelectorAll('.changes li').length > 0")
    assert live.value(CHAIN_LABEL) == "main: world, tap-w, sat, tap-i, island"
    submit(live)
    live.wait(f"!{DIALOG}")
    live.wait(f"{CHAIN_LABEL} === 'main: world, tap-w, sat, island'")


def test_what_the_api_refuses_is_said_in_its_words_and_the_dialog_stays(live: Page) -> None:
    live.click("#run-start")
    live.value(f"{DIALOG}.querySelector('input[type=text]').value = 'soon'")
    submit(live)
    assert "duration" in live.wait(f"{DIALOG}.querySelector('.problem').textContent")
    live.press("Escape")
    live.wait(f"!{DIALOG}")
    assert [line for line in live.complaints if "status of 4" not in line] == []
    live.complaints.clear()  # Chromium has a refused request among its errors


def test_the_latency_of_a_server_is_changed_from_its_row(live: Page) -> None:
    row = "document.querySelector('#servers tr')"
    assert "rtt-200" in live.wait(f"{row}.textContent")
    live.click("#servers tr button")
    choose(live, "dialog[open] .field:nth-of-type(2) select", "rtt-90")
    submit(live)
    live.wait(f"{DIALOG}.querySelectorAll('.changes li').length > 0")
    submit(live)
    live.wait(f"!{DIALOG}")
    live.wait(f"{row}.querySelector('td').textContent === 'rtt-90' && {row}.querySelector('.n').textContent === '90'")


def test_the_view_is_paused_zoomed_and_turned_dark_by_keys_and_pointer(live: Page) -> None:
    live.press(" ")
    live.wait(f"{STATE}.includes('paused at')")
    live.press(" ")
    live.wait(f"{STATE} === 'live'")
    live.drag("#chart-rate .u-over", 0.3, 0.6)
    live.wait(f"{STATE}.includes('zoomed')")
    live.click("#chart-queue .u-over", 2)
    live.wait(f"!{STATE}.includes('zoomed')")
    live.press("ArrowUp")
    live.wait("document.querySelector('#window').value === '120'")
    light = live.value("getComputedStyle(document.body).backgroundColor")
    live.press("d")
    live.wait(f"getComputedStyle(document.body).backgroundColor !== {json.dumps(light)}")
    live.press("d")
    live.press("?")
    live.wait(f"{DIALOG}.textContent.includes('Space')")
    live.press("Escape")
    live.wait(f"!{DIALOG}")


def test_a_narrow_window_shows_everything_in_one_column(live: Page) -> None:
    live.resize(390, 900)
    live.wait("document.documentElement.scrollWidth <= 390")
    chain = "document.querySelector('#chain')"
    live.wait(f"{chain}.scrollWidth <= {chain}.clientWidth")
    widths = live.value("[...document.querySelectorAll('.chart')].map(chart => chart.getBoundingClientRect().width)")
    assert min(widths) > 350


def test_a_daemon_that_dies_is_told_and_the_next_lab_is_found_by_itself(stage: Stage) -> None:
    stage.up()
    page = stage.open()
    page.wait(f"{STATE} === 'live'")
    daemon = stage.sandbox.find("atoll_daemon")
    assert daemon is not None
    stage.sandbox.kill(daemon)
    page.wait(f"{STATE} === 'lab ended'")
    assert "The lab ended at" in page.wait(BANNER)
    page.wait("document.querySelector('#chain-change').disabled")
    stage.atoll("up", QUICK)
    page.wait(f"{STATE} === 'live'")
    page.wait("document.querySelector('#banner').hidden")
    stage.down()
    page.wait(f"{STATE} === 'lab ended'")
    done = stage.sandbox.run("env", f"HOME={stage.sandbox.directory}", ATOLL, "run", QUICK, "--duration", "3 s")
    assert done.returncode in (0, 3), done.stderr
    away = ("status of 503", "status of 409", "WebSocket")  # no daemon, no lab yet, the socket that broke
    assert [line for line in page.complaints if not any(word in line for word in away)] == []
    page.close()


def test_a_page_that_nobody_serves_any_more_says_that_its_connection_was_lost(stage: Stage) -> None:
    """The lab goes on, so nothing is said of its end; served again, the page shows it again."""
    stage.up()
    with stage.watch(PORT + 1) as url:
        page = stage.open_at(url)
        page.wait(f"{STATE} === 'live'")
    page.wait(f"{STATE} === 'not connected'")
    said = page.wait(f"/This address no longer answers.*again in/.test({BANNER}) && {BANNER}")
    assert re.fullmatch(
        r"The connection was lost at \d\d:\d\d:\d\d: the figures shown are older\. "
        r"This address no longer answers\. Trying again in [1-5] s\.",
        said,
    )
    assert "lab ended" not in page.value(LOG)
    page.wait(f"{LOG}.includes('the connection to the lab has ended')")
    with stage.watch(PORT + 1):
        page.wait(f"{STATE} === 'live'")
        page.wait("document.querySelector('#banner').hidden")
        page.wait(f"{LOG}.includes('connected again')")
    away = ("ERR_CONNECTION_REFUSED", "WebSocket")
    assert [line for line in page.complaints if not any(word in line for word in away)] == []
    page.close()


def test_a_run_with_a_lab_of_its_own_stays_in_sight_with_its_verdict(stage: Stage) -> None:
    """Its daemon goes as soon as it is over."""
    stage.down()
    page = stage.open()
    page.wait(f"{STATE} === 'no lab'")
    done = stage.sandbox.run("env", f"HOME={stage.sandbox.directory}", ATOLL, "run", QUICK, "--duration", "3 s")
    assert done.returncode in (0, 3), done.stderr
    page.wait(f"{STATE} === 'lab ended'")
    assert page.value("document.querySelector('#run .run-id').textContent").startswith("quick-")
    verdict = page.value(VERDICT)
    assert verdict in (("invalid",) if done.returncode else ("valid", "valid with caveats"))
    page.wait(f"{LOG}.includes('run quick: {verdict}')")
    page.close()


def test_silence_is_counted_and_stays_in_the_plots_as_a_gap(stage: Stage) -> None:
    """The daemon stands still for a while: its connection is there, but nothing comes."""
    stage.up()
    page = stage.open()
    page.wait(f"{STATE} === 'live'")
    daemon = stage.sandbox.find("atoll_daemon")
    assert daemon is not None
    stage.sandbox.kill(daemon, signal.SIGSTOP)
    try:
        page.wait(f"/no data for [1-9]\\d* s/.test({STATE})")  # each of them is there for a second only
    finally:
        stage.sandbox.kill(daemon, signal.SIGCONT)
    page.wait(f"{STATE} === 'live'")
    page.wait("document.querySelector('#announced').textContent === 'live'")
    assert page.complaints == []
    page.close()


def test_before_the_first_lab_the_page_says_that_none_is_up(stage: Stage) -> None:
    stage.down()
    page = stage.open()
    page.wait(f"{STATE} === 'no lab'")
    assert "No lab is up" in page.value(BANNER)
    page.close()


def test_a_finished_run_is_replayed_with_the_same_plots(stage: Stage) -> None:
    run = stage.run_directory()
    page = stage.open(fragment=f"{stage.url.partition('#')[2]}&run=quick-{run.name}")
    page.wait(f"{STATE} === 'replay'")
    assert page.value("location.hash") == f"#run=quick-{run.name}"
    verdict = json.loads((run / "summary.json").read_text())["verdict"]
    assert page.value("document.querySelector('#where').textContent").endswith(f", {verdict}")
    page.wait("Number.parseFloat(document.querySelector('#chart-goodput .figure').textContent) > 0")
    slide(page, 1.5)
    page.wait(f"{VERDICT}.startsWith('measure')")
    assert page.wait("Number(document.querySelector('#chart-flows .figure').textContent)") <= 12  # one a channel
    page.press(" ")
    page.wait("Number(document.querySelector('#position').value) > 2")
    page.press("End")
    page.wait(f"{VERDICT} === {json.dumps(verdict)}")
    assert page.complaints == []
    page.close()


def test_a_run_that_is_being_made_is_followed_to_its_end(live: Page, stage: Stage) -> None:
    """Its steps come into the log as they are taken, and it is not said to be loading all the while."""
    live.click("#run-start")
    live.value(f"{DIALOG}.querySelector('input[type=text]').value = '12 s'")  # the other page is there before it ends
    submit(live)
    run = "document.querySelector('#run .run-id').textContent"
    before = live.value(run)
    live.wait(f"{run}.startsWith('quick-') && {run} !== {json.dumps(before)}")
    page = stage.open(fragment=f"{stage.url.partition('#')[2]}&run={live.value(run)}")
    page.wait(f"{STATE} === 'replay' && {VERDICT}.startsWith('measure')")
    page.wait(f"{LOG}.includes('measure: the load is running')")
    assert "outcome" not in page.value(LOG)
    page.wait(f"{LOG}.includes('outcome: completed')")
    assert page.complaints == []
    page.close()
    live.wait(JUDGED)


def test_a_run_is_chosen_from_the_list_and_left_again(stage: Stage) -> None:
    run = stage.run_directory()
    stage.up()
    page = stage.open()
    page.wait(f"{STATE} === 'live'")
    page.press("r")
    page.wait(f"{DIALOG}.textContent.includes({json.dumps(run.name)})")
    page.click("dialog[open] .replays button")
    page.wait(f"{STATE} === 'replay'")
    page.click("#replay-leave")
    page.wait(f"{STATE} === 'live'")
    page.close()


def slide(page: Page, seconds: float) -> None:
    """Move the slider to so long after the begin of the measurement."""
    page.value(
        f"(slider => {{ slider.value = {seconds}; slider.dispatchEvent(new Event('input')) }})"
        "(document.querySelector('#position'))"
    )
