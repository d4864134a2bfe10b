// SPDX-License-Identifier: Apache-2.0
// What a run has told before this page listened: its spool has it, so that a page that is opened late lacks nothing.

import { linesOf } from "./api.js";
import { DRAWN, HOUR_S } from "./store.js";

const RECENT_S = 900; // so far back everything is asked for; beyond it, as far as plots reach, what they are drawn of
const OF_PLOTS = ["link", "link_config", "ping", "load", "transfer", "event"];
const BEFORE_S = 300; // what a run does before its load takes less
const LATE_S = 5; // points of an instant come no later than this after others of it

/**
 * Messages of type `points` of a run that is going, in the order in which they were written, on and on until the run is over
 * or nobody takes them any more. `run`: that of a picture; `newest`: the instant, in seconds, up to which they are there
 * already, NaN if none are; `now`: the lab's. Throws ApiError, and AbortError when `signal` says so.
 */
export async function* pastOf(api, run, { newest, now, signal }) {
  const from = Math.max(0, now - HOUR_S, (newest || 0) - LATE_S);
  const recent = Math.max(from, now - RECENT_S);
  const path = `v1/replays/${encodeURIComponent(run.id)}/points`;
  const ask = async function* (parameters) {
    const answer = await api.fetch("GET", `${path}?${new URLSearchParams(parameters)}`, { signal });
    for await (const message of linesOf(answer.body)) if (message.type === "points") yield message;
  };
  if (from < recent && run.elapsed_s > RECENT_S - BEFORE_S) yield* ask({ measurements: OF_PLOTS, from_ns: ns(from), to_ns: ns(recent) });
  yield* ask({ measurements: DRAWN, from_ns: ns(recent), follow: "true" });
}

const ns = (t) => `${Math.round(t * 1e9)}`;
