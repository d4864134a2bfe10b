// SPDX-License-Identifier: Apache-2.0
// Points of a run from before this page connected, read from the run's spool.

import { linesOf } from "./api.js";
import { HOUR_S } from "./store.js";

const RECENT_S = 900; // all measurements are read for so long; beyond it, only those of the plots
const OF_PLOTS = ["link", "link_config", "ping", "load", "transfer", "event"];
const BEFORE_S = 300; // the steps of a run before its load take less
const LATE_S = 5; // the points of one instant arrive within this time

/**
 * Messages of type `points` of a run in progress, in the order in which they were written, until the run is over or the
 * consumer stops. `run`: that of a picture; `measurements`: those of interest; `newest`: the instant, in seconds, up to which
 * they are in the store already, NaN if none are; `now`: the lab's time. Throws ApiError, and AbortError on `signal`.
 */
export async function* backfill(api, run, { measurements, newest, now, signal }) {
  const from = Math.max(0, now - HOUR_S, (newest || 0) - LATE_S);
  const recent = Math.max(from, now - RECENT_S);
  const path = `v1/replays/${encodeURIComponent(run.id)}/points`;
  const ask = async function* (parameters) {
    const answer = await api.fetch("GET", `${path}?${new URLSearchParams(parameters)}`, { signal });
    for await (const message of linesOf(answer.body)) if (message.type === "points") yield message;
  };
  if (from < recent && run.elapsed_s > RECENT_S - BEFORE_S) yield* ask({ measurements: OF_PLOTS, from_ns: ns(from), to_ns: ns(recent) });
  yield* ask({ measurements, from_ns: ns(recent), follow: "true" });
}

const ns = (t) => `${Math.round(t * 1e9)}`;
