// SPDX-License-Identifier: Apache-2.0
// The replay of a run, finished or in progress: its points in a store, and a position in time.

import { pointsOf } from "./api.js";
import { HOUR_S, Store } from "./store.js";

const LONGEST_S = 4 * 3600; // a longer run's last hours are shown
const LONGEST_WAIT_S = 5; // for a run that cannot be followed at the moment
const LONGEST_ANALYSIS_S = 900; // time to wait for a verdict
const LATE_S = 5; // the points of one instant arrive within this time
export const NO_METRICS =
  "This run has no metrics: it was made with --no-metrics. Only the counters of its links (link.jsonl) are shown; " +
  "goodput, flows, pings, servers and hosts are missing.";
export const SPEEDS = [1, 2, 5, 10, 20, 60];

export const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
/** Seconds of a clock that is never set. */
export const steady = () => performance.now() / 1000;

export class Replay {
  #api;
  #changed;
  #abort = new AbortController();
  #asOf = 0;
  #measures = false;
  #opened = NaN; // the first position
  #awaited = false; // it was seen in progress, and its verdict is to come

  /** `changed()` is called after new points and new positions. */
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
    // A finished run is shown at the last instant of its load, where all figures are; a run in progress is followed.
    this.position = this.description.finished && this.description.window ? this.description.window.end_ns / 1e9 : this.to;
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

  /** How the run ended, in a word: its verdict if it has one; "" while it is in progress. */
  get ending() {
    if (!this.description.finished) return "";
    return endingOf(this.description).word ?? this.description.verdict ?? (this.#awaited ? "no verdict yet" : "not analysed");
  }

  /** A remark on the run that is shown with the plots; mostly "". */
  get remark() {
    return this.description.metrics ? "" : NO_METRICS;
  }

  #take(description) {
    this.description = description;
    this.from = description.from_ns / 1e9;
    this.to = Math.max(description.to_ns / 1e9, this.store.newest || 0);
    this.pictures = description.pictures ?? [{ from_ns: description.from_ns, picture: description.picture }];
    const measure = description.events.find((event) => event.type === "step" && event.step === "measure");
    const begin = description.window?.start_ns ?? measure?.t_ns;
    this.#measures = begin !== undefined;
    /** The begin of the measurement, from which instants are counted; of the run, if it has measured nothing. */
    this.origin = (begin ?? description.from_ns) / 1e9;
    /** Terrestrial RTTs measured before the run, in ns, by server. */
    this.measured = measuredOf(description.events);
  }

  /** The lab at an instant. */
  pictureAt(t) {
    return (this.pictures.findLast((each) => each.from_ns / 1e9 <= t) ?? this.pictures[0]).picture;
  }

  /** The run at an instant, as panels show it. */
  runAt(t) {
    const steps = this.description.events.filter((event) => event.type === "step" && event.state !== "end");
    const step = steps.findLast((event) => event.t_ns / 1e9 <= t)?.step ?? null;
    const over = this.description.finished && t >= this.to - 0.05;
    return {
      id: this.id,
      // In virtual time the analysis runs outside and has no event; a later analysis of a failed run is no step.
      step: over && this.description.verdict && !endingOf(this.description).word ? "analyse" : step,
      elapsed_s: this.#measures ? t - this.origin : NaN,
      duration_s: this.description.duration_s,
      verdict: over ? this.ending : null,
      state: over ? "ended" : "running",
      broken: over ? (endingOf(this.description).why ?? null) : null,
      reasons: this.description.reasons ?? [],
      caveats: this.description.caveats ?? [],
    };
  }

  /** Load all points, those of a run in progress until it is over; an interrupted stream is resumed. */
  async #load() {
    let wait = 0;
    for (;;) {
      const { finished } = this.description;
      this.#awaited ||= !finished;
      const before = this.store.newest;
      try {
        await this.#stream(finished);
        if (!finished) await this.#askAgain();
        if (this.description.finished) return;
      } catch (error) {
        if (finished || !passes(error)) throw error;
      }
      wait = this.store.newest > before ? 1 : Math.min(LONGEST_WAIT_S, wait + 1);
      this.loading = true;
      this.#changed();
      await pause(wait * 1000);
    }
  }

  /** Wait for the verdict of the analysis, which follows the run, in virtual time without an event. */
  async #awaitVerdict() {
    const pending = ({ finished, outcome, verdict }) => finished && outcome === "completed" && !verdict;
    const until = Date.now() + LONGEST_ANALYSIS_S * 1000;
    for (let wait = 1; pending(this.description) && !endingOf(this.description).word; wait = Math.min(LONGEST_WAIT_S, wait + 1)) {
      await pause(wait * 1000);
      if (this.#abort.signal.aborted || Date.now() > until) break;
      const description = await this.#ask().catch(() => null); // another request follows any error
      if (description && (!pending(description) || endingOf(description).word)) this.#goOn(() => this.#take(description));
    }
    this.#awaited = false;
    this.#changed();
  }

  async #stream(finished) {
    const parameters = finished ? {} : { follow: "true" };
    const oldest = Math.max(this.to - LONGEST_S, (this.store.newest || 0) - LATE_S);
    if (oldest > this.from) parameters.from_ns = `${Math.round(oldest * 1e9)}`;
    for await (const message of pointsOf(this.#api, this.id, parameters, this.#abort.signal)) {
      if (!finished) this.loading = false;
      this.#goOn(() => {
        this.store.take(message.points, this.id);
        this.to = Math.max(this.to, this.store.newest || this.to);
      });
      if (this.#isNews(message)) await this.#askAgain();
    }
  }

  /** Whether a message contains an event newer than the last answer. */
  #isNews({ points }) {
    return points.some(([measurement, , , tNs]) => measurement === "event" && tNs > this.description.to_ns);
  }

  async #askAgain() {
    const description = await this.#ask();
    this.#goOn(() => this.#take(description));
  }

  #ask() {
    return this.#api.ask("GET", `v1/replays/${encodeURIComponent(this.id)}`, { signal: this.#abort.signal });
  }

  /** Call `lengthen`, which makes the run longer; a position at its end stays at its end. */
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

  /** Advance the position; `now`: seconds of a steady clock. */
  tick(now) {
    if (!this.playing) return;
    this.position += (now - this.#asOf) * this.speed;
    this.#asOf = now;
    if (this.position >= this.to) {
      this.position = this.to;
      this.playing = !this.description.finished;
    }
    this.#changed();
  }
}

/** {word, why} of a run that is over and failed, was cancelled or killed; {} if all went well. */
export function endingOf({ outcome, verdict, events = [] }) {
  if (outcome === "completed") {
    const failed = events.findLast((event) => event.type === "step" && event.state === "failed"); // its analysis
    if (!failed || verdict) return {};
    return failed.message === "cancelled" ? { word: "cancelled", why: "" } : { word: "failed", why: failed.message };
  }
  if (outcome === "running") return { word: "broken off", why: "the run was killed, or the machine went down" };
  const [, word, why] = /^(\w+)(?: at step \w*)?(?:: )?(.*)$/s.exec(outcome) ?? [];
  return { word: word ?? outcome, why: why ?? "" };
}

/** Terrestrial RTTs measured by a run's preflight test, in ns, by server. */
export function measuredOf(events) {
  const measured = events.filter((event) => event.type === "terrestrial");
  return new Map(measured.map((event) => [event.server, event.measured_ns]));
}

/** Whether the error may pass: there was no answer, it was cut, or the server failed. */
const passes = (error) => error.name !== "AbortError" && !(error.status >= 400 && error.status < 500);
