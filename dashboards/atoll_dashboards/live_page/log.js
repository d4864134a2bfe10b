// SPDX-License-Identifier: Apache-2.0
// The event log, newest first, of bounded length.

import { element, fill } from "./dom.js";

const LINES = 400;

export class EventLog {
  #place;
  #events = [];
  #clock = () => "";

  constructor(place) {
    this.#place = place;
  }

  /** How instants are formatted: seconds since 1970 -> text. */
  set clock(format) {
    this.#clock = format;
    this.#redraw();
  }

  /** Add an event of the API, or of this page (`type` "here"), by its text. */
  add({ type, t_ns, text, severity }) {
    if (!text) return;
    const entry = { t: t_ns / 1e9, kind: type, text, grave: severity === "warning" };
    this.#events.push(entry);
    if (this.#events.length > LINES) this.#events.shift();
    this.#place.prepend(this.#line(entry));
    while (this.#place.children.length > LINES) this.#place.lastElementChild.remove();
  }

  clear() {
    this.#events = [];
    this.#redraw();
  }

  /** Mark the events after an instant of a replay as still to come. */
  upTo(t) {
    const lines = this.#place.children;
    for (let index = 0; index < lines.length; index += 1) {
      lines[index].classList.toggle("to-come", this.#events[this.#events.length - 1 - index].t > t);
    }
  }

  #redraw() {
    fill(this.#place, ...this.#events.map((entry) => this.#line(entry)).reverse());
  }

  #line({ t, kind, text, grave }) {
    const time = element("time", {}, Number.isFinite(t) ? this.#clock(t) : "");
    return element("li", { class: grave ? "grave" : null, "data-kind": kind }, time, element("span", {}, text));
  }
}
