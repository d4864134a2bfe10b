// SPDX-License-Identifier: Apache-2.0
// The side panels: the run, the world servers, the boxes, the hosts, the log of events.

import { element, fill, isDisabled, say, setDisabled } from "./dom.js";
import { bitRate, byteCount, elapsed, percent, quantityText } from "./format.js";
import { hostHealth, machineLoads } from "./host_health.js";
import { OLD_S } from "./store.js";

const COUNTED_S = 1; // rates of counters are means of the last second

/** A run's steps in their order (docs/contracts.md). */
export const STEPS = "apply check settings captures servers clients measure stop drain record analyse".split(" ");

/**
 * `run`: {id, step, elapsed_s, duration_s, verdict, state, broken, reasons, caveats}, or null; `broken`: why it ended early;
 * `reasons`: of its verdict, if it is invalid; `caveats`: figures beyond a bound.
 */
export function showRun(place, run) {
  const { title, progress, steps, text, why } = parts(place);
  say(title, run ? run.id : "no run in progress");
  const share = run && run.duration_s > 0 && run.elapsed_s >= 0 ? Math.min(1, run.elapsed_s / run.duration_s) : 0;
  progress.value = run?.state === "ended" && run.broken === null ? 1 : share;
  progress.hidden = !run;
  const states = stepStates(run);
  steps.forEach((step, index) => {
    step.className = states[index];
    step.title = states[index] && TITLES[states[index]];
    if (states[index] === "now") step.setAttribute("aria-current", "step");
    else step.removeAttribute("aria-current");
  });
  say(text, run ? progressOf(run) : "");
  text.className = `run-text ${run?.broken != null ? "broken" : (run?.verdict ?? "")}`;
  say(why, run?.broken || judgement(run));
}

function judgement(run) {
  if (run?.reasons?.length) return ["invalid because", ...run.reasons].join("\n");
  return run?.caveats?.length ? ["caveats", ...run.caveats].join("\n") : "";
}

const TITLES = { done: "done", now: "in progress", broken: "the run ended here", "not-reached": "not reached" };

/** The state of each of STEPS: `done`, `now`, `broken`, `not-reached`; "" if it may still come. Pure. */
export function stepStates(run) {
  const at = STEPS.indexOf(run?.step);
  const broken = run?.state === "ended" && run.broken !== null;
  const here = broken ? "broken" : run?.state === "ended" ? "done" : "now";
  return STEPS.map((_, index) => (index < at ? "done" : index === at ? here : broken ? "not-reached" : ""));
}

function progressOf(run) {
  if (run.broken != null) return run.step ? `${run.verdict} at ${run.step}` : run.verdict;
  if (run.verdict) return run.verdict;
  const clock =
    run.elapsed_s >= 0 && run.duration_s > 0
      ? `${elapsed(Math.min(run.elapsed_s, run.duration_s))} of ${elapsed(run.duration_s)}`
      : "";
  return [run.step ?? "", clock].filter(Boolean).join(", ");
}

const made = new WeakMap();

function parts(place) {
  if (!made.has(place)) {
    const nodes = {
      title: element("p", { class: "run-id" }),
      text: element("p", { class: "run-text" }),
      progress: element("progress", { max: 1, "aria-label": "measured so far" }),
      steps: STEPS.map((step) => element("li", {}, step)),
      why: element("p", { class: "run-why" }),
    };
    const line = element("div", { class: "run-line" }, nodes.title, nodes.text);
    fill(place, line, nodes.progress, element("ol", { class: "run-steps" }, ...nodes.steps), nodes.why);
    made.set(place, nodes);
  }
  return made.get(place);
}

/** A server's rate in bit/s and its open flows; NaN without a recent figure, or after the load's end. */
export function sendingOf(store, server, t) {
  const flows = store.series("flows");
  if (flows.length && !Number.isFinite(flows.at(t, OLD_S))) return { sent: NaN, active: NaN };
  return {
    sent: store.series(`server/${server}/sent`).at(t, OLD_S),
    active: store.series(`server/${server}/active`).at(t, OLD_S),
  };
}

/**
 * Show the world servers: latency class, measured RTT, sending rate and open flows. `choose(server)` is called on a click; null:
 * servers cannot be chosen; `disabled`: the reason why they cannot be chosen now.
 */
export function showServers(place, picture, store, measured, t, choose, disabled = "") {
  const names = (picture?.hosts ?? []).filter((host) => host.role === "world-server").map((host) => host.name);
  const rows = childrenOf(place, [...names, choose ? "" : "replay"].join("\n"), names, (name) => {
    const onclick = ({ currentTarget }) => isDisabled(currentTarget) || choose(name);
    const attributes = { type: "button", class: "plain", onclick, title: `change the latency of ${name}` };
    const head = element("th", { scope: "row" }, choose ? element("button", attributes, name) : name);
    return element("tr", {}, head, ...["class", "n", "n", "n", "n"].map((kind) => element("td", { class: kind })));
  });
  for (const [name, row] of rows) {
    const latency = picture.latencies?.[name];
    const cells = row.querySelectorAll("td");
    const { sent, active } = sendingOf(store, name, t);
    const figures = [
      latency?.class ?? "not delayed",
      String((latency?.rtt_ns ?? 0) / 1e6),
      measured.has(name) ? (measured.get(name) / 1e6).toFixed(1) : "",
      bitRate(sent),
      Number.isFinite(active) ? String(active) : "",
    ];
    figures.forEach((text, index) => say(cells[index], text));
    const button = row.querySelector("button");
    if (button) setDisabled(button, disabled, "disabled-reason");
  }
}

/** Show hosts as small fields, and name those with problems in `summary`. `none`: the text while no host reports figures. */
export function showHosts(place, summary, picture, store, t, none) {
  const hosts = hostHealth(picture?.hosts ?? [], store, t);
  const names = hosts.map((host) => host.name);
  const fields = childrenOf(place, names.join("\n"), names, (name) => element("li", { class: "host" }, name));
  for (const host of hosts) {
    const field = fields.get(host.name);
    field.className = `host ${host.state}`;
    const label = `${host.name}, ${host.role}: ${host.text}`;
    if (field.title !== label) {
      field.title = label;
      field.setAttribute("aria-label", label);
    }
  }
  const wrong = hosts.filter((host) => host.state === "trouble" || host.state === "silent");
  const well = hosts.filter((host) => host.state === "well").length;
  const named = wrong.slice(0, 4).map((host) => `${host.name}: ${host.text}`).join("; ");
  const more = wrong.length > 4 ? ` and ${wrong.length - 4} more` : "";
  const silent = hosts.length ? `${hosts.length} hosts: ${none}` : "";
  const allWell = well ? `${well} of ${hosts.length} report figures and are well` : silent;
  say(summary, wrong.length ? named + more : allWell);
  summary.classList.toggle("grave", wrong.length > 0);
}

/**
 * The figures of boxes with counters of their own at an instant: [{name, what, boxes: Map(box -> text)}]. Counters are shown
 * per second. Pure.
 */
export function boxFigures(boxes, store, t) {
  const rows = new Map();
  for (const [box, { counters = [], levels = [] }] of Object.entries(boxes ?? {})) {
    for (const figure of [...levels, ...counters]) {
      const isSum = counters.includes(figure);
      const key = `box/${box}/${figure.name}${isSum ? "/rate" : ""}`;
      const value = isSum ? store.series(key).mean(t - COUNTED_S, t) : store.series(key).at(t, OLD_S);
      const unit = figure.unit === "1" ? "" : figure.unit === "bytes" ? "B" : figure.unit;
      const row = rows.get(figure.name) ?? { name: figure.name, what: figure.what, boxes: new Map() };
      row.boxes.set(box, quantityText(value, isSum ? `${unit}/s` : unit));
      rows.set(figure.name, row);
    }
  }
  return [...rows.values()];
}

/** Show the counters of boxes, a column for each box; hidden if no box has any. */
export function showBoxes(panel, place, picture, store, t) {
  const rows = boxFigures(picture?.boxes, store, t);
  const boxes = [...new Set(rows.flatMap((row) => [...row.boxes.keys()]))];
  panel.hidden = !rows.length;
  const content = JSON.stringify([boxes, rows.map((row) => row.name)]);
  const lines = childrenOf(place, content, ["", ...rows.map((row) => row.name)], (name) =>
    name
      ? element("tr", {}, element("th", { scope: "row" }, name.replaceAll("_", " ")), ...boxes.map(() => element("td", { class: "n" })))
      : element("tr", {}, element("th", { scope: "col" }), ...boxes.map((box) => element("th", { scope: "col", class: "n" }, box))),
  );
  for (const row of rows) {
    const line = lines.get(row.name);
    line.title = row.what;
    line.querySelectorAll("td").forEach((cell, index) => say(cell, row.boxes.get(boxes[index]) ?? ""));
  }
}

const OVERLOADED = 0.95; // of all CPUs' time; measurements are doubtful beyond
const MACHINES = 4; // the busiest ones; a rack has more than fit

/** Show the load of the busiest machines of the laboratory. */
export function showMachines(place, store, t) {
  const machines = machineLoads(store, t).sort((one, other) => other.busy - one.busy);
  const text = ({ name, busy, cpus, free_bytes: free }) =>
    `${name}: ${percent(busy)} of ${cpus} CPU${cpus === 1 ? "" : "s"}${Number.isFinite(free) ? `, ${byteCount(free)} free` : ""}`;
  say(place, machines.slice(0, MACHINES).map(text).join("; "));
  place.classList.toggle("grave", machines.some((machine) => machine.busy > OVERLOADED));
}

const built = new WeakMap();

/** The children of an element by name; they are rebuilt only when `content` changes. */
function childrenOf(place, content, names, make) {
  const before = built.get(place);
  if (before?.content === content) return before.nodes;
  const nodes = new Map(names.map((name) => [name, make(name)]));
  fill(place, ...nodes.values());
  built.set(place, { content, nodes });
  return nodes;
}

const LINES = 400;

export class EventLog {
  #place;
  #events = [];
  #clock = () => "";

  constructor(place) {
    this.#place = place;
  }

  /** How instants are formatted: seconds since 1970 -> text. */
  set clock(format) {
    this.#clock = format;
    this.#redraw();
  }

  /** Add an event of the API, or of this page (`type` "here"), by its text. */
  add({ type, t_ns, text, severity }) {
    if (!text) return;
    const entry = { t: t_ns / 1e9, kind: type, text, grave: severity === "warning" };
    this.#events.push(entry);
    if (this.#events.length > LINES) this.#events.shift();
    this.#place.prepend(this.#line(entry));
    while (this.#place.children.length > LINES) this.#place.lastElementChild.remove();
  }

  clear() {
    this.#events = [];
    this.#redraw();
  }

  /** Mark the events after an instant of a replay as still to come. */
  upTo(t) {
    const lines = this.#place.children;
    for (let index = 0; index < lines.length; index += 1) {
      lines[index].classList.toggle("to-come", this.#events[this.#events.length - 1 - index].t > t);
    }
  }

  #redraw() {
    fill(this.#place, ...this.#events.map((entry) => this.#line(entry)).reverse());
  }

  #line({ t, kind, text, grave }) {
    const time = element("time", {}, Number.isFinite(t) ? this.#clock(t) : "");
    return element("li", { class: grave ? "grave" : null, "data-kind": kind }, time, element("span", {}, text));
  }
}
