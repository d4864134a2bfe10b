// SPDX-License-Identifier: Apache-2.0
// The text of an event (docs/api.md), as the log shows it. Pure.

import { seconds, settingMs, things } from "./format.js";

/** {kind, text, grave} of an event; null for events that the log does not show: samples, and the figures of single checks. */
export function eventText(event) {
  const text = TEXTS[event.type];
  if (text === undefined) return unknownEvent(event);
  const line = text(event);
  return line && { kind: event.type, grave: false, ...(typeof line === "string" ? { text: line } : line) };
}

const HIDDEN = () => null;

const TEXTS = {
  hello: HIDDEN,
  points: HIDDEN,
  counters: HIDDEN,
  live: HIDDEN,
  check: HIDDEN,
  calibration: HIDDEN,
  gap: (event) => ({ text: `events ${event.from} to ${event.to} were not kept: the log has a gap`, grave: true }),
  lab: (event) => ({
    text: `lab ${event.lab} ${event.state === "up" ? "is" : "has"} ${LAB[event.state] ?? event.state}${why(event)}`,
    grave: event.state !== "up",
  }),
  work: (event) => ({
    text: `${event.what} ${event.about}: ${event.verdict ? judged(event) : (WORK[event.state] ?? event.state)}${why(event)}`,
    grave: event.state === "failed" || event.verdict === "invalid",
  }),
  progress: (event) => event.text,
  verdict: (event) => ({ text: `verdict: ${judged(event)}`, grave: event.verdict === "invalid" }),
  start: (event) => {
    const clocks = Object.keys(event.clocks ?? {}).length;
    const compared = clocks ? `, ${things(clocks, "clock")} compared` : "";
    return `the load begins in ${seconds((event.at_ns - event.t_ns) / 1e9)}${compared}`;
  },
  window: (event) => `measured for ${seconds((event.end_ns - event.start_ns) / 1e9)}`,
  step: (event) => {
    if (event.state !== "failed") return event.state === "end" ? null : `step ${event.step}`;
    const ended = isCancelled(event) ? "cancelled" : `failed${why(event)}`;
    return { text: `step ${event.step} ${ended}`, grave: true };
  },
  check_off: (event) => ({ text: `test ${event.attempt}: ${event.message}`, grave: true }),
  trace_start: (event) => `the trace of ${event.boxes.join(", ")} begins`,
  not_collected: (event) => ({ text: event.message, grave: true }),
  run: (event) => `run ${event.run}`,
  applied: (event) => {
    const changes = event.changes === undefined ? "" : things(event.changes, "change");
    if (!event.experiment) return changes && `applied: ${changes}`;
    return `${event.experiment} applied: ${(event.chain ?? []).join(" \u2192 ")}${changes && `, ${changes}`}`;
  },
  swap: (event) => swap(event),
  change: (event) => ({
    text: `change ${event.change}: ${event.what?.join(", ") ?? CHANGE[event.state] ?? event.state}${why(event)}`,
    grave: event.state === "failed",
  }),
  switch: (event) => ({
    text: `switch ${event.switch ?? event.dpid} is ${event.state}`,
    grave: event.state === "down",
  }),
  error: (event) => ({ text: `switch ${event.switch ?? event.dpid ?? "?"}: ${event.message}`, grave: true }),
  whistle: (event) => `whistle ${event.what}`,
  note: (event) => event.message,
  listener_dropped: (event) => event.message,
  base_rtt: (event) => `base RTT ${settingMs(event.rtt_ns)}`,
  terrestrial: (event) =>
    `${event.server}: terrestrial RTT ${settingMs(event.measured_ns)}, configured ${settingMs(event.configured_ns)}`,
  clocks: (event) => ({
    text: `clocks compared; this machine's was set by ${(event.step_ns / 1e6).toFixed(3)} ms during the measurement`,
    grave: Math.abs(event.step_ns) > 5e6,
  }),
  drained: () => "the link has drained",
  outcome: (event) => ({
    text: `outcome: ${event.outcome.replace(/: .*/s, "")}`, // the reason is that of the step
    grave: event.outcome !== "completed",
  }),
  here: (event) => ({ text: event.text, grave: event.grave }),
};

const LAB = { up: "up", down: "been taken down", failed: "failed" };
const WORK = { begin: "begun", end: "done" };
const CHANGE = { end: "active", failed: "failed" };
const CONNECTIONS = {
  reset: "reset",
  restart: "ended with their program",
  limit: "still there at the limit",
  "time-out": "left to their time-outs",
};

/** Whether a step was cancelled and did not fail: its message is then that word alone (docs/contracts.md). */
export const isCancelled = (event) => event.message === "cancelled";

const why = (event) => (event.message ? `: ${event.message}` : "");

/** A verdict with its reasons, or with the caveats of a valid run, if there are any. */
function judged({ verdict, reasons, caveats }) {
  const because = reasons?.length ? reasons : (caveats ?? []);
  return [verdict, ...(because.length ? [because.join("; ")] : [])].join(": ");
}

function swap(event) {
  if (event.state === "stage") return `swap: ${event.text ?? `${event.subject} ${event.stage}`}`;
  if (event.state === "undone") return { text: `swap rolled back: ${event.reason}`, grave: true };
  if (event.state === "end") return `swap done in ${settingMs(event.duration_ns)}`;
  if (event.state === "turned") return "swap: packets take the new version";
  if (event.state === "connections") {
    if (event.how === "failed") return { text: `swap: connections could not be ended: ${event.reason}`, grave: true };
    const ended = Object.entries(event.boxes ?? {}).map(([box, count]) => (count === null ? box : `${count} of ${box}`));
    return `swap: connections ${CONNECTIONS[event.how] ?? event.how}: ${ended.join(", ")}`;
  }
  const moved = event.moved?.length ? `; moves ${event.moved.join(", ")}` : "";
  return event.state === "begin" ? `swap: ${(event.stages ?? []).join(", ")}${moved}` : `swap: ${event.state}`;
}

/** An event of a type unknown to this page, as `type: key value, key value` with all strings, numbers and booleans. */
function unknownEvent(event) {
  const parts = Object.entries(event)
    .filter(
      ([key, part]) => !["type", "seq", "t_ns"].includes(key) && ["string", "number", "boolean"].includes(typeof part),
    )
    .map(([key, part]) => `${key} ${part}`);
  const kind = String(event.type);
  return { kind, text: [kind, ...(parts.length ? [parts.join(", ")] : [])].join(": "), grave: false };
}
