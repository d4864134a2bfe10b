// SPDX-License-Identifier: Apache-2.0
// A time series of bounded length that overwrites its oldest points.

const FIRST = 256;

/** Instants are seconds since 1970, strictly increasing; a value of NaN marks a gap. */
export class RingBuffer {
  #times = new Float64Array(FIRST);
  #values = new Float64Array(FIRST);
  #begin = 0;
  #length = 0;
  #capacity;

  constructor(capacity) {
    this.#capacity = capacity;
  }

  get length() {
    return this.#length;
  }

  /** Instant of the first and of the last point; NaN without any. */
  get first() {
    return this.time(0);
  }

  get last() {
    return this.time(this.#length - 1);
  }

  time(index) {
    return index >= 0 && index < this.#length ? this.#times[this.#slot(index)] : NaN;
  }

  value(index) {
    return index >= 0 && index < this.#length ? this.#values[this.#slot(index)] : NaN;
  }

  /** Add a point, unless it is not later than the last one: then it is there already, or came too late. */
  push(t, value) {
    if (this.#length && !(t > this.last)) return false;
    if (this.#length === this.#times.length) this.#makeRoom();
    if (this.#length === this.#capacity) {
      this.#begin = (this.#begin + 1) % this.#times.length;
      this.#length -= 1;
    }
    const slot = this.#slot(this.#length);
    this.#times[slot] = t;
    this.#values[slot] = value;
    this.#length += 1;
    return true;
  }

  /** How many points lie before the instant: the index of the first at or after it. */
  before(t) {
    let low = 0;
    let high = this.#length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.time(middle) < t) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  /** Index of the last point at or before the instant; -1 if there is none. */
  #upTo(t) {
    const index = this.before(t);
    return this.time(index) === t ? index : index - 1;
  }

  /** The last value at an instant, no older than `age` seconds; NaN if there is none. */
  at(t, age = Infinity) {
    const index = this.#upTo(t);
    return index >= 0 && t - this.time(index) <= age ? this.value(index) : NaN;
  }

  /** Mean of the values in (from, to]; NaN where there is none. */
  mean(from, to) {
    let sum = 0;
    let count = 0;
    for (let index = this.#upTo(to); index >= 0 && this.time(index) > from; index -= 1) {
      const value = this.value(index);
      if (!Number.isNaN(value)) {
        sum += value;
        count += 1;
      }
    }
    return count ? sum / count : NaN;
  }

  #slot(index) {
    return (this.#begin + index) % this.#times.length;
  }

  #makeRoom() {
    const size = Math.min(this.#capacity, this.#times.length * 2);
    if (size <= this.#times.length) return;
    this.#times = this.#unrolled(this.#times, size);
    this.#values = this.#unrolled(this.#values, size);
    this.#begin = 0;
  }

  #unrolled(old, size) {
    const grown = new Float64Array(size);
    for (let index = 0; index < this.#length; index += 1) grown[index] = old[this.#slot(index)];
    return grown;
  }
}
