// SPDX-License-Identifier: Apache-2.0
// Events (docs/api.md) as a line for people. Pure.

import { settingMs } from "./format.js";

/** {kind, text, grave} of an event; null for what the log does not show: samples, checks of every path, what is told elsewhere. */
export function describe(event) {
  const told = DESCRIBED[event.type];
  if (told === undefined) return other(event);
  const line = told(event);
  return line && { kind: event.type, grave: false, ...(typeof line === "string" ? { text: line } : line) };
}

const SILENT = () => null;

const DESCRIBED = {
  hello: SILENT,
  points: SILENT,
  counters: SILENT,
  live: SILENT,
  check: SILENT,
  window: SILENT,
  gap: (event) => ({ text: `events ${event.from} to ${event.to} were not kept: this log has a gap`, grave: true }),
  lab: (event) => ({
    text: `lab ${event.lab} ${event.state === "up" ? "is" : "has"} ${LAB[event.state] ?? event.state}${why(event)}`,
    grave: event.state !== "up",
  }),
  work: (event) => ({
    text: `${event.what} ${event.about}: ${event.verdict ?? WORK[event.state] ?? event.state}${why(event)}`,
    grave: event.state === "failed" || (event.verdict ?? "valid") !== "valid",
  }),
  progress: (event) => event.text,
  start: SILENT,
  step: (event) => {
    if (event.state !== "failed") return event.state === "end" ? null : `step ${event.step}`;
    const ended = isCancelled(event) ? "cancelled" : `failed${why(event)}`;
    return { text: `step ${event.step} ${ended}`, grave: true };
  },
  check_off: (event) => ({ text: `test ${event.attempt}: ${event.message}`, grave: true }),
  trace_start: (event) => `the trace of ${event.boxes.join(", ")} begins`,
  not_collected: (event) => ({ text: event.message, grave: true }),
  run: (event) => `run ${event.run}`,
  applied: (event) => (event.experiment ? `${event.experiment} stands: ${(event.chain ?? []).join(" \u2192 ")}` : null),
  swap: (event) => swap(event),
  change: (event) => ({
    text: `change ${event.change} ${event.what?.join(", ") ?? event.state}${why(event)}`,
    grave: event.state === "failed",
  }),
  switch: (event) => ({
    text: `switch ${event.switch ?? event.dpid} is ${event.state}`,
    grave: event.state === "down",
  }),
  note: (event) => event.message,
  listener_dropped: (event) => event.message,
  base_rtt: (event) => `base RTT ${settingMs(event.rtt_ns)}`,
  terrestrial: (event) =>
    `${event.server}: terrestrial RTT ${settingMs(event.measured_ns)}, configured ${settingMs(event.configured_ns)}`,
  drained: () => "the link has drained",
  outcome: (event) => ({
    text: `outcome: ${event.outcome.replace(/: .*/s, "")}`, // the reason is that of the step
    grave: event.outcome !== "completed",
  }),
  here: (event) => ({ text: event.text, grave: event.grave }),
};

const LAB = { up: "up", down: "been taken down", failed: "failed" };
const WORK = { begin: "begun", end: "done" };

/** Whether a step did not fail, but was cancelled: in place of a reason stands that word alone (docs/contracts.md). */
export const isCancelled = (event) => event.message === "cancelled";

const why = (event) => (event.message ? `: ${event.message}` : "");

function swap(event) {
  if (event.state === "stage") return `swap: ${event.text ?? `${event.subject} ${event.stage}`}`;
  if (event.state === "undone") return { text: `swap undone: ${event.reason}`, grave: true };
  if (event.state === "end") return `swap done in ${settingMs(event.duration_ns)}`;
  if (event.state === "connections")
    return { text: `swap: connections, ${event.reason ?? event.how}`, grave: event.how === "failed" };
  return event.state === "begin" ? `swap: ${(event.stages ?? []).join(", ")}` : null;
}

/** What this page does not know yet: its type, and whatever it holds that is a word or a number. */
function other(event) {
  const parts = Object.entries(event)
    .filter(
      ([key, part]) => !["type", "seq", "t_ns"].includes(key) && ["string", "number", "boolean"].includes(typeof part),
    )
    .map(([key, part]) => `${key} ${part}`);
  return { kind: String(event.type), text: [String(event.type), ...parts].join(", "), grave: false };
}
