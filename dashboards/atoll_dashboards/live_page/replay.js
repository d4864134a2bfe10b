// SPDX-License-Identifier: Apache-2.0
// A run of the past, or one that is still being written: all its points in a store, and a position in it.

import { linesOf } from "./api.js";
import { isCancelled } from "./describe.js";
import { HOUR_S, Store } from "./store.js";

const LONGEST_S = 4 * 3600; // a longer run's last hours are shown
const LONGEST_WAIT_S = 5; // for a run that cannot be followed at the moment
const LONGEST_ANALYSIS_S = 900; // a verdict that has not come by then is waited for no more
const LATE_S = 5; // points of an instant come no later than this after others of it
export const NO_METRICS =
  "This run has no metrics: it was made with --no-metrics. Shown is what its links counted (link.jsonl); " +
  "goodput, flows, pings, servers and hosts are not there.";
export const SPEEDS = [1, 2, 5, 10, 20, 60];

const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

export class Replay {
  #api;
  #changed;
  #abort = new AbortController();
  #asOf = 0;
  #measures = false;
  #opened = NaN; // the position at first
  #awaited = false; // it was seen being made, and its verdict is to come

  /** `changed()`: more has come, or the position is another. */
  constructor(api, id, changed) {
    this.#api = api;
    this.#changed = changed;
    this.id = id;
    this.store = new Store();
    this.loading = true;
    this.playing = false;
    this.speed = 1;
    this.position = NaN;
  }

  /** Ask for the run and its points; returns once the run is known, points come afterwards. Throws ApiError. */
  async begin(failed) {
    this.#take(await this.#ask());
    const seconds = Math.max(HOUR_S, Math.ceil(Math.min(LONGEST_S, this.to - this.from)) + 60);
    this.store = new Store(seconds, seconds);
    for (const { picture } of this.pictures.slice(0, 1)) this.store.configure(picture.boxes);
    // Of a run that is over the last instant of its load, where all figures are; one that is being made is followed.
    this.position = this.told.finished && this.told.window ? this.told.window.end_ns / 1e9 : this.to;
    this.#opened = this.position;
    this.#load()
      .catch((error) => error.name === "AbortError" || failed(error))
      .then(() => {
        this.loading = false;
        this.#changed();
        return this.#awaitVerdict();
      });
  }

  end() {
    this.#abort.abort();
  }

  /** How it ended, in a word: its verdict where it has one; "" while it is being made. */
  get ending() {
    if (!this.told.finished) return "";
    return endingOf(this.told).word ?? this.told.verdict ?? (this.#awaited ? "no verdict yet" : "not analysed");
  }

  /** What whoever looks at the plots has to know of the run; mostly nothing. */
  get remark() {
    return this.told.metrics ? "" : NO_METRICS;
  }

  get #path() {
    return `v1/replays/${encodeURIComponent(this.id)}`;
  }

  #take(told) {
    this.told = told;
    this.from = told.from_ns / 1e9;
    this.to = Math.max(told.to_ns / 1e9, this.store.newest || 0);
    this.pictures = told.pictures ?? [{ from_ns: told.from_ns, picture: told.picture }];
    const measure = told.events.find((event) => event.type === "step" && event.step === "measure");
    const begin = told.window?.start_ns ?? measure?.t_ns;
    this.#measures = begin !== undefined;
    /** The begin of the measurement, from which instants are counted; of the run, if it has measured nothing. */
    this.origin = (begin ?? told.from_ns) / 1e9;
    /** Terrestrial RTTs measured before the run, in ns, by server. */
    this.measured = measuredOf(told.events);
  }

  /** The lab at an instant. */
  pictureAt(t) {
    return (this.pictures.findLast((each) => each.from_ns / 1e9 <= t) ?? this.pictures[0]).picture;
  }

  /** The run at an instant, as panels show it. */
  runAt(t) {
    const steps = this.told.events.filter((event) => event.type === "step" && event.state !== "end");
    const step = steps.findLast((event) => event.t_ns / 1e9 <= t)?.step ?? null;
    const over = this.told.finished && t >= this.to - 0.05;
    return {
      id: this.id,
      // In virtual time the analysis is made outside, and is no event; one made later of a run that failed is no step.
      step: over && this.told.verdict && !endingOf(this.told).word ? "analyse" : step,
      elapsed_s: this.#measures ? t - this.origin : NaN,
      duration_s: this.told.duration_s,
      verdict: over ? this.ending : null,
      state: over ? "ended" : "running",
      broken: over ? (endingOf(this.told).why ?? null) : null,
      reasons: this.told.reasons ?? [],
      caveats: this.told.caveats ?? [],
    };
  }

  /** What happened, in the end how it was judged: that is no event of a run, as it can be made anew. */
  get events() {
    const { events, verdict, reasons, caveats, to_ns: t_ns } = this.told;
    return verdict ? [...events, { type: "verdict", t_ns, verdict, reasons, caveats }] : events;
  }

  /** All points; of a run that is being made until it is over: a stream that is cut is taken up again. */
  async #load() {
    let wait = 0;
    for (;;) {
      const { finished } = this.told;
      this.#awaited ||= !finished;
      const before = this.store.newest;
      try {
        await this.#stream(finished);
        if (!finished) await this.#askAgain();
        if (this.told.finished) return;
      } catch (error) {
        if (finished || !passes(error)) throw error;
      }
      wait = this.store.newest > before ? 1 : Math.min(LONGEST_WAIT_S, wait + 1);
      this.loading = true;
      this.#changed();
      await pause(wait * 1000);
    }
  }

  /** The verdict comes with the analysis, which is made when the run is over, in virtual time without an event of it. */
  async #awaitVerdict() {
    const lacks = ({ finished, outcome, verdict }) => finished && outcome === "completed" && !verdict;
    const until = Date.now() + LONGEST_ANALYSIS_S * 1000;
    for (let wait = 1; lacks(this.told) && !endingOf(this.told).word; wait = Math.min(LONGEST_WAIT_S, wait + 1)) {
      await pause(wait * 1000);
      if (this.#abort.signal.aborted || Date.now() > until) break;
      const told = await this.#ask().catch(() => null); // asked for again, whatever has gone wrong
      if (told && (!lacks(told) || endingOf(told).word)) this.#goOn(() => this.#take(told));
    }
    this.#awaited = false;
    this.#changed();
  }

  async #stream(finished) {
    const parameters = finished ? {} : { follow: "true" };
    const oldest = Math.max(this.to - LONGEST_S, (this.store.newest || 0) - LATE_S);
    if (oldest > this.from) parameters.from_ns = `${Math.round(oldest * 1e9)}`;
    const answer = await this.#api.fetch("GET", `${this.#path}/points?${new URLSearchParams(parameters)}`, {
      signal: this.#abort.signal,
    });
    for await (const message of linesOf(answer.body)) {
      if (message.type !== "points") continue;
      if (!finished) this.loading = false;
      this.#goOn(() => {
        this.store.take(message.points, this.id);
        this.to = Math.max(this.to, this.store.newest || this.to);
      });
      if (this.#isNews(message)) await this.#askAgain();
    }
  }

  /** Whether something has happened since the run was asked for. */
  #isNews({ points }) {
    return points.some(([measurement, , , tNs]) => measurement === "event" && tNs > this.told.to_ns);
  }

  async #askAgain() {
    const told = await this.#ask();
    this.#goOn(() => this.#take(told));
  }

  #ask() {
    return this.#api.ask("GET", this.#path, { signal: this.#abort.signal });
  }

  /** Do what makes the run longer; a position at its end stays there. */
  #goOn(lengthen) {
    const atEnd = !(this.position < this.to);
    lengthen();
    if (atEnd && !this.playing) this.position = this.to;
    this.#changed();
  }

  seek(t) {
    this.position = Math.min(this.to, Math.max(this.from, t));
    this.#changed();
  }

  toggle(now) {
    this.playing = !this.playing;
    this.#asOf = now;
    const fromBegin = this.position >= this.to - 0.2 || this.position === this.#opened;
    if (this.playing && fromBegin) this.position = Math.max(this.from, this.origin);
    this.#changed();
  }

  /** Let the position move on; `now`: seconds of a steady clock. */
  tick(now) {
    if (!this.playing) return;
    this.position += (now - this.#asOf) * this.speed;
    this.#asOf = now;
    if (this.position >= this.to) {
      this.position = this.to;
      this.playing = !this.told.finished;
    }
    this.#changed();
  }
}

/** {word, why} of a run that is over and failed, was cancelled or killed; {} if all went well. */
export function endingOf({ outcome, verdict, events = [] }) {
  if (outcome === "completed") {
    const failed = events.findLast((event) => event.type === "step" && event.state === "failed"); // its analysis
    if (!failed || verdict) return {};
    return isCancelled(failed) ? { word: "cancelled", why: "" } : { word: "failed", why: failed.message };
  }
  if (outcome === "running") return { word: "broken off", why: "it was killed, or its machine went down" };
  const [, word, why] = /^(\w+)(?: at step \w*)?(?:: )?(.*)$/s.exec(outcome) ?? [];
  return { word: word ?? outcome, why: why ?? "" };
}

/** Terrestrial RTTs that a run's test of the lab has measured, in ns, by server. */
export function measuredOf(events) {
  return new Map(
    events.filter((event) => event.type === "terrestrial").map((event) => [event.server, event.measured_ns]),
  );
}

/** Whether what went wrong may go well later: nobody answered, the answer was cut, or there was a fault behind it. */
function passes(error) {
  return error.name !== "AbortError" && !(error.status >= 400 && error.status < 500);
}
