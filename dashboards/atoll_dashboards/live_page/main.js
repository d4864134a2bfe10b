// SPDX-License-Identifier: Apache-2.0
// The live page. Everything shown is a function of a store, a picture of the lab and an instant; this module wires them.

import { Api, readFragment, showFragment } from "./api.js";
import { Charts } from "./charts.js";
import { ChainDrawing } from "./chain.js";
import { Controls } from "./controls.js";
import { askToken, tokenReason } from "./dialogs.js";
import { byId, element, fill, isDisabled, say, setDisabled, showDisabledReason } from "./dom.js";
import { elapsed, timeOfDay } from "./format.js";
import * as shortcuts from "./shortcuts.js";
import { LiveSource } from "./live_source.js";
import * as theme from "./theme.js";
import { EventLog, showBoxes, showHosts, showMachines, showRun, showServers } from "./panels.js";
import { chooseReplay, ReplayControls } from "./replay_controls.js";
import { TimeRange, WINDOWS } from "./time_range.js";

const DRAW_MS = 100; // the shortest interval between redraws: links are sampled as often
const SEEK_S = 5;

const api = new Api(new URL("..", location.href));
const view = new TimeRange(wake);
const live = new LiveSource(api, { changed: wake, event: (event) => !player.replay && log.add(event), refused: wantToken });
const failed = (error) => note(error.message, true);
const player = new ReplayControls(api, { changed: wake, begun, left, failed, refused: wantToken });
const charts = new Charts(byId("charts"), view);
const chain = new ChainDrawing(byId("chain"));
const log = new EventLog(byId("log"));
const controls = new Controls(api);

let link = "";
let drawing = false;
let logged = null; // the answer about the run whose events are in the log

/** Something has changed: draw soon. */
function wake() {
  if (drawing) return;
  drawing = true;
  setTimeout(() => requestAnimationFrame(draw), document.hidden ? 1000 : DRAW_MS);
}

/** The source of the figures: the replay, if there is one, else the lab that is up. */
const source = () => player.replay ?? live;

function draw() {
  drawing = false;
  const { replay } = player;
  const { store } = source();
  const edge = replay ? replay.position : live.edge;
  const span = replay && view.window === null && !view.range ? [replay.from, replay.to] : view.span(edge, live.first);
  const instant = view.instant(edge);
  const picture = replay ? replay.pictureAt(instant) : live.picture;
  const origin = replay ? replay.origin : null;
  const running = live.run?.state === "running";
  const without = replay || live.remark;
  const noFigures = without ? "no figures in this run" : running ? "no figures yet" : "no run in progress";
  const none = replay?.loading ? "loading" : noFigures;
  chooseLink(store, picture);
  const position = replay ? replay.position : null;
  charts.show(store, link, { span, edge: replay ? replay.to : live.now, instant, origin, position, none });
  chain.show(picture, store, instant);
  const run = replay ? replay.runAt(instant) : live.run;
  showRun(byId("run"), run);
  const change = replay ? null : (server) => controls.changeLatency(live.picture, server);
  showServers(byId("servers"), picture, store, source().measured, instant, change, live.disabledReason);
  showBoxes(byId("boxes-panel"), byId("boxes"), picture, store, instant);
  showHosts(byId("hosts"), byId("hosts-summary"), picture, store, instant, replay && store.hosts.size ? "no figures here" : none);
  showMachines(byId("machines"), store, instant);
  if (replay) showLog(replay);
  player.show();
  showState(picture, run);
}

/** Fill the log with the run's events as last reported; the events of a run in progress grow. */
function showLog(replay) {
  if (logged !== replay.description) {
    logged = replay.description;
    log.clear();
    log.clock = (t) => elapsed(t - replay.origin);
    for (const event of replay.description.events) log.add(event);
  }
  log.upTo(replay.position);
}

const replayed = ({ description, ending }) => ["replay of a run", description?.place, ending].filter(Boolean).join(", ");

function showState(picture, run) {
  const { replay } = player;
  const where = [picture?.lab, picture?.experiment, replay ? replayed(replay) : picture?.place];
  say(byId("where"), where.filter(Boolean).join(" \u00b7 "));
  document.title = ["atoll", replay ? replay.id : picture?.experiment].filter(Boolean).join(" \u2013 ");
  const { kind, text } = replay
    ? { kind: "replay", text: replay.loading ? "loading the run" : "replay" }
    : live.state();
  const state = byId("state");
  const zoomed = view.range ? ", zoomed: double-click or Esc to leave" : "";
  const paused = !replay && view.paused !== null ? `, paused at ${timeOfDay(view.paused)}` : "";
  say(state, text + paused + zoomed);
  const shown = paused ? "paused" : kind;
  const grave = replay ? "" : live.banner();
  const banner = grave || source().remark;
  announce(shown, paused ? "paused" : text, banner);
  state.className = `state ${shown}`;
  showBanner(banner, !grave);
  document.body.classList.toggle("away", !replay && live.away);
  showButtons(Boolean(replay), run);
}

function showButtons(replayed, run) {
  const going = run?.state === "running" && !replayed;
  const pause = byId("pause");
  say(pause, view.paused === null ? "Pause" : "Resume");
  pause.setAttribute("aria-pressed", String(view.paused !== null));
  pause.hidden = replayed;
  byId("run-stop").hidden = !going;
  byId("run-start").hidden = going || replayed;
  byId("run-start").disabled = live.away || !live.picture;
  const reason = replayed ? "" : live.disabledReason;
  showDisabledReason(byId("disabled-reason"), reason);
  for (const id of ["chain-change", "latency-change"]) {
    byId(id).hidden = replayed;
    byId(id).disabled = live.away || !live.picture?.experiment;
    setDisabled(byId(id), reason, "disabled-reason");
  }
  say(byId("theme"), theme.isDark() ? "Light" : "Dark");
  byId("window").value = String(view.window);
}

/** Announce a new state to screen readers once, not with every second that is counted. */
function announce(kind, text, more) {
  const status = byId("announced");
  const news = kind === "stale" ? kind : kind + text;
  if (status.dataset.news === news) return;
  status.dataset.news = news;
  say(status, [text, more].filter(Boolean).join(". "));
}

function showBanner(text, mild) {
  const banner = byId("banner");
  say(banner, text);
  banner.hidden = !text;
  banner.classList.toggle("mild", mild);
}

/** Plots show one link at a time: the chosen one, if there are several. */
function chooseLink(store, picture) {
  const links = (picture?.chains ?? []).flatMap((chain) => chain.hops.filter((hop) => hop.is_link));
  const names = [...new Set([...links.map((hop) => hop.name), ...store.links])];
  if (!names.includes(link)) link = names[0] ?? "";
  const pick = byId("link");
  if (pick.dataset.names !== names.join()) {
    pick.dataset.names = names.join();
    fill(pick, ...names.map((name) => element("option", { value: name }, name)));
  }
  pick.value = link;
  byId("link-pick").hidden = names.length < 2;
}

function rebuild() {
  charts.build(link);
  wake();
}

function note(text, grave = false) {
  log.add({ type: "here", t_ns: live.now * 1e9, text, severity: grave ? "warning" : "info" });
}

function wantToken(error) {
  askToken(tokenReason(error, api.token), (token) => {
    api.keep(token);
    if (player.opening) player.open(player.opening);
    else live.start();
  });
}

/** A replay has begun. */
function begun(replay) {
  live.stop();
  view.window = null;
  view.follow();
  showFragment(replay.id);
  showLog(replay);
}

function left() {
  showFragment(null);
  logged = null;
  log.clear();
  log.clock = timeOfDay;
  view.window = 60;
  view.follow();
  live.start();
}

const pause = () => (player.replay ? player.toggle() : view.paused === null ? view.pause(live.edge) : view.follow());
const step = (by) => (player.replay ? player.seek(by * SEEK_S) : view.pan(by / 4, live.edge, live.first));
const toEnd = () => (player.replay ? player.replay.seek(player.replay.to) : view.follow());
const switchTheme = () => (theme.switchTheme(), rebuild());
const switchScale = () => (theme.switchScale(), rebuild());
const replays = () => chooseReplay(api, (id) => player.open(id), wantToken);

function listen() {
  const clicks = {
    pause,
    theme: switchTheme,
    scale: switchScale,
    help: shortcuts.help,
    "run-start": () => controls.startRun(live.picture),
    "run-stop": () => controls.stopRun(live.run.id),
    "chain-change": () => controls.changeChain(live.picture).catch(failed),
    "latency-change": () => controls.changeLatency(live.picture),
    "replay-choose": replays,
    "replay-leave": () => player.leave(),
  };
  for (const [id, act] of Object.entries(clicks))
    byId(id).addEventListener("click", ({ currentTarget }) => isDisabled(currentTarget) || act());
  shortcuts.listen({
    " ": pause,
    ArrowLeft: () => step(-1),
    ArrowRight: () => step(1),
    ArrowUp: () => view.widen(1),
    ArrowDown: () => view.widen(-1),
    End: toEnd,
    Home: () => player.replay?.seek(player.replay.origin),
    Escape: () => view.unzoom(),
    d: switchTheme,
    s: switchScale,
    r: replays,
    "?": shortcuts.help,
  });
  const text = (seconds) =>
    seconds === null ? "all" : seconds < 60 ? `${seconds} s` : seconds < 3600 ? `${seconds / 60} min` : "1 h";
  fill(byId("window"), ...WINDOWS.map((seconds) => element("option", { value: String(seconds) }, text(seconds))));
  byId("window").addEventListener("change", ({ target }) =>
    view.choose(target.value === "null" ? null : Number(target.value)),
  );
  byId("link").addEventListener("change", ({ target }) => {
    link = target.value;
    wake();
  });
}

function begin() {
  theme.begin(rebuild);
  log.clock = timeOfDay;
  listen();
  const { token, run } = readFragment();
  if (token) api.keep(token);
  charts.build(link);
  if (run) player.open(run);
  else live.start();
  wake();
  setInterval(() => (player.replay?.playing ? undefined : wake()), 1000); // time passes even if no message arrives
}

begin();
