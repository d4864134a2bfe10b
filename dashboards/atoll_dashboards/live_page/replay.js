// SPDX-License-Identifier: Apache-2.0
// A run of the past, or one that is still being written: all its points in a store, and a position in it.

import { HOUR_S, Store } from "./store.js";

const LONGEST_S = 4 * 3600; // a longer run's last hours are shown
export const SPEEDS = [1, 2, 5, 10, 20, 60];

export class Replay {
  #api;
  #changed;
  #abort = new AbortController();
  #asOf = 0;

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
    const told = await this.#api.ask("GET", `v1/replays/${encodeURIComponent(this.id)}`, {
      signal: this.#abort.signal,
    });
    this.#take(told);
    const seconds = Math.max(HOUR_S, Math.ceil(Math.min(LONGEST_S, this.to - this.from)) + 60);
    this.store = new Store(seconds, seconds);
    for (const { picture } of this.pictures.slice(0, 1)) this.store.configure(picture.boxes);
    this.position = this.to;
    this.#load(told).catch((error) => error.name === "AbortError" || failed(error));
  }

  end() {
    this.#abort.abort();
  }

  #take(told) {
    this.told = told;
    this.from = told.from_ns / 1e9;
    this.to = told.to_ns / 1e9;
    this.pictures = told.pictures ?? [{ from_ns: told.from_ns, picture: told.picture }];
    const measure = told.events.find((event) => event.type === "step" && event.step === "measure");
    const begin = told.window?.start_ns ?? measure?.t_ns;
    /** The begin of the measurement, from which instants are counted. */
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
      step,
      elapsed_s: t - this.origin,
      duration_s: this.told.duration_s,
      verdict: over ? (this.told.verdict ?? "not analysed") : null,
      state: over ? "ended" : "running",
    };
  }

  async #load(told) {
    const parameters = told.finished ? {} : { follow: "true" };
    const long = this.to - this.from > LONGEST_S;
    if (long) parameters.from_ns = `${Math.round((this.to - LONGEST_S) * 1e9)}`;
    const answer = await this.#api.fetch(
      "GET",
      `v1/replays/${encodeURIComponent(this.id)}/points?${new URLSearchParams(parameters)}`,
      { signal: this.#abort.signal },
    );
    for await (const message of linesOf(answer.body)) {
      if (message.type !== "points") continue;
      const atEnd = !(this.position < this.to);
      this.store.take(message.points, this.id);
      this.to = Math.max(this.to, this.store.newest || this.to);
      if (atEnd && !this.playing) this.position = this.to;
      this.#changed();
    }
    this.loading = false;
    if (!told.finished) {
      const atEnd = !(this.position < this.to);
      this.#take(
        await this.#api.ask("GET", `v1/replays/${encodeURIComponent(this.id)}`, { signal: this.#abort.signal }),
      );
      if (atEnd) this.position = this.to;
    }
    this.#changed();
  }

  seek(t) {
    this.position = Math.min(this.to, Math.max(this.from, t));
    this.#changed();
  }

  toggle(now) {
    this.playing = !this.playing;
    this.#asOf = now;
    if (this.playing && this.position >= this.to - 0.2) this.position = Math.max(this.from, this.origin);
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

/** Terrestrial RTTs that a run's test of the lab has measured, in ns, by server. */
export function measuredOf(events) {
  return new Map(
    events.filter((event) => event.type === "terrestrial").map((event) => [event.server, event.measured_ns]),
  );
}

/** JSON lines of a body as they come. */
async function* linesOf(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) break;
    const lines = (rest + value).split("\n");
    rest = lines.pop();
    for (const line of lines) if (line) yield JSON.parse(line);
  }
  if (rest.trim()) yield JSON.parse(rest);
}
