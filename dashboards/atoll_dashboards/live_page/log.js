// SPDX-License-Identifier: Apache-2.0
// What happened, newest first, no more lines than anybody reads.

import { describe } from "./describe.js";
import { element, fill } from "./dom.js";

const LINES = 400;

export class EventLog {
  #place;
  #events = [];
  #clock = () => "";

  constructor(place) {
    this.#place = place;
  }

  /** How instants are told: seconds since 1970 -> text. */
  set clock(tell) {
    this.#clock = tell;
    this.#redraw();
  }

  /** Note an event of the API, or of this page (`type` "here"). Samples are left out. */
  add(event) {
    const line = describe(event);
    if (!line?.text) return;
    const told = { ...line, t: event.t_ns / 1e9 };
    this.#events.push(told);
    if (this.#events.length > LINES) this.#events.shift();
    this.#place.prepend(this.#line(told));
    while (this.#place.children.length > LINES) this.#place.lastElementChild.remove();
  }

  clear() {
    this.#events = [];
    this.#redraw();
  }

  /** In a replay: what is yet to come at an instant is shown as such. */
  upTo(t) {
    const lines = this.#place.children;
    for (let index = 0; index < lines.length; index += 1) {
      lines[index].classList.toggle("to-come", this.#events[this.#events.length - 1 - index].t > t);
    }
  }

  #redraw() {
    fill(this.#place, ...this.#events.map((told) => this.#line(told)).reverse());
  }

  #line({ t, kind, text, grave }) {
    const time = element("time", {}, Number.isFinite(t) ? this.#clock(t) : "");
    return element("li", { class: grave ? "grave" : null, "data-kind": kind }, time, element("span", {}, text));
  }
}
