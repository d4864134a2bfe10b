// SPDX-License-Identifier: Apache-2.0
// The lab that is up, as its keeper tells of it: the store that grows, the picture, the run, and how the connection is.

import { Connection } from "./connection.js";
import { timeOfDay } from "./format.js";
import { pastOf } from "./past.js";
import { measuredOf, NO_METRICS } from "./replay.js";
import { Store } from "./store.js";

const STALE_S = 3; // without points while there should be some
const SET_BACK_S = 5; // a message may be late by less
const LONGEST_READING_S = 60; // what has not come of a run's past by then stays a gap
const LATE_S = 1.6; // points come once a second: the edge waits so long for them before it moves on without

const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
const steady = () => performance.now() / 1000;
const PICTURE_AFTER = new Set(["applied", "lab", "run", "work"]);

export class Live {
  #api;
  #tell;
  #connection;
  #connected = "connecting";
  #known = false; // whether it is known what is up
  #reached = true; // whether the last answer was that there is no lab
  #why = "";
  #since = NaN;
  #retryAt = NaN;
  #offset = NaN;
  #heard = NaN;
  #asked = null; // the picture that is being asked for
  #lab = null; // whose points the store has
  #held = null; // messages with points, while those of before are being read
  #reading = null;

  /** `tell`: {changed, event(event), refused(error)}. */
  constructor(api, tell) {
    this.#api = api;
    this.#tell = tell;
    this.picture = null;
    this.run = null;
    /** What the lab is busy with: {what, about}, or null. */
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
    this.#known = false;
    this.#connection.start();
  }

  stop() {
    this.#connection.stop();
    this.#connected = "connecting";
    this.#known = false;
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
    return Math.min(
      ...this.store
        .keys("link/")
        .map((key) => this.store.series(key).first)
        .filter(Number.isFinite),
    );
  }

  get away() {
    return this.#connected === "absent" || this.#connected === "refused";
  }

  /** {kind, text} of the connection and of what comes by it. */
  state() {
    if (this.#connected === "connecting") return { kind: "waiting", text: "connecting" };
    if (this.#connected === "refused") return { kind: "ended", text: "not connected: a token is needed" };
    if (this.away) return { kind: "ended", text: this.#reached ? (this.picture ? "lab ended" : "no lab") : "not connected" };
    if (!this.picture) return { kind: "waiting", text: this.#known ? "no lab is up yet" : "connecting" };
    if (!this.picture.experiment) return { kind: "waiting", text: "up, no experiment stands" };
    const silence = steady() - this.#heard;
    if (silence > STALE_S) return { kind: "stale", text: `no data for ${Math.floor(silence)} s` };
    if (this.#held && this.picture.run) return { kind: "waiting", text: "reading the run so far" };
    return Number.isFinite(this.#heard) ? { kind: "live", text: "live" } : { kind: "waiting", text: "no data yet" };
  }

  /** What whoever looks at the plots has to know of the run that is going; mostly nothing. */
  get remark() {
    return this.run?.state === "running" && this.picture?.run?.metrics === false ? NO_METRICS : "";
  }

  /** What deserves more than a word: that nothing is there, and when it is tried again. */
  banner() {
    if (this.#connected !== "absent") return "";
    const wait = Math.max(0, Math.ceil(this.#retryAt - steady()));
    const ended = this.picture && Number.isFinite(this.#since);
    const subject = this.#reached ? "The lab ended" : "The connection was lost";
    const what = ended ? `${subject} at ${timeOfDay(this.#since)}: what is shown is from before. ` : "";
    return `${what}${capital(this.#why)}. ${wait ? `Looking again in ${wait} s.` : "Looking again."}`;
  }

  #connectionIs(state, detail) {
    const before = this.#connected;
    this.#connected = state;
    if (state === "open") {
      this.#heard = NaN;
      this.#retryAt = NaN;
      this.#why = "";
      if (!detail.same) this.#loseRun(); // it was another keeper's
      this.busy = detail.status.busy;
      this.#catchUp();
      if (before === "absent") this.#here("connected again");
    }
    if (state === "absent") {
      this.#known = false;
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
    if (state === "refused") this.#tell.refused(detail);
    this.#tell.changed();
  }

  #here(text, grave = false) {
    this.#tell.event({ type: "here", t_ns: this.now * 1e9, text, grave });
  }

  /** Begin anew with what was measured: nothing of it says anything about what comes. */
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
        this.#tell.event(message);
        this.#takeEvent(message);
    }
    this.#tell.changed();
  }

  /**
   * What comes from now on waits until what a run that is going has told before is there: series only go forward. The two meet
   * where the run's spool reaches the first of what waits; what is in both does no harm.
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
      // what cannot be had is shown as missing
    }
    clearTimeout(limit);
    if (this.#held !== held) return;
    this.#held = null;
    for (const message of held) this.store.take(message.points, message.run);
    this.#tell.changed();
  }

  async #read(run, held, signal) {
    while (!held.length && !signal.aborted) await pause(100); // they tell the lab's time
    const past = { newest: this.store.newest, now: this.now, signal };
    for await (const message of pastOf(this.#api, run, past)) {
      this.store.take(message.points, run.id);
      this.#tell.changed();
      const first = held.find((each) => each.run === run.id);
      if (first && message.points.some(([measurement, , , tNs]) => measurement !== "event" && tNs >= first.t_ns)) return;
    }
  }

  /** Read no more of the past, and forget what waits for it: the next connection reads that as well. */
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
    if (PICTURE_AFTER.has(event.type)) this.#askPicture();
    // Within a run its own events are among its points.
    if (event.type === "applied" && this.run?.state !== "running")
      this.store.mark(event.t_ns / 1e9, "applied", "applied");
  }

  /** It stays in sight, with its verdict, when its lab goes: a run with a lab of its own takes that down at once. */
  #runOver(event) {
    if (!this.run) return;
    const whole = event.state === "end";
    Object.assign(this.run, {
      state: "ended",
      verdict: whole ? (event.verdict ?? "not analysed") : event.state,
      broken: whole ? null : (event.message ?? ""),
      reasons: event.reasons ?? [],
      caveats: event.caveats ?? [],
    });
  }

  /** What becomes of a run that was going is not told any more; if it goes on, the picture says so. */
  #loseRun() {
    if (this.run?.state !== "running") return;
    const broken = "its lab went out of sight before it was over";
    Object.assign(this.run, { state: "ended", verdict: "out of sight", broken });
  }

  /** What a run's test of the lab has measured stands in its directory. */
  async #askMeasured() {
    const told = await this.#api.ask("GET", `v1/replays/${encodeURIComponent(this.run?.id)}`).catch(() => null);
    if (told) this.measured = measuredOf(told.events);
    this.#tell.changed();
  }

  /** The lab's clock is as far ahead of the steady one as the quickest message says, until it is set back. */
  #setClock(t) {
    const offset = t - steady();
    const back = this.#offset - offset > SET_BACK_S;
    if (!(offset <= this.#offset) || back) this.#offset = offset;
    if (!back || !(t < this.store.newest)) return;
    this.#forget(); // series only go forward: they would stand still until the old time is reached again
    this.store.configure(this.picture?.boxes);
    this.#here("the lab's clock was set back: the plots begin anew", true);
  }

  #askPicture() {
    this.#asked ??= pause(150).then(() => {
      this.#asked = null; // several events at once ask for one
      return this.#takePicture();
    });
    return this.#asked;
  }

  async #takePicture() {
    try {
      this.picture = await this.#api.ask("GET", "v1/picture");
    } catch (error) {
      if (error.status === 409) {
        this.picture = null; // a keeper whose lab is still to come up
        this.#known = true;
      }
      this.#tell.changed();
      return;
    }
    if (this.#lab !== null && this.#lab !== this.picture.lab) this.#forget();
    this.#lab = this.picture.lab;
    this.store.configure(this.picture.boxes);
    const { run } = this.picture;
    if (run && (this.run?.id !== run.id || this.run.state !== "running")) this.run = { ...run, state: "running", broken: null };
    this.#tell.changed();
  }
}

const capital = (text) => text.charAt(0).toUpperCase() + text.slice(1).replace(/\.$/, "");
