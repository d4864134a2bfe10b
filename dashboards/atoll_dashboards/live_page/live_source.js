// SPDX-License-Identifier: Apache-2.0
// The live source: store, picture and run of the lab that is up, and the state of the connection to it.

import { pointsOf } from "./api.js";
import { Connection } from "./connection.js";
import { timeOfDay } from "./format.js";
import { measuredOf, NO_METRICS, pause, steady } from "./replay.js";
import { HOUR_S, Store } from "./store.js";

const STALE_S = 3; // time without points after which data is stale
const SET_BACK_S = 5; // a message may be late by less
const LONGEST_READING_S = 60; // points of a run's past that have not come by then stay a gap
const LATE_S = 1.6; // points come once a second; the edge waits no longer for them
const RECENT_S = 900; // all measurements of a run's past are read for so long; beyond it, only those of the plots
const OF_PLOTS = ["link", "link_config", "ping", "load", "transfer", "event"];
const BEFORE_S = 300; // the steps of a run before its load take less
const SPREAD_S = 5; // the points of one instant arrive within this time

const PICTURE_AFTER = new Set(["applied", "lab", "run", "work"]);

export class LiveSource {
  #api;
  #callbacks;
  #connection;
  #connected = "connecting";
  #stateKnown = false; // of the lab
  #down = false; // whether the lab is being taken down: the daemon has no picture of it any more
  #reached = true; // whether the last answer was that there is no lab
  #why = "";
  #since = NaN;
  #retryAt = NaN;
  #offset = NaN;
  #heard = NaN;
  #request = null; // for a picture, in progress
  #lab = null; // the lab whose points are in the store
  #held = null; // messages with points, queued while earlier ones are being read
  #reading = null;

  /** `callbacks`: {changed, event(event), refused(error)}. */
  constructor(api, callbacks) {
    this.#api = api;
    this.#callbacks = callbacks;
    this.picture = null;
    this.run = null;
    /** The lab's task in progress: {what, about}, or null. */
    this.busy = null;
    this.#forget();
    this.#connection = new Connection(
      api,
      (message) => this.#take(message),
      (state, detail) => this.#connectionIs(state, detail),
    );
  }

  start() {
    this.#connected = "connecting";
    this.#stateKnown = false;
    this.#connection.start();
  }

  stop() {
    this.#connection.stop();
    this.#connected = "connecting";
    this.#stateKnown = false;
    this.#drop();
  }

  /** The lab's clock, in seconds since 1970, as far as it is known. */
  get now() {
    return Number.isFinite(this.#offset) ? steady() + this.#offset : Date.now() / 1000;
  }

  /** The newest instant to show: that of the newest point, until it is overdue. */
  get edge() {
    const late = this.now - LATE_S;
    if (this.away) return Math.max(this.store.newest || 0, Math.min(late, this.#since || late));
    return Math.max(this.store.newest || 0, late);
  }

  /** The oldest instant there is. */
  get first() {
    const firsts = this.store.keys("link/").map((key) => this.store.series(key).first);
    return Math.min(...firsts.filter(Number.isFinite));
  }

  get away() {
    return this.#connected === "absent" || this.#connected === "refused";
  }

  /** The reason why chains and latencies cannot be changed; "" if they can. */
  get disabledReason() {
    if (this.away) return "no lab is up";
    const task = this.busy && `${this.busy.what} ${this.busy.about}`;
    return task ? `${task} is going on: chains and latencies can be changed when it is over` : "";
  }

  /** {kind, text} of the connection and of the data. */
  state() {
    if (this.#connected === "connecting") return { kind: "waiting", text: "connecting" };
    if (this.#connected === "refused") return { kind: "ended", text: "not connected: a token is needed" };
    if (this.away) return { kind: "ended", text: this.#reached ? (this.picture ? "lab ended" : "no lab") : "not connected" };
    if (!this.picture) return { kind: "waiting", text: this.#stateKnown ? "no lab is up yet" : "connecting" };
    if (!this.picture.experiment) return { kind: "waiting", text: "up, no experiment applied" };
    const silence = steady() - this.#heard;
    if (silence > STALE_S) return { kind: "stale", text: `no data for ${Math.floor(silence)} s` };
    if (this.#held && this.picture.run) return { kind: "waiting", text: "reading the run so far" };
    return Number.isFinite(this.#heard) ? { kind: "live", text: "live" } : { kind: "waiting", text: "no data yet" };
  }

  /** A remark on the run in progress that is shown with the plots; mostly "". */
  get remark() {
    return this.run?.state === "running" && this.picture?.run?.metrics === false ? NO_METRICS : "";
  }

  /** The text of the banner: no lab is connected, and when the next attempt is; "" without one. */
  banner() {
    if (this.#connected !== "absent") return "";
    const wait = Math.max(0, Math.ceil(this.#retryAt - steady()));
    const ended = this.picture && Number.isFinite(this.#since);
    const subject = this.#reached ? "The lab ended" : "The connection was lost";
    const since = ended ? `${subject} at ${timeOfDay(this.#since)}: the figures shown are older. ` : "";
    return `${since}${capital(this.#why)}. ${wait ? `Trying again in ${wait} s.` : "Trying again."}`;
  }

  #connectionIs(state, detail) {
    const before = this.#connected;
    this.#connected = state;
    if (state === "open") {
      this.#heard = NaN;
      this.#retryAt = NaN;
      this.#why = "";
      if (!detail.same) this.#loseRun(); // it was another daemon's
      this.busy = detail.status.busy;
      this.#catchUp();
      if (before === "absent") this.#here("connected again");
    }
    if (state === "absent") {
      this.#stateKnown = false;
      if (before !== "absent") {
        this.#since = this.now;
        this.busy = null;
        this.#loseRun();
        if (this.picture) this.#here("the connection to the lab has ended", true);
      }
      this.#reached = detail.reached;
      this.#why = detail.message;
      this.#retryAt = steady() + detail.retry_s;
    }
    if (state === "refused") this.#callbacks.refused(detail);
    this.#callbacks.changed();
  }

  #here(text, grave = false) {
    this.#callbacks.event({ type: "here", t_ns: this.now * 1e9, text, severity: grave ? "warning" : "info" });
  }

  /** Start with an empty store: earlier points say nothing about those that follow. */
  #forget() {
    this.store = new Store();
    /** Terrestrial RTTs as last measured, in ns, by server. */
    this.measured = new Map();
  }

  #take(message) {
    switch (message.type) {
      case "points":
        this.#setClock(message.t_ns / 1e9);
        this.#heard = steady();
        if (this.#held) this.#held.push(message);
        else this.store.take(message.points, message.run);
        break;
      case "live":
        if (this.run) Object.assign(this.run, { elapsed_s: message.elapsed_s, duration_s: message.duration_s });
        break;
      case "counters":
      case "hello":
        return;
      default:
        this.#callbacks.event(message);
        this.#takeEvent(message);
    }
    this.#callbacks.changed();
  }

  /**
   * Read the earlier points of a run in progress while new ones are queued: series only go forward. Reading ends where the
   * run's spool reaches the first queued message; points that are in both do no harm.
   */
  async #catchUp() {
    this.#drop();
    const held = (this.#held = []);
    const reading = (this.#reading = new AbortController());
    const limit = setTimeout(() => reading.abort(), LONGEST_READING_S * 1000);
    try {
      await this.#askPicture();
      if (this.picture?.run) await this.#read(this.picture.run, held, reading.signal);
    } catch {
      // missing points are shown as a gap
    }
    clearTimeout(limit);
    if (this.#held !== held) return;
    this.#held = null;
    for (const message of held) this.store.take(message.points, message.run);
    this.#callbacks.changed();
  }

  async #read(run, held, signal) {
    while (!held.length && !signal.aborted) await pause(100); // queued messages carry the lab's time
    for await (const message of this.#past(run, signal)) {
      this.store.take(message.points, run.id);
      this.#callbacks.changed();
      const first = held.find((each) => each.run === run.id);
      if (first && message.points.some(([measurement, , , tNs]) => measurement !== "event" && tNs >= first.t_ns)) return;
    }
  }

  /** The messages with points of a run in progress, in the order in which they were written, until the run is over. */
  async *#past(run, signal) {
    const from = Math.max(0, this.now - HOUR_S, (this.store.newest || 0) - SPREAD_S);
    const recent = Math.max(from, this.now - RECENT_S);
    const earlier = { measurements: OF_PLOTS, from_ns: ns(from), to_ns: ns(recent) };
    const later = { measurements: this.store.measurements, from_ns: ns(recent), follow: "true" };
    if (from < recent && run.elapsed_s > RECENT_S - BEFORE_S) yield* pointsOf(this.#api, run.id, earlier, signal);
    yield* pointsOf(this.#api, run.id, later, signal);
  }

  /** Stop reading the past and forget the queued messages: the next connection reads both. */
  #drop() {
    this.#reading?.abort();
    this.#held = null;
  }

  #takeEvent(event) {
    if (event.type === "run") this.run = { id: event.run, step: null, state: "running", broken: null };
    if (event.type === "step" && this.run?.state === "running") this.run.step = event.step;
    if (event.type === "step" && event.step === "settings") this.#askMeasured();
    if (event.type === "work") this.busy = event.state === "begin" ? { what: event.what, about: event.about } : null;
    if (event.type === "work" && event.what === "run" && event.state !== "begin") this.#runOver(event);
    if (event.type === "lab") this.#down = event.state === "down";
    if (PICTURE_AFTER.has(event.type) && !this.#down) this.#askPicture();
    // Within a run its own events are among its points.
    if (event.type === "applied" && this.run?.state !== "running")
      this.store.mark(event.t_ns / 1e9, "applied", "applied");
  }

  /** The run is over. It stays shown with its verdict after its lab is down: a run with a lab of its own takes that down at once. */
  #runOver(event) {
    if (!this.run) return;
    const complete = event.state === "end";
    Object.assign(this.run, {
      state: "ended",
      verdict: complete ? (event.verdict ?? "not analysed") : event.state,
      broken: complete ? null : (event.message ?? ""),
      reasons: event.reasons ?? [],
      caveats: event.caveats ?? [],
    });
  }

  /** The end of the run in progress will not be reported any more; if it continues, the next picture contains it. */
  #loseRun() {
    if (this.run?.state !== "running") return;
    const broken = "the connection to the lab ended before the run did";
    Object.assign(this.run, { state: "ended", verdict: "connection lost", broken });
  }

  /** Ask for the terrestrial RTTs that the run's preflight test has measured. */
  async #askMeasured() {
    const run = await this.#api.ask("GET", `v1/replays/${encodeURIComponent(this.run?.id)}`).catch(() => null);
    if (run) this.measured = measuredOf(run.events);
    this.#callbacks.changed();
  }

  /** Estimate the lab's clock: its offset from the steady one is that of the quickest message, until it is set back. */
  #setClock(t) {
    const offset = t - steady();
    const back = this.#offset - offset > SET_BACK_S;
    if (!(offset <= this.#offset) || back) this.#offset = offset;
    if (!back || !(t < this.store.newest)) return;
    this.#forget(); // series only go forward: they would not grow until the old time is reached again
    this.store.configure(this.picture?.boxes);
    this.#here("the lab's clock was set back: the plots start again", true);
  }

  #askPicture() {
    this.#request ??= pause(150).then(() => {
      this.#request = null; // several events at once cause one request
      return this.#takePicture();
    });
    return this.#request;
  }

  async #takePicture() {
    try {
      this.picture = await this.#api.ask("GET", "v1/picture");
    } catch (error) {
      if (error.status === 409) {
        this.picture = null; // a daemon whose lab is not up yet
        this.#stateKnown = true;
      }
      this.#callbacks.changed();
      return;
    }
    if (this.#lab !== null && this.#lab !== this.picture.lab) this.#forget();
    this.#lab = this.picture.lab;
    this.store.configure(this.picture.boxes);
    const { run } = this.picture;
    if (run && (this.run?.id !== run.id || this.run.state !== "running")) this.run = { ...run, state: "running", broken: null };
    this.#callbacks.changed();
  }
}

const capital = (text) => text.charAt(0).toUpperCase() + text.slice(1).replace(/\.$/, "");
const ns = (t) => `${Math.round(t * 1e9)}`;
