// SPDX-License-Identifier: Apache-2.0
// The panels beside the plots: the run, the world servers, the hosts.

import { bar, isBarred } from "./barred.js";
import { element, fill, say } from "./dom.js";
import { bitRate, byteCount, elapsed, percent } from "./format.js";
import { healthOf, machinesOf } from "./health.js";

const OLD_S = 3.2;

/** A run's steps in their order (docs/contracts.md). */
export const STEPS = [
  "apply",
  "check",
  "settings",
  "captures",
  "servers",
  "clients",
  "measure",
  "stop",
  "drain",
  "record",
  "analyse",
];

/**
 * `run`: {id, step, elapsed_s, duration_s, verdict, state, broken, reasons, caveats}, or null; `broken`: why it ended before its time;
 * `reasons`: of its verdict, if it is invalid; `caveats`: figures beyond a bound.
 */
export function showRun(place, run) {
  const { title, bar, steps, text, why } = parts(place);
  say(title, run ? run.id : "no run is going");
  const share = run && run.duration_s > 0 && run.elapsed_s >= 0 ? Math.min(1, run.elapsed_s / run.duration_s) : 0;
  bar.value = run?.state === "ended" && run.broken === null ? 1 : share;
  bar.hidden = !run;
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

const TITLES = { done: "done", now: "going on", broken: "here it ended", "not-reached": "not reached" };

/** What became of each of STEPS: `done`, `now`, `broken`, `not-reached`; "" of those that may still come. Pure. */
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
    const found = {
      title: element("p", { class: "run-id" }),
      text: element("p", { class: "run-text" }),
      bar: element("progress", { max: 1, "aria-label": "measured so far" }),
      steps: STEPS.map((step) => element("li", {}, step)),
      why: element("p", { class: "run-why" }),
    };
    fill(
      place,
      element("div", { class: "run-line" }, found.title, found.text),
      found.bar,
      element("ol", { class: "run-steps" }, ...found.steps),
      found.why,
    );
    made.set(place, found);
  }
  return made.get(place);
}

/** What a server sends in bit/s and its open flows; NaN where nothing is told, or its load has ended: what it said last was of that. */
export function sendingOf(store, server, t) {
  const flows = store.series("flows");
  if (flows.length && !Number.isFinite(flows.at(t, OLD_S))) return { sent: NaN, active: NaN };
  return {
    sent: store.series(`server/${server}/sent`).at(t, OLD_S),
    active: store.series(`server/${server}/active`).at(t, OLD_S),
  };
}

/**
 * World servers, each with its latency, what the last test measured of it and what it sends. `choose(server)`: one was; null:
 * cannot be; `barred`: why it cannot be at the moment.
 */
export function showServers(place, picture, store, measured, t, choose, barred = "") {
  const names = (picture?.hosts ?? []).filter((host) => host.role === "world-server").map((host) => host.name);
  const rows = keep(place, [...names, choose ? "" : "replay"].join("\n"), names, (name) => {
    const head = choose
      ? element(
          "button",
          {
            type: "button",
            class: "plain",
            onclick: ({ currentTarget }) => isBarred(currentTarget) || choose(name),
            title: `change the latency of ${name}`,
          },
          name,
        )
      : name;
    return element(
      "tr",
      {},
      element("th", { scope: "row" }, head),
      ...["class", "n", "n", "n", "n"].map((kind) => element("td", { class: kind })),
    );
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
    if (button) bar(button, barred, "barred");
  }
}

/** Hosts as small fields, the ones that have something to say told in words, too. `none`: when they tell no figures. */
export function showHosts(place, told, picture, store, t, none) {
  const hosts = healthOf(picture?.hosts ?? [], store, t);
  const names = hosts.map((host) => host.name);
  const fields = keep(place, names.join("\n"), names, (name) => element("li", { class: "host" }, name));
  for (const host of hosts) {
    const field = fields.get(host.name);
    field.className = `host ${host.state}`;
    const words = `${host.name}, ${host.role}: ${host.text}`;
    if (field.title !== words) {
      field.title = words;
      field.setAttribute("aria-label", words);
    }
  }
  const wrong = hosts.filter((host) => host.state === "trouble" || host.state === "silent");
  const well = hosts.filter((host) => host.state === "well").length;
  const summary = well
    ? `${well} of ${hosts.length} tell figures and are well`
    : hosts.length
      ? `${hosts.length} hosts: ${none}`
      : "";
  say(
    told,
    wrong.length
      ? wrong
          .slice(0, 4)
          .map((host) => `${host.name}: ${host.text}`)
          .join("; ") + (wrong.length > 4 ? ` and ${wrong.length - 4} more` : "")
      : summary,
  );
  told.classList.toggle("grave", wrong.length > 0);
}

const OVERLOADED = 0.95; // of all CPUs' time: what a lab measures then is doubtful
const MACHINES = 4; // the busiest; a rack has more than anybody reads

/** The busiest of the machines that all of this runs on. */
export function showMachines(place, store, t) {
  const machines = machinesOf(store, t).sort((one, other) => other.busy - one.busy);
  const words = ({ name, busy, cpus, free_bytes: free }) =>
    `${name}: ${percent(busy)} of ${cpus} CPU${cpus === 1 ? "" : "s"}${Number.isFinite(free) ? `, ${byteCount(free)} free` : ""}`;
  say(place, machines.slice(0, MACHINES).map(words).join("; "));
  place.classList.toggle(
    "grave",
    machines.some((machine) => machine.busy > OVERLOADED),
  );
}

const kept = new WeakMap();

/** The children of a place by their names, made anew only when `wanted` is another text than before. */
function keep(place, wanted, names, make) {
  const before = kept.get(place);
  if (before?.wanted === wanted) return before.nodes;
  const nodes = new Map(names.map((name) => [name, make(name)]));
  fill(place, ...nodes.values());
  kept.set(place, { wanted, nodes });
  return nodes;
}
